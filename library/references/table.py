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
from citerec.base.progress import read_progress
from citerec.formats.bibliography.paper import LibraryPaper, make_paper
from citerec.formats.bibliography.reading.retraction_watch import is_retraction_watch, read_retraction_watch
from citerec.formats.json_lines import OnBadRecord
from citerec.formats.letters import normalise_title, title_key
from citerec.formats.names import surname
from citerec.formats.same_work import hash_text
from citerec.library.sources.finding import find_sources
from citerec.library.sources.readers import read_source

BLOCK, LINKS = 256, 4096
"""Works in a block, and links in one."""
VERSION = 1
NEAR = 3
"""First authors by whom works are found."""
_SIGN = 1 << 63
_LINK = np.dtype([("key", "<u8"), ("block", "<u4")])


class Row(NamedTuple):
    """A work as it is kept."""

    title: str
    authors: str
    year: int
    venue: str
    doi: str
    arxiv: str
    retracted: str

    def paper(self) -> LibraryPaper:
        marks = (self.retracted,) if self.retracted else ()
        names = tuple(filter(None, self.authors.split("\n")))
        return LibraryPaper(
            "", "", self.title, "", names, self.year, self.venue, self.doi, self.arxiv, filled=marks
        )


_COLUMNS = msgspec.msgpack.Decoder(list[list[Any]])


class Table:
    """An index. date: of the file that it was made from; name: of that file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
            [(version,)] = self._database.execute("PRAGMA user_version")
            if version != VERSION:
                raise InputError(f"{path}: is an index of another version; remove it, and it is made anew")
            self.name, self.date, self.works = self._database.execute(
                "SELECT name, date, works FROM about"
            ).fetchone()
            self._block = lru_cache(256)(self._read)
        except sqlite3.Error as error:
            raise InputError(f"{path}: cannot be used ({error_text(error)}); remove it") from None

    @classmethod
    def open(cls, names: Sequence[str], on_bad: OnBadRecord) -> Table:
        """Open the index of files, which is made if there is none of them as they are. Raises InputError."""
        if len(names) == 1 and names[0].endswith(".sqlite"):
            return cls(_existing(names[0]))
        files = [Path(file) for file in find_sources(names, "table")]
        stamp = "\n".join(f"{file} {file_stamp(file)}" for file in files)
        path = (
            cache_folder()
            / "tables"
            / f"{files[0].name}-{blake2b(stamp.encode(), digest_size=8).hexdigest()}.sqlite"
        )
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(path) as temporary:
                build(temporary, files, on_bad)
        return cls(path)

    def close(self) -> None:
        self._database.close()

    def by_title(self, paper: LibraryPaper) -> list[LibraryPaper]:
        """Return the works with the letters of a paper's title."""
        if not (letters := normalise_title(paper.title)):
            return []
        rows = self._rows_from(_signed(title_key(letters)))
        return [row.paper() for row in rows if normalise_title(row.title) == letters]

    def by_id(self, paper: LibraryPaper) -> list[LibraryPaper]:
        """Return the works with a paper's DOI or arXiv id."""
        rows = [
            *self._linked(f"doi:{paper.doi}" if paper.doi else ""),
            *self._linked(f"arxiv:{paper.arxiv}" if paper.arxiv else ""),
        ]
        return [
            row.paper()
            for row in rows
            if (row.doi and row.doi == paper.doi) or (row.arxiv and row.arxiv == paper.arxiv)
        ]

    def by_authors(self, paper: LibraryPaper) -> list[LibraryPaper]:
        """Return the works whose first authors are those of a paper."""
        name = _first_authors(paper.authors)
        return [row.paper() for row in self._linked(name) if _first_authors(row.authors.split("\n")) == name]

    def _rows_from(self, key: int) -> Iterator[Row]:
        query = "SELECT block FROM works WHERE first <= ? ORDER BY first DESC LIMIT 1"
        for (block,) in self._database.execute(query, (key,)).fetchall():
            yield from self._block(block)

    def _linked(self, name: str) -> Iterator[Row]:
        if not name:
            return
        key = hash_text(name)
        query = "SELECT content FROM links WHERE first <= ? ORDER BY first DESC LIMIT 1"
        for (content,) in self._database.execute(query, (_signed(key),)).fetchall():
            links = np.frombuffer(content, _LINK)
            start, end = (np.searchsorted(links["key"], np.uint64(key), side) for side in ("left", "right"))
            for block in np.unique(links["block"][start:end])[:20].tolist():
                yield from self._block(block)

    def _read(self, block: int) -> list[Row]:
        try:
            content = self._database.execute(
                "SELECT content FROM works WHERE block = ?", (block,)
            ).fetchone()[0]
            columns = _COLUMNS.decode(zlib.decompress(content))
            return [*map(Row._make, zip(*columns, strict=True))]
        except (sqlite3.Error, zlib.error, msgspec.DecodeError, ValueError, TypeError) as error:
            raise InputError(
                f"{self.path}: is damaged ({error_text(error)}); remove it, and it is made anew"
            ) from None


