"""Averaged word vectors (Bhagavatula et al. 2018, section 3.1): untrained (`retriever=average`), or with
magnitudes trained by the batches, mining and loss of HAtten (NNSelect), as in Gu et al. 2022.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from citerec.base.errors import InputError
from citerec.base.files import digest_file, expand_user
from citerec.datasets.corpus import Corpus
from citerec.hatten.documents import DocumentReader, Vocabulary
from citerec.hatten.settings import NNSelectSettings
from citerec.hatten.static.model import StaticModel, StaticRetriever
from citerec.hatten.words.vectors import (
    Embeddings,
    inverse_document_frequency,
    load_initial_vectors,
    words_and_vectors,
)
from citerec.retrieval.settings import IndexConfig

if TYPE_CHECKING:
    from citerec.hatten.static.network import StaticEncoder


def average_encoder(word_vectors: NDArray[np.float32], vocabulary: Vocabulary) -> StaticEncoder:
    """The encoder of averages: a document is the normalised weighted sum of its fields' vectors, a field the
    normalised sum of word directions times magnitudes.

    word_vectors [V, D]: their lengths are the initial magnitudes. Directions are fixed; positive magnitudes
    and field weights, separate for queries and papers, are trainable (initial values: hatten.static.means).
    """
    from citerec.hatten.static.network import StaticEncoder  # torch

    lengths = np.linalg.norm(word_vectors, axis=1)
    encoder = StaticEncoder(word_vectors / np.maximum(lengths, 1e-8)[:, None], vocabulary)
    encoder.word_vectors.requires_grad_(False)
    encoder.mean.target_id = None  # distances from the marker do not count
    encoder.mean.distance_weight.requires_grad_(False)
    encoder.mean.init_word_weights(lengths)
    return encoder


@dataclass(frozen=True)
class NNSelect(StaticModel):
    """Averages with trained word magnitudes and field weights, saved like a static model."""

    settings_file = "nnselect.json"
    folder = "nnselect"
    title = "NNSelect model"
    description = """\
NNSelect embeds papers and queries as averages of word vectors with trained magnitudes (Bhagavatula et al.
2018)."""
    settings_class = NNSelectSettings

    @classmethod
    def untrained(
        cls, corpus: Corpus, settings: Any, pretrained: Embeddings
    ) -> tuple[Self, StaticEncoder, DocumentReader]:
        name, vocabulary, table = load_initial_vectors(pretrained, corpus, settings)
        encoder = average_encoder(table * inverse_document_frequency(corpus, vocabulary)[:, None], vocabulary)
        encoder.mean.dropout = settings.word_dropout
        model = cls(encoder.to_numpy(), vocabulary, settings.max_tokens, {"vectors": name})
        return model, encoder, DocumentReader(corpus, vocabulary, settings.max_tokens)


class NNSelectRetriever(StaticRetriever):
    """Nearest-neighbour search with averages of word vectors with trained magnitudes."""

    name = "nnselect"
    kind = NNSelect


class AverageRetriever(StaticRetriever):
    """Nearest-neighbour search with averages of pretrained word vectors."""

    name = "average"

    def __init__(
        self,
        embeddings: Embeddings,
        weighting: str = "idf",
        index: IndexConfig | None = None,
    ) -> None:
        """weighting: mean or idf."""
        if weighting not in ("mean", "idf"):
            raise InputError(f"retriever.weighting={weighting}: choose mean or idf")
        super(StaticRetriever, self).__init__(index)  # the model is made for a corpus
        self._embeddings, self._weighting = embeddings, weighting
        self._prepared = ""

    def prepare(self, corpus: Corpus) -> None:
        if self._prepared != corpus.fingerprint:
            vocabulary, table = words_and_vectors(self._embeddings.load(corpus))
            if self._weighting == "idf":
                table = table * inverse_document_frequency(corpus, vocabulary)[:, None]
            self.use(StaticModel(average_encoder(table, vocabulary).to_numpy(), vocabulary, 512, {}))
            self._prepared = corpus.fingerprint
        super().prepare(corpus)

    def fingerprint(self) -> dict[str, Any]:
        """Where the vectors come from, known before they are loaded; files count by their content."""
        unrelated = ("cache_dir", "workers")
        made = {key: value for key, value in vars(self._embeddings).items() if key not in unrelated}
        named = {key: expand_user(made[key]) for key in ("source", "words") if made.get(key)}
        made |= {key: digest_file(path) for key, path in named.items() if path.is_file()}
        return {"embeddings": made, "weighting": self._weighting}

    def _origin(self, corpus: Corpus) -> dict[str, Any]:
        self.prepare(corpus)  # loads the word vectors, which the index is checked against
        return {**super().fingerprint(), **super()._origin(corpus)}
