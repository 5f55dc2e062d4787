"""Published figures: the tables of evaluation/published/*.yaml.

NAME:                     # `published: NAME` in a plan
  - source: text          # paper and table
    same_data: true       # measured on the same data as ours; otherwise a warning is shown
    columns: [..]
    places: 1             # decimal places
    rows: {METHOD: [..]}  # one number per column, or null
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml

from citerec.base.errors import InputError
from citerec.evaluation.report import Table

FOLDER = Path(__file__).parent
OTHER_DATA = "**Other data: not comparable with the tables above**, unless the data set has the same name."


def published_parts(name: str) -> list[str | Table]:
    """Return the tables of that name, each preceded by its source; InputError if unknown."""
    if name not in figures():
        raise InputError(f"{FOLDER}: no figures named {name!r}; choose from {', '.join(figures())}")
    parts: list[str | Table] = []
    for table in figures()[name]:
        decimals = table.get("places", 1)
        rows = [
            [method, *("" if value is None else f"{value:.{decimals}f}" for value in row)]
            for method, row in table["rows"].items()
        ]
        warning = "" if table.get("same_data") else f"{OTHER_DATA} "
        head = ["as published", *table["columns"]]
        parts += [f"{warning}{table['source']}.", Table(head, rows, brief=False)]
    return parts


@cache
def figures() -> dict[str, list[dict[str, Any]]]:
    """Read all tables, by name."""
    tables: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(FOLDER.glob("*.yaml")):
        content = yaml.safe_load(path.read_text("utf-8"))
        assert isinstance(content, dict) and not content.keys() & tables.keys(), path
        tables |= {str(name): of_name for name, of_name in content.items()}
    return tables
