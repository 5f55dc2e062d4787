"""A page of results as a YAML file: data sets times retrievers, and what must be trained or built for them.

PlanFile, DataSet, Trainable and Buildable are its format. In overrides, `{NAME}` is the checkpoint of the
training or the folder of the building of that name, `{results}` the folder of the data set's outputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from datasets.errors import InputError

T = TypeVar("T")


class DataSet(msgspec.Struct, forbid_unknown_fields=True):
    """published: the figures (evaluation/published) shown too; retrievers: in place of the plan's."""

    title: str
    overrides: list[str]
    split: str = "test"
    published: str | None = None
    notes: str = ""
    retrievers: dict[str, list[str]] | None = None


class Trainable(msgspec.Struct, forbid_unknown_fields=True):
    """What train.py makes with these overrides, for each data set or `shared` by all of them."""

    overrides: list[str]
    checkpoint: str
    shared: bool = False


class Buildable(msgspec.Struct, forbid_unknown_fields=True):
    """What evaluation.build_mdcr makes with these overrides of the outputs DATA/NAME of the models."""

    overrides: list[str]
    models: dict[str, str]


class PlanFile(msgspec.Struct, forbid_unknown_fields=True):
    """page: the file to write; outputs: the folder of all outputs; compare: pairs of retrievers to test."""

    page: str
    outputs: str
    title: str
    data: dict[str, Any]
    retrievers: dict[str, list[str]]
    notes: str = ""
    training: dict[str, Any] = {}
    building: dict[str, Any] = {}
    compare: list[tuple[str, str]] = []


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
        """The benchmark, in the folder of its building, which has the output of the command too."""
        return self.folder / "benchmark"


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
class Plan:
    """All of a page, and the file that describes it."""

    path: Path
    file: PlanFile
    data: dict[str, DataSet]
    jobs: list[Job]

    @property
    def page(self) -> Path:
        return Path(self.file.page)

    def of_data(self, data: str) -> list[Job]:
        return [job for job in self.jobs if job.data == data]

    def chosen(self, names: list[str], without: list[str] | None = None) -> list[Job]:
        """The jobs named DATA/NAME or DATA (none: all), `without` those of DATA/NAME, DATA or NAME.

        Raises InputError for a name that is none.
        """
        known, without = {*map(str, self.jobs), *self.data}, without or []
        for name in [*names, *without]:
            if name not in known | ({job.name for job in self.jobs} if name in without else set()):
                raise InputError(f"no job {name!r} in the plan; there are {', '.join(map(str, self.jobs))}")
        jobs = [job for job in self.jobs if not names or str(job) in names or job.data in names]
        return [job for job in jobs if not {str(job), job.data, job.name} & set(without)]


def read_plan(path: Path) -> Plan:
    """Read the file; InputError that names what is wrong in it."""
    try:
        content = OmegaConf.to_container(OmegaConf.load(path))
    except (OSError, YAMLError, UnicodeDecodeError, OmegaConfBaseException) as error:
        raise InputError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    file = _read(content, PlanFile, f"{path}")
    data = {name: _read(of, DataSet, f"{path}, data.{name}") for name, of in file.data.items()}
    training = {name: _read(of, Trainable, f"{path}, training.{name}") for name, of in file.training.items()}
    building = {name: _read(of, Buildable, f"{path}, building.{name}") for name, of in file.building.items()}
    jobs: dict[str, Job] = {}
    outputs = Path(file.outputs)
    for of, one in data.items():
        trainings: list[Training] = []
        for name, given in training.items():
            trainings.append(_training(outputs, of, name, given, one, trainings))
        rows = {key: [] for key in file.retrievers} if one.retrievers is None else one.retrievers
        for name, own in rows.items():
            if not own and name not in file.retrievers:
                where = f"{path}, data.{of}.retrievers"
                raise InputError(f"{where}: there is no retriever {name!r}; name its overrides")
            overrides, built = [*one.overrides, *file.retrievers.get(name, []), *own], []
            for key, buildable in building.items():
                if any(f"{{{key}}}" in override for override in overrides):
                    built.append(_building(f"{path}, building.{key}", outputs / key, buildable, jobs))
                    overrides = _replaced(overrides, key, built[-1].place)
            overrides, needed = _filled(overrides, outputs / of, trainings)
            folder = outputs / of / name
            overrides = [*overrides, f"split={one.split}", f"output_dir={folder}"]
            jobs[f"{of}/{name}"] = Job(of, name, folder, overrides, needed, built)
    known = {job.name for job in jobs.values()}
    for pair in file.compare:
        if not set(pair) <= known:
            raise InputError(
                f"{path}, compare: {list(pair)} is no pair of retrievers: {', '.join(sorted(known))}"
            )
    return Plan(path, file, data, list(jobs.values()))


def _read(value: Any, kind: type[T], where: str) -> T:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise InputError(f"{where}: {error}; evaluation/plan.py describes it") from None


def _training(
    outputs: Path, of: str, name: str, given: Trainable, data: DataSet, before: list[Training]
) -> Training:
    results = outputs if given.shared else outputs / of
    folder = results / "train" / name
    overrides, needs = _filled(given.overrides, results, before)
    overrides = [*([] if given.shared else data.overrides), *overrides, f"output_dir={folder}"]
    return Training(name, folder, folder / given.checkpoint, overrides, needs)


def _building(where: str, folder: Path, given: Buildable, jobs: Mapping[str, Job]) -> Building:
    for model, job in given.models.items():
        if job not in jobs:
            raise InputError(f"{where}.models.{model}: there is no job {job!r} before it")
    folders = ",".join(f"{model}:{jobs[job].folder}" for model, job in given.models.items())
    made = Building(folder.name, folder, [*given.overrides], [jobs[job] for job in given.models.values()])
    made.overrides.extend([f"models={{{folders}}}", f"output={made.place}"])
    return made


def _filled(given: list[str], results: Path, trainings: list[Training]) -> tuple[list[str], list[Training]]:
    """Overrides with the names in braces replaced, and the trainings that they need, in order."""
    needed: list[Training] = []
    for training in trainings:
        if any(f"{{{training.name}}}" in override for override in given):
            needed += [one for one in [*training.needs, training] if one not in needed]
            given = _replaced(given, training.name, training.checkpoint)
    return _replaced(given, "results", results), needed


def _replaced(overrides: list[str], name: str, path: Path) -> list[str]:
    return [override.replace(f"{{{name}}}", str(path)) for override in overrides]
