"""A library: the papers of a folder, which can be asked and changed.

In memory (`storage`), its files are mapped and the index of its model is loaded whole: enough for up to two
million papers or so. More are kept in LanceDB (`lance`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from citerec.base.errors import DamagedFile, InputError
from citerec.base.files import expand_user
from citerec.datasets.corpus import Corpus
from citerec.formats.bibliography.paper import LibraryPaper
from citerec.library import MANIFEST
from citerec.library.papers.folder import (
    CHANGED,
    GENERATIONS,
    Manifest,
    ReadFile,
    damaged,
    lock_folder,
    lock_target,
    new_generation,
    now,
    read_manifest,
    rebuild_command,
    write_manifest,
)
from citerec.library.papers.models import ENCODED, ENCODED_LANGUAGES
from citerec.library.papers.storage import Storage, write_generation
from citerec.retrieval.arrays import Rows
from citerec.retrieval.base import Retriever, folder_bytes

if TYPE_CHECKING:
    from citerec.library.evidence.evidence import FullTexts
    from citerec.library.papers.lance import LanceStorage

SHOWN = 10
"""Maximum number of collections to list."""
CITED = "citing"
"""Count of the manifest: a hash of what full texts cite, if the generation ranks by it, else 0."""
Stamp = tuple[int, int] | None
"""What is different after any change of library.json; None if there is none."""


class Added(NamedTuple):
    """What adding records did: numbers of new, of completed and of all papers; sources that were edited."""

    added: int
    completed: int
    papers: int
    changed: Sequence[str] = ()


class Library:
    """The papers of a folder, as of a generation (`storage`). Several threads may ask at once."""

    def __init__(self, path: Path, manifest: Manifest, stamp: Stamp = None) -> None:
        """stamp: of library.json, before it was read."""
        self.path, self.manifest, self._stamp = path, manifest, stamp
        folder = path / GENERATIONS / str(manifest.generation)
        if manifest.lance:
            from citerec.library.papers.lance import LanceStorage  # not needed by libraries in memory

            self.storage: Storage | LanceStorage = LanceStorage(path, folder, manifest.lance, manifest.counts)
        else:
            self.storage = Storage(path, folder)

    @classmethod
    def open(cls, path: str | Path) -> Library:
        """Open the current generation.

        Raises InputError if the folder is not a library of this version, or if it is damaged.
        """
        path = expand_user(path)
        while True:
            stamp = _stamp(path)  # before anything is read, so that `refresh` sees later changes
            manifest = read_manifest(path)
            try:
                return cls(path, manifest, stamp)
            except (InputError, OSError, ValueError) as error:
                if read_manifest(path) == manifest:  # otherwise it changed during the read: try again
                    raise damaged(path, error) from None

    @classmethod
    @contextmanager
    def edit(cls, path: str | Path) -> Iterator[Library]:
        """Open the current generation and lock the library against changes by other processes, after waiting
        for these. Raises InputError like `open`."""
        path = expand_user(path)
        read_manifest(path)
        with lock_folder(path):
            yield cls.open(path)

    @classmethod
    def create(
        cls,
        path: str | Path,
        papers: Iterable[LibraryPaper],
        *,
        model: str = "",
        lance: bool = False,
        overwrite: bool = False,
        old: Manifest | None = None,
        **fields: Any,
    ) -> Library:
        """Create a library. Ids must be unique, and each paper needs a title or an abstract.

        model: as for `install_model`. lance: keep it in LanceDB. overwrite: replace an existing library.
        old: what it replaces, if that must be unchanged. fields: of the manifest.
        Raises InputError if the folder contains other files, or a library that must not be overwritten.
        """
        path = expand_user(path)
        with lock_target(path, overwrite):
            if old is not None and old != read_manifest(path):
                raise InputError(f"{path}: {CHANGED}")
            manifest = Manifest(model=model, created=now(), changed=now(), **fields)
            if not lance:
                return cls._write(path, manifest, None, np.empty(0, np.int64), papers)
            from citerec.library.papers.lance import write_generation

            with new_generation(path) as (number, folder):
                version, counts = write_generation(folder, papers, model)
                written = {"generation": number, "lance": version, "counts": counts}
                write_manifest(path, msgspec.structs.replace(manifest, **written))
            return cls.open(path)

    def refresh(self) -> Library:
        """Return the library as it is now: this one, or another if it has changed on disk."""
        stamp = _stamp(self.path)
        if stamp is None or stamp == self._stamp:  # None: it was deleted
            return self
        library = Library.open(self.path)
        library.load()  # now, so that damage leaves this library open
        return library

    # Papers.

    def __len__(self) -> int:
        return len(self.storage)

    @property
    def folder(self) -> Path:
        """The folder of the generation."""
        return self.storage.folder

    @property
    def mapped(self) -> Storage:
        """The storage of a library in memory. Raises InputError for one in LanceDB."""
        if not isinstance(self.storage, Storage):
            reason = "is kept in LanceDB (storage=lance), which this cannot use"
            raise InputError(f"{self.path}: {reason}; build it again: {rebuild_command(self.path)}")
        return self.storage

    @property
    def corpus(self) -> Corpus:
        """The papers [P] of a library in memory as a ranking model reads them."""
        return self.mapped.corpus

    def related(self, records: Iterable[LibraryPaper]) -> Storage:
        """Return papers in memory, among them all that the records may describe. Their rows may be other ones
        than those of the library (`places`)."""
        return self.storage.related([*records])

    def paper(self, row: int) -> LibraryPaper:
        """Return the paper of a row. Raises IndexError if the row does not exist."""
        return self.storage.paper(row)

    def papers(self) -> Iterator[LibraryPaper]:
        """Yield all papers, in the order of their rows."""
        return (paper for _, paper in self.storage.papers())

    def row(self, name: str) -> int | None:
        """Return the row of the paper with this id, citation key or alias; None if there is none."""
        return self.storage.row(name)

    def rows(self, names: Iterable[str], option: str = "id") -> Rows:
        """Return the rows of papers, ascending and unique. Raises InputError for an unknown one."""
        return self.storage.rows(names, option)

    def by_id(self, id: str) -> LibraryPaper:
        """Return the paper of an id. Raises InputError if there is none."""
        return self.paper(int(self.rows([id])[0]))

    # Asking.

    def load(self) -> None:
        """Read what questions need, rather than at the first one. Raises InputError if it is damaged."""
        _ = self.retriever

    @property
    def retriever(self) -> Retriever:
        """The ranking model."""
        return self.storage.retriever

    @property
    def full_texts(self) -> FullTexts | None:
        """The full texts of the papers, if there are any."""
        return self.storage.full_texts

    # Changes. Call these inside `edit`.

    def add(
        self,
        records: Iterable[LibraryPaper],
        files: Sequence[str] = (),
        named: Sequence[str] = (),
        separate: Sequence[str] = (),
    ) -> Added:
        """Add papers; records of papers that are there complete them (library.papers.merging).

        files: that the records are read from; named: the names that the user gave them. separate: ids and
        keys of records that are not merged with others. All are kept in the manifest; an edited source in its
        former state, so that `update` reads it again.
        """
        from citerec.library.papers.merging import Deduplicator

        sources = {source.path: source for source in self.manifest.sources}
        apart = list(dict.fromkeys([*self.manifest.separate, *separate]))
        read = [*map(ReadFile.of, files)]  # before the records are, so that `update` sees later changes
        records = [*records]
        related = self.related(records)
        with Deduplicator(self.path, related, separate=apart) as merged:
            changed = [file.path for file in read if sources.setdefault(file.path, file) != file]
            for paper in records:
                merged.add(paper)
            merged.finish()
            names = list(dict.fromkeys([*self.manifest.named, *named]))
            fields: dict[str, Any] = {"sources": list(sources.values()), "named": names, "separate": apart}
            if not merged.count:
                if files:
                    self.update_manifest(**fields)
                return Added(0, 0, len(self), changed)
            if self.manifest.removed:
                back = merged.removed_as(self.manifest).values()
                fields["removed"] = [id for id in self.manifest.removed if id not in back]
                works = self.manifest.removed_works.items()
                fields["removed_works"] = {id: work for id, work in works if id not in back}
            new = self.change(related.places[merged.replaced], merged.papers_with_progress(), **fields)
            return Added(len(new) - len(self), len(merged.replaced), len(new), changed)

    def remove(self, names: Iterable[str]) -> int:
        """Remove papers by id or key; returns how many. `update` does not add them again.

        Raises InputError for an unknown one, or if no paper would be left.
        """
        from citerec.formats.same_work import identity, is_apart  # imported only to write, not to ask

        rows, told = self.rows(names), self.manifest
        self.check_some_left(len(rows))
        papers = map(self.paper, rows.tolist())
        works = {paper.id: [*identity(paper, is_apart(paper, told.separate))] for paper in papers}
        removed = list(dict.fromkeys([*told.removed, *works]))
        self.change(rows, (), removed=removed, removed_works=told.removed_works | works)
        return len(rows)

    def change(
        self, gone: Sequence[int] | Rows, papers: Iterable[LibraryPaper], cited: int = 0, **fields: Any
    ) -> Library:
        """Leave out rows and add papers. cited: a hash of what full texts cite, if it ranks by that.
        fields: of the manifest."""
        gone = np.asarray(gone, np.int64)
        if isinstance(self.storage, Storage):
            manifest = msgspec.structs.replace(self.manifest, **fields)
            kept = np.delete(np.arange(len(self)), gone)
            return self._write(self.path, manifest, self.storage, kept, papers, cited)
        version, counts = self.storage.write(gone, papers)
        self.update_manifest(lance=version, counts=counts, changed=now(), **fields)
        return Library.open(self.path)

    def check_some_left(self, removed: int) -> None:
        """Raise InputError if no paper would be left."""
        if removed == len(self):
            raise InputError(f"{self.path}: no paper would be left; delete the folder instead")

    @classmethod
    def _write(
        cls,
        path: Path,
        manifest: Manifest,
        old: Storage | None,
        kept: Rows,
        papers: Iterable[LibraryPaper],
        cited: int = 0,
    ) -> Library:
        """Write a generation in memory, of rows `kept` and papers, and make it the current one."""
        with new_generation(path) as (number, folder):
            counts = write_generation(folder, old, kept, papers, manifest.model)
            counts[CITED] = cited
            new = msgspec.structs.replace(manifest, generation=number, changed=now(), counts=counts)
            write_manifest(path, new)
        return cls.open(path)

    def update_manifest(self, **fields: Any) -> None:
        """Change fields of library.json."""
        write_manifest(self.path, msgspec.structs.replace(self.manifest, **fields))

    # Information.

    @property
    def encodes(self) -> str:
        """The command that lets networks read what they have not read."""
        return f"citerec update library={quote(str(self.path))}"

    def verify(self) -> None:
        """Read every file, and raise InputError if one is damaged."""
        from citerec.library.evidence import DATABASE, FOLDER
        from citerec.library.evidence.index import check_texts
        from citerec.retrieval.networks.store import check_encoded

        try:
            self.storage.check(trust=False)
        except InputError as error:
            raise damaged(self.path, error) from None
        try:
            for folder in (ENCODED, ENCODED_LANGUAGES):
                check_encoded(self.path / folder)
        except DamagedFile as error:
            raise DamagedFile(f"{error}; {self.encodes} encodes its papers again") from None
        if (self.path / FOLDER / DATABASE).is_file():
            check_texts(self.path / FOLDER)

    def describe(self) -> dict[str, str]:
        """Return what the library contains, for people; texts may be empty."""
        manifest, texts, lines = self.manifest, self.full_texts, {"papers": f"{len(self):,}, in LanceDB"}
        if isinstance(self.storage, Storage):
            corpus, collections = self.corpus, self.storage.collections
            years, contexts = corpus.years[corpus.years > 0], len(corpus.context_ids)
            abstracts = len(self) - self.storage.without_abstract
            lines = {
                "papers": f"{len(self):,}, {abstracts:,} with an abstract",
                "years": f"{years.min()} to {years.max()}" if len(years) else "unknown",
                "contexts": f"{contexts:,} of its PDFs" if contexts else "",
                "collections": ", ".join(collections[:SHOWN]) + (" ..." if len(collections) > SHOWN else ""),
            }
        return lines | {
            "sources": ", ".join(manifest.named),
            "removed": f"{len(manifest.removed):,} manually" if manifest.removed else "",
            "full texts": f"{len(texts.index.papers):,} papers, {len(texts.index):,} passages"
            if texts
            else "",
            "model": manifest.model or "built-in model",
            "size": f"{folder_bytes(self.folder) / 1e6:,.1f} MB",
            "generation": f"{manifest.generation}, written {manifest.changed}",
            "created": manifest.created,
        }

    def __repr__(self) -> str:
        generation = self.manifest.generation
        return f"Library({str(self.path)!r}, {len(self)} papers, generation {generation})"


def _stamp(path: Path) -> Stamp:
    try:
        stat = (path / MANIFEST).stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_ino
