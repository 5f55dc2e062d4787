"""Sampling of queries and candidate pools (Medić and Šnajder 2022, section 3)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from citerec.base.errors import InputError
from citerec.datasets.citations.graph import CitationGraph
from citerec.datasets.citations.queries import citable_references, read_query_lists
from citerec.datasets.columns import Ragged
from citerec.datasets.records import TRAIN
from citerec.evaluation.settings import SamplingRules

TEST, VALIDATION = "test", "val"

Rows = NDArray[np.int64]
"""Rows of papers in the citation graph."""


class Sampler:
    """Draws queries and pools from a graph; a draw depends only on the seed and its purpose.

    eligible [P]: papers that pass the rules. candidates [P]: those that can be in a pool.
    relevant [P]: the candidates that each paper cites, none later than itself.
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
        self.relevant: Ragged = citable_references(graph, self.candidates)

    @cached_property
    def query_mask(self) -> NDArray[np.bool_]:
        """Papers that can be queries [P]; InputError if there are none."""
        mask = self._query_year_mask & (self.relevant.lengths >= self.rules.min_cited)
        if not mask.any():
            raise InputError(
                f"{self.graph.files[0]}: no paper{self.of_year} passes the filters and cites at least "
                f"{self.rules.min_cited} candidate(s); change benchmark.rules"
            )
        return mask

    @property
    def _query_year_mask(self) -> NDArray[np.bool_]:
        return self.eligible & (self.rules.year is None or self.graph.years == self.rules.year)

    def facts(self) -> list[str]:
        """Describe in sentences what was sampled from and what was left out."""
        graph, of_year, least = self.graph, self.of_year, self.rules.min_cited
        passing, papers = np.count_nonzero(self.candidates), np.count_nonzero(~graph.is_distractor)
        queries = np.count_nonzero(self.query_mask)
        others = np.count_nonzero(self._query_year_mask & (self.relevant.lengths < least))
        facts = [
            f"{passing:,} of {papers:,} papers pass the filters; {queries:,}{of_year} can be queries.",
            f"{others:,} others{of_year} cannot, because they cite fewer than {least} candidates.",
            f"{graph.unknown:,} citations involve papers that are in none of the files.",
        ]
        if self.rules.queries_file is not None:
            rows = read_query_lists(self.rules.queries_file).rows(TEST, graph)
            if lost := np.count_nonzero(~self.query_mask[rows]):
                facts.append(f"{lost:,} of the {len(rows):,} papers listed for {TEST} cannot be queries.")
        if len(self.distractors):
            facts.append(f"{len(self.distractors):,} distractors from any year fill up the pools.")
        return facts

    def queries(
        self, number: int | None, validation: int, among: NDArray[np.bool_] | None = None, *purpose: str
    ) -> tuple[Rows, Rows]:
        """Draw up to `number` test queries (None means all) and `validation` others, all `among` papers [P].

        Both are in random order and come from the splits of the query file, if given; `validation` does not
        affect the test queries.
        """
        mask = self.query_mask if among is None else self.query_mask & among
        order = self.shuffle(np.flatnonzero(mask), "queries", *purpose)
        if self.rules.queries_file is None:
            first = len(order) if number is None else number
            return order[:first], order[first : first + validation]
        lists = read_query_lists(self.rules.queries_file)
        test = order[np.isin(order, lists.rows(TEST, self.graph))]
        has_validation = VALIDATION in lists.splits
        val = order[np.isin(order, lists.rows(VALIDATION, self.graph))] if has_validation else order[:0]
        return test[:number], val[:validation]

    def training(self, queries: Rows) -> Rows:
        """Return the papers of any year that cite a candidate, without these queries and listed ones."""
        rows = np.flatnonzero(self.graph.titled & ~self.graph.is_distractor & (self.relevant.lengths > 0))
        if self.rules.queries_file is not None:
            lists = read_query_lists(self.rules.queries_file)
            listed = [lists.rows(split, self.graph) for split in lists.splits if split != TRAIN]
            queries = np.concatenate([queries, *listed])
        return np.setdiff1d(rows, queries)

    def shuffle(self, rows: Rows, *purpose: str | int) -> Rows:
        """Return the rows in a random order for this purpose."""
        digest = hashlib.blake2b(repr((self.seed, *purpose)).encode(), digest_size=16).digest()
        return np.random.default_rng(int.from_bytes(digest, "little")).permutation(rows)

    def cited_by(self, queries: Rows) -> Rows:
        """Return the candidates that queries cite, ascending."""
        return np.unique(self.relevant.take(queries).values).astype(np.int64)

    def cited_by_field(self, field: str) -> Rows:
        """Return the candidates that any paper of a field cites, ascending."""
        cited = np.zeros(len(self.graph), np.bool_)
        cited[self.graph.cites.take(np.flatnonzero(self.graph.in_field(field))).values] = True
        return np.flatnonzero(cited & self.candidates)


