"""A library: a folder of papers that can be queried for citations.

    library.json        version, current generation, model, sources, counts, dates
    library.lock        locked by the process that changes the library
    generations/N/      checksums.json  of all files below; those of an index are in its own folder
                        corpus/         the prepared store of the papers (datasets.corpus), surnames as fields
                        metadata.arrow  the other fields of each paper, in the order of the store
                        identities.npy  hashed identifiers for deduplication (library.identities)
                        lengths.json    numbers of rows, if files have grown (datasets.columns)
                        model/  index/  the ranking model and its index
                        search.sqlite search.npy  the index of library.search

A change writes a new generation, then replaces library.json, then removes the old generation. A killed
process therefore leaves either the old library or the new one. Processes that have the old generation open
keep reading it.

A few more papers, up to MAX_CHANGED, cost little: the new generation has hard links to the old one's large
files and appends to them (`continue_arrays`), or puts rows into second files beside them (`continue_table`).
Nothing that the old generation reads changes. Other changes write all files anew.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from citerec.base.errors import InputError, error_text
from citerec.base.files import (
    CHECKSUMS,
    check_checksums,
    disk_errors,
    file_lock,
    write_checksums,
    write_text,
)
from citerec.datasets.columns import (
    TableWriter,
    continue_arrays,
    continue_table,
    count_rows,
    later_rows,
    load_array,
    save_arrays,
    table_batches,
)
from citerec.datasets.corpus import Corpus
from citerec.datasets.fulltext.catalogue import surname
from citerec.datasets.prepare import StoreBuilder, continue_store, prepare_store
from citerec.datasets.records import ContextRecord, PaperRecord, QueryRecord, Source, quoted
from citerec.library.identities import Identities
from citerec.library.papers import LibraryPaper as LibraryPaper
from citerec.retrieval.base import MAX_CHANGED

VERSION = 1
"""Version of the folder layout: increment it when the files change."""
MANIFEST, LOCK, GENERATIONS = "library.json", "library.lock", "generations"
BUILDING = "building"
"""Folder of what a stopped build of a large library has done (library.disk.build)."""
CORPUS, METADATA, IDENTITIES = "corpus", "metadata.arrow", "identities"
NEW = "new"
"""Folder in a generation, for the papers that are added to those of the former one."""

TOKENIZER = "default"
"""How texts are split into words (datasets.tokenize)."""
MAX_AUTHORS = 10
"""Maximum authors of a paper whose surnames are in the corpus; contexts name at most the first three."""
BUILT_IN, RANKED_BY = "built-in model", ", ranked by "

Rows = NDArray[np.int64]
_IN_CORPUS = ("id", "title", "abstract", "year")
_LISTS = ("authors", "collections", "tags", "aliases", "filled", "files", "names")
_COLUMNS = {name: pa.string() for name in LibraryPaper._fields if name not in _IN_CORPUS}
_COLUMNS |= dict.fromkeys(_LISTS, pa.list_(pa.string())) | {"source": pa.int32()}
SCHEMA = pa.schema([pa.field(name, kind, nullable=False) for name, kind in _COLUMNS.items()])


@dataclass(frozen=True)
class ReadFile:
    """A file that was read, with its size and hash at that time."""

    path: str
    size: int
    hash: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """Content of library.json."""

    version: int = VERSION
    generation: int = 0
    """Number of the current generation."""
    model: str = ""
    """`model` of its building, absolute if it is a path"""
    ranker: str = ""
    """likewise"""
    named: list[str] = []
    """Sources by the names that the user gave, absolute: files, folders, patterns, places in Zotero."""
    sources: list[ReadFile] = []
    """What these were when they were read."""
    contexts: list[ReadFile] = []
    """Files that citing contexts were read from."""
    removed: list[str] = []
    """Ids of papers that the user removed; `update` does not add them again."""
    shards: int = 0
    """Number of shards of a large library (library.disk); 0: this one is in memory."""
    created: str
    changed: str
    counts: dict[str, int] = {}

    @property
    def ranking_model(self) -> str:
        """The model and the ranker, for people."""
        return (self.model or BUILT_IN) + (RANKED_BY + self.ranker if self.ranker else "")


Indexer = Callable[["Library | None", Corpus, Rows, Path], None]
"""(old library, new corpus, kept rows, new generation's folder): writes the model and the index.

Row i of the new corpus was row kept[i] of the old library for i < len(kept); later rows are new.
"""
ContextFinder = Callable[
    [NDArray[np.uint64], list[str]], tuple[Iterable[ContextRecord], Iterable[QueryRecord]]
]
"""(identities of the papers [P, 7], their ids): contexts that cite them, and the cited papers per context."""


class _OtherColumns(Exception):
    """A library of an earlier version."""


class Library:
    """Papers [P], one per row of `corpus`. Use Library.open or Library.create to get one."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path, self.manifest = path, manifest
        self.folder = path / GENERATIONS / str(manifest.generation)
        self.corpus = Corpus(self.folder / CORPUS, path.resolve().name)
        self.identities: NDArray[np.uint64] = load_array(self.folder, IDENTITIES)
        """Fields of library.identities.Identity for each paper [P, 7]."""
        _, self._batches = table_batches(self.folder / METADATA)
        if any(batch.schema.names != SCHEMA.names for batch in self._batches):
            raise _OtherColumns
        self._starts = np.cumsum([0, *map(len, self._batches)])
        self.metadata = pa.Table.from_batches(self._batches, SCHEMA)
        """The fields of LibraryPaper that are not in `corpus` [P], memory-mapped."""
        if len(self.metadata) != len(self.corpus.paper_ids):
            raise InputError("corpus and metadata differ in their number of papers")

    @classmethod
    def open(cls, path: str | Path, trust: bool = True) -> Library:
        """Open the current generation. trust: as for `check_checksums`.

        Raises InputError if the folder is not a library of this version, or if it is damaged.
        """
        path = Path(path).expanduser()
        while True:
            manifest = read_manifest(path)
            if manifest.shards:
                raise InputError(f"{path}: is kept on disk (storage=disk), which this command cannot use")
            try:
                check_generation(path, manifest, trust)
                return cls(path, manifest)
            except _OtherColumns:
                raise outdated(path) from None
            except (InputError, OSError, ValueError, pa.ArrowException) as error:
                if read_manifest(path) == manifest:  # otherwise it changed during the read: try again
                    raise damaged(path, error) from None

    @classmethod
    def create(
        cls,
        path: str | Path,
        papers: Iterable[LibraryPaper],
        *,
        indexer: Indexer | None = None,
        find_contexts: ContextFinder | None = None,
        overwrite: bool = False,
        wait: bool = True,
        **fields: Any,
    ) -> Library:
        """Create a library. Ids must be unique, and each paper needs a title or an abstract.

        overwrite: replace an existing library. wait: for another process that changes it. fields: model,
        sources and contexts of the manifest.
        Raises InputError if the folder contains other files, or a library that must not be overwritten.
        """
        path = Path(path).expanduser()
        check_target(path, overwrite)
        is_new = not path.exists()
        try:
            with lock_folder(path, wait):
                check_target(path, overwrite)
                manifest = Manifest(created=now(), changed=now(), **fields)
                kept = np.empty(0, np.int64)
                return _write_generation(path, manifest, None, kept, papers, find_contexts, indexer)
        except BaseException:
            if is_new and not (path / MANIFEST).exists():
                shutil.rmtree(path, ignore_errors=True)
            raise

    @classmethod
    @contextmanager
    def edit(cls, path: str | Path, wait: bool = True) -> Iterator[Library]:
        """Open the current generation and lock the library against changes by other processes."""
        path = Path(path).expanduser()
        read_manifest(path)
        with lock_folder(path, wait):
            yield cls.open(path)

    def write_generation(
        self,
        kept: Rows,
        papers: Iterable[LibraryPaper],
        indexer: Indexer | None = None,
        find_contexts: ContextFinder | None = None,
        **fields: Any,
    ) -> Library:
        """Write the next generation: rows `kept`, ascending, then `papers`. Call it inside `edit`.

        find_contexts: replaces the contexts; None keeps those of the kept papers. fields: as for
        `update_manifest`.
        """
        manifest = msgspec.structs.replace(self.manifest, **fields)
        return _write_generation(self.path, manifest, self, kept, papers, find_contexts, indexer)

    def update_manifest(self, **fields: Any) -> None:
        """Change sources, contexts or removed in library.json. Call it inside `edit`."""
        write_manifest(self.path, msgspec.structs.replace(self.manifest, **fields))

    def __len__(self) -> int:
        return len(self.metadata)

    def __repr__(self) -> str:
        return f"Library({str(self.path)!r}, {len(self)} papers, generation {self.manifest.generation})"

    @property
    def collections(self) -> list[str]:
        """Names of all collections, sorted."""
        return sorted(self.metadata["collections"].combine_chunks().flatten().unique().to_pylist())

    @cached_property
    def has_filled(self) -> bool:
        """True if `citerec enrich` has filled in anything."""
        return any(pc.sum(batch["filled"].value_lengths()).as_py() for batch in self._batches)

    def paper(self, row: int) -> LibraryPaper:
        """Return the paper of a row. Raises IndexError if the row does not exist."""
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        batch = int(np.searchsorted(self._starts, row, side="right")) - 1
        [fields] = self._batches[batch].slice(row - int(self._starts[batch]), 1).to_pylist()
        fields |= {name: tuple(fields[name]) for name in _LISTS}
        corpus = self.corpus
        fields |= {"id": corpus.paper_ids[row], "title": corpus.titles[row]}
        return LibraryPaper(**fields, abstract=corpus.abstracts[row], year=int(corpus.years[row]))

    def select(self, rows: Rows, names: list[str]) -> list[dict[str, Any]]:
        """Return these fields of the papers of rows; faster than `paper` for many."""
        batches = np.searchsorted(self._starts, rows, side="right") - 1
        found: dict[int, dict[str, Any]] = {}
        for batch in np.unique(batches).tolist():
            inside = rows[batches == batch]
            part = self._batches[batch].select(names).take(pa.array(inside - self._starts[batch]))
            found.update(zip(inside.tolist(), part.to_pylist(), strict=True))
        return [found[row] for row in rows.tolist()]

    @cached_property
    def _row_by_name(self) -> dict[str, int]:
        """Rows by key and alias. Keys take precedence over aliases, earlier rows over later ones."""
        keys, aliases = (self.metadata[name].combine_chunks() for name in ("key", "aliases"))
        with_key = pc.indices_nonzero(pc.not_equal(keys, ""))
        rows = [*with_key.to_pylist(), *pc.list_parent_indices(aliases).to_pylist()]
        names = [*keys.take(with_key).to_pylist(), *pc.list_flatten(aliases).to_pylist()]
        return dict(zip(reversed(names), reversed(rows), strict=True))

    def row(self, name: str) -> int | None:
        """Return the row of the paper with this id, citation key or alias; None if there is none."""
        return self.corpus.paper_row(name) if self.corpus.has_paper(name) else self._row_by_name.get(name)

    def rows(self, names: Iterable[str], option: str = "id") -> Rows:
        """Return the rows of papers, ascending and unique. Raises InputError for an unknown one."""
        rows = []
        for name in names:
            if (row := self.row(name)) is None:
                raise InputError(f"{option}={quoted(name)[1:-1]}: no paper of {self.path} has this id or key")
            rows.append(row)
        return np.unique(np.array(rows, np.int64))


def read_manifest(path: Path) -> Manifest:
    """Read library.json. Raises InputError if it is missing, damaged or of another version."""
    try:
        content = msgspec.json.decode((path / MANIFEST).read_bytes())
        version = content.get("version") if isinstance(content, dict) else None
        if version == VERSION:
            if "ranker" not in content:  # a former library, with both in one text
                model, _, content["ranker"] = str(content.get("model", "")).partition(RANKED_BY)
                content["model"] = "" if model == BUILT_IN else model
            if "named" not in content:  # likewise
                content["named"] = [source["path"] for source in content.get("sources", ())]
            return msgspec.convert(content, Manifest)
    except (FileNotFoundError, NotADirectoryError):
        command = f"citerec build library={path}"
        if path.is_file():
            what, command = "is a file, not a library", f"citerec build library=my-library source={path}"
        else:
            what = "is not a library (it has no library.json)" if path.exists() else "no such folder"
        raise InputError(f"{path}: {what}; create one with {command}") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        problem = f"damaged library ({MANIFEST}: {error_text(error)})"
    else:
        found = f"of version {quoted(version)}" if version is not None else "without a version"
        problem = f"a library {found}, but this program reads version {VERSION}"
    raise InputError(f"{path}: {problem}; build it again: {rebuild_command(path, 'source=... ')}")


def rebuild_command(path: Path, source: str = "") -> str:
    """Return the command that builds a library again, from its known sources or others."""
    return f"citerec build library={path} {source}overwrite=true"


def damaged(path: Path, error: Exception) -> InputError:
    """Return the one error for every damage to a library."""
    reason = error_text(error).replace(f"{path}/", "")
    return InputError(f"{path}: damaged library ({reason}); build it again: {rebuild_command(path)}")


def outdated(path: Path) -> InputError:
    """Return the error for a library whose index or model this version does not read."""
    return InputError(f"{path}: built by an earlier version; build it again: {rebuild_command(path)}")


def check_generation(path: Path, manifest: Manifest, trust: bool = True) -> None:
    """Raise InputError if a file of the current generation differs from its checksum.

    trust: as for `check_checksums`.
    """
    for sums in sorted((path / GENERATIONS / str(manifest.generation)).rglob(CHECKSUMS)):
        check_checksums(sums.parent, trust=trust)


def check_target(path: Path, overwrite: bool) -> None:
    """Raise InputError unless a library may be created at this path."""
    if not path.exists():
        return
    if not path.is_dir():
        raise InputError(f"library={path}: is a file; name a folder")
    inside = {entry.name for entry in path.iterdir()}
    if MANIFEST in inside and not overwrite:
        raise InputError(
            f"{path}: a library already exists; use add or update to change it, overwrite=true to replace it"
        )
    if MANIFEST not in inside and (others := inside - {LOCK, GENERATIONS, BUILDING}):
        raise InputError(f"{path}: is not a library and not empty ({sorted(others)[0]}); name another folder")


@contextmanager
def lock_folder(path: Path, wait: bool) -> Iterator[None]:
    """Lock the folder and remove what killed processes left behind."""
    with disk_errors(path, "the library", "library"):
        (path / GENERATIONS).mkdir(parents=True, exist_ok=True)
        with file_lock(path / LOCK, "changes the library", wait):
            remove_old_generations(path)
            yield


def remove_old_generations(path: Path) -> None:
    """Remove all generations except the current one."""
    current = ""
    if (path / MANIFEST).exists():
        try:
            current = str(read_manifest(path).generation)
        except InputError:
            return  # damaged: keep everything until a new library replaces it
    for folder in (path / GENERATIONS).iterdir():
        if folder.name != current:
            shutil.rmtree(folder, ignore_errors=True)


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _write_generation(
    path: Path,
    manifest: Manifest,
    old: Library | None,
    kept: Rows,
    papers: Iterable[LibraryPaper],
    find_contexts: ContextFinder | None,
    indexer: Indexer | None,
) -> Library:
    """Write a new generation and make it the current one."""
    existing = [int(folder.name) for folder in (path / GENERATIONS).iterdir() if folder.name.isdecimal()]
    number = max(existing, default=0) + 1
    folder = path / GENERATIONS / str(number)
    try:
        folder.mkdir()
        continued = old if old and find_contexts is None and len(kept) == len(old) else None
        room = _room(continued) if continued else 0
        few = list(islice(papers := iter(papers), room + 1))
        if continued and 0 < len(few) <= room:
            _continue_papers(continued, folder, few)
        else:
            continued = None
            _write_papers(folder, old, kept, chain(few, papers), find_contexts)
        corpus = Corpus(folder / CORPUS, path.resolve().name)
        if indexer is not None:
            indexer(old, corpus, kept, folder)
        write_checksums(folder, before=continued.folder if continued else None)
        source = pa.Table.from_batches(table_batches(folder / METADATA)[1], SCHEMA)["source"]
        counts = {
            "papers": len(corpus.paper_ids),
            "contexts": len(corpus.context_ids),
            "without_source": int(np.count_nonzero(source.to_numpy() < 0)),
        }
        new = msgspec.structs.replace(manifest, generation=number, changed=now(), counts=counts)
        write_manifest(path, new)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    remove_old_generations(path)
    return Library.open(path)


def _room(old: Library) -> int:
    """Return the number of papers that may be added to files of a generation instead of writing all anew."""
    later = count_rows(later_rows(old.folder / METADATA))
    return int(MAX_CHANGED * (len(old) - later)) - later


def _continue_papers(old: Library, folder: Path, papers: list[LibraryPaper]) -> None:
    """Write the corpus, metadata and identities of all papers of the old generation and a few more."""
    new = folder / NEW
    new.mkdir()
    _write_papers(new, None, np.empty(0, np.int64), papers, None)
    continue_store(old.corpus, Corpus(new / CORPUS), folder / CORPUS)
    continue_table(old.folder / METADATA, new / METADATA, folder / METADATA)
    continue_arrays(old.folder, folder, **{IDENTITIES: load_array(new, IDENTITIES)})
    shutil.rmtree(new)


def write_manifest(path: Path, manifest: Manifest) -> None:
    write_text(path / MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=1).decode())


