"""A library: a folder of papers that can be asked for citations.

    library.json        version, current generation, model, sources, counts, dates
    library.lock        held by who changes the library
    generations/N/      corpus/         the prepared store of the papers (datasets.corpus)
                        metadata.arrow  what else is known of each paper, in the order of the store
                        identities.npy  what tells the papers apart (library.papers.identity)
                        index/          what the model has made of the papers

A change writes a new generation, then replaces library.json, then removes the old generation: a process that
is killed leaves the old library or the new one, and who has the old one open goes on with it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from datasets.columns import TableWriter, table_batches
from datasets.corpus import Corpus
from datasets.errors import InputError
from datasets.files import one_at_a_time, one_line_disk_errors, written_whole
from datasets.prepare import StoreBuilder, prepare_store
from datasets.records import ContextRecord, PaperRecord, QueryRecord, Source, shown
from library.duplicates import Identities
from library.papers import LibraryPaper as LibraryPaper

VERSION = 1
"""Of the folder: raise it when the files change."""
MANIFEST, LOCK, GENERATIONS = "library.json", "library.lock", "generations"
CORPUS, METADATA, IDENTITIES, INDEX = "corpus", "metadata.arrow", "identities.npy", "index"

Rows = NDArray[np.int64]
Indexer = Callable[[Corpus | None, Corpus, Rows, Path | None, Path], None]
"""(old papers, new papers, kept, old index, new index): fills the new index folder.

