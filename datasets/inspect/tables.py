"""Tables of an inspection, and the corpus arrays they are computed from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from citerec.datasets.corpus import Corpus

Number = int | float | None
"""None if there is nothing to count or measure."""
Mask = NDArray[np.bool_]
Rows = NDArray[np.integer]

EXAMPLES = 3
"""Maximum number of example records per number."""


@dataclass(frozen=True)
class Line:
    """A table row: one number per column, optional totals for shares, and example ids."""

    key: str
    label: str
    values: Mapping[str, Number]
    totals: Mapping[str, int] = field(default_factory=dict)
    examples: Mapping[str, Sequence[str]] = field(default_factory=dict)
    is_year: bool = False

    def format_value(self, column: str) -> str:
        """Format the number of a column, with its share if it has a total.

        >>> line = Line("a", "", {"train": 1234, "test": 3}, {"test": 24})
        >>> line.format_value("train"), line.format_value("test"), line.format_value("val")
        ('1,234', '3 (12.5 %)', '–')
        """
        value = self.values.get(column)
        if value is None:
            return "–"
        if self.is_year:
            return f"{value:g}"
        text = f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"
        if not value or not (total := self.totals.get(column)):
            return text
        share = value / total
        if share < 0.0005:
            return f"{text} (< 0.1 %)"
        return f"{text} ({100 * share:.1f} %)" if share < 0.9995 or share == 1 else f"{text} (> 99.9 %)"


@dataclass(frozen=True)
class Table:
    """Lines with the same columns; `note` explains how they are counted."""

    key: str
    title: str
    note: str
    columns: Sequence[str]
    lines: Sequence[Line]


def flat_counts(tables: Iterable[Table]) -> dict[str, Number | list[str]]:
    """Flatten tables to {table/line/column: number} and {table/line/column/examples: ids}, if any."""
    counts: dict[str, Number | list[str]] = {}
    for table in tables:
        for line in table.lines:
            for column in table.columns:
                if column in line.values:
                    key = f"{table.key}/{line.key}/{column}"
                    counts[key] = line.values[column]
                    if line.examples.get(column):
                        counts[f"{key}/examples"] = list(line.examples[column])
    return counts


def count_line(
    key: str,
    what: str,
    marked: Mask,
    groups: Mapping[str, Rows],
    name: Callable[[int], str],
    among: Mask | None = None,
) -> Line:
    """Count the marked rows of each group, with the group size as total and the first names as examples.

    among: count shares among these rows only; groups without such rows have no number.
    """
    chosen = {column: rows[marked[rows]] for column, rows in groups.items()}
    totals = {
        column: len(rows) if among is None else int(among[rows].sum()) for column, rows in groups.items()
    }
    return Line(
        key,
        what,
        {column: len(rows) if among is None or totals[column] else None for column, rows in chosen.items()},
        totals,
        {column: [name(row) for row in rows[:EXAMPLES].tolist()] for column, rows in chosen.items()},
    )


class CorpusView:
    """The splits of a corpus as flat arrays: one context, citing and cited paper per citation [n]."""

    def __init__(self, corpus: Corpus) -> None:
        self.corpus = corpus
        self.contexts = {name: split.contexts for name, split in corpus.splits.items()}
        """Rows of the contexts of each split."""
        self.split = np.full(len(corpus.context_ids), -1, np.int32)
        """The number of the split of each context [C]; -1 if none."""
        for number, rows in enumerate(self.contexts.values()):
            self.split[rows] = number
        splits = corpus.splits.values()
        lengths = [np.repeat(split.contexts, split.positives.lengths) for split in splits]
        self.context = np.concatenate([np.empty(0, np.int64), *lengths])
        self.citing = corpus.citing[self.context]
        self.cited = np.concatenate([np.empty(0, np.int32), *(split.positives.values for split in splits)])
        self.citing_papers = {name: np.unique(corpus.citing[rows]) for name, rows in self.contexts.items()}
        self.cited_papers = {name: np.unique(split.positives.values) for name, split in corpus.splits.items()}

    def contexts_with_target(self, marked: Mask) -> Mask:
        """Mask of the contexts [C] with a marked citation [n]."""
        mask = np.zeros(len(self.split), np.bool_)
        mask[self.context[marked]] = True
        return mask

    def line(self, key: str, what: str, marked: Mask, among: Mask | None = None) -> Line:
        """Count the marked contexts [C] of each split; otherwise like `count_line`."""
        return count_line(key, what, marked, self.contexts, self.corpus.context_ids.__getitem__, among)

    def papers_by_role(self) -> dict[str, Rows]:
        """Rows of all, candidate, citing and cited papers, and of papers neither citing nor cited."""
        citing = np.zeros(len(self.corpus.paper_ids), np.bool_)
        cited = citing.copy()
        citing[self.corpus.citing] = True
        cited[self.cited] = True
        every = np.arange(len(citing))
        return {
            "all": every,
            "candidates": every[self.corpus.is_candidate],
            "citing": every[citing],
            "cited": every[cited],
            "neither": every[~(citing | cited)],
        }
