"""The findings and examples for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from datasets.inspection.examples import Example
from datasets.inspection.findings import Section
from datasets.schema import TARGET_MARKER

WIDTH = 150
"""Of tables in a file or a pipe, which have no width."""


def print_summary(
    sections: Sequence[Section], examples: Sequence[Example], console: Console | None = None
) -> None:
    """A table for each section, what is 0 everywhere in one line below it; then the examples."""
    console = console or Console()
    if not console.is_terminal:
        console = Console(file=console.file, width=WIDTH)
    for section in sections:
        _print_section(section, console)
    for number, example in enumerate(examples, 1):
        console.print(Text(f"Example {number}: {example.split}, {example.context}", style="bold"))
        context = Text(f"  {example.before}").append(TARGET_MARKER, style="bold reverse")
        console.print(context.append(example.after))
        console.print(Text(f"  from: {example.citing.name}"))
        for target in example.targets:
            console.print(Text(f"  cites: {target.name}. {target.start}"))
        console.print()


def _print_section(section: Section, console: Console) -> None:
    table = Table(title=section.title, title_justify="left", title_style="bold")
    table.add_column("")
    for column in section.columns:
        table.add_column(Text(column), justify="right")
    nothing = []
    for line in section.lines:
        if all(value == 0 for value in line.values.values()):
            nothing.append(line.what)
        else:
            table.add_row(Text(line.what), *(line.shown(column) for column in section.columns))
    console.print(table if table.row_count else Text(section.title, style="bold"))
    if nothing:
        console.print(Text(f"None: {'; '.join(nothing)}."))
    console.print()
