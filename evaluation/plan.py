"""A page of results as a YAML file: data sets times retrievers, and what must be trained or built for them.

PlanFile, DataSet, Trainable and Buildable are its format. In overrides, `{NAME}` is the checkpoint of the
training or the folder of the building of that name, `{results}` the folder of the data set's outputs.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from datasets.errors import InputError
from datasets.json_lines import validate

TRAIN, BUILD = "train.py", "evaluation.build_mdcr"
"""What makes checkpoints, and benchmarks."""


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
class Step:
    """What a job needs: a checkpoint by TRAIN, or by BUILD a benchmark of the outputs of the `models`.

    made: what is there afterwards, in `folder` or below. needs: trainings before this one.
    """

    name: str
    script: str
    folder: Path
    made: Path
    overrides: list[str]
    needs: list[Step] = field(default_factory=list)
    models: list[Job] = field(default_factory=list)

    @property
    def command(self) -> str:
        python = ["python", *([] if self.script.endswith(".py") else ["-m"]), self.script]
        return shlex.join([*python, *self.overrides])


@dataclass(frozen=True)
class Job:
    """`evaluate.py` with these overrides, after the steps that it needs, writes into this folder."""

    data: str
    name: str
    folder: Path
    overrides: list[str]
    needs: list[Step] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.data}/{self.name}"

    @property
    def commands(self) -> list[str]:
        """The command lines that make its result."""
        evaluation = shlex.join(["python", "evaluate.py", *self.overrides])
        return [*(step.command for step in self.needs), evaluation]


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
    file = validate(content, PlanFile, f"{path}")
    data = {name: validate(of, DataSet, f"{path}, data.{name}") for name, of in file.data.items()}
    training = {
        name: validate(of, Trainable, f"{path}, training.{name}") for name, of in file.training.items()
    }
    building = {
        name: validate(of, Buildable, f"{path}, building.{name}") for name, of in file.building.items()
    }
    outputs, jobs = Path(file.outputs), dict[str, Job]()
    for of, one in data.items():
        steps: dict[str, Step] = {}
        for name, given in training.items():
            results = outputs if given.shared else outputs / of
            folder = results / "train" / name
            overrides, needs = _filled(given.overrides, results, steps)
            overrides = [*([] if given.shared else one.overrides), *overrides, f"output_dir={folder}"]
            steps[name] = Step(name, TRAIN, folder, folder / given.checkpoint, overrides, needs)
        rows = {key: [] for key in file.retrievers} if one.retrievers is None else one.retrievers
        for name, own in rows.items():
            if not own and name not in file.retrievers:
                where = f"{path}, data.{of}.retrievers"
                raise InputError(f"{where}: there is no retriever {name!r}; name its overrides")
            overrides = [*one.overrides, *file.retrievers.get(name, []), *own]
            for key, build in building.items():
                if _named(key, overrides):
                    steps[key] = _building(f"{path}, building.{key}", outputs / key, build, jobs)
            overrides, needs = _filled(overrides, outputs / of, steps)
            folder = outputs / of / name
            overrides = [*overrides, f"split={one.split}", f"output_dir={folder}"]
            jobs[f"{of}/{name}"] = Job(of, name, folder, overrides, needs)
    known = {job.name for job in jobs.values()}
    for pair in file.compare:
        if not set(pair) <= known:
            raise InputError(
                f"{path}, compare: {list(pair)} is not a pair of retrievers: {', '.join(sorted(known))}"
            )
    return Plan(path, file, data, list(jobs.values()))


def _building(where: str, folder: Path, given: Buildable, jobs: Mapping[str, Job]) -> Step:
    for model, job in given.models.items():
        if job not in jobs:
            raise InputError(f"{where}.models.{model}: there is no job {job!r} before it")
    folders = ",".join(f"{model}:{jobs[job].folder}" for model, job in given.models.items())
    made = folder / "benchmark"  # the output of the command lies beside it
    overrides = [*given.overrides, f"models={{{folders}}}", f"output={made}"]
    return Step(
        folder.name, BUILD, folder, made, overrides, models=[jobs[job] for job in given.models.values()]
    )


def _named(name: str, overrides: list[str]) -> bool:
    return any(f"{{{name}}}" in override for override in overrides)


def _filled(given: list[str], results: Path, steps: Mapping[str, Step]) -> tuple[list[str], list[Step]]:
    """Overrides with the names in braces replaced, and the steps that they need, in order."""
    named = [step for name, step in steps.items() if _named(name, given)]
    for name, path in [*((step.name, step.made) for step in named), ("results", results)]:
        given = [override.replace(f"{{{name}}}", str(path)) for override in given]
    needed = {step.name: step for last in named for step in (*last.needs, last)}
    return given, list(needed.values())
