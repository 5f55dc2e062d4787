"""Published figures of global benchmarks, as tables that say where they are from.

The files of published figures, `published*.yaml`.
Figures of reranking as they were published, as tables that say so.
Figures of global citation recommendation as they were published, as tables that say so.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import OmegaConf

from datasets.errors import InputError
from evaluation.report import markdown_table


@cache
def read_published(path: Path) -> dict[str, Any]:
    """What stands in the file, by its keys; it is read once."""
    content = OmegaConf.to_container(OmegaConf.load(path))
    assert isinstance(content, dict)
    return {str(key): value for key, value in content.items()}


RERANKING_PUBLISHED_FILE = Path(__file__).parent / "published_reranking.yaml"

RERANKING_PUBLISHED_WARNING = (
    "**Other data: not comparable with the tables above**, unless they are of the data set of that name."
)


def published_rerankers_of_reranking_published() -> list[str]:
    """Gu et al. 2022, table 3: MRR and R@10 of rerankers by data set."""
    content = read_published(RERANKING_PUBLISHED_FILE)
    head = ["as published", *(f"{data} {measure}" for data in content["data"] for measure in ("MRR", "R@10"))]
    rows = [
        [
            who,
            *(
                f"{value:.3f}" if value is not None else ""
                for data in content["data"]
                for value in of.get(data, [None] * 2)
            ),
        ]
        for who, of in content["rerank"].items()
    ]
    protocol = (
        "Candidates: 2,000 of oracle-BM25 (75 of RefSeer's), the whole database of FullTextPeerRead; "
        "protocol and numbers are the paper's."
    )
    return [
        "## Rerankers, as published",
        f"{RERANKING_PUBLISHED_WARNING} {content['source']}, Table 3. {protocol}",
        markdown_table(head, rows),
    ]


def published_pipelines() -> list[str]:
    """Gu et al. 2022, table 4: R@10 of pipelines by the number of reranked candidates."""
    content = read_published(RERANKING_PUBLISHED_FILE)
    head = ["as published", *(f"{k:,}" for k in content["candidates"])]
    rows = [
        [f"{data}: {who}", *(f"{value:.3f}" for value in of[data])]
        for data in content["data"]
        for who, of in content["pipeline"].items()
    ]
    return [
        "## Pipelines, as published",
        f"{RERANKING_PUBLISHED_WARNING} {content['source']}, Table 4: R@10.",
        markdown_table(head, rows),
    ]


GLOBAL_RERANKING_PUBLISHED_FILE = Path(__file__).parent / "published_global_reranking.yaml"

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
    content = read_published(GLOBAL_RERANKING_PUBLISHED_FILE)
    rows = [
        [f"{data}: {who}", *map(_cell, values)]
        for data, systems in content["main"].items()
        for who, values in systems.items()
    ]
    note = f"{WARNING} {content['source']}, Table 2, test; 1,000 candidates of BM25."
    return Section("BM25 and a cross-encoder, as published", note, [["as published", *MEASURES], *rows])


def published_query_forms() -> Section:
    """Nogueira et al. 2020, table 4: BM25 alone, a row for each form of the query."""
    content = read_published(GLOBAL_RERANKING_PUBLISHED_FILE)
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
    content = read_published(GLOBAL_RERANKING_PUBLISHED_FILE)
    return (
        f"As published ({content['source']}, section 5.3, figure 1, SciBERT-Base): {content['query_tokens']}"
    )


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


FILE = Path(__file__).parent / "published_global.yaml"
SECTIONS = {"rerankers": published_rerankers, "query-forms": published_query_forms}
"""Those of papers that ask in two stages."""


def published_tables(name: str) -> list[str]:
    """The tables of that name as Markdown, each after its source; InputError if there are none."""
    if name in SECTIONS:
        return SECTIONS[name]().body
    content = read_published(FILE)
    if name not in content:
        raise InputError(f"{FILE}: no figures for {name!r}; there are {', '.join([*content, *SECTIONS])}")
    parts = []
    for table in content[name]:
        rows = [[who, *(f"{value:.1f}" for value in row)] for who, row in table["rows"].items()]
        parts += [f"{table['source']}.", markdown_table(["as published", *table["columns"]], rows)]
    return parts
