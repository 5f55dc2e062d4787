"""A page of results as a YAML file: data sets times retrievers, and what must be trained or built for them.

    page, outputs, title, notes    # the page to write, the folder of all outputs, the page's heading and text
    data:
      NAME: {title, overrides, split, published, notes, retrievers}   # retrievers: in place of those below
    retrievers: {NAME: [overrides of evaluate.py]}
    training: {NAME: {overrides, checkpoint, shared}}   # "{NAME}" elsewhere is its checkpoint
    building: {NAME: {overrides, models}}               # by evaluation.build_mdcr; "{NAME}" is its folder
    compare: [[A, B], ..]                               # pairs of retrievers whose differences are tested

`{results}` in an override is the folder of the data set's outputs.
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

Overrides = dict[str, list[str]]
"""Overrides by name."""


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
class DataSet:
    """A data set of the page; published: the figures (evaluation/published) that stand beside it."""

    title: str
    overrides: list[str]
    split: str = "test"
    published: str | None = None
    notes: str = ""
    retrievers: dict[str, list[str]] | None = None


@dataclass(frozen=True)
class Plan:
    """All of a page, and the file that describes it."""

    path: Path
    page: Path
    title: str
    data: dict[str, DataSet]
    jobs: list[Job]
    compare: list[tuple[str, str]] = field(default_factory=list)
    notes: str = ""

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
    return _Reader(path).plan(content)


class _Reader:
    def __init__(self, path: Path) -> None:
        self.path = path

    def plan(self, content: Any) -> Plan:
        needed = {"page", "outputs", "title", "data", "retrievers"}
        content = self.mapping("the file", content, needed, {"notes", "training", "compare", "building"})
        data = {}
        for name, given in self.mapping("data", content["data"]).items():
            more = {"split", "published", "notes", "retrievers"}
            self.mapping(f"data.{name}", given, {"title", "overrides"}, more)
            data[name] = DataSet(**{**given, "overrides": self.strings(f"data.{name}", given["overrides"])})
        rows = self.rows(content, data)
        compare, known = content.get("compare") or [], {name for own in rows.values() for name in own}
        for pair in compare:
            if not isinstance(pair, list) or len(pair) != 2 or not set(pair) <= known:
                raise self.error("compare", f"{pair} is no pair of retrievers: {', '.join(sorted(known))}")
        jobs, pairs = self.jobs(content, data, rows), [(pair[0], pair[1]) for pair in compare]
        notes = content.get("notes") or ""
        return Plan(self.path, Path(content["page"]), content["title"], data, jobs, pairs, notes)

    def rows(self, content: Mapping[str, Any], data: Mapping[str, DataSet]) -> dict[str, Overrides]:
        """The retrievers of each data set, with their overrides."""
        retrievers = self.named("retrievers", content["retrievers"])
        rows: dict[str, Overrides] = {}
        for of, one in data.items():
            own: Overrides = {name: [] for name in retrievers}
            if one.retrievers is not None:
                own = self.named(f"data.{of}.retrievers", one.retrievers)
            for name, given in own.items():
                if not given and name not in retrievers:
                    reason = f"there is no retriever {name!r}; name its overrides"
                    raise self.error(f"data.{of}.retrievers", reason)
            rows[of] = {name: [*retrievers.get(name, []), *given] for name, given in own.items()}
        return rows

    def jobs(
        self, content: Mapping[str, Any], data: Mapping[str, DataSet], rows: Mapping[str, Overrides]
    ) -> list[Job]:
        trainings = self.mapping("training", content.get("training") or {})
        for name, given in trainings.items():
            self.mapping(f"training.{name}", given, {"overrides", "checkpoint"}, {"shared"})
        buildings = self.mapping("building", content.get("building") or {})
        outputs, jobs = Path(content["outputs"]), dict[str, Job]()
        for of, one in data.items():
            made: list[Training] = []
            for name, given in trainings.items():
                made.append(self.training(outputs, of, name, given, one, made))
            for name, given in rows[of].items():
                overrides, built = [*one.overrides, *given], []
                for building, about in buildings.items():
                    if any(f"{{{building}}}" in override for override in overrides):
                        built.append(self.building(outputs, building, about, jobs))
                        place = str(built[-1].place)
                        overrides = [override.replace(f"{{{building}}}", place) for override in overrides]
                overrides, needed = _filled(overrides, outputs / of, made)
                folder = outputs / of / name
                overrides = [*overrides, f"split={one.split}", f"output_dir={folder}"]
                jobs[f"{of}/{name}"] = Job(of, name, folder, overrides, needed, built)
        return list(jobs.values())

    def training(
        self,
        outputs: Path,
        of: str,
        name: str,
        given: Mapping[str, Any],
        data: DataSet,
        before: list[Training],
    ) -> Training:
        results = outputs if given.get("shared") else outputs / of
        folder = results / "train" / name
        overrides, needs = _filled(self.strings(f"training.{name}", given["overrides"]), results, before)
        overrides = [*([] if given.get("shared") else data.overrides), *overrides, f"output_dir={folder}"]
        return Training(name, folder, folder / given["checkpoint"], overrides, needs)

    def building(self, outputs: Path, name: str, given: Any, jobs: Mapping[str, Job]) -> Building:
        self.mapping(f"building.{name}", given, {"overrides", "models"})
        models = self.mapping(f"building.{name}.models", given["models"])
        for model, job in models.items():
            if job not in jobs:
                raise self.error(f"building.{name}.models.{model}", f"there is no job {job!r} before it")
        overrides = self.strings(f"building.{name}", given["overrides"])
        made = Building(name, outputs / name, overrides, [jobs[job] for job in models.values()])
        folders = ",".join(f"{model}:{jobs[job].folder}" for model, job in models.items())
        overrides += [f"models={{{folders}}}", f"output={made.place}"]
        return made

    def mapping(
        self, where: str, value: Any, needed: set[str] | None = None, more: set[str] | None = None
    ) -> dict[str, Any]:
        """A mapping, with the needed keys and no others than these and `more`, where those are given."""
        if not isinstance(value, dict):
            raise self.error(where, "must be a mapping of names, as evaluation/plan.py describes it")
        if needed is not None:
            for key in needed - value.keys():
                raise self.error(where, f"the key {key!r} is missing")
            for key in value.keys() - needed - (more or set()):
                raise self.error(where, f"there is no key {key!r}")
        return value

    def named(self, where: str, value: Any) -> Overrides:
        """Lists of overrides by name."""
        return {name: self.strings(f"{where}.{name}", of) for name, of in self.mapping(where, value).items()}

    def strings(self, where: str, value: Any) -> list[str]:
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise self.error(where, f"must be a list of overrides, as [retriever=bm25], not {value}")
        return list(value)

    def error(self, where: str, reason: str) -> InputError:
        return InputError(f"{self.path}, {where}: {reason}")


def _filled(given: list[str], results: Path, trainings: list[Training]) -> tuple[list[str], list[Training]]:
    """Overrides with the names in braces replaced, and the trainings that they need, in order."""
    needed: list[Training] = []
    for training in trainings:
        if any(f"{{{training.name}}}" in override for override in given):
            needed += [one for one in [*training.needs, training] if one not in needed]
            given = [override.replace(f"{{{training.name}}}", str(training.checkpoint)) for override in given]
    return [override.replace("{results}", str(results)) for override in given], needed
