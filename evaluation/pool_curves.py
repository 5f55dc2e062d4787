"""Plot MAP against pool size: `python -m citerec.evaluation.pool_curves LABEL=DIR ... --output DIR`.

Plots the curves of benchmark=dataset_level outputs (map.png), and prints and writes their tables (curves.md).
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from citerec.datasets.errors import InputError, one_line_errors
from citerec.datasets.files import write_text
from citerec.evaluation.benchmark import Output
from citerec.evaluation.benchmarks.sampled import PLOT, DatasetLevel

PAGE = "curves.md"


def pool_curves(folders: Mapping[str, str | Path], output: Path) -> str:
    """Write curves.md and map.png into `output`; return the page, with one row per label of `folders`.

    Raises InputError for folders that are not outputs of benchmark=dataset_level on the same queries.
    """
    outputs = {label: Output(Path(folder), {}, {}) for label, folder in folders.items()}
    output.mkdir(parents=True, exist_ok=True)
    named = "\n".join(f"- {label}: `{folder}`" for label, folder in folders.items())
    parts = ["# MAP by pool size", *DatasetLevel.page(outputs, output / PLOT, ""), named]
    page = "\n\n".join(parts) + "\n"
    write_text(output / PAGE, page)
    return page


@one_line_errors
def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m citerec.evaluation.pool_curves", description=__doc__)
    parser.add_argument(
        "folders", nargs="+", metavar="[LABEL=]DIR", help="outputs of benchmark=dataset_level"
    )
    parser.add_argument(
        "--output", required=True, type=Path, metavar="DIR", help="folder for the plot and the tables"
    )
    given = parser.parse_args()
    folders = {}
    for text in given.folders:
        label, equals, folder = text.partition("=")
        folder = folder if equals else label
        label = label if equals else Path(folder).name
        if label in folders:
            raise InputError(f"{text}: another curve is already labelled {label!r}; use LABEL=DIR")
        folders[label] = folder
    print(f"{pool_curves(folders, given.output)}\npage: {given.output / PAGE}")


if __name__ == "__main__":
    main()
