"""Counts what occurs in papers (datasets.word_statistics), part by part, and adds the counts up.

Each part gives hashes and counts, sorted. Ranges of hashes are then added up independently, so that neither
step goes through one process.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from citerec.datasets.columns import save_arrays
from citerec.datasets.files import write_text
from citerec.datasets.records import PaperRecord
from citerec.datasets.some_papers import SomePapers
from citerec.datasets.word_statistics import (
    BEGINNING,
    BM25_TERM,
    PAIR,
    TERM,
    TOTALS,
    WORD,
    Hashes,
    hash_names,
    salt,
)
from citerec.rerank.corpus_statistics import CorpusStatistics
from citerec.rerank.names import hash_texts
from citerec.rerank.surnames import AUTHOR, hash_authors
from citerec.retrieval.bm25 import BM25
from citerec.retrieval.terms import Terms

RANGES = 64
"""Ranges of hashes that are added up independently."""
Counts = tuple[Hashes, NDArray[np.int64]]


def count_part(batches: Iterator[Sequence[PaperRecord]], file: Path) -> None:
    """Count the papers of a part, batch by batch, and write hashes, counts and totals to an .npz file."""
    found: list[Counts] = []
    totals: dict[str, NDArray[np.float64]] = {}
    for papers in batches:
        counts, sums = count_papers(SomePapers(papers, None, file.stem))
        found.append(counts)
        for name, pair in sums.items():
            totals[name] = totals.get(name, np.zeros(2)) + pair
    hashes, counts_ = add_up(found)
    temporary = file.with_suffix(".tmp.npz")
    columns: dict[str, Any] = {f"sum {name}": pair for name, pair in totals.items()}
    np.savez(temporary, hashes=hashes, counts=counts_, **columns)
    temporary.rename(file)


def count_papers(corpus: SomePapers) -> tuple[Counts, dict[str, NDArray[np.float64]]]:
    """Count what occurs in papers; also sums of text lengths and numbers of texts, by kind."""
    parts: list[Counts] = []

    def add(kind: str, hashes: Hashes, times: NDArray[np.integer]) -> None:
        parts.append((hashes ^ salt(kind), times.astype(np.int64)))

    add(WORD, hash_names(corpus.words), corpus.word_counts)
    sums = {WORD: np.array([float(np.sum(corpus.word_counts)), len(corpus.paper_ids)])}
    bm25 = BM25()
    rows = np.arange(len(corpus.paper_ids))
    terms = Terms.from_words(corpus.words, **bm25.tokenisation)
    texts = sum(
        terms.counts(rows, words, len(rows)) for words in (corpus.title_tokens, corpus.abstract_tokens)
    )
    add(BM25_TERM, hash_names(terms.names), np.diff(texts.indptr))
    sums[BM25_TERM] = np.array([texts.sum(), len(rows)])
    statistics = CorpusStatistics(corpus)
    title, abstract = (statistics.counts(words) for words in (corpus.title_tokens, corpus.abstract_tokens))
    beginnings = statistics.counts(corpus.title_tokens, statistics.beginnings)
    frequency = np.bincount((title + abstract).indices, minlength=statistics.terms.size)
    add(TERM, hash_names(statistics.terms.names), frequency)
    frequency = np.bincount(beginnings.indices, minlength=statistics.beginnings.size)
    add(BEGINNING, hash_names(statistics.beginnings.names), frequency)
    for name, counted in (("title", title), ("abstract", abstract), ("title_beginnings", beginnings)):
        lengths = np.asarray(counted.sum(axis=1)).ravel()
        sums[name] = np.array([lengths.sum(), np.count_nonzero(lengths)])
    keys, times = np.unique(statistics.adjacent_pairs(corpus.title_tokens)[0], return_counts=True)
    add(PAIR, statistics.hash_pairs(keys), times)
    for kind, (find, of) in statistics.names_of(corpus).items():
        hashes = hash_texts(corpus, find, of)[1]
        add(kind, *np.unique(hashes[hashes != 0], return_counts=True))
    add(AUTHOR, *np.unique(hash_authors(corpus, rows)[1], return_counts=True))
    return add_up(parts), sums


def add_up(parts: Sequence[Counts]) -> Counts:
    """Add up counts of hashes; returns ascending hashes and their counts."""
    if not parts:
        return np.empty(0, np.uint64), np.empty(0, np.int64)
    hashes, counts = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(hashes, kind="stable")
    hashes, counts = hashes[order], counts[order]
    first = (
        np.flatnonzero(np.append(True, hashes[1:] != hashes[:-1])) if len(hashes) else np.empty(0, np.int64)
    )
    return hashes[first], np.add.reduceat(counts, first) if len(first) else counts


def add_up_range(files: Sequence[Path], number: int, target: Path) -> int:
    """Add up one of RANGES ranges of hashes of all parts; keeps what occurs twice. Returns the bytes read."""
    start, stop = (np.uint64(min((2**64 // RANGES) * n, 2**64 - 1)) for n in (number, number + 1))
    found = []
    for file in files:
        with np.load(file, allow_pickle=False) as part:
            hashes = part["hashes"]
            end = len(hashes) if number == RANGES - 1 else np.searchsorted(hashes, stop)
            within = slice(np.searchsorted(hashes, start), end)
            found.append((hashes[within].copy(), part["counts"][within].copy()))
    hashes, counts = add_up(found)
    kept = counts > 1
    temporary = target.with_suffix(".tmp.npz")
    np.savez(temporary, hashes=hashes[kept], counts=np.minimum(counts[kept], 2**32 - 1).astype(np.uint32))
    temporary.rename(target)
    return sum(part[0].nbytes + part[1].nbytes for part in found)


def write_statistics(ranges: Sequence[Path], parts: Sequence[Path], folder: Path) -> None:
    """Join the ranges into the files that `WordStatistics.open` reads.

    The average length of titles in known pairs is that of title pairs; `finish_pairs` sets it.
    """
    columns: dict[str, list[NDArray[Any]]] = {"hashes": [], "counts": []}
    for file in ranges:
        with np.load(file, allow_pickle=False) as part:
            for name, column in columns.items():
                column.append(part[name])
    save_arrays(folder, **{name: np.concatenate(column) for name, column in columns.items()})
    sums: dict[str, NDArray[np.float64]] = {}
    for file in parts:
        with np.load(file, allow_pickle=False) as part:
            for name in part.files:
                if name.startswith("sum "):
                    kind = name.removeprefix("sum ")
                    sums[kind] = sums.get(kind, np.zeros(2)) + part[name]
    words, papers = sums.pop(WORD).tolist()
    averages = {kind: max(total / max(texts, 1), 1e-9) for kind, (total, texts) in sums.items()}
    totals = {"papers": int(papers), "words": int(words), "averages": averages}
    write_text(folder / TOTALS, json.dumps(totals, indent=1) + "\n")
