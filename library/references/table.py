"""A dump of works (Crossref, OpenAlex, arXiv, any file of papers), turned once into an index.

An SQLite file: works in compressed blocks, in the order of their titles' hashes, and the blocks of their
DOIs, arXiv ids and first authors by hash. A lookup reads a block of BLOCK works for each that it asks about.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import date
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from citerec.base.errors import InputError, error_text
from citerec.base.files import atomic_write, cache_folder, file_stamp
from citerec.formats.bibliography.paper import LibraryPaper
from citerec.formats.bibliography.reading.retraction_watch import is_retraction_watch, read_retraction_watch
from citerec.formats.json_lines import OnBadRecord
from citerec.formats.letters import normalise_title, title_key
from citerec.formats.names import surname
from citerec.formats.same_work import hash_text
from citerec.library.references.compare import Record
from citerec.library.sources.finding import find_sources
from citerec.library.sources.readers import read_source

BLOCK, LINKS = 256, 4096
"""Works in a block, and links in one."""
VERSION = 2
NEAR = 3
"""First authors by whom works are found."""
_SIGN = 1 << 63  # SQLite's numbers have one
_LINK = np.dtype([("key", "<u8"), ("block", "<u4")])
_FIELDS = ("title", "authors", "year", "venue", "doi", "arxiv", "filled")
_Texts = list[str]
_Lists = list[tuple[str, ...]]
_COLUMNS = msgspec.msgpack.Decoder(tuple[_Texts, _Lists, list[int], _Texts, _Texts, _Texts, _Lists])


class Table:
    """An index, whose works are records of references. name, date: of the file that it was made from."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
            [(version,)] = self._database.execute("PRAGMA user_version")
            if version != VERSION:
                raise InputError(f"{path}: is an index of another version; remove it, and it is made anew")
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
        stamp = "\n".join(f"{file} {file_stamp(file)}" for file in files).encode()
        path = (
            cache_folder() / "tables" / f"{files[0].name}-{blake2b(stamp, digest_size=8).hexdigest()}.sqlite"
        )
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(path) as temporary:
                build(temporary, files, on_bad, Path(names[0]).name)
        return cls(path)

    def close(self) -> None:
        self._database.close()

    def records(self, paper: LibraryPaper) -> Iterator[Record]:
        """Yield the works with a paper's DOI or arXiv id, then those with its title, else its authors."""
        where, authors = f"{self.name}, {self.date}", _first_authors(paper)
        for name in _ids(paper):
            yield from (Record(work, where, by_id=True) for work in self._linked(name) if name in _ids(work))
        letters = normalise_title(paper.title)
        query = "SELECT block FROM works WHERE first <= ? ORDER BY first DESC LIMIT 1"
        blocks = self._database.execute(query, (title_key(letters) - _SIGN,)) if letters else ()
        near = (work for (block,) in blocks for work in self._block(block))
        if not (works := [work for work in near if normalise_title(work.title) == letters]):
            works = [work for work in self._linked(authors) if _first_authors(work) == authors]
        yield from (Record(work, where) for work in works)

    def _linked(self, name: str) -> Iterator[LibraryPaper]:
        """Yield the works of the blocks that have one with an identifier or first authors."""
        key = hash_text(name)
        query = "SELECT content FROM links WHERE first <= ? ORDER BY first DESC LIMIT 1"
        for (content,) in self._database.execute(query, (key - _SIGN,)).fetchall() if name else ():
            links = np.frombuffer(content, _LINK)
            for block in np.unique(links["block"][links["key"] == np.uint64(key)])[:20].tolist():
                yield from self._block(block)

    def _read(self, block: int) -> list[LibraryPaper]:
        try:
            [(content,)] = self._database.execute("SELECT content FROM works WHERE block = ?", (block,))
            rows: Iterator[Any] = zip(*_COLUMNS.decode(zlib.decompress(content)), strict=True)
            works = ((LibraryPaper("", "", title, "", *told), marks) for title, *told, marks in rows)
            return [work._replace(filled=marks) for work, marks in works]
        except (sqlite3.Error, zlib.error, msgspec.DecodeError, ValueError, TypeError) as error:
            reason = f"is damaged ({error_text(error)}); remove it, and it is made anew"
            raise InputError(f"{self.path}: {reason}") from None


