"""Compare two evaluations of the same queries: `citerec compare OUTPUT_A OUTPUT_B`.

For each measure, prints both means, their difference with a 95 % confidence interval, and the p-value of a
two-sided randomisation test, both clustered by citing paper (evaluation.significance).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from citerec.base.arguments import command
from citerec.base.errors import InputError
from citerec.base.files import write_text
from citerec.base.settings import Settings, setting
from citerec.evaluation.measures import PerQuery
from citerec.evaluation.protocol import metric_key, protocol_file
from citerec.evaluation.report import METRICS, PER_QUERY, markdown_table
from citerec.evaluation.settings import PROTOCOLS, TRANSDUCTIVE
from citerec.evaluation.significance import Difference, format_p, holm, paired_difference

MEASURES = ("mrr", "recall@10", "recall@100")


@dataclass(frozen=True, kw_only=True)
class CompareSettings(Settings):
    """Test the differences of two evaluations of the same queries."""

    positional: ClassVar[str] = "folders"

    folders: tuple[str, ...]
    """the two output folders of evaluations, A and B (e.g. [outputs/hatten,outputs/bm25])"""
    measures: tuple[str, ...] = MEASURES
    """columns of per_query.csv"""
    protocol: str = setting(TRANSDUCTIVE, choices=PROTOCOLS)
    output: str | None = None
    """file to write the table to, too"""
    seed: int = 0
    """random seed of intervals and tests"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.folders) != 2:
            raise InputError(f"citerec compare: name two output folders, not {len(self.folders)}")


def compare(
    a: str | Path,
    b: str | Path,
    measures: Sequence[str] = MEASURES,
    protocol: str = TRANSDUCTIVE,
    seed: int = 0,
    group: str = "",
) -> dict[str, Difference]:
    """Compare two evaluation output folders by the given measures.

    group: compare only its queries, such as those of a field or a pool size.
    Raises InputError if a file or measure is missing, or if queries or pools differ.
    """
    of_a, of_b = _read_both(a, b, protocol, group)
    return {
        name: paired_difference(_values(a, of_a, name), _values(b, of_b, name), of_a.papers, seed=seed)
        for name in measures
    }


def compare_change(
    a: str | Path, b: str | Path, measure: str, first: str, last: str, seed: int = 0
) -> Difference:
    """Compare the lead of A over B in group `last` (a) with that in group `first` (b), by the same queries.

    Tests whether the order of two retrievers changes between pools of two sizes. Leads are means over the
    samplings of a pool.
    """
    leads = []
    for group in (last, first):
        of_a, of_b = _read_both(a, b, TRANSDUCTIVE, group)
        lead = _values(a, of_a, measure) - _values(b, of_b, measure)
        sums = np.bincount(of_a.papers, lead) / np.bincount(of_a.papers)
        leads.append(dict(zip(dict.fromkeys(of_a.citing_ids), sums.tolist(), strict=True)))
    papers = [paper for paper in leads[0] if paper in leads[1]]
    at_last, at_first = (np.array([of[paper] for paper in papers]) for of in leads)
    return paired_difference(at_last, at_first, np.arange(len(papers)), seed=seed)


def difference_rows(differences: Mapping[str, Difference]) -> list[list[str]]:
    """Return one table row per measure; HEADER names the columns. Holm's p is for all of these tests."""
    adjusted = holm([one.p for one in differences.values()])
    return [
        [
            name,
            f"{one.a:.4f}",
            f"{one.b:.4f}",
            f"{one.difference:+.4f}",
            f"{one.low:+.4f} to {one.high:+.4f}" if one.papers > 1 else "",
            format_p(one.p),
            format_p(p, tests=len(differences)),
        ]
        for (name, one), p in zip(differences.items(), adjusted, strict=True)
    ]


HEADER = ["measure", "A", "B", "A - B", "95 %", "p", "p, Holm"]


def _values(folder: str | Path, of: PerQuery, measure: str) -> NDArray[np.float64]:
    if measure not in of.values:
        raise InputError(f"{folder}: no measure {measure!r}; choose from {', '.join(of.values)}")
    return of.values[measure]


def _take_group(of: PerQuery, group: str) -> PerQuery:
    return of.take([row for row, query in enumerate(of.query_ids) if query.startswith(f"{group}/")])


def _read_both(a: str | Path, b: str | Path, protocol: str, group: str) -> tuple[PerQuery, PerQuery]:
    """Return the values of both folders for the same queries in the same order."""
    (of_a, setup_a), (of_b, setup_b) = (_read(Path(folder), protocol) for folder in (a, b))
    if group:
        setup_a, setup_b = ({"candidates": of["groups"].get(group)} for of in (setup_a, setup_b))
        of_a, of_b = _take_group(of_a, group), _take_group(of_b, group)
    for key, value in setup_a.items():  # must agree, so that only the rankings differ
        if setup_b[key] != value:
            raise InputError(f"{a} and {b}: not comparable: {key} is {value!r} and {setup_b[key]!r}")
    rows = {query: row for row, query in enumerate(of_b.query_ids)}
    if len(of_a) != len(of_b) or any(query not in rows for query in of_a.query_ids):
        raise InputError(f"{a} and {b}: not comparable: they have different queries")
    return of_a, of_b.take([rows[query] for query in of_a.query_ids])


def _read(folder: Path, protocol: str) -> tuple[PerQuery, dict[str, Any]]:
    values = PerQuery.read(folder / protocol_file(PER_QUERY, protocol))
    path = folder / METRICS
    try:
        metrics = json.loads(path.read_text("utf-8"))
        if metrics and all(isinstance(row, dict) for row in metrics.values()):  # one per field or pool
            return values, {"groups": {name: row.get("candidates") for name, row in metrics.items()}}
        pool = {key: metrics[key] for key in ("split", "filters")}
        return values, pool | {"candidates": metrics[metric_key("candidates", protocol)]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: not the metrics.json of an evaluation ({error})") from None


def print_comparison(given: CompareSettings) -> None:
    """Print the table of differences, and write it to `output`."""
    a, b = given.folders
    differences = compare(a, b, given.measures, given.protocol, given.seed)
    one = next(iter(differences.values()))
    text = (
        f"A: {a}, B: {b}; {given.protocol}, {one.queries:,} queries of {one.papers:,} citing papers\n\n"
        f"{markdown_table(HEADER, difference_rows(differences))}\n"
    )
    if given.output:
        write_text(Path(given.output), text)
    print(text, end="")


main = command("compare", CompareSettings, print_comparison)
