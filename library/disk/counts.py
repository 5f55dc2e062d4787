"""Counts what occurs in papers (datasets.word_statistics), part by part, and adds the counts up.

    part-00007.npy, .json   ENTRY of a part, by hash; and sums of text lengths
    range-00007.npy         ENTRY of one of RANGES ranges of hashes in all parts, of what occurs twice

Parts and ranges are counted independently, so that neither step goes through one process.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from citerec.base.files import write_text
from citerec.datasets import word_statistics
from citerec.datasets.records import PaperRecord
from citerec.datasets.some_papers import SomePapers
from citerec.library.disk.reading import save_array
from citerec.rerank.ranker.author_names import AUTHOR, hash_authors
from citerec.rerank.ranker.corpus_statistics import CorpusStatistics
from citerec.rerank.ranker.paper_names import hash_texts
from citerec.retrieval.lexical.bm25 import BM25
from citerec.retrieval.lexical.terms import Terms

RANGES = 64
"""Ranges of hashes that are added up independently."""
PAPERS_AT_A_TIME = 1 << 14
Counts = tuple[word_statistics.Hashes, NDArray[np.int64]]
Sums = dict[str, NDArray[np.float64]]
"""Total length and number of the texts of each kind."""


def count_part(papers: Iterator[PaperRecord], file: Path) -> None:
    """Count the papers of a part, and write a .npy and then a .json file."""
    found: list[Counts] = []
    sums: Sums = {}
    while batch := list(islice(papers, PAPERS_AT_A_TIME)):
        counts, more = count_papers(SomePapers(batch, None, file.stem))
        found.append(counts)
        _add_sums(sums, more)
    _save(file, *add_up(found))
    write_text(file.with_suffix(".json"), json.dumps({kind: pair.tolist() for kind, pair in sums.items()}))


def _add_sums(sums: Sums, more: Sums) -> None:
    for kind, pair in more.items():
        sums[kind] = sums.get(kind, np.zeros(2)) + pair


def _save(file: Path, hashes: word_statistics.Hashes, counts: NDArray[np.int64]) -> None:
    columns = np.empty(len(hashes), word_statistics.ENTRY)
    columns["hash"], columns["count"] = hashes, np.minimum(counts, 2**32 - 1)
    save_array(file, columns)


def count_papers(corpus: SomePapers) -> tuple[Counts, Sums]:
    """Count what occurs in papers; also sums of text lengths and numbers of texts, by kind."""
    parts: list[Counts] = []

    def add(kind: str, hashes: word_statistics.Hashes, times: NDArray[np.integer]) -> None:
        parts.append((hashes ^ word_statistics.salt(kind), times.astype(np.int64)))

    add(word_statistics.WORD, word_statistics.hash_names(corpus.words), corpus.word_counts)
    sums = {word_statistics.WORD: np.array([float(np.sum(corpus.word_counts)), len(corpus.paper_ids)])}
    bm25 = BM25()
    rows = np.arange(len(corpus.paper_ids))
    terms = Terms.from_words(corpus.words, **bm25.tokenisation)
    texts = sum(
        terms.counts(rows, words, len(rows)) for words in (corpus.title_tokens, corpus.abstract_tokens)
    )
    add(word_statistics.BM25_TERM, word_statistics.hash_names(terms.names), np.diff(texts.indptr))
    sums[word_statistics.BM25_TERM] = np.array([texts.sum(), len(rows)])
    statistics = CorpusStatistics(corpus)
    title, abstract = (statistics.counts(words) for words in (corpus.title_tokens, corpus.abstract_tokens))
    beginnings = statistics.counts(corpus.title_tokens, statistics.beginnings)
    frequency = np.bincount((title + abstract).indices, minlength=statistics.terms.size)
    add(word_statistics.TERM, word_statistics.hash_names(statistics.terms.names), frequency)
    frequency = np.bincount(beginnings.indices, minlength=statistics.beginnings.size)
    add(word_statistics.BEGINNING, word_statistics.hash_names(statistics.beginnings.names), frequency)
    for name, counted in (("title", title), ("abstract", abstract), ("title_beginnings", beginnings)):
        lengths = np.asarray(counted.sum(axis=1)).ravel()
        sums[name] = np.array([lengths.sum(), np.count_nonzero(lengths)])
    keys, times = np.unique(statistics.adjacent_pairs(corpus.title_tokens)[0], return_counts=True)
    add(word_statistics.PAIR, statistics.hash_pairs(keys), times)
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


def add_up_range(files: Sequence[Path], number: int, target: Path) -> None:
    """Add up one of RANGES ranges of hashes of all parts; keeps what occurs twice."""
    start, stop = (2**64 // RANGES * bound for bound in (number, number + 1))
    found = []
    for file in files:
        part = np.load(file, mmap_mode="r", allow_pickle=False)
        within = np.array(part[bisect_left(part["hash"], start) : bisect_left(part["hash"], stop)])
        found.append((within["hash"], within["count"].astype(np.int64)))
    hashes, counts = add_up(found)
    _save(target, hashes[counts > 1], counts[counts > 1])


def write_statistics(ranges: Sequence[Path], parts: Sequence[Path], folder: Path) -> None:
    """Join the ranges into the files that `WordStatistics.open` reads.

    The average length of titles in known pairs is that of title pairs until the shards are built.
    """
    found = [np.load(file, mmap_mode="r", allow_pickle=False) for file in ranges]
    sums: Sums = {}
    for file in parts:
        pairs = json.loads(file.with_suffix(".json").read_text("utf-8"))
        _add_sums(sums, {kind: np.array(pair) for kind, pair in pairs.items()})
    words, papers = sums.pop(word_statistics.WORD).tolist()
    averages = {kind: max(total / max(texts, 1), 1e-9) for kind, (total, texts) in sums.items()}
    word_statistics.WordStatistics.write(
        folder, found, {"papers": int(papers), "words": int(words), "averages": averages}
    )
