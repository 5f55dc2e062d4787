"""Field-level evaluation: queries and pools of single fields (Medić and Šnajder 2022, section 3.2)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from datasets.errors import InputError
from evaluation.global_benchmarks.pool_benchmark import some
from evaluation.global_sampling.dataset_level import cost, head_and_rows, opening
from evaluation.global_sampling.pools import Pool, field_pools
from evaluation.global_sampling.results import Results, group_table
from evaluation.global_sampling.rules import Rows, Rules, Sampler
from evaluation.global_sampling.sampled import SampledBenchmark
from evaluation.global_sampling.tuning import Tuning
from evaluation.report import markdown_table

log = logging.getLogger(__name__)


class FieldLevel(SampledBenchmark):
    """Queries of each field, asked among papers that papers of the field cite."""

    title, column, averaged = "Field-level evaluation", "field", True

    def __init__(
        self,
        papers: str | Path | Sequence[str | Path] | None,
        rules: Rules,
        size: int,
        fields: Sequence[str] | None = None,
        min_queries: int = 1,
        **more: Any,
    ) -> None:
        """size: papers of a pool. fields: which are asked; None: all that have `min_queries` queries or more.

        more: settings of all such benchmarks (SampledBenchmark). Raises InputError for values that are none.
        """
        super().__init__(papers, rules, **more)
        for name, number in (("size", size), ("min_queries", min_queries)):
            if type(number) is not int or number < 1:
                raise InputError(f"benchmark.{name}: {number!r} is no whole number from 1 on")
        if fields is not None and (isinstance(fields, str) or not fields):
            raise InputError(f"benchmark.fields: {fields!r} is no list of fields")
        self.size, self.min_queries = size, min_queries
        self.fields = None if fields is None else [str(name) for name in fields]

    def pools(self, sampler: Sampler, validation: Tuning | None) -> tuple[list[Pool], list[Pool]]:
        tests, vals = self.drawn(sampler, validation.queries if validation else 0)
        pools = field_pools(sampler, tests, self.size, self.samplings)
        whole = {pool.group for pool in pools if pool.sampling == 0 and len(pool.papers) < self.size}
        if whole:
            self.remarks.append(
                f"{len(whole)} fields have fewer than {self.size:,} candidates, all of which are there, in "
                f"one sampling: {some(sorted(whole), 20)}."
            )
        if validation is None or not (there := {field: rows for field, rows in vals.items() if len(rows)}):
            return pools, []
        return pools, field_pools(sampler, there, validation.size or self.size, 1, "validation pool")

    def drawn(self, sampler: Sampler, validation: int = 0) -> tuple[dict[str, Rows], dict[str, Rows]]:
        """Queries for test and validation by field. Raises InputError that names fields without queries."""
        graph = sampler.graph
        if not graph.field_names:
            raise InputError(f"{graph.files[0]}: its papers have no fields")
        tests: dict[str, Rows] = {}
        vals: dict[str, Rows] = {}
        lacking, few = [], []
        for field in sorted(graph.field_names) if self.fields is None else self.fields:
            test, val = sampler.queries(self.number, validation, graph.in_field(field), field)
            if len(test) < self.min_queries:
                lacking.append(f"{field} ({len(test)})")
                continue
            tests[field], vals[field] = test, val
            if self.number is not None and len(test) < self.number:
                few.append(f"{field} ({len(test)})")
        if lacking and (self.fields is not None or not tests):
            raise InputError(
                f"{graph.files[0]}: {len(lacking)} fields have fewer than {self.min_queries} "
                f"queries{sampler.of_year}: {some(lacking, 20)}; leave them out of benchmark.fields"
            )
        if lacking:
            self.remarks.append(
                f"{len(lacking)} fields have fewer than {self.min_queries} queries and are left out: "
                f"{some(lacking, 20)}."
            )
        if few:
            self.remarks.append(f"{len(few)} fields have fewer than {self.number} queries: {some(few, 20)}.")
        asked = np.concatenate(list(tests.values()))  # a paper of two fields may be for test in the other
        return tests, {field: rows[~np.isin(rows, asked)] for field, rows in vals.items()}

    def report(self, results: Results, folder: Path) -> list[str]:
        return [
            *opening(results, self.rules, self.depth),
            "Of each field, the others are drawn from the papers that papers of the field cite.",
            markdown_table(*head_and_rows(group_table(results.groups, self.column, True))),
            cost(results),
        ]
