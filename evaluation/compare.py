"""Compare two evaluations of the same queries: `citerec compare OUTPUT_A OUTPUT_B`.

For each measure, prints both means, their difference with a 95 % confidence interval, and the p-value of a
two-sided randomisation test, both clustered by citing paper (evaluation.significance).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from citerec.base.arguments import command
from citerec.base.errors import InputError
from citerec.base.files import write_text
from citerec.base.settings import Settings, setting
from citerec.evaluation.measures import PerQuery
from citerec.evaluation.protocol import metric_key, protocol_file
from citerec.evaluation.report import METRICS, PER_QUERY, markdown_table
from citerec.evaluation.settings import PROTOCOLS, TRANSDUCTIVE
from citerec.evaluation.significance import Difference, paired_difference

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
) -> dict[str, Difference]:
    """Compare two evaluation output folders by the given measures.

    Raises InputError if a file or measure is missing, or if queries or pools differ.
    """
    (of_a, setup_a), (of_b, setup_b) = (_read(Path(folder), protocol) for folder in (a, b))
    for key, value in setup_a.items():  # must agree, so that only the rankings differ
        if setup_b[key] != value:
            raise InputError(f"{a} and {b}: not comparable: {key} is {value!r} and {setup_b[key]!r}")
    rows = {query: row for row, query in enumerate(of_b.query_ids)}
    if len(of_a) != len(of_b) or any(query not in rows for query in of_a.query_ids):
        raise InputError(f"{a} and {b}: not comparable: they have different queries")
    order = [rows[query] for query in of_a.query_ids]
    differences = {}
    for name in measures:
        for folder, values in ((a, of_a.values), (b, of_b.values)):
            if name not in values:
                raise InputError(f"{folder}: no measure {name!r}; choose from {', '.join(values)}")
        values_b = of_b.values[name][order]
        differences[name] = paired_difference(of_a.values[name], values_b, of_a.papers, seed=seed)
    return differences


def difference_rows(differences: dict[str, Difference]) -> list[list[str]]:
    """Return one table row per measure; HEADER names the columns."""
    return [
        [
            name,
            f"{one.a:.4f}",
            f"{one.b:.4f}",
            f"{one.difference:+.4f}",
            f"{one.low:+.4f} to {one.high:+.4f}" if one.papers > 1 else "",
            f"{one.p:.4f}",
        ]
        for name, one in differences.items()
    ]


HEADER = ["measure", "A", "B", "A - B", "95 %", "p"]


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
