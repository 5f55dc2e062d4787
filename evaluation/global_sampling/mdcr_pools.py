"""The pools of a benchmark like MDCR: cited papers, and others of six types (Medić and Šnajder 2022, 4.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from datasets.progress import counting
from evaluation.global_benchmarks.mdcr_format import TRUE
from evaluation.global_sampling.model_lists import Sample, average_jaccard, chosen_models
from evaluation.global_sampling.neighbours import graph_candidates
from evaluation.global_sampling.rules import Rows, Sampler

GRAPH, MOST_CITED, RANDOM = "graph", "most_cited", "random"

Types = dict[str, list[int]]


@dataclass
class Built:
    """The benchmark in rows of the graph, which models it is made of, and what was short."""

    fields: dict[str, dict[str, Types]]
    jaccard: dict[str, float]
    chosen: list[str]
    short: dict[str, int] = field(default_factory=dict)
    """queries with fewer candidates than wanted, by type"""
    few: list[str] = field(default_factory=list)
    """queries that cite too few candidates, as FIELD/PAPER; they are left out"""

    @property
    def queries(self) -> int:
        return sum(map(len, self.fields.values()))


class PoolMaker:
    """Makes the pool of each query; cited, negatives and top are those of build_mdcr."""

    def __init__(self, sampler: Sampler, sample: Sample, cited: int, negatives: int, top: int) -> None:
        self.sampler, self.sample = sampler, sample
        self.cited, self.negatives, self.top = cited, negatives, top
        self.eligible: Rows = np.flatnonzero(sampler.candidates)

    def negative_lists(self) -> dict[str, dict[tuple[str, str], list[int]]]:
        """What the models rank high and the query does not cite."""
        rows, cites = self.sampler.graph.rows, self.sampler.graph.cites
        known: dict[str, set[int]] = {}
        for query in {query for _, query in next(iter(self.sample.lists.values()))}:
            known[query] = {rows[query], *cites[rows[query]].tolist()}
        return {
            model: {key: [row for row in found if row not in known[key[1]]] for key, found in lists.items()}
            for model, lists in self.sample.lists.items()
        }

    def most_cited(self, name: str) -> Rows:
        """The candidates of a field that are cited most; of equals those of the lower rows."""
        there = np.flatnonzero(self.sampler.candidates & self.sampler.graph.in_field(name))
        often = np.argsort(-self.sampler.graph.citations[there], kind="stable")
        return there[often[: self.top]]

    def pool(
        self, name: str, query: str, models: Mapping[str, Sequence[int]], most_cited: Rows
    ) -> Types | None:
        """Candidates by type, all different; None where the query cites too few that may be found.

        models: what the chosen models rank high, without what the query cites.
        """
        graph, sampler = self.sampler.graph, self.sampler
        row = graph.rows[query]
        relevant = sampler.relevant[row]
        if len(relevant) < self.cited:
            return None
        may = sampler.candidates & (graph.years <= graph.years[row])
        may[graph.cites[row]] = False
        may[row] = False
        types: Types = {}

        def take(kind: str, rows: NDArray[np.integer]) -> None:
            types[kind] = np.asarray(rows).tolist()
            may[rows] = False

        for model, listed in models.items():
            there = np.array([one for one in listed if may[one]], np.int64)
            take(model, self._draw(there, model, name, query))
        neighbours = graph_candidates(graph, row, may, self.negatives, self._rng(GRAPH, name, query))
        take(GRAPH, neighbours)
        take(MOST_CITED, self._draw(most_cited[may[most_cited]], MOST_CITED, name, query))
        take(RANDOM, self._random(may, name, query))
        true = self._rng(TRUE, name, query).permutation(relevant)[: self.cited]
        return types | {TRUE: true.tolist()}

    def _draw(self, rows: Rows, *purpose: str) -> Rows:
        return self._rng(*purpose).permutation(rows)[: self.negatives]

    def _random(self, may: NDArray[np.bool_], name: str, query: str) -> Rows:
        """Without a list of all that may be drawn: there are millions, and few are ruled out."""
        rng = self._rng(RANDOM, name, query)
        number = 4 * self.negatives
        while True:
            drawn = self.eligible[
                rng.choice(len(self.eligible), min(number, len(self.eligible)), replace=False)
            ]
            found = drawn[may[drawn]]
            if len(found) >= self.negatives or number >= len(self.eligible):
                return found[: self.negatives]
            number *= 4

    def _rng(self, *purpose: str) -> np.random.Generator:
        return self.sampler.rng("mdcr", *purpose)


def make_pools(sampler: Sampler, sample: Sample, choose: int, cited: int, negatives: int, top: int) -> Built:
    """The pools of all queries of a sample."""
    maker = PoolMaker(sampler, sample, cited, negatives, top)
    lists = maker.negative_lists()
    jaccard = average_jaccard(lists)
    built = Built({}, jaccard, chosen_models(jaccard, choose))
    with counting("making pools", sum(map(len, sample.queries.values()))) as advance:
        for name, queries in sample.queries.items():
            most_cited = maker.most_cited(name)
            for query in queries:
                models = {model: lists[model][name, query] for model in built.chosen}
                pool = maker.pool(name, query, models, most_cited)
                advance(1)
                if pool is None:
                    built.few.append(f"{name}/{query}")
                    continue
                built.fields.setdefault(name, {})[query] = pool
                for kind, rows in pool.items():
                    if kind != TRUE and len(rows) < negatives:
                        built.short[kind] = built.short.get(kind, 0) + 1
    return built
