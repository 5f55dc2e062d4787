"""Output for readers: reports, the terminal, summaries of sweeps, results pages.

Benchmarks declare tables and curves, and one renderer shows them in all four. Light to import, since sweeps
of trainings use it too.
"""

from __future__ import annotations

import csv
import io
import json
import platform
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from citerec.base.files import write_text
from citerec.evaluation.plots import Curves, draw_curves

METRICS, REPORT = "metrics.json", "report.md"
RUN, QRELS, PER_QUERY = "run.trec", "qrels.trec", "per_query.csv"
"""The files of an evaluation; metrics.json is written last."""
_RESULTS = re.compile(
    r"metrics\.json|(base-)?(run|qrels|per_query)(-inductive|-draft)?\.(trec|csv)|(recall|reranking|map)\.png"
)

AVERAGE = "AVG"
"""The group that holds the mean of all others."""

PACKAGES = ("numpy", "torch", "faiss-cpu", "faiss-gpu", "ir_measures")

Metrics = Mapping[str, Any]
"""Content of metrics.json: {name: number or string}, or {group: such a mapping} (a field, a pool size)."""


# What is declared: columns, tables and curves.


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


@dataclass(frozen=True)
class Table:
    """A table: its header, and rows of as many cells. brief: shown on the terminal and in sweeps, too."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    brief: bool = True

    @classmethod
    def of(
        cls, results: Mapping[str, Metrics], columns: Sequence[Column], corner: str = "", brief: bool = True
    ) -> Table:
        """One row per result, {name: metrics.json}; corner: the top-left cell."""
        flats = {name: flatten_groups(metrics) for name, metrics in results.items()}
        rows = {name: [name] for name in flats}
        for column in columns:
            values = [flat[column.key] for flat in flats.values() if flat.get(column.key) is not None]
            best = column.format_value({column.key: max(values)}) if column.best and len(values) > 1 else None
            for name, flat in flats.items():
                text, cell = column.format_value(flat), column.format_cell(flat)
                rows[name].append(f"**{text}**{cell.removeprefix(text)}" if text and text == best else cell)
        return cls([corner, *(column.label for column in columns)], list(rows.values()), brief)

    def transposed(self) -> Table:
        """One column per result."""
        head, *rows = (list(cells) for cells in zip(self.head, *self.rows, strict=True))
        return Table(head, rows, self.brief)

    def __str__(self) -> str:
        return markdown_table(self.head, self.rows)


class Headline(str):
    """A sentence that is shown on the terminal, too."""


Part = str | Table | Curves
"""A Markdown paragraph or heading, a table, or a plot."""


def group_tables(
    results: Mapping[str, Metrics], measures: Mapping[str, str], label: Callable[[str], str] = str
) -> list[Table]:
    """Return one table per measure, {key: label}, with one column per group, their mean last.

    label: maps a group to its column head. Numbers have two decimals, the best is bold.
    """
    groups = dict.fromkeys(group for metrics in results.values() for group in metrics)
    ordered = sorted(groups, key=lambda group: group == AVERAGE)
    return [
        Table.of(
            results,
            [Column(f"{group}/{key}", label(group), decimals=2, spread=True, best=True) for group in ordered],
            name,
        )
        for key, name in measures.items()
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


def under(metrics: Metrics, prefix: str) -> dict[str, Any]:
    """Return the metrics whose names start with a prefix, without it.

    >>> under({"mrr": 0.5, "seen/mrr": 0.6}, "seen/")
    {'mrr': 0.6}
    """
    return {name.removeprefix(prefix): value for name, value in metrics.items() if name.startswith(prefix)}


# The renderer.


def to_markdown(parts: Iterable[Part], folder: Path) -> list[str]:
    """Return the parts as Markdown paragraphs, and draw the plots into a folder, as NAME.png."""
    paragraphs = []
    for part in parts:
        if isinstance(part, Curves):
            draw_curves(folder / f"{part.name}.png", part)
            part = f"![{part.alt}]({part.name}.png)"
        paragraphs.append(str(part))
    return paragraphs


def print_parts(parts: Iterable[Part], title: str) -> None:
    """Print brief tables and headlines to the terminal; a heading is the title of the table below it."""
    for part in parts:
        if isinstance(part, Table) and part.brief:
            print_table([part.head, *part.rows], title)
        elif isinstance(part, Headline):
            print_line(part)
        elif isinstance(part, str) and part.startswith("#"):
            title = part.lstrip("# ")


def remove_results(folder: Path) -> None:
    """Remove what an earlier evaluation wrote: other benchmarks and protocols have other files."""
    for path in list(folder.glob("*.*")):
        if _RESULTS.fullmatch(path.name):
            path.unlink()


@dataclass(frozen=True)
class Provenance:
    """Origin of the numbers: the command that reproduces them, and its settings as YAML."""

    command: str = ""
    settings: str = ""


@dataclass(frozen=True)
class Report:
    """An evaluation: its metrics and what its report says."""

    title: str
    metrics: Metrics
    parts: Sequence[Part]

    def write(self, folder: Path, provenance: Provenance) -> None:
        """Write report.md with its plots and the provenance, then metrics.json."""
        metrics = self.metrics
        versions = [f"python {platform.python_version()}", *filter(None, map(_package_version, PACKAGES))]
        corpus = ""
        if "fingerprint" in metrics:
            corpus = f"Corpus {metrics['data']}, prepared store `{metrics['fingerprint']}`. "
        origin = [f"{corpus}{', '.join(versions)}."]
        if provenance.command:
            origin.append(f"```\n{provenance.command}\n```")
        if provenance.settings:
            origin.append(f"```yaml\n{provenance.settings.strip()}\n```")
        text = [f"# {self.title}", *to_markdown(self.parts, folder), "## Origin", *origin]
        write_text(folder / REPORT, "\n\n".join(text) + "\n")
        write_text(folder / METRICS, json.dumps(metrics, indent=1) + "\n")

    def show(self, folder: Path) -> None:
        """Print the results and the path of the report."""
        print_parts(self.parts, self.title)
        print_line(f"report: {folder / REPORT}")


def _package_version(package: str) -> str | None:
    try:
        return f"{package} {metadata.version(package)}"
    except metadata.PackageNotFoundError:
        return None


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table, its first column aligned left and the others right."""
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