def _existing(name: str) -> Path:
    if not (path := expand_user(name)).is_file():
        raise InputError(f"table={name}: no such file")
    return path


def _signed(key: int) -> int:
    return key - _SIGN


def _first_authors(authors: Iterable[str]) -> str:
    names = [surname(name).lower() for name in [*authors][:NEAR]]
    return f"authors:{' '.join(names)}" if any(names) else ""


def build(path: Path, files: Sequence[Path], on_bad: OnBadRecord) -> None:
    """Write an index of the works of files. Raises InputError if there are none."""
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA page_size = 1024")  # since each block fills its last page by half
        database.execute("PRAGMA journal_mode = OFF")
        database.execute("PRAGMA synchronous = OFF")
        with closing(
            sqlite3.connect("", isolation_level=None)
        ) as sorter:  # a file that is removed when closed
            sorter.execute("PRAGMA journal_mode = OFF")
            sorter.execute("CREATE TABLE works (key INTEGER, row BLOB)")
            sorter.execute("CREATE TABLE links (key INTEGER, block INTEGER)")
            encode = msgspec.msgpack.encode
            works = (
                paper for file in files for paper in read_works(file, on_bad) if normalise_title(paper.title)
            )
            rows = (
                (_signed(title_key(normalise_title(paper.title))), encode(_row(paper))) for paper in works
            )
            sorter.execute("BEGIN")
            sorter.executemany("INSERT INTO works VALUES (?, ?)", rows)
            count = _write_works(database, sorter)
            _write_links(database, sorter)
        if not count:
            raise InputError(f"table={files[0]}: has no works")
        written = date.fromtimestamp(max(file.stat().st_mtime for file in files))
        database.execute("CREATE TABLE about (name TEXT, date TEXT, works INTEGER)")
        database.execute("INSERT INTO about VALUES (?, ?, ?)", (files[0].name, str(written), count))
        database.execute(f"PRAGMA user_version = {VERSION}")


def _row(paper: LibraryPaper) -> Row:
    authors = "\n".join(paper.authors[:40])
    return Row(paper.title, authors, paper.year, paper.venue, paper.doi, paper.arxiv, paper.retraction_mark)


def _write_works(database: sqlite3.Connection, sorter: sqlite3.Connection) -> int:
    """Write the sorted works in blocks, and their links for sorting; return how many there are.

    Works of one title stay in one block.
    """
    database.execute("CREATE TABLE works (block INTEGER PRIMARY KEY, first INTEGER, content BLOB)")
    block, count, first, last = list[Row](), 0, 0, None
    number = 0
    decode = msgspec.msgpack.Decoder(Row).decode

    def write() -> None:
        content = zlib.compress(msgspec.msgpack.encode([*zip(*block, strict=True)]), 9)
        database.execute("INSERT INTO works VALUES (?, ?, ?)", (number, first, content))
        names = {name for row in block for name in _names(row)}
        sorter.executemany(
            "INSERT INTO links VALUES (?, ?)", ((_signed(hash_text(name)), number) for name in names)
        )

    database.execute("BEGIN")
    for key, content in sorter.execute("SELECT key, row FROM works ORDER BY key"):
        if len(block) >= BLOCK and key != last:
            write()
            block, number = [], number + 1
        if not block:
            first = key
        block.append(decode(content))
        count, last = count + 1, key
    if block:
        write()
    database.execute("CREATE UNIQUE INDEX by_first ON works (first)")
    database.execute("COMMIT")
    return count


