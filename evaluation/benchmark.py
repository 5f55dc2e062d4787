"""The Benchmark interface.

A benchmark is one class and one file under conf/benchmark. It measures, and declares the tables and curves of
its report, and those that show several of its outputs side by side; evaluation.report renders them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from citerec.base.settings import Settings
from citerec.datasets.corpus import Corpus
from citerec.evaluation.report import Column, Metrics, Part, Provenance, Report, Table, flatten_groups
from citerec.retrieval.base import Retriever
from citerec.retrieval.filters import Filters

RetrieverFactory = Callable[[], Retriever]


@dataclass(frozen=True)
class Data:
    """The corpus named by `data=`, loaded on demand, and how to evaluate on it."""

    corpus: Callable[[], Corpus]
    split: str = "test"
    filters: Callable[[], Filters] = Filters
    index_dir: str | Path | None = None


class Output(NamedTuple):
    """Output of an evaluation: its folder, its metrics.json, and its `benchmark` settings."""

    folder: Path
    metrics: dict[str, Any]
    settings: dict[str, Any]
    highlight: bool = False
    """coloured in plots of many outputs"""


class Benchmark(ABC):
    """An evaluation: what it measures, and how its results are compared with others."""

    settings_class: ClassVar[type[Settings]]
    """Its options (evaluation/settings.py)."""
    tables: ClassVar[Mapping[str, Sequence[Column]]] = {}
    """Tables of several outputs, by their top-left cell; one row per output."""
    compared: ClassVar[Mapping[str, str]] = {"map": "MAP"}
    """Measures of per_query.csv whose differences a results page tests, with their labels."""
    compared_by_group: ClassVar[bool] = False
    """Whether differences are tested in each group of queries, and between the first and the last."""
    headline: ClassVar[Sequence[Column]] = ()
    """Columns of a results page's table."""

    def __init__(self, **options: Any) -> None:
        """options: fields of the settings. Raises InputError for unusable values."""
        self.settings: Any = self.settings_class(**options)

    @abstractmethod
    def run(
        self, folder: Path, provenance: Provenance, retriever: RetrieverFactory, data: Data | None = None
    ) -> Report:
        """Evaluate, and write the results into `folder` (metrics.json last).

        retriever: called only if needed. data: None for benchmarks with their own queries and candidates.
        Raises InputError for inputs that cannot be evaluated.
        """

    @classmethod
    def headlines(cls, outputs: Mapping[str, Output]) -> tuple[dict[str, Metrics], Sequence[Column]]:
        """Return the rows of a results page's table, {label: flat metrics}, and its columns."""
        return {name: flatten_groups(output.metrics) for name, output in outputs.items()}, cls.headline

    @classmethod
    def view(cls, outputs: Mapping[str, Output], title: str) -> list[Part]:
        """Return tables and curves of several outputs, {name: output}, as pages and sweeps show them.

        title: of the data, for plots.
        """
        results = {name: output.metrics for name, output in outputs.items()}
        return [Table.of(results, columns, corner) for corner, columns in cls.tables.items()]
