"""Global recommendation with a citation graph: papers that similar earlier papers cite.

A query is asked by its text, and by what was cited before its date. So its numbers are of a protocol of its
own and never stand among those of retrievers that read texts alone.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from datasets.columns import Ragged
from datasets.corpus import Corpus
from retrieval.arrays import Floats, Mask, Rows
from retrieval.base import Ranking, Retriever, empty_rankings, top_k
from retrieval.fusion import TUNED, FusionWeights, recall_by_weights
from retrieval.queries import Queries
from retrieval.settings import check_counts

log = logging.getLogger(__name__)

SIGNALS = ("text", "cited", "citing")
LATER = 1000.0
"""Taken from the score of papers later than the query: more than the signals can give."""
QUERIES = 64
"""Queries ranked at a time."""
_NEVER = 1 << 20
_ARXIV = re.compile(
    r"(?:arxiv:)?(?:[a-z-]+(?:\.[a-z]{2})?/(?=\d{7})|(?=\d{4}\.))"
    r"(\d\d)(0[1-9]|1[0-2])(?:\d{3}|\.\d{4,5})(?:v\d+)?",
    re.IGNORECASE,
)


class Dates(NamedTuple):
    """The first and last month [n] that a date can be, in months since the year 0.

    A date is before another only if it is so for certain.
    """

    first: NDArray[np.int32]
    last: NDArray[np.int32]

    @classmethod
    def of_years(cls, years: NDArray[np.integer]) -> Dates:
        """All months of the years; of unknown ones (0) any month at all."""
        known = years > 0
        return cls(
            np.where(known, 12 * years, -_NEVER).astype(np.int32),
            np.where(known, 12 * years + 11, _NEVER).astype(np.int32),
        )

    @classmethod
    def of_papers(cls, corpus: Corpus) -> Dates:
        """Of all papers: the month of an arXiv identifier that agrees with the year, else the year."""
        dates = cls.of_years(corpus.years)
        for row, (paper, year) in enumerate(zip(corpus.paper_ids, corpus.years.tolist(), strict=True)):
            found = _ARXIV.fullmatch(paper)
            if found and year > 0 and int(found[1]) == year % 100:
                dates.first[row] = dates.last[row] = 12 * year + int(found[2]) - 1
        return dates

    @classmethod
    def of_queries(cls, queries: Queries, papers: Dates) -> Dates:
        """Of the citing papers, or the years asked for; a question without a year is asked after all."""
        dates = cls.of_years(queries.years)
        cited = np.flatnonzero((queries.contexts >= 0) & (queries.citing >= 0))
        for whole, of_papers in zip(dates, papers, strict=True):
            whole[cited] = of_papers[queries.citing[cited]]
            whole[(queries.contexts < 0) & (queries.years == 0)] = _NEVER
        return dates


class _Asked(NamedTuple):
    """Queries [Q] of one date, and what they are ranked by.

    best, unit: [Q, 1], the best score of the text and the range of the first `depth`.
    cited, citing: [Q, P], sums of squared similarities. later: papers [P] of later dates.
    """

    queries: Queries
    best: Floats
    unit: Floats
    cited: csr_matrix
    citing: csr_matrix
    later: Mask


class Citations(Retriever):
    """A retriever of texts together with the citation graph. Papers later than the query come last.

    The signals of a paper p, for the `similar` papers n before the query that are most similar by text:

    - text: s(p), the score of `text`, on a scale on which the first paper has 1 and the `depth`th 0
    - cited: the root of the sum of s(n)^2 over the n that cite p
    - citing: the root of the sum of s(n)^2 over the n that p cites, if p is before the query, too

    The score is their weighted sum. The graph are the cited papers of all queries of the corpus, of every
    split, but a query sees only the reference lists of papers dated before it: neither its own nor any of a
    later paper. With data=papers these are the reference lists of all papers. Dates are years, and months
    where ids are arXiv identifiers; what is of the same month is not before.

    weights: of each signal; or `tuned`: the best for `measure` (recall@k, or the mean of several) on
    `queries` queries of the validation split, drawn by `seed`.
    """

    def __init__(
        self,
        text: Retriever,
        similar: int = 100,
        depth: int = 1000,
        weights: str | Mapping[str, float] = TUNED,
        queries: int = 2000,
        measure: str | Sequence[str] = ("recall@10", "recall@100"),
        seed: int = 0,
    ) -> None:
        """Raises InputError for a value that is not one of those above."""
        super().__init__()
        check_counts(similar=similar, depth=depth)
        self.text, self.similar, self.depth = text, similar, depth
        self.weighing = FusionWeights(weights, SIGNALS, queries, measure, seed)
        given = self.weighing.given
        self._graph_used = given is None or given["cited"] + given["citing"] > 0
        self.name = f"{text.name}+citation-graph" if self._graph_used else f"{text.name}-later-last"
        if self._graph_used:
            self.protocol = (
                "**This retriever reads the citation graph**, the reference lists of papers dated before the "
                "query, not its own. Not comparable with retrievers that read texts alone."
            )

    def settings(self) -> dict[str, Any]:
        found = {"text": {"retriever": self.text.name, **self.text.settings()}, "depth": self.depth}
        if self._graph_used:
            found["similar"] = self.similar
        return {**found, **self.weighing.settings()}

    def query_settings(self) -> dict[str, Any]:
        return self.text.query_settings()

    def remember_queries(self) -> None:
        self.text.remember_queries()

    def fits(self, corpus: Corpus) -> bool:
        return self.text.fits(corpus)

    @property
    def index_bytes(self) -> int:
        return self.text.index_bytes + sum(
            part.nbytes for graph in (self._cites, self._cited_by) for part in (graph.data, graph.indices)
        )

    def _index(self, corpus: Corpus) -> None:
        self.text.index(corpus)
        self.tuned |= {f"text.{key}": value for key, value in self.text.tuned.items()}
        self._read(corpus)
        if self.weighing.given is None:
            self.tuned["weights"] = self.weighing.tuned(self.name, corpus, self._recalls)

    def _read(self, corpus: Corpus) -> None:
        self.text.remember_queries()  # each is searched several times
        self._dates = Dates.of_papers(corpus)
        self._cites = citation_matrix(corpus)
        self._cited_by = self._cites.T.tocsr()

    def _save(self, folder: Path) -> None:
        self.text.save(folder / "text")

    def _load(self, folder: Path, corpus: Corpus) -> None:
        self.text.load(folder / "text", corpus)
        self._read(corpus)

    def _search(self, queries: Queries, k: int, allowed: Mask | None) -> Ranking:
        papers, scores = empty_rankings(len(queries), k)
        may = queries.corpus.is_candidate if allowed is None else allowed
        for places, asked in self._asked(queries):
            found = self._candidates(asked, may & ~asked.later)
            if (np.count_nonzero(found >= 0, axis=1) < k).any():
                last = self.text.search_allowed(asked.queries, k, may & asked.later)
                found = np.hstack([found, last.papers])
            ranked = top_k(found, self._scores(asked, found), k)
            papers[places], scores[places] = ranked.papers, ranked.scores
        return Ranking(papers, scores)

    def score(self, queries: Queries | Rows, papers: NDArray[np.int32]) -> Floats:
        scores = np.full(papers.shape, -np.inf, np.float32)
        for places, asked in self._asked(Queries.of(self.corpus, queries)):
            of = papers[places]
            none = (of < 0) | (of == asked.queries.citing[:, None]) | ~self.corpus.is_candidate[of]
            scores[places] = np.where(none, np.float32(-np.inf), self._scores(asked, of))
        return scores

    # Signals.

    def _asked(self, queries: Queries) -> Iterator[tuple[Rows, _Asked]]:
        """The places of queries of one date, at most QUERIES, and what they are ranked by."""
        dates = Dates.of_queries(queries, self._dates)
        keys, of = np.unique(np.stack(dates), axis=1, return_inverse=True)
        for number, (first, last) in enumerate(keys.T.tolist()):
            before, later = self._dates.last < first, self._dates.first > last
            places = np.flatnonzero(of.ravel() == number)
            for start in range(0, len(places), QUERIES):
                some = places[start : start + QUERIES]
                yield some, self._of_date(queries[some], before, later)

    def _of_date(self, queries: Queries, before: Mask, later: Mask) -> _Asked:
        # The scale is that of all papers, so that a score depends neither on filters nor on dates.
        scale = self.text.search_allowed(queries, self.depth, None)
        there = scale.papers >= 0
        best = np.where(there[:, :1], scale.scores[:, :1], 0)
        lowest = np.where(there, scale.scores, best).min(axis=1, keepdims=True)
        unit = np.maximum(best - lowest, np.abs(best) / 100)  # so that nothing is a thousand units away
        unit = np.where(unit > 0, unit, 1)
        shape = (len(queries), len(before))
        similar = Ranking(*empty_rankings(len(queries), 0))
        if self._graph_used:
            known = before & queries.corpus.is_candidate
            similar = self.text.search_allowed(queries, self.similar, known)
        query, place = np.nonzero(similar.papers >= 0)
        weight = np.maximum(1 - (best - similar.scores) / unit, 0)[query, place] ** 2
        similarity = csr_matrix((weight, (query, similar.papers[query, place])), shape, dtype=np.float32)
        cited, citing = (similarity @ graph for graph in (self._cites, self._cited_by))
        citing.data *= before[citing.indices]
        for graph in (cited, citing):
            graph.sort_indices()  # single values are then looked up by halving
        return _Asked(queries, best, unit, cited, citing, later)

    def _candidates(self, asked: _Asked, may: Mask) -> NDArray[np.int32]:
        """What the text finds first, and what the graph adds to it, each once [Q, n]; -1 for none."""
        found = self.text.search_allowed(asked.queries, self.depth, may).papers
        query, place = np.nonzero(found >= 0)
        keys = [query << 32 | found[query, place]]
        for graph in (asked.cited, asked.citing):
            rows = np.repeat(np.arange(len(found)), np.diff(graph.indptr))
            good = may[graph.indices] & (graph.data > 0)
            keys.append(rows[good] << 32 | graph.indices[good])
        union = np.unique(np.concatenate(keys))
        rows = union >> 32
        counts = np.bincount(rows, minlength=len(found))
        papers = np.full((len(found), int(counts.max(initial=0))), -1, np.int32)
        papers[rows, np.arange(len(union)) - np.repeat(np.cumsum(counts) - counts, counts)] = (
            union & 0xFFFF_FFFF
        )
        return papers

    def _signals(self, asked: _Asked, papers: NDArray[np.int32]) -> list[Floats]:
        """SIGNALS of papers [Q, K], in their order; a paper that the text does not find has its score 0."""
        text = self.text.score(asked.queries, papers)
        query, paper = np.repeat(np.arange(len(papers)), papers.shape[1]), np.maximum(papers, 0).ravel()
        graphs = [np.asarray(graph[query, paper], np.float32) for graph in (asked.cited, asked.citing)]
        of_text = 1 - (asked.best - np.where(np.isneginf(text), 0, text)) / asked.unit
        return [of_text, *(np.sqrt(values.reshape(papers.shape)) for values in graphs)]

    def _scores(self, asked: _Asked, papers: NDArray[np.int32]) -> Floats:
        signals = zip(self.weighing.of(self), self._signals(asked, papers), strict=True)
        total = sum(np.float32(weight) * of for weight, of in signals)
        return np.asarray(total - np.float32(LATER) * asked.later[papers], np.float32)

    def _recalls(
        self, corpus: Corpus, contexts: Rows, wanted: Ragged, grid: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        values = np.zeros((len(grid), len(contexts)))
        for places, asked in self._asked(Queries.of(corpus, contexts)):
            papers = self._candidates(asked, corpus.is_candidate & ~asked.later)
            papers[papers == asked.queries.citing[:, None]] = -1
            lists = Ranking(papers, np.zeros(papers.shape, np.float32))
            gains, cited = self._signals(asked, papers), wanted.take(places)
            values[:, places] = recall_by_weights(
                [lists] * len(SIGNALS), gains, cited, grid, self.weighing.cutoffs
            )
        return values


def citation_matrix(corpus: Corpus) -> csr_matrix:
    """Which papers cite which [P, P], 1 or 0: the cited papers of the contexts of all splits."""
    citing, cited = [np.empty(0, np.int32)], [np.empty(0, np.int32)]
    for split in corpus.splits.values():
        citing.append(np.repeat(corpus.citing[split.contexts], split.positives.lengths))
        cited.append(split.positives.values)
    rows, columns = np.concatenate(citing), np.concatenate(cited)
    known, papers = rows >= 0, len(corpus.paper_ids)
    ones = np.ones(np.count_nonzero(known), np.float32)
    graph = csr_matrix((ones, (rows[known], columns[known])), (papers, papers))
    graph.data[:] = 1  # of what is cited several times
    return graph
