"""A library: papers that can be queried for citations and changed (memory.library keeps them)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, NamedTuple, Self

import pyarrow as pa

from citerec.base.errors import DamagedFile, InputError
from citerec.base.files import expand_user
from citerec.formats.bibliography.paper import LibraryPaper
from citerec.library.ask.candidates import Candidates, Papers
from citerec.library.ask.question import Request
from citerec.library.papers.folder import (
    MANIFEST,
    Manifest,
    damaged,
    generation_folder,
    lock_folder,
    read_manifest,
)
from citerec.library.papers.models import ENCODED
from citerec.retrieval.base import Retriever, folder_bytes
from citerec.retrieval.networks.encoder import NetworkRetriever
from citerec.retrieval.networks.store import check_encoded


class Added(NamedTuple):
    """What adding records did: numbers of new papers, of papers that records completed, and of all papers."""

    added: int
    completed: int
    papers: int


class Library(Papers):
    """The papers of a folder. Several threads may ask at once."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path, self.manifest = path, manifest
        self.folder = generation_folder(path, manifest)
        self._stamp: Stamp = None

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Open the current generation.

        Raises InputError if the folder is not a library of this version, or if it is damaged.
        """
        path = expand_user(path)
        while True:
            stamp = _stamp(path)  # before anything is read, so that `refresh` sees later changes
            manifest = read_manifest(path)
            try:
                library = cls(path, manifest)
            except (InputError, OSError, ValueError, pa.ArrowException) as error:
                if read_manifest(path) == manifest:  # otherwise it changed during the read: try again
                    raise damaged(path, error) from None
            else:
                library._stamp = stamp
                return library

    @classmethod
    @contextmanager
    def edit(cls, path: str | Path, wait: bool = True) -> Iterator[Self]:
        """Open the current generation and lock the library against changes by other processes."""
        path = expand_user(path)
        read_manifest(path)
        with lock_folder(path, wait):
            yield cls.open(path)

    # Asking.

    @abstractmethod
    def load(self) -> None:
        """Read what questions need, rather than at the first one. Raises InputError if it is damaged."""

    @property
    @abstractmethod
    def retriever(self) -> Retriever:
        """The ranking model."""

    @property
    @abstractmethod
    def networks(self) -> NetworkRetriever | None:
        """Networks that can read all papers; None if the model has none, or there are more than
        MOST_ENCODED."""

    @abstractmethod
    def candidates(self, request: Request, depth: int) -> Candidates:
        """Return papers to rank for a request, nearly all of the `depth` best among them.

        Raises InputError like `mark_query` and for a bad filter.
        """

    @abstractmethod
    def search_candidates(self, query: str) -> Candidates:
        """Return papers to search for words of their title, authors, year, venue and key."""

    @property
    @abstractmethod
    def collections(self) -> Sequence[str]:
        """Names of all collections, sorted."""

    def refresh(self) -> Library:
        """Return the library as it is now: this one, or another if it has changed on disk."""
        stamp = _stamp(self.path)
        if stamp is None or stamp == self._stamp:  # None: it was deleted
            return self
        library = self._reopened()
        library._stamp = stamp
        return library

    @abstractmethod
    def _reopened(self) -> Library:
        """Return the library after a change by any process, ready to be asked."""

    # Changes. Call these inside `edit`.

    @abstractmethod
    def add(
        self,
        records: Iterable[LibraryPaper],
        files: Sequence[str] = (),
        named: Sequence[str] = (),
        separate: Sequence[str] = (),
    ) -> Added:
        """Add papers; records of papers that are there complete them (library.papers.merging).

        files: that the records are read from; named: the names that the user gave them. separate: ids and
        keys of records that are not merged with others. All are kept in the manifest.
        """

    @abstractmethod
    def remove(self, names: Iterable[str]) -> int:
        """Remove papers by id or key; returns how many. `update` does not add them again.

        Raises InputError for an unknown one, or if no paper would be left.
        """

    # Information.

    encoded: ClassVar[tuple[str, ...]] = (ENCODED,)
    """Folders of what networks have made of its papers and texts"""

    @property
    def encodes(self) -> str:
        """The command that lets networks read what they have not read."""
        return f"citerec update library={self.path}"

    def verify(self) -> None:
        """Read every file, and raise InputError if one is damaged."""
        try:
            for folder in self.encoded:
                check_encoded(self.path / folder)
        except DamagedFile as error:
            raise DamagedFile(f"{error}; {self.encodes} encodes its papers again") from None

    def describe(self) -> dict[str, str]:
        """Return what the library contains, for people; texts may be empty."""
        about = self.manifest
        return {
            "papers": f"{len(self):,}",
            "sources": ", ".join(about.named),
            "removed": f"{len(about.removed):,} manually" if about.removed else "",
            "full texts": self.describe_texts(),
            "model": about.ranking_model,
            "size": f"{folder_bytes(self.folder) / 1e6:,.1f} MB",
            "generation": f"{about.generation}, written {about.changed}",
            "created": about.created,
        }

    def describe_texts(self) -> str:
        """Return what full texts there are, for people; "" if there are none."""
        return ""

    def __repr__(self) -> str:
        name, generation = type(self).__name__, self.manifest.generation
        return f"{name}({str(self.path)!r}, {len(self)} papers, generation {generation})"

    def check_some_left(self, removed: int) -> None:
        """Raise InputError if no paper would be left."""
        if removed == len(self):
            raise InputError(f"{self.path}: no paper would be left; delete the folder instead")


Stamp = tuple[int, int] | None


def _stamp(path: Path) -> Stamp:
    """Return what is different after any change of library.json; None if there is none."""
    try:
        stat = (path / MANIFEST).stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_ino
