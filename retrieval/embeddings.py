"""Encoding papers into embeddings (retrieval.embeddings): what is there already is not made again.

Vectors of papers on the disk: shards that are written one by one and searched as they lie there.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from datasets.columns import offsets_of, ranges
from datasets.corpus import Corpus
from datasets.errors import InputError
from datasets.files import written_whole
from datasets.progress import counting
from retrieval.index import Halves, not_finite, rounded
from retrieval.vectors import Pace

FORMAT = 1
MANIFEST, TEXTS = "embeddings.json", "texts.npy"
SHARD = 4096
"""Papers of a shard: they are encoded in order of length. On arXiv abstracts of at most 512 subwords 2.9 % of
what is multiplied is padding then, where it is 4.7 % with 1,024 papers and 2.1 % with 8,192; but the fewer
they are, the less is lost by a kill."""


@dataclass(frozen=True)
class Layout:
    """What a folder of embeddings holds."""

    model: Mapping[str, Any]
    """what the vectors depend on beside the texts, as plain values: a hash of the weights, settings"""
    corpus: str
    """the papers that they were made of (`papers_of`)"""
    papers: int
    dim: int
    dtype: str = "float16"
    shard: int = SHARD
    sentences: bool = False
    """whether a paper has several vectors, one a sentence; else one"""

    def __post_init__(self) -> None:
        """Raises InputError for a shard of no papers."""
        object.__setattr__(self, "model", json.loads(json.dumps(dict(self.model))))  # tuples are lists there
        if type(self.shard) is not int or self.shard < 1:
            raise InputError(f"shard={self.shard}: give the papers of a shard, 1 or more")


class EmbeddingFolder:
    """A folder of embeddings, perhaps unfinished."""

    def __init__(self, folder: Path, layout: Layout) -> None:
        self.folder, self.layout = folder, layout

    @classmethod
    def begin(cls, folder: Path, layout: Layout, keys: NDArray[np.uint64] | None = None) -> Self:
        """A folder to be filled; keys: of the papers' texts (`text_keys`), for use with other corpora.

        Raises InputError if there is something in it.
        """
        if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
            raise InputError(f"{folder}: there is something else than embeddings; name another folder")
        if keys is not None:
            _write(folder / TEXTS, keys)
        with written_whole(folder / MANIFEST) as part:
            part.write_text(json.dumps({"format": FORMAT, **asdict(layout)}, indent=1) + "\n", "utf-8")
        return cls(folder, layout)

    @classmethod
    def find(cls, folder: Path) -> Self | None:
        """The folder if embeddings were begun there, else None; InputError if its manifest is damaged."""
        path = folder / MANIFEST
        try:
            content = json.loads(path.read_text("utf-8"))
            if (version := content.pop("format")) != FORMAT:
                raise InputError(f"{path}: embeddings of format {version!r}; this version reads {FORMAT}")
            layout = Layout(**content)
            good = layout.dtype in ("float16", "float32") and layout.dim >= 1
            good = good and all(type(n) is int and n >= 0 for n in (layout.papers, layout.dim))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{path}: damaged ({error}); make the embeddings in another folder") from None
        if not good:
            raise InputError(f"{path}: damaged; make the embeddings in another folder")
        return cls(folder, layout)

    def check_model(self, model: Mapping[str, Any]) -> None:
        """InputError that says what differs, if the vectors are of another model or other settings."""
        here, there = json.loads(json.dumps(dict(model))), self.layout.model
        for key in [*here, *there]:
            if here.get(key) != there.get(key):
                raise InputError(
                    f"{self.folder}: embeddings of another model: {key} is {there.get(key)} there and "
                    f"{here.get(key)} here; name another folder"
                )

    def parts(self) -> list[slice]:
        """The papers of each shard."""
        size, papers = self.layout.shard, self.layout.papers
        return [slice(start, min(start + size, papers)) for start in range(0, papers, size)]

    def missing(self) -> list[int]:
        """Numbers of the shards that are not there yet."""
        return [number for number in range(len(self.parts())) if not self._file(number).is_file()]

    def write(self, number: int, vectors: NDArray[Any], counts: NDArray[np.int32] | None = None) -> None:
        """A shard's vectors [n, D] and, with sentences, how many of them each paper has; then it is there.

        Raises InputError for vectors that are not finite in the numbers that are kept.
        """
        assert (counts is not None) == self.layout.sentences
        kept = finite_rounded(vectors, self.layout.dtype, str(self._file(number)))
        if counts is not None:
            _write(self._file(number, ".counts"), counts.astype(np.int32))
        _write(self._file(number), kept)

    def keys(self) -> NDArray[np.uint64]:
        """Of the papers' texts [N]; InputError if the file is not there or damaged."""
        found = _read(self.folder / TEXTS)
        if found.shape != (self.layout.papers,) or found.dtype != np.uint64:
            raise InputError(f"{self.folder / TEXTS}: damaged; make the embeddings in another folder")
        return np.asarray(found)

    def open(self) -> tuple[Halves, NDArray[np.int64]]:
        """The vectors, mapped, and where those of each paper begin and end [N + 1].

        Raises InputError that names the first shard that is not there, cut short, or not finite.
        """
        layout, arrays, counts = self.layout, [], []
        for number, part in enumerate(self.parts()):
            path, papers = self._file(number), part.stop - part.start
            of = np.ones(papers, np.int32)
            if layout.sentences:
                of = _read(self._file(number, ".counts"))
                if of.shape != (papers,) or of.dtype != np.int32 or of.min(initial=0) < 0:
                    raise InputError(f"{self._file(number, '.counts')}: damaged; remove {path}, {_AGAIN}")
            array = _read(path)
            if array.shape != (int(of.sum()), layout.dim) or array.dtype != layout.dtype:
                raise InputError(
                    f"{path}: {array.dtype} {array.shape} is no shard of these; remove it, {_AGAIN}"
                )
            if (bad := not_finite(array)) is not None:
                raise InputError(f"{path}: vector {bad} is not finite; remove this file, {_AGAIN}")
            arrays.append(array)
            counts.append(of)
        empty = np.empty((0, layout.dim), layout.dtype)
        return Halves(arrays or [empty]), offsets_of(np.concatenate([np.empty(0, np.int32), *counts]))

    def _file(self, number: int, kind: str = "") -> Path:
        return self.folder / f"{number:05}{kind}.npy"


