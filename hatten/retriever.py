"""HAtten as a retriever: the nearest papers to a context by cosine (Gu et al. 2022, section 4.1.3)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from datasets.errors import InputError
from datasets.store import Corpus
from hatten.checkpoint import load_model, load_reference_model
from hatten.documents import DocumentReader
from hatten.encode import encode, encode_queries, precision
from retrieval.base import Retriever
from retrieval.dense import search_exact
from retrieval.ranking import Ranking


class HAttenRetriever(Retriever):
    """Encodes every candidate once; a query is encoded and compared with all of them."""

    name = "hatten"

    def __init__(
        self, checkpoint: str | Path | None, vocabulary: str | Path | None = None, arithmetic: str = "auto"
    ) -> None:
        """checkpoint: what train.py model=hatten saved, or a published one with its word list, `vocabulary`.

        arithmetic: auto, float32 or bfloat16. Raises InputError when a file is missing or of another kind.
        """
        super().__init__()
        if checkpoint is None:
            raise InputError(
                "retriever=hatten needs checkpoint=FILE, the hatten.ckpt that train.py model=hatten saved"
            )
        self.model = (
            load_model(checkpoint) if vocabulary is None else load_reference_model(checkpoint, vocabulary)
        )
        self.model.encoder.precision = precision(arithmetic)

    def _index(self, corpus: Corpus) -> None:
        encoder = self.model.encoder
        self._reader = DocumentReader(corpus, self.model.vocabulary, encoder.config.max_tokens)
        self._candidates = np.flatnonzero(corpus.is_candidate)
        self._vectors = encode(encoder, self._reader.papers, self._candidates, "papers")

    def _search(self, contexts: NDArray[np.int64], k: int) -> Ranking:
        queries = encode_queries(self.model.encoder, self._reader, contexts)
        found = search_exact(queries, self._vectors, k)
        rows = np.where(found.papers >= 0, self._candidates[found.papers], -1).astype(np.int32)
        return Ranking(rows, found.scores)
