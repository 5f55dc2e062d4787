"""Search by key, authors, year, title and venue, in SQLite's full-text index (FTS5) with its BM25.

A generation keeps it in search.sqlite, where the rowid of a paper is its row.
"""

from __future__ import annotations

import re
import sqlite3
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import closing
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from citerec.base.errors import DamagedFile
from citerec.base.files import database_disk_error
from citerec.formats.letters import fold, latin_names, nfc, with_pairs, words
from citerec.formats.names import surname

if TYPE_CHECKING:
    from citerec.formats.bibliography.paper import LibraryPaper

INDEX = "search.sqlite"
COLUMNS = {"key": 4.0, "first": 2.0, "authors": 2.0, "year": 2.0, "title": 1.0, "venue": 0.5}
"""Columns and their weights in BM25. first: the surname of the first author."""
MAX_WORDS = 50
"""Words of a query that count."""
MOST_NAMED = 1000
"""Papers that authors and a year may mean."""
IN_PART = 100
"""Papers with some words of a query, each from the index and from texts, to rank by how many they have."""
LEAST_NEAR = 0.75
"""Least share of the letters that a word and one that is spelt like it have in common."""
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_IOERR)
LEAST_SPELT = 5
"""Least letters of a word whose "oe" may stand for "ö"."""
_LONG_VOWEL = re.compile(r"(?<![aeq])([aou])e(?=[^\W\d_])", re.IGNORECASE)
_LONG = str.maketrans(
    {"ä": "ae", "ö": "oe", "ü": "ue", "ø": "oe", "å": "aa", "æ": "ae", "œ": "oe", "ß": "ss"}
    | {"Ä": "Ae", "Ö": "Oe", "Ü": "Ue", "Ø": "Oe", "Å": "Aa", "Æ": "Ae", "Œ": "Oe"}
)


class SearchIndex:
    """Finds papers by what a bibliography says of them. For one thread at a time."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @classmethod
    def open(cls, folder: Path) -> SearchIndex:
        """Open the index that `write` has written to a generation's folder. Raises OSError or ValueError."""
        (folder / INDEX).open("rb").close()  # SQLite does not tell why it cannot
        uri = f"{(folder / INDEX).absolute().as_uri()}?mode=ro&immutable=1"
        connection = sqlite3.connect(uri, uri=True, check_same_thread=False)
        return cls(connection)

    @classmethod
    def make(cls, papers: Iterable[LibraryPaper]) -> SearchIndex:
        """Make an index of papers, by their rows, in memory."""
        connection = sqlite3.connect(":memory:", check_same_thread=False)
        _insert(connection, papers)
        return cls(connection)

    @staticmethod
    def write(folder: Path, papers: Iterable[LibraryPaper]) -> None:
        """Write the index of the papers of a new generation to its folder."""
        try:
            with closing(sqlite3.connect(folder / INDEX)) as connection:
                connection.execute("PRAGMA journal_mode = OFF")  # an unfinished generation is thrown away
                connection.execute("PRAGMA synchronous = OFF")
                _insert(connection, papers)
                connection.commit()
        except sqlite3.OperationalError as error:
            raise database_disk_error(error, folder) or error from None

    def search(self, query: str, k: int) -> tuple[list[int], bool]:
        """Return at most k rows, best first, and whether their papers have all words, or else only some.

        A word also matches the beginning of longer ones, which count less.
        """
        parts = []
        for word in query_words(query):
            others = "".join(f' OR "{other}"' for other in spellings(word)[1:])
            parts.append(f'("{word}" OR "{word}"*{others})')
        if rows := self._match(" AND ".join(parts), k):
            return rows, True
        return self._match(" OR ".join(parts), k), False

    def near(self, word: str) -> str:
        """Return the word of the index that is spelt most like one; "" without any."""
        self._connection.execute(
            "CREATE VIRTUAL TABLE IF NOT EXISTS temp.words USING fts5vocab('main', 'papers', 'row')"
        )
        words = (term for (term,) in self._connection.execute("SELECT term FROM temp.words"))
        return next(iter(get_close_matches(_plain(word), words, 1, LEAST_NEAR)), "")

    def cited(self, first: str, others: Iterable[str], year: str) -> list[int]:
        """Return the rows of the papers of these authors (surnames) and this year, best first."""
        parts = [("first", first), ("year", year), *(("authors", name) for name in others)]
        either = [(column, " OR ".join(map(_phrase, spellings(text)))) for column, text in parts]
        return self._match(" AND ".join(f"{column} : ({phrases})" for column, phrases in either), MOST_NAMED)

    def _match(self, expression: str, k: int) -> list[int]:
        if not expression:
            return []
        weights = ", ".join(map(str, COLUMNS.values()))
        select = (
            f"SELECT rowid FROM papers WHERE papers MATCH ? ORDER BY bm25(papers, {weights}), rowid LIMIT ?"
        )
        try:
            numbers = self._connection.execute(select, (expression, k)).fetchall()
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode & 0xFF not in _DAMAGE:
                raise
            raise DamagedFile(f"{INDEX}: {error}") from None
        return [row for (row,) in numbers]