Row i of the new papers was row kept[i] of the old ones for i < len(kept); the others are new. Without an old
generation, the old papers and index are None.
"""


_IN_CORPUS = ("id", "title", "abstract", "year")
_LISTS = ("authors", "collections", "tags", "aliases")
_COLUMNS = tuple(name for name in LibraryPaper._fields if name not in _IN_CORPUS)
_SCHEMA = pa.schema(
    [
        pa.field(
            name,
            pa.list_(pa.string()) if name in _LISTS else pa.int32() if name == "source" else pa.string(),
            nullable=False,
        )
        for name in _COLUMNS
    ]
)


@dataclass(frozen=True)
class SourceFile:
    """A file that papers were read from, as it was then."""

    path: str
    size: int
    hash: str


Contexts = Callable[[NDArray[np.uint64], list[str]], tuple[Iterable[ContextRecord], Iterable[QueryRecord]]]
"""(identities of the papers [P, 7], their ids): contexts that cite some, and the papers that each cites."""


class Library:
    """Papers [P] in the order of `corpus`, row by row. Open one with Library.open, make one with create."""

    def __init__(self, path: Path, manifest: dict[str, Any]) -> None:
        self.path, self.manifest = path, manifest
        self.generation = int(manifest["generation"])  # a name of a folder, and nothing else
        self.model: str = manifest["model"]
        self.sources = [SourceFile(**source) for source in manifest["sources"]]
        self.contexts = [SourceFile(**source) for source in manifest["contexts"]]
        """The files of the contexts."""
        self.removed: list[str] = manifest["removed"]
        """Ids of papers that were removed by hand, which an update leaves out."""
        self.folder = path / GENERATIONS / str(self.generation)
        self.corpus = Corpus(self.folder / CORPUS, path.resolve().name)
        self.identities: NDArray[np.uint64] = np.load(
            self.folder / IDENTITIES, mmap_mode="r", allow_pickle=False
        )
        """Of each paper the numbers of library.papers.Identity [P, 7]."""
        _, self._batches = table_batches(self.folder / METADATA)
        self._starts = np.cumsum([0] + [len(batch) for batch in self._batches])
        if self._starts[-1] != len(self.corpus.paper_ids):
            raise InputError("its metadata has another number of papers")

    @classmethod
    def open(cls, path: str | Path) -> Library:
        """The current generation. Raises InputError if the folder is no library of this version."""
        path = Path(path).expanduser()
        while True:
            manifest = _read_manifest(path)
            try:
                return cls(path, manifest)
            except (InputError, OSError, KeyError, TypeError, ValueError, pa.ArrowException) as error:
                if _read_manifest(path) == manifest:  # else it was changed while we read it
                    raise InputError(f"{path}: {_damaged(path)} ({_reason(error)})") from None

    @classmethod
    def create(
        cls,
        path: str | Path,
        papers: Iterable[LibraryPaper],
        *,
        model: str = "",
        sources: Sequence[SourceFile] = (),
        contexts: Contexts | None = None,
        contexts_from: Sequence[SourceFile] = (),
        indexer: Indexer | None = None,
        overwrite: bool = False,
        wait: bool = True,
    ) -> Library:
        """Make a library; ids must be unique, and each paper needs a title or an abstract.

        overwrite: replace the library that is there. wait: for another process that changes it.
        Raises InputError if the folder holds something else or a library already.
        """
        path = Path(path).expanduser()
        check_place(path, overwrite)
        made = not path.exists()
        try:
            with _locked(path, wait):
                check_place(path, overwrite)
                state = {
                    "model": model,
                    "sources": [asdict(source) for source in sources],
                    "contexts": [asdict(source) for source in contexts_from],
                    "removed": [],
                    "created": _now(),
                }
                number = max(_numbers(path), default=0) + 1
                return _write(path, number, state, None, np.empty(0, np.int64), papers, contexts, indexer)
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
        **state: Any,
    ) -> Library:
        """The next generation: rows `kept`, ascending, then `papers`. Call it inside `changing`.

        find: replaces the contexts; None keeps those whose papers are kept. state: as for noted.
        """
        return _write(self.path, self.generation + 1, self._state(state), self, kept, papers, find, indexer)

    def noted(self, **state: Any) -> None:
        """Change sources, contexts or removed in library.json. Call it inside `changing`."""
        _write_manifest(self.path, self.manifest | self._state(state))

    def _state(self, new: dict[str, Any]) -> dict[str, Any]:
        old = {key: self.manifest[key] for key in ("model", "sources", "contexts", "removed", "created")}
        for name in ("sources", "contexts"):
            if name in new:
                new[name] = [asdict(source) for source in new[name]]
        return old | new

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __repr__(self) -> str:
        return f"Library({str(self.path)!r}, {len(self)} papers, generation {self.generation})"

    @property
    def index_dir(self) -> Path:
        """Folder of this generation's indexes."""
        return self.folder / INDEX

    @cached_property
    def metadata(self) -> pa.Table:
        """The columns of LibraryPaper that `corpus` has not, memory-mapped [P]."""
        return pa.Table.from_batches(self._batches, _SCHEMA)

    @property
    def collections(self) -> list[str]:
        """Their names, sorted."""
        return sorted(self.metadata["collections"].combine_chunks().flatten().unique().to_pylist())

    def paper(self, row: int) -> LibraryPaper:
        """IndexError for a row that is not there."""
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        batch = int(np.searchsorted(self._starts, row, side="right")) - 1
        found = self._batches[batch].slice(row - int(self._starts[batch]), 1).to_pylist()[0]
        corpus = self.corpus
        return _paper(
            corpus.paper_ids[row], corpus.titles[row], corpus.abstracts[row], int(corpus.years[row]), found
        )

    def papers(self) -> Iterator[LibraryPaper]:
        """All, by row."""
        corpus = self.corpus
        known = (row for batch in self._batches for row in batch.to_pylist())
        columns = corpus.paper_ids, corpus.titles, corpus.abstracts, corpus.years.tolist(), known
        for columns_of_row in zip(*columns, strict=True):
            yield _paper(*columns_of_row)

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
                raise InputError(f"{option}={shown(name)[1:-1]}: no paper of {self.path} has this id or key")
            found.append(row)
        return np.unique(np.array(found, np.int64))


def _paper(id: str, title: str, abstract: str, year: int, known: dict[str, Any]) -> LibraryPaper:
    lists = {name: tuple(known[name]) for name in _LISTS}
    return LibraryPaper(id=id, title=title, abstract=abstract, year=year, **(known | lists))


