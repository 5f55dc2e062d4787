"""What was read of PDFs, in an SQLite database in a library's folder: passages are compressed, by file.

A paper has the text of one file, and the user's notes and highlights. Files are known by size and time of
change, so that a command that was stopped reads none twice; what another version read (READER) is kept until
it is read again.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

import msgspec
import xxhash

from citerec.base.errors import DamagedFile, InputError, error_text
from citerec.base.files import database_disk_error
from citerec.formats.articles.citing import find_marks
from citerec.library.evidence import DATABASE
from citerec.library.evidence.passages import Passage, cut
from citerec.library.evidence.reading import READER, ReadText

FORMAT = 3
_TABLES = """
DROP TABLE IF EXISTS files;
DROP TABLE IF EXISTS papers;
DROP TABLE IF EXISTS links;
DROP TABLE IF EXISTS state;
CREATE TABLE files (file TEXT PRIMARY KEY, size INTEGER, changed INTEGER, problem TEXT,
    about BLOB, count INTEGER, hash INTEGER, text BLOB);
CREATE TABLE papers (paper TEXT PRIMARY KEY, file TEXT, count INTEGER, hash INTEGER,
    notes BLOB);
CREATE TABLE links (file TEXT, entry INTEGER, paper TEXT, PRIMARY KEY (file, entry))
    WITHOUT ROWID;
