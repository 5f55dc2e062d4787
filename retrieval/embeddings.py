"""Embeddings: vectors of papers on disk, encoded shard by shard and searched where they lie.

`load_or_encode` reads what exists and encodes what is missing, so that interrupted work is resumed.
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

from datasets.columns import offsets_of, ranges
from datasets.corpus import Corpus
from datasets.errors import InputError, error_text
from datasets.files import atomic_write, cache_folder, write_text
from datasets.progress import count_progress
from retrieval.arrays import Floats, Rows
from retrieval.vectors import EncodingProgress, VectorTable, as_dtype, first_not_finite

log = logging.getLogger(__name__)

FORMAT = 1
MANIFEST, TEXTS = "embeddings.json", "texts.npy"
SHARD = 4096
"""Papers per shard, which are encoded in order of length. With arXiv abstracts of at most 512 subwords, 2.9 %
of what is multiplied is padding (4.7 % with 1,024 papers, 2.1 % with 8,192), but a kill loses one."""
_AGAIN = "and it will be rebuilt"

Advance = Callable[[float], None]
"""Is told the share of some work that has been done; the shares sum to 1."""
Vectors = tuple[Floats, NDArray[np.int32] | None]
"""Vectors of papers and, where they are of sentences, how many each paper has."""


@dataclass(frozen=True)
class EmbeddingJob:
    """What is to be encoded, and how."""

    corpus: Corpus
    rows: Rows
    model: Mapping[str, Any]
    """what vectors depend on besides the texts, as plain values: a hash of the weights, settings"""
    dim: int
    encode: Callable[[Rows, Advance], Vectors]
    """rows of papers [n] to vectors"""
    sentences: bool = False
    """whether a paper has several vectors, one per sentence"""
    dtype: str = "float16"
    spread: Callable[[Mapping[int, slice]], Iterable[tuple[int, Floats]]] | None = None
    """shards by number to the vectors of each, in any order: by other processes, in place of `encode`"""


@dataclass(frozen=True)
class Embeddings:
    """The vectors of N papers, which begin and end at `offsets` [N + 1]."""

    vectors: VectorTable
    offsets: Rows
    encoded: int = 0
    """papers that had to be encoded"""
    seconds: float = 0.0
    """that it took"""

    def summary(self, folder: str | Path) -> str:
        """One line about what a folder holds."""
        papers, (rows, dim) = len(self.offsets) - 1, self.vectors.shape
        sentences = f" ({rows:,} sentences)" if rows != papers else ""
        rate = self.encoded / max(self.seconds, 1e-9)
        encoded = f"{self.encoded:,} encoded in {self.seconds:,.1f} s, {rate:,.1f} papers/s"
        return (
            f"{papers:,} papers{sentences} in {dim} dimensions, {self.vectors.nbytes / 1e6:,.1f} MB in "
            f"{folder}: {encoded if self.encoded else 'all were there'}"
        )


@dataclass(frozen=True)
class Layout:
    """What a folder of embeddings holds; fields as in EmbeddingJob."""

    model: Mapping[str, Any]
    corpus: str
    """a hash of the papers that they were made of"""
    papers: int
    dim: int
    dtype: str = "float16"
    shard: int = SHARD
    sentences: bool = False

    def __post_init__(self) -> None:
        """Raises InputError for a shard of no papers."""
        object.__setattr__(self, "model", _plain(self.model))
        if type(self.shard) is not int or self.shard < 1:
            raise InputError(f"shard={self.shard}: give the papers of a shard, 1 or more")


class EmbeddingFolder:
    """A folder of embeddings, perhaps unfinished."""

    def __init__(self, folder: Path, layout: Layout) -> None:
        self.folder, self.layout = folder, layout

    @classmethod
    def begin(cls, folder: Path, layout: Layout, keys: NDArray[np.uint64] | None = None) -> EmbeddingFolder:
        """A folder to be filled; keys: of the papers' texts (`text_keys`), for use with other corpora.

        Raises InputError if there is something in it.
        """
        if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
            raise InputError(f"{folder}: contains something other than embeddings; name another folder")
        if keys is not None:
            _write(folder / TEXTS, keys)
        write_text(folder / MANIFEST, json.dumps({"format": FORMAT, **asdict(layout)}, indent=1) + "\n")
        return cls(folder, layout)

    @classmethod
    def find(cls, folder: Path) -> EmbeddingFolder | None:
        """The folder if embeddings were begun there, else None; InputError if its manifest is damaged."""
        path = folder / MANIFEST
        try:
            content = json.loads(path.read_text("utf-8"))
            if (version := content.pop("format")) != FORMAT:
                raise InputError(f"{path}: embeddings of format {version!r}; this version reads {FORMAT}")
            layout = Layout(**content)
            if layout.dtype not in ("float16", "float32") or layout.dim < 1 or layout.papers < 0:
                raise ValueError("sizes that cannot be")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{path}: damaged ({error}); write the embeddings to another folder") from None
        return cls(folder, layout)

    def parts(self) -> list[slice]:
        """The papers of each shard."""
        size, papers = self.layout.shard, self.layout.papers
        return [slice(start, min(start + size, papers)) for start in range(0, papers, size)]

    def missing(self) -> list[int]:
        """Numbers of the shards that are not there yet."""
        return [number for number in range(len(self.parts())) if not self._file(number).is_file()]

    def write(self, number: int, vectors: NDArray[Any], counts: NDArray[np.int32] | None = None) -> None:
        """A shard's vectors [n, D] and, with sentences, how many of them each paper has.

        Raises InputError for vectors that are not finite in the stored precision.
        """
        assert (counts is not None) == self.layout.sentences
        kept = _stored(vectors, self.layout.dtype, str(self._file(number)))
        if counts is not None:
            _write(self._file(number, ".counts"), counts.astype(np.int32))
        _write(self._file(number), kept)

    def open(self) -> tuple[VectorTable, Rows]:
        """The vectors, mapped, and where those of each paper begin and end [N + 1].

        Raises InputError naming the first shard that is missing, cut short, or not finite.
        """
        layout, arrays, counts = self.layout, [], []
        for number, part in enumerate(self.parts()):
            path, papers = self._file(number), part.stop - part.start
            of = np.ones(papers, np.int32)
            if layout.sentences:
                of = _read(counted := self._file(number, ".counts"))
                if of.shape != (papers,) or of.dtype != np.int32 or of.min(initial=0) < 0:
                    raise InputError(f"{counted}: damaged; remove {path}, {_AGAIN}")
            array = _read(path)
            if array.shape != (int(of.sum()), layout.dim) or array.dtype != layout.dtype:
                raise InputError(
                    f"{path}: {array.dtype} {array.shape} is not a shard of these; remove it, {_AGAIN}"
                )
            if (bad := first_not_finite(array)) is not None:
                raise InputError(f"{path}: vector {bad} is not finite; remove this file, {_AGAIN}")
            arrays.append(array)
            counts.append(of)
        empty = np.empty((0, layout.dim), layout.dtype)
        return VectorTable(arrays or [empty]), offsets_of(np.concatenate([np.empty(0, np.int32), *counts]))

    def completed(self, job: EmbeddingJob) -> Embeddings:
        """Everything in the folder, after its missing shards were encoded."""
        parts = self.parts()
        missing = {number: parts[number] for number in self.missing()}
        left = sum(part.stop - part.start for part in missing.values())
        seconds = 0.0
        if missing:
            with count_progress("encoding papers", len(job.rows)) as bar:
                pace = EncodingProgress("papers", len(job.rows), len(job.rows) - left, bar)
                for number, vectors, counts in _encoded(job, missing, pace):
                    self.write(number, vectors, counts)
            seconds = pace.seconds
            log.info(f"encoded {left:,} papers in {seconds:,.1f} s, {pace.rate:,.1f} papers/s")
        return Embeddings(*self.open(), left, seconds)

    def _file(self, number: int, kind: str = "") -> Path:
        return self.folder / f"{number:05}{kind}.npy"


def load_or_encode(job: EmbeddingJob, folder: str | Path | None = None, shard: int = SHARD) -> Embeddings:
    """The vectors of a job's papers, read where they exist and encoded where they do not.

    folder: where they are kept. It may also hold those of another corpus, if that has all of these texts.
    Without one they stay in the cache until they are complete, so that interrupted work is resumed.
    shard: papers per shard of a new folder.
    Raises InputError for a folder with something else, of another model or other texts, or damaged.
    """
    digest = hashlib.blake2b(job.corpus.fingerprint.encode(), digest_size=12)
    digest.update(np.ascontiguousarray(job.rows, np.int64).data)
    papers = digest.hexdigest()
    layout = Layout(job.model, papers, len(job.rows), job.dim, job.dtype, shard, job.sentences)
    if folder is not None:
        return _kept(job, layout, Path(folder))
    if len(job.rows) <= shard and job.spread is None:
        vectors, counts = job.encode(job.rows, lambda share: None)
        array = _stored(vectors, job.dtype, "papers")
        offsets = np.arange(len(array) + 1) if counts is None else offsets_of(counts)
        return Embeddings(VectorTable([array]), offsets, len(job.rows))
    about = json.dumps([layout.model, layout.corpus, layout.shard, layout.dtype], sort_keys=True)
    name = hashlib.blake2b(about.encode(), digest_size=12).hexdigest()
    cache = cache_folder() / "encoding" / name
    found = (EmbeddingFolder.find(cache) or EmbeddingFolder.begin(cache, layout)).completed(job)
    shutil.rmtree(cache, ignore_errors=True)  # what is mapped stays until nobody has it
    return found


def _kept(job: EmbeddingJob, layout: Layout, folder: Path) -> Embeddings:
    """The vectors in a folder, which may be those of another corpus."""
    there = EmbeddingFolder.find(folder)
    if there is None:
        there = EmbeddingFolder.begin(folder, layout, text_keys(job.corpus, job.rows))
    for key in [*layout.model, *there.layout.model]:
        of_here, of_there = layout.model.get(key), there.layout.model.get(key)
        if of_here != of_there:
            raise InputError(
                f"{folder}: embeddings of another model: {key} is {of_there} there and {of_here} here; "
                "name another folder"
            )
    if there.layout.corpus == layout.corpus:
        return there.completed(job)
    keys, known = text_keys(job.corpus, job.rows), _read(folder / TEXTS)
    if known.shape != (there.layout.papers,) or known.dtype != np.uint64:
        raise InputError(f"{folder / TEXTS}: damaged; write the embeddings to another folder")
    if np.array_equal(keys, known):
        return there.completed(job)
    order = np.argsort(known, kind="stable")
    places = np.append(order, -1)[np.searchsorted(known, keys, sorter=order)]
    places[np.append(known, np.uint64(0))[places] != keys] = -1
    if (places < 0).any():
        paper = job.corpus.paper_ids[int(job.rows[np.argmax(places < 0)])]
        raise InputError(
            f"{folder}: no vector of paper {paper!r} with its title and abstract; {(places < 0).sum():,} of "
            f"{len(keys):,} papers have none: embed this corpus into another folder"
        )
    if missing := there.missing():
        raise InputError(
            f"{folder}: {len(missing):,} of {len(there.parts()):,} shards are missing; run again what makes "
            "these embeddings, with its own papers"
        )
    vectors, offsets = there.open()
    rows, bounds = ranges(offsets[places], offsets[places + 1])
    return Embeddings(vectors.take(rows), bounds)


def _encoded(
    job: EmbeddingJob, parts: Mapping[int, slice], pace: EncodingProgress
) -> Iterable[tuple[int, Floats, NDArray[np.int32] | None]]:
    """Number, vectors and counts of each shard."""
    if job.spread is not None:
        for number, vectors in job.spread(parts):
            yield number, vectors, None
            pace.advance(len(vectors))
        return
    for number, part in parts.items():
        before, papers = pace.done, part.stop - part.start

        def advance(share: float, papers: int = papers) -> None:
            pace.advance(share * papers)

        yield number, *job.encode(job.rows[part], advance)
        pace.advance(before + papers - pace.done)  # those without a text, and what rounding lost


def text_keys(corpus: Corpus, rows: Rows) -> NDArray[np.uint64]:
    """A key for title and abstract of each paper [n]: equal texts have equal ones, in any corpus."""
    keys = np.empty(len(rows), np.uint64)
    titles, abstracts = corpus.titles, corpus.abstracts
    for place, row in enumerate(rows.tolist()):
        text = f"{titles[row]}\0{abstracts[row]}".encode("utf-8", "surrogatepass")
        keys[place] = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
    return keys


def _stored(vectors: Floats, dtype: str, what: str) -> NDArray[np.floating]:
    """Vectors [n, D] in the precision that is stored; InputError if one is not finite in it."""
    kept = as_dtype(vectors, dtype)
    if (bad := first_not_finite(kept)) is not None:
        raise InputError(
            f"{what}: vector {bad} is not finite as {dtype}; the encoder is damaged, or diverged in training"
        )
    return kept


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """As they are after a JSON file: tuples are lists there."""
    found: dict[str, Any] = json.loads(json.dumps(dict(values)))
    return found


def _write(path: Path, array: NDArray[Any]) -> None:
    """A file that is whole, even after a power failure."""
    with atomic_write(path) as part, part.open("wb") as stream:
        np.save(stream, array)
        stream.flush()
        os.fsync(stream.fileno())


def _read(path: Path) -> NDArray[Any]:
    """An array, mapped. Copy-on-write, since torch warns of arrays that cannot be written."""
    try:
        return np.asarray(np.load(path, mmap_mode="c", allow_pickle=False))
    except FileNotFoundError:
        raise InputError(f"{path}: missing; the embeddings are not complete") from None
    except (OSError, ValueError, EOFError) as error:
        raise InputError(
            f"{path}: cut short or damaged ({error_text(error)}); remove this file, {_AGAIN}"
        ) from None
