"""Dataset-level evaluation: random queries, pools of growing sizes (Medić and Šnajder 2022, section 3.1)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from datasets.errors import InputError
from evaluation.global_sampling.pools import Pool, dataset_pools
from evaluation.global_sampling.results import Results, group_table
from evaluation.global_sampling.rules import Rows, Rules, Sampler
from evaluation.global_sampling.sampled import SampledBenchmark
from evaluation.global_sampling.tuning import Tuning
from evaluation.plots import size_plot
from evaluation.report import markdown_table

PLOT = "map.png"


class DatasetLevel(SampledBenchmark):
    """Queries of the whole collection, asked in pools of several sizes."""

    title, column, averaged = "Dataset-level evaluation", "pool size", False

    def __init__(
        self,
        papers: str | Path | Sequence[str | Path] | None,
        rules: Rules,
        sizes: Sequence[int],
        **more: Any,
    ):
        """sizes: papers of a pool. more: settings of all such benchmarks (SampledBenchmark).

        Raises InputError for sizes that are none.
        """
        super().__init__(papers, rules, **more)
        if isinstance(sizes, str | int) or not sizes or not all(type(n) is int and n >= 1 for n in sizes):
            raise InputError(
                f"benchmark.sizes: {sizes!s} is no list of whole numbers from 1 on, as [10000,20000]"
            )
        self.sizes = sorted(set(sizes))

    def pools(self, sampler: Sampler, validation: Tuning | None) -> tuple[list[Pool], list[Pool]]:
        test, val = sampler.queries(self.number, validation.queries if validation else 0)
        self._note(test, sampler)
        tests = dataset_pools(sampler, test, self.sizes, self.samplings)
        if validation is None or not len(val):
            return tests, []
        size = validation.size or max(self.sizes[0], len(sampler.cited(val)))
        return tests, dataset_pools(sampler, val, [size], 1, "validation pool")

    def report(self, results: Results, folder: Path) -> list[str]:
        curve = {group.candidates: group.mean("map") for group in results.groups}
        size_plot(folder / PLOT, {results.retriever: curve}, f"{results.title}: MAP by the size of the pool")
        return [
            *opening(results, self.rules, self.depth),
            markdown_table(*head_and_rows(group_table(results.groups, self.column, False))),
            f"![MAP by the size of the pool]({PLOT})",
            cost(results),
        ]

    def _note(self, queries: Rows, sampler: Sampler) -> None:
        if not len(queries):
            raise InputError(
                f"{self.rules.queries_file}: none of its test queries{sampler.of_year} passes the filters "
                "and cites a candidate"
            )
        if self.number is not None and len(queries) < self.number:
            self.remarks.append(f"There are {len(queries):,} queries, where {self.number:,} were asked for.")


def opening(results: Results, rules: Rules, depth: int) -> list[str]:
    """What was asked and measured, in paragraphs."""
    when = "not later than itself" if rules.year is None else f"of {rules.year} or earlier"
    papers = f"with a title, a year and an abstract of {rules.min_abstract} characters or more, cited "
    papers += f"{rules.min_citations} times or more" if rules.min_citations else "or not"
    asks = "A query" if rules.year is None else f"A query is of {rules.year}; it"
    return [
        f"{asks} asks by its title and abstract; the candidates that it cites are to be found. Candidates "
        f"are papers {papers}, {when}. Each pool holds all that its queries cite, and others at random.",
        f"Measures of trec_eval in percent, of the first {depth} papers: mean over queries, then over "
        "samplings of pools, ± the standard deviation of the samplings.",
        " ".join(results.remarks),
        *([f"BM25: {results.tuned}."] if results.tuned else []),
    ]


def cost(results: Results) -> str:
    """How long it took."""
    asked = sum(group.queries * len(group.samplings) for group in results.groups)
    return f"Indexing, search and measures: {results.seconds:.1f} s for {asked:,} queries in all pools."


def head_and_rows(table: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    """A table as markdown_table takes it."""
    return table[0], table[1:]
