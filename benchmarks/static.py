"""The static model: papers encoded per second, compared with a reference-style encoder, and query latency.

The reference-style encoder (benchmarks/training.py) pads every document to 3 x 512 tokens and computes both
levels in float32. The static model reads and encodes the whole corpus.
"""

from __future__ import annotations

import statistics
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch

from citerec.benchmarks._common import (
    Tasks,
    load_corpus,
    make_parser,
    median_seconds,
    memory_gb,
    random_vectors,
    setup,
    time_call,
)
from citerec.benchmarks.training import PlainEncoder, pad
from citerec.hatten.documents import DocumentReader
from citerec.hatten.recipe import StaticEncoder
from citerec.hatten.settings import EncoderConfig
from citerec.hatten.static import StaticModel, load_static
from citerec.retrieval.queries import Queries, Query
from citerec.retrieval.vectors import encode, encode_queries


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--checkpoint", type=Path, default=None, help="static model; default: random weights")
    parser.add_argument("--plain", type=int, default=16, help="papers for the reference-style encoder")
    parser.add_argument("--questions", type=int, default=200, help="queries, encoded one at a time")
    args = parser.parse_args()
    setup(args)
    corpus = load_corpus(args)
    vocabulary, table = random_vectors(corpus)
    config = EncoderConfig()
    if args.checkpoint is None:
        model = StaticModel(StaticEncoder(table, vocabulary).to_numpy(), vocabulary, config.max_tokens, {})
    else:
        start = time.perf_counter()
        model = load_static(args.checkpoint)
        print(f"loading the model: {time.perf_counter() - start:.2f} s")
    encoder, words = model.with_unknown_words()
    reader = DocumentReader(corpus, words, model.max_tokens, model.near)
    rows = np.random.default_rng(0).permutation(np.flatnonzero(corpus.is_candidate))
    torch.manual_seed(0)
    reference = PlainEncoder(config, table).eval()
    few, plain_reader = rows[: args.plain], DocumentReader(corpus, vocabulary, config.max_tokens)

    def encode_plain() -> object:
        with torch.inference_mode():
            return reference(*pad(plain_reader.papers(few), config.max_tokens))

    tasks: Tasks = {
        "static": lambda: encode(encoder.encode, reader.papers, rows, encoder.dim),
        "plain": encode_plain,
    }
    times = median_seconds(args, tasks)
    static, plain = len(rows) / times["static"], len(few) / times["plain"]
    length = len(reader.papers(rows[:1000]).paragraphs.values) / min(1000, len(rows))
    print(f"static: {static:,.0f} papers/s ({len(rows):,} papers of {length:.0f} words, reading included)")
    print(f"reference-style encoder: {plain:,.1f} papers/s ({len(few)} papers)")
    print(f"static / reference: {static / plain:,.0f}; peak memory {memory_gb():.2f} GB")

    contexts = corpus.split("test").contexts[: args.questions]
    texts = [
        Query(corpus.context_texts[row], corpus.titles[paper], corpus.abstracts[paper])
        for row, paper in zip(contexts.tolist(), corpus.citing[contexts].tolist(), strict=True)
    ]
    queries = [Queries.from_list(corpus, [text]) for text in texts]
    encode_one = partial(encode_queries, encoder.encode, reader, dim=encoder.dim)
    query_times = [time_call(args, partial(encode_one, query)) for query in queries]
    print(f"single query: {1000 * statistics.median(query_times):.2f} ms")


if __name__ == "__main__":
    main()
