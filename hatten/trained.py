"""Opens what `checkpoint=` names. Only the static model works without torch; others are imported late."""

from __future__ import annotations

from pathlib import Path
from pkgutil import resolve_name

from citerec.base.errors import InputError
from citerec.hatten.dense import DenseModel
from citerec.hatten.retriever import WordsRetriever
from citerec.hatten.static.model import CONFIG, StaticModel, StaticRetriever
from citerec.retrieval.settings import IndexConfig
from citerec.training.hub import find_saved


def trained_retriever(checkpoint: str | Path | None, index: IndexConfig) -> WordsRetriever:
    """Return the retriever of a saved static or HAtten model; InputError if there is none."""
    if checkpoint is None:
        raise InputError(
            "retriever=ranker, fusion or trained needs checkpoint=FOLDER, the output of citerec train "
            "model=static or hatten, or a ranker=FOLDER that was saved with such a model"
        )
    if (find_saved(checkpoint, StaticModel.folder) / CONFIG).is_file():
        return StaticRetriever(checkpoint, index)
    from citerec.hatten.model import HAttenRetriever  # torch

    return HAttenRetriever(checkpoint, index=index)


MODELS = {
    "encoder.json": "citerec.hatten.biencoder.model:BiEncoder",  # transformers have a config.json, too
    "nnselect.json": "citerec.hatten.nnselect.model:NNSelect",
    CONFIG: "citerec.hatten.static.model:StaticModel",
    "hatten.json": "citerec.hatten.model:HAtten",
}
"""Classes of dense models by their settings files, in the order in which these files are looked for."""


def open_model(folder: Path) -> DenseModel:
    """Open a folder that a dense model of any kind was saved in."""
    file = next((name for name in MODELS if (folder / name).is_file()), "hatten.json")
    model: DenseModel = resolve_name(MODELS[file]).open(folder)
    return model
