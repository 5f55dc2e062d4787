"""Output for readers: tables, report.md, and terminal output.

Light to import, since sweeps of trainings use it too.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from citerec.base.files import write_text

METRICS, REPORT = "metrics.json", "report.md"
RUN, QRELS, PER_QUERY = "run.trec", "qrels.trec", "per_query.csv"
"""The files of an evaluation; metrics.json is written last."""

AVERAGE = "AVG"
"""The group that holds the mean of all others."""

PACKAGES = ("numpy", "torch", "faiss-cpu", "faiss-gpu", "bm25s", "ir_measures")

Metrics = Mapping[str, Any]
"""Content of metrics.json: {name: number or string}, or {group: such a mapping} (a field, a pool size)."""


@dataclass(frozen=True)
class Provenance:
    """Origin of the numbers: the command that reproduces them, and its settings as YAML."""

    command: str = ""
    settings: str = ""


def write_results(folder: Path, metrics: Metrics, parts: Iterable[str], provenance: Provenance) -> None:
    """Write report.md (the given paragraphs and the provenance), then metrics.json."""
    versions = [f"python {platform.python_version()}", *filter(None, map(_package_version, PACKAGES))]
    corpus = ""
    if "fingerprint" in metrics:
        corpus = f"Corpus {metrics['data']}, prepared store `{metrics['fingerprint']}`. "
    origin = [f"{corpus}{', '.join(versions)}."]
    if provenance.command:
        origin.append(f"```\n{provenance.command}\n```")
    if provenance.settings:
        origin.append(f"```yaml\n{provenance.settings.strip()}\n```")
    write_text(folder / REPORT, "\n\n".join([*parts, "## Origin", *origin]) + "\n")
    write_text(folder / METRICS, json.dumps(metrics, indent=1) + "\n")


def _package_version(package: str) -> str | None:
    try:
        return f"{package} {metadata.version(package)}"
    except metadata.PackageNotFoundError:
        return None


@dataclass(frozen=True)
class Column:
    """A column of a table with one row per result.

    key: of the number in flattened metrics (GROUP/MEASURE), shown times `scale` with `decimals` places.
    interval: append [KEY/low, KEY/high]. spread: append ± KEY_sd if the group has several samplings.
    best: print the best value in bold. signed: print the sign.
    """

    key: str
    label: str
    decimals: int = 3
    scale: float = 1.0
    interval: bool = False
    spread: bool = False
    best: bool = False
    signed: bool = False

    def format_value(self, metrics: Metrics) -> str:
        """Format the value; empty if it is missing."""
        value = metrics.get(self.key)
        if value is None or isinstance(value, str):
            return value or ""
        if isinstance(value, int) and self.scale == 1:
            return f"{value:,}"
        return f"{self.scale * value:{'+' if self.signed else ''},.{self.decimals}f}"

    def format_cell(self, metrics: Metrics) -> str:
        """Format the value with its interval and spread."""
        text = self.format_value(metrics)
        if self.interval and text and f"{self.key}/low" in metrics:
            text += f" [{metrics[f'{self.key}/low']:.3f}, {metrics[f'{self.key}/high']:.3f}]"
        samplings = f"{self.key.rpartition('/')[0]}/samplings".lstrip("/")
        if self.spread and text and metrics.get(samplings, 1) > 1:
            text += f" ± {metrics[f'{self.key}_sd']:.{self.decimals}f}"
        return text


def comparison(results: Mapping[str, Metrics], columns: Sequence[Column], corner: str = "") -> str:
    """Return a Markdown table with one row per result; results: {name: metrics.json}."""
    head, *rows = table_rows(results, columns, corner)
    return markdown_table(head, rows)


def table_rows(
    results: Mapping[str, Metrics], columns: Sequence[Column], corner: str = ""
) -> list[list[str]]:
    """Return the header and the rows of `comparison`."""
    flats = {name: flatten_groups(metrics) for name, metrics in results.items()}
    rows = {name: [name] for name in flats}
    for column in columns:
        values = [metrics[column.key] for metrics in flats.values() if metrics.get(column.key) is not None]
        best = column.format_value({column.key: max(values)}) if column.best and len(values) > 1 else None
        for name, metrics in flats.items():
            text, cell = column.format_value(metrics), column.format_cell(metrics)
            rows[name].append(f"**{text}**{cell.removeprefix(text)}" if text and text == best else cell)
    return [[corner, *(column.label for column in columns)], *rows.values()]


def group_tables(
    results: Mapping[str, Metrics], measures: Mapping[str, str], label: Callable[[str], str] = str
) -> list[str]:
    """Return one table per measure, {key: label}, with one column per group, their mean last.

    label: maps a group to its column head. Numbers have two decimals, the best is bold.
    """
    groups = dict.fromkeys(group for of in results.values() for group in of)
    return [
        comparison(
            results,
            [
                Column(f"{group}/{measure}", label(group), decimals=2, spread=True, best=True)
                for group in sorted(groups, key=lambda group: group == AVERAGE)
            ],
            name,
        )
        for measure, name in measures.items()
    ]


def flatten_groups(metrics: Metrics) -> dict[str, Any]:
    """Flatten metrics by group to the names GROUP/METRIC.

    >>> flatten_groups({"mrr": 0.5, "AVG": {"map": 25.9}})
    {'mrr': 0.5, 'AVG/map': 25.9}
    """
    flat: dict[str, Any] = {}
    for name, value in metrics.items():
        flat |= {f"{name}/{k}": v for k, v in value.items()} if isinstance(value, dict) else {name: value}
    return flat


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table, its first column aligned left and the others right."""
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def align_columns(columns: Sequence[Sequence[object]]) -> list[list[str]]:
    """Format columns of numbers as rows; floats of a column have the same decimals, None is empty.

    >>> align_columns([[0.5, None], [0.00123, 0.5e-4], [1234, 5]])
    [['0.5000', '0.00123', '1,234'], ['', '0.00005', '5']]
    """
    texts = []
    for column in columns:
        highest = max((abs(value) for value in column if isinstance(value, float)), default=1.0)
        decimals = 4 if highest >= 0.01 or not highest else 5 if highest >= 0.001 else 6
        texts.append([_format_value(value, decimals) for value in column])
    return [list(row) for row in zip(*texts, strict=True)]


