"""Compare evaluations of the same queries: `citerec compare OUTPUT_A OUTPUT_B`, and `compare` in Python.

Each measure has both means, their difference with a 95 % confidence interval, and the p-value of a two-sided
randomisation test; interval and test are clustered by citing paper (evaluation.significance).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np

from citerec.base.arguments import command
from citerec.base.errors import InputError
from citerec.base.settings import Settings, setting
from citerec.datasets.corpus import Split
from citerec.evaluation.measures import PerQuery, means, measure
from citerec.evaluation.protocol import Qrels, metric_key, protocol_file
from citerec.evaluation.report import METRICS, PER_QUERY, QRELS, markdown_table
from citerec.evaluation.settings import PROTOCOLS, TRANSDUCTIVE
from citerec.evaluation.significance import Difference, format_p, holm, intervals, paired_difference
from citerec.retrieval.base import Ranking
from citerec.retrieval.settings import measure_name

MEASURES = ("mrr", "recall@10", "recall@100")
TESTED = ("difference", "difference_low", "difference_high", "p", "p_holm")
"""Keys of `Comparison.rows` that describe a test."""


@dataclass(frozen=True, kw_only=True)
class CompareSettings(Settings):
    """Test the differences of two evaluations of the same queries."""

    positional: ClassVar[str] = "folders"

    folders: tuple[str, ...]
    """the two output folders of evaluations, A and B (e.g. [outputs/hatten,outputs/bm25])"""
    measures: tuple[str, ...] = setting(MEASURES, filled=True)
    """columns of per_query.csv; R@10 is recall@10"""
    protocol: str = setting(TRANSDUCTIVE, choices=PROTOCOLS)
    seed: int = 0
    """random seed of intervals and tests"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.folders) != 2:
            raise InputError(f"citerec compare: name two output folders, not {len(self.folders)}")


