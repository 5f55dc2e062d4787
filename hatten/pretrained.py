"""Published word vectors: GloVe and other files in word2vec's format, and the reference release."""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from datasets.errors import InputError
from datasets.schema import MARKER_WORDS
from hatten.pickles import load_array, load_word_list
from hatten.vectors import WordVectors, announced, cached

if TYPE_CHECKING:
    from datasets.store import Corpus

log = logging.getLogger(__name__)

GLOVE_ADDRESS = "https://nlp.stanford.edu/data/glove.6B.zip"
REFERENCE_ADDRESS = "https://drive.google.com/uc?id=1T2R1H8UstSILH_JprUaPNY0fasxD2Txr"
DOWNLOAD_TIMEOUT = 30.0  # seconds without an answer
ENDINGS = (".txt", ".vec", ".bin", ".gz", ".zip")


def glove(corpus: Corpus, source: str, dim: int, cache_dir: str, markers: bool = True) -> WordVectors:
    """Vectors from a file in GloVe's or word2vec's format, or by the name that gensim's download gives them.

    A file may be text with or without a first line of counts, such text compressed (.gz), or binary. With
    `markers` the citation markers get random vectors, for a model that trains them. The parsed file is kept
    in the cache.
    """
    path = _file(source, dim, Path(cache_dir))
    status = path.stat()
    settings: dict[str, object] = {
        "path": str(path.resolve()),
        "bytes": status.st_size,
        "mtime": status.st_mtime_ns,
    }
    found = cached(cache_dir, "file", settings, lambda: read_vectors(path))
    found = WordVectors(found.words, found.matrix, Path(source).name, dim)
    return announced(found.with_words(MARKER_WORDS) if markers else found, corpus)


def reference(corpus: Corpus, vectors: str, vocabulary: str, dim: int) -> WordVectors:
    """The vectors of the published HAtten checkpoints: pickles of an array [V, dim] and a list of V words.

    The order of the words is kept, since the checkpoints count by it. No markers are added: the reference
    drops words that it has no vector for (Gu et al. 2022, the authors' code).
    """
    for path in (vectors, vocabulary):
        if not Path(path).exists():
            raise InputError(
                f"{path}: no such file; it is in model.zip, folder model/glove, of the HAtten release "
                f"({REFERENCE_ADDRESS}): put it there or set embeddings.vectors and embeddings.vocabulary"
            )
    words, matrix = load_word_list(vocabulary), load_array(vectors)
    return announced(WordVectors(words, matrix, Path(vectors).name, dim), corpus)


def _file(source: str, dim: int, cache_dir: Path) -> Path:
    """The file that `source` means, downloaded if it is a name that gensim knows."""
    path = Path(source).expanduser()
    if path.is_file():
        return path
    if path.is_dir():
        raise InputError(f"{path}: a folder; name the file of word vectors in it by embeddings.source")
    folder, member = cache_dir / "vectors", f"glove.6B.{dim}d.txt"
    by_hand = [folder / source / f"{source}.gz", folder / member, folder / f"{member}.gz"]
    advice = f"get {GLOVE_ADDRESS}, put its {member} into the folder {folder}, or set embeddings.source=FILE"
    if path.suffix in ENDINGS or len(path.parts) > 1:
        raise InputError(f"{path}: no such file of word vectors; for GloVe {advice}")
    # Other names of gensim's are not GloVe 6B, so a file of it must not stand in for them.
    for candidate in by_hand if source.startswith("glove-wiki-gigaword") else by_hand[:1]:
        if candidate.is_file():
            return candidate
    return _download(source, folder, advice)


def _download(name: str, folder: Path, advice: str) -> Path:
    import gensim.downloader

    log.info(f"word vectors: downloading {name} into {folder}")
    folder.mkdir(parents=True, exist_ok=True)
    gensim.downloader.BASE_DIR = gensim.downloader.base_dir = str(folder.resolve())
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(DOWNLOAD_TIMEOUT)
    try:
        with quiet_gensim():
            # Asked for the path, gensim does not run the Python file that comes with each download.
            return Path(gensim.downloader.load(name, return_path=True))
    except Exception as error:  # gensim raises bare Exceptions besides those of urllib
        if "Incorrect model" in str(error):
            raise InputError(f"embeddings.source={name}: no file, and no name of gensim's download") from None
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"word vectors {name} cannot be downloaded ({reason}): {advice}") from None
    finally:
        socket.setdefaulttimeout(before)


def read_vectors(path: Path) -> WordVectors:
    """Read a file in word2vec's or GloVe's format through gensim; InputError says what is wrong with it."""
    from gensim.models import KeyedVectors

    binary, header = _format(path)
    size = path.stat().st_size / 1e6
    log.info(f"word vectors: reading {path} ({size:,.0f} MB), this once; GloVe takes a minute or two")
    try:
        with quiet_gensim():
            found = KeyedVectors.load_word2vec_format(str(path), binary=binary, no_header=not header)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error})") from None
    except (ValueError, EOFError, IndexError, MemoryError, OverflowError) as error:
        kind = "binary" if binary else "text"
        raise InputError(f"{path}: broken {kind} word vectors ({error or type(error).__name__})") from None
    return WordVectors(found.index_to_key, np.asarray(found.vectors), path.name)


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
    except (OSError, EOFError) as error:
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
