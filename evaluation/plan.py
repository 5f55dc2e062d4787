"""Reads the YAML file of a results page (evaluation.plan describes it).

A results page as a YAML file: data sets times retrievers, and what has to be trained for them.
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


Rows = dict[str, list[str]]
"""Overrides by name."""


def read_plan(path: Path) -> Plan:
    """Read the file; InputError that names what is wrong in it."""
    try:
        content = OmegaConf.to_container(OmegaConf.load(path))
    except (OSError, YAMLError, UnicodeDecodeError, OmegaConfBaseException) as error:
        raise InputError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    keys = {"page", "outputs", "title", "data", "retrievers"}
    more = {"notes", "training", "compare", "kind", "building"}
    content = _mapping(path, "the file", content, keys, more)
    if content.get("kind", RETRIEVAL) not in (RETRIEVAL, GLOBAL):
        raise InputError(f"{path}, kind: {content['kind']} is neither {RETRIEVAL} nor {GLOBAL}")
    data = {}
    for name, given in _mapping(path, "data", content["data"]).items():
        more = {"split", "published", "notes", "retrievers"}
        _mapping(path, f"data.{name}", given, {"title", "overrides"}, more)
        data[name] = DataSet(**{**given, "overrides": _strings(path, f"data.{name}", given["overrides"])})
    of_data = _rows(path, content, data)
    pairs, known = content.get("compare") or [], {name for rows in of_data.values() for name in rows}
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) != 2 or not set(pair) <= known:
            raise InputError(f"{path}, compare: {pair} is no pair of retrievers: {', '.join(sorted(known))}")
    jobs = _jobs(path, content, data, of_data)
    compared = [(pair[0], pair[1]) for pair in pairs]
    page, notes, kind = Path(content["page"]), content.get("notes") or "", content.get("kind", RETRIEVAL)
    return Plan(path, page, content["title"], data, jobs, compared, notes, kind)


def _rows(path: Path, content: Mapping[str, Any], data: Mapping[str, DataSet]) -> dict[str, Rows]:
    """The retrievers of each data set, with their overrides."""
    retrievers = _named(path, "retrievers", content["retrievers"])
    rows: dict[str, Rows] = {}
    for of, one in data.items():
        own: Rows = {name: [] for name in retrievers}
        if one.retrievers is not None:
            own = _named(path, f"data.{of}.retrievers", one.retrievers)
        for name, given in own.items():
            if not given and name not in retrievers:
                raise InputError(
                    f"{path}, data.{of}.retrievers: there is no retriever {name!r}; name its overrides"
                )
        rows[of] = {name: [*retrievers.get(name, []), *given] for name, given in own.items()}
    return rows


def _jobs(
    path: Path, content: Mapping[str, Any], data: Mapping[str, DataSet], rows: Mapping[str, Rows]
) -> list[Job]:
    trainings = _mapping(path, "training", content.get("training") or {})
    for name, given in trainings.items():
        _mapping(path, f"training.{name}", given, {"overrides", "checkpoint"}, {"shared"})
    buildings = _mapping(path, "building", content.get("building") or {})
    outputs, jobs = Path(content["outputs"]), dict[str, Job]()
    for of, one in data.items():
        made: list[Training] = []
        for name, given in trainings.items():
            made.append(_training(path, outputs, of, name, given, one, made))
        for name, given in rows[of].items():
            overrides, built = [*one.overrides, *given], []
            for building, about in buildings.items():
                if any(f"{{{building}}}" in override for override in overrides):
                    built.append(_building(path, outputs, building, about, jobs))
                    place = str(built[-1].place)
                    overrides = [override.replace(f"{{{building}}}", place) for override in overrides]
            overrides, needed = _filled(overrides, outputs / of, made)
            folder = outputs / of / name
            overrides = [*overrides, f"split={one.split}", f"output_dir={folder}"]
            jobs[f"{of}/{name}"] = Job(of, name, folder, overrides, needed, built)
    return list(jobs.values())


def _building(path: Path, outputs: Path, name: str, given: Any, jobs: Mapping[str, Job]) -> Building:
    _mapping(path, f"building.{name}", given, {"overrides", "models"})
    models = _mapping(path, f"building.{name}.models", given["models"])
    for model, job in models.items():
        if job not in jobs:
            raise InputError(f"{path}, building.{name}.models.{model}: there is no job {job!r} before it")
    folders = ",".join(f"{model}:{jobs[job].folder}" for model, job in models.items())
    folder = outputs / name
    overrides = [*_strings(path, f"building.{name}", given["overrides"]), f"models={{{folders}}}"]
    overrides.append(f"output={Building.place_in(folder)}")
    return Building(name, folder, overrides, [jobs[job] for job in models.values()])


def _training(
    path: Path,
    outputs: Path,
    of: str,
    name: str,
    given: Mapping[str, Any],
    data: DataSet,
    before: list[Training],
) -> Training:
    shared = bool(given.get("shared"))
    results = outputs if shared else outputs / of
    folder = results / "train" / name
    overrides, needs = _filled(_strings(path, f"training.{name}", given["overrides"]), results, before)
    overrides = [*([] if shared else data.overrides), *overrides, f"output_dir={folder}"]
    return Training(name, folder, folder / given["checkpoint"], overrides, needs)


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


def _named(path: Path, where: str, value: Any) -> Rows:
    """Lists of overrides by name."""
    return {
        name: _strings(path, f"{where}.{name}", given) for name, given in _mapping(path, where, value).items()
    }


def _strings(path: Path, where: str, value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise InputError(f"{path}, {where}: must be a list of overrides, as [retriever=bm25], not {value}")
    return value
