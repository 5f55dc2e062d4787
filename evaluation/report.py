"""How results are written for people: tables, report.md, and what the terminal shows.

Light to import: a sweep of trainings summarises with it too.
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

from datasets.files import write_text

METRICS, REPORT = "metrics.json", "report.md"
RUN, QRELS, PER_QUERY = "run.trec", "qrels.trec", "per_query.csv"
"""The files of an evaluation; metrics.json is written last."""

AVERAGE = "AVG"
"""The group that is the mean of all others."""

PACKAGES = ("numpy", "torch", "faiss-cpu", "faiss-gpu", "bm25s", "ir_measures")

Metrics = Mapping[str, Any]
"""What metrics.json holds: numbers and strings by name, or such mappings by group (a field, a pool size)."""


@dataclass(frozen=True)
class Provenance:
    """Where numbers come from: the command that reproduces them, and its settings as YAML."""

    command: str = ""
    settings: str = ""


def write_results(folder: Path, metrics: Metrics, parts: Iterable[str], provenance: Provenance) -> None:
    """Write report.md, of the given paragraphs and where the numbers come from, and then metrics.json."""
    versions = [f"python {platform.python_version()}", *filter(None, map(_version, PACKAGES))]
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


def _version(package: str) -> str | None:
    try:
        return f"{package} {metadata.version(package)}"
    except metadata.PackageNotFoundError:
        return None


@dataclass(frozen=True)
class Column:
    """A column of a table over several results, each of which has a row.

    key: the number in flat metrics.json (GROUP/MEASURE); `scale` times it is shown to so many `places`.
    interval: with [KEY/low, KEY/high]; spread: with ± KEY_sd, where a group has several samplings.
    best: the best of several is bold. signed: with its sign.
    """

    key: str
    label: str
    places: int = 3
    scale: float = 1.0
    interval: bool = False
    spread: bool = False
    best: bool = False
    signed: bool = False

    def number(self, metrics: Metrics) -> str:
        value = metrics.get(self.key)
        if value is None or isinstance(value, str):
            return value or ""
        if isinstance(value, int) and self.scale == 1:
            return f"{value:,}"
        return f"{self.scale * value:{'+' if self.signed else ''},.{self.places}f}"

    def cell(self, metrics: Metrics) -> str:
        """The number with what says how sure it is, as in a row of its own."""
        text = self.number(metrics)
        if self.interval and text and f"{self.key}/low" in metrics:
            text += f" [{metrics[f'{self.key}/low']:.3f}, {metrics[f'{self.key}/high']:.3f}]"
        samplings = f"{self.key.rpartition('/')[0]}/samplings".lstrip("/")
        if self.spread and text and metrics.get(samplings, 1) > 1:
            text += f" ± {metrics[f'{self.key}_sd']:.{self.places}f}"
        return text


def comparison(results: Mapping[str, Metrics], columns: Sequence[Column], corner: str = "") -> str:
    """A Markdown table with a row for each of the results, metrics.json by name."""
    head, *rows = table_rows(results, columns, corner)
    return markdown_table(head, rows)


def table_rows(
    results: Mapping[str, Metrics], columns: Sequence[Column], corner: str = ""
) -> list[list[str]]:
    """The head and the rows of such a table."""
    flats = {name: flatten_groups(metrics) for name, metrics in results.items()}
    rows = {name: [name] for name in flats}
    for column in columns:
        values = [metrics[column.key] for metrics in flats.values() if metrics.get(column.key) is not None]
        best = column.number({column.key: max(values)}) if column.best and len(values) > 1 else None
        for name, metrics in flats.items():
            text, cell = column.number(metrics), column.cell(metrics)
            rows[name].append(f"**{text}**{cell.removeprefix(text)}" if text and text == best else cell)
    return [[corner, *(column.label for column in columns)], *rows.values()]


def by_group(
    results: Mapping[str, Metrics], measures: Mapping[str, str], label: Callable[[str], str] = str
) -> list[str]:
    """A table for each of the measures, {key: label}, with a column for each group, their mean last.

    label: of a group. Numbers have two places, the best is bold.
    """
    groups = dict.fromkeys(group for of in results.values() for group in of)
    return [
        comparison(
            results,
            [
                Column(f"{group}/{measure}", label(group), places=2, spread=True, best=True)
                for group in sorted(groups, key=lambda group: group == AVERAGE)
            ],
            name,
        )
        for measure, name in measures.items()
    ]


def flatten_groups(metrics: Metrics) -> dict[str, Any]:
    """Metrics of groups by the names GROUP/METRIC.

    >>> flatten_groups({"mrr": 0.5, "AVG": {"map": 25.9}})
    {'mrr': 0.5, 'AVG/map': 25.9}
    """
    found: dict[str, Any] = {}
    for name, value in metrics.items():
        found |= {f"{name}/{k}": v for k, v in value.items()} if isinstance(value, dict) else {name: value}
    return found


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table with the first column aligned to the left and the others to the right."""
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def align_columns(columns: Sequence[Sequence[object]]) -> list[list[str]]:
    """The rows of columns of numbers, floats with the same digits in a column; None is empty.

    >>> align_columns([[0.5, None], [0.00123, 0.5e-4], [1234, 5]])
    [['0.5000', '0.00123', '1,234'], ['', '0.00005', '5']]
    """
    texts = []
    for column in columns:
        highest = max((abs(value) for value in column if isinstance(value, float)), default=1.0)
        places = 4 if highest >= 0.01 or not highest else 5 if highest >= 0.001 else 6
        texts.append([_text(value, places) for value in column])
    return [list(row) for row in zip(*texts, strict=True)]


def _text(value: object, places: int) -> str:
    if isinstance(value, float):
        return f"{value:.{places}f}"
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


class Section(NamedTuple):
    """A part of a summary: a heading and Markdown."""

    heading: str
    parts: list[str]

    def __str__(self) -> str:
        return "\n\n".join([f"## {self.heading}", *self.parts])


@dataclass
class SweepJob:
    """A finished job of a sweep: its folder, what it overrode, what it measured or why it failed."""

    folder: Path
    overrides: dict[str, str]
    metrics: dict[str, Any] = field(default_factory=dict)
    failure: str = ""

    def label(self, keys: Sequence[str], short: bool = False) -> str:
        """The values of these keys, or the name of the folder; short: keys without their groups."""
        names = {key: key.rpartition(".")[2] if short else key for key in keys}
        given = [f"{names[key]}={self.overrides[key]}" for key in keys if key in self.overrides]
        return " ".join(given) or self.folder.name


def print_table(rows: Sequence[Sequence[str]], title: str) -> None:
    """Print a table to the terminal; the first row is its head."""
    table = Table(title=title, title_justify="left")
    for i, name in enumerate(rows[0]):
        table.add_column(escape(name), justify="left" if i == 0 else "right")
    for row in rows[1:]:
        table.add_row(*map(escape, row))  # a list, as [title], would be taken for a style
    console = Console()
    # A file or a pipe has no width: do not break rows for it.
    (console if console.is_terminal else Console(width=200)).print(table)


def print_line(line: str) -> None:
    """Print a line to the terminal as it is."""
    Console(soft_wrap=True, highlight=False).print(line, markup=False)
