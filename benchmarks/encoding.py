"""Papers encoded per second: HAtten compared with its matrix products alone, and with MiniLM.

MiniLM (`make minilm`) runs with our reader, with a plain transformers loop over padded batches, and, given
--peer-python, with SentenceTransformer.encode in another environment. Queries are encoded one at a time.
"""

from __future__ import annotations

import argparse
import copy
import statistics
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from citerec.benchmarks._common import (
    Peer,
    Tasks,
    load_corpus,
    make_parser,
    median_seconds,
    random_vectors,
    setup,
    time_call,
)
from citerec.datasets.corpus import Corpus
from citerec.hatten.checkpoint import load_model
from citerec.hatten.documents import DocumentReader
from citerec.hatten.encoder import HAttenEncoder, build_encoder
from citerec.hatten.settings import EncoderConfig
from citerec.retrieval.article_text import ArticleReader
from citerec.retrieval.encoder import ArticleEncoder, find_folder
from citerec.retrieval.nets import as_numpy
from citerec.retrieval.settings import ArticleConfig
from citerec.retrieval.terms import query_texts
from citerec.retrieval.vectors import encode, encode_queries

PEER = """
from sentence_transformers import SentenceTransformer
model = SentenceTransformer(task["model"], device="cpu")
model.max_seq_length = 256
for line in sys.stdin:
    start, texts = clock(), json.loads(line)
    model.encode(texts, batch_size=32, show_progress_bar=False)
    print(json.dumps(clock() - start), flush=True)
"""
PLAIN = "MiniLM, float32, plain loop"
Layout = tuple[tuple[int, ...], tuple[int, ...], torch.dtype]
Product = tuple[str, tuple[Layout, ...]]


