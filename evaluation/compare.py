"""Compare two evaluations of the same queries: `python -m evaluation.compare OUTPUT_A OUTPUT_B`.

For each measure, prints both means, their difference with a 95 % confidence interval, and the p-value of a
two-sided randomisation test, both clustered by citing paper (evaluation.significance).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from datasets.errors import InputError, one_line_errors
from datasets.files import write_text
from evaluation.measures import PerQuery
from evaluation.protocol import metric_key, protocol_file
from evaluation.report import METRICS, PER_QUERY, markdown_table
from evaluation.settings import PROTOCOLS, TRANSDUCTIVE
from evaluation.significance import Difference, paired

MEASURES = ("mrr", "recall@10", "recall@100")


def compare(
    a: str | Path,
    b: str | Path,
    measures: Sequence[str] = MEASURES,
    protocol: str = TRANSDUCTIVE,
    seed: int = 0,
) -> dict[str, Difference]:
    """Compare two output folders of the benchmark by some measures.

    Raises InputError if one has no such file or measure, or when queries or pools are not the same.
    """
    (of_a, facts_a), (of_b, facts_b) = (_read(Path(folder), protocol) for folder in (a, b))
    for key, fact in facts_a.items():  # what must be the same, so that only the rankings differ
        if facts_b[key] != fact:
            others = f"{key} {fact!r} in the first, {facts_b[key]!r} in the second"
            raise InputError(f"{a} and {b}: not comparable: {others}")
    place = {query: row for row, query in enumerate(of_b.query_ids)}
    if len(of_a) != len(of_b) or any(query not in place for query in of_a.query_ids):
        raise InputError(f"{a} and {b}: not comparable: they have different queries")
    order = [place[query] for query in of_a.query_ids]
    found = {}
    for name in measures:
        for folder, values in ((a, of_a.values), (b, of_b.values)):
            if name not in values:
                raise InputError(f"{folder}: no measure {name!r}; there are {', '.join(values)}")
        found[name] = paired(of_a.values[name], of_b.values[name][order], of_a.papers, seed=seed)
    return found


def difference_rows(found: dict[str, Difference]) -> list[list[str]]:
    """A row for each measure, as HEAD names its cells."""
    return [
        [
            name,
            f"{one.a:.4f}",
            f"{one.b:.4f}",
            f"{one.difference:+.4f}",
            f"{one.low:+.4f} to {one.high:+.4f}" if one.papers > 1 else "",
            f"{one.p:.4f}",
        ]
        for name, one in found.items()
    ]


HEAD = ["measure", "A", "B", "A - B", "95 %", "p"]


def _read(folder: Path, protocol: str) -> tuple[PerQuery, dict[str, Any]]:
    values = PerQuery.read(folder / protocol_file(PER_QUERY, protocol))
    path = folder / METRICS
    try:
        metrics = json.loads(path.read_text("utf-8"))
        if metrics and all(isinstance(row, dict) for row in metrics.values()):  # a row a field or pool
            return values, {"groups": {name: row.get("candidates") for name, row in metrics.items()}}
        pool = {key: metrics[key] for key in ("split", "filters")}
        return values, pool | {"candidates": metrics[metric_key("candidates", protocol)]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: not the metrics of an evaluation ({error})") from None


@one_line_errors
def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("a", type=Path, help="output folder of an evaluation")
    parser.add_argument("b", type=Path, help="output folder of another evaluation of the same queries")
    parser.add_argument("--measures", nargs="+", default=list(MEASURES))
    parser.add_argument("--protocol", choices=PROTOCOLS, default=TRANSDUCTIVE)
    parser.add_argument("--output", type=Path, help="also write the table to this file")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    found = compare(given.a, given.b, given.measures, given.protocol, given.seed)
    one = next(iter(found.values()))
    text = (
        f"A: {given.a}, B: {given.b}; {given.protocol}, {one.queries:,} queries of {one.papers:,} citing "
        "papers\n\n"
        f"{markdown_table(HEAD, difference_rows(found))}\n"
    )
    if given.output:
        write_text(given.output, text)
    print(text, end="")


if __name__ == "__main__":
    main()
