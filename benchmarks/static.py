"""Papers a second of static encoding, beside an encoder in the manner of the reference; single questions.

The reference's encoder pads every document to 3 x 512 tokens and computes both levels in float32
(benchmarks/training.py has it); the static model reads and encodes the same papers, and, for the steady rate,
all of the corpus.
"""

from __future__ import annotations

import statistics
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch

from benchmarks._common import arguments, begin, corpus, median_seconds, memory, random_vectors, seconds
from benchmarks.training import PlainEncoder, padded
from hatten.documents import DocumentReader
from hatten.recipe import StaticEncoder
from hatten.settings import EncoderConfig
from hatten.static import StaticModel, load_static
from retrieval.queries import Queries, Query
from retrieval.vectors import encode, encode_queries


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--checkpoint", type=Path, default=None, help="of model=static; else random weights")
    parser.add_argument("--plain", type=int, default=16, help="papers that the reference's encoder gets")
    parser.add_argument("--questions", type=int, default=200, help="encoded one at a time")
    args = parser.parse_args()
    begin(args)
    opened = corpus(args)
    vocabulary, table = random_vectors(opened)
    config = EncoderConfig()
    if args.checkpoint is None:
        model = StaticModel(StaticEncoder(table, vocabulary).frozen(), vocabulary, config.max_tokens, {})
    else:
        start = time.perf_counter()
        model = load_static(args.checkpoint)
        print(f"loading the model: {time.perf_counter() - start:.2f} s")
    encoder, words = model.opened()
    reader = DocumentReader(opened, words, model.max_tokens, model.near)
    rows = np.random.default_rng(0).permutation(np.flatnonzero(opened.is_candidate))
    torch.manual_seed(0)
    reference = PlainEncoder(config, table).eval()
    few, plain_reader = rows[: args.plain], DocumentReader(opened, vocabulary, config.max_tokens)

    def plainly() -> object:
        with torch.inference_mode():
            return reference(*padded(plain_reader.papers(few), config.max_tokens))

    taken = median_seconds(
        args,
        {"static": lambda: encode(encoder.encode, reader.papers, rows, encoder.dim), "reference": plainly},
    )
    static, plain = len(rows) / taken["static"], len(few) / taken["reference"]
    length = len(reader.papers(rows[:1000]).paragraphs.values) / min(1000, len(rows))
    print(f"static: {static:,.0f} papers/s ({len(rows):,} papers of {length:.0f} words, reading included)")
    print(f"the reference's encoder: {plain:,.1f} papers/s ({len(few)} papers)")
    print(f"static / reference: {static / plain:,.0f}; peak memory {memory():.2f} GB")

    contexts = opened.split("test").contexts[: args.questions]
    texts = [
        Query(opened.context_texts[row], opened.titles[paper], opened.abstracts[paper])
        for row, paper in zip(contexts.tolist(), opened.citing[contexts].tolist(), strict=True)
    ]
    asked = [Queries.asked(opened, [text]) for text in texts]
    encode_one = partial(encode_queries, encoder.encode, reader, dim=encoder.dim)
    times = [seconds(args, lambda question=question: encode_one(question)) for question in asked]  # type: ignore[misc]
    print(f"a question: {1000 * statistics.median(times):.2f} ms, encoded one at a time")


if __name__ == "__main__":
    main()