_THOUSANDS = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d+)?")


def to_csv(table: Table) -> str:
    """Return a table as CSV: plain numbers, the ends of intervals in columns of their own.

    >>> print(to_csv(Table(["", "R@10", "papers"], [["a", "**0.5** [0.4, 0.6]", "48,018"]])).strip())
    name,R@10,R@10 low,R@10 high,papers
    a,0.5,0.4,0.6,48018
    """
    head, rows = list[str](), [list[str]() for _ in table.rows]
    for label, *cells in zip(table.head, *table.rows, strict=True):
        plain = [cell.replace("**", "") for cell in cells]
        plain = [cell.replace(",", "") if _THOUSANDS.fullmatch(cell) else cell for cell in plain]
        ends = [re.fullmatch(r"(\S+) \[(\S+), (\S+)\]", cell) for cell in plain]
        label = label or "name"
        head += [label, f"{label} low", f"{label} high"] if any(ends) else [label]
        for row, cell, match in zip(rows, plain, ends, strict=True):
            row += match.groups() if match else [cell, "", ""] if any(ends) else [cell]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([head, *rows])
    return text.getvalue()


def print_table(rows: Sequence[Sequence[str]], title: str) -> None:
    """Print a table to the terminal; the first row is the header."""
    table = RichTable(title=escape(title), title_justify="left")
    for i, name in enumerate(rows[0]):
        table.add_column(escape(name), justify="left" if i == 0 else "right")
    for row in rows[1:]:
        # Without Markdown's bold type; rich would read a list such as [title] as a style.
        table.add_row(*(escape(cell.replace("**", "")) for cell in row))
    console = Console()
    # Files and pipes have no width: do not wrap rows.
    (console if console.is_terminal else Console(width=200)).print(table)


def print_line(line: str) -> None:
    """Print a line to the terminal without wrapping or markup."""
    Console(soft_wrap=True, highlight=False).print(line, markup=False)
