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

`notes`, `split` (test), `published`, `training` and `compare` may be left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from datasets.errors import InputError


@dataclass(frozen=True)
class Training:
    """`train.py` with these overrides, after those it needs, makes this checkpoint in this folder."""

    name: str
    folder: Path
    checkpoint: Path
    overrides: list[str]
    needs: list[Training] = field(default_factory=list)


@dataclass(frozen=True)
class Job:
    """`evaluate.py` with these overrides, after these trainings, writes into this folder."""

    data: str
    name: str
    folder: Path
    overrides: list[str]
    training: list[Training]

    def __str__(self) -> str:
        return f"{self.data}/{self.name}"


@dataclass(frozen=True)
class DataSet:
    """A data set of the page; published: whose figures of evaluation/published.yaml stand beside it."""

    title: str
    overrides: list[str]
    split: str = "test"
    published: str | None = None
    notes: str = ""


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

    def of_data(self, data: str) -> list[Job]:
        return [job for job in self.jobs if job.data == data]


def read_plan(path: Path) -> Plan:
    """Read the file; InputError that names what is wrong in it."""
    try:
        content = OmegaConf.to_container(OmegaConf.load(path))
    except (OSError, YAMLError, UnicodeDecodeError, OmegaConfBaseException) as error:
        raise InputError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    keys = {"page", "outputs", "title", "data", "retrievers"}
    content = _mapping(path, "the file", content, keys, {"notes", "training", "compare"})
    data = {}
    for name, given in _mapping(path, "data", content["data"]).items():
        _mapping(path, f"data.{name}", given, {"title", "overrides"}, {"split", "published", "notes"})
        data[name] = DataSet(**{**given, "overrides": _strings(path, f"data.{name}", given["overrides"])})
    retrievers = {
        name: _strings(path, f"retrievers.{name}", given)
        for name, given in _mapping(path, "retrievers", content["retrievers"]).items()
    }
    trainings = _mapping(path, "training", content.get("training") or {})
    for name, given in trainings.items():
        _mapping(path, f"training.{name}", given, {"overrides", "checkpoint"})
    pairs = content.get("compare") or []
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) != 2 or not set(pair) <= set(retrievers):
            raise InputError(f"{path}, compare: {pair} is no pair of retrievers: {', '.join(retrievers)}")
    jobs = []
    for of, one in data.items():
        folder = Path(content["outputs"]) / of
        made: list[Training] = []
        for name, given in trainings.items():
            made.append(_training(path, folder, name, given, one, made))
        jobs += [_job(of, name, folder, given, one, made) for name, given in retrievers.items()]
    compared = [(pair[0], pair[1]) for pair in pairs]
    page, notes = Path(content["page"]), content.get("notes") or ""
    return Plan(path, page, content["title"], data, jobs, compared, notes)


def _training(
    path: Path, results: Path, name: str, given: Mapping[str, Any], data: DataSet, before: list[Training]
) -> Training:
    folder = results / "train" / name
    overrides, needs = _filled(_strings(path, f"training.{name}", given["overrides"]), results, before)
    overrides = [*data.overrides, *overrides, f"output_dir={folder}"]
    return Training(name, folder, folder / given["checkpoint"], overrides, needs)


def _job(
    data: str, name: str, results: Path, given: list[str], of: DataSet, trainings: list[Training]
) -> Job:
    given, needed = _filled(given, results, trainings)
    folder = results / name
    overrides = [*of.overrides, *given, f"split={of.split}", f"output_dir={folder}"]
    return Job(data, name, folder, overrides, needed)


def _filled(given: list[str], results: Path, trainings: list[Training]) -> tuple[list[str], list[Training]]:
    """Overrides with the names in braces replaced, and the trainings that must be there, in their order."""
    needed: list[Training] = []
    for training in trainings:
        if any(f"{{{training.name}}}" in override for override in given):
            needed += [one for one in [*training.needs, training] if one not in needed]
            given = [override.replace(f"{{{training.name}}}", str(training.checkpoint)) for override in given]
    return [override.replace("{results}", str(results)) for override in given], needed


def _mapping(
    path: Path, where: str, value: Any, needed: set[str] | None = None, more: set[str] | None = None
) -> dict[str, Any]:
    """A mapping, with the needed keys and no others than these and `more`, where those are given."""
    if not isinstance(value, dict):
        raise InputError(f"{path}, {where}: must be a mapping of names, as evaluation/plan.py describes it")
    if needed is not None:
        for key in needed - value.keys():
            raise InputError(f"{path}, {where}: the key {key!r} is missing")
        for key in value.keys() - needed - (more or set()):
            raise InputError(f"{path}, {where}: there is no key {key!r}")
    return value


def _strings(path: Path, where: str, value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise InputError(f"{path}, {where}: must be a list of overrides, as [retriever=bm25], not {value}")
    return value
