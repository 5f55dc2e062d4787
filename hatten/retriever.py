"""Nearest-neighbour retrieval by cosine with torch encoders such as HAtten (Gu et al. 2022, 4.1.3)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from citerec.datasets.errors import InputError
from citerec.hatten.checkpoint import PUBLISHED, open_model, save_model
from citerec.hatten.documents import Documents
from citerec.hatten.encoder import Encoder
from citerec.hatten.static import FILE
from citerec.hatten.words_retriever import WordsRetriever
from citerec.retrieval.arrays import Floats
from citerec.retrieval.nets import as_numpy, precision, weights_hash
from citerec.retrieval.settings import IndexConfig


class NetRetriever(WordsRetriever):
    """A WordsRetriever with a torch encoder."""

    encoder: Encoder

    @property
    def dim(self) -> int:
        return self.encoder.dim

    def fingerprint(self) -> dict[str, Any]:
        return {"weights": weights_hash(self.encoder), "arithmetic": str(self.encoder.precision)}

    def encode(self, documents: Documents) -> Floats:
        return as_numpy(self.encoder.encode)(documents)


class HAttenRetriever(NetRetriever):
    """Nearest-neighbour search with HAtten."""

    name = "hatten"

    def __init__(
        self,
        checkpoint: str | Path | None,
        vocabulary: str | Path | None = None,
        arithmetic: str = "auto",
        index: IndexConfig | None = None,
        cache_dir: str | Path = ".cache",
    ) -> None:
        """checkpoint: saved by train.py model=hatten, or published together with the word list `vocabulary`;
        hatten-acl200 is downloaded to `cache_dir` with its word list.

        arithmetic: auto, float32 or bfloat16. Raises InputError if a file is missing or of another kind.
        """
        super().__init__(index)
        if checkpoint is None:
            raise InputError(
                "retriever=hatten needs checkpoint=FILE, the hatten.ckpt of citerec train model=hatten, "
                f"or checkpoint={PUBLISHED}, which is downloaded"
            )
        self.model = open_model(checkpoint, vocabulary, cache_dir)
        self.encoder, self.vocabulary = self.model.encoder, self.model.vocabulary
        self.max_tokens = self.model.encoder.config.max_tokens
        self.encoder.precision = precision(arithmetic)
        self.about, self.checkpoint = self.model.about, checkpoint

    def save_model(self, folder: Path) -> None:
        save_model(self.model, folder / FILE)
