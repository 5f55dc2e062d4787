"""What every benchmark is.

A benchmark is one class and one file under conf/benchmark: it says what it measures, which of its numbers the
table of a sweep shows, and what a page of results says of several of its outputs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from datasets.configuration import read_settings
from datasets.corpus import Corpus
from datasets.settings import Settings
from evaluation.report import REPORT, Column, Metrics, Provenance, Section, SweepJob, comparison, print_line
from retrieval.base import Retriever
from retrieval.filters import Filters

RetrieverMaker = Callable[[], Retriever]


@dataclass(frozen=True)
class Data:
    """The corpus that `data=` names, made on demand, and what is asked of it."""

    corpus: Callable[[], Corpus]
    split: str = "test"
    filters: Callable[[], Filters] = Filters
    index_dir: str | Path | None = None


class Output(NamedTuple):
    """What an evaluation left: its folder, its metrics.json, and its settings under `benchmark`."""

    folder: Path
    metrics: dict[str, Any]
    settings: dict[str, Any]


class Benchmark(ABC):
    """An evaluation: what it measures, and how its numbers are shown beside others."""

    settings_class: ClassVar[type[Settings]]
    """Its options (evaluation/settings.py)."""
    columns: ClassVar[Sequence[str]] = ()
    """Numbers in the table of a sweep: keys of metrics.json (GROUP/MEASURE), or patterns as [0-9]*/map."""
    tables: ClassVar[Mapping[str, Sequence[Column]]] = {}
    """Tables of a page of results with a row for each output, by what stands in their corners."""
    compared: ClassVar[Mapping[str, str]] = {"map": "MAP"}
    """Measures of per_query.csv by which a page of results tests differences, and their labels."""
    about: ClassVar[str] = ""
    """What a page of results says at its head, as Markdown list items."""
    published: ClassVar[Sequence[str]] = ()
    """Figures of others (evaluation/published) that a page shows once for all its data sets."""

    def __init__(self, **given: Any) -> None:
        """given: fields of the settings. Raises InputError for unusable values."""
        self.settings: Any = read_settings(self.settings_class, given)

    @abstractmethod
    def run(
        self, folder: Path, provenance: Provenance, retriever: RetrieverMaker, data: Data | None = None
    ) -> Metrics:
        """Evaluate, write metrics.json (last) and what stands beside it into `folder`, return the metrics.

        retriever, data: made where they are needed; a benchmark may bring its own queries and candidates.
        Raises InputError for what cannot be evaluated.
        """

    def serve(self, corpus: Callable[[], Corpus]) -> None:
        """In the other processes of torchrun: the work that is shared with the first; by default none."""
        return

    def show(self, metrics: Metrics, folder: Path) -> None:
        """Print the result of a single evaluation, and where its report is."""
        print_line(f"report: {folder / REPORT}")

    @classmethod
    def page(cls, outputs: Mapping[str, Output], plot: Path, title: str) -> list[str]:
        """Markdown about the outputs on one data set, by name; draws `plot` (or PLOT_STEM-*.png)."""
        results = {name: output.metrics for name, output in outputs.items()}
        return [comparison(results, columns, corner) for corner, columns in cls.tables.items()]

    @classmethod
    def sweep(cls, jobs: Sequence[SweepJob], varied: Sequence[str], folder: Path) -> list[Section]:
        """More parts of the summary of a sweep, whose jobs differ in `varied`; draws plots into `folder`."""
        return []
