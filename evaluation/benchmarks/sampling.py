"""What an evaluation on samples has found: means of groups and their deviations over the samplings.

Which papers may ask and be found (Medić and Šnajder 2022, section 3), and how they are drawn.
Pools of candidates that hold all that their queries cite (Medić and Šnajder 2022, 3.1 and 3.2).
Rankings of pools: one corpus holds all papers of all pools, and each query finds those of its own.
BM25's k1 and b, chosen by MAP on a validation sample made as the test sample is.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
from ir_measures import AP, R, nDCG
from numpy.typing import NDArray

from datasets.citations.graph import CitationGraph
from datasets.citations.queries import QuerySet, cited_earlier, corpus_of, read_query_lists
from datasets.columns import Ragged
from datasets.corpus import Corpus
from datasets.errors import InputError
from datasets.progress import counting
from evaluation.benchmarks.mdcr import AVERAGE
from evaluation.measures import Values, per_query
from evaluation.protocol import Qrels
from retrieval.base import Ranking, Retriever
from retrieval.filters import Filters
from retrieval.run import Run

TEST, VALIDATION = "test", "val"

Rows = NDArray[np.int64]
"""Rows of the graph's papers."""


@dataclass(frozen=True)
class Rules:
    """Papers without a title or a year, with a shorter abstract or fewer citations, are left out altogether.

    year: of the queries, and the last one of candidates; None: any, and a query finds what is not later than
    itself. min_abstract: characters. min_citations: how often a paper is cited, at least.
    min_cited: candidates that a query cites, at least.
    leave_out: ids that do not ask, as a model's training queries, or a file of them, one a line.
    queries_file: only the papers of its splits ask (datasets.citations.queries).
    """

    year: int | None = None
    min_abstract: int = 30
    min_citations: int = 3
    min_cited: int = 1
    leave_out: Sequence[str] | str = ()
    queries_file: str | Path | None = None

    def __post_init__(self) -> None:
        """Raises InputError for what is no number."""
        for name, least in (("min_abstract", 0), ("min_citations", 0), ("min_cited", 1)):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise InputError(f"benchmark.rules.{name}: {value!r} is no whole number from {least} on")
        if self.year is not None and type(self.year) is not int:
            raise InputError(f"benchmark.rules.year: {self.year!r} is no year; null for any")


