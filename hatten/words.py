"""Word vectors: where they come from (files, GloVe, the HAtten release; hatten.word2vec trains them), their
cache, how much of a corpus they cover, and what a model makes of them to start from.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from hydra.utils import instantiate
from numpy.typing import NDArray
from omegaconf import DictConfig

from datasets.corpus import Corpus
from datasets.download import ensure_release, find_file
from datasets.errors import InputError, error_text
from datasets.files import atomic_write, file_lock
from datasets.records import MARKER_WORDS, quoted
from datasets.releases import RELEASES
from hatten.documents import PAD_WORD, Vocabulary, check_tokenizer, find_repeated
from hatten.pickles import load_array, load_word_list
from hatten.settings import WordsSettings

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
            raise InputError(f"{name}: the word {quoted(find_repeated(words))} has two vectors")
        self.words: list[str] = list(words)
        self.matrix: NDArray[np.float32] = np.ascontiguousarray(matrix, np.float32)
        self.name: str = name
        finite = np.isfinite(self.matrix).all(1)
        if not finite.all():
            word = self.words[int(finite.argmin())]
            raise InputError(
                f"{name}: the vector of {quoted(word)} has a number that is not finite in 32 bits"
            )

    def __len__(self) -> int:
        return len(self.words)

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


def log_coverage(vectors: WordVectors, corpus: Corpus) -> WordVectors:
    """The vectors, after saying in the log which they are and what share of the running words they cover."""
    counts = np.asarray(corpus.word_counts, np.int64)
    known = Vocabulary(vectors.words).lookup(corpus.words) >= 0
    share = counts[known].sum() / max(counts.sum(), 1)
    log.info(
        f"word vectors: {vectors.name}, {len(vectors):,} words, {vectors.dim} dimensions, "
        f"cover {100 * share:.1f} % of the running words"
    )
    if share < 0.5:
        log.warning(f"word vectors: most words of {corpus.name} have none; do they match the tokeniser?")
    return vectors


def cached_vectors(
    folder: str | Path, kind: str, settings: dict[str, object], make: Callable[[], WordVectors]
) -> WordVectors:
    """What `make` gives for these settings, kept in `folder`/vectors.

    A file is whole or absent, and made again when it cannot be read; processes wait for its maker.
    """
    key = json.dumps({"version": CACHE_VERSION, **settings}, sort_keys=True)
    path = Path(folder) / "vectors" / f"{kind}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.npz"
    path.parent.mkdir(parents=True, exist_ok=True)
    with file_lock(path.with_suffix(".lock"), "makes the same word vectors"):
        vectors = load_vectors(path)
        if vectors is None:
            vectors = make()
            save_vectors(vectors, path)
            log.info(f"word vectors: saved in {path}")
    return vectors


def save_vectors(vectors: WordVectors, path: Path) -> None:
    """Write a .npz file, whole or not at all."""
    texts = "\n".join(vectors.words), vectors.name
    words, name = (np.frombuffer(text.encode(), np.uint8) for text in texts)
    with atomic_write(path) as unfinished, unfinished.open("wb") as file:
        np.savez(file, allow_pickle=False, matrix=vectors.matrix, words=words, name=name)


def load_vectors(path: Path) -> WordVectors | None:
    """What `save_vectors` wrote; None when it is absent or damaged."""
    try:
        with np.load(path, allow_pickle=False) as parts:
            words = parts["words"].tobytes().decode("utf-8").split("\n")
            return WordVectors(words, parts["matrix"], parts["name"].tobytes().decode("utf-8"))
    except FileNotFoundError:
        return None
    except (InputError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        log.warning(f"word vectors: {path} is damaged ({error}); rebuilding it")
        return None


GLOVE = "glove.6B"
GLOVE_DIMS = (50, 100, 200, 300)


def glove(corpus: Corpus, source: str, dim: int, cache_dir: str, markers: bool = True) -> WordVectors:
    """Vectors from a file in GloVe's or word2vec's format, or `glove.6B`, which is downloaded on first use.

    A file may be text with or without a first line of counts, such text compressed (.gz), or binary.
    markers: give the citation markers random vectors, for a model that trains them.
    """
    if source == GLOVE:
        if dim not in GLOVE_DIMS:
            raise InputError(
                f"embeddings.dim={dim}: {GLOVE} has {', '.join(map(str, GLOVE_DIMS))} dimensions"
            )
        name = f"{GLOVE}.{dim}d.txt"
        file = find_file(ensure_release("glove", cache_dir, files=[name]), name)
        assert file is not None
        path = file
    else:
        path = Path(source).expanduser()
        if path.is_dir():
            raise InputError(f"{path}: a folder; name the file of word vectors in it by embeddings.source")
        if not path.is_file():
            raise InputError(
                f"{path}: no such file of word vectors; name one, or {GLOVE}, which is downloaded"
            )
    status = path.stat()
    settings = {"path": str(path.resolve()), "bytes": status.st_size, "mtime": status.st_mtime_ns}
    found = cached_vectors(cache_dir, "file", settings, lambda: read_vectors(path))
    found = WordVectors(found.words, found.matrix, path.name, dim)
    return log_coverage(found.with_words(MARKER_WORDS) if markers else found, corpus)


def reference(
    corpus: Corpus, vectors: str | None, vocabulary: str | None, dim: int, cache_dir: str = ".cache"
) -> WordVectors:
    """The vectors of the published HAtten checkpoints: pickles of an array [V, dim] and a list of V words.

    None: the published file, downloaded on first use. The words keep their order, by which the checkpoints
    count, and no markers are added: the authors' code drops words without a vector.
    """
    check_tokenizer(corpus, "reference", "embeddings=reference")
    array, words = RELEASES["reference-vectors"].files
    if vectors is None or vocabulary is None:
        folder = ensure_release("reference-vectors", cache_dir)
        vectors, vocabulary = vectors or str(folder / array), vocabulary or str(folder / words)
    matrix = load_array(vectors)
    return log_coverage(WordVectors(load_word_list(vocabulary), matrix, Path(vectors).name, dim), corpus)


def read_vectors(path: Path) -> WordVectors:
    """Read a file in word2vec's or GloVe's format through gensim; InputError says what is wrong with it."""
    from gensim.models import KeyedVectors

    binary, header = _format(path)
    size = path.stat().st_size / 1e6
    log.info(f"word vectors: reading {path} ({size:,.0f} MB), only once; GloVe takes a minute or two")
    try:
        with quiet_gensim():
            found = KeyedVectors.load_word2vec_format(str(path), binary=binary, no_header=not header)
    except (OSError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read ({error})") from None
    except (ValueError, EOFError, IndexError, MemoryError, OverflowError) as error:
        kind = "binary" if binary else "text"
        raise InputError(f"{path}: broken {kind} word vectors ({error_text(error)})") from None
    words = [word for word in found.index_to_key if word is not None]  # it leaves places for repeated words
    if len(words) < len(found.index_to_key):
        repeated = len(found.index_to_key) - len(words)
        log.warning(f"word vectors: {path}: {repeated:,} repeated words: their first vectors are used")
    return WordVectors(words, np.asarray(found.vectors)[: len(words)], path.name)


def _format(path: Path) -> tuple[bool, bool]:
    """(binary, with a first line of counts), by the beginning of the file."""
    import gzip

    with path.open("rb") as file:
        start = file.read(4)
    if start[:2] == b"PK":
        raise InputError(f"{path}: a zip archive; unpack it and name the file of word vectors in it")
    if (start[:2] == b"\x1f\x8b") != (path.suffix == ".gz"):
        raise InputError(f"{path}: gzip-compressed files, and no others, must be named .gz; rename it")
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            first, second = file.readline(1 << 16), file.readline(1 << 16)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read ({error})") from None
    if not first.strip():
        raise InputError(f"{path}: empty; expected word vectors")
    counts = first.split()
    if len(counts) == 2 and all(count.isdigit() for count in counts):
        return _numbers(second) != int(counts[1]), True
    if _numbers(first) < 1:
        raise InputError(f"{path}: its first line is neither a word with numbers nor two counts")
    return False, False


def _numbers(line: bytes) -> int:
    """How many numbers stand behind a word; -1 where a line is anything else."""
    try:
        return len([float(part) for part in line.decode("utf-8").rstrip().split(" ")[1:]])
    except ValueError:
        return -1


@contextlib.contextmanager
def quiet_gensim() -> Iterator[None]:
    """Keep gensim's own running commentary out of the log."""
    logger = logging.getLogger("gensim")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


