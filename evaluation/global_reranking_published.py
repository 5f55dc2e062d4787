"""Figures of global citation recommendation as they were published, as tables that say so."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from evaluation.published import read_published
from evaluation.report import markdown_table

FILE = Path(__file__).parent / "published_global_reranking.yaml"

WARNING = (
    "**As published, on other data: not comparable with the tables above**, unless they are of the data set "
    "of that name."
)
MEASURES = ("F1@20", "MRR", "R@1000")


class Section(NamedTuple):
    """A table of a report with what there is to say of it; rows: the head comes first."""

    heading: str
    note: str
    rows: list[list[str]]

    @property
    def body(self) -> list[str]:
        """What stands under the heading, as Markdown."""
        return [self.note, markdown_table(self.rows[0], self.rows[1:])]

    @property
    def markdown(self) -> str:
        return "\n\n".join([f"## {self.heading}", *self.body])


def published_rerankers() -> Section:
    """Nogueira et al. 2020, table 2, test: a row for each data set and system."""
    content = read_published(FILE)
    rows = [
        [f"{data}: {who}", *map(_cell, values)]
        for data, systems in content["main"].items()
        for who, values in systems.items()
    ]
    note = f"{WARNING} {content['source']}, Table 2, test; 1,000 candidates of BM25."
    return Section("BM25 and a cross-encoder, as published", note, [["as published", *MEASURES], *rows])


def published_query_forms() -> Section:
    """Nogueira et al. 2020, table 4: BM25 alone, a row for each form of the query."""
    content = read_published(FILE)
    forms = content["query_forms"]
    data = list(next(iter(forms.values())))
    head = ["as published", *(f"{one} {measure}" for one in data for measure in MEASURES)]
    rows = [[form, *(_cell(value) for one in data for value in of[one])] for form, of in forms.items()]
    return Section(
        "BM25 by the form of the query, as published",
        f"{WARNING} {content['source']}, Table 4.",
        [head, *rows],
    )


def published_query_tokens() -> str:
    """What Nogueira et al. 2020 say of figure 1."""
    content = read_published(FILE)
    return (
        f"As published ({content['source']}, section 5.3, figure 1, SciBERT-Base): {content['query_tokens']}"
    )


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
