"""Makes the model in the box (library/box): python -m library.box static=FOLDER rankers=[FOLDER,...]

A static model, made small by hatten.compress, and a linear ranker whose weights are the means of several
rankers' over that model. `make box` makes what is there.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from datasets.errors import InputError, one_line_errors
from datasets.settings import Settings
from hatten.static import FOLDER, load_static
from library.arguments import read_arguments
from library.models import BOX
from rerank.ranker import SAVED, RankingModel, Weights
from retrieval.base import folder_bytes

LARGEST = 12_000_000
"""Bytes of the box, at most."""
KEPT = ("data", "corpus", "depth", "models", "seed", "hash")
"""What is told of each ranker."""


@dataclass(frozen=True, kw_only=True)
class BoxSettings(Settings):
    """Make the model in the box."""

    static: str
    """static model, as hatten.compress left it (e.g. outputs/box/static)"""
    rankers: tuple[str, ...]
    """linear rankers, as train.py model=ranker left them (e.g. [outputs/box/neurips,outputs/box/acl])"""
    output: str = str(BOX)
    """folder of the box"""


@one_line_errors
def main() -> None:
    """Put them together and say how large the box is."""
    settings = read_arguments(BoxSettings, sys.argv[1:])
    folder = Path(settings.output)
    static = load_static(settings.static)
    ranker = average_rankers([RankingModel.load(place) for place in settings.rankers])
    static.save_pretrained(folder / FOLDER)
    ranker.save_pretrained(folder / SAVED)
    size = folder_bytes(folder)
    print(f"{folder}: {size / 1e6:.1f} MB, {len(static.vocabulary):,} words")
    if size > LARGEST:
        raise InputError(f"{folder}: more than {LARGEST / 1e6:.0f} MB; compress the model to fewer words")


def average_rankers(rankers: list[RankingModel]) -> RankingModel:
    """The model of each name with the mean of the rankers' weights; a column that one lacks counts 0 there.

    InputError for trees, which have no weights.
    """
    models: dict[str, Any] = {}
    for name in dict.fromkeys(name for ranker in rankers for name in ranker.models):
        found = [ranker.models[name] for ranker in rankers if name in ranker.models]
        linear = [model.of for model in found if isinstance(model, Weights)]
        if len(linear) < len(found):
            raise InputError("rankers: the box takes linear ones (model.ranker.kind=linear)")
        columns = dict.fromkeys(column for weights in linear for column in weights)
        models[name] = Weights(
            {column: float(np.mean([weights.get(column, 0.0) for weights in linear])) for column in columns}
        )
    about = [{key: one for key, one in ranker.about.items() if key in KEPT} for ranker in rankers]
    return RankingModel(models, {"mean of": about})


if __name__ == "__main__":
    main()
