"""Published word vectors: GloVe and other files in word2vec's format, and the reference release."""

from __future__ import annotations

import contextlib
import logging
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from datasets.errors import InputError
from datasets.obtain import obtain, present
from datasets.releases import RELEASES
from datasets.schema import MARKER_WORDS
from hatten.pickles import load_array, load_word_list
from hatten.vectors import WordVectors, announced, cached

if TYPE_CHECKING:
    from datasets.store import Corpus

log = logging.getLogger(__name__)

GLOVE = "glove.6B"
GLOVE_DIMS = (50, 100, 200, 300)


def glove(corpus: Corpus, source: str, dim: int, cache_dir: str, markers: bool = True) -> WordVectors:
    """Vectors from a file in GloVe's or word2vec's format, or for `glove.6B` the published ones.

    A file may be text with or without a first line of counts, such text compressed (.gz), or binary. With
    `markers` the citation markers get random vectors, for a model that trains them. The parsed file is kept
    in the cache, where the published one is downloaded to on first use.
    """
    path = _published_glove(dim, cache_dir) if source == GLOVE else _file(Path(source).expanduser())
    status = path.stat()
    settings: dict[str, object] = {
        "path": str(path.resolve()),
        "bytes": status.st_size,
        "mtime": status.st_mtime_ns,
    }
    found = cached(cache_dir, "file", settings, lambda: read_vectors(path))
    found = WordVectors(found.words, found.matrix, path.name, dim)
    return announced(found.with_words(MARKER_WORDS) if markers else found, corpus)


def reference(
    corpus: Corpus, vectors: str | None, vocabulary: str | None, dim: int, cache_dir: str = ".cache"
) -> WordVectors:
    """The vectors of the published HAtten checkpoints: pickles of an array [V, dim] and a list of V words.

    None stands for the published file, downloaded to the cache on first use. The order of the words is kept,
    since the checkpoints count by it. No markers are added: the reference drops words that it has no vector
    for (Gu et al. 2022, the authors' code).
    """
    array, words = RELEASES["reference-vectors"].files
    if vectors is None or vocabulary is None:
        folder = obtain("reference-vectors", cache_dir)
        vectors, vocabulary = vectors or str(folder / array), vocabulary or str(folder / words)
    matrix = load_array(vectors)
    return announced(WordVectors(load_word_list(vocabulary), matrix, Path(vectors).name, dim), corpus)


def _published_glove(dim: int, cache_dir: str) -> Path:
    if dim not in GLOVE_DIMS:
        raise InputError(f"embeddings.dim={dim}: {GLOVE} has {', '.join(map(str, GLOVE_DIMS))} dimensions")
    name = f"{GLOVE}.{dim}d.txt"
    path = present(obtain("glove", cache_dir, files=[name]), name)
    assert path is not None
    return path


def _file(path: Path) -> Path:
    if path.is_dir():
        raise InputError(f"{path}: a folder; name the file of word vectors in it by embeddings.source")
    if not path.is_file():
        raise InputError(f"{path}: no such file of word vectors; name one, or {GLOVE}, which is downloaded")
    return path


def read_vectors(path: Path) -> WordVectors:
    """Read a file in word2vec's or GloVe's format through gensim; InputError says what is wrong with it."""
    from gensim.models import KeyedVectors

    binary, header = _format(path)
    size = path.stat().st_size / 1e6
    log.info(f"word vectors: reading {path} ({size:,.0f} MB), this once; GloVe takes a minute or two")
    try:
        with quiet_gensim():
            found = KeyedVectors.load_word2vec_format(str(path), binary=binary, no_header=not header)
    except (OSError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read ({error})") from None
    except (ValueError, EOFError, IndexError, MemoryError, OverflowError) as error:
        kind = "binary" if binary else "text"
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(f"{path}: broken {kind} word vectors ({reason})") from None
    words = [word for word in found.index_to_key if word is not None]  # it leaves places for repeated words
    if len(words) < len(found.index_to_key):
        repeated = len(found.index_to_key) - len(words)
        log.warning(f"word vectors: {path}: {repeated:,} words are there again; their first vectors count")
    return WordVectors(words, np.asarray(found.vectors)[: len(words)], path.name)


def _format(path: Path) -> tuple[bool, bool]:
    """(binary, with a first line of counts), by the beginning of the file."""
    import gzip

    with path.open("rb") as file:
        start = file.read(4)
    if start[:2] == b"PK":
        raise InputError(f"{path}: a zip archive; unpack it and name the file of word vectors in it")
    if (start[:2] == b"\x1f\x8b") != (path.suffix == ".gz"):
        raise InputError(f"{path}: a name in .gz and gzip-compressed content must go together; rename it")
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            first, second = file.readline(1 << 16), file.readline(1 << 16)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read ({error})") from None
    if not first.strip():
        raise InputError(f"{path}: empty, a file of word vectors is wanted")
    counts = first.split()
    header = len(counts) == 2 and all(count.isdigit() for count in counts)
    if header:
        return not _is_row(second, int(counts[1])), True
    if not _is_row(first, None):
        raise InputError(f"{path}: its first line is neither a word with numbers nor two counts")
    return False, False


def _is_row(line: bytes, dim: int | None) -> bool:
    """Whether a line is a word and `dim` numbers (any number of them for None)."""
    try:
        numbers = [float(part) for part in line.decode("utf-8").rstrip().split(" ")[1:]]
    except ValueError:
        return False
    return len(numbers) == dim if dim is not None else len(numbers) > 0


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
