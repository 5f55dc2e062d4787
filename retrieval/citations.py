"""Global recommendation with a citation graph: papers cited by similar earlier papers.

Besides texts, queries read the citation graph before their date. This is a protocol of its own: results are
never compared with those of retrievers that read texts alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from citerec.datasets.columns import Ragged, offsets_of
from citerec.datasets.corpus import Corpus
from citerec.retrieval.arrays import Floats, Mask, Rows
from citerec.retrieval.base import Ranking, Retriever, empty_rankings, top_k
from citerec.retrieval.fusion import CUTOFFS, TUNED, FusionWeights, recall_by_weights
from citerec.retrieval.queries import Queries
from citerec.retrieval.settings import check_counts

SIGNALS = ("text", "cited", "citing")
LATER = 1000.0
"""Subtracted from the score of papers later than the query; more than any sum of signals."""
QUERIES = 64
"""Queries ranked at a time."""
LATEST = 1 << 20
"""Year of a new query without a year."""


class _Group(NamedTuple):
    """Queries [Q] of one year, and the data to rank papers for them.

    best, unit: [Q, 1], the best text score, and the score range of the first `depth` papers.
    cited, citing: [Q, P], sums of squared similarities. later: mask [P] of papers of later years.
    """

    queries: Queries
    best: Floats
    unit: Floats
    cited: csr_matrix
    citing: csr_matrix
    later: Mask


class Citations(Retriever):
    """Combines a text retriever with the citation graph. Papers later than the query come last.

    The signals of a paper p, given the `similar` papers n before the query with the most similar texts:

    - text: s(p), the score of `text`, scaled so that the first paper has 1 and the `depth`th 0
    - cited: the root of the sum of s(n)^2 over all n that cite p
    - citing: the root of the sum of s(n)^2 over all n that p cites, if p is also before the query

    The score is their weighted sum. The graph consists of the cited papers of all queries of all splits, but
    a query sees only reference lists of papers dated before it, neither its own nor those of later papers.
    With data=papers these are the reference lists of all papers. Papers of the same year do not count as
    before; papers without a year are neither before nor later.

    weights: one per signal; or `tuned` (FusionWeights), with `seed`.
    """

    def __init__(
        self,
        text: Retriever,
        similar: int = 100,
        depth: int = 1000,
        weights: str | Mapping[str, float] = TUNED,
        seed: int = 0,
    ) -> None:
        """Raises InputError for an invalid value."""
        super().__init__()
        check_counts(similar=similar, depth=depth)
        self.text, self.similar, self.depth, self.per_pool = text, similar, depth, text.per_pool
        self.join_parts({"text": text})
        self.weights = FusionWeights(weights, SIGNALS, seed)
        fixed = self.weights.fixed
        self._uses_graph = fixed is None or fixed["cited"] + fixed["citing"] > 0
        self.name = f"{text.name}+citation-graph" if self._uses_graph else f"{text.name}-later-last"
        if self._uses_graph:
            self.protocol = (
                "**This retriever reads the citation graph**: the reference lists of papers dated before the "
                "query, without its own. Not comparable with retrievers that read texts alone."
            )

    def settings(self) -> dict[str, Any]:
        text = {"retriever": self.text.name, **self.text.settings()}
        similar = {"similar": self.similar} if self._uses_graph else {}
        return {"text": text, "depth": self.depth, **similar, **self.weights.settings(self)}

    def query_settings(self) -> dict[str, Any]:
        return self.text.query_settings()

    @property
    def index_bytes(self) -> int:
        graphs = (self._cites, self._cited_by)
        return super().index_bytes + sum(graph.data.nbytes + graph.indices.nbytes for graph in graphs)

    def _index(self, corpus: Corpus) -> None:
        self.index_parts({"text": self.text}, corpus)
        if self.weights.fixed is None:
            self.tuned["weights"] = self.weights.tune(self.name, corpus, self._recalls)

    def _prepare(self, corpus: Corpus) -> None:
        self._cites = citation_matrix(corpus)
        self._cited_by = self._cites.T.tocsr()

    def _search(self, queries: Queries, k: int, allowed: Mask | None) -> Ranking:
        papers, scores = empty_rankings(len(queries), k)
        eligible = queries.corpus.is_candidate if allowed is None else allowed
        for rows, group in self._groups(queries):
            listed = self._candidates(group, eligible & ~group.later)
            if (np.count_nonzero(listed >= 0, axis=1) < k).any():
                later = self.text.search_allowed(group.queries, k, eligible & group.later)
                listed = np.hstack([listed, later.papers])
            ranked = top_k(listed, self._scores(group, listed), k)
            papers[rows], scores[rows] = ranked.papers, ranked.scores
        return Ranking(papers, scores)

    def score(self, queries: Queries | Rows, papers: NDArray[np.int32]) -> Floats:
        scores = np.full(papers.shape, -np.inf, np.float32)
        for rows, group in self._groups(Queries.from_contexts(self.corpus, queries)):
            own = papers[rows]
            drop = (own < 0) | group.queries.is_own(own) | ~self.corpus.is_candidate[own]
            scores[rows] = np.where(drop, np.float32(-np.inf), self._scores(group, own))
        return scores

    # Signals.

    def _groups(self, queries: Queries) -> Iterator[tuple[Rows, _Group]]:
        """Yield batches of at most QUERIES queries of one year, with their rows."""
        papers = queries.corpus.years
        years = np.where((queries.contexts < 0) & (queries.years == 0), LATEST, queries.years)
        for year in np.unique(years).tolist():
            before, later = (papers > 0) & (papers < year), (papers > year) & (year > 0)
            rows = np.flatnonzero(years == year)
            for start in range(0, len(rows), QUERIES):
                batch = rows[start : start + QUERIES]
                yield batch, self._group(queries[batch], before, later)

    def _group(self, queries: Queries, before: Mask, later: Mask) -> _Group:
        # Scores are scaled over all papers, so that they depend neither on filters nor on dates.
        scale = self.text.search_allowed(queries, self.depth, None)
        has_paper = scale.papers >= 0
        best = np.where(has_paper[:, :1], scale.scores[:, :1], 0)
        lowest = np.where(has_paper, scale.scores, best).min(axis=1, keepdims=True)
        unit = np.maximum(best - lowest, np.abs(best) / 100)  # so that scaled scores stay far below LATER
        unit = np.where(unit > 0, unit, 1)
        shape = (len(queries), len(before))
        similar = Ranking(*empty_rankings(len(queries), 0))
        if self._uses_graph:
            citable = before & queries.corpus.is_candidate
            similar = self.text.search_allowed(queries, self.similar, citable)
        query, rank = np.nonzero(similar.papers >= 0)
        weight = np.maximum(1 - (best - similar.scores) / unit, 0)[query, rank] ** 2
        similarity = csr_matrix((weight, (query, similar.papers[query, rank])), shape, dtype=np.float32)
        cited, citing = (similarity @ graph for graph in (self._cites, self._cited_by))
        citing.data *= before[citing.indices]
        for graph in (cited, citing):
            graph.sort_indices()  # enables binary search for single values
        return _Group(queries, best, unit, cited, citing, later)

    def _candidates(self, group: _Group, eligible: Mask) -> NDArray[np.int32]:
        """The union of the first papers by text and those found in the graph [Q, n], padded with -1."""
        listed = self.text.search_allowed(group.queries, self.depth, eligible).papers
        query, rank = np.nonzero(listed >= 0)
        keys = [query << 32 | listed[query, rank]]
        for graph in (group.cited, group.citing):
            rows = np.repeat(np.arange(len(listed)), np.diff(graph.indptr))
            good = eligible[graph.indices] & (graph.data > 0)
            keys.append(rows[good] << 32 | graph.indices[good])
        union = np.unique(np.concatenate(keys))
        counts = np.bincount(union >> 32, minlength=len(listed))
        return Ragged((union & 0xFFFF_FFFF).astype(np.int32), offsets_of(counts)).padded()

    def _signals(self, group: _Group, papers: NDArray[np.int32]) -> list[Floats]:
        """The SIGNALS of papers [Q, K], in order; papers that the text does not find come last by text."""
        text = self.text.score(group.queries, papers)
        text = np.where(np.isneginf(text), np.minimum(group.best - group.unit, 0), text)
        query, paper = np.repeat(np.arange(len(papers)), papers.shape[1]), np.maximum(papers, 0).ravel()
        graphs = [np.asarray(graph[query, paper], np.float32) for graph in (group.cited, group.citing)]
        scaled = 1 - (group.best - text) / group.unit
        return [scaled, *(np.sqrt(values.reshape(papers.shape)) for values in graphs)]

    def _scores(self, group: _Group, papers: NDArray[np.int32]) -> Floats:
        signals = zip(self.weights.values(self), self._signals(group, papers), strict=True)
        total = sum(np.float32(weight) * signal for weight, signal in signals)
        return np.asarray(total - np.float32(LATER) * group.later[papers], np.float32)

    def _recalls(
        self, corpus: Corpus, contexts: Rows, wanted: Ragged, grid: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        values = np.zeros((len(grid), len(contexts)))
        for rows, group in self._groups(Queries.from_contexts(corpus, contexts)):
            papers = self._candidates(group, corpus.is_candidate & ~group.later)
            papers[group.queries.is_own(papers)] = -1
            ranking = Ranking(papers, np.zeros(papers.shape, np.float32))
            gains, cited = self._signals(group, papers), wanted.take(rows)
            values[:, rows] = recall_by_weights([ranking] * len(SIGNALS), gains, cited, grid, CUTOFFS)
        return values


def citation_matrix(corpus: Corpus) -> csr_matrix:
    """Adjacency matrix of citing and cited papers [P, P], 0 or 1, from the contexts of all splits."""
    citing, cited = [np.empty(0, np.int32)], [np.empty(0, np.int32)]
    for split in corpus.splits.values():
        citing.append(np.repeat(corpus.citing[split.contexts], split.positives.lengths))
        cited.append(split.positives.values)
    rows, columns = np.concatenate(citing), np.concatenate(cited)
    has_row, papers = rows >= 0, len(corpus.paper_ids)
    ones = np.ones(np.count_nonzero(has_row), np.float32)
    graph = csr_matrix((ones, (rows[has_row], columns[has_row])), (papers, papers))
    graph.data[:] = 1  # also for papers cited several times
    return graph
