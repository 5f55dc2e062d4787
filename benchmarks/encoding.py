"""Papers encoded in a second, and the share of the ceiling: the encoder's matrix products, timed alone."""

from __future__ import annotations

import argparse
import statistics
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks._common import arguments, begin, corpus, random_vectors, seconds
from hatten.documents import DocumentReader
from hatten.encoder import HAttenEncoder, build_encoder
from hatten.settings import EncoderConfig
from retrieval.vectors import encode

Layout = tuple[tuple[int, ...], tuple[int, ...], torch.dtype]
Product = tuple[str, tuple[Layout, ...]]
PRODUCTS = ("mm", "addmm", "bmm", "baddbmm")


class Products(TorchDispatchMode):
    """Counts the matrix products that are done under it, by operation, sizes, strides and precision."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[Product] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func.overloadpacket.__name__
        if name in PRODUCTS:
            self.counts[name, tuple(layout(x) for x in args if isinstance(x, torch.Tensor))] += 1
        elif name.startswith("_scaled_dot_product"):  # does two products: scores, and the weighted sum
            q, k, v = (x.reshape(-1, *x.shape[2:]) for x in args[:3])
            weights = q.new_empty(len(q), q.shape[1], k.shape[1])
            for pair in ((q, k.transpose(1, 2)), (weights, v)):
                self.counts["bmm", tuple(map(layout, pair))] += 1
        return func(*args, **(kwargs or {}))


def layout(x: torch.Tensor) -> Layout:
    return tuple(x.shape), tuple(x.stride()), x.dtype


def repeatable(product: Product) -> Callable[[], object]:
    """The product on tensors of its own, result included."""
    name, layouts = product
    tensors = [
        torch.empty_strided(shape, stride, dtype=dtype).uniform_(-1, 1) for shape, stride, dtype in layouts
    ]
    function = getattr(torch, name)
    out = function(*tensors)
    return lambda: function(*tensors, out=out)


def measure(args: argparse.Namespace, encoder: HAttenEncoder, reader: DocumentReader) -> None:
    rows = np.random.default_rng(0).permutation(np.flatnonzero(reader.corpus.is_candidate))[: args.papers]
    tokens = len(reader.papers(rows).paragraphs.values)

    def work() -> object:
        return encode(encoder.eval().encode, reader.papers, rows, encoder.config.dim)

    work()  # warm, and out of what is counted
    with torch.no_grad(), Products() as products:
        encoder.eval().encode(reader.papers(rows))
    alone = {product: repeatable(product) for product in products.counts}
    taken: list[float] = []
    of_products: dict[Product, list[float]] = {product: [] for product in alone}
    for _ in range(args.repeats):  # in turns, so that both see the same load
        taken.append(seconds(args, work))
        with torch.inference_mode():
            for product, call in alone.items():
                call()
                of_products[product].append(seconds(args, call))
    whole = statistics.median(taken)
    ceiling = sum(products.counts[p] * statistics.median(times) for p, times in of_products.items())
    done = sum(count * operations(product) for product, count in products.counts.items())
    print(
        f"{str(encoder.precision).removeprefix('torch.'):9} {len(rows) / whole:7,.0f} papers/s "
        f"({tokens / len(rows):.0f} words each, {tokens / whole:,.0f} words/s); products alone "
        f"{len(rows) / ceiling:,.0f} papers/s at {done / ceiling / 1e9:,.0f} GFLOP/s, {len(alone)} shapes; "
        f"share of the ceiling {ceiling / whole:.0%}"
    )


def operations(product: Product) -> float:
    """Multiplications and additions."""
    (left, *_), (right, *_) = product[1][-2:]
    return 2.0 * float(np.prod(left)) * right[-1]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--papers", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--chunk-tokens", type=int, default=None, help="the encoder's own if not given")
    args = parser.parse_args()
    begin(args)
    opened = corpus(args)
    vocabulary, table = random_vectors(opened)
    torch.manual_seed(0)
    encoder = build_encoder(EncoderConfig(), table, vocabulary)
    encoder.chunk_tokens = args.chunk_tokens or encoder.chunk_tokens
    reader = DocumentReader(opened, vocabulary, encoder.config.max_tokens)
    for dtype in (torch.bfloat16, torch.float32):
        encoder.precision = dtype
        measure(args, encoder, reader)
    exact, fast = (vectors_of(encoder, reader, dtype) for dtype in (torch.float32, torch.bfloat16))
    print(f"cosine between the vectors of both precisions: at least {(exact * fast).sum(1).min():.5f}")


def vectors_of(encoder: HAttenEncoder, reader: DocumentReader, dtype: torch.dtype) -> torch.Tensor:
    encoder.precision = dtype
    return F.normalize(
        torch.from_numpy(encode(encoder.encode, reader.papers, np.arange(64), encoder.config.dim)), dim=1
    )


if __name__ == "__main__":
    main()
