"""The Benchmark interface.

A benchmark is one class and one file under conf/benchmark. It defines what is measured, which metrics a sweep
table shows, and how a results page presents several of its outputs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from citerec.base.settings import Settings
from citerec.datasets.corpus import Corpus
from citerec.evaluation.report import (
    REPORT,
    Column,
    Metrics,
    Provenance,
    Section,
    SweepJob,
    comparison,
    print_line,
)
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
    columns: ClassVar[Sequence[str]] = ()
    """Columns of a sweep table: keys of metrics.json (GROUP/MEASURE), or patterns such as [0-9]*/map."""
    tables: ClassVar[Mapping[str, Sequence[Column]]] = {}
    """Tables of a results page, by their top-left cell; one row per output."""
    compared: ClassVar[Mapping[str, str]] = {"map": "MAP"}
    """Measures of per_query.csv whose differences a results page tests, with their labels."""
    about: ClassVar[str] = ""
    """Introduction of a results page, as Markdown list items."""
    published: ClassVar[Sequence[str]] = ()
    """Published figures (evaluation/published) that a page shows once for all its data sets."""

    def __init__(self, **options: Any) -> None:
        """options: fields of the settings. Raises InputError for unusable values."""
        self.settings: Any = self.settings_class(**options)

    @abstractmethod
    def run(
        self, folder: Path, provenance: Provenance, retriever: RetrieverFactory, data: Data | None = None
    ) -> Metrics:
        """Evaluate, write the results into `folder` (metrics.json last), and return the metrics.

        retriever: called only if needed. data: None for benchmarks with their own queries and candidates.
        Raises InputError for inputs that cannot be evaluated.
        """

    def serve(self, corpus: Callable[[], Corpus]) -> None:
        """Run in torchrun's other processes: do the work shared with the first; by default nothing."""
        return

    def show(self, metrics: Metrics, folder: Path) -> None:
        """Print the results of a single evaluation and the path of its report."""
        print_line(f"report: {folder / REPORT}")

    @classmethod
    def page(cls, outputs: Mapping[str, Output], plot: Path, title: str) -> list[str]:
        """Return Markdown about the outputs on one data set; draws `plot` (or PLOT_STEM-*.png).

        outputs: {name: output}.
        """
        results = {name: output.metrics for name, output in outputs.items()}
        return [comparison(results, columns, corner) for corner, columns in cls.tables.items()]

    @classmethod
    def sweep(cls, jobs: Sequence[SweepJob], varied: Sequence[str], folder: Path) -> list[Section]:
        """Return more sections for the summary of a sweep over `varied`; draws plots into `folder`."""
        return []
