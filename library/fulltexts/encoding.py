"""Vectors of passages by the model that a library is ranked with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from citerec.datasets.columns import Ragged
from citerec.datasets.tokenize import WordTable, default_tokenize
from citerec.hatten.documents import ABSENT_TYPE, ABSTRACT, CONTEXT, Documents
from citerec.hatten.retriever import WordsRetriever
from citerec.retrieval.arrays import Floats


class WordsEncoder:
    """Encodes passages as a model of words encodes abstracts, and queries as it encodes contexts."""

    def __init__(self, model: WordsRetriever) -> None:
        self._model, self.dim = model, model.dim
        self.name = " ".join(map(str, model.fingerprint().values()))

    def encode(self, texts: Sequence[str]) -> Floats:
        return self._encode(texts, ABSTRACT)

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        """Encode contexts, with or without TARGET_MARKER, [n] -> [n, dim]."""
        return self._encode(texts, CONTEXT)

    def _encode(self, texts: Sequence[str], kind: int) -> Floats:
        table = WordTable(default_tokenize)
        tokens = table.ids(texts)
        ids = self._model.vocabulary.lookup(table.words().to_pylist())[tokens.values]
        known = ids >= 0
        before = np.concatenate([[0], np.cumsum(known)])
        offsets = before[tokens.offsets]
        has_words = np.diff(offsets) > 0
        number = np.where(has_words, np.cumsum(has_words) - 1, -1)
        paragraphs = Ragged(ids[known], np.unique(offsets))
        types = np.where(has_words, kind, ABSENT_TYPE)
        return self._model.encode(Documents(paragraphs, number[:, None], types[:, None]))
