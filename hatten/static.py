"""A static embedding model: `python train.py model=static`, `retriever=static checkpoint=OUT`.

HAtten's mean path (hatten.layers) without its two levels: trained word vectors, each word with a weight of
its own, each distance from the citation mark and each paragraph type too. It encodes tens of thousands of
papers a second. Words that it does not know, as names in other fields, are not lost: each gets a random
vector by its letters, so that texts that share it are closer (the hashing trick of Weinberger et al. 2009).

A saved model is a folder:

    config.json         format and sizes
    vocabulary.json     the words, the most frequent first
    model.safetensors   vectors [V, D] in 32, 16 or 8 bits, with 8 bits a scale for each word; the weights
    about.json          how it came to be; README.md, its card, tells it to people (training.hub)
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from omegaconf import DictConfig
from torch import Tensor, nn

from datasets.corpus import Corpus
from datasets.errors import InputError
from datasets.records import MARKER_WORDS, TARGET_WORD
from hatten.checkpoint import FILE, UNFIT, Model, load_model
from hatten.documents import DocumentReader, Documents, Vocabulary
from hatten.layers import MeanPath
from hatten.recipe import Encoder, Parts, Recipe
from hatten.settings import StaticSettings
from hatten.words import inverse_document_frequency, starting_words
from retrieval.adapters import reason
from training.checkpoint import find_saved
from training.hub import WEIGHTS, Pretrained, is_hub_id, read_json, read_weights, write_json, write_weights

FORMAT, FOLDER = "static-1", "static"
"""What a folder says that it is, and its name in the output folder of a training."""
CONFIG, WORDS = "config.json", "vocabulary.json"
BUCKETS = 16_384
"""Random vectors for unknown words; two of these words share one with a chance of 1 in so many."""
KINDS = {"float32": torch.float32, "float16": torch.float16, "int8": torch.int8}


class OpenVocabulary(Vocabulary):
    """A vocabulary that gives unknown words with a letter or digit one of BUCKETS ids behind its own."""

    def lookup(self, store_words: Iterable[str]) -> NDArray[np.int32]:
        words = list(store_words)
        ids, end = super().lookup(words), len(self)
        for place in np.flatnonzero(ids < 0).tolist():
            if any(map(str.isalnum, words[place])):
                ids[place] = end + zlib.crc32(words[place].encode("utf-8", "surrogatepass")) % BUCKETS
        return ids


class StaticEncoder(Encoder):
    """Documents to unit vectors [B, D]: a mean path over word vectors that are trained with it."""

    def __init__(self, word_vectors: NDArray[np.float32], vocabulary: Vocabulary) -> None:
        """word_vectors [V, D] in the order of the vocabulary, perhaps with further rows behind them."""
        super().__init__()
        if word_vectors.ndim != 2 or len(word_vectors) < len(vocabulary):
            raise ValueError(f"{len(vocabulary)} words for vectors of shape {word_vectors.shape}")
        self.word_vectors = nn.Parameter(torch.from_numpy(np.ascontiguousarray(word_vectors, np.float32)))
        self.mean = MeanPath(len(word_vectors))
        self.mean.target_id = int(vocabulary.lookup([TARGET_WORD])[0])
        self.dim, self.precision = word_vectors.shape[1], torch.float32

    def encode(self, documents: Documents) -> Tensor:
        vectors: Tensor = self.mean(self.word_vectors, documents)
        return vectors


@dataclass(frozen=True)
class StaticModel(Pretrained):
    """An encoder with its words, most frequent first; `about` says how it came to be."""

    settings_file = CONFIG
    title = "static model"
    description = """\
A static embedding model for citation recommendation: weighted means of word vectors embed the passage with a
missing citation, with title and abstract of the citing paper, and every paper that may be cited; the nearest
by cosine are recommended. It encodes tens of thousands of papers a second on a CPU.