class Sampler:
    """Draws queries and pools out of a graph; what is drawn depends on the seed and on what it is for alone.

    eligible [P]: passes the filters. candidates [P]: those of them that may be found.
    relevant [P]: the candidates that each paper cites, not later than itself.
    """

    def __init__(self, graph: CitationGraph, rules: Rules, seed: int) -> None:
        self.graph, self.rules, self.seed = graph, rules, seed
        self.eligible: NDArray[np.bool_] = (
            graph.titled
            & (graph.years != 0)
            & (graph.abstract_lengths >= rules.min_abstract)
            & (graph.citations >= rules.min_citations)
            & ~graph.is_distractor
        )
        in_time = True if rules.year is None else graph.years <= rules.year
        self.candidates: NDArray[np.bool_] = self.eligible & in_time
        self.distractors: Rows = np.flatnonzero(
            graph.is_distractor & graph.titled & (graph.abstract_lengths >= rules.min_abstract)
        )
        self.relevant: Ragged = cited_earlier(graph, self.candidates)

    @cached_property
    def askable(self) -> NDArray[np.bool_]:
        """Papers that may ask [P]; InputError if there is none."""
        may = self.eligible & (self.relevant.lengths >= self.rules.min_cited)
        if self.rules.year is not None:
            may &= self.graph.years == self.rules.year
        may[self._left_out] = False
        if not may.any():
            raise InputError(
                f"{self.graph.files[0]}: no paper{self.of_year} passes the filters and cites "
                f"{self.rules.min_cited} or more that do; change benchmark.rules"
            )
        return may

    def facts(self) -> list[str]:
        """What was left out, in sentences."""
        graph, of_year = self.graph, self.of_year
        passing, papers = np.count_nonzero(self.candidates), np.count_nonzero(~graph.is_distractor)
        asking = (
            self.eligible if self.rules.year is None else self.eligible & (graph.years == self.rules.year)
        )
        vain = np.count_nonzero(asking & (self.relevant.lengths < self.rules.min_cited))
        may, distractors = np.count_nonzero(self.askable), len(self.distractors)
        return [
            f"{passing:,} of {papers:,} papers pass the filters; {may:,}{of_year} may ask.",
            f"{vain:,} others{of_year} cite fewer than {self.rules.min_cited} candidates that are not later, "
            "and are no queries.",
            *self._listed(),
            f"{graph.unknown:,} citations are of or by papers that are in no file.",
            *(
                [f"{distractors:,} distractors, of any year, fill what the papers do not."]
                if distractors
                else []
            ),
        ]

    def queries(
        self, number: int | None, validation: int, among: NDArray[np.bool_] | None = None, *purpose: str
    ) -> tuple[Rows, Rows]:
        """At most so many papers for test, and others for validation, of those `among` [P] that may ask.

        Both in the order drawn; validation does not change test. With a file of queries, of its splits.
        """
        may = self.askable if among is None else self.askable & among
        order = self.shuffled(np.flatnonzero(may), "queries", *purpose)
        if self.rules.queries_file is None:
            first = len(order) if number is None else number
            return order[:first], order[first : first + validation]
        lists = read_query_lists(self.rules.queries_file)
        test, val = (
            order[np.isin(order, lists.rows(split, self.graph))]
            if split in lists.splits or split == TEST
            else order[:0]
            for split in (TEST, VALIDATION)
        )
        return test[:number], val[:validation]

    def shuffled(self, rows: Rows, *purpose: str | int) -> Rows:
        """Rows in an order that depends on the seed and the purpose."""
        return self.rng(*purpose).permutation(rows)

    def rng(self, *purpose: str | int) -> np.random.Generator:
        """Random numbers for one purpose."""
        text = repr((self.seed, *purpose)).encode()
        return np.random.default_rng(int.from_bytes(hashlib.blake2b(text, digest_size=16).digest(), "little"))

    def cited(self, queries: Rows) -> Rows:
        """The candidates that queries cite, ascending."""
        return np.unique(self.relevant.take(queries).values).astype(np.int64)

    def _listed(self) -> list[str]:
        """How many of the listed queries may not ask, in a sentence."""
        if self.rules.queries_file is None:
            return []
        rows = read_query_lists(self.rules.queries_file).rows(TEST, self.graph)
        lost = np.count_nonzero(~self.askable[rows])
        return [f"{lost:,} of the {len(rows):,} papers listed for {TEST} may not ask."] if lost else []

    @cached_property
    def _left_out(self) -> list[int]:
        """Rows; ids that no paper has are passed over."""
        names = self.rules.leave_out
        if isinstance(names, str):
            try:
                names = Path(names).expanduser().read_text("utf-8").split()
            except (OSError, UnicodeDecodeError) as error:
                reason = error.strerror if isinstance(error, OSError) else "not a text in UTF-8"
                raise InputError(
                    f"benchmark.rules.leave_out: {names}: {reason}; name a file of ids"
                ) from None
        return [self.graph.rows[name] for name in map(str, names) if name in self.graph.rows]

    @property
    def of_year(self) -> str:
        """ " of 2019", or nothing where queries are of any year."""
        return "" if self.rules.year is None else f" of {self.rules.year}"


class Pool(NamedTuple):
    """What the queries of a group, rows in any order, may find in one sampling; papers: rows, ascending."""

    group: str
    sampling: int
    queries: Rows
    papers: Rows


def dataset_pools(
    sampler: Sampler, queries: Rows, sizes: Sequence[int], samplings: int, purpose: str = "pool"
) -> list[Pool]:
    """A pool of each size in each sampling; the smaller ones of a sampling lie within the larger.

    Filled by candidates at random, and by distractors when there are no more. Raises InputError for a size
    that cannot hold what the queries cite, and for one that cannot be filled.
    """
    cited = sampler.cited(queries)
    others = np.setdiff1d(np.flatnonzero(sampler.candidates), cited, assume_unique=True)
    most = len(cited) + len(others) + len(sampler.distractors)
    if max(sizes) > most:
        raise InputError(
            f"benchmark.sizes: a pool of {max(sizes):,} papers cannot be filled, there are {most:,} "
            "candidates; name smaller ones, or benchmark.distractors=FILE"
        )
    pools = []
    for sampling in range(samplings):
        order = sampler.shuffled(others, purpose, sampling)
        order = np.concatenate(
            [order, sampler.shuffled(sampler.distractors, "distractors", purpose, sampling)]
        )
        pools += [
            Pool(str(size), sampling, queries, _filled(cited, order, size, f"{len(queries):,} queries"))
            for size in sorted(set(sizes))
        ]
    return _distinct(pools)


