"""A static embedding model: `citerec train model=static`, `retriever=static checkpoint=OUT`.

A weighted mean (hatten.static.means) in place of HAtten's two levels: trained word vectors, with a weight per
word, per distance from the citation marker and per paragraph type. It encodes tens of thousands of papers per
second without torch. Out-of-vocabulary words, such as names from other fields, get random vectors by hash, so
that texts sharing them are closer (the hashing trick, Weinberger et al. 2009).

A saved model is a folder:

    config.json         format and sizes
    vocabulary.json     words, most frequent first
    model.safetensors   weights; vectors [V, D] in 32, 16 or 8 bits, the latter with a scale per word
    about.json          training record, also shown in the model card, README.md (training.hub)
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from citerec.base.errors import InputError
from citerec.datasets.records import MARKER_WORDS, TARGET_WORD
from citerec.hatten.dense import DenseModel
from citerec.hatten.documents import DocumentReader, Documents, Vocabulary
from citerec.hatten.retriever import WordsRetriever
from citerec.hatten.settings import EncoderTraining, StaticSettings
from citerec.hatten.static.means import MeanEncoder, StoredVectors
from citerec.retrieval.arrays import Floats
from citerec.retrieval.settings import IndexConfig
from citerec.training import hub

if TYPE_CHECKING:
    from citerec.datasets.corpus import Corpus
    from citerec.hatten.static.network import StaticEncoder
    from citerec.hatten.words.vectors import Embeddings

FORMAT = "static-1"
CONFIG, WORDS = "config.json", "vocabulary.json"
BUCKETS = 16_384
"""Number of random vectors for unknown words."""


class OpenVocabulary(Vocabulary):
    """A vocabulary that hashes unknown words, those with a letter or digit, to BUCKETS additional ids."""

    def lookup(self, store_words: Iterable[str]) -> NDArray[np.int32]:
        words = list(store_words)
        ids = super().lookup(words)
        for i in np.flatnonzero(ids < 0).tolist():
            if words[i] not in MARKER_WORDS and any(map(str.isalnum, words[i])):
                ids[i] = len(self) + zlib.crc32(words[i].encode("utf-8", "surrogatepass")) % BUCKETS
        return ids


@dataclass(frozen=True)
class StaticModel(DenseModel):
    """An encoder with its vocabulary, most frequent words first, and its training record `about`."""

    settings_file = CONFIG
    folder = "static"
    title = "static model"
    description = """\
