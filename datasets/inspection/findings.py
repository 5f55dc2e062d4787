"""What an inspection finds: numbers in lines and columns, for the summary, the page and inspect.json."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

Number = int | float | None
"""None: there is nothing to count or to measure."""

EXAMPLES = 3
"""Records that are named for a number."""


@dataclass(frozen=True)
class Line:
    """One finding: a value for each column, and for some the whole that it is a share of, and examples."""

    key: str
    what: str
    values: Mapping[str, Number]
    of: Mapping[str, int] = field(default_factory=dict)
    examples: Mapping[str, Sequence[str]] = field(default_factory=dict)
    is_year: bool = False

    @property
    def has_examples(self) -> bool:
        return any(self.examples.values())

    def shown(self, column: str) -> str:
        """The value for people.

        >>> Line("a", "", {"train": 1234, "test": 3}, {"test": 24}).shown("train")
        '1,234'
        >>> Line("a", "", {"train": 1234, "test": 3}, {"test": 24}).shown("test")
        '3 (12.5 %)'
        """
        value = self.values.get(column)
        if value is None:
            return "–"
        if self.is_year:
            return f"{value:g}"
        text = f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"
        whole = self.of.get(column)
        return f"{text} ({_share(value / whole)})" if whole and value else text


@dataclass(frozen=True)
class Section:
    """Findings of the same columns under one title; `note` says how they are counted."""

    key: str
    title: str
    note: str
    columns: Sequence[str]
    lines: Sequence[Line]

    @property
    def has_examples(self) -> bool:
        return any(line.has_examples for line in self.lines)


def flat(sections: Iterable[Section]) -> dict[str, Number | list[str]]:
    """{section/line/column: value}, and {section/line/column/examples: ids} where there are any."""
    found: dict[str, Number | list[str]] = {}
    for section in sections:
        for line in section.lines:
            for column in section.columns:
                if column in line.values:
                    key = f"{section.key}/{line.key}/{column}"
                    found[key] = line.values[column]
                    if line.examples.get(column):
                        found[f"{key}/examples"] = list(line.examples[column])
    return found


def _share(share: float) -> str:
    if share < 0.0005:
        return "< 0.1 %"
    return f"{100 * share:.1f} %" if share < 0.9995 or share == 1 else "> 99.9 %"