def query_words(query: str) -> list[str]:
    """Return the distinct words of a query that count."""
    return list(dict.fromkeys(_words(unicodedata.normalize("NFC", query))))[:MAX_WORDS]


def spellings(word: str) -> list[str]:
    """Return a word, without special letters, as German and Nordic names are spelt, and in Latin letters.

    >>> spellings("Köpcke"), spellings("koepcke"), spellings("Ørsted")
    (['Köpcke', 'Kopcke', 'Koepcke'], ['koepcke', 'kopcke'], ['Ørsted', 'Orsted', 'Oersted'])
    """
    short = _LONG_VOWEL.sub(r"\1", word) if len(word) >= LEAST_SPELT else word
    return list(dict.fromkeys((word, fold(word), word.translate(_LONG), short, *latin_names(word))))


def count_words(sought: Iterable[str], paper: LibraryPaper) -> int:
    """Count the words that a paper, with its abstract, has, or longer ones that begin with them."""
    fields = (paper.key, *paper.authors, str(paper.year or ""), paper.title, paper.venue, paper.abstract)
    own = set(_words(_plain(" ".join(fields))))
    wanted = [[*map(_plain, spellings(word))] for word in sought]
    return sum(any(word.startswith(first) or word in others for word in own) for first, *others in wanted)


def plain_words(text: str) -> str:
    """Return the words of a text in lower case and without diacritics, each after a space."""
    return "".join(f" {word}" for word in _words(_plain(text)))


def _words(text: str) -> list[str]:
    return [word for word, *_ in words(text)]


def _plain(text: str) -> str:
    """Lower-case, and without diacritics and ligatures."""
    return fold(text.casefold())


def _phrase(text: str) -> str:
    return '"' + " ".join(_words(unicodedata.normalize("NFC", text))) + '"'


def _insert(connection: sqlite3.Connection, papers: Iterable[LibraryPaper]) -> None:
    """Create the table, and add the papers by their rows."""
    columns = ", ".join(COLUMNS)
    tokenizer = "unicode61 remove_diacritics 2"  # Muller finds Müller
    connection.execute(f"CREATE VIRTUAL TABLE papers USING fts5({columns}, tokenize='{tokenizer}')")

    def rows() -> Iterator[tuple[int | str, ...]]:
        for row, paper in enumerate(papers):
            firsts = dict.fromkeys((paper.surname(), *map(surname, paper.names[:1])))  # 王小明, 王
            names, title, venue = map(_indexed, ("; ".join(paper.authors), paper.title, paper.venue))
            yield row, paper.key, with_pairs(nfc(" ".join(firsts))), names, paper.year or "", title, venue

    marks = ", ".join("?" * (len(COLUMNS) + 1))
    connection.executemany(f"INSERT INTO papers(rowid, {columns}) VALUES ({marks})", rows())


def _indexed(text: str) -> str:
    """Return a text in words, then those with letters that SQLite does not fold, such as ø, folded."""
    if text.isascii():
        return text
    folded = [fold(word) for word in _words(text) if not word.isascii()]
    return " ".join([with_pairs(text), *folded])
