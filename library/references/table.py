"""A dump of works (DBLP, Crossref, OpenAlex, arXiv, any file of papers), turned once into an index.

An SQLite file: works in compressed blocks, in the order of their titles' hashes, and the blocks of their
DOIs, arXiv ids and first authors by hash. A lookup reads a block of BLOCK works for each that it asks about.
"""

from __future__ import annotations

import html
import io
import re
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from datetime import date
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from citerec.base.errors import InputError, error_text
from citerec.base.files import atomic_write, cache_folder, expand_user, file_stamp, open_bytes
from citerec.formats.bibliography.paper import LibraryPaper, make_paper
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
VERSION = 1
NEAR = 3
"""First authors by whom works are found."""
_SIGN = 1 << 63  # SQLite's numbers have one
_LINK = np.dtype([("key", "<u8"), ("block", "<u4")])
_COLUMNS = msgspec.msgpack.Decoder(list[list[Any]])


class Row(NamedTuple):
    """A work as it is kept."""

    title: str
    authors: str
    year: int
    venue: str
    doi: str
    arxiv: str
    retracted: str


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
        if len(names) == 1 and names[0].endswith(".sqlite"):
            if not (path := expand_user(names[0])).is_file():
                raise InputError(f"table={path}: no such file")
            return cls(path)
        files = [Path(file) for file in find_sources(names, "table")]
        stamp = "\n".join(f"{file} {file_stamp(file)}" for file in files).encode()
        path = (
            cache_folder() / "tables" / f"{files[0].name}-{blake2b(stamp, digest_size=8).hexdigest()}.sqlite"
        )
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(path) as temporary:
                build(temporary, files, on_bad)
        return cls(path)

    def close(self) -> None:
        self._database.close()

    def records(self, paper: LibraryPaper) -> Iterator[Record]:
        """Yield the works with a paper's DOI or arXiv id, then those with its title, else its authors."""
        for name in _ids(paper):
            yield from (self._record(row, by_id=True) for row in self._linked(name) if name in _ids(row))
        letters, authors = normalise_title(paper.title), _first_authors(paper.authors)
        query = "SELECT block FROM works WHERE first <= ? ORDER BY first DESC LIMIT 1"
        blocks = self._database.execute(query, (title_key(letters) - _SIGN,)) if letters else ()
        rows = [
            row for (block,) in blocks for row in self._block(block) if normalise_title(row.title) == letters
        ]
        linked = () if rows else self._linked(authors)
        rows += (row for row in linked if _first_authors(row.authors.split("\n")) == authors)
        yield from map(self._record, rows)

    def _record(self, row: Row, by_id: bool = False) -> Record:
        title, authors, year, venue, doi, arxiv, retracted = row
        names, marks = tuple(filter(None, authors.split("\n"))), (retracted,) if retracted else ()
        work = LibraryPaper("", "", title, "", names, year, venue, doi, arxiv, filled=marks)
        return Record(work, f"{self.name}, {self.date}", by_id)

    def _linked(self, name: str) -> Iterator[Row]:
        """Yield the works of the blocks that have one with an identifier or first authors."""
        key = hash_text(name)
        query = "SELECT content FROM links WHERE first <= ? ORDER BY first DESC LIMIT 1"
        for (content,) in self._database.execute(query, (key - _SIGN,)).fetchall() if name else ():
            links = np.frombuffer(content, _LINK)
            for block in np.unique(links["block"][links["key"] == np.uint64(key)])[:20].tolist():
                yield from self._block(block)

    def _read(self, block: int) -> list[Row]:
        try:
            [(content,)] = self._database.execute("SELECT content FROM works WHERE block = ?", (block,))
            return [*map(Row._make, zip(*_COLUMNS.decode(zlib.decompress(content)), strict=True))]
        except (sqlite3.Error, zlib.error, msgspec.DecodeError, ValueError, TypeError) as error:
            reason = f"is damaged ({error_text(error)}); remove it, and it is made anew"
            raise InputError(f"{self.path}: {reason}") from None


def _ids(work: LibraryPaper | Row) -> list[str]:
    return [f"{kind}:{id}" for kind in ("doi", "arxiv") if (id := getattr(work, kind))]