```sh
python evaluate.py benchmark=prefetch retriever=static checkpoint={place} data=custom data.dir=DIR
```"""
    tags = ("static-embeddings", "sentence-similarity")

    encoder: StaticEncoder
    vocabulary: Vocabulary
    max_tokens: int
    """words that are read of a paragraph"""
    about: dict[str, Any]
    kind: str = "float32"
    """of the vectors in its file, of KINDS; int8: whole numbers to ±127 times a scale for each word"""
    unknown_weight: float = 0.0
    """of words that the vocabulary lacks; 0: they are left out"""

    def write(self, folder: Path) -> None:
        weights = {name: weight.detach() for name, weight in self.encoder.state_dict().items()}
        vectors = weights["word_vectors"]
        if self.kind == "int8":
            scales = (vectors.abs().amax(1) / 127.0).clamp(min=1e-12)
            weights["scales"] = scales
            vectors = (vectors / scales[:, None]).round()
        weights["word_vectors"] = vectors.to(KINDS[self.kind])
        config = {
            "format": FORMAT,
            "dim": self.encoder.dim,
            "words": len(self.vocabulary),
            "vectors": self.kind,
            "max_tokens": self.max_tokens,
            "unknown_weight": self.unknown_weight,
        }
        write_json(folder / CONFIG, config)
        listed = json.dumps(self.vocabulary.words, ensure_ascii=False, separators=(",", ":"))
        (folder / WORDS).write_text(listed + "\n", "utf-8")
        write_weights(folder / WEIGHTS, weights)

    @classmethod
    def read(cls, folder: Path, about: dict[str, Any]) -> StaticModel:
        """On the CPU, with vectors in float32."""
        config, words = read_json(folder / CONFIG, dict), read_json(folder / WORDS, list)
        if config.get("format") != FORMAT:
            raise InputError(f"{folder}: not a model that train.py model=static saved")
        weights = read_weights(folder / WEIGHTS)
        try:
            if not all(type(word) is str for word in words):
                raise TypeError(f"{WORDS} is not a list of strings")
            vocabulary, vectors = Vocabulary(words), weights.pop("word_vectors").float()
            if "scales" in weights:
                vectors *= weights.pop("scales").float()[:, None]
            if len(vectors) != len(vocabulary):
                raise ValueError(f"{len(vocabulary)} words for {len(vectors)} vectors")
            encoder = StaticEncoder(vectors.numpy(), vocabulary)
            encoder.load_state_dict({**weights, "word_vectors": vectors})
            if not all(bool(weight.isfinite().all()) for weight in encoder.parameters()):
                raise ValueError("numbers that are not finite")
            if config["vectors"] not in KINDS:
                raise ValueError(f"vectors of the kind {config['vectors']}")
            about = about or dict(config.get("about", {}))  # where earlier versions have it
            most, weight = int(config["max_tokens"]), float(config["unknown_weight"])
            return cls(encoder.eval(), vocabulary, most, about, config["vectors"], weight)
        except (RuntimeError, *UNFIT) as error:
            raise InputError(
                f"{folder}: a part of the model is missing or of another kind ({reason(error)})"
            ) from None

    def opened(self) -> tuple[StaticEncoder, Vocabulary]:
        """Encoder and vocabulary to encode any text with: those with rows for unknown words."""
        if not self.unknown_weight:
            return self.encoder, self.vocabulary
        table, mean = self.encoder.word_vectors.detach().numpy(), self.encoder.mean.state_dict()
        bits = hashlib.shake_256(b"vectors of unknown words").digest(-(-BUCKETS * self.encoder.dim // 8))
        signs = np.unpackbits(np.frombuffer(bits, np.uint8), count=BUCKETS * self.encoder.dim)
        random = (signs.reshape(BUCKETS, -1) * np.float32(2) - 1) / np.float32(self.encoder.dim**0.5)
        encoder = StaticEncoder(np.concatenate([table, random]), self.vocabulary)
        weight = torch.full((BUCKETS,), self.unknown_weight).expm1().log()
        encoder.mean.load_state_dict({**mean, "word_weight": torch.cat([mean["word_weight"], weight])})
        return encoder.eval(), OpenVocabulary(self.vocabulary.words)

    def cut(self, words: int) -> StaticModel:
        """The same with the first, most frequent `words` of its vocabulary, and the citation marks, alone."""
        listed = self.vocabulary.words
        kept = [row for row, word in enumerate(listed) if row < words or word in MARKER_WORDS]
        kept = sorted({self.vocabulary.pad_id, *kept})
        vocabulary = Vocabulary([listed[row] for row in kept])
        encoder = StaticEncoder(self.encoder.word_vectors.detach().numpy()[kept], vocabulary)
        of = self.encoder.mean.state_dict()
        encoder.mean.load_state_dict({**of, "word_weight": of["word_weight"][kept]})
        return replace(self, encoder=encoder.eval(), vocabulary=vocabulary)


def save_static(model: StaticModel, folder: Path, kind: str = "float32") -> None:
    """Write a model to a folder that is whole or not there at all. kind: of the vectors, of KINDS."""
    replace(model, kind=kind).save_pretrained(folder)


def load_static(path: str | Path) -> StaticModel:
    """What `save_static` wrote, by its folder or its id on the hub, or the mean path of a hatten.ckpt.

    The path may be the output folder of a training. In evaluation mode, on the CPU, with vectors in float32.
    InputError when it is anything else.
    """
    folder = find_saved(path, FOLDER)
    if (folder / CONFIG).is_file() or (not folder.exists() and is_hub_id(path)):
        return StaticModel.from_pretrained(folder)
    if folder.is_dir() and not (folder / FILE).is_file():
        raise InputError(f"{folder}: there is neither a static model ({CONFIG}) nor {FILE} in it")
    return mean_path_of(path)


def mean_path_of(checkpoint: str | Path) -> StaticModel:
    """The mean path of a HAtten's checkpoint as a model of its own; InputError when it has none."""
    model: Model = load_model(find_saved(checkpoint, FILE))
    if model.encoder.mean is None:
        raise InputError(
            f"{checkpoint}: this HAtten has no mean path (model.encoder.residual=none); take retriever=hatten"
        )
    encoder = StaticEncoder(model.encoder.word_vectors.detach().numpy(), model.vocabulary)
    encoder.mean.load_state_dict(model.encoder.mean.state_dict())
    return StaticModel(encoder.eval(), model.vocabulary, model.encoder.config.max_tokens, model.about)


class Static(Recipe):
    """Trains word vectors and the weights of words, distances and paragraphs."""

    schema = StaticSettings
    file = FOLDER
    groups = ("embeddings",)

    def __init__(self, model: StaticSettings) -> None:
        self.words = model

    def build(self, corpus: Corpus, config: DictConfig) -> Parts:
        name, vocabulary, table = starting_words(config.embeddings, corpus, self.words)
        encoder = StaticEncoder(table, vocabulary)
        encoder.mean.start_from(inverse_document_frequency(corpus, vocabulary))
        encoder.mean.dropout = self.words.word_dropout

        def save(trained: Encoder, about: dict[str, Any], path: Path) -> None:
            assert isinstance(trained, StaticEncoder)
            model = StaticModel(trained, vocabulary, self.words.max_tokens, about)
            save_static(replace(model, unknown_weight=self.words.unknown_weight), path)

        reader = DocumentReader(corpus, vocabulary, self.words.max_tokens)
        return Parts(encoder, reader, save, {"vectors": name})
