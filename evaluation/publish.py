"""Publish a trained model with a model card: `citerec model publish MODEL repo=OWNER/NAME`.

huggingface_hub uploads it (HF_TOKEN, HF_ENDPOINT).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import ClassVar

from citerec.base.arguments import command
from citerec.base.errors import InputError
from citerec.base.files import expand_user
from citerec.base.settings import Settings
from citerec.evaluation.report import METRICS, REPORT, Column, Metrics, Table, flatten_groups
from citerec.training.hub import Pretrained, check_hub_id, is_hub_id

COLUMNS = (
    Column("candidates", "candidates"),
    Column("queries", "queries"),
    Column("recall@10", "R@10", interval=True),
    Column("recall@100", "R@100", interval=True),
    Column("mrr", "MRR", interval=True),
    Column("AVG/map", "MAP", decimals=2),
)
"""Columns of the model card's results; those without values are omitted."""


@dataclass(frozen=True, kw_only=True)
class PublishSettings(Settings):
    """Write a trained model with a model card to a folder, or upload it."""

    positional: ClassVar[str] = "model"

    model: str
    """folder of a model saved by citerec train, or its output folder (e.g. outputs/mine)"""
    output: str | None = None
    """folder to write the model to"""
    repo: str | None = None
    """repository on the hub to upload the model to, OWNER/NAME"""
    private: bool = False
    """make a new repository private"""
    results: tuple[str, ...] = ()
    """output folders of citerec evaluate, whose numbers and commands the card shows"""
    licence: str | None = None
    """licence of the weights, by its name on the hub, such as cc-by-4.0"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.output is None and self.repo is None:
            raise InputError("citerec model publish: give output=FOLDER, repo=OWNER/NAME or both")
        if self.repo is not None:
            check_hub_id(self.repo)  # before the model is written to `output`


def open_trained(path: str | Path) -> Pretrained:
    """Load the model that citerec train saved at `path`, or in the output folder `path`.

    Raises InputError if there is no model that can be published.
    """
    from citerec.hatten.trained import MODELS
    from citerec.rerank.cross_encoder.network import CrossEncoder
    from citerec.rerank.ranker.model import RankingModel

    path, dense = expand_user(path), [*map(resolve_name, MODELS.values())]
    kinds: list[type[Pretrained]] = [CrossEncoder, RankingModel, *dense]
    for kind in kinds:
        for folder in (path, path / kind.folder):
            if (folder / kind.settings_file).is_file():
                return kind.open(folder)
    if not path.exists() and is_hub_id(path):
        return kinds[-1].open(path)
    raise InputError(f"{path}: neither a model saved by citerec train nor its output folder")


def results_section(folders: Sequence[str | Path]) -> str:
    """Return metrics and commands of evaluations as Markdown; InputError for other folders."""
    results: dict[str, Metrics] = {}
    commands = []
    for folder in map(expand_user, folders):
        try:
            metrics = json.loads((folder / METRICS).read_text("utf-8"))
            if not isinstance(metrics, dict):
                raise ValueError(f"{METRICS} is not an object")
            command = (folder / REPORT).read_text("utf-8").partition("\n## Origin\n")[2].split("```\n")[1]
        except (OSError, ValueError, IndexError) as error:
            raise InputError(f"{folder}: not an output folder of citerec evaluate ({error})") from None
        name = f"{metrics.get('data', folder.name)}, {metrics.get('split', 'test')}"
        results[name if name not in results else f"{name}, {folder.name}"] = metrics
        commands.append(command.strip())
    shown = [
        column
        for column in COLUMNS
        if any(column.key in flatten_groups(values) for values in results.values())
    ]
    if not results or not shown:
        return ""
    note = "In brackets: 95 % confidence intervals, clustered by citing paper. Commands:"
    return "\n\n".join(
        [str(Table.of(results, shown, "data")), note, "```sh\n" + "\n".join(commands) + "\n```"]
    )


def publish(settings: PublishSettings) -> None:
    """Write and upload the model; prints where it is."""
    results = results_section(settings.results)
    model = open_trained(settings.model)
    if settings.output:
        print(model.save(expand_user(settings.output), results, settings.licence))
    if settings.repo:
        print(model.push(settings.repo, results, settings.licence, settings.private))


main = command("model publish", PublishSettings, publish)
