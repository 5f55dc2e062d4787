"""Settings of evaluations: which papers are sampled as queries and candidates, and how BM25 is tuned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import rerank.settings  # noqa: F401  (schemas of what is evaluated)
from datasets.errors import InputError
from datasets.settings import Settings, register, setting


@dataclass(frozen=True)
class SamplingRules(Settings):
    """Which papers are queries and candidates; all have a title and a year."""

    where: ClassVar[str] = "benchmark.rules"

    year: int | None = None
    """of the queries, and the latest of candidates; null: any, and a query finds nothing later than itself"""
    min_abstract: int = 30
    """characters"""
    min_citations: int = 3
    """how often a paper is cited, at least"""
    min_cited: int = setting(1, least=1)
    """candidates that a query cites, at least"""
    leave_out: Any = None
    """ids that are not queries, as those a model was trained on, or a file of ids, one a line"""
    queries_file: str | None = None
    """only the papers of its splits are queries (datasets.citations.queries): test, and val to tune by"""


@dataclass(frozen=True)
class Tuning(Settings):
    """The grid of BM25's parameters, and the validation sample that chooses from it by MAP."""

    where: ClassVar[str] = "benchmark.tune"

    k1: tuple[float, ...] = (0.9, 1.2, 1.6, 2.0, 3.0)
    """values to try"""
    b: tuple[float, ...] = (0.3, 0.5, 0.75, 0.9)
    """values to try"""
    queries: int = setting(200, least=1)
    """validation queries, of each field if there are fields"""
    size: int | None = setting(None, least=1)
    """papers of a validation pool; null: as the smallest test pool, or more where the queries cite more"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.k1 or not self.b:
            raise InputError("benchmark.tune: k1 and b must be lists of values to try, or tune null")


register("sampling_rules", SamplingRules, target="evaluation.settings.SamplingRules")
register("tuning", Tuning, target="evaluation.settings.Tuning")