_AGAIN = "and it is made again"


def finite_rounded(vectors: NDArray[np.float32], dtype: str, what: str) -> NDArray[np.floating]:
    """Vectors [n, D] in the numbers that are kept; InputError if one is not finite in them."""
    kept = rounded(vectors, dtype)
    if (bad := not_finite(kept)) is not None:
        raise InputError(
            f"{what}: vector {bad} is not finite as {dtype}; the encoder is damaged, or diverged in training"
        )
    return kept


def papers_of(corpus: Corpus, rows: NDArray[np.int64]) -> str:
    """A name for these papers of this corpus."""
    digest = hashlib.blake2b(corpus.fingerprint.encode(), digest_size=12)
    digest.update(np.ascontiguousarray(rows, np.int64).data)
    return digest.hexdigest()


def text_keys(corpus: Corpus, rows: NDArray[np.int64]) -> NDArray[np.uint64]:
    """A key for title and abstract of each paper [n]: equal texts have equal ones, in any corpus."""
    keys = np.empty(len(rows), np.uint64)
    titles, abstracts = corpus.titles, corpus.abstracts
    for place, row in enumerate(rows.tolist()):
        text = f"{titles[row]}\0{abstracts[row]}".encode("utf-8", "surrogatepass")
        keys[place] = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
    return keys


def places_of(
    keys: NDArray[np.uint64], known: NDArray[np.uint64], names: Sequence[str], folder: Path
) -> NDArray[np.int64]:
    """Where keys [n] are among the known ones; InputError that names the first that is not (names [n])."""
    order = np.argsort(known, kind="stable")
    places = np.searchsorted(known, keys, sorter=order)
    found = order[np.minimum(places, len(known) - 1)] if len(known) else np.zeros(len(keys), np.int64)
    absent = known[found] != keys if len(known) else np.ones(len(keys), np.bool_)
    if absent.any():
        raise InputError(
            f"{folder}: no vector of paper {names[int(np.argmax(absent))]!r} with its title and abstract; "
            f"{int(absent.sum()):,} of {len(keys):,} papers have none: embed this corpus into another folder"
        )
    return found


def _write(path: Path, array: NDArray[Any]) -> None:
    """A file that is whole, also after the machine went down."""
    with written_whole(path) as part, part.open("wb") as stream:
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
        reason = " ".join(str(error).split())[:120]
        raise InputError(f"{path}: cut short or damaged ({reason}); remove this file, {_AGAIN}") from None


log = logging.getLogger(__name__)

Advance = Callable[[float], None]
"""Is told a share of some work that is done, all shares of it being 1."""
Vectors = tuple[NDArray[np.float32], NDArray[np.int32] | None]
"""Vectors of papers, and how many each paper has where they are of sentences."""


@dataclass(frozen=True)
class Place:
    """Where embeddings are kept, None: nowhere; and the papers of a shard."""

    folder: str | Path | None = None
    shard: int = SHARD


@dataclass(frozen=True)
class Work:
    """What is to be encoded, and how."""

    corpus: Corpus
    rows: NDArray[np.int64]
    model: Mapping[str, Any]
    """what vectors depend on beside the texts"""
    dim: int
    encode: Callable[[NDArray[np.int64], Advance], Vectors]
    """rows of papers [n] to vectors"""
    sentences: bool = False
    dtype: str = "float16"
    spread: Callable[[Mapping[int, slice]], Iterable[tuple[int, NDArray[np.float32]]]] | None = None
    """shards, by number, to vectors of each, in any order: by other processes, in place of `encode`"""