def _write_papers(
    folder: Path,
    old: Library | None,
    kept: Rows,
    papers: Iterable[LibraryPaper],
    find_contexts: ContextFinder | None,
) -> None:
    """Write the corpus, metadata and identities of a generation."""
    table = TableWriter(folder / METADATA, SCHEMA)
    identities = Identities(old.identities[kept] if old else None)
    ids = [old.corpus.paper_ids[row] for row in kept.tolist()] if old and find_contexts else []
    queries: list[Iterable[QueryRecord]] = []
    digest, content = hashlib.blake2b(digest_size=16), dict[str, str]()

    def records() -> Iterator[PaperRecord]:
        for paper in papers:
            table.append(*(getattr(paper, name) for name in _COLUMNS))
            identities.add(paper)
            surnames = tuple(filter(None, map(surname, paper.authors[:MAX_AUTHORS])))
            record = PaperRecord(paper.id, paper.title, paper.abstract, paper.year, surnames)
            digest.update(repr(record).encode())
            if find_contexts:
                ids.append(paper.id)
            yield record
        content["papers"] = digest.hexdigest()

    def contexts() -> Iterator[ContextRecord]:
        if find_contexts:
            found, of_train = find_contexts(identities.numbers(), ids)
            queries.append(of_train)
            for context in found:
                digest.update(repr(context).encode())
                yield context
        content["contexts"] = digest.hexdigest()

    def keep(builder: StoreBuilder) -> None:
        if old is not None:
            digest.update(old.corpus.fingerprint.encode() + kept.tobytes())
            table.append_rows(old.folder / METADATA, kept)
            builder.copy_from(old.corpus, kept, contexts=find_contexts is None)

    source = Source(
        name=folder.parents[1].name,
        identity=content,
        papers=records,
        contexts=contexts,
        splits={"train": queries.pop} if find_contexts else {},
    )
    settings = {"tokenizer": TOKENIZER, "candidates": "all", "field": "authors"}
    with closing(table):
        prepare_store(source, folder / CORPUS, settings, initialise=keep)
    save_arrays(folder, **{IDENTITIES: identities.numbers()})
