"""Figures as others published them: the tables of evaluation/published/*.yaml.

NAME:                  # what a plan's `published_tables` names
  - source: text       # where the table is from
    same_data: true    # of the very data that we measure; else a warning says that it is not
    columns: [..]
    places: 1          # after the point
    rows: {WHO: [..]}  # a number for each column, or null
    quote: text        # in place of columns and rows
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from datasets.errors import InputError
from evaluation.report import markdown_table

FOLDER = Path(__file__).parent / "published"
OTHER_DATA = (
    "**Other data: not comparable with the tables above**, unless they are of the data set of that name."
)


def published_tables(name: str) -> list[str]:
    """The tables of that name as Markdown, each after its source; InputError if there are none."""
    if name not in figures():
        raise InputError(f"{FOLDER}: no figures for {name!r}; there are {', '.join(figures())}")
    parts = []
    for table in figures()[name]:
        if "quote" in table:
            parts.append(f"As published ({table['source']}): {table['quote']}")
            continue
        places = table.get("places", 1)
        rows = [
            [who, *("" if value is None else f"{value:.{places}f}" for value in row)]
            for who, row in table["rows"].items()
        ]
        warning = "" if table.get("same_data") else f"{OTHER_DATA} "
        parts += [f"{warning}{table['source']}.", markdown_table(["as published", *table["columns"]], rows)]
    return parts


@cache
def figures() -> dict[str, list[dict[str, Any]]]:
    """All tables by name."""
    found: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(FOLDER.glob("*.yaml")):
        content = OmegaConf.to_container(OmegaConf.load(path))
        assert isinstance(content, dict) and not content.keys() & found.keys(), path
        found |= {str(name): tables for name, tables in content.items()}
    return found
