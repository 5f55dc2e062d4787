"""What ranks the papers of a library: the model that it names."""

from __future__ import annotations

from pathlib import Path

from datasets.corpus import Corpus
from datasets.errors import InputError
from hatten.checkpoint import FILE
from hatten.retriever import HAttenRetriever, StaticRetriever
from hatten.static import CONFIG, FOLDER
from retrieval.base import Retriever
from retrieval.bm25 import BM25

BOX = Path(__file__).parent / "box"
"""The model that comes with the program."""
PLAIN = "bm25"
"""The name of BM25 as a model: nothing learned."""


def open_retriever(model: str, corpus: Corpus) -> Retriever:
    """The retriever of a model, not yet indexed: "" for the one in the box, `bm25`, or a folder or file.

    corpus: what it will rank; where it has training contexts, they are used.
    Raises InputError if there is no such model.
    """
    if model == PLAIN:
        return BM25(query=("title", "context"))
    folder = Path(model).expanduser() if model else BOX
    for static in (folder, folder / FOLDER):
        if (static / CONFIG).is_file():
            return StaticRetriever(static)
    if folder.suffix == ".ckpt" or (folder / FILE).is_file():
        return HAttenRetriever(folder)
    raise InputError(
        f"model={model}: no model is there; name {PLAIN}, a hatten.ckpt, or the folder that "
        "train.py model=static or model=ranker saved"
    )