def _first_authors(authors: Iterable[str]) -> str:
    names = [surname(name).lower() for name in [*authors][:NEAR]]
    return f"authors:{' '.join(names)}" if any(names) else ""


def build(path: Path, files: Sequence[Path], on_bad: OnBadRecord) -> None:
    """Write an index of the works of files. Raises InputError if there are none."""
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
        works = (paper for file in files for paper in read_works(file, on_bad))
        sorter.executemany("INSERT INTO works VALUES (?, ?)", filter(None, map(_sortable, works)))
        count, decode = 0, msgspec.msgpack.Decoder(Row).decode
        for number, block in enumerate(_blocks(sorter, "SELECT key, row FROM works ORDER BY key", BLOCK)):
            rows = [decode(row) for _, row in block]
            content = zlib.compress(msgspec.msgpack.encode([*zip(*rows, strict=True)]), 9)
            database.execute("INSERT INTO works VALUES (?, ?, ?)", (number, block[0][0], content))
            names = {name for row in rows for name in (*_ids(row), _first_authors(row.authors.split("\n")))}
            links = ((hash_text(name) - _SIGN, number) for name in names if name)
            sorter.executemany("INSERT INTO links VALUES (?, ?)", links)
            count += len(rows)
        for block in _blocks(sorter, "SELECT key, block FROM links ORDER BY key, block", LINKS):
            content = np.array([(key + _SIGN, number) for key, number in block], _LINK).tobytes()
            database.execute("INSERT INTO links VALUES (?, ?)", (block[0][0], content))
        if not count:
            raise InputError(f"table={files[0]}: has no works")
        written = date.fromtimestamp(max(file.stat().st_mtime for file in files))
        database.execute("INSERT INTO about VALUES (?, ?, ?)", (files[0].name, str(written), count))
        database.execute("COMMIT")


def _sortable(paper: LibraryPaper) -> tuple[int, bytes] | None:
    """Return a work with the hash of its title; None without title."""
    if not (letters := normalise_title(paper.title)):
        return None
    told = (paper.year, paper.venue, paper.doi, paper.arxiv, paper.retraction_mark)
    row = Row(paper.title, "\n".join(paper.authors[:40]), *told)
    return title_key(letters) - _SIGN, msgspec.msgpack.encode(row)


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
    """Yield the works of a file: DBLP's XML, Retraction Watch's CSV, or any file of papers."""
    with open_bytes(file) as (content, _):
        is_dblp = b"<dblp" in content.read(1000)
    if is_dblp:
        yield from _read_dblp(file)
    elif is_retraction_watch(file):
        yield from read_retraction_watch(file, on_bad)
    else:
        yield from read_source(str(file), on_bad)


_DBLP_FIELD = re.compile(r"<(author|title|year|journal|booktitle|ee)\b[^>]*>(.*?)</\1>")


def _read_dblp(file: Path) -> Iterator[LibraryPaper]:
    """Yield the works of https://dblp.org/xml/, which has an element of a record a line."""
    fields: dict[str, list[str]] = {}
    with open_bytes(file) as (content, _):
        for line in io.TextIOWrapper(content, "utf-8", "replace"):
            if " key=" in line or "</dblp>" in line:  # the next record, also behind the end of the last
                if fields.get("title") and fields.get("year"):  # pages of people have none
                    yield _dblp_work(fields)
                fields = {}
            for name, value in _DBLP_FIELD.findall(line):
                fields.setdefault(name, []).append(html.unescape(re.sub(r"<[^>]+>", "", value)))


def _dblp_work(fields: dict[str, list[str]]) -> LibraryPaper:
    [title, year, venue] = (
        next((fields[name][0] for name in names if name in fields), "")
        for names in (("title",), ("year",), ("journal", "booktitle"))
    )
    links, authors = fields.get("ee", []), [re.sub(r" \d{4}$", "", name) for name in fields.get("author", ())]
    return make_paper(
        title=title.removesuffix("."),
        authors=authors,
        year=int(year) if year.isdecimal() else 0,
        venue=venue,
        doi=next((link for link in links if "doi.org/" in link), ""),
        arxiv=next((link for link in links if "arxiv" in link.lower()), ""),
    )
