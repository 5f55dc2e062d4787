"""Negative and positive mining: Gu et al. 2022, section 4.3."""

from __future__ import annotations

import os
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import Stemmer
from numpy.typing import NDArray
from scipy import sparse

from datasets.columns import Ragged, offsets_of
from datasets.corpus import Corpus, Split
from datasets.errors import InputError
from datasets.files import atomic_write, digest_file
from datasets.progress import count_progress
from datasets.records import MARKER_WORDS
from retrieval.base import top_k
from retrieval.bm25 import BM25
from retrieval.index import search_exact
from retrieval.queries import Queries

WORD = re.compile(r"[^\W\d_]{2,}")
PAIRS_AT_A_TIME = 200_000
QUERIES_AT_A_TIME = 1000
ROWS_AT_A_TIME = 1 << 16


@dataclass(frozen=True)
class Pool:
    """What was prefetched for the training queries: neither the cited nor the citing paper is among it.

    row: [queries of the split] int32, the row in `papers`, -1 for a query outside the sample
    papers: [rows, depth] int32 rows of the corpus, best first, -1 where there were fewer
    relevant: [rows, depth] bool, as close to the query in words as a cited paper (positive mining)
    """

    row: NDArray[np.int32]
    papers: NDArray[np.int32]
    relevant: NDArray[np.bool_]

    def draw(
        self, queries: NDArray[np.integer], size: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
        """For each query (row of the split) `size` different papers of its pool and whether each is relevant.

        -1 where the query is outside the sample or its pool is too short.
        """
        row = self.row[queries]
        places = np.argsort(rng.random((len(queries), self.papers.shape[1])), axis=1)[:, :size]
        papers = self.papers[row[:, None], places]
        papers = np.where(row[:, None] >= 0, papers, -1)
        return papers, self.relevant[row[:, None], places] & (papers >= 0)

    def save(self, path: Path) -> str:
        """Write to a .npz file, whole or not at all; gives its SHA-256."""
        with atomic_write(path) as unfinished, unfinished.open("wb") as file:
            np.savez(file, allow_pickle=False, row=self.row, papers=self.papers, relevant=self.relevant)
        return digest_file(path, "sha256")

    @classmethod
    def load(cls, path: Path, sha256: str) -> Pool:
        """InputError when the file is absent or not the one of that hash."""
        if not path.is_file():
            raise InputError(
                f"{path}: the mined pool of this run is gone; restart the training (resume=false)"
            )
        if digest_file(path, "sha256") != sha256:
            raise InputError(f"{path}: not the pool that this run mined; restart the training (resume=false)")
        try:
            with np.load(path, allow_pickle=False) as file:
                return cls(file["row"], file["papers"], file["relevant"])
        except (ValueError, KeyError, zipfile.BadZipFile) as error:
            raise InputError(f"{path}: not a mined pool ({error})") from None


def sample_rows(queries: NDArray[np.int64], size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """At most so many of them, in their order."""
    if size >= len(queries):
        return queries
    return queries[np.sort(rng.choice(len(queries), size, replace=False))]


def mine(
    corpus: Corpus,
    split: Split,
    queries: NDArray[np.int64],
    query_vectors: NDArray[np.float32],
    paper_vectors: NDArray[np.float32],
    depth: int,
    words: WordSets | None,
    candidates: NDArray[np.bool_] | None = None,
) -> Pool:
    """Prefetch by cosine for rows of a split; vectors [len(queries), D] and [P, D] of unit length.

    words: to find the prefetched papers whose Jaccard index with the query reaches that of a cited paper.
    """
    out = pad_positives(split.positives.take(queries), corpus.citing[split.contexts[queries]])
    allowed = corpus.is_candidate if candidates is None else candidates
    papers = search_exact(query_vectors, paper_vectors, depth, exclude=out, candidates=allowed).papers
    return _pool(corpus, split, queries, papers, words)


def mine_by_bm25(
    corpus: Corpus,
    split: Split,
    queries: NDArray[np.int64],
    depth: int,
    words: WordSets | None,
    candidates: NDArray[np.bool_] | None = None,
) -> Pool:
    """As `mine`, by BM25 with the whole query (title, abstract, context): it needs no trained encoder."""
    bm25 = BM25(query=("title", "abstract", "context"), threads=os.cpu_count() or 1)
    bm25.index(corpus)
    contexts, cited = split.contexts[queries], split.positives.take(queries)
    cited_papers = pad_positives(cited, corpus.citing[contexts])[:, :-1]
    papers = np.full((len(queries), depth), -1, np.int32)
    with count_progress("BM25 of training queries", len(queries)) as bar:
        for start in range(0, len(queries), QUERIES_AT_A_TIME):
            rows = slice(start, start + QUERIES_AT_A_TIME)
            # The cited papers may take some of the first places.
            found = bm25.search_allowed(contexts[rows], depth + cited_papers.shape[1], candidates)
            drop = (found.papers[:, :, None] == cited_papers[rows, None]).any(2)
            papers[rows] = top_k(found.papers, found.scores, depth, drop).papers
            bar(len(found))
    return _pool(corpus, split, queries, papers, words)


def _pool(
    corpus: Corpus,
    split: Split,
    queries: NDArray[np.int64],
    papers: NDArray[np.int32],
    words: WordSets | None,
) -> Pool:
    """Of what was prefetched, papers [len(queries), depth]."""
    contexts, depth = split.contexts[queries], papers.shape[1]
    cited = pad_positives(split.positives.take(queries), corpus.citing[contexts])[:, :-1]
    relevant = np.zeros(papers.shape, np.bool_)
    if words is not None:
        for start in range(0, len(queries), max(1, PAIRS_AT_A_TIME // depth)):
            rows = slice(start, start + max(1, PAIRS_AT_A_TIME // depth))
            sets = words.queries(contexts[rows])
            of_cited = words.jaccard(sets, cited[rows]).max(1, keepdims=True)
            of_found = words.jaccard(sets, papers[rows])
            relevant[rows] = (of_found >= of_cited) & (of_found > 0)  # sharing no word is no likeness
    row = np.full(len(split), -1, np.int32)
    row[queries] = np.arange(len(queries), dtype=np.int32)
    return Pool(row, papers, relevant)


def pad_positives(cited: Ragged, citing: NDArray[np.int32]) -> NDArray[np.int32]:
    """Cited papers [Q, most] with -1 where there are fewer, and the citing paper as the last column."""
    lengths = cited.lengths
    out = np.full((len(cited), int(lengths.max(initial=0)) + 1), -1, np.int32)
    out[:, :-1][np.arange(out.shape[1] - 1) < lengths[:, None]] = cited.values
    out[:, -1] = citing
    return out


class WordSets:
    """Sets of word stems of papers and queries, as rows of sparse matrices; stop words are left out."""

    def __init__(self, corpus: Corpus) -> None:
        from gensim.parsing.preprocessing import STOPWORDS

        stem = Stemmer.Stemmer("english").stemWord
        ids: dict[str, int] = {}
        of_word = np.full(len(corpus.words), -1, np.int64)
        for word_id, word in enumerate(corpus.words):
            if WORD.fullmatch(word) and word not in STOPWORDS and word not in MARKER_WORDS:
                of_word[word_id] = ids.setdefault(stem(word), len(ids))
        self.corpus, self._stem_of, self._stems = corpus, of_word, len(ids)
        self._papers: sparse.csr_array = self._rows(corpus.title_tokens, corpus.abstract_tokens)
        self._sizes = np.diff(self._papers.indptr)

    def queries(self, contexts: NDArray[np.integer]) -> sparse.csr_array:
        """(citing title, citing abstract, context) of contexts -> [Q, stems]"""
        queries = Queries.of(self.corpus, contexts)
        return self._rows(*(queries.words(field) for field in ("title", "abstract", "context")))

    def jaccard(self, sets: sparse.csr_array, papers: NDArray[np.integer]) -> NDArray[np.float64]:
        """sets [Q, stems], papers [Q, k] rows of the corpus (-1: none) -> [Q, k], 0 where there is none"""
        rows = np.repeat(np.arange(len(papers)), papers.shape[1])
        flat = np.maximum(papers.ravel(), 0)
        shared = sets[rows].multiply(self._papers[flat]).sum(axis=1)
        union = np.diff(sets.indptr)[rows] + self._sizes[flat] - shared
        index = np.where(papers.ravel() >= 0, shared / np.maximum(union, 1), 0.0)
        return np.asarray(index.reshape(papers.shape))

    def _rows(self, *columns: Ragged) -> sparse.csr_array:
        """The stems of each row over all columns; so many rows at a time that all words need not fit."""
        found, sizes = [], []
        for start in range(0, len(columns[0]), ROWS_AT_A_TIME):
            part = np.arange(start, min(start + ROWS_AT_A_TIME, len(columns[0])))
            words = [column.take(part) for column in columns]
            row = np.concatenate([np.repeat(np.arange(len(part)), column.lengths) for column in words])
            stem = np.concatenate([self._stem_of[column.values] for column in words])
            keys = np.unique(row[stem >= 0] * self._stems + stem[stem >= 0])
            found.append((keys % max(self._stems, 1)).astype(np.int32))
            sizes.append(np.bincount(keys // max(self._stems, 1), minlength=len(part)))
        stems = np.concatenate([np.empty(0, np.int32), *found])
        ends = offsets_of(np.concatenate([np.empty(0, np.int64), *sizes]))
        ones = np.ones(len(stems), np.float32)
        return sparse.csr_array((ones, stems, ends), shape=(len(columns[0]), self._stems))