CREATE INDEX linked ON links (paper);
CREATE TABLE state (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
"""
_DROP = "UPDATE files SET text = NULL WHERE count > 0 AND file NOT IN (SELECT file FROM papers)"
_HASH = 8
"""Bytes of a hash before what is said about a file."""
_AGAIN = "remove it and run citerec update, which reads the PDFs again"
_Kind = TypeVar("_Kind")


class StoredPaper(NamedTuple):
    """A paper with a text: its file, and the number and a hash of its passages."""

    paper: str
    file: str
    passages: int
    hash: int


class TextStore:
    """The texts of a library. Several threads may read them."""

    def __init__(self, folder: Path, create: bool = False) -> None:
        """Raises InputError if there is no store, or a damaged one."""
        self.path, self._lock = folder / DATABASE, Lock()
        if create:
            folder.mkdir(parents=True, exist_ok=True)
        with self._errors():
            place = f"file:{quote(str(self.path.absolute()))}?mode={'rwc' if create else 'ro'}"
            self._database = sqlite3.connect(place, uri=True, check_same_thread=False, isolation_level=None)
            [(version,)] = self._database.execute("PRAGMA user_version")
            if create:
                self._database.execute("PRAGMA secure_delete = ON")
                self._database.execute("PRAGMA auto_vacuum = FULL")
                if version != FORMAT:  # new, or what another version has read, which is read again
                    self._database.executescript(f"{_TABLES}PRAGMA user_version = {FORMAT}")
                self._forget_other_readers()
        if not create and version != FORMAT:
            raise InputError(f"{self.path}: of another version; remove it and build with fulltext=true")

    def close(self) -> None:
        self._database.close()

    # Files.

    def _forget_other_readers(self) -> None:
        if self.get("reader") != str(READER):
            with self.change() as database:
                database.execute("UPDATE files SET changed = -1")
                database.execute("INSERT OR REPLACE INTO state VALUES ('reader', ?)", (str(READER),))

    def known_files(self, without_text: bool = False) -> dict[str, tuple[int, int]]:
        """Return the size and time of change of each file. without_text: also of those whose text was
        dropped, as it is of no paper."""
        rows = self._select("SELECT file, size, changed FROM files WHERE ? OR text IS NOT NULL", without_text)
        return {file: (size, changed) for file, size, changed in rows}

    def put(self, files: Iterable[tuple[str, int, int, ReadText]]) -> None:
        """Keep what was read of files: their names, sizes, times of change and texts."""
        rows = []
        for name, size, changed, text in files:
            whole = (Passage(part.text, [*part.starts], part.section) for part in text.parts)
            passages = [*whole] if text.marks else cut(text.parts)
            packed_passages = _pack(passages)
            marks = text.marks or find_marks([passage.text for passage in passages], text.entries)
            packed_rest = _compress(msgspec.structs.replace(text, parts=[], marks=marks))
            described = (name, size, changed, text.problem, xxhash.xxh3_64_digest(packed_rest) + packed_rest)
            rows.append((*described, len(passages), _hash(packed_passages), packed_passages))
        with self.change() as database:
            database.executemany("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)

    def abouts(self, files: Iterable[str]) -> Iterator[tuple[str, ReadText]]:
        """Yield those of the files that were read, and what was read of them besides their text."""
        for file in files:
            for (packed,) in self._select("SELECT about FROM files WHERE file = ?", file):
                if packed[:_HASH] != xxhash.xxh3_64_digest(packed[_HASH:]):
                    raise self._damaged()
                yield file, _decompress(packed[_HASH:], ReadText)

    def about(self, file: str) -> ReadText | None:
        """Return what was read of a file besides its text; None if it was not read."""
        return next((read for _, read in self.abouts([file])), None)

    def readable(self) -> set[str]:
        """Return the files that have or had a text."""
        return {file for (file,) in self._select("SELECT file FROM files WHERE count > 0")}

    def problems(self) -> dict[str, str]:
        """Return why files could not be read, or not all of them."""
        return dict(self._select("SELECT file, problem FROM files WHERE problem != '' ORDER BY file"))

    # Papers.

    def set_papers(self, files: Mapping[str, str], notes: Mapping[str, Sequence[Passage]]) -> None:
        """Say which papers there are: the file of each, and notes of some. Drops the texts of other files."""
        texts = {file: rest for file, *rest in self._select("SELECT file, count, hash FROM files")}
        rows = []
        for paper, file in sorted(files.items()):
            own = notes.get(paper, ())
            packed = _pack(own)
            count, hashed = texts[file]
            rows.append((paper, file, count + len(own), _both(hashed, packed), packed))
        with self.change() as database:
            database.execute("DELETE FROM papers")
            database.executemany("INSERT INTO papers VALUES (?, ?, ?, ?, ?)", rows)
            database.execute(_DROP)

    def papers(self) -> list[StoredPaper]:
        """Return the papers with a text, by id."""
        rows = self._select("SELECT paper, file, count, hash FROM papers ORDER BY paper")
        return [StoredPaper(*row) for row in rows]

    def text(self, paper: str) -> tuple[StoredPaper, list[Passage]]:
        """Return a paper and its passages, those of the user's notes at the end; none if it is not known."""
        rows = self._select(
            "SELECT paper, file, papers.count, papers.hash, files.hash, text, notes "
            "FROM papers JOIN files USING (file) "
            "WHERE paper = ?",
            paper,
        )
        if not rows:
            return StoredPaper(paper, "", 0, 0), []
        *fields, hashed, text, notes = rows[0]
        if hashed != _hash(text or b"") or fields[-1] != _both(hashed, notes):
            raise self._damaged()
        return StoredPaper(*fields), [*_unpack(text), *_unpack(notes)]

    # What they cite.

    def digest(self, papers: Iterable[Any]) -> str:
        """Return a hash of papers, and of the files whose texts they have."""
        hashed = xxhash.xxh3_64()
        files = "SELECT paper, file, size, changed FROM papers JOIN files USING (file) ORDER BY paper"
        for row in (*self._select(files), READER, *papers):
            hashed.update(repr(row).encode())
        return hashed.hexdigest()

    def set_links(self, links: Iterable[tuple[str, int, str]], digest: str) -> None:
        """Keep which entries of files are which papers: file, entry, paper. digest: of what determines it."""
        with self.change() as database:
            database.execute("DELETE FROM links")
            database.executemany("INSERT INTO links VALUES (?, ?, ?)", links)
            database.execute("INSERT OR REPLACE INTO state VALUES ('linked', ?)", (digest,))

    def links(self, file: str = "", paper: str = "") -> list[tuple[str, int, str]]:
        """Return file, entry and paper of all links, or those of a file, or of a paper."""
        named = " WHERE file = ?" if file else " WHERE paper = ?" if paper else ""
        return self._select(f"SELECT file, entry, paper FROM links{named}", *filter(None, [file or paper]))

    def check(self) -> None:
        """Read everything. Raises DamagedFile if anything differs from what was written."""
        if self._select("PRAGMA integrity_check") != [("ok",)]:
            raise self._damaged()
        for paper in self.papers():
            self.text(paper.paper)
        for _ in self.abouts(self.readable()):
            pass

    # State.

    def get(self, name: str) -> str:
        """Return a value that belongs to the texts; "" if there is none."""
        rows = self._select("SELECT value FROM state WHERE name = ?", name)
        return str(rows[0][0]) if rows else ""

    def set(self, name: str, value: str) -> None:
        with self.change() as database:
            database.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (name, value))

    @contextmanager
    def change(self) -> Iterator[sqlite3.Connection]:
        """Begin a transaction, which is undone if an exception comes."""
        with self._errors(), self._lock, self._database:
            self._database.execute("BEGIN IMMEDIATE")
            yield self._database

    def _select(self, statement: str, *values: Any) -> list[Any]:
        with self._errors(), self._lock:
            return self._database.execute(statement, values).fetchall()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            if (failed := database_disk_error(error, self.path)) is not None:
                raise failed from None
            raise InputError(
                f"{self.path}: cannot be used ({error_text(error)}); if it is damaged, {_AGAIN}"
            ) from None

    def _damaged(self) -> DamagedFile:
        return DamagedFile(f"{self.path}: damaged; {_AGAIN}")


def _hash(content: bytes) -> int:
    return xxhash.xxh3_64_intdigest(content) >> 1  # SQLite's integers have a sign


def _both(hashed: int, notes: bytes) -> int:
    """Return a hash of a file's text, given its own hash, and of a paper's notes."""
    return _hash(hashed.to_bytes(8, "little") + notes)


def _compress(value: Any) -> bytes:
    return zlib.compress(msgspec.msgpack.encode(value))


def _decompress(packed: bytes, kind: type[_Kind]) -> _Kind:
    return msgspec.msgpack.decode(zlib.decompress(packed), type=kind)


def _pack(passages: Sequence[Passage]) -> bytes:
    return _compress(list(passages)) if passages else b""


def _unpack(packed: bytes | None) -> list[Passage]:
    return _decompress(packed, list[Passage]) if packed else []