def _read_manifest(path: Path) -> dict[str, Any]:
    """library.json; InputError if there is none, or of another version."""
    try:
        manifest = json.loads((path / MANIFEST).read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        what = "no such folder" if not path.exists() else "is no library (it has no library.json)"
        raise InputError(f"{path}: {what}; python recommend.py build library={path} makes one") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError:
        raise InputError(f"{path}: {_damaged(path)} (library.json is no JSON)") from None
    version = manifest.get("version") if isinstance(manifest, dict) else None
    if version != VERSION:
        found = f"of version {shown(version)}" if version is not None else "without a version"
        raise InputError(
            f"{path}: a library {found}, and this program reads version {VERSION}; build it again with "
            "overwrite=true"
        )
    return dict(manifest)


def _damaged(path: Path) -> str:
    return f"damaged library; python recommend.py build library={path} overwrite=true makes it again"


def _reason(error: Exception) -> str:
    if isinstance(error, KeyError | TypeError):
        return f"library.json: {error}"
    return " ".join(str(error).split())


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
        raise InputError(f"{path}: is no library and not empty ({sorted(others)[0]}); name another folder")


@contextmanager
def _locked(path: Path, wait: bool) -> Iterator[None]:
    """Alone with the folder, cleared of what killed processes have left."""
    with one_line_disk_errors(path, "the library", "library"):
        (path / GENERATIONS).mkdir(parents=True, exist_ok=True)
        with one_at_a_time(path / LOCK, "changes the library", wait):
            _clear(path)
            yield


def _numbers(path: Path) -> list[int]:
    return [int(folder.name) for folder in (path / GENERATIONS).iterdir() if folder.name.isdecimal()]


def _clear(path: Path) -> None:
    """Remove all generations but the current one."""
    try:
        current = str(json.loads((path / MANIFEST).read_text("utf-8"))["generation"])
    except FileNotFoundError:
        current = ""
    except (OSError, ValueError, KeyError, TypeError):
        return  # damaged: nothing is removed until a new library stands
    for folder in (path / GENERATIONS).iterdir():
        if folder.name != current:
            shutil.rmtree(folder, ignore_errors=True)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _write(
    path: Path,
    number: int,
    state: dict[str, Any],
    old: Library | None,
    kept: Rows,
    papers: Iterable[LibraryPaper],
    contexts: Contexts | None,
    indexer: Indexer | None,
) -> Library:
    """Write generation `number` and make it the current one."""
    folder = path / GENERATIONS / str(number)
    try:
        folder.mkdir()
        _write_papers(folder, old, kept, papers, contexts)
        corpus = Corpus(folder / CORPUS, path.resolve().name)
        (folder / INDEX).mkdir()
        if indexer is not None:
            before = (old.corpus, old.index_dir) if old else (None, None)
            indexer(before[0], corpus, kept, before[1], folder / INDEX)
        counts = {"papers": len(corpus.paper_ids), "contexts": len(corpus.context_ids)}
        manifest = {"version": VERSION, "generation": number, **state, "changed": _now(), "counts": counts}
        _write_manifest(path, manifest)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    _clear(path)
    return Library.open(path)


def _write_manifest(path: Path, manifest: dict[str, Any]) -> None:
    with written_whole(path / MANIFEST) as file:
        file.write_text(json.dumps(manifest, indent=1, ensure_ascii=False), "utf-8")


def _write_papers(
    folder: Path, old: Library | None, kept: Rows, papers: Iterable[LibraryPaper], contexts: Contexts | None
) -> None:
    """The corpus and the metadata of a generation."""
    table = TableWriter(folder / METADATA, _SCHEMA)
    identities = Identities(old.identities[kept] if old else None)
    ids = [old.corpus.paper_ids[row] for row in kept.tolist()] if old and contexts else []
    queries: list[Iterable[QueryRecord]] = []
    digest, content = hashlib.blake2b(digest_size=16), dict[str, str]()

    def records() -> Iterator[PaperRecord]:
        for paper in papers:
            table.append(*(getattr(paper, name) for name in _COLUMNS))
            identities.add(paper)
            record = PaperRecord(paper.id, paper.title, paper.abstract, paper.year)
            digest.update(repr(record).encode())
            if contexts:
                ids.append(paper.id)
            yield record
        content["papers"] = digest.hexdigest()

    def cited() -> Iterator[ContextRecord]:
        if contexts:
            found, of_train = contexts(identities.numbers(), ids)
            queries.append(of_train)
            for context in found:
                digest.update(repr(context).encode())
                yield context
        content["contexts"] = digest.hexdigest()

    def keep(builder: StoreBuilder) -> None:
        if old is not None:
            digest.update(old.corpus.fingerprint.encode() + kept.tobytes())
            table.take(old.folder / METADATA, kept)
            builder.keep(old.corpus, kept, contexts=contexts is None)

    source = Source(
        name=folder.parents[1].name,
        identity=content,
        papers=records,
        contexts=cited,
        splits={"train": queries.pop} if contexts else {},
    )
    settings = {"tokenizer": "default", "candidates": "all"}
    with closing(table):
        prepare_store(source, folder / CORPUS, settings, keep=keep)
    np.save(folder / IDENTITIES, identities.numbers(), allow_pickle=False)
