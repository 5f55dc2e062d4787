"""A dump of works (Crossref, OpenAlex, arXiv, any file of papers), turned once into an index.

An SQLite file: works in compressed blocks, and the blocks of their titles, DOIs, arXiv ids and first authors
by hash. A lookup reads a block of BLOCK works for each that it asks about.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
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
from citerec.base.files import atomic_write, cache_folder, file_stamp
from citerec.formats.bibliography.paper import LibraryPaper
from citerec.formats.bibliography.reading.retraction_watch import is_retraction_watch, read_retraction_watch
from citerec.formats.json_lines import OnBadRecord
from citerec.formats.letters import normalise_title
from citerec.formats.names import surname
from citerec.formats.same_work import hash_text
from citerec.library.references.compare import Record
from citerec.library.sources.finding import find_sources
from citerec.library.sources.readers import read_source

BLOCK, LINKS = 256, 4096
"""Works in a block, and links in one."""
VERSION = 3
"""Raise it when indexes are made otherwise."""
NEAR = 3
"""First authors by whom works are found."""
MAX_AUTHORS = 40
"""Authors of a work that are kept."""
_SIGN = 1 << 63  # SQLite's numbers have one
_LINK = np.dtype([("key", "<u4"), ("block", "<u4")])
"""The upper half of a hash, and a block that may have it."""
_Texts = list[str]
_Lists = list[tuple[str, ...]]
_COLUMNS = msgspec.msgpack.Decoder(tuple[_Texts, _Lists, list[int], _Texts, _Texts, _Texts, _Lists])


class Table:
    """An index, whose works are records of references. name, date: of the file that it was made from."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
            [(self.name, self.date, self.works)] = self._database.execute(
                "SELECT name, date, works FROM about"
            )
        except (sqlite3.Error, ValueError) as error:
            raise InputError(f"{path}: cannot be used ({error_text(error)}); remove it") from None
        self._block = lru_cache(256)(self._read)

    @classmethod
    def open(cls, names: Sequence[str], on_bad: OnBadRecord) -> Table:
        """Open the index of files, which is made if there is none of them as they are. Raises InputError."""
        files = [Path(file) for file in find_sources(names, "table")]
        stamp = "\n".join([str(VERSION), *(f"{file} {file_stamp(file)}" for file in files)]).encode()
        name = f"{files[0].name}-{blake2b(stamp, digest_size=8).hexdigest()}.sqlite"
        path = cache_folder() / "tables" / name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(path) as temporary:
                build(temporary, files, on_bad, Path(names[0]).name)
        return cls(path)

    def close(self) -> None:
        self._database.close()

    def records(self, paper: LibraryPaper) -> Iterator[Record]:
        """Yield the works with a paper's DOI or arXiv id, then those with its title, else its authors."""
        where, names = f"{self.name}, {self.date}", {kind: name(paper) for kind, name in _NAMES.items()}
        for kind in ("doi", "arxiv"):
            yield from (Record(work, where, by_id=True) for work in self._linked(kind, names[kind]))
        works = [*self._linked("title", names["title"])] or self._linked("authors", names["authors"])
        yield from (Record(work, where) for work in works)

    def _linked(self, kind: str, name: str) -> Iterator[LibraryPaper]:
        """Yield the works with a name (_NAMES)."""
        key = hash_text(f"{kind}:{name}")
        query = "SELECT content FROM links WHERE first <= ? ORDER BY first DESC LIMIT 1"
        for (content,) in self._database.execute(query, (key - _SIGN,)).fetchall() if name else ():
            links = np.frombuffer(content, _LINK)
            for block in np.unique(links["block"][links["key"] == np.uint32(key >> 32)])[:20].tolist():
                yield from (work for work in self._block(block) if _NAMES[kind](work) == name)

    def _read(self, block: int) -> list[LibraryPaper]:
        try:
            [(content,)] = self._database.execute("SELECT content FROM works WHERE block = ?", (block,))
            rows: Iterator[Any] = zip(*_COLUMNS.decode(zlib.decompress(content)), strict=True)
            works = ((LibraryPaper("", "", title, "", *told), marks) for title, *told, marks in rows)
            return [work._replace(filled=marks) for work, marks in works]
        except (sqlite3.Error, zlib.error, msgspec.DecodeError, ValueError, TypeError) as error:
            reason = f"is damaged ({error_text(error)}); remove it, and it is made anew"
            raise InputError(f"{self.path}: {reason}") from None


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


def build(path: Path, files: Sequence[Path], on_bad: OnBadRecord, name: str) -> None:
    """Write an index of the works of files, with its name. Raises InputError if there are none."""
    with (
        closing(sqlite3.connect(path, isolation_level=None)) as database,
        closing(sqlite3.connect("", isolation_level=None)) as sorter,  # a file that is removed when closed
    ):
        database.execute("PRAGMA page_size = 1024")  # since each block fills its last page by half
        database.executescript(
            "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;"
            "CREATE TABLE about (name TEXT, date TEXT, works INTEGER);"
            "CREATE TABLE works (block INTEGER PRIMARY KEY, content BLOB);"
            "CREATE TABLE links (first INTEGER PRIMARY KEY, content BLOB); BEGIN"
        )
        sorter.executescript(
            "PRAGMA journal_mode = OFF; CREATE TABLE links (key INTEGER, block INTEGER); BEGIN"
        )
        works = (work for file in files for work in read_works(file, on_bad) if normalise_title(work.title))
        count = 0
        for number, block in enumerate(iter(lambda: [*islice(works, BLOCK)], [])):
            content = msgspec.msgpack.encode([*zip(*map(_row, block), strict=True)])
            database.execute("INSERT INTO works VALUES (?, ?)", (number, zlib.compress(content, 9)))
            pairs = {(kind, told(work)) for work in block for kind, told in _NAMES.items()}
            links = ((hash_text(f"{kind}:{told}") - _SIGN, number) for kind, told in pairs if told)
            sorter.executemany("INSERT INTO links VALUES (?, ?)", links)
            count += len(block)
        if not count:
            raise InputError(f"table={name}: has no works")
        for linked in _blocks(sorter.execute("SELECT key, block FROM links ORDER BY key, block")):
            content = np.array([(key + _SIGN >> 32, number) for key, number in linked], _LINK).tobytes()
            database.execute("INSERT INTO links VALUES (?, ?)", (linked[0][0], content))
        written = date.fromtimestamp(max(file.stat().st_mtime for file in files))
        database.execute("INSERT INTO about VALUES (?, ?, ?)", (name, str(written), count))
        database.execute("COMMIT")


def _row(work: LibraryPaper) -> tuple[object, ...]:
    """Return what is kept of a work."""
    mark, texts = work.retraction_mark, (work.venue, work.doi, work.arxiv)
    return (work.title, work.authors[:MAX_AUTHORS], work.year, *texts, (mark,) if mark else ())


def _blocks(links: Iterable[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    """Yield sorted links in blocks. Those of one key stay in one block."""
    block: list[tuple[int, int]] = []
    for link in links:
        if len(block) >= LINKS and link[0] != block[-1][0]:
            yield block
            block = []
        block.append(link)
    if block:
        yield block


def read_works(file: Path, on_bad: OnBadRecord) -> Iterator[LibraryPaper]:
    """Yield the works of a file: Retraction Watch's CSV, or any file of papers."""
    return read_retraction_watch(file, on_bad) if is_retraction_watch(file) else read_source(file, on_bad)
