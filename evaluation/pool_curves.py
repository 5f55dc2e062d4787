"""MAP against the size of the pool: `python -m evaluation.pool_curves LABEL=DIR ... --output DIR`.

Draws the curves of outputs of benchmark=dataset_level (map.png), prints and writes their table (curves.md).
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from datasets.errors import InputError, one_line_errors
from datasets.files import write_text
from evaluation.benchmarks.sampled import MEASURES, curve, read_curves
from evaluation.plots import size_plot
from evaluation.report import Column, markdown_table, show, table_rows

PLOT, PAGE = "map.png", "curves.md"


def pool_curves(folders: Mapping[str, str | Path], output: str | Path) -> list[list[str]]:
    """Write curves.md and map.png into `output`; returns the table, a row for each label of `folders`.

    Raises InputError for a folder that is no output of benchmark=dataset_level, and for one of other queries.
    """
    tables = read_curves(folders)
    sizes = sorted({int(size) for table in tables.values() for size in table})
    columns = [
        Column(f"{size}/{name}", f"{name} {size:,}", places=1, spread=True)
        for size in sizes
        for name in MEASURES
    ]
    rows = table_rows(tables, columns)
    curves = {label: curve(table) for label, table in tables.items()}
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    size_plot(folder / PLOT, curves, "MAP by the size of the pool")
    page = [
        "# MAP by the size of the pool",
        "Percent; means over queries, then over samplings of pools, ± the deviation of the samplings.",
        markdown_table(rows[0], rows[1:]),
        f"![MAP by the size of the pool]({PLOT})",
        "\n".join(f"- {label}: `{name}`" for label, name in folders.items()),
    ]
    write_text(folder / PAGE, "\n\n".join(page) + "\n")
    return rows


@one_line_errors
def main() -> None:
    """Read the command line, draw and print."""
    parser = argparse.ArgumentParser(prog="python -m evaluation.pool_curves", description=__doc__)
    parser.add_argument(
        "folders", nargs="+", metavar="[LABEL=]DIR", help="outputs of benchmark=dataset_level"
    )
    parser.add_argument("--output", required=True, metavar="DIR", help="folder for the plot and the table")
    given = parser.parse_args()
    folders = {}
    for text in given.folders:
        label, equals, folder = text.partition("=")
        folder = folder if equals else label
        label = label if equals else Path(folder).name
        if label in folders:
            raise InputError(f"{text}: there is a curve {label!r} already; name it as LABEL=DIR")
        folders[label] = folder
    show(pool_curves(folders, given.output), "pool sizes")
    print(f"page: {Path(given.output) / PAGE}")


if __name__ == "__main__":
    main()
