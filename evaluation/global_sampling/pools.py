"""Pools of candidates that hold all that their queries cite (Medić and Šnajder 2022, 3.1 and 3.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from datasets.errors import InputError
from evaluation.global_sampling.rules import Rows, Sampler


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
