"""The ranking model of a library. Each generation stores its model next to its index:

model/   model.json   format, kind and origin
         static/      a static model (hatten.static.model), or
         hatten/      a HAtten model (hatten.model)
         ranker/      a learned ranker (rerank.ranker.model) over that model and BM25
         networks/    networks that this ranks with, too (retrieval.networks)
"""

from __future__ import annotations

import importlib.util
import json
import os
from functools import lru_cache
from pathlib import Path

from citerec.base.errors import InputError
from citerec.base.files import expand_user, link_or_copy
from citerec.datasets.tokenize import TOKENIZER
from citerec.hatten.static.model import CONFIG, StaticModel
from citerec.hatten.trained import trained_retriever
from citerec.rerank.ranker.model import MODEL as RANKING
from citerec.rerank.ranker.model import Ranker, RankingModel
from citerec.retrieval.base import OtherIndex, Retriever
from citerec.retrieval.lexical.bm25 import BM25
from citerec.retrieval.networks.encoder import ENCODER, NetworkRetriever
from citerec.retrieval.networks.networks import MANIFEST, Networks
from citerec.retrieval.networks.store import VectorStore
from citerec.retrieval.settings import IndexConfig
from citerec.training.hub import DENSE as IN_RANKER
from citerec.training.hub import download_model, is_hub_id, write_json

BUILT_IN = Path(__file__).parents[1] / "builtin"
"""Folder of the built-in model, named by `model` "" or `builtin`."""
WITHOUT = "static"
"""`model` that names the built-in model without its networks."""
NETWORKS = "networks"
ENCODED, ENCODED_LANGUAGES = "encoded", "encoded-languages"
"""Folders of a library with what its networks have made of the papers (retrieval.networks.store)."""
LANGUAGES = "citerec_languages"
"""Package with the encoder of passages that are not in English (library.builtin.languages)."""
MOST_ENCODED = 50_000
"""Most papers of a library that networks read whole; of a larger one, they read the first of an answer."""
HATTEN = "hatten.json"
"""Settings file of HAtten (hatten.model), which needs torch."""
PLAIN, DENSE, RANKED = "bm25", "dense", "ranker"
"""Kinds of models. `bm25` is also a valid `model`."""
OWN = ("", BUILT_IN.name, WITHOUT, PLAIN)
"""What `model` names before any folder."""
FORMAT, ABOUT = 1, "model.json"
INDEX = IndexConfig(device="cpu")
"""Single queries gain nothing from a GPU."""


def install_model(model: str, folder: Path) -> None:
    """Copy a model to a new folder.

    model: "" for the built-in model, WITHOUT, `bm25`, a file, a folder or a hub id. Raises InputError if
    there is no such model.
    """
    files, kind = model_files(model)
    if manifest := files.get(f"{NETWORKS}/{MANIFEST}"):
        Networks.open(manifest.parent).check()
    folder.mkdir()
    for name, source in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        link_or_copy(source, folder / name)
    write_json(folder / ABOUT, {"format": FORMAT, "kind": kind, "from": model})


def model_files(model: str) -> tuple[dict[str, Path], str]:
    """Return the files to copy, by name in a model's folder, and its kind. Raises like install_model."""
    if model == PLAIN:
        return {}, PLAIN
    path = BUILT_IN if model in OWN else expand_user(model)
    if not os.path.exists(path) and is_hub_id(model):
        path = download_model(model, f"{CONFIG} or {HATTEN}", "model")
    dense = _dense_files(path)
    if not os.path.exists(path):
        raise InputError(f"model={model}: no such folder")
    if not dense:
        if os.path.isfile(path / RANKING):
            hint = "it only has a ranker; give the output folder of citerec train model=ranker"
        else:
            hint = f"give {PLAIN}, an output folder of citerec train model=static, hatten or ranker, or the "
            hint += "hub id of a static model or HAtten"
        raise InputError(f"model={model or path}: has no retrieval model; {hint}")
    ranked, networks = path / RankingModel.folder, path / NETWORKS
    if not os.path.isdir(ranked):
        return dense, DENSE
    parts = {RankingModel.folder: ranked}
    if os.path.isdir(networks) and model != WITHOUT:
        parts[NETWORKS] = networks
    files = {
        f"{name}/{file.name}": file
        for name, part in parts.items()
        for file in part.iterdir()
        if os.path.isfile(file)
    }
    return {**dense, **files}, RANKED


def _dense_files(path: Path) -> dict[str, Path]:
    """Return the files of a static model or HAtten, by name; empty if there is none."""
    static, hatten = StaticModel.folder, "hatten"
    for folder in (path, path / static, path / hatten, path / RankingModel.folder / IN_RANKER):
        if os.path.isfile(folder / HATTEN):
            return {hatten: folder}
        if os.path.isfile(folder / CONFIG):
            return {static: folder}
    return {}


@lru_cache(maxsize=1)
def _open_networks(folder: Path) -> Networks:
    networks = Networks.open(folder)
    networks.load()
    return networks


def open_languages(library: Path) -> tuple[NetworkRetriever, RankingModel | None] | None:
    """Return the encoder of passages that are not in English, not yet indexed, and the ranker with it, if it
    has its own; None without its package. Raises InputError for one of another version."""
    spec = importlib.util.find_spec(LANGUAGES)
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / NETWORKS
    networks, ranked = _open_networks(folder), folder / RankingModel.folder
    store = VectorStore(library / ENCODED_LANGUAGES, networks.identity, networks.dim)
    try:
        model = RankingModel.open(ranked) if os.path.isdir(ranked) else None
    except OtherIndex:
        raise InputError(f"{folder.parent}: made for another version of citerec; install its own") from None
    return NetworkRetriever(networks, store, whole=False), model


def open_model(folder: Path, encoded: Path | None = None) -> Retriever:
    """Return the retriever of an installed model, not yet indexed. Raises InputError for another version.

    encoded: folder that keeps what networks make of papers; None: they are kept in memory. The networks'
    `index` and `load` read no papers.
    """
    description = json.loads((folder / ABOUT).read_text("utf-8"))
    kind = description["kind"]
    if description["format"] != FORMAT:
        raise InputError(f"{folder}: the model has another version")
    if kind == PLAIN:
        return BM25(query=("title", "context"))
    dense = trained_retriever(folder, INDEX)
    if dense.about.get("tokenizer", TOKENIZER) != TOKENIZER:
        raise InputError(
            f"model={description['from']}: was trained on texts split into words in another way than a "
            "library's; choose another model"
        )
    if kind == DENSE:
        return dense
    ranker = RankingModel.open(folder / RankingModel.folder)
    if ranker.networks is None or not os.path.isdir(folder / NETWORKS):
        return Ranker.over(dense, ranker)
    networks = Networks.open(folder / NETWORKS)
    networks.load()
    store = VectorStore(encoded, networks.identity, networks.dim)
    return Ranker.over(dense, ranker, {ENCODER: NetworkRetriever(networks, store, whole=False)})