def field_pools(
    sampler: Sampler, queries: Mapping[str, Rows], size: int, samplings: int, purpose: str = "pool"
) -> list[Pool]:
    """Of each field a pool in each sampling, filled with papers that papers of the field cite.

    Where they are fewer than `size`, all of them are there, in one sampling. Raises InputError where the
    queries of a field cite more than that.
    """
    pools = []
    for field, rows in queries.items():
        cited = sampler.cited(rows)
        others = np.setdiff1d(field_cited(sampler, field), cited, assume_unique=True)
        for sampling in range(samplings):
            order = sampler.shuffled(others, purpose, field, sampling)
            papers = _filled(cited, order, size, f"{len(rows):,} queries of the field {field}")
            pools.append(Pool(field, sampling, rows, papers))
    return _distinct(pools)


def field_cited(sampler: Sampler, field: str) -> Rows:
    """The candidates that any paper of a field cites, ascending."""
    graph = sampler.graph
    found = np.zeros(len(graph), np.bool_)
    found[graph.cites.take(np.flatnonzero(graph.in_field(field))).values] = True
    return np.flatnonzero(found & sampler.candidates)


def _filled(cited: Rows, order: Rows, size: int, whose: str) -> Rows:
    if size < len(cited):
        raise InputError(
            f"a pool of {size:,} papers cannot hold the {len(cited):,} that the {whose} cite: ask fewer "
            "(queries=N) or make it larger"
        )
    return np.sort(np.concatenate([cited, order[: size - len(cited)]]))


def _distinct(pools: list[Pool]) -> list[Pool]:
    """Without samplings that are the first over again, as where a pool takes all there is."""
    first: dict[str, NDArray[np.int64]] = {}
    kept = []
    for pool in pools:
        if pool.sampling == 0 or not np.array_equal(pool.papers, first[pool.group]):
            first.setdefault(pool.group, pool.papers)
            kept.append(pool)
    return kept


log = logging.getLogger(__name__)

MEASURES = {"map": AP, "ndcg": nDCG, "recall_30": R @ 30}
"""By the names of trec_eval; of what was retrieved, at most `depth` papers."""
BATCH = 1024
"""Queries that are searched at a time."""


@dataclass(frozen=True)
class PoolFilter(Filters):
    """Papers of a pool [P of the corpus]; by_year: those not later than the query. free [P]: of any year."""

    papers: NDArray[np.bool_] = dataclasses.field(default_factory=lambda: np.empty(0, np.bool_))
    by_year: bool = False
    free: NDArray[np.bool_] = dataclasses.field(default_factory=lambda: np.empty(0, np.bool_))

    def __bool__(self) -> bool:
        return True

    def groups(
        self, corpus: Corpus, contexts: NDArray[np.int64]
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.bool_]]]:
        """Queries of one year after those of another, where the year counts."""
        if not self.by_year:
            yield np.arange(len(contexts)), self.papers
            return
        years = corpus.years[corpus.citing[contexts]]
        for year in np.unique(years):
            yield np.flatnonzero(years == year), self.papers & ((corpus.years <= year) | self.free)


