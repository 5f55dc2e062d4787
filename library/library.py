"""A library: a folder of papers that can be asked for citations.

    library.json        version, current generation, model, sources, counts, dates
    library.lock        held by who changes the library
    generations/N/      corpus/         the prepared store of the papers (datasets.corpus)
                        metadata.arrow  what else is known of each paper, in the order of the store
                        identities.npy  what tells the papers apart (library.papers.identity)
                        model/  index/  what ranks the papers, and what it has made of them

A change writes a new generation, then replaces library.json, then removes the old generation: a process that
is killed leaves the old library or the new one, and who has the old one open goes on with it.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from datasets.columns import TableWriter, table_batches
from datasets.corpus import Corpus
from datasets.errors import InputError, error_text
from datasets.files import disk_errors, file_lock, write_text
from datasets.prepare import StoreBuilder, prepare_store
from datasets.records import ContextRecord, PaperRecord, QueryRecord, Source, quoted
from library.duplicates import Identities
from library.papers import LibraryPaper as LibraryPaper

VERSION = 1
"""Of the folder: raise it when the files change."""
MANIFEST, LOCK, GENERATIONS = "library.json", "library.lock", "generations"
CORPUS, METADATA, IDENTITIES = "corpus", "metadata.arrow", "identities.npy"

Rows = NDArray[np.int64]
_IN_CORPUS = ("id", "title", "abstract", "year")
_LISTS = ("authors", "collections", "tags", "aliases")
_COLUMNS = {name: pa.string() for name in LibraryPaper._fields if name not in _IN_CORPUS}
_COLUMNS |= dict.fromkeys(_LISTS, pa.list_(pa.string())) | {"source": pa.int32()}
_SCHEMA = pa.schema([pa.field(name, kind, nullable=False) for name, kind in _COLUMNS.items()])


@dataclass(frozen=True)
class ReadFile:
    """A file that papers were read from, as it was then."""

    path: str
    size: int
    hash: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What library.json holds."""

    version: int = VERSION
    generation: int = 0
    """Number of the current one."""
    model: str = ""
    sources: list[ReadFile] = []
    contexts: list[ReadFile] = []
    """The files of the contexts."""
    removed: list[str] = []
    """Ids of papers that were removed by hand, which an update leaves out."""
    created: str
    changed: str
    counts: dict[str, int] = {}


Indexer = Callable[["Library | None", Corpus, Rows, Path], None]
"""(the library as it was, the new papers, kept, the new generation): writes the model and the index.

Row i of the new papers was row kept[i] of the library for i < len(kept); the others are new.
"""
Contexts = Callable[[NDArray[np.uint64], list[str]], tuple[Iterable[ContextRecord], Iterable[QueryRecord]]]
"""(identities of the papers [P, 7], their ids): contexts that cite some, and the papers that each cites."""


