"""The ranking model of a library. Each generation stores its model next to its index:

model/   model.json   format, kind and origin
         static/      a static model (hatten.static), or
         hatten.ckpt  a HAtten checkpoint, or the files of a published one (training.hub)
         ranker/      a learned ranker (rerank.ranker) over that model and BM25
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from citerec.datasets.errors import InputError
from citerec.hatten.static import CONFIG, FILE, FOLDER
from citerec.hatten.words_retriever import trained_retriever
from citerec.rerank.ranker import MODEL as RANKING
from citerec.rerank.ranker import SAVED, Ranker, RankingModel
from citerec.retrieval.base import Retriever
from citerec.retrieval.bm25 import BM25
from citerec.retrieval.settings import IndexConfig
from citerec.training.checkpoint import find_saved
from citerec.training.hub import download_model, find_model, is_hub_id, write_json

BUILT_IN = Path(__file__).parent / "builtin"
"""Folder of the built-in model."""
HATTEN = "hatten.json"
"""Settings file of a published HAtten (hatten.checkpoint)."""
PLAIN, DENSE, RANKED = "bm25", "dense", "ranker"
"""Kinds of models. `bm25` is also a valid `model`."""
FORMAT, ABOUT = 1, "model.json"
INDEX = IndexConfig(device="cpu")
"""Single queries gain nothing from a GPU."""


def install_model(model: str, ranker: str, folder: Path) -> None:
    """Copy a model to a new folder.

    model: "" for the built-in model, `bm25`, a file, a folder or a hub id. ranker: folder or hub id of a
    ranker over it, if the model does not include one. Raises InputError if there is no such model.
    """
    files, kind = model_files(model, ranker)
    folder.mkdir()
    for name, source in files.items():
        link_or_copy(source, folder / name)
    write_json(folder / ABOUT, {"format": FORMAT, "kind": kind, "from": model})


def model_files(model: str, ranker: str = "") -> tuple[dict[str, Path], str]:
    """Return the files to copy, by name in a model's folder, and its kind. Raises like install_model."""
    if model == PLAIN and not ranker:
        return {}, PLAIN
    path = Path(model).expanduser() if model else BUILT_IN
    if not path.exists() and is_hub_id(model):
        path = download_model(model, f"{CONFIG} or {HATTEN}", "model")
    dense = _dense_files(path)
    if not dense:
        if (path / RANKING).is_file():
            hint = "it only has a ranker; give it as ranker=, and the model it was trained over as model="
        else:
            hint = f"give {PLAIN}, a hatten.ckpt, an output folder of citerec train model=static or "
            hint += "model=ranker, or a hub id of a static model or HAtten"
        raise InputError(f"model={model or path}: has no retrieval model; {hint}")
    ranker_folder = path / SAVED
    if ranker:
        ranker_folder = find_model(find_saved(Path(ranker).expanduser(), SAVED), RANKING, RankingModel.title)
    return ({**dense, SAVED: ranker_folder}, RANKED) if ranker_folder.is_dir() else (dense, DENSE)


def _dense_files(path: Path) -> dict[str, Path]:
    """Return the files of a static model or HAtten, by name; empty if there is none."""
    for static in (path, path / FOLDER):
        if (static / CONFIG).is_file():
            return {FOLDER: static}
    for file in (path, path / FILE):
        if file.is_file() and file.suffix == ".ckpt":
            return {FILE: file}
    if (path / HATTEN).is_file():
        return {file.name: file for file in path.iterdir() if file.suffix in (".json", ".safetensors")}
    return {}


def link_or_copy(source: str | Path, to: str | Path) -> None:
    """Copy a file or folder, using hard links if possible."""
    if Path(source).is_dir():  # not shutil.copytree, whose error does not tell that a disk is full
        Path(to).mkdir()
        for part in Path(source).iterdir():
            link_or_copy(part, Path(to) / part.name)
        return
    try:
        os.link(Path(source).resolve(), to)
    except OSError:
        shutil.copyfile(source, to)


def open_model(folder: Path) -> Retriever:
    """Return the retriever of an installed model, not yet indexed. Raises InputError for another version."""
    about = json.loads((folder / ABOUT).read_text("utf-8"))
    kind = about["kind"]
    if about["format"] != FORMAT:
        raise InputError(f"{folder}: the model has another version")
    if kind == PLAIN:
        return BM25(query=("title", "context"))
    dense = trained_retriever(folder, INDEX)
    if kind == DENSE:
        return dense
    words, contexts = BM25(), BM25(contexts=100, k1=2.0, b=0.5)
    parts = {"dense": dense, "bm25": words, "bm25_contexts": contexts}  # as in conf/retriever/ranker.yaml
    return Ranker(folder / SAVED, parts)
