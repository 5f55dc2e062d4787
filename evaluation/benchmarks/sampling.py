"""Which papers are queries and candidates, and random pools of these (Medić and Šnajder 2022, section 3)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from datasets.citations.graph import CitationGraph
from datasets.citations.queries import cited_earlier, read_query_lists
from datasets.columns import Ragged
from datasets.errors import InputError
from evaluation.settings import SamplingRules

TEST, VALIDATION = "test", "val"

Rows = NDArray[np.int64]
"""Rows of papers in the citation graph."""


class Sampler:
    """Draws queries and pools from a graph; a draw depends on the seed and its purpose alone.

    eligible [P]: pass the rules. candidates [P]: those of them that can be in a pool.
    relevant [P]: the candidates that each paper cites, not later than itself.
    """

    def __init__(self, graph: CitationGraph, rules: SamplingRules, seed: int) -> None:
        self.graph, self.rules, self.seed = graph, rules, seed
        readable = graph.titled & (graph.abstract_lengths >= rules.min_abstract)
        self.distractors: Rows = np.flatnonzero(graph.is_distractor & readable)
        self.eligible: NDArray[np.bool_] = (
            readable & ~graph.is_distractor & (graph.years != 0) & (graph.citations >= rules.min_citations)
        )
        self.candidates = self.eligible & (rules.year is None or graph.years <= rules.year)
        self.of_year = "" if rules.year is None else f" of {rules.year}"
        self.relevant: Ragged = cited_earlier(graph, self.candidates)

    @cached_property
    def may_query(self) -> NDArray[np.bool_]:
        """Papers that can be queries [P]; InputError if there are none."""
        may = self._of_query_year & (self.relevant.lengths >= self.rules.min_cited)
        may[self._left_out] = False
        if not may.any():
            raise InputError(
                f"{self.graph.files[0]}: no paper{self.of_year} passes the filters and cites "
                f"{self.rules.min_cited} or more that do; change benchmark.rules"
            )
        return may

    @property
    def _of_query_year(self) -> NDArray[np.bool_]:
        return self.eligible & (self.rules.year is None or self.graph.years == self.rules.year)

    def facts(self) -> list[str]:
        """What was left out, in sentences."""
        graph, of_year, least = self.graph, self.of_year, self.rules.min_cited
        passing, papers = np.count_nonzero(self.candidates), np.count_nonzero(~graph.is_distractor)
        may = np.count_nonzero(self.may_query)
        others = np.count_nonzero(self._of_query_year & (self.relevant.lengths < least))
        facts = [
            f"{passing:,} of {papers:,} papers pass the filters; {may:,}{of_year} can be queries.",
            f"{others:,} others{of_year} cite fewer than {least} candidates that are not later, and cannot.",
            f"{graph.unknown:,} citations are of or by papers that are in no file.",
        ]
        if self.rules.queries_file is not None:
            rows = read_query_lists(self.rules.queries_file).rows(TEST, graph)
            if lost := np.count_nonzero(~self.may_query[rows]):
                facts.append(f"{lost:,} of the {len(rows):,} papers listed for {TEST} cannot be queries.")
        if len(self.distractors):
            facts.append(f"{len(self.distractors):,} distractors, of any year, fill up the pools.")
        return facts

    def queries(
        self, number: int | None, validation: int, among: NDArray[np.bool_] | None = None, *purpose: str
    ) -> tuple[Rows, Rows]:
        """Up to `number` test queries (None: all) and `validation` others, all `among` some papers [P].

        Both in random order; `validation` does not change the test queries. From the splits of the file of
        queries, if there is one.
        """
        may = self.may_query if among is None else self.may_query & among
        order = self.shuffled(np.flatnonzero(may), "queries", *purpose)
        if self.rules.queries_file is None:
            first = len(order) if number is None else number
            return order[:first], order[first : first + validation]
        lists = read_query_lists(self.rules.queries_file)
        test = order[np.isin(order, lists.rows(TEST, self.graph))]
        known = VALIDATION in lists.splits
        val = order[np.isin(order, lists.rows(VALIDATION, self.graph))] if known else order[:0]
        return test[:number], val[:validation]

    def shuffled(self, rows: Rows, *purpose: str | int) -> Rows:
        """The rows in a random order for one purpose."""
        return self.rng(*purpose).permutation(rows)

    def rng(self, *purpose: str | int) -> np.random.Generator:
        """Random numbers for one purpose."""
        text = repr((self.seed, *purpose)).encode()
        return np.random.default_rng(int.from_bytes(hashlib.blake2b(text, digest_size=16).digest(), "little"))

    def cited(self, queries: Rows) -> Rows:
        """The candidates that queries cite, ascending."""
        return np.unique(self.relevant.take(queries).values).astype(np.int64)

    def cited_in(self, field: str) -> Rows:
        """The candidates that any paper of a field cites, ascending."""
        found = np.zeros(len(self.graph), np.bool_)
        found[self.graph.cites.take(np.flatnonzero(self.graph.in_field(field))).values] = True
        return np.flatnonzero(found & self.candidates)

    @cached_property
    def _left_out(self) -> list[int]:
        """Rows; ids that no paper has are ignored."""
        names = self.rules.leave_out or ()
        if isinstance(names, str):
            try:
                names = Path(names).expanduser().read_text("utf-8").split()
            except (OSError, UnicodeDecodeError) as error:
                reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
                raise InputError(
                    f"benchmark.rules.leave_out: {names}: {reason}; name a file of ids"
                ) from None
        return [self.graph.rows[name] for name in map(str, names) if name in self.graph.rows]


class SampledPool(NamedTuple):
    """What a group's queries (rows in any order) search in one sampling: papers, rows, ascending."""

    group: str
    sampling: int
    queries: Rows
    papers: Rows


