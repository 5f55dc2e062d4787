"""Makes the built-in model (library/builtin/): python -m citerec.library.builtin static=... rankers=[...]

It consists of a static model compressed by hatten.compress and a linear ranker whose weights are the means of
several rankers over that model. `make builtin` trains and combines them.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from citerec.datasets.arguments import read_arguments
from citerec.datasets.errors import InputError, one_line_errors
from citerec.datasets.settings import Settings
from citerec.hatten.trained import open_static
from citerec.library.models import BUILT_IN
from citerec.rerank.linear import LinearModel
from citerec.rerank.ranker import RankingModel
from citerec.retrieval.base import folder_bytes

LARGEST = 12_000_000
"""Maximum size of the model in bytes."""
KEPT = ("data", "corpus", "depth", "models", "seed", "hash")
"""Fields of a ranker's about.json to keep."""


@dataclass(frozen=True, kw_only=True)
class BuiltInSettings(Settings):
    """Make the built-in model."""

    static: str
    """static model, written by hatten.compress (e.g. outputs/builtin/static)"""
    rankers: tuple[str, ...]
    """linear rankers, written by citerec train model=ranker (e.g. [outputs/builtin/neurips])"""
    output: str = str(BUILT_IN)
    """output folder"""


@one_line_errors
def main() -> None:
    """Combine the models, save the result and print its size."""
    settings = read_arguments(BuiltInSettings, sys.argv[1:])
    folder = Path(settings.output)
    static = open_static(settings.static)
    ranker = average_rankers([RankingModel.open(place) for place in settings.rankers])
    static.save(folder / static.folder)
    ranker.save(folder / ranker.folder)
    size = folder_bytes(folder)
    print(f"{folder}: {size / 1e6:.1f} MB, {len(static.vocabulary):,} words")
    if size > LARGEST:
        raise InputError(f"{folder}: more than {LARGEST / 1e6:.0f} MB; compress the model to fewer words")


def average_rankers(rankers: list[RankingModel]) -> RankingModel:
    """Average the weights of rankers per model name; missing columns count as 0."""
    models: dict[str, LinearModel] = {}
    for name in dict.fromkeys(name for ranker in rankers for name in ranker.models):
        linear = [ranker.models[name].weights for ranker in rankers if name in ranker.models]
        columns = dict.fromkeys(column for weights in linear for column in weights)
        models[name] = LinearModel(
            {column: float(np.mean([weights.get(column, 0.0) for weights in linear])) for column in columns}
        )
    about = [{key: one for key, one in ranker.about.items() if key in KEPT} for ranker in rankers]
    return RankingModel(models, {"mean of": about})


if __name__ == "__main__":
    main()