class SampledPool(NamedTuple):
    """The queries of a group (rows in any order), and the papers they search in one sampling (ascending)."""

    group: str
    sampling: int
    queries: Rows
    papers: Rows


def dataset_pools(
    sampler: Sampler, queries: Rows, sizes: Sequence[int], samplings: int, purpose: str = "pool"
) -> list[SampledPool]:
    """Draw one pool per size and sampling; the pools of one sampling are nested (section 3.1).

    Pools are filled up with random candidates, then with distractors. Raises InputError for sizes too small
    for the papers that the queries cite, or too large to fill.
    """
    cited = sampler.cited_by(queries)
    others = np.setdiff1d(np.flatnonzero(sampler.candidates), cited, assume_unique=True)
    most = len(cited) + len(others) + len(sampler.distractors)
    if max(sizes) > most:
        raise InputError(
            f"benchmark.sizes: a pool of {max(sizes):,} papers cannot be filled, there are only {most:,} "
            "candidates; choose smaller sizes, or set benchmark.distractors=FILE"
        )
    pools = []
    for sampling in range(samplings):
        fillers = [
            sampler.shuffle(others, purpose, sampling),
            sampler.shuffle(sampler.distractors, "distractors", purpose, sampling),
        ]
        for size in sorted(set(sizes)):
            papers = _fill_pool(cited, np.concatenate(fillers), size, f"{len(queries):,} queries")
            pools.append(SampledPool(str(size), sampling, queries, papers))
    return _drop_repeats(pools)


def field_pools(
    sampler: Sampler, queries: Mapping[str, Rows], size: int, samplings: int, purpose: str = "pool"
) -> list[SampledPool]:
    """Draw one pool per field and sampling, filled up with papers that the field cites (section 3.2).

    A field that cites fewer than `size` papers has one sampling with all of them. Raises InputError if the
    queries of a field cite more than `size` candidates.
    """
    pools = []
    for field, rows in queries.items():
        cited = sampler.cited_by(rows)
        others = np.setdiff1d(sampler.cited_by_field(field), cited, assume_unique=True)
        for sampling in range(samplings):
            order = sampler.shuffle(others, purpose, field, sampling)
            papers = _fill_pool(cited, order, size, f"{len(rows):,} queries of the field {field}")
            pools.append(SampledPool(field, sampling, rows, papers))
    return _drop_repeats(pools)


def _fill_pool(cited: Rows, order: Rows, size: int, citing: str) -> Rows:
    if size < len(cited):
        raise InputError(
            f"a pool of {size:,} papers cannot hold the {len(cited):,} papers that the {citing} cite; sample "
            "fewer queries (queries=N) or enlarge the pool"
        )
    return np.sort(np.concatenate([cited, order[: size - len(cited)]]))


def _drop_repeats(pools: list[SampledPool]) -> list[SampledPool]:
    """Drop samplings equal to the first one, e.g. of pools that include all candidates."""
    first = {pool.group: pool.papers for pool in pools if pool.sampling == 0}
    return [p for p in pools if p.sampling == 0 or not np.array_equal(p.papers, first[p.group])]