def compare_outputs(
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
    measures = [*map(measure_name, measures)]
    queries_a, queries_b = _read_both(a, b, protocol, group)
    for folder, values in ((a, queries_a.values), (b, queries_b.values)):
        if missing := [name for name in measures if name not in values]:
            raise InputError(f"{folder}: no measure {missing[0]!r}; choose from {', '.join(values)}")
    recalls = ([name[7:] for name in q.values if name.startswith("recall@")] for q in (queries_a, queries_b))
    depths = [max(map(int, cutoffs), default=0) for cutoffs in recalls]
    _check_depths(f"{a} and {b}", depths, measures, "use the same benchmark.cutoffs")
    return {
        name: paired_difference(queries_a.values[name], queries_b.values[name], queries_a.papers, seed=seed)
        for name in measures
    }


def difference_rows(differences: Mapping[str, Difference]) -> list[list[str]]:
    """Return one table row per measure; HEADER names the columns. Holm's p is for all of these tests."""
    adjusted, tests = holm([difference.p for difference in differences.values()]), len(differences)
    return [
        [
            name,
            f"{difference.a:.4f}",
            f"{difference.b:.4f}",
            *_test_cells(tests, difference.difference, difference.low, difference.high, difference.p, p),
        ]
        for (name, difference), p in zip(differences.items(), adjusted, strict=True)
    ]


HEADER = ["measure", "A", "B", "A - B", "95 %", "p", "p, Holm"]


def _test_cells(tests: int, difference: float, low: float, high: float, p: float, holm: float) -> list[str]:
    """Return the cells of a test, the same on the command line, on pages and in Python."""
    ends = "" if math.isnan(low) else f"{low:+.4f} to {high:+.4f}"  # of one citing paper
    return [f"{difference:+.4f}", ends, format_p(p), format_p(holm, tests)]


class System(Protocol):
    """A retriever, or anything else that ranks the queries of a split."""

    @property
    def name(self) -> str: ...

    def search(self, queries: Split, k: int) -> Ranking: ...


@dataclass(frozen=True)
class Comparison:
    """Measures of several systems, and their differences from the first one.

    rows: a record of each system and measure, as pandas.DataFrame(rows) takes them: system, measure, mean,
    low, high (its 95 % interval), and, for all but the first system, difference, difference_low,
    difference_high, p, and p_holm, which is adjusted for all tests of the table.
    """

    rows: list[dict[str, Any]]

    def __str__(self) -> str:
        """The table in Markdown."""
        cells, tests = [], sum(row["p"] is not None for row in self.rows)
        for row in self.rows:
            ends = "" if math.isnan(row["low"]) else f" [{row['low']:.4f}, {row['high']:.4f}]"
            tested = [row[name] for name in TESTED]
            test = [""] * 4 if row["p"] is None else _test_cells(tests, *tested)
            cells.append([row["system"], row["measure"], f"{row['mean']:.4f}{ends}", *test])
        return markdown_table(["system", "measure", "mean", "difference", *HEADER[-3:]], cells)

    _repr_markdown_ = __str__


def compare(
    systems: Sequence[System | Ranking] | Mapping[str, System | Ranking],
    split: Split,
    measures: Sequence[str] = ("R@10", "MRR"),
    k: int = 100,
) -> Comparison:
    """Rank the queries of a split by several systems; compare each with the first one.

        print(compare([bm25, static], corpus.split("test"), ["R@10", "MRR"]))

    systems: indexed retrievers or rankings of this split with the same candidates, optionally by name.
    measures: as in `evaluate`. k: papers that are ranked per query.
    Raises InputError for an unknown measure, fewer than two systems, or a ranking of other queries.
    """
    if isinstance(systems, Mapping):
        named = systems
    else:
        named = {
            f"ranking {number}" if isinstance(system, Ranking) else system.name: system
            for number, system in enumerate(systems, 1)
        }
    if len(named) < 2 or len(named) < len(systems):
        raise InputError(
            "compare: give two or more systems; by name ({name: system}) if their names are equal"
        )
    rankings = {
        name: system if isinstance(system, Ranking) else system.search(split, k)
        for name, system in named.items()
    }
    depths = [ranking.k for ranking in rankings.values()]
    _check_depths("compare", depths, measures, "search with the same k")
    measured = {name: measure(ranking, measures) for name, ranking in rankings.items()}
    (reference, first), rows = next(iter(measured.items())), list[dict[str, Any]]()
    for name, values in measured.items():
        if values.query_ids != first.query_ids:
            raise InputError(f"compare: {name} ranks other queries than {reference}")
        queries = rankings[name].queries
        if queries is not None and not np.array_equal(queries.contexts, split.contexts):
            raise InputError(f"compare: {name} ranks other queries than split {split.name}")
        low, high = intervals(np.stack(list(values.values.values()), axis=1), values.papers)
        for column, (label, mean) in enumerate(means(values.values).items()):
            row: dict[str, Any] = {"system": name, "measure": label, "mean": mean}
            row |= {"low": low[column], "high": high[column]}
            row |= dict.fromkeys(TESTED)
            if values is not first:
                test = paired_difference(values.values[label], first.values[label], values.papers)
                row |= zip(TESTED, (test.difference, test.low, test.high, test.p), strict=False)
            rows.append(row)
    tested = [row for row in rows if row["p"] is not None]
    for row, p in zip(tested, holm([row["p"] for row in tested]), strict=True):
        row["p_holm"] = p
    return Comparison(rows)


def _check_depths(what: str, depths: Sequence[int], measures: Sequence[str], mend: str) -> None:
    """Refuse measures without a cutoff, which see the whole ranking, for rankings of different depths."""
    if len(set(depths)) > 1 and any("@" not in name for name in measures):
        papers = f"rankings of {min(depths)} and {max(depths)} papers: not comparable in MRR or AP"
        raise InputError(f"{what}: {papers}; leave them out of measures, or {mend}")


def _read_both(a: str | Path, b: str | Path, protocol: str, group: str) -> tuple[PerQuery, PerQuery]:
    """Return the values of both folders for the same queries in the same order."""
    (queries_a, setup_a), (queries_b, setup_b) = (_read(Path(folder), protocol) for folder in (a, b))
    if group:
        of_group = (setup.get("groups", {}).get(group) for setup in (setup_a, setup_b))
        setup_a, setup_b = ({"candidates": candidates} for candidates in of_group)
        queries_a, queries_b = (
            values.take([row for row, id in enumerate(values.query_ids) if id.startswith(f"{group}/")])
            for values in (queries_a, queries_b)
        )
    for key, value in setup_a.items():  # must agree, so that only the rankings differ
        if setup_b.get(key) != value:
            raise InputError(f"{a} and {b}: not comparable: {key} is {value!r} and {setup_b.get(key)!r}")
    rows = {query: row for row, query in enumerate(queries_b.query_ids)}
    if len(queries_a) != len(queries_b) or any(query not in rows for query in queries_a.query_ids):
        raise InputError(f"{a} and {b}: not comparable: they have different queries")
    files = [Path(folder) / protocol_file(QRELS, protocol) for folder in (a, b)]
    if all(file.is_file() for file in files) and Qrels.read(files[0]) != Qrels.read(files[1]):
        raise InputError(f"{a} and {b}: not comparable: other papers are relevant; use the same data")
    return queries_a, queries_b.take([rows[query] for query in queries_a.query_ids])


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


def comparison_text(settings: CompareSettings) -> str:
    """Return the table of differences, with what was compared."""
    a, b = settings.folders
    differences = compare_outputs(a, b, settings.measures, settings.protocol, settings.seed)
    first = next(iter(differences.values()))
    return (
        f"A: {a}, B: {b}; {settings.protocol}, {first.queries:,} queries of {first.papers:,} "
        f"citing papers\n\n{markdown_table(HEADER, difference_rows(differences))}"
    )


main = command("compare", CompareSettings, comparison_text)