def starting_words(
    embeddings: DictConfig, corpus: Corpus, config: WordsSettings
) -> tuple[str, Vocabulary, NDArray[np.float32]]:
    """The name of the configured word vectors, the vocabulary [V] and the vectors [V, D] to start from."""
    vectors: WordVectors = instantiate(embeddings, corpus=corpus)
    vocabulary, table = words_and_vectors(vectors, config.punctuation)
    return (
        vectors.name,
        vocabulary,
        subtract_mean(table, vocabulary, corpus) if config.centre_vectors else table,
    )


def words_and_vectors(
    vectors: WordVectors, punctuation: bool = False
) -> tuple[Vocabulary, NDArray[np.float32]]:
    """The model's vocabulary [V] and vectors [V, D]; without `punctuation`, words have a letter or digit."""
    if not punctuation:
        rows = [row for row, word in enumerate(vectors.words) if any(map(str.isalnum, word))]
        vectors = WordVectors([vectors.words[row] for row in rows], vectors.matrix[rows], vectors.name)
    return vectors.vocabulary()


def subtract_mean(table: NDArray[np.float32], vocabulary: Vocabulary, corpus: Corpus) -> NDArray[np.float32]:
    """Vectors less their mean over running words, then of unit length; `<pad>` stays zero."""
    known = vocabulary.lookup(corpus.words)
    counts = np.bincount(known[known >= 0], np.asarray(corpus.word_counts)[known >= 0], len(vocabulary))
    moved = table - (table * (counts / max(counts.sum(), 1))[:, None]).sum(0)
    moved /= np.maximum(np.linalg.norm(moved, axis=1, keepdims=True), 1e-8)
    moved[vocabulary.pad_id] = 0.0
    return moved.astype(np.float32)


def inverse_document_frequency(corpus: Corpus, vocabulary: Vocabulary) -> NDArray[np.float32]:
    """ln(1 + (N - n + 0.5) / (n + 0.5)) of each word [V], n of N papers have it in title or abstract."""
    papers, words = len(corpus.paper_ids), len(corpus.words)
    frequency = np.zeros(words, np.int64)
    for start in range(0, papers, 65536):
        rows = np.arange(start, min(start + 65536, papers))
        parts = [column.take(rows) for column in (corpus.title_tokens, corpus.abstract_tokens)]
        keys = [np.repeat(np.arange(len(part)), part.lengths) * words + part.values for part in parts]
        frequency += np.bincount(np.unique(np.concatenate(keys)) % words, minlength=words)
    known = vocabulary.lookup(corpus.words)
    n = np.bincount(known[known >= 0], frequency[known >= 0], len(vocabulary))
    return np.log1p((papers - n + 0.5) / (n + 0.5)).astype(np.float32)
