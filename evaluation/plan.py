"""A results page as a YAML file: data sets times retrievers, and what has to be trained for them.

page: docs/retrieval.md            the page to write; its plots lie beside it
outputs: outputs/results           DATA/NAME: an evaluation, DATA/train/NAME: a training
title: ...
notes: ...                         Markdown that stands before the tables
data:
  NAME: {title: ..., overrides: [data=custom, data.dir=...], split: test, published: ACL-200, notes: ...}
training:
  NAME: {overrides: [model=hatten], checkpoint: hatten.ckpt}
  NAME: {overrides: [model=scibert_reranker, retriever=hatten, "checkpoint={hatten}"], checkpoint: reranker}
retrievers:
  NAME: [retriever=hatten, "checkpoint={hatten}"]     {NAME} is the checkpoint of a training, for a training
                                                      of one above it; {results} is the folder OUTPUTS/DATA:
                                                      "index_dir={results}/index/NAME"
  NAME: [benchmark=pipeline, retriever=hatten, "checkpoint={hatten}", "reranker={NAME}"]
compare:
  - [NAME, NAME]

`notes`, `split` (test), `published`, `training` and `compare` may be left out, and so may these:

kind: global                       what is evaluated: papers as queries, or retrieval (contexts, the default)
data:
  NAME: {..., retrievers: {NAME: [more overrides]}}   those of this data set, with more overrides; else all.
                                                      One that has no entry in `retrievers` is these overrides
training:
  NAME: {..., shared: true}                           made once, in OUTPUTS/train/NAME, without the overrides
                                                      of a data set
building:
  NAME: {overrides: [papers=FILE], models: {NAME: DATA/NAME}}    `evaluation.build_mdcr` of these evaluations;
                                                      {NAME} is the folder of the benchmark, also for `data`
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

RETRIEVAL, GLOBAL = "retrieval", "global"


@dataclass(frozen=True)
class Training:
    """`train.py` with these overrides, after those it needs, makes this checkpoint in this folder."""

    name: str
    folder: Path
    checkpoint: Path
    overrides: list[str]
    needs: list[Training] = field(default_factory=list)


@dataclass(frozen=True)
class Building:
    """`evaluation.build_mdcr` with these overrides makes the folder `place` of the outputs of the models."""

    name: str
    folder: Path
    overrides: list[str]
    models: list[Job]

    @property
    def place(self) -> Path:
        return self.place_in(self.folder)

    @staticmethod
    def place_in(folder: Path) -> Path:
        """Where the benchmark lies in the folder of its building, which has what was printed, too."""
        return folder / "benchmark"


@dataclass(frozen=True)
class Job:
    """`evaluate.py` with these overrides, after trainings and buildings, writes into this folder."""

    data: str
    name: str
    folder: Path
    overrides: list[str]
    training: list[Training]
    building: list[Building] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.data}/{self.name}"


@dataclass(frozen=True)
class DataSet:
    """A data set of the page; published: whose figures of evaluation/published*.yaml stand beside it."""

    title: str
    overrides: list[str]
    split: str = "test"
    published: str | None = None
    notes: str = ""
    retrievers: dict[str, list[str]] | None = None


@dataclass(frozen=True)
class Plan:
    """All of a page, and the file that says so; `compare` has pairs of names of retrievers."""

    path: Path
    page: Path
    title: str
    data: dict[str, DataSet]
    jobs: list[Job]
    compare: list[tuple[str, str]] = field(default_factory=list)
    notes: str = ""
    kind: str = RETRIEVAL

    def of_data(self, data: str) -> list[Job]:
        return [job for job in self.jobs if job.data == data]
