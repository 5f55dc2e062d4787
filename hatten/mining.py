"""Mine negatives and positives for training: Gu et al. 2022, section 4.3."""

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

from citerec.base.errors import InputError
from citerec.base.files import atomic_write, digest_file
from citerec.base.progress import count_progress
from citerec.datasets.columns import Ragged, offsets_of
from citerec.datasets.corpus import Corpus, Split
from citerec.datasets.records import MARKER_WORDS
from citerec.retrieval.base import top_k
from citerec.retrieval.indexes.index import search_exact
from citerec.retrieval.lexical.bm25 import BM25
from citerec.retrieval.queries import Queries
from citerec.training.processes import WHOLE, Share

WORD = re.compile(r"[^\W\d_]{2,}")
PAIR_CHUNK = 200_000
QUERY_CHUNK = 1000
ROW_CHUNK = 1 << 16


@dataclass(frozen=True)
class Pool:
    """Papers prefetched for the training queries, without the cited and citing papers of each query.

    row: [queries of the split] int32, row in `papers`, -1 for a query outside the sample
    papers: [rows, depth] int32 rows of the corpus, best first, padded with -1
    relevant: [rows, depth] bool, True for as much word overlap with the query as a cited paper has
    """

    row: NDArray[np.int32]
    papers: NDArray[np.int32]
    relevant: NDArray[np.bool_]

    def draw(
        self, queries: NDArray[np.integer], size: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
        """Draw `size` distinct papers from the pool of each query (row of the split): (papers, relevant).

        Papers are -1 for a query outside the sample, or if its pool is too small.
        """
        row = self.row[queries]
        columns = np.argsort(rng.random((len(queries), self.papers.shape[1])), axis=1)[:, :size]
        papers = self.papers[row[:, None], columns]
        papers = np.where(row[:, None] >= 0, papers, -1)
        return papers, self.relevant[row[:, None], columns] & (papers >= 0)

    def save(self, path: Path) -> str:
        """Write a .npz file atomically; return its SHA-256."""
        with atomic_write(path) as unfinished, unfinished.open("wb") as file:
            np.savez(file, allow_pickle=False, row=self.row, papers=self.papers, relevant=self.relevant)
        return digest_file(path, "sha256")

    @classmethod
    def load(cls, path: Path, sha256: str) -> Pool:
        """Load a saved pool; InputError if the file is missing or has another hash."""
        if not path.is_file():
            raise InputError(
                f"{path}: the mined pool of this run is missing; restart the training (resume=false)"
            )
        if digest_file(path, "sha256") != sha256:
            raise InputError(f"{path}: not the pool that this run mined; restart the training (resume=false)")
        try:
            with np.load(path, allow_pickle=False) as file:
                return cls(file["row"], file["papers"], file["relevant"])
        except (ValueError, KeyError, zipfile.BadZipFile) as error:
            raise InputError(f"{path}: not a mined pool ({error})") from None


def sample_rows(queries: NDArray[np.int64], size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Sample at most `size` queries; keeps their order."""
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
    share: Share = WHOLE,
) -> Pool:
    """Prefetch by cosine for rows of a split; vectors [queries of the share, D] and [P, D] of unit length.

    words: if given, mark prefetched papers whose Jaccard index with the query reaches a cited paper's.
    """
    own = queries[share.part(len(queries))]
    excluded = pad_positives(split.positives.take(own), corpus.citing[split.contexts[own]])
    allowed = corpus.is_candidate if candidates is None else candidates
    papers = search_exact(query_vectors, paper_vectors, depth, exclude=excluded, candidates=allowed).papers
    return _build_pool(corpus, split, queries, papers, words, share)


def mine_by_bm25(
    corpus: Corpus,
    split: Split,
    queries: NDArray[np.int64],
    depth: int,
    words: WordSets | None,
    candidates: NDArray[np.bool_] | None = None,
    share: Share = WHOLE,
) -> Pool:
    """Like `mine`, but prefetch by the BM25 of Gu et al. (retriever=bm25_gu); needs no trained encoder."""
    query = ("title", "abstract", "context")
    bm25 = BM25("okapi", stopwords=None, query=query, threads=os.cpu_count() or 1)
    bm25.index(corpus)
    own = queries[share.part(len(queries))]
    contexts, cited = split.contexts[own], split.positives.take(own)
    cited_papers = pad_positives(cited, corpus.citing[contexts])[:, :-1]
    papers = np.full((len(own), depth), -1, np.int32)
    with count_progress("BM25 of training queries", len(own)) as bar:
        for start in range(0, len(own), QUERY_CHUNK):
            rows = slice(start, start + QUERY_CHUNK)
            # Retrieve extra papers, since cited ones are dropped.
            found = bm25.search_allowed(contexts[rows], depth + cited_papers.shape[1], candidates)
            drop = (found.papers[:, :, None] == cited_papers[rows, None]).any(2)
            papers[rows] = top_k(found.papers, found.scores, depth, drop).papers
            bar(len(found))
    return _build_pool(corpus, split, queries, papers, words, share)


def _build_pool(
    corpus: Corpus,
    split: Split,
    queries: NDArray[np.int64],
    papers: NDArray[np.int32],
    words: WordSets | None,
    share: Share,
) -> Pool:
    """Build the pool of all queries, given the papers [own, depth] prefetched for this process's share."""
    own = queries[share.part(len(queries))]
    contexts, depth = split.contexts[own], papers.shape[1]
    cited = pad_positives(split.positives.take(own), corpus.citing[contexts])[:, :-1]
    relevant = np.zeros(papers.shape, np.bool_)
    if words is not None:
        for start in range(0, len(own), max(1, PAIR_CHUNK // depth)):
            rows = slice(start, start + max(1, PAIR_CHUNK // depth))
            sets = words.queries(contexts[rows])
            threshold = words.jaccard(sets, cited[rows]).max(1, keepdims=True)
            overlap = words.jaccard(sets, papers[rows])
            relevant[rows] = (overlap >= threshold) & (overlap > 0)  # the threshold can be 0
    row = np.full(len(split), -1, np.int32)
    row[queries] = np.arange(len(queries), dtype=np.int32)
    return Pool(row, share.collect(papers, len(queries)), share.collect(relevant, len(queries)))


def pad_positives(cited: Ragged, citing: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the cited papers padded with -1, and the citing paper as the last column: [Q, max cited + 1]."""
    lengths = cited.lengths
    out = np.full((len(cited), int(lengths.max(initial=0)) + 1), -1, np.int32)
    out[:, :-1][np.arange(out.shape[1] - 1) < lengths[:, None]] = cited.values
    out[:, -1] = citing
    return out


class WordSets:
    """Sets of word stems of papers and queries as rows of sparse matrices, without stop words."""

    def __init__(self, corpus: Corpus) -> None:
        from gensim.parsing.preprocessing import STOPWORDS

        stem = Stemmer.Stemmer("english").stemWord
        ids: dict[str, int] = {}
        stem_ids = np.full(len(corpus.words), -1, np.int64)
        for word_id, word in enumerate(corpus.words):
            if WORD.fullmatch(word) and word not in STOPWORDS and word not in MARKER_WORDS:
                stem_ids[word_id] = ids.setdefault(stem(word), len(ids))
        self.corpus, self._stem_ids, self._stems = corpus, stem_ids, len(ids)
        self._papers: sparse.csr_array = self._rows(corpus.title_tokens, corpus.abstract_tokens)
        self._sizes = np.diff(self._papers.indptr)

    def queries(self, contexts: NDArray[np.integer]) -> sparse.csr_array:
        """(citing title, citing abstract, context) of contexts -> [Q, stems]"""
        queries = Queries.from_contexts(self.corpus, contexts)
        return self._rows(*(queries.words(field) for field in ("title", "abstract", "context")))

    def jaccard(self, sets: sparse.csr_array, papers: NDArray[np.integer]) -> NDArray[np.float64]:
        """sets [Q, stems], papers [Q, k] rows of the corpus (-1: none) -> [Q, k], 0 for missing papers"""
        rows = np.repeat(np.arange(len(papers)), papers.shape[1])
        flat = np.maximum(papers.ravel(), 0)
        shared = sets[rows].multiply(self._papers[flat]).sum(axis=1)
        union = np.diff(sets.indptr)[rows] + self._sizes[flat] - shared
        index = np.where(papers.ravel() >= 0, shared / np.maximum(union, 1), 0.0)
        return np.asarray(index.reshape(papers.shape))

    def _rows(self, *columns: Ragged) -> sparse.csr_array:
        """Return the set of stems of each row over all columns, computed in chunks to bound memory."""
        found, sizes = [], []
        for start in range(0, len(columns[0]), ROW_CHUNK):
            part = np.arange(start, min(start + ROW_CHUNK, len(columns[0])))
            words = [column.take(part) for column in columns]
            row = np.concatenate([np.repeat(np.arange(len(part)), column.lengths) for column in words])
            stem = np.concatenate([self._stem_ids[column.values] for column in words])
            keys = np.unique(row[stem >= 0] * self._stems + stem[stem >= 0])
            found.append((keys % max(self._stems, 1)).astype(np.int32))
            sizes.append(np.bincount(keys // max(self._stems, 1), minlength=len(part)))
        stems = np.concatenate([np.empty(0, np.int32), *found])
        ends = offsets_of(np.concatenate([np.empty(0, np.int64), *sizes]))
        ones = np.ones(len(stems), np.float32)
        return sparse.csr_array((ones, stems, ends), shape=(len(columns[0]), self._stems))