@dataclass(frozen=True)
class Embeddings:
    """The vectors of N papers, which begin and end at `offsets` [N + 1]."""

    vectors: Halves
    offsets: NDArray[np.int64]
    encoded: int
    """papers that had to be encoded"""
    seconds: float
    """that it took"""


def embedded(work: Work, place: Place) -> Embeddings:
    """The vectors of some papers, read where they are and made where they are not.

    In a folder that is named they are kept. There they may also be those of another corpus, if it has all of
    these texts. In the cache they are kept only until they are whole, for a run that is cut off to go on.
    Raises InputError for a folder with something else, or of another model or other texts, or damaged.
    """
    layout = Layout(
        model=work.model,
        corpus=papers_of(work.corpus, work.rows),
        papers=len(work.rows),
        dim=work.dim,
        dtype=work.dtype,
        shard=place.shard,
        sentences=work.sentences,
    )
    if place.folder is not None:
        return _kept(work, layout, Path(place.folder))
    if len(work.rows) <= place.shard and work.spread is None:
        vectors, counts = work.encode(work.rows, lambda share: None)
        array = finite_rounded(vectors, work.dtype, "papers")
        offsets = np.arange(len(array) + 1) if counts is None else offsets_of(counts)
        return Embeddings(Halves([array]), offsets, len(work.rows), 0.0)
    folder = _unfinished(layout)
    found = _filled(EmbeddingFolder.find(folder) or EmbeddingFolder.begin(folder, layout), work)
    shutil.rmtree(folder, ignore_errors=True)  # what is mapped stays until nobody has it
    return found


def _kept(work: Work, layout: Layout, folder: Path) -> Embeddings:
    there = EmbeddingFolder.find(folder)
    if there is None:
        there = EmbeddingFolder.begin(folder, layout, text_keys(work.corpus, work.rows))
    there.check_model(layout.model)
    if there.layout.corpus == layout.corpus:
        return _filled(there, work)
    keys, known = text_keys(work.corpus, work.rows), there.keys()
    if np.array_equal(keys, known):
        return _filled(there, work)
    places = places_of(keys, known, _Ids(work), folder)
    if missing := there.missing():
        raise InputError(
            f"{folder}: {len(missing):,} of {len(there.parts()):,} shards are missing; run again what makes "
            "these embeddings, with its own papers"
        )
    vectors, offsets = there.open()
    if not work.sentences:
        return Embeddings(vectors.take(places), np.arange(len(places) + 1), 0, 0.0)
    rows, bounds = ranges(offsets[places], offsets[places + 1])
    return Embeddings(vectors.take(rows), bounds, 0, 0.0)


class _Ids(Sequence[str]):
    """Ids of the papers of some work."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def __len__(self) -> int:
        return len(self._work.rows)

    def __getitem__(self, place: Any) -> Any:
        return self._work.corpus.paper_ids[int(self._work.rows[place])]


def _filled(folder: EmbeddingFolder, work: Work) -> Embeddings:
    """All of a folder, its missing shards made."""
    parts = folder.parts()
    missing = {number: parts[number] for number in folder.missing()}
    left = sum(part.stop - part.start for part in missing.values())
    seconds = 0.0
    if missing:
        with counting("encoding papers", len(work.rows)) as bar:
            pace = Pace("papers", len(work.rows), len(work.rows) - left, bar)
            for number, vectors, counts in _made(work, missing, pace):
                folder.write(number, vectors, counts)
        seconds = pace.seconds
        log.info(f"encoded {left:,} papers in {seconds:,.1f} s, {pace.rate:,.1f} papers/s")
    return Embeddings(*folder.open(), left, seconds)


def _made(
    work: Work, parts: Mapping[int, slice], pace: Pace
) -> Iterable[tuple[int, NDArray[np.float32], NDArray[np.int32] | None]]:
    if work.spread is not None:
        for number, vectors in work.spread(parts):
            yield number, vectors, None
            pace.advance(len(vectors))
        return
    for number, part in parts.items():
        before, papers = pace.done, part.stop - part.start

        def advance(share: float, papers: int = papers) -> None:
            pace.advance(share * papers)

        yield number, *work.encode(work.rows[part], advance)
        pace.advance(before + papers - pace.done)  # those without a text, and what rounding lost


def _unfinished(layout: Layout) -> Path:
    """Where in the cache what is done of an encoding is kept."""
    about = [layout.model, layout.corpus, layout.shard, layout.dtype]
    digest = hashlib.blake2b(json.dumps(about, sort_keys=True).encode(), digest_size=12).hexdigest()
    return Path(os.environ.get("CITATION_CACHE", ".cache")) / "encoding" / digest
