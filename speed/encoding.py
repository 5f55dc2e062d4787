"""Papers encoded per second and milliseconds per query: HAtten, the static model and MiniLM.

Their peers get the same texts on the same machine: an encoder like the reference's, which pads every document
to 3 x 512 tokens (speed.training), a plain transformers loop over padded batches of MiniLM, and
SentenceTransformer.encode, where sentence-transformers is installed. MiniLM comes from `make minilm`.
Without checkpoints, weights are random, which takes as long.
"""

from __future__ import annotations

import argparse
import copy
import statistics
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional as F

from citerec.datasets.corpus import Corpus
from citerec.hatten.documents import DocumentReader, Vocabulary
from citerec.hatten.encoder import StaticEncoder, build_encoder
from citerec.hatten.model import HAtten
from citerec.hatten.settings import EncoderConfig
from citerec.hatten.static.model import StaticModel
from citerec.hatten.trained import open_static
from citerec.retrieval.encoders.article_text import ArticleReader
from citerec.retrieval.encoders.encoder import ArticleEncoder, find_folder
from citerec.retrieval.encoders.nets import as_numpy
from citerec.retrieval.lexical.terms import query_texts
from citerec.retrieval.settings import ArticleConfig
from citerec.retrieval.vectors import encode, encode_queries
from citerec.speed._common import (
    load_corpus,
    make_parser,
    median_seconds,
    random_vectors,
    setup,
    time_call,
)
from citerec.speed.training import PlainEncoder, pad

MINILM = ArticleConfig("minilm", hub="sentence-transformers/all-MiniLM-L6-v2")
LOOP, REFERENCE = "MiniLM, float32, transformers in padded batches", "HAtten, float32, like the reference"
BATCH = 32


class Way(NamedTuple):
    """A way to encode: `papers` encodes the first `size` papers, `query` the i-th query."""

    papers: Callable[[], Any]
    query: Callable[[int], Any]
    size: int


class Sample:
    """The papers and queries that all ways encode."""

    def __init__(self, args: argparse.Namespace, corpus: Corpus) -> None:
        random = np.random.default_rng(0)
        self.corpus = corpus
        self.rows = random.permutation(np.flatnonzero(corpus.is_candidate))[: args.papers]
        self.contexts = random.permutation(corpus.split("test").contexts)[: args.queries]

    def way(self, encoder: Any, reader: Any, count: int) -> Way:
        """Return the way of one of our encoders."""
        call: Any = encoder.encode
        if isinstance(encoder, torch.nn.Module):
            call = as_numpy(call)
        return Way(
            lambda: encode(call, reader.papers, self.rows[:count], encoder.dim),
            lambda i: encode_queries(call, reader, self.contexts[i : i + 1], encoder.dim),
            count,
        )

    def texts(self, count: int) -> tuple[list[str], list[str]]:
        """Return the texts of `count` papers and of all queries."""
        corpus = self.corpus
        papers = [f"{corpus.titles[row]}. {corpus.abstracts[row]}" for row in self.rows[:count].tolist()]
        return papers, list(query_texts(corpus, self.contexts, MINILM.query))


def our_ways(args: argparse.Namespace, sample: Sample) -> dict[str, Way]:
    """Return the ways of HAtten, the static model and the reference-style encoder."""
    vocabulary, table = random_vectors(sample.corpus)
    torch.manual_seed(0)
    ways: dict[str, Way] = {}
    model = open_static(args.static) if args.static else untrained_static(vocabulary, table)
    encoder, words = model.with_unknown_words
    reader = DocumentReader(sample.corpus, words, model.max_tokens, model.near)
    ways["static model"] = sample.way(encoder, reader, len(sample.rows))
    config, hatten = EncoderConfig(), build_encoder(EncoderConfig(), table, vocabulary).eval()
    if args.checkpoint:
        loaded = HAtten.open(args.checkpoint)
        hatten, vocabulary, config = loaded.encoder, loaded.vocabulary, loaded.encoder.config
    reader = DocumentReader(sample.corpus, vocabulary, config.max_tokens)
    for precision in (torch.bfloat16, torch.float32):
        own = copy.deepcopy(hatten)
        own.precision = precision
        ways[f"HAtten, {short_name(precision)}"] = sample.way(own, reader, min(len(sample.rows), 1024))
    plain, default = PlainEncoder(EncoderConfig(), table).eval(), EncoderConfig().max_tokens

    @torch.inference_mode()
    def reference(documents: Any) -> Any:
        return plain(*pad(documents, default))

    ways[REFERENCE] = Way(
        lambda: reference(reader.papers(sample.rows[: args.plain])),
        lambda i: reference(reader.queries(sample.contexts[i : i + 1])),
        args.plain,
    )
    return ways


