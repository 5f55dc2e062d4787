"""Mines negatives and positives for training (Gu et al. 2022, section 4.3): before a round, the object
that model.mining._target_ names prefetches papers for its queries into a `Pool`, for batches to draw from.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import Stemmer
from numpy.typing import NDArray

from citerec.base.progress import count_progress
from citerec.datasets.columns import Ragged, offsets_of, sums_of_ranges
from citerec.datasets.corpus import Corpus, Split
from citerec.hatten.settings import MINER, MiningSettings
from citerec.hatten.training.batches import Pool
from citerec.hatten.training.losses import build_object
from citerec.retrieval.base import top_k
from citerec.retrieval.indexes.index import search_exact
from citerec.retrieval.lexical.terms import ENGLISH
from citerec.retrieval.queries import Queries
from citerec.training.processes import WHOLE, Share
from citerec.training.queries import DataSets

Vectors = tuple[NDArray[np.float32], NDArray[np.float32]]

WORD = re.compile(r"\w+")
ROW_CHUNK = 1 << 16
PAIR_CHUNK = 200_000
QUERY_CHUNK = 1000


@dataclass(frozen=True)
class MiningPlan:
    """What to mine for a round: rows of the training split, the papers to search [P], and the source of the
    mined papers, `encoder` or `bm25`."""

    queries: NDArray[np.int64]
    candidates: NDArray[np.bool_]
    source: str


@dataclass(frozen=True)
class Mining:
    """The mining of one process, for its share of `queries`, rows of a split.

    words: if given, prefetched papers are marked if their Jaccard index with the query reaches a cited
    paper's. allowed: the papers to search [P], by default all candidates. sets: data sets of the split's
    queries; a query is searched for in its own set only.
    """

    corpus: Corpus
    split: Split
    queries: NDArray[np.int64]
    words: WordSets | None = None
    allowed: NDArray[np.bool_] | None = None
    share: Share = WHOLE
    sets: DataSets | None = None

    @cached_property
    def own(self) -> NDArray[np.int64]:
        """The queries of this process."""
        return self.queries[self.share.part(len(self.queries))]

    @cached_property
    def excluded(self) -> NDArray[np.int32]:
        """The cited papers of its queries, padded with -1, and the citing paper: [own, most + 1]."""
        citing = self.corpus.own_papers(self.split.contexts[self.own])
        return np.column_stack((self.split.positives.take(self.own).padded(), citing))

    def by_vectors(
        self, query_vectors: NDArray[np.float32], paper_vectors: NDArray[np.float32], depth: int
    ) -> Pool:
        """Mine `depth` papers by cosine; vectors [own, D] and [P, D] of unit length."""
        papers = np.full((len(self.own), depth), -1, np.int32)
        for rows, mask in self._own_papers():
            excluded, device = self.excluded[rows], self.share.device
            nearest = search_exact(query_vectors[rows], paper_vectors, depth, excluded, mask, device)
            papers[rows] = nearest.papers
        return self._pool(papers)

    def by_bm25(self, depth: int) -> Pool:
        """Mine `depth` papers by the BM25 of Gu et al. (retriever=bm25_gu); needs no trained encoder."""
        from citerec.retrieval.lexical.bm25 import BM25

        query = ("title", "abstract", "context")
        bm25 = BM25("okapi", stopwords=None, query=query, threads=os.cpu_count() or 1)
        bm25.index(self.corpus)
        contexts, cited = self.split.contexts[self.own], self.excluded[:, :-1]
        papers = np.full((len(contexts), depth), -1, np.int32)
        with count_progress("BM25 of training queries", len(contexts)) as bar:
            for group, mask in self._own_papers():
                for start in range(0, len(group), QUERY_CHUNK):
                    rows = group[start : start + QUERY_CHUNK]
                    # Retrieve extra papers, since cited ones are dropped.
                    nearest = bm25.search_allowed(contexts[rows], depth + cited.shape[1], mask)
                    drop = (nearest.papers[:, :, None] == cited[rows, None]).any(2)
                    papers[rows] = top_k(nearest.papers, nearest.scores, depth, drop).papers
                    bar(len(nearest))
        return self._pool(papers)

    def _own_papers(self) -> Iterable[tuple[NDArray[np.int64], NDArray[np.bool_]]]:
        """Positions in `own` of queries with the same data set, and the papers [P] to search for them."""
        allowed = self.corpus.is_candidate if self.allowed is None else self.allowed
        return (self.sets or DataSets(())).own(self.own, allowed)

    def _pool(self, papers: NDArray[np.int32]) -> Pool:
        """Build the pool of all queries, given the papers [own, depth] prefetched by this process."""
        contexts, cited = self.split.contexts[self.own], self.excluded[:, :-1]
        relevant = np.zeros(papers.shape, np.bool_)
        if (words := self.words) is not None:
            step = max(1, PAIR_CHUNK // papers.shape[1])
            for start in range(0, len(contexts), step):
                rows = slice(start, start + step)
                sets = words.queries(contexts[rows])
                threshold = words.jaccard(sets, cited[rows]).max(1, keepdims=True)
                overlap = words.jaccard(sets, papers[rows])
                relevant[rows] = (overlap >= threshold) & (overlap > 0)  # the threshold can be 0
        row, count = np.full(len(self.split), -1, np.int32), len(self.queries)
        row[self.queries] = np.arange(count, dtype=np.int32)
        return Pool(row, self.share.collect(papers, count), self.share.collect(relevant, count))


@dataclass(frozen=True)
class Miner(MiningSettings):
    """Mines the papers that the encoder finds for a query, or, with first=bm25, BM25 in the first round."""

    def source(self, done: int) -> str:
        """How to mine after `done` rounds: encoder, bm25 or none."""
        if done < self.skip:
            return "none"
        return self.first if done == self.skip else "encoder"

    def plan(self, done: int, queries: NDArray[np.int64], corpus: Corpus, seed: int) -> MiningPlan | None:
        """Sample queries and candidates for the round that follows `done` rounds; None: nothing is mined."""
        if (source := self.source(done)) == "none":
            return None
        rng = np.random.default_rng((seed, 3, done))
        if self.queries < len(queries):
            queries = queries[np.sort(rng.choice(len(queries), self.queries, replace=False))]
        candidates = corpus.is_candidate
        if 0 < self.papers < candidates.sum():
            rows = rng.choice(np.flatnonzero(candidates), self.papers, replace=False)
            candidates = np.isin(np.arange(len(candidates)), rows)
        return MiningPlan(queries, candidates, source)

    def mine(self, mining: Mining, vectors: Vectors | None) -> Pool:
        """Mine for the queries of a plan. vectors: of its queries [own, D] and of papers [P, D], unit length;
        None to mine by BM25."""
        return mining.by_bm25(self.depth) if vectors is None else mining.by_vectors(*vectors, self.depth)


def build_mining(settings: Mapping[str, Any]) -> Miner:
    """Build the miner from its `_target_` and options (model.mining); InputError if that fails."""
    mining: Miner = build_object("model.mining", {"_target_": MINER, **settings})
    return mining


class WordSets:
    """Sets of word stems of papers and queries.

    As in the authors' code, except that theirs are lemmas: the corpus's words without NLTK's English stop
    words, split at everything but letters, digits and _.
    """

    def __init__(self, corpus: Corpus) -> None:
        stem = Stemmer.Stemmer("english").stemWord
        ids: dict[str, int] = {}
        parts = (() if word in ENGLISH else map(stem, WORD.findall(word)) for word in corpus.words)
        self._stems = Ragged.from_rows([[ids.setdefault(part, len(ids)) for part in word] for word in parts])
        self.corpus, self._size = corpus, len(ids)
        self._papers = self._sets(corpus.title_tokens, corpus.abstract_tokens)

    def queries(self, contexts: NDArray[np.integer]) -> Ragged:
        """The sets of (citing title, citing abstract, context) of contexts [Q]."""
        queries = Queries.from_contexts(self.corpus, contexts)
        return self._sets(*(queries.words(field) for field in ("title", "abstract", "context")))

    def jaccard(self, sets: Ragged, papers: NDArray[np.integer]) -> NDArray[np.float64]:
        """Sets of queries [Q] and rows of papers [Q, k] (-1: none) -> [Q, k], 0 for missing papers."""
        shared, marked = np.zeros(papers.shape, np.int64), np.zeros(self._size, np.bool_)
        for query, (stems, row) in enumerate(zip(sets, np.maximum(papers, 0), strict=True)):
            marked[stems] = True
            others = self._papers.take(row)
            shared[query] = sums_of_ranges(marked[others.values].astype(np.int64), others.offsets)
            marked[stems] = False
        union = sets.lengths[:, None] + self._papers.lengths[np.maximum(papers, 0)] - shared
        return np.where(papers >= 0, shared / np.maximum(union, 1), 0.0)

    def _sets(self, *columns: Ragged) -> Ragged:
        """Return the set of stems of each row over all columns, computed in chunks to bound memory."""
        unique, sizes = [], []
        for start in range(0, len(columns[0]), ROW_CHUNK):
            part = np.arange(start, min(start + ROW_CHUNK, len(columns[0])))
            words = [column.take(part) for column in columns]
            row = np.concatenate([np.repeat(np.arange(len(part)), column.lengths) for column in words])
            stems = self._stems.take(np.concatenate([column.values for column in words]))
            keys = np.unique(np.repeat(row, stems.lengths) * self._size + stems.values)
            unique.append((keys % max(self._size, 1)).astype(np.int32))
            sizes.append(np.bincount(keys // max(self._size, 1), minlength=len(part)))
        stems_of_rows = np.concatenate([np.empty(0, np.int32), *unique])
        return Ragged(stems_of_rows, offsets_of(np.concatenate([np.empty(0, np.int64), *sizes])))
