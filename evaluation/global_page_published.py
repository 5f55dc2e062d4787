"""Published figures of global benchmarks, as tables that say where they are from."""

from __future__ import annotations

from pathlib import Path

from datasets.errors import InputError
from evaluation.global_reranking_published import published_query_forms, published_rerankers
from evaluation.published import read_published
from evaluation.report import markdown_table

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