class PoolRanker:
    """Ranks pools by a retriever; corpus: of the papers of all pools and of the queries."""

    def __init__(
        self,
        sampler: Sampler,
        tests: Sequence[Pool],
        validations: Sequence[Pool],
        name: str,
        cache_dir: str | Path,
        depth: int,
    ) -> None:
        self.sampler, self.depth = sampler, depth
        asked = {TEST: _asking(tests), VALIDATION: _asking(validations)}
        used = np.zeros(len(sampler.graph), np.bool_)
        for rows in [*asked.values(), *(pool.papers for pool in [*tests, *validations])]:
            used[rows] = True
        self.papers: Rows = np.flatnonzero(used)
        self.asked: Rows = np.union1d(*asked.values())
        splits = {
            split: QuerySet(rows, sampler.relevant.take(rows)) for split, rows in asked.items() if len(rows)
        }
        self.corpus = corpus_of(sampler.graph, self.papers, splits, name, cache_dir)

    def ranked(self, retriever: Retriever, pools: Sequence[Pool], index_dir: Path | None) -> Iterator[Run]:
        """The first papers of each pool, queries named GROUP/PAPER. index_dir: where indexes are kept."""
        of_pool = retriever.per_pool
        if not of_pool:
            retriever.open(self.corpus, index_dir)
            retriever.remember_queries()  # each is asked in every pool
        with counting(f"{retriever.name}: searching", sum(len(pool.queries) for pool in pools)) as advance:
            for pool in pools:
                filters = self._filter(pool)
                if of_pool:
                    view = pool_view(self.corpus, filters.papers)
                    retriever.open(view, None if index_dir is None else index_dir / view.fingerprint)
                    # What is indexed is the pool already: a mask is needed for years alone.
                    wanted = filters if filters.by_year else None
                else:
                    wanted = filters
                parts = []
                contexts = np.searchsorted(self.asked, pool.queries)
                for start in range(0, len(contexts), BATCH):
                    parts.append(retriever.search(contexts[start : start + BATCH], self.depth, wanted))
                    advance(len(parts[-1]))
                yield Run(self.names(pool), self.corpus.paper_ids, Ranking.concat(parts), retriever.name)

    def names(self, pool: Pool) -> list[str]:
        """Of the queries of a pool."""
        return [f"{pool.group}/{paper}" for paper in self.ids(pool.queries)]

    def ids(self, rows: Rows) -> list[str]:
        """Of papers."""
        return [self.sampler.graph.ids[row] for row in rows.tolist()]

    def qrels(self, pool: Pool) -> Qrels:
        """What the queries of a pool are to find."""
        relevant = self.sampler.relevant.take(pool.queries)
        found = (dict.fromkeys(self.ids(rows.astype(np.int64)), 1) for rows in relevant)
        return Qrels(dict(zip(self.names(pool), found, strict=True)))

    def values(self, run: Run, pool: Pool) -> Values:
        """Measures of the queries of a pool, by trec_eval."""
        return per_query(run, self.qrels(pool), dict(MEASURES))

    def _filter(self, pool: Pool) -> PoolFilter:
        mask = np.zeros(len(self.papers), np.bool_)
        mask[np.searchsorted(self.papers, pool.papers)] = True
        free = self.sampler.graph.is_distractor[self.papers]
        return PoolFilter(papers=mask, by_year=self.sampler.rules.year is None, free=free)


def pool_view(corpus: Corpus, papers: NDArray[np.bool_]) -> Corpus:
    """The corpus with these candidates [P] alone, under a fingerprint of its own."""
    corpus.words  # noqa: B018 (the views share what is read once)
    view = copy.copy(corpus)
    view.is_candidate = papers
    digest = hashlib.blake2b(np.packbits(papers).tobytes(), digest_size=6).hexdigest()
    view.fingerprint = f"{corpus.fingerprint}-{digest}"
    return view


def means(values: Mapping[str, NDArray[np.float64]]) -> dict[str, float]:
    """Percent of each measure, the mean over queries."""
    return {name: 100 * float(found.mean()) for name, found in values.items()}


def _asking(pools: Sequence[Pool]) -> Rows:
    return np.unique(np.concatenate([np.empty(0, np.int64), *(pool.queries for pool in pools)]))


@dataclass(frozen=True)
class Tuning:
    """What is tried, and on how many queries (of each field) in pools of what size.

    size: papers of a pool; None: as the smallest for test, or more where the queries cite more.
    """

    k1: Sequence[float] = (0.9, 1.2, 1.6, 2.0, 3.0)
    b: Sequence[float] = (0.3, 0.5, 0.75, 0.9)
    queries: int = 200
    size: int | None = None

    def __post_init__(self) -> None:
        """Raises InputError for what is no list, or no number from 1 on."""
        for name, values in (("k1", self.k1), ("b", self.b)):
            if isinstance(values, str | int | float) or not values:
                raise InputError(f"benchmark.tune.{name}: {values!r} is no list of values to try")
        for name, number in (("queries", self.queries), ("size", 1 if self.size is None else self.size)):
            if type(number) is not int or number < 1:
                raise InputError(f"benchmark.tune.{name}: {number!r} is no whole number from 1 on")


