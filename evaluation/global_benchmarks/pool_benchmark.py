"""What benchmarks have in common that bring their own queries, each with a pool of candidates."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from datasets.byte_files import whole_file
from datasets.errors import InputError
from evaluation.files import METRICS, REPORT, write_text
from evaluation.report import Provenance
from retrieval.base import Retriever

LARGEST = 1 << 28
"""Bytes of a file at most."""

Table = dict[str, dict[str, float]]
"""{field or facet: {measure: percent}}, measures by the names of the official script."""


class PoolBenchmark(ABC):
    """Scores of given pairs of papers are measured: those of a file, or of a retriever."""

    @abstractmethod
    def run(self, folder: Path, provenance: Provenance, retriever: Callable[[], Retriever]) -> None:
        """Measure, print the official tables, and write them to `folder`.

        retriever: makes the one that scores the pairs, where no scores are given. Raises InputError for files
        that do not fit each other.
        """


def write_results(folder: Path, metrics: Table, report: Sequence[str], provenance: Provenance) -> None:
    """Write metrics.json, and report.md of the given paragraphs with where the numbers come from."""
    paragraphs = [*report, "## Origin"]
    if provenance.command:
        paragraphs.append(f"```\n{provenance.command}\n```")
    if provenance.settings:
        paragraphs.append(f"```yaml\n{provenance.settings.strip()}\n```")
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / REPORT, "\n\n".join(paragraphs) + "\n")
    write_text(folder / METRICS, json.dumps(metrics, indent=1) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """The object that a JSON file holds, plain or gzipped; NaN and Infinity are read as Python writes them.

    Raises InputError for a file that is not there or holds something else.
    """
    try:
        found = json.loads(whole_file(path, LARGEST).decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: malformed JSON: {error}") from None
    return table(found, str(path))


def table(value: object, where: str) -> dict[str, Any]:
    """The value, which must be an object; InputError that says where it stands."""
    if not isinstance(value, dict):
        raise InputError(f"{where}: must be an object, not {json.dumps(value)[:40]}")
    return value


def ids(value: object, where: str) -> list[str]:
    """The value, which must be a list of paper ids; InputError that says where it stands."""
    if not isinstance(value, list) or not all(isinstance(paper, str) for paper in value):
        raise InputError(f"{where}: must be a list of paper ids (strings), not {json.dumps(value)[:60]}")
    return value


def is_number(value: object) -> bool:
    """Whether it is a number that others can be compared with, and that a float can hold."""
    if type(value) is int:
        return abs(value) < 1e308
    return isinstance(value, float) and not math.isnan(value)


def some(names: Collection[str], most: int = 5) -> str:
    """The first names, and how many more there are.

    >>> some(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    shown = ", ".join(list(names)[:most])
    return f"{shown} and {len(names) - most:,} more" if len(names) > most else shown
