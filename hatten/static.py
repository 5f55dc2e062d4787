"""A static embedding model: `python train.py model=static`, `retriever=static checkpoint=OUT`.

HAtten's mean path (hatten.means) without its two levels: trained word vectors, each word with a weight of
its own, each distance from the citation mark and each paragraph type too. It encodes tens of thousands of
papers a second without torch; hatten.recipe trains it. Words that it does not know, as names in
other fields, are not lost: each gets a random vector by its letters, so that texts that share it are closer
(the hashing trick of Weinberger et al. 2009).

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
from numpy.typing import NDArray

from datasets.errors import InputError
from datasets.records import MARKER_WORDS, TARGET_WORD
from hatten.documents import Vocabulary
from hatten.means import MeanEncoder
from training.checkpoint import find_saved
from training.hub import (
    WEIGHTS,
    Pretrained,
    check_consistent,
    is_hub_id,
    read_json,
    read_weights,
    write_json,
    write_weights,
)

FORMAT, FOLDER, FILE = "static-1", "static", "hatten.ckpt"
"""What a folder says that it is, and its name in the output folder of a training; HAtten's there."""
CONFIG, WORDS = "config.json", "vocabulary.json"
BUCKETS = 16_384
"""Random vectors for unknown words; two of these words share one with a chance of 1 in so many."""
KINDS = ("float32", "float16", "int8")


class OpenVocabulary(Vocabulary):
    """A vocabulary that gives unknown words with a letter or digit one of BUCKETS ids behind its own."""

    def lookup(self, store_words: Iterable[str]) -> NDArray[np.int32]:
        words = list(store_words)
        ids, end = super().lookup(words), len(self)
        for place in np.flatnonzero(ids < 0).tolist():
            if any(map(str.isalnum, words[place])):
                ids[place] = end + zlib.crc32(words[place].encode("utf-8", "surrogatepass")) % BUCKETS
        return ids


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

    encoder: MeanEncoder
    vocabulary: Vocabulary
    max_tokens: int
    """words that are read of a paragraph"""
    about: dict[str, Any]
    kind: str = "float32"
    """of the vectors in its file, of KINDS; int8: whole numbers to ±127 times a scale for each word"""
    unknown_weight: float = 0.0
    """of words that the vocabulary lacks; 0: they are left out"""
    near: tuple[int, ...] = ()
    """known words on each side of the mark that are a paragraph more of a query"""

    def write(self, folder: Path) -> None:
        weights = self.encoder.weights()
        vectors = weights["word_vectors"]
        if self.kind == "int8":
            weights["scales"] = np.maximum(np.abs(vectors).max(1) / np.float32(127), np.float32(1e-12))
            vectors = (vectors / weights["scales"][:, None]).round()
        weights["word_vectors"] = vectors.astype(self.kind)
        config = {
            "format": FORMAT,
            "dim": self.encoder.dim,
            "words": len(self.vocabulary),
            "vectors": self.kind,
            "max_tokens": self.max_tokens,
            "unknown_weight": self.unknown_weight,
            "near": self.near,
        }
        write_json(folder / CONFIG, config)
        listed = json.dumps(self.vocabulary.words, ensure_ascii=False, separators=(",", ":"))
        (folder / WORDS).write_text(listed + "\n", "utf-8")
        write_weights(folder / WEIGHTS, weights)

    @classmethod
    def read(cls, folder: Path, about: dict[str, Any]) -> StaticModel:
        """With vectors in float32."""
        config, words = read_json(folder / CONFIG, dict), read_json(folder / WORDS, list)
        if config.get("format") != FORMAT:
            raise InputError(f"{folder}: not a model of train.py model=static")
        weights = read_weights(folder / WEIGHTS)
        with check_consistent(folder):
            learned = {
                name.removeprefix("mean."): array.astype(np.float32) for name, array in weights.items()
            }
            if (scales := learned.pop("scales", None)) is not None:
                learned["word_vectors"] *= scales[:, None]
            vocabulary = Vocabulary.saved(words, len(learned["word_vectors"]))
            encoder = MeanEncoder(**learned, target_id=int(vocabulary.lookup([TARGET_WORD])[0]))
            encoder.check()
            if config["vectors"] not in KINDS:
                raise ValueError(f"vectors of the kind {config['vectors']}")
            about = about or dict(config.get("about", {}))  # where earlier versions have it
            most, weight = int(config["max_tokens"]), float(config["unknown_weight"])
            near = tuple(map(int, config.get("near", ())))  # models of earlier versions have none
            if len(near) != encoder.near or min(near, default=1) < 1:
                raise ValueError(f"near: {list(near)} beside weights of {encoder.near} paragraphs")
            return cls(encoder, vocabulary, most, about, config["vectors"], weight, near)

    def opened(self) -> tuple[MeanEncoder, Vocabulary]:
        """Encoder and vocabulary to encode any text with: those with rows for unknown words."""
        if not self.unknown_weight:
            return self.encoder, self.vocabulary
        bits = hashlib.shake_256(b"vectors of unknown words").digest(-(-BUCKETS * self.encoder.dim // 8))
        signs = np.unpackbits(np.frombuffer(bits, np.uint8), count=BUCKETS * self.encoder.dim)
        random = (signs.reshape(BUCKETS, -1) * np.float32(2) - 1) / np.float32(self.encoder.dim**0.5)
        weight = np.full(BUCKETS, np.log(np.expm1(np.float32(self.unknown_weight))), np.float32)
        encoder = replace(
            self.encoder,
            word_vectors=np.concatenate([self.encoder.word_vectors, random]),
            word_weight=np.concatenate([self.encoder.word_weight, weight]),
        )
        return encoder, OpenVocabulary(self.vocabulary.words)

    def cut(self, words: int) -> StaticModel:
        """The same with the first, most frequent `words` of its vocabulary, and the citation marks, alone."""
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


def save_static(model: StaticModel, folder: Path, kind: str = "float32") -> None:
    """Write a model to a folder that is whole or not there at all. kind: of the vectors, of KINDS."""
    replace(model, kind=kind).save_pretrained(folder)


def load_static(path: str | Path) -> StaticModel:
    """What `save_static` wrote, by its folder or its id on the hub, or the mean path of a hatten.ckpt.

    The path may be the output folder of a training. Its vectors are in float32.
    InputError when it is anything else.
    """
    folder = find_saved(path, FOLDER)
    if (folder / CONFIG).is_file() or (not folder.exists() and is_hub_id(path)):
        return StaticModel.from_pretrained(folder)
    if folder.is_dir() and not (folder / FILE).is_file():
        raise InputError(f"{folder}: contains neither a static model ({CONFIG}) nor {FILE}")
    return mean_path_of(path)


def mean_path_of(checkpoint: str | Path) -> StaticModel:
    """The mean path of a HAtten's checkpoint as a model of its own; InputError when it has none."""
    from hatten.checkpoint import load_model  # torch

    model = load_model(find_saved(checkpoint, FILE))
    if model.encoder.mean is None:
        raise InputError(
            f"{checkpoint}: this HAtten has no mean path (model.encoder.residual=none); use retriever=hatten"
        )
    encoder = model.encoder.mean.frozen(model.encoder.word_vectors)
    return StaticModel(encoder, model.vocabulary, model.encoder.config.max_tokens, model.about)