def _ids(work: LibraryPaper) -> list[str]:
    return [f"{kind}:{id}" for kind in ("doi", "arxiv") if (id := getattr(work, kind))]


def _first_authors(work: LibraryPaper) -> str:
    names = [surname(name).lower() for name in work.authors[:NEAR]]
    return f"authors:{' '.join(names)}" if any(names) else ""


def build(path: Path, files: Sequence[Path], on_bad: OnBadRecord, name: str) -> None:
    """Write an index of the works of files, with its name. Raises InputError if there are none."""
    with (
        closing(sqlite3.connect(path, isolation_level=None)) as database,
        closing(sqlite3.connect("", isolation_level=None)) as sorter,  # a file that is removed when closed
    ):
        database.execute("PRAGMA page_size = 1024")  # since each block fills its last page by half
        database.executescript(
            "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;"
            f"PRAGMA user_version = {VERSION}; CREATE TABLE about (name TEXT, date TEXT, works INTEGER);"
            "CREATE TABLE works (block INTEGER PRIMARY KEY, first INTEGER UNIQUE, content BLOB);"
            "CREATE TABLE links (first INTEGER PRIMARY KEY, content BLOB); BEGIN"
        )
        sorter.executescript(
            "PRAGMA journal_mode = OFF; CREATE TABLE works (key INTEGER, row BLOB);"
            "CREATE TABLE links (key INTEGER, block INTEGER); BEGIN"
        )
        works = (work for file in files for work in read_works(file, on_bad) if normalise_title(work.title))
        sorter.executemany("INSERT INTO works VALUES (?, ?)", map(_sortable, works))
        count, decode = 0, msgspec.msgpack.Decoder(LibraryPaper).decode
        for number, block in enumerate(_blocks(sorter, "SELECT key, row FROM works ORDER BY key", BLOCK)):
            rows = [decode(row) for _, row in block]
            content = zlib.compress(
                msgspec.msgpack.encode([[getattr(row, name) for row in rows] for name in _FIELDS]), 9
            )
            database.execute("INSERT INTO works VALUES (?, ?, ?)", (number, block[0][0], content))
            names = {name for row in rows for name in (*_ids(row), _first_authors(row))}
            links = ((hash_text(name) - _SIGN, number) for name in names if name)
            sorter.executemany("INSERT INTO links VALUES (?, ?)", links)
            count += len(rows)
        for block in _blocks(sorter, "SELECT key, block FROM links ORDER BY key, block", LINKS):
            content = np.array([(key + _SIGN, number) for key, number in block], _LINK).tobytes()
            database.execute("INSERT INTO links VALUES (?, ?)", (block[0][0], content))
        if not count:
            raise InputError(f"table={name}: has no works")
        written = date.fromtimestamp(max(file.stat().st_mtime for file in files))
        database.execute("INSERT INTO about VALUES (?, ?, ?)", (name, str(written), count))
        database.execute("COMMIT")


def _sortable(paper: LibraryPaper) -> tuple[int, bytes]:
    """Return a work with the hash of its title."""
    mark, authors = paper.retraction_mark, paper.authors[:40]
    work = LibraryPaper("", title=paper.title, authors=authors, year=paper.year, venue=paper.venue)
    work = work._replace(doi=paper.doi, arxiv=paper.arxiv, filled=(mark,) if mark else ())
    return title_key(normalise_title(paper.title)) - _SIGN, msgspec.msgpack.encode(work)


def _blocks(sorter: sqlite3.Connection, query: str, size: int) -> Iterator[list[tuple[int, Any]]]:
    """Yield sorted keys and values in blocks. Those of one key stay in one block."""
    block: list[tuple[int, Any]] = []
    for pair in sorter.execute(query):
        if len(block) >= size and pair[0] != block[-1][0]:
            yield block
            block = []
        block.append(pair)
    if block:
        yield block


def read_works(file: Path, on_bad: OnBadRecord) -> Iterator[LibraryPaper]:
    """Yield the works of a file: Retraction Watch's CSV, or any file of papers."""
    return read_retraction_watch(file, on_bad) if is_retraction_watch(file) else read_source(file, on_bad)