@dataclass(frozen=True)
class Tuned:
    """The best parameters, of equals the first, and the validation MAP of all that were tried, in percent."""

    k1: float
    b: float
    tried: dict[tuple[float, float], float]

    def __str__(self) -> str:
        best = self.tried[self.k1, self.b]
        return (
            f"k1 = {self.k1:g}, b = {self.b:g}: MAP {best:.2f} on validation, the best of "
            f"{len(self.tried)} pairs ({min(self.tried.values()):.2f} to {max(self.tried.values()):.2f})"
        )


def tune(tuning: Tuning, ranker: PoolRanker, pools: Sequence[Pool], retriever: Retriever) -> Tuned:
    """Try all pairs on the pools (MAP: the mean over the groups), and leave the best in the retriever."""
    if not pools or not all(len(pool.queries) for pool in pools):
        raise InputError(
            "benchmark.tune: no queries are left for validation; ask fewer (queries=N) or set it to null"
        )
    tried: dict[tuple[float, float], float] = {}
    for k1, b in product(tuning.k1, tuning.b):
        retriever.set_parameters(k1=k1, b=b)
        runs = ranker.ranked(retriever, pools, None)
        maps = [means(ranker.values(run, pool))["map"] for run, pool in zip(runs, pools, strict=True)]
        tried[k1, b] = float(np.mean(maps))
    best = max(tried, key=lambda pair: tried[pair])
    retriever.set_parameters(k1=best[0], b=best[1])
    found = Tuned(*best, tried)
    log.info("%s: %s", retriever.name, found)
    return found


@dataclass(frozen=True)
class Group:
    """A pool size or a field: how many queries and candidates, and the values of each sampling's queries."""

    name: str
    queries: int
    candidates: int
    samplings: list[Values]

    def mean(self, measure: str) -> float:
        """Percent, the mean over the samplings."""
        return float(np.mean(self._of_samplings(measure)))

    def deviation(self, measure: str) -> float:
        """The standard deviation of the samplings' means, in percent (n - 1); 0 for one sampling."""
        found = self._of_samplings(measure)
        return float(np.std(found, ddof=1)) if len(found) > 1 else 0.0

    def _of_samplings(self, measure: str) -> list[float]:
        return [means({measure: values[measure]})[measure] for values in self.samplings]


@dataclass(frozen=True)
class Results:
    """The groups of one evaluation, and what is to be said of them."""

    retriever: str
    data: str
    groups: list[Group]
    tuned: Tuned | None
    remarks: list[str]
    seconds: float

    @property
    def title(self) -> str:
        return f"{self.retriever} on {self.data}"

    def metrics(self, average: bool = False) -> dict[str, dict[str, float]]:
        """{group: {measure: percent, measure_sd: its deviation, queries, candidates, samplings}}."""
        table: dict[str, dict[str, float]] = {}
        for group in self.groups:
            row: dict[str, float] = {}
            for name in MEASURES:
                row |= {name: round(group.mean(name), 4), f"{name}_sd": round(group.deviation(name), 4)}
            counts = {"queries": group.queries, "candidates": group.candidates}
            table[group.name] = row | counts | {"samplings": len(group.samplings)}
        if average:
            table[AVERAGE] = {name: round(averages(self.groups)[name], 4) for name in MEASURES}
        return table


def averages(groups: Sequence[Group]) -> dict[str, float]:
    """The mean of each measure over the groups, in percent."""
    return {name: float(np.mean([group.mean(name) for group in groups])) for name in MEASURES}


def group_table(groups: Sequence[Group], column: str, average: bool) -> list[list[str]]:
    """Head and rows: a group each, with deviations where there are several samplings."""
    rows = [[column, *MEASURES, "queries", "candidates", "samplings"]]
    for group in groups:
        cells = [_cell(group, name) for name in MEASURES]
        counts = (group.queries, group.candidates, len(group.samplings))
        rows.append([group.name, *cells, *(f"{count:,}" for count in counts)])
    if average:
        rows.append([AVERAGE, *(f"{value:.2f}" for value in averages(groups).values()), "", "", ""])
    return rows


def _cell(group: Group, name: str) -> str:
    several = len(group.samplings) > 1
    return f"{group.mean(name):.2f}" + (f" ± {group.deviation(name):.2f}" if several else "")