def _format_value(value: object, decimals: int) -> str:
    if isinstance(value, float):
        return f"{value:.{decimals}f}"
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


class Section(NamedTuple):
    """A section of a report: a heading and Markdown paragraphs."""

    heading: str
    parts: list[str]

    def __str__(self) -> str:
        return "\n\n".join([f"## {self.heading}", *self.parts])


@dataclass
class SweepJob:
    """A finished job of a sweep: its folder, overrides, and metrics or the reason of its failure."""

    folder: Path
    overrides: dict[str, str]
    metrics: dict[str, Any] = field(default_factory=dict)
    failure: str = ""

    def label(self, keys: Sequence[str], short: bool = False) -> str:
        """Label the job by its values of these keys, or by its folder; short: omit the keys' groups."""
        names = {key: key.rpartition(".")[2] if short else key for key in keys}
        given = [f"{names[key]}={self.overrides[key]}" for key in keys if key in self.overrides]
        return " ".join(given) or self.folder.name


def print_table(rows: Sequence[Sequence[str]], title: str) -> None:
    """Print a table to the terminal; the first row is the header."""
    table = Table(title=title, title_justify="left")
    for i, name in enumerate(rows[0]):
        table.add_column(escape(name), justify="left" if i == 0 else "right")
    for row in rows[1:]:
        table.add_row(*map(escape, row))  # rich would read a list such as [title] as a style
    console = Console()
    # Files and pipes have no width: do not wrap rows.
    (console if console.is_terminal else Console(width=200)).print(table)


def print_line(line: str) -> None:
    """Print a line to the terminal without wrapping or markup."""
    Console(soft_wrap=True, highlight=False).print(line, markup=False)