class Library:
    """Papers [P] in the order of `corpus`, row by row. Open one with Library.open, make one with create."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path, self.manifest = path, manifest
        self.folder = path / GENERATIONS / str(manifest.generation)
        self.corpus = Corpus(self.folder / CORPUS, path.resolve().name)
        self.identities: NDArray[np.uint64] = np.load(
            self.folder / IDENTITIES, mmap_mode="r", allow_pickle=False
        )
        """Of each paper the numbers of library.papers.Identity [P, 7]."""
        _, self._batches = table_batches(self.folder / METADATA)
        self._starts = np.cumsum([0, *map(len, self._batches)])
        self.metadata = pa.Table.from_batches(self._batches, _SCHEMA)
        """The columns of LibraryPaper that `corpus` has not, memory-mapped [P]."""
        if len(self.metadata) != len(self.corpus.paper_ids):
            raise InputError("its metadata has a different number of papers")

    @classmethod
    def open(cls, path: str | Path) -> Library:
        """The current generation. Raises InputError if the folder is no library of this version."""
        path = Path(path).expanduser()
        while True:
            manifest = _read_manifest(path)
            try:
                return cls(path, manifest)
            except (InputError, OSError, ValueError, pa.ArrowException) as error:
                if _read_manifest(path) == manifest:  # else it was changed while we read it
                    raise InputError(f"{path}: {_damaged(path)} ({error_text(error)})") from None

    @classmethod
    def create(
        cls,
        path: str | Path,
        papers: Iterable[LibraryPaper],
        *,
        indexer: Indexer | None = None,
        find: Contexts | None = None,
        overwrite: bool = False,
        wait: bool = True,
        **about: Any,
    ) -> Library:
        """Make a library; ids must be unique, and each paper needs a title or an abstract.

        find: gives the contexts. overwrite: replace the library that is there. wait: for another process that
        changes it. about: model, sources, contexts of the manifest.
        Raises InputError if the folder holds something else or a library already.
        """
        path = Path(path).expanduser()
        check_place(path, overwrite)
        made = not path.exists()
        try:
            with _locked(path, wait):
                check_place(path, overwrite)
                manifest = Manifest(created=_now(), changed=_now(), **about)
                return _write(path, manifest, None, np.empty(0, np.int64), papers, find, indexer)
        except BaseException:
            if made and not (path / MANIFEST).exists():
                shutil.rmtree(path, ignore_errors=True)
            raise

    @classmethod
    @contextmanager
    def changing(cls, path: str | Path, wait: bool = True) -> Iterator[Library]:
        """The current generation, while no other process changes the library."""
        path = Path(path).expanduser()
        _read_manifest(path)
        with _locked(path, wait):
            yield cls.open(path)

    def changed(
        self,
        kept: Rows,
        papers: Iterable[LibraryPaper],
        indexer: Indexer | None = None,
        find: Contexts | None = None,
        **about: Any,
    ) -> Library:
        """The next generation: rows `kept`, ascending, then `papers`. Call it inside `changing`.

        find: replaces the contexts; None keeps those whose papers are kept. about: as for noted.
        """
        manifest = msgspec.structs.replace(self.manifest, **about)
        return _write(self.path, manifest, self, kept, papers, find, indexer)

    def noted(self, **about: Any) -> None:
        """Change sources, contexts or removed in library.json. Call it inside `changing`."""
        _write_manifest(self.path, msgspec.structs.replace(self.manifest, **about))

    def __len__(self) -> int:
        return len(self.metadata)

    def __repr__(self) -> str:
        return f"Library({str(self.path)!r}, {len(self)} papers, generation {self.manifest.generation})"

    @property
    def collections(self) -> list[str]:
        """Their names, sorted."""
        return sorted(self.metadata["collections"].combine_chunks().flatten().unique().to_pylist())

    def paper(self, row: int) -> LibraryPaper:
        """IndexError for a row that is not there."""
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        batch = int(np.searchsorted(self._starts, row, side="right")) - 1
        [known] = self._batches[batch].slice(row - int(self._starts[batch]), 1).to_pylist()
        known |= {name: tuple(known[name]) for name in _LISTS}
        corpus = self.corpus
        known |= {"id": corpus.paper_ids[row], "title": corpus.titles[row], "abstract": corpus.abstracts[row]}
        return LibraryPaper(**known, year=int(corpus.years[row]))

    @cached_property
    def _named(self) -> dict[str, int]:
        """Row by key and by alias; of several the first, and a key counts before an alias."""
        keys, aliases = (self.metadata[name].combine_chunks() for name in ("key", "aliases"))
        there = pc.indices_nonzero(pc.not_equal(keys, ""))
        rows = [*there.to_pylist(), *pc.list_parent_indices(aliases).to_pylist()]
        names = [*keys.take(there).to_pylist(), *pc.list_flatten(aliases).to_pylist()]
        return dict(zip(reversed(names), reversed(rows), strict=True))

    def row(self, name: str) -> int | None:
        """The row of the paper with this id, citation key, or id or key of another record of it."""
        return self.corpus.paper_row(name) if self.corpus.has_paper(name) else self._named.get(name)

    def rows(self, names: Iterable[str], option: str = "id") -> Rows:
        """Of several; InputError that names the option for one that is unknown."""
        found = []
        for name in names:
            if (row := self.row(name)) is None:
                raise InputError(f"{option}={quoted(name)[1:-1]}: no paper of {self.path} has this id or key")
            found.append(row)
        return np.unique(np.array(found, np.int64))


def _read_manifest(path: Path) -> Manifest:
    """library.json; InputError if there is none, or of another version."""
    try:
        content = msgspec.json.decode((path / MANIFEST).read_bytes())
        version = content.get("version") if isinstance(content, dict) else None
        if version == VERSION:
            return msgspec.convert(content, Manifest)
    except (FileNotFoundError, NotADirectoryError):
        what = "no such folder" if not path.exists() else "is no library (it has no library.json)"
        raise InputError(f"{path}: {what}; python recommend.py build library={path} makes one") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: {_damaged(path)} (library.json: {error_text(error)})") from None
    found = f"of version {quoted(version)}" if version is not None else "without a version"
    raise InputError(
        f"{path}: a library {found}, and this program reads version {VERSION}; build it again with "
        "overwrite=true"
    )


def _damaged(path: Path) -> str:
    return f"damaged library; python recommend.py build library={path} overwrite=true makes it again"


def check_place(path: Path, overwrite: bool) -> None:
    """InputError unless a library may be made there."""
    if not path.exists():
        return
    if not path.is_dir():
        raise InputError(f"library={path}: is a file; name a folder")
    inside = {entry.name for entry in path.iterdir()}
    if MANIFEST in inside and not overwrite:
        raise InputError(
            f"{path}: there is a library already; add and update change it, overwrite=true replaces it"
        )
    if MANIFEST not in inside and (others := inside - {LOCK, GENERATIONS}):
        raise InputError(f"{path}: is not a library and not empty ({sorted(others)[0]}); name another folder")


@contextmanager
def _locked(path: Path, wait: bool) -> Iterator[None]:
    """Alone with the folder, cleared of what killed processes have left."""
    with disk_errors(path, "the library", "library"):
        (path / GENERATIONS).mkdir(parents=True, exist_ok=True)
        with file_lock(path / LOCK, "changes the library", wait):
            _clear(path)
            yield


def _clear(path: Path) -> None:
    """Remove all generations but the current one."""
    current = ""
    if (path / MANIFEST).exists():
        try:
            current = str(_read_manifest(path).generation)
        except InputError:
            return  # damaged: nothing is removed until a new library stands
    for folder in (path / GENERATIONS).iterdir():
        if folder.name != current:
            shutil.rmtree(folder, ignore_errors=True)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _write(
    path: Path,
    manifest: Manifest,
    old: Library | None,
    kept: Rows,
    papers: Iterable[LibraryPaper],
    find: Contexts | None,
    indexer: Indexer | None,
) -> Library:
    """Write a new generation and make it the current one."""
    there = [int(folder.name) for folder in (path / GENERATIONS).iterdir() if folder.name.isdecimal()]
    number = max(there, default=0) + 1
    folder = path / GENERATIONS / str(number)
    try:
        folder.mkdir()
        _write_papers(folder, old, kept, papers, find)
        corpus = Corpus(folder / CORPUS, path.resolve().name)
        if indexer is not None:
            indexer(old, corpus, kept, folder)
        counts = {"papers": len(corpus.paper_ids), "contexts": len(corpus.context_ids)}
        new = msgspec.structs.replace(manifest, generation=number, changed=_now(), counts=counts)
        _write_manifest(path, new)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    _clear(path)
    return Library.open(path)


def _write_manifest(path: Path, manifest: Manifest) -> None:
    write_text(path / MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=1).decode())


def _write_papers(
    folder: Path, old: Library | None, kept: Rows, papers: Iterable[LibraryPaper], find: Contexts | None
) -> None:
    """The corpus and the metadata of a generation."""
    table = TableWriter(folder / METADATA, _SCHEMA)
    identities = Identities(old.identities[kept] if old else None)
    ids = [old.corpus.paper_ids[row] for row in kept.tolist()] if old and find else []
    queries: list[Iterable[QueryRecord]] = []
    digest, content = hashlib.blake2b(digest_size=16), dict[str, str]()

    def records() -> Iterator[PaperRecord]:
        for paper in papers:
            table.append(*(getattr(paper, name) for name in _COLUMNS))
            identities.add(paper)
            record = PaperRecord(paper.id, paper.title, paper.abstract, paper.year)
            digest.update(repr(record).encode())
            if find:
                ids.append(paper.id)
            yield record
        content["papers"] = digest.hexdigest()

    def cited() -> Iterator[ContextRecord]:
        if find:
            contexts, of_train = find(identities.numbers(), ids)
            queries.append(of_train)
            for context in contexts:
                digest.update(repr(context).encode())
                yield context
        content["contexts"] = digest.hexdigest()

    def keep(builder: StoreBuilder) -> None:
        if old is not None:
            digest.update(old.corpus.fingerprint.encode() + kept.tobytes())
            table.take(old.folder / METADATA, kept)
            builder.keep(old.corpus, kept, contexts=find is None)

    source = Source(
        name=folder.parents[1].name,
        identity=content,
        papers=records,
        contexts=cited,
        splits={"train": queries.pop} if find else {},
    )
    settings = {"tokenizer": "default", "candidates": "all"}
    with closing(table):
        prepare_store(source, folder / CORPUS, settings, keep=keep)
    np.save(folder / IDENTITIES, identities.numbers(), allow_pickle=False)
