"""Plans: YAML files that describe a results page, data sets times retrievers, and their trainings.

PlanFile, DataSet and Trainable define the format. In overrides, `{NAME}` stands for the checkpoint of the
training of that name, `{results}` for the folder of the data set's outputs.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import yaml

from citerec.base.errors import InputError
from citerec.formats.json_lines import validate

PLACEHOLDER = re.compile(r"(?<!\$)\{([\w+.-]+)\}")


class DataSet(msgspec.Struct, forbid_unknown_fields=True):
    """retrievers: instead of the plan's."""

    title: str
    overrides: list[str]
    split: str = "test"
    notes: str = ""
    retrievers: dict[str, list[str]] | None = None


class Trainable(msgspec.Struct, forbid_unknown_fields=True):
    """A training by citerec train with these overrides, per data set or `shared` by all of them."""

    overrides: list[str]
    checkpoint: str
    shared: bool = False


class PlanFile(msgspec.Struct, forbid_unknown_fields=True):
    """page: file to write; outputs: folder of all outputs; compare: pairs of retrievers to test; highlight:
    retrievers to colour in the plot of recall (default: the best); shown: retrievers in the page's table
    (default: all; the others are in its CSV files); expected: {DATA/NAME: {measure: value}},
    from which results may differ by tolerance."""

    page: str
    outputs: str
    title: str
    data: dict[str, DataSet]
    retrievers: dict[str, list[str]]
    notes: str = ""
    training: dict[str, Trainable] = {}
    compare: list[tuple[str, str]] = []
    highlight: list[str] = []
    shown: list[str] = []
    expected: dict[str, dict[str, float]] = {}
    tolerance: float = 0.005


@dataclass(frozen=True)
class Step:
    """A training that jobs need: it writes the checkpoint `output`. needs: trainings to run first."""

    name: str
    folder: Path
    output: Path
    overrides: list[str]
    needs: list[Step] = field(default_factory=list)


@dataclass(frozen=True)
class Job:
    """A run of `citerec evaluate` with these overrides into `folder`, after the trainings that it needs."""

    data: str
    name: str
    folder: Path
    overrides: list[str]
    needs: list[Step] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.data}/{self.name}"

    @property
    def commands(self) -> list[str]:
        """The command lines that reproduce the result."""
        runs = [*(["train", *step.overrides] for step in self.needs), ["evaluate", *self.overrides]]
        return [shlex.join(["citerec", *run]) for run in runs]


@dataclass(frozen=True)
class Plan:
    """A results page: its plan file and jobs."""

    path: Path
    file: PlanFile
    jobs: list[Job]

    @property
    def page(self) -> Path:
        return Path(self.file.page)

    def select(self, names: Sequence[str], without: Sequence[str] = ()) -> list[Job]:
        """Select jobs by DATA/NAME or DATA (empty means all), `without` those of DATA/NAME, DATA or NAME.

        Raises InputError for unknown names.
        """
        names_known = {*map(str, self.jobs), *self.file.data}
        for name in [*names, *without]:
            if name not in names_known | ({job.name for job in self.jobs} if name in without else set()):
                raise InputError(f"no job {name!r} in the plan; choose from {', '.join(map(str, self.jobs))}")
        jobs = [job for job in self.jobs if not names or str(job) in names or job.data in names]
        return [job for job in jobs if not {str(job), job.data, job.name} & set(without)]


def read_plan(path: Path, elsewhere: str | None = None) -> Plan:
    """Read a plan; InputError names the faulty part. elsewhere: folder of outputs, instead of the plan's."""
    try:
        content = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, yaml.YAMLError, ValueError) as error:
        raise InputError(f"{path}: {error}") from None
    file = validate(content, PlanFile, str(path))
    outputs, jobs = Path(elsewhere or file.outputs), dict[str, Job]()
    for data, data_set in file.data.items():
        steps: dict[str, Step] = {}
        for name, training in file.training.items():
            results = outputs if training.shared else outputs / data
            folder = results / "train" / name
            where = f"{path}, training.{name}"
            overrides, needs = _fill_placeholders(training.overrides, results, steps, where)
            own = [] if training.shared else data_set.overrides
            overrides = [*own, *overrides, f"output_dir={folder}"]
            steps[name] = Step(name, folder, folder / training.checkpoint, overrides, needs)
        rows = {key: [] for key in file.retrievers} if data_set.retrievers is None else data_set.retrievers
        for name, own in rows.items():
            where = f"{path}, data.{data}.retrievers"
            if not own and name not in file.retrievers:
                raise InputError(f"{where}: unknown retriever {name!r}; list its overrides")
            overrides = [*data_set.overrides, *file.retrievers.get(name, []), *own]
            overrides, needs = _fill_placeholders(overrides, outputs / data, steps, f"{where}.{name}")
            folder = outputs / data / name
            overrides = [*overrides, f"split={data_set.split}", f"output_dir={folder}"]
            jobs[f"{data}/{name}"] = Job(data, name, folder, overrides, needs)
    retrievers = {job.name for job in jobs.values()}
    compared = [name for pair in file.compare for name in pair]
    for key, names in (("highlight", file.highlight), ("shown", file.shown), ("compare", compared)):
        if unknown := sorted({*names} - retrievers):
            raise InputError(
                f"{path}, {key}: there is no retriever {unknown[0]!r}; choose from "
                f"{', '.join(sorted(retrievers))}"
            )
    if unknown := sorted(file.expected.keys() - jobs.keys()):
        raise InputError(f"{path}, expected: no job {unknown[0]!r}; choose from {', '.join(jobs)}")
    return Plan(path, file, list(jobs.values()))


def _fill_placeholders(
    overrides: list[str], results: Path, steps: Mapping[str, Step], where: str
) -> tuple[list[str], list[Step]]:
    """Replace `{NAME}` in overrides; return them and the trainings that they need, in order."""
    places = {"results": results} | {name: step.output for name, step in steps.items()}
    named = {name for override in overrides for name in PLACEHOLDER.findall(override)}
    if unknown := sorted(named - places.keys()):
        raise InputError(f"{where}: no training {unknown[0]!r} above it; choose from {', '.join(places)}")
    overrides = [PLACEHOLDER.sub(lambda match: str(places[match[1]]), override) for override in overrides]
    needed = {
        step.name: step for last in steps.values() if last.name in named for step in (*last.needs, last)
    }
    return overrides, list(needed.values())