A static embedding model for citation recommendation. Weighted means of word vectors embed the passage with a
missing citation, together with the title and abstract of the citing paper, and every paper that may be cited.
The nearest papers by cosine similarity are recommended. It encodes tens of thousands of papers per second on
a CPU."""
    tags = ("static-embeddings", "sentence-similarity")
    settings_class: ClassVar[type[EncoderTraining]] = StaticSettings

    encoder: MeanEncoder
    vocabulary: Vocabulary
    max_tokens: int
    """maximum words of a paragraph"""
    about: dict[str, Any]
    dtype: str = "float32"
    """type of the saved vectors: float32, float16 or int8 (integers up to ±127, and a scale per word)"""
    unknown_weight: float = 0.0
    """weight of out-of-vocabulary words; 0: ignore them"""
    near: tuple[int, ...] = ()
    """known words on each side of the marker, one extra query paragraph per entry"""

    @classmethod
    def untrained(
        cls, corpus: Corpus, settings: StaticSettings, pretrained: Embeddings
    ) -> tuple[Self, StaticEncoder, DocumentReader]:
        from citerec.hatten.static.network import StaticEncoder  # torch, which searching does not need
        from citerec.hatten.words.vectors import inverse_document_frequency, load_initial_vectors

        name, vocabulary, table = load_initial_vectors(pretrained, corpus, settings)
        encoder = StaticEncoder(table, vocabulary, len(settings.near))
        encoder.mean.init_word_weights(inverse_document_frequency(corpus, vocabulary))
        encoder.mean.dropout = settings.word_dropout
        model = cls(
            encoder.to_numpy(),
            vocabulary,
            settings.max_tokens,
            {"vectors": name},
            unknown_weight=settings.unknown_weight,
            near=settings.near,
        )
        return model, encoder, DocumentReader(corpus, vocabulary, settings.max_tokens, settings.near)

    def with_encoder(self, encoder: Any, about: dict[str, Any]) -> Self:
        return replace(self, encoder=encoder.to_numpy(), about=about)

    def retriever(self, index: IndexConfig | None = None) -> StaticRetriever:
        """Nearest-neighbour search with this model."""
        return StaticRetriever(self, index)

    def write(self, folder: Path) -> None:
        weights: dict[str, NDArray[Any]] = {**self.encoder.weights()}
        vectors = weights["word_vectors"]
        if self.dtype == "int8":
            weights["scales"] = np.maximum(np.abs(vectors).max(1) / np.float32(127), np.float32(1e-12))
            vectors = (vectors / weights["scales"][:, None]).round()
        weights["word_vectors"] = vectors.astype(self.dtype)
        config = {
            "format": FORMAT,
            "dim": self.encoder.dim,
            "words": len(self.vocabulary),
            "vectors": self.dtype,
            "max_tokens": self.max_tokens,
            "unknown_weight": self.unknown_weight,
            "near": self.near,
        }
        hub.write_json(folder / self.settings_file, config)
        words = json.dumps(self.vocabulary.words, ensure_ascii=False, separators=(",", ":"))
        (folder / WORDS).write_text(words + "\n", "utf-8")
        hub.write_weights(folder / hub.WEIGHTS, weights)

    @classmethod
    def read(cls, folder: Path, about: dict[str, Any]) -> Self:
        """Read a model; its vectors stay as they are in the file. Folders with the same files, such as hard
        links in several libraries, give the same model."""
        files = (folder / name for name in (hub.ABOUT, cls.settings_file, WORDS, hub.WEIGHTS))
        content = cls.folder, *(_digest(file) if file.is_file() else "" for file in files)
        if (model := _opened.get(content)) is None:
            model = _opened[content] = cls._read(folder, about)
        return model

    @classmethod
    def _read(cls, folder: Path, about: dict[str, Any]) -> Self:
        config, words = hub.read_json(folder / cls.settings_file, dict), hub.read_json(folder / WORDS, list)
        if config.get("format") != FORMAT:
            raise InputError(f"{folder}: not a model of citerec train model={cls.folder}")
        weights = hub.read_weights(folder / hub.WEIGHTS)
        with hub.check_consistent(folder):
            scales, numbers = weights.pop("scales", None), weights.pop("word_vectors")
            vectors = numbers if numbers.dtype == np.float32 else StoredVectors(numbers, scales)
            learned: dict[str, Any] = {
                name.removeprefix("mean."): array.astype(np.float32, copy=False)
                for name, array in weights.items()
            }
            vocabulary = Vocabulary(words)
            if len(vocabulary) != len(vectors):
                raise InputError(f"{len(vocabulary):,} words for {len(vectors):,} vectors")
            encoder = MeanEncoder(vectors, **learned, target_id=int(vocabulary.lookup([TARGET_WORD])[0]))
            max_tokens, unknown_weight = int(config["max_tokens"]), float(config["unknown_weight"])
            near = tuple(map(int, config["near"]))
            unknown = config["vectors"], unknown_weight
            return cls(encoder, vocabulary, max_tokens, about, *unknown, near)

    @cached_property
    def with_unknown_words(self) -> tuple[MeanEncoder, Vocabulary]:
        """Encoder and vocabulary, with random vectors for unknown words if these have a weight."""
        if not self.unknown_weight:
            return self.encoder, self.vocabulary
        dim, vectors = self.encoder.dim, self.encoder.word_vectors
        bits = hashlib.shake_256(b"vectors of unknown words").digest(-(-BUCKETS * dim // 8))
        signs = np.unpackbits(np.frombuffer(bits, np.uint8), count=BUCKETS * dim).reshape(BUCKETS, dim)
        stored = vectors if isinstance(vectors, StoredVectors) else StoredVectors(vectors)
        weight = np.full(BUCKETS, np.log(np.expm1(np.float32(self.unknown_weight))), np.float32)
        encoder = replace(
            self.encoder,
            word_vectors=StoredVectors(stored.numbers, stored.scales, np.packbits(signs, axis=1)),
            word_weight=np.concatenate([self.encoder.word_weight, weight]),
        )
        return encoder, OpenVocabulary(self.vocabulary.words)

    def keep_frequent(self, words: int) -> StaticModel:
        """Return the model with only the first, most frequent `words` words and the citation markers."""
        listed = self.vocabulary.words
        kept = [row for row, word in enumerate(listed) if row < words or word in MARKER_WORDS]
        kept = sorted({self.vocabulary.pad_id, *kept})
        vocabulary = Vocabulary([listed[row] for row in kept])
        encoder = replace(
            self.encoder,
            word_vectors=self.encoder.word_vectors[kept],
            word_weight=self.encoder.word_weight[kept],
            target_id=int(vocabulary.lookup([TARGET_WORD])[0]),
        )
        return replace(self, encoder=encoder, vocabulary=vocabulary)


_opened: WeakValueDictionary[tuple[str, ...], Any] = WeakValueDictionary()
"""Models in use, by the stamps of their files (`_digest`)."""


def _digest(file: Path) -> str:
    """Return a stamp of a file that changes with the file and is the same for its hard links."""
    about = file.stat()
    return f"{about.st_dev} {about.st_ino} {about.st_size} {about.st_mtime_ns}"


class StaticRetriever(WordsRetriever):
    """Nearest-neighbour search with a static embedding model."""

    name = "static"
    kind: type[StaticModel] = StaticModel

    def __init__(self, checkpoint: StaticModel | str | Path | None, index: IndexConfig | None = None) -> None:
        """checkpoint: a model, or the output of its training; else InputError."""
        super().__init__(index)
        self.use(self.kind.opened(checkpoint))
        self.checkpoint = None if isinstance(checkpoint, StaticModel) else checkpoint

    def use(self, model: StaticModel) -> None:
        """Search with a model."""
        self.model, self.about = model, model.about
        self.encoder, self.vocabulary = model.with_unknown_words
        self.max_tokens, self.near = model.max_tokens, model.near

    def fingerprint(self) -> dict[str, Any]:
        return {"weights": self.encoder.fingerprint, "arithmetic": "torch.float32"}

    def encode(self, documents: Documents) -> Floats:
        return self.encoder.encode(documents)
