"""What ranks the papers of a library. Each generation of a library has its model beside its index:

model/   model.json   format, kind and what it was copied from
         static/      a static model (hatten.static), or
         hatten.ckpt  a HAtten
         ranker/      a learned ranker (rerank.ranker) over that model and BM25
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from datasets.corpus import Corpus
from datasets.errors import InputError
from datasets.files import written_folder
from hatten.static import CONFIG, FILE, FOLDER
from hatten.words_retriever import trained_retriever
from rerank.ranker import SAVED, Ranker
from retrieval.base import Retriever
from retrieval.bm25 import BM25
from retrieval.settings import IndexConfig

BOX = Path(__file__).parent / "box"
"""The model that comes with the program."""
PLAIN, DENSE, RANKED = "bm25", "dense", "ranker"
"""Kinds of models; bm25 is also the name of the one that has learned nothing."""
FORMAT, ABOUT = 1, "model.json"
INDEX = IndexConfig(device="cpu")
"""Single questions are not worth a GPU."""


def install_model(model: str, folder: Path) -> None:
    """Copy a model to a folder, whole or not at all: "" for the one in the box, `bm25`, or a folder or file.

    Raises InputError if there is no such model.
    """
    copied, kind = model_files(model)
    with written_folder(folder) as part:
        for name, source in copied.items():
            _linked(source, part / name)
        about = {"format": FORMAT, "kind": kind, "from": model or "the box"}
        (part / ABOUT).write_text(json.dumps(about, indent=1) + "\n", "utf-8")


def model_files(model: str) -> tuple[dict[str, Path], str]:
    """What is to be copied, by its name in a model's folder, and the kind; fails as install_model."""
    if model == PLAIN:
        return {}, PLAIN
    place = Path(model).expanduser() if model else BOX
    for static in (place, place / FOLDER):
        if (static / CONFIG).is_file():
            return _ranked({FOLDER: static}, place)
    for file in (place, place / FILE):
        if file.is_file() and file.suffix == ".ckpt":
            return _ranked({FILE: file}, place)
    raise InputError(
        f"model={model or place}: there is no model; name {PLAIN}, a hatten.ckpt, or the folder that "
        "train.py model=static or model=ranker saved"
    )


def _ranked(dense: dict[str, Path], place: Path) -> tuple[dict[str, Path], str]:
    return ({**dense, SAVED: place / SAVED}, RANKED) if (place / SAVED).is_dir() else (dense, DENSE)


def copy_model(folder: Path, to: Path) -> None:
    """An installed model for another generation, by links where the disk allows them."""
    with written_folder(to) as part:
        shutil.copytree(folder, part, copy_function=_linked, dirs_exist_ok=True)


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
    if known and kind == PLAIN:
        return BM25(query=("title", "context"))
    if known and kind == DENSE:
        return trained_retriever(folder, INDEX)
    if known and kind == RANKED:  # the parts as in conf/retriever/ranker.yaml
        parts = {
            "dense": trained_retriever(folder, INDEX),
            "bm25": BM25(backend="numba"),
            "bm25_contexts": BM25(contexts=100, k1=2.0, b=0.5, backend="numba"),
        }
        return Ranker(folder / SAVED, parts)
    raise InputError(f"{folder}: a model of another version; build the library again")
