"""Tables of global benchmarks over several retrievers, a row each, in percent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from evaluation.global_benchmarks.csfcube import COLUMNS
from evaluation.global_benchmarks.csfcube_format import ALL, FACETS
from evaluation.global_benchmarks.mdcr_measures import AVERAGE
from evaluation.global_benchmarks.pool_benchmark import Table
from evaluation.report import markdown_table

LABELS = {**COLUMNS, "map": "MAP", "ndcg": "nDCG", "recall_30": "R@30", "recall_5": "R@5"}
SAMPLED = ("map", "ndcg", "recall_30")
FACET_MEASURES = ("mean_av_precision", "ndcg%20")

Tables = Mapping[str, Table]
"""{retriever: {group: {measure: percent}}}"""


def size_tables(tables: Tables) -> list[str]:
    """Of dataset-level evaluations: a table for each measure, a column for each size."""
    sizes = sorted(groups_of(tables), key=int)
    return _by_group(tables, sizes, SAMPLED, lambda size: f"{int(size):,}")


def field_tables(tables: Tables) -> list[str]:
    """Of field-level evaluations: a table for each measure, a column for each field, as their Table 2."""
    return _by_group(tables, groups_of(tables), SAMPLED)


def mdcr_tables(tables: Tables, types: Tables) -> list[str]:
    """Of MDCR or a benchmark like it: by field (as their Table 3), and by type of candidates (Table 4)."""
    measures = ("map", "recall_5")
    parts = _by_group(tables, groups_of(tables), measures)
    kinds = groups_of(types)
    columns = [(kind, measure) for kind in kinds for measure in measures]
    rows = {who: [of.get(kind, {}).get(measure) for kind, measure in columns] for who, of in types.items()}
    found = [_mean([row[place] for row in rows.values()]) for place in range(len(columns))]
    head = ["", *(f"{kind} {LABELS[measure]}" for kind, measure in columns)]
    return [
        *parts,
        "By type of candidates: the cited ones and those of the type alone, means over the fields. The last "
        "row is the mean of the others.",
        markdown_table(head, [*marked(rows), ["mean", *map(percent, found)]]),
    ]


def csfcube_tables(tables: Tables) -> list[str]:
    """Of CSFCube: all facets together by all measures, and the facets by two of them; split test."""
    head = ["all facets", *COLUMNS.values()]
    rows = {who: [of.get(ALL, {}).get(measure) for measure in COLUMNS] for who, of in tables.items()}
    columns = [(facet, measure) for facet in FACETS for measure in FACET_MEASURES]
    facets = {
        who: [of.get(facet, {}).get(measure) for facet, measure in columns] for who, of in tables.items()
    }
    return [
        markdown_table(head, marked(rows)),
        markdown_table(["", *(f"{facet} {LABELS[measure]}" for facet, measure in columns)], marked(facets)),
    ]


def task_tables(tables: Tables) -> list[str]:
    """Of SciDocs: MAP and nDCG of each task."""
    columns = [(task, measure) for task in groups_of(tables) for measure in ("map", "ndcg")]
    rows = {who: [of.get(task, {}).get(measure) for task, measure in columns] for who, of in tables.items()}
    return [markdown_table(["", *(f"{task} {LABELS[measure]}" for task, measure in columns)], marked(rows))]


def groups_of(tables: Tables) -> list[str]:
    """The groups that any of the tables has, as they come; the average last."""
    groups = dict.fromkeys(group for of in tables.values() for group in of)
    return sorted(groups, key=lambda group: group == AVERAGE)


def _by_group(
    tables: Tables, groups: Sequence[str], measures: Sequence[str], label: Callable[[str], str] = str
) -> list[str]:
    parts = []
    for measure in measures:
        rows = {who: [of.get(group, {}).get(measure) for group in groups] for who, of in tables.items()}
        spread = {
            who: [_deviation(of.get(group, {}), measure) for group in groups] for who, of in tables.items()
        }
        parts.append(markdown_table([LABELS[measure], *map(label, groups)], marked(rows, spread)))
    return parts


def marked(
    rows: Mapping[str, Sequence[float | None]], spread: Mapping[str, Sequence[float | None]] | None = None
) -> list[list[str]]:
    """Rows of numbers as text, the best of several in a column bold; with ± where a deviation is known."""
    columns = list(zip(*rows.values(), strict=True))
    shown = []
    for who, row in rows.items():
        cells = [who]
        for place, value in enumerate(row):
            others = [other for other in columns[place] if other is not None]
            text = percent(value)
            if value is not None and len(others) > 1 and text == percent(max(others)):
                text = f"**{text}**"
            deviation = spread[who][place] if spread else None
            cells.append(text if deviation is None else f"{text} ± {deviation:.2f}")
        shown.append(cells)
    return shown


def _deviation(row: Mapping[str, float], measure: str) -> float | None:
    """Of several samplings; else there is none."""
    return row.get(f"{measure}_sd") if row.get("samplings", 1) > 1 else None


def percent(value: float | None) -> str:
    """Two places, or nothing."""
    return "" if value is None else f"{value:.2f}"


def _mean(values: Sequence[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return sum(there) / len(there) if there else None
