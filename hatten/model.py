"""HAtten as a model: trained, saved, opened and searched with; hatten.encoder is its network."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from citerec.base.errors import InputError
from citerec.datasets.corpus import Corpus
from citerec.hatten.dense import DenseModel
from citerec.hatten.documents import DocumentReader, Documents, Vocabulary
from citerec.hatten.encoder import HAttenEncoder, encode_documents
from citerec.hatten.retriever import WordsRetriever
from citerec.hatten.settings import EncoderConfig, EncoderTraining, HAttenSettings
from citerec.hatten.words.vectors import Embeddings, GloVe, load_initial_vectors
from citerec.retrieval.arrays import Floats
from citerec.retrieval.encoders.nets import (
    as_numpy,
    find_device,
    weights_hash,
    weights_to_numpy,
    weights_to_torch,
)
from citerec.retrieval.settings import IndexConfig
from citerec.training import hub

FORMAT, WORDS = "hatten-2", "words.json"
"""Format name, and file of the word list."""


@dataclass(frozen=True)
class HAtten(DenseModel):
    """An encoder with its vocabulary, which is all that encoding a corpus needs, and its training record."""

    settings_file = "hatten.json"
    folder = "hatten"
    title = "HAtten model"
    description = """\
HAtten finds candidates for a missing citation. It embeds the passage, together with the title and abstract of
the citing paper, and every paper that may be cited, and recommends the nearest papers by cosine similarity
(Gu, Gao and Hahnloser, [ECIR 2022](https://arxiv.org/abs/2112.01206))."""
    tags = ("hatten", "sentence-similarity")
    settings_class = HAttenSettings

    encoder: HAttenEncoder
    vocabulary: Vocabulary
    about: dict[str, Any]

    @classmethod
    def default_pretrained(cls, settings: EncoderTraining, seed: int) -> Embeddings:
        return GloVe()

    @classmethod
    def untrained(
        cls, corpus: Corpus, settings: HAttenSettings, pretrained: Embeddings
    ) -> tuple[Self, HAttenEncoder, DocumentReader]:
        name, vocabulary, table = load_initial_vectors(pretrained, corpus, settings)
        encoder = build_encoder(settings.encoder, table, vocabulary)
        reader = DocumentReader(corpus, vocabulary, settings.encoder.max_tokens)
        return cls(encoder, vocabulary, {"vectors": name}), encoder, reader

    def retriever(self, index: IndexConfig | None = None) -> HAttenRetriever:
        """Nearest-neighbour search with this model."""
        return HAttenRetriever(self, index=index)

    def write(self, folder: Path) -> None:
        hub.write_json(folder / self.settings_file, {"format": FORMAT, "config": asdict(self.encoder.config)})
        hub.write_json(folder / WORDS, self.vocabulary.words)
        hub.write_weights(folder / hub.WEIGHTS, weights_to_numpy(self.encoder))

    @classmethod
    def open(cls, place: str | Path) -> Self:
        """As Pretrained.open."""
        if Path(place).is_file():
            raise InputError(
                f"{place}: a file, not a {cls.title} folder; a published checkpoint needs its word list: "
                "retriever.vocabulary=FILE"
            )
        return super().open(place)

    @classmethod
    def read(cls, folder: Path, about: dict[str, Any]) -> Self:
        settings = hub.read_json(folder / cls.settings_file, dict)
        if settings.get("format") != FORMAT:
            raise InputError(f"{folder / cls.settings_file}: not a {cls.title} in the format {FORMAT}")
        weights = weights_to_torch(hub.read_weights(folder / hub.WEIGHTS))
        with hub.check_consistent(folder):
            vocabulary = Vocabulary(hub.read_json(folder / WORDS, list))
            config = EncoderConfig(**settings["config"])
            encoder = build_encoder(config, weights["word_vectors"].numpy(), vocabulary)
            encoder.load_state_dict(weights)
        return cls(encoder.eval(), vocabulary, about)


def build_encoder(
    config: EncoderConfig, word_vectors: NDArray[np.float32], vocabulary: Vocabulary
) -> HAttenEncoder:
    """Build an encoder with random weights over a vocabulary and its vectors [V, D]; else InputError."""
    if len(vocabulary) != len(word_vectors):
        raise InputError(f"{len(vocabulary):,} words for {len(word_vectors):,} vectors")
    return HAttenEncoder(config, word_vectors)


class HAttenRetriever(WordsRetriever):
    """Nearest-neighbour search with HAtten."""

    name = "hatten"

    def __init__(
        self,
        checkpoint: HAtten | str | Path | None,
        vocabulary: str | Path | None = None,
        arithmetic: str = "auto",
        index: IndexConfig | None = None,
        cache_dir: str | Path | None = None,
    ) -> None:
        """checkpoint: a model, or where it is: saved by citerec train model=hatten, or published together
        with the word list `vocabulary`; hatten-acl200 is downloaded to `cache_dir` with its word list.

        arithmetic: auto, float32 or bfloat16. Raises InputError if a file is missing or of another kind.
        """
        from citerec.hatten.published.checkpoint import PUBLISHED, load_reference_model

        super().__init__(index)
        if isinstance(checkpoint, str | Path) and (vocabulary is not None or str(checkpoint) == PUBLISHED):
            encoder, words = load_reference_model(checkpoint, vocabulary, cache_dir)
            self.model = HAtten(encoder, words, {"checkpoint": str(checkpoint), "tokenizer": "reference"})
        else:
            self.model = HAtten.opened(checkpoint)
        self.checkpoint = None if isinstance(checkpoint, HAtten) else checkpoint
        self.encoder, self.vocabulary = self.model.encoder, self.model.vocabulary
        self.max_tokens, self.about = self.model.encoder.config.max_tokens, self.model.about
        device = find_device()
        self.encoder.to(device)
        self.encoder.adapt(device, arithmetic)

    def fingerprint(self) -> dict[str, Any]:
        return {"weights": weights_hash(self.encoder), "arithmetic": str(self.encoder.precision)}

    def encode(self, documents: Documents) -> Floats:
        return as_numpy(self.encoder.encode)(documents)

    def encode_papers(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        return encode_documents(self.encoder, self._reader.papers, rows)
