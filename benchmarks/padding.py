"""How much of what article encoders multiply is padding, by how many papers are put in order of length.

Lengths are those of title and abstract in MiniLM's subwords; nothing is encoded.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from datasets.citations.graph import read_paper_lines
from retrieval.encoder import load_pretrained
from retrieval.settings import ArticleConfig
from retrieval.vectors import chunks, padded_length


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    papers = Path("../shared/data/arxiv9196/papers.jsonl.gz")
    parser.add_argument("--papers", type=Path, default=papers, help="a file of papers (docs/global.md)")
    parser.add_argument("--max-tokens", type=int, default=512, help="subwords that are read of a paper")
    parser.add_argument("--chunk-tokens", type=int, default=4096, help="subwords of a forward pass")
    args = parser.parse_args()
    lengths = np.minimum(subwords(args.papers), args.max_tokens)
    print(f"{len(lengths):,} papers of {lengths.mean():.0f} subwords, at most {args.max_tokens}")
    plain = sum(len(part) * int(part.max()) for part in np.split(lengths, range(32, len(lengths), 32)))
    print(f"32 papers at a time as they come: {plain / lengths.sum() - 1:.1%} more than without padding")
    for together in (1024, 4096, 8192, len(lengths)):
        parts = np.split(lengths, range(together, len(lengths), together))
        done = sum(multiplied(part, args.chunk_tokens, args.max_tokens) for part in parts)
        print(f"{together:,} papers in order of length: {done / lengths.sum() - 1:.1%} more")


def subwords(path: Path) -> NDArray[np.int64]:
    """Of each paper, special ones included."""
    _, tokenizer = load_pretrained(ArticleConfig("minilm", hub="sentence-transformers/all-MiniLM-L6-v2"))
    backend = tokenizer.backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    texts = [f"{paper.title}. {paper.abstract}" for paper in read_paper_lines(path)]
    return np.array([len(encoding.ids) for encoding in backend.encode_batch_fast(texts)])


def multiplied(lengths: NDArray[np.int64], chunk_tokens: int, max_tokens: int) -> int:
    """Subwords that go through the model, padding included, as ArticleEncoder cuts the papers."""
    falling, total = -np.sort(-lengths), 0
    for part in chunks(falling, chunk_tokens):
        some = falling[part]
        width = int(some[0])
        total += len(some) * (width if some[-1] == width else min(padded_length(width), max_tokens))
    return total


if __name__ == "__main__":
    main()
