"""What ranks the papers of a library. Each generation of a library has its model beside its index:

model/   model.json   format, kind and what it was copied from
         static/      a static model (hatten.static), or
         hatten.ckpt  a HAtten, or the files of one that was published (training.hub)
         ranker/      a learned ranker (rerank.ranker) over that model and BM25
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from datasets.corpus import Corpus
from datasets.errors import InputError
from hatten.static import CONFIG, FILE, FOLDER
from hatten.words_retriever import trained_retriever
from rerank.ranker import MODEL as RANKING
from rerank.ranker import SAVED, Ranker, RankingModel
from retrieval.base import Retriever
from retrieval.bm25 import BM25
from retrieval.settings import IndexConfig
from training.checkpoint import find_saved
from training.hub import download_model, find_model, is_hub_id, write_json

BOX = Path(__file__).parent / "box"
"""The model that comes with the program."""
HATTEN = "hatten.json"
"""In the folder of a published HAtten (hatten.checkpoint)."""
PLAIN, DENSE, RANKED = "bm25", "dense", "ranker"
"""Kinds of models; bm25 is also the name of the one that has learned nothing."""
FORMAT, ABOUT = 1, "model.json"
INDEX = IndexConfig(device="cpu")
"""Single questions are not worth a GPU."""


def install_model(model: str, ranker: str, folder: Path) -> None:
    """Copy a model to a new folder.

    model: "" for the one in the box, `bm25`, a file, a folder, or an id on the hub. ranker: a folder or id of
    a ranker over it, where it brings none. Raises InputError if there is no such model.
    """
    copied, kind = model_files(model, ranker)
    folder.mkdir()
    for name, source in copied.items():
        _linked(source, folder / name)
    write_json(folder / ABOUT, {"format": FORMAT, "kind": kind, "from": model or "the box"})


def model_files(model: str, ranker: str = "") -> tuple[dict[str, Path], str]:
    """What is to be copied, by its name in a model's folder, and the kind; fails as install_model."""
    if model == PLAIN and not ranker:
        return {}, PLAIN
    place = Path(model).expanduser() if model else BOX
    if not place.exists() and is_hub_id(model):
        place = download_model(model, f"{CONFIG} or {HATTEN}", "model")
    dense = _dense_files(place)
    if not dense:
        if (place / RANKING).is_file():
            hint = "it is a ranker alone: give it as ranker=, and as model= what it was trained over"
        else:
            hint = f"name {PLAIN}, a hatten.ckpt, a folder that train.py model=static or model=ranker saved, "
            hint += "or a static model or HAtten on the hub"
        raise InputError(f"model={model or place}: there is no model to find papers with; {hint}")
    own = place / SAVED
    if ranker:
        own = find_model(find_saved(Path(ranker).expanduser(), SAVED), RANKING, RankingModel.title)
    return ({**dense, SAVED: own}, RANKED) if own.is_dir() else (dense, DENSE)


def _dense_files(place: Path) -> dict[str, Path]:
    """Of a static model or HAtten; empty if there is none."""
    for static in (place, place / FOLDER):
        if (static / CONFIG).is_file():
            return {FOLDER: static}
    for file in (place, place / FILE):
        if file.is_file() and file.suffix == ".ckpt":
            return {FILE: file}
    if (place / HATTEN).is_file():
        return {file.name: file for file in place.iterdir() if file.suffix in (".json", ".safetensors")}
    return {}


def copy_model(folder: Path, to: Path) -> None:
    """An installed model for another generation, by links where the disk allows them."""
    shutil.copytree(folder, to, copy_function=_linked)


def _linked(source: str | Path, to: str | Path) -> None:
    if Path(source).is_dir():
        shutil.copytree(source, to, copy_function=_linked)
        return
    try:
        os.link(Path(source).resolve(), to)
    except OSError:
        shutil.copyfile(source, to)


def open_model(folder: Path, corpus: Corpus) -> Retriever:
    """The retriever of an installed model, not yet indexed; InputError if the model is damaged.

    corpus: what it will rank; where it has training contexts, they are used.
    """
    try:
        about = json.loads((folder / ABOUT).read_text("utf-8"))
        kind, known = about["kind"], about["format"] == FORMAT
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{folder / ABOUT}: missing or damaged ({error}); build the library again") from None
    if not known or kind not in (PLAIN, DENSE, RANKED):
        raise InputError(f"{folder}: a model of another version; build the library again")
    if kind == PLAIN:
        return BM25(query=("title", "context"))
    dense = trained_retriever(folder, INDEX)
    if kind == DENSE:
        return dense
    words, contexts = BM25(backend="numba"), BM25(contexts=100, k1=2.0, b=0.5, backend="numba")
    parts = {"dense": dense, "bm25": words, "bm25_contexts": contexts}  # as in conf/retriever/ranker.yaml
    return Ranker(folder / SAVED, parts)
