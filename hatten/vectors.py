"""Word vectors: what all sources of them give, how much of a corpus they cover, and their cache."""

from __future__ import annotations

import hashlib
import json
import logging
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from datasets.atomic import written_whole
from datasets.bad_records import shown
from datasets.errors import InputError
from datasets.shared_folders import one_at_a_time
from hatten.vocabulary import PAD_WORD, Vocabulary, first_repeated

if TYPE_CHECKING:
    from datasets.store import Corpus

log = logging.getLogger(__name__)

CACHE_VERSION = 1


class WordVectors:
    """`words` [V] and their vectors `matrix` [V, D] float32, from a source called `name`."""

    def __init__(self, words: Sequence[str], matrix: NDArray[Any], name: str, dim: int | None = None) -> None:
        """Raises InputError for no or repeated words, dimensions other than `dim`, numbers not finite."""
        if matrix.ndim != 2 or len(words) != len(matrix):
            raise InputError(f"{name}: {len(words)} words do not go with an array of shape {matrix.shape}")
        if len(words) == 0 or matrix.shape[1] == 0:
            raise InputError(f"{name}: there are no word vectors in it")
        if dim is not None and matrix.shape[1] != dim:
            raise InputError(
                f"{name}: its vectors have {matrix.shape[1]} dimensions, the configuration says {dim}; "
                f"choose other vectors or set embeddings.dim={matrix.shape[1]}"
            )
        if len(set(words)) != len(words):
            raise InputError(f"{name}: the word {shown(first_repeated(words))} has two vectors")
        self.words: list[str] = list(words)
        self.matrix: NDArray[np.float32] = np.ascontiguousarray(matrix, np.float32)
        self.name: str = name
        finite = np.isfinite(self.matrix).all(1)
        if not finite.all():
            word = self.words[int(finite.argmin())]
            raise InputError(
                f"{name}: the vector of {shown(word)} has a number that is not finite in 32 bits"
            )

    def __len__(self) -> int:
        return len(self.words)

    def __repr__(self) -> str:
        return f"WordVectors({self.name!r}, {len(self)} words, {self.dim} dimensions)"

    @property
    def dim(self) -> int:
        return int(self.matrix.shape[1])

    def with_words(self, words: Sequence[str], seed: int = 0) -> WordVectors:
        """These vectors, and random ones of their mean and deviation for those of `words` that lack one."""
        known = set(self.words)
        missing = [word for word in dict.fromkeys(words) if word not in known]
        if not missing:
            return self
        noise = np.random.default_rng(seed).standard_normal((len(missing), self.dim), np.float32)
        rows = self.matrix.mean(0) + self.matrix.std(0) * noise
        return WordVectors(self.words + missing, np.concatenate([self.matrix, rows]), self.name)

    def vocabulary(self) -> tuple[Vocabulary, NDArray[np.float32]]:
        """A model's vocabulary [V'] and the matrix [V', D] in its order; an added `<pad>` has zeros."""
        vocabulary = Vocabulary(self.words)
        if PAD_WORD in self.words:
            return vocabulary, self.matrix
        return vocabulary, np.concatenate([np.zeros((1, self.dim), np.float32), self.matrix])


def coverage(vectors: WordVectors, corpus: Corpus) -> float:
    """Share (0 to 1) of running words (titles, abstracts, training contexts) that have a vector."""
    counts = np.asarray(corpus.word_counts, np.int64)
    known = Vocabulary(vectors.words).lookup(corpus.words) >= 0
    return float(counts[known].sum() / max(counts.sum(), 1))


def announced(vectors: WordVectors, corpus: Corpus) -> WordVectors:
    """The vectors, after saying in the log which they are and what they cover."""
    share = coverage(vectors, corpus)
    log.info(
        f"word vectors: {vectors.name}, {len(vectors):,} words, {vectors.dim} dimensions, "
        f"cover {100 * share:.1f} % of the running words"
    )
    if share < 0.5:
        log.warning(f"word vectors: most words of {corpus.name} have none; do the tokeniser and they agree?")
    return vectors


def cached(
    folder: str | Path, kind: str, settings: dict[str, object], make: Callable[[], WordVectors]
) -> WordVectors:
    """What `make` gave for these settings the last time, or now.

    One file for each set of settings under `folder`/vectors, complete or absent; processes that want the same
    one wait for the first to make it. A file that cannot be read is made again.
    """
    key = json.dumps({"version": CACHE_VERSION, **settings}, sort_keys=True)
    path = Path(folder) / "vectors" / f"{kind}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.npz"
    path.parent.mkdir(parents=True, exist_ok=True)
    with one_at_a_time(path.with_suffix(".lock"), "makes the same word vectors"):
        vectors = load(path)
        if vectors is None:
            vectors = make()
            save(vectors, path)
            log.info(f"word vectors: kept in {path}")
    return vectors


def save(vectors: WordVectors, path: Path) -> None:
    """Write the vectors to a .npz file that `load` reads; the file is whole or not there at all."""
    words, name = _as_bytes("\n".join(vectors.words)), _as_bytes(vectors.name)
    with written_whole(path) as unfinished, unfinished.open("wb") as file:
        np.savez(file, allow_pickle=False, matrix=vectors.matrix, words=words, name=name)


def load(path: Path) -> WordVectors | None:
    """The vectors in a file that `save` wrote; None when it is absent or damaged."""
    try:
        with np.load(path, allow_pickle=False) as parts:
            words = parts["words"].tobytes().decode("utf-8").split("\n")
            return WordVectors(words, parts["matrix"], parts["name"].tobytes().decode("utf-8"))
    except FileNotFoundError:
        return None
    except (InputError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        log.warning(f"word vectors: {path} is damaged ({error}); it is made again")
        return None


def _as_bytes(text: str) -> NDArray[np.uint8]:
    return np.frombuffer(text.encode("utf-8"), np.uint8)