def _names(row: Row) -> Iterator[str]:
    yield from (f"doi:{row.doi}",) if row.doi else ()
    yield from (f"arxiv:{row.arxiv}",) if row.arxiv else ()
    yield from filter(None, (_first_authors(row.authors.split("\n")),))


def _write_links(database: sqlite3.Connection, sorter: sqlite3.Connection) -> None:
    database.execute("CREATE TABLE links (first INTEGER PRIMARY KEY, content BLOB)")
    links, last = list[tuple[int, int]](), None

    def write() -> None:
        content = np.array([(key + _SIGN, block) for key, block in links], _LINK).tobytes()
        database.execute("INSERT INTO links VALUES (?, ?)", (links[0][0], content))

    database.execute("BEGIN")
    for link in sorter.execute("SELECT key, block FROM links ORDER BY key, block"):
        if len(links) >= LINKS and link[0] != last:
            write()
            links = []
        links.append(link)
        last = link[0]
    if links:
        write()
    database.execute("COMMIT")


# Reading dumps.


def read_works(file: Path, on_bad: OnBadRecord) -> Iterator[LibraryPaper]:
    """Yield the works of a file: DBLP's XML, Retraction Watch's CSV, or any file of papers."""
    name = file.name.lower().removesuffix(".gz")
    if name.endswith(".xml") and _is_dblp(file):
        yield from _read_dblp(file)
    elif name.endswith(".csv") and is_retraction_watch(file):
        yield from read_retraction_watch(file, on_bad)
    else:
        yield from read_source(str(file), on_bad)


_START, _END = (
    re.compile(
        rf"<{slash}(?:article|(?:in)?proceedings|incollection|book|phdthesis|mastersthesis|www|data)\b"
    )
    for slash in ("", "/")
)
_FIELD = re.compile(r"<(author|editor|title|year|journal|booktitle|ee|publisher)\b[^>]*>(.*?)</\1>")
_HOMONYM = re.compile(r" \d{4}$")


def _is_dblp(file: Path) -> bool:
    with open_bytes(file) as (content, _):
        return b"<dblp" in content.read(1000)


def _read_dblp(file: Path) -> Iterator[LibraryPaper]:
    """Yield the works of https://dblp.org/xml/: an element a record, a line an element within it."""
    fields: dict[str, list[str]] = {}
    with read_progress(file, file.name), open_bytes(file) as (content, _):
        for line in io.TextIOWrapper(content, encoding="utf-8", errors="replace"):
            for name, value in _FIELD.findall(line):
                fields.setdefault(name, []).append(html.unescape(re.sub(r"<[^>]+>", "", value)))
            if _END.search(line) and fields.get("title"):
                first = {name: values[0] for name, values in fields.items()}
                ids = " ".join(fields.get("ee", ()))
                yield make_paper(
                    title=first["title"].removesuffix("."),
                    authors=[
                        _HOMONYM.sub("", name) for name in fields.get("author", fields.get("editor", ()))
                    ],
                    year=int(first["year"]) if first.get("year", "").isdecimal() else 0,
                    venue=first.get("journal") or first.get("booktitle") or first.get("publisher", ""),
                    doi=next((ee for ee in fields.get("ee", ()) if "doi.org/" in ee), ""),
                    arxiv=ids if "arxiv" in ids.lower() else "",
                )
            if _END.search(line) or _START.search(line):
                fields = {}
