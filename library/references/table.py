"""A dump of works (Crossref, OpenAlex, arXiv, any file of papers), turned once into an index.

A folder of two files: the works, in compressed blocks, and sorted numbers that link the titles, DOIs, arXiv
ids and first authors of works to blocks. A lookup reads a block of BLOCK works for each that it asks about.
"""

from __future__ import annotations

import zlib
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from functools import lru_cache
from hashlib import blake2b
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from citerec.base.errors import InputError, error_text
from citerec.base.files import atomic_folder, cache_folder, file_stamp
from citerec.formats.bibliography.paper import LibraryPaper
from citerec.formats.bibliography.reading.retraction_watch import is_retraction_watch, read_retraction_watch
from citerec.formats.json_lines import OnBadRecord
from citerec.formats.letters import normalise_title
from citerec.formats.names import surname
from citerec.formats.same_work import hash_text
from citerec.library.references.answers import Record
from citerec.library.sources.finding import find_sources
from citerec.library.sources.readers import read_source

VERSION = 4
"""Increase it when the form of indexes changes."""
BLOCK, MAX_BLOCKS = 256, 20
"""Works in a block, and most blocks in which a name is looked up."""
NEAR, MAX_AUTHORS = 3, 40
"""Number of first authors by whom works are found, and of authors that are kept."""
_WORKS, _ENDS, _LINKS = "works", "ends", "links"
_LOW = (1 << 32) - 1
"""A link is a number: its upper half is from the hash of a name, its lower half a block that may have it."""
_KEPT = ("title", "authors", "year", "venue", "doi", "arxiv", "filled")
_COLUMNS = msgspec.msgpack.Decoder(list[list[str | int | tuple[str, ...]]])


class Table:
    """An index, whose works are records of references. where: name and date of what it is made from."""

    def __init__(self, folder: Path, where: str) -> None:
        self.where, self._folder = where, folder
        try:
            self._works = np.memmap(folder / _WORKS, np.uint8, "r")
            self._ends, self._links = (np.memmap(folder / name, np.uint64, "r") for name in (_ENDS, _LINKS))
        except (OSError, ValueError) as error:
            raise self._damaged(error) from None
        self._block = lru_cache(256)(self._read)

    @classmethod
    def open(cls, names: Sequence[str], on_bad: OnBadRecord) -> Table:
        """Open the index of files; it is made if there is none of their present state. Raises InputError."""
        files = [Path(file) for file in find_sources(names, "table")]
        stamp = "\n".join([str(VERSION), *(f"{file} {file_stamp(file)}" for file in files)]).encode()
        folder = cache_folder() / "tables" / f"{files[0].name}-{blake2b(stamp, digest_size=8).hexdigest()}"
        if not folder.exists():
            with atomic_folder(folder) as unfinished:
                build(unfinished, files, on_bad)
        written = date.fromtimestamp(max(file.stat().st_mtime for file in files))
        return cls(folder, f"{Path(names[0]).name}, {written}")

    def records(self, paper: LibraryPaper) -> Iterator[Record]:
        """Yield the works with a paper's DOI or arXiv id, then those with its title, else its authors."""
        for kind in ("doi", "arxiv"):
            yield from (Record(work, self.where, by_id=True) for work in self._linked(kind, paper))
        works = [*self._linked("title", paper)] or self._linked("authors", paper)
        yield from (Record(work, self.where) for work in works)

    def _linked(self, kind: str, paper: LibraryPaper) -> Iterator[LibraryPaper]:
        """Yield the works with a name (_NAMES) of a paper."""
        name = _NAMES[kind](paper)
        key = hash_text(f"{kind}:{name}") >> 32
        start = bisect_left(self._links, key << 32)
        links = self._links[start : start + MAX_BLOCKS].tolist() if name else ()
        for block in sorted({link & _LOW for link in links if link >> 32 == key}):
            yield from (work for work in self._block(block) if _NAMES[kind](work) == name)

    def _read(self, block: int) -> list[LibraryPaper]:
        try:
            start, end = self._ends[block : block + 2].tolist()
            columns: Any = _COLUMNS.decode(zlib.decompress(self._works[start:end].data))
            rows = zip(*columns, strict=True)
            return [LibraryPaper("", **dict(zip(_KEPT, row, strict=True))) for row in rows]
        except (zlib.error, msgspec.DecodeError, ValueError) as error:
            raise self._damaged(error) from None

    def _damaged(self, error: Exception) -> InputError:
        return InputError(f"{self._folder}: is damaged ({error_text(error)}); remove it, and it is made anew")


def _first_authors(work: LibraryPaper) -> str:
    names = [surname(name).lower() for name in work.authors[:NEAR]]
    return " ".join(names) if any(names) else ""


_NAMES: dict[str, Callable[[LibraryPaper], str]] = {
    "doi": attrgetter("doi"),
    "arxiv": attrgetter("arxiv"),
    "title": lambda work: normalise_title(work.title),
    "authors": _first_authors,
}
"""What a work is found by."""


def build(folder: Path, files: Sequence[Path], on_bad: OnBadRecord) -> None:
    """Write an index of the works of files into a folder. Raises InputError if there are none."""
    works = (work for file in files for work in _read_works(file, on_bad))
    ends = array("Q", [0])
    with (folder / _WORKS).open("wb") as blocks, (folder / _LINKS).open("wb") as links:
        for number, block in enumerate(iter(lambda: [*islice(works, BLOCK)], [])):
            columns = msgspec.msgpack.encode([[getattr(work, name) for work in block] for name in _KEPT])
            blocks.write(zlib.compress(columns, 9))
            ends.append(blocks.tell())
            pairs = ((kind, find(work)) for work in block for kind, find in _NAMES.items())
            keys = {hash_text(f"{kind}:{name}") >> 32 for kind, name in pairs if name}
            array("Q", (key << 32 | number for key in keys)).tofile(links)
    if len(ends) == 1:
        raise InputError(f"table={files[0]}: has no works")
    (folder / _ENDS).write_bytes(ends.tobytes())
    np.memmap(folder / _LINKS, np.uint64, "r+").sort()  # in the file: links of all of Crossref take 4 GB


def _read_works(file: Path, on_bad: OnBadRecord) -> Iterator[LibraryPaper]:
    """Yield the works with a title of a file: Retraction Watch's CSV, or any file of papers."""
    read = read_retraction_watch if is_retraction_watch(file) else read_source
    for work in read(file, on_bad):
        if normalise_title(work.title):
            mark = work.retraction_mark
            yield work._replace(authors=work.authors[:MAX_AUTHORS], filled=(mark,) if mark else ())
