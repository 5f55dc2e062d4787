"""Opens what `checkpoint=` names. Only the static model does without torch: others are imported late."""

from __future__ import annotations

from pathlib import Path

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
            "retriever=ranker, or trained, needs checkpoint=FOLDER, the output of citerec train model=static "
            "or hatten, or a ranker=FOLDER that was saved with such a model"
        )
    if is_static(checkpoint):
        return StaticRetriever(checkpoint, index)
    from citerec.hatten.model import HAttenRetriever  # torch

    return HAttenRetriever(checkpoint, index=index)


def open_model(place: str | Path) -> DenseModel:
    """Open a folder that a dense model of any kind was saved in."""
    folder = Path(place)
    if (folder / "encoder.json").is_file():
        from citerec.hatten.biencoder.model import BiEncoder

        return BiEncoder.open(folder)
    if (folder / "nnselect.json").is_file():
        from citerec.hatten.nnselect.model import NNSelect

        return NNSelect.open(folder)
    if is_static(folder):
        return StaticModel.open(folder)
    from citerec.hatten.model import HAtten

    return HAtten.open(folder)


def is_static(place: str | Path) -> bool:
    """Whether a folder contains a static model."""
    return (find_saved(place, StaticModel.folder) / CONFIG).is_file()