def untrained_static(vocabulary: Vocabulary, table: Any) -> StaticModel:
    return StaticModel(
        StaticEncoder(table, vocabulary).to_numpy(), vocabulary, EncoderConfig().max_tokens, {}
    )


def minilm_ways(args: argparse.Namespace, sample: Sample) -> dict[str, Way]:
    """Return the ways of MiniLM: with our reader, with a plain loop, and with sentence-transformers."""
    papers, queries = sample.texts(args.texts)
    ways: dict[str, Way] = {}
    for precision in (torch.bfloat16, torch.float32):
        minilm = ArticleEncoder.pretrained(MINILM).freeze(short_name(precision))
        reader = ArticleReader(sample.corpus, minilm.tokenizer, MINILM)
        ways[f"MiniLM, {short_name(precision)}"] = sample.way(minilm, reader, args.texts)
    loop = partial(plain_loop, minilm)
    ways[LOOP] = Way(lambda: loop(papers), lambda i: loop(queries[i : i + 1]), args.texts)
    if find_spec("sentence_transformers") is None:
        print("left out: sentence-transformers, which is not installed")
        return ways
    from sentence_transformers import SentenceTransformer

    peer = SentenceTransformer(str(find_folder(MINILM)), device="cpu")
    peer.max_seq_length = MINILM.max_tokens
    encode_texts = partial(peer.encode, batch_size=BATCH, show_progress_bar=False)
    ways["MiniLM, float32, sentence-transformers"] = Way(
        lambda: encode_texts(papers), lambda i: encode_texts(queries[i : i + 1]), args.texts
    )
    return ways


@torch.inference_mode()
def plain_loop(encoder: ArticleEncoder, texts: list[str]) -> Any:
    """Encode unsorted batches, each padded to its longest text."""
    found = []
    for start in range(0, len(texts), BATCH):
        inputs = encoder.tokenizer(
            texts[start : start + BATCH],
            padding=True,
            truncation=True,
            max_length=encoder.config.max_tokens,
            return_tensors="pt",
        )
        mask = inputs["attention_mask"][:, :, None]
        found.append((encoder.model(**inputs).last_hidden_state * mask).sum(1) / mask.sum(1))
    return np.asarray(F.normalize(torch.cat(found), dim=1).numpy())


def short_name(precision: torch.dtype) -> str:
    return str(precision).removeprefix("torch.")


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument(
        "--papers", type=int, default=20_000, help="papers for the static model; HAtten: 1,024"
    )
    parser.add_argument("--texts", type=int, default=128, help="papers for MiniLM; 0: leave it out")
    parser.add_argument("--plain", type=int, default=16, help="papers for the reference-style encoder")
    parser.add_argument("--queries", type=int, default=64, help="queries, encoded one at a time")
    parser.add_argument("--checkpoint", type=Path, help="HAtten model; default: random weights")
    parser.add_argument("--static", type=Path, help="folder of a static model; default: random weights")
    args = parser.parse_args()
    setup(args)
    sample = Sample(args, load_corpus(args))
    ways = our_ways(args, sample)
    if args.texts and find_folder(MINILM) is not None:
        ways |= minilm_ways(args, sample)
    elif args.texts:
        print("left out: MiniLM, which is not installed (make minilm)")
    papers = median_seconds(args, {name: way.papers for name, way in ways.items()})
    speed = {name: way.size / papers[name] for name, way in ways.items()}
    query = {
        name: statistics.median(time_call(args, partial(way.query, i)) for i in range(len(sample.contexts)))
        for name, way in ways.items()
    }
    peer = LOOP if LOOP in ways else REFERENCE
    print(f"{'':48} papers/s  ms/query  papers/s as multiples of {peer}")
    for name, value in speed.items():
        print(f"{name:48} {value:8,.1f} {1000 * query[name]:9.2f} {value / speed[peer]:9,.2f}")
    if LOOP in ways:
        cosine = (ways["MiniLM, float32"].papers() * ways[LOOP].papers()).sum(axis=1).min()
        print(f"cosine of MiniLM's vectors with the plain loop: at least {cosine:.6f}")


if __name__ == "__main__":
    main()
