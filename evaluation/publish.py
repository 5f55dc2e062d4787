"""Publish a trained model with a model card: `citerec model publish MODEL repo=OWNER/NAME`.

huggingface_hub uploads it (HF_TOKEN, HF_ENDPOINT).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import ClassVar

from citerec.base.arguments import command
from citerec.base.errors import InputError
from citerec.base.files import expand_user
from citerec.base.settings import Settings
from citerec.training.hub import Pretrained, check_hub_id


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
    raise InputError(f"{path}: neither a model saved by citerec train nor its output folder")


def publish(settings: PublishSettings) -> None:
    """Write and upload the model; prints where it is."""
    model = open_trained(settings.model)
    if settings.output:
        print(model.save(expand_user(settings.output), settings.licence))
    if settings.repo:
        print(model.push(settings.repo, settings.licence, settings.private))


main = command("model publish", PublishSettings, publish)