def dataset_pools(
    sampler: Sampler, queries: Rows, sizes: Sequence[int], samplings: int, purpose: str = "pool"
) -> list[SampledPool]:
    """A pool of each size in each sampling; those of one sampling lie within each other (section 3.1).

    Filled up with random candidates, and with distractors when there are no more. Raises InputError for a
    size that cannot hold what the queries cite, or that cannot be filled.
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
        fillers = [
            sampler.shuffled(others, purpose, sampling),
            sampler.shuffled(sampler.distractors, "distractors", purpose, sampling),
        ]
        for size in sorted(set(sizes)):
            papers = _filled(cited, np.concatenate(fillers), size, f"{len(queries):,} queries")
            pools.append(SampledPool(str(size), sampling, queries, papers))
    return _distinct(pools)


def field_pools(
    sampler: Sampler, queries: Mapping[str, Rows], size: int, samplings: int, purpose: str = "pool"
) -> list[SampledPool]:
    """A pool of each field in each sampling, filled up with papers that its papers cite (section 3.2).

    Where there are fewer than `size`, all of them in one sampling. Raises InputError where the queries of a
    field cite more than that.
    """
    pools = []
    for field, rows in queries.items():
        cited = sampler.cited(rows)
        others = np.setdiff1d(sampler.cited_in(field), cited, assume_unique=True)
        for sampling in range(samplings):
            order = sampler.shuffled(others, purpose, field, sampling)
            papers = _filled(cited, order, size, f"{len(rows):,} queries of the field {field}")
            pools.append(SampledPool(field, sampling, rows, papers))
    return _distinct(pools)


def _filled(cited: Rows, order: Rows, size: int, whose: str) -> Rows:
    if size < len(cited):
        raise InputError(
            f"a pool of {size:,} papers cannot hold the {len(cited):,} that the {whose} cite: sample fewer "
            "(queries=N) or make it larger"
        )
    return np.sort(np.concatenate([cited, order[: size - len(cited)]]))


def _distinct(pools: list[SampledPool]) -> list[SampledPool]:
    """Without samplings that repeat the first one, as where a pool takes everything there is."""
    first = {pool.group: pool.papers for pool in pools if pool.sampling == 0}
    return [p for p in pools if p.sampling == 0 or not np.array_equal(p.papers, first[p.group])]
