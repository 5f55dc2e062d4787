"""Embeddings: paper vectors on disk, encoded in shards and memory-mapped for search.

`load_or_encode` reads existing shards and encodes missing ones, so that interrupted work is resumed.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from citerec.base.checksums import check_checksums, write_checksums
from citerec.base.errors import InputError
from citerec.base.files import atomic_write, cache_folder, write_text
from citerec.base.progress import count_progress
from citerec.base.settings import check_count
from citerec.datasets.columns import concat_ranges, offsets_of
from citerec.datasets.corpus import Corpus
from citerec.retrieval.arrays import Floats, Rows
from citerec.retrieval.vectors import EncodingProgress, VectorTable, as_dtype, first_not_finite

log = logging.getLogger(__name__)

FORMAT = 1
MANIFEST, TEXTS = "embeddings.json", "texts.npy"
SHARD = 4096
"""Papers per shard, which are encoded in order of length. With arXiv abstracts of at most 512 subwords, 2.9 %
of the tokens are padding (4.7 % with 1,024 papers, 2.1 % with 8,192), but an interruption loses a shard."""

Advance = Callable[[float], None]
"""Progress callback for shares of the work, which sum to 1."""
Vectors = tuple[Floats, NDArray[np.int32] | None]
"""Vectors of papers and, for sentence vectors, the number per paper."""


@dataclass(frozen=True)
class EmbeddingJob:
    """The papers to encode, and how to encode them."""

    corpus: Corpus
    rows: Rows
    model: Mapping[str, Any]
    """everything the vectors depend on besides the texts, as plain values: a hash of the weights, settings"""
    dim: int
    encode: Callable[[Rows, Advance], Vectors]
    """rows of papers [n] to vectors"""
    sentences: bool = False
    """whether a paper has several vectors, one per sentence"""
    dtype: str = "float16"
    encode_shards: Callable[[Mapping[int, slice]], Iterable[tuple[int, Floats]]] | None = None
    """replaces `encode` to distribute the work: shards by number to (number, vectors) pairs in any order"""


@dataclass(frozen=True)
class Embeddings:
    """The vectors of N papers, delimited by `offsets` [N + 1]."""

    vectors: VectorTable
    offsets: Rows
    encoded: int = 0
    """number of papers that had to be encoded"""
    seconds: float = 0.0
    """seconds spent encoding"""

    def summary(self, folder: str | Path) -> str:
        """Describe the contents of a folder in one line."""
        papers, (rows, dim) = len(self.offsets) - 1, self.vectors.shape
        sentences = f" ({rows:,} sentences)" if rows != papers else ""
        rate = self.encoded / max(self.seconds, 1e-9)
        encoded = f"{self.encoded:,} encoded in {self.seconds:,.1f} s, {rate:,.1f} papers/s"
        return (
            f"{papers:,} papers{sentences} in {dim} dimensions, {self.vectors.nbytes / 1e6:,.1f} MB in "
            f"{folder}: {encoded if self.encoded else 'nothing to encode'}"
        )


@dataclass(frozen=True)
class Layout:
    """The manifest of an embedding folder; fields as in EmbeddingJob."""

    model: Mapping[str, Any]
    corpus: str
    """hash of the encoded papers"""
    papers: int
    dim: int
    dtype: str = "float16"
    shard: int = SHARD
    sentences: bool = False

    def __post_init__(self) -> None:
        """Raises InputError for an invalid shard size."""
        object.__setattr__(self, "model", _to_plain(self.model))
        check_count("shard", self.shard)


class EmbeddingFolder:
    """A folder of embeddings, possibly incomplete."""

    def __init__(self, folder: Path, layout: Layout) -> None:
        self.folder, self.layout = folder, layout

    @classmethod
    def create(cls, folder: Path, layout: Layout, keys: NDArray[np.uint64] | None = None) -> EmbeddingFolder:
        """Start a new folder; keys: `text_keys` of the papers, for use with other corpora.

        Raises InputError if the folder is not empty.
        """
        if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
            raise InputError(f"{folder}: contains something other than embeddings; name another folder")
        if keys is not None:
            _write(folder / TEXTS, keys)
        write_text(folder / MANIFEST, json.dumps({"format": FORMAT, **asdict(layout)}, indent=1) + "\n")
        return cls(folder, layout)

    @classmethod
    def find(cls, folder: Path) -> EmbeddingFolder | None:
        """Open a folder of embeddings; None if there are none, InputError if they are of another version."""
        path = folder / MANIFEST
        if not path.is_file():
            return None
        content = json.loads(path.read_text("utf-8"))
        if (version := content.pop("format")) != FORMAT:
            raise InputError(f"{path}: embeddings of format {version!r}; this version reads {FORMAT}")
        return cls(folder, Layout(**content))

    def shards(self) -> list[slice]:
        """The papers of each shard."""
        size, papers = self.layout.shard, self.layout.papers
        return [slice(start, min(start + size, papers)) for start in range(0, papers, size)]

    def missing(self) -> list[int]:
        """Numbers of the missing shards."""
        kinds = ("", ".counts") if self.layout.sentences else ("",)
        return [
            number
            for number in range(len(self.shards()))
            if not all(self._file(number, kind).is_file() for kind in kinds)
        ]

    def write(self, number: int, vectors: NDArray[Any], counts: NDArray[np.int32] | None = None) -> None:
        """Write a shard: vectors [n, D] and, for sentence vectors, the number per paper.

        Raises InputError for vectors that are not finite in the stored precision.
        """
        stored = _to_stored(vectors, self.layout.dtype, str(self._file(number)))
        if counts is not None:
            _write(self._file(number, ".counts"), counts.astype(np.int32))
        _write(self._file(number), stored)

    def read(self) -> tuple[VectorTable, Rows]:
        """The vectors, memory-mapped, and the offsets of the papers [N + 1].

        Raises InputError naming the first file that is missing or damaged.
        """
        check_checksums(self.folder, "remove this file and rerun to rebuild it")
        layout, numbers = self.layout, range(len(self.shards()))
        arrays = [_read(self._file(number)) for number in numbers]
        if layout.sentences:
            counts = [_read(self._file(number, ".counts")) for number in numbers]
        else:
            counts = [np.ones(len(array), np.int32) for array in arrays]
        empty = np.empty((0, layout.dim), layout.dtype)
        return VectorTable(arrays or [empty]), offsets_of(np.concatenate([np.empty(0, np.int32), *counts]))

    def complete(self, job: EmbeddingJob) -> Embeddings:
        """Encode the missing shards and read all vectors."""
        shards = self.shards()
        missing = {number: shards[number] for number in self.missing()}
        left = sum(shard.stop - shard.start for shard in missing.values())
        seconds = 0.0
        if missing:
            write_checksums(self.folder, keep=True)
            with count_progress("encoding papers", len(job.rows)) as bar:
                progress = EncodingProgress("papers", len(job.rows), len(job.rows) - left, bar)
                for number, vectors, counts in _encode_shards(job, missing, progress):
                    self.write(number, vectors, counts)
            write_checksums(self.folder, keep=True)
            seconds = progress.seconds
            log.info(f"encoded {left:,} papers in {seconds:,.1f} s, {progress.rate:,.1f} papers/s")
        return Embeddings(*self.read(), left, seconds)

    def _file(self, number: int, kind: str = "") -> Path:
        return self.folder / f"{number:05}{kind}.npy"


def load_or_encode(job: EmbeddingJob, folder: str | Path | None = None, shard: int = SHARD) -> Embeddings:
    """Read the vectors of a job's papers, encoding those that are missing.

    folder: stores the vectors. It may contain those of another corpus that has all of these texts. Without a
    folder they are stored in the cache until complete, so that interrupted work is resumed.
    shard: papers per shard of a new folder.
    Raises InputError for a folder that is damaged or has other contents, another model or other texts.
    """
    digest = hashlib.blake2b(job.corpus.fingerprint.encode(), digest_size=12)
    digest.update(np.ascontiguousarray(job.rows, np.int64).data)
    papers = digest.hexdigest()
    layout = Layout(job.model, papers, len(job.rows), job.dim, job.dtype, shard, job.sentences)
    if folder is not None:
        return _load_or_encode_in(job, layout, Path(folder))
    if len(job.rows) <= shard and job.encode_shards is None:
        vectors, counts = job.encode(job.rows, lambda share: None)
        array = _to_stored(vectors, job.dtype, "papers")
        offsets = np.arange(len(array) + 1) if counts is None else offsets_of(counts)
        return Embeddings(VectorTable([array]), offsets, len(job.rows))
    key = json.dumps([layout.model, layout.corpus, layout.shard, layout.dtype], sort_keys=True)
    name = hashlib.blake2b(key.encode(), digest_size=12).hexdigest()
    cache = cache_folder() / "encoding" / name
    embeddings = (EmbeddingFolder.find(cache) or EmbeddingFolder.create(cache, layout)).complete(job)
    shutil.rmtree(cache, ignore_errors=True)  # the files stay mapped until they are garbage-collected
    return embeddings


def _load_or_encode_in(job: EmbeddingJob, layout: Layout, folder: Path) -> Embeddings:
    """The vectors in a folder, which may be those of another corpus."""
    stored = EmbeddingFolder.find(folder)
    if stored is None:
        stored = EmbeddingFolder.create(folder, layout, text_keys(job.corpus, job.rows))
    for key in [*layout.model, *stored.layout.model]:
        here, there = layout.model.get(key), stored.layout.model.get(key)
        if here != there:
            raise InputError(
                f"{folder}: the embeddings were made with {key}={there}, not {here}; name another folder"
            )
    if stored.layout.corpus == layout.corpus:
        return stored.complete(job)
    keys, saved_keys = text_keys(job.corpus, job.rows), _read(folder / TEXTS)
    if np.array_equal(keys, saved_keys):
        return stored.complete(job)
    order = np.argsort(saved_keys, kind="stable")
    positions = np.append(order, -1)[np.searchsorted(saved_keys, keys, sorter=order)]
    positions[np.append(saved_keys, np.uint64(0))[positions] != keys] = -1
    if (positions < 0).any():
        paper = job.corpus.paper_ids[int(job.rows[np.argmax(positions < 0)])]
        raise InputError(
            f"{folder}: {(positions < 0).sum():,} of {len(keys):,} papers have no vector for their title and "
            f"abstract, such as {paper!r}; embed this corpus into another folder"
        )
    if missing := stored.missing():
        raise InputError(
            f"{folder}: {len(missing):,} of {len(stored.shards()):,} shards are missing; complete these "
            "embeddings first, with the corpus they were started with"
        )
    vectors, offsets = stored.read()
    rows, bounds = concat_ranges(offsets[positions], offsets[positions + 1])
    return Embeddings(vectors.take(rows), bounds)


def _encode_shards(
    job: EmbeddingJob, shards: Mapping[int, slice], progress: EncodingProgress
) -> Iterable[tuple[int, Floats, NDArray[np.int32] | None]]:
    """Yield number, vectors and counts of each shard."""
    if job.encode_shards is not None:
        for number, vectors in job.encode_shards(shards):
            yield number, vectors, None
            progress.advance(len(vectors))
        return
    for number, shard in shards.items():
        before, papers = progress.done, shard.stop - shard.start

        def advance(share: float, papers: int = papers) -> None:
            progress.advance(share * papers)

        yield number, *job.encode(job.rows[shard], advance)
        progress.advance(before + papers - progress.done)  # papers without a text, and rounding errors


def text_keys(corpus: Corpus, rows: Rows) -> NDArray[np.uint64]:
    """Hash title and abstract of each paper [n]; independent of the corpus."""
    keys = np.empty(len(rows), np.uint64)
    titles, abstracts = corpus.titles, corpus.abstracts
    for i, row in enumerate(rows.tolist()):
        text = f"{titles[row]}\0{abstracts[row]}".encode("utf-8", "surrogatepass")
        keys[i] = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
    return keys


def _to_stored(vectors: Floats, dtype: str, where: str) -> NDArray[np.floating]:
    """Convert vectors [n, D] to the stored precision; InputError if one is not finite in it."""
    stored = as_dtype(vectors, dtype)
    if (bad := first_not_finite(stored)) is not None:
        raise InputError(
            f"{where}: vector {bad} is not finite as {dtype}; the encoder is damaged or its training diverged"
        )
    return stored


def _to_plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values as read from a JSON file, with lists instead of tuples."""
    plain: dict[str, Any] = json.loads(json.dumps(dict(values)))
    return plain


def _write(path: Path, array: NDArray[Any]) -> None:
    """Write a file atomically, even in case of a power failure."""
    with atomic_write(path) as part, part.open("wb") as stream:
        np.save(stream, array)
        stream.flush()
        os.fsync(stream.fileno())


def _read(path: Path) -> NDArray[Any]:
    """Memory-map an array, copy-on-write because torch warns about read-only arrays."""
    return np.asarray(np.load(path, mmap_mode="c", allow_pickle=False))