class Products(TorchDispatchMode):
    """Counts matrix products by operation, shapes, strides and dtypes."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[Product] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func.overloadpacket.__name__
        if name in ("mm", "addmm", "bmm", "baddbmm"):
            self.counts[name, tuple(_layout(x) for x in args if isinstance(x, torch.Tensor))] += 1
        elif name.startswith("_scaled_dot_product"):  # two products: scores and weighted sums
            q, k, v = (x.reshape(-1, *x.shape[2:]) for x in args[:3])
            weights = q.new_empty(len(q), q.shape[1], k.shape[1])
            for pair in ((q, k.transpose(1, 2)), (weights, v)):
                self.counts["bmm", tuple(map(_layout, pair))] += 1
        return func(*args, **(kwargs or {}))


def _layout(x: torch.Tensor) -> Layout:
    return tuple(x.shape), tuple(x.stride()), x.dtype


def product_call(product: Product) -> Callable[[], object]:
    """Return a function that computes the product on random tensors."""
    name, layouts = product
    tensors = [
        torch.empty_strided(shape, stride, dtype=kind).uniform_(-1, 1) for shape, stride, kind in layouts
    ]
    function = getattr(torch, name)
    out = function(*tensors)
    return lambda: function(*tensors, out=out)


def compare_with_products(args: argparse.Namespace, encoder: HAttenEncoder, reader: DocumentReader) -> None:
    candidates = np.flatnonzero(reader.corpus.is_candidate)
    rows = np.random.default_rng(0).permutation(candidates)[: args.papers]
    documents = reader.papers(rows)
    with torch.no_grad(), Products() as products:
        encoder.encode(documents)
    tasks: Tasks = {"whole": lambda: encode(as_numpy(encoder.encode), reader.papers, rows, encoder.dim)}
    named = {str(number): product for number, product in enumerate(products.counts)}
    with torch.inference_mode():
        times = median_seconds(args, tasks | {name: product_call(product) for name, product in named.items()})
    ceiling = sum(products.counts[product] * times[name] for name, product in named.items())
    print(
        f"HAtten, {_short(encoder.precision)}: {len(rows) / times['whole']:,.0f} papers/s of "
        f"{len(documents.paragraphs.values) / len(rows):.0f} words, its products alone "
        f"{len(rows) / ceiling:,.0f}; {ceiling / times['whole']:.2f} of the ceiling"
    )


def plain_loop(encoder: ArticleEncoder, texts: list[str]) -> NDArray[np.float32]:
    """Encode unsorted batches of 32, padded to their longest text."""
    found = []
    with torch.inference_mode():
        for start in range(0, len(texts), 32):
            batch, max_tokens = texts[start : start + 32], encoder.config.max_tokens
            inputs = encoder.tokenizer(
                batch, padding=True, truncation=True, max_length=max_tokens, return_tensors="pt"
            )
            mask = inputs["attention_mask"][:, :, None]
            found.append((encoder.model(**inputs).last_hidden_state * mask).sum(1) / mask.sum(1))
    return np.asarray(F.normalize(torch.cat(found), dim=1).numpy())


def compare_with_minilm(
    args: argparse.Namespace, corpus: Corpus, hatten: HAttenEncoder, words: DocumentReader
) -> None:
    random = np.random.default_rng(0)
    rows = random.permutation(np.flatnonzero(corpus.is_candidate))[: args.texts]
    contexts = random.permutation(corpus.split("test").contexts)[: args.queries]
    config = ArticleConfig("minilm", hub="sentence-transformers/all-MiniLM-L6-v2")
    encoders: dict[str, tuple[Callable[[], Any], Callable[[int], Any]]] = {}

    def add(name: str, encoder: Any, reader: Any) -> None:
        encoders[name] = (
            lambda: encode(as_numpy(encoder.encode), reader.papers, rows, encoder.dim),
            lambda i: encode_queries(as_numpy(encoder.encode), reader, contexts[i : i + 1], encoder.dim),
        )

    for precision in (torch.bfloat16, torch.float32):
        encoder = copy.deepcopy(hatten)
        encoder.precision = precision
        add(f"HAtten, {_short(precision)}", encoder, words)
        minilm = ArticleEncoder.pretrained(config).freeze(_short(precision))
        add(f"MiniLM, {_short(precision)}", minilm, ArticleReader(corpus, minilm.tokenizer, config))
    papers = [f"{corpus.titles[row]}. {corpus.abstracts[row]}" for row in rows.tolist()]
    queries = list(query_texts(corpus, contexts, config.query))
    encoders[PLAIN] = lambda: plain_loop(minilm, papers), lambda i: plain_loop(minilm, queries[i : i + 1])

    papers_time = median_seconds(args, {name: encode_papers for name, (encode_papers, _) in encoders.items()})
    query_time = {
        name: statistics.median(time_call(args, partial(encode_query, i)) for i in range(len(contexts)))
        for name, (_, encode_query) in encoders.items()
    }
    folder = find_folder(config)
    if args.peer_python and folder is not None:
        name = "MiniLM, float32, SentenceTransformer.encode"
        peer = Peer(args, PEER, model=str(folder.resolve()))
        peer(papers[:64])
        papers_time[name] = statistics.median(peer(papers) for _ in range(args.repeats))
        query_time[name] = statistics.median(peer([text]) for text in queries)
        peer.close()
    print(f"{len(rows):,} papers, {len(contexts)} queries one at a time")
    for name, time in papers_time.items():
        print(
            f"{name:44} {len(rows) / time:8,.1f} papers/s {1000 * query_time[name]:7.1f} ms/query, "
            f"{papers_time[PLAIN] / time:5.2f} times the plain loop"
        )
    cosine = (encoders["MiniLM, float32"][0]() * encoders[PLAIN][0]()).sum(axis=1).min()
    print(f"cosine of MiniLM's vectors with the plain loop: at least {cosine:.6f}")


def _short(precision: torch.dtype) -> str:
    return str(precision).removeprefix("torch.")


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--papers", type=int, default=1024, help="papers for HAtten against its products")
    parser.add_argument("--texts", type=int, default=0, help="papers for HAtten against MiniLM; 0: skip")
    parser.add_argument("--queries", type=int, default=64)
    parser.add_argument("--checkpoint", type=Path, default=None, help="hatten.ckpt; default: random weights")
    parser.add_argument("--peer-python", default=None, help="Python executable with sentence_transformers")
    args = parser.parse_args()
    setup(args)
    corpus = load_corpus(args)
    if args.checkpoint is None:
        vocabulary, table = random_vectors(corpus)
        torch.manual_seed(0)
        encoder = build_encoder(EncoderConfig(), table, vocabulary).eval()
    else:
        model = load_model(args.checkpoint)
        encoder, vocabulary = model.encoder, model.vocabulary
    reader = DocumentReader(corpus, vocabulary, encoder.config.max_tokens)
    for precision in (torch.bfloat16, torch.float32):
        encoder.precision = precision
        compare_with_products(args, encoder, reader)
    if args.texts:
        compare_with_minilm(args, corpus, encoder, reader)


if __name__ == "__main__":
    main()
