"""What an evaluation on samples has found: means of groups and their deviations over the samplings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evaluation.global_benchmarks.mdcr_measures import AVERAGE
from evaluation.global_sampling.ranking import MEASURES, means
from evaluation.global_sampling.tuning import Tuned
from evaluation.measures import Values


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
