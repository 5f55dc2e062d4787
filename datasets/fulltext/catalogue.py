"""The papers of a collection, and which of them an entry of a bibliography refers to.

An entry with a paper's id refers to that paper or none, one with an arXiv id to the paper of that id. Else
titles are compared by their letters and digits: the entry's title, or any run of up to six parts of the
printed entry between punctuation. Of the papers with that title those remain that

- share an author, where authors are known: one of the paper's first four is an author of the entry, or occurs
  in the printed entry
- are at most two years apart, where both years are known

If neither authors nor years can be compared, the title needs 20 letters. Of several papers the one nearest in
year is taken. Of those equally near the first is, if they are versions of one paper (one title, a common
author, years at most two apart); otherwise none is.
"""

from __future__ import annotations

import errno
import re
import sqlite3
import unicodedata
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

import orjson

from datasets.fulltext.documents import Metadata, Reference

AUTHORS = 4
"""First authors of a paper by whose names references are resolved and contexts checked."""
YEARS_APART = 2
LONG_TITLE = 20
SHORTEST_PART = 12
"""Letters that a part of a printed entry needs to be taken for a title."""
_MOST_PARTS = 6
_PUNCTUATION = re.compile(r"[.?!,;:](?=\s|$)|[“”\"«»()\[\]]|``|''|\s[–—-]+\s|\n")
_YEAR = re.compile(r"(?<!\d)(?:19|20)\d\d(?!\d)")

# Letters that Unicode does not decompose.
_PLAIN = str.maketrans(
    {"ø": "o", "Ø": "O", "ł": "l", "Ł": "L", "đ": "d", "Đ": "D", "ß": "ss", "æ": "ae", "Æ": "Ae", "ı": "i"}
)
_SUFFIXES = frozenset(("jr", "sr", "ii", "iii", "iv"))
_MONTH = r"(?:0[1-9]|1[0-2])"
_ARXIV = re.compile(
    rf"(?:(\d\d){_MONTH}\.\d{{4,5}}|[a-z-]+(?:\.[A-Z]{{2}})?[/_]?(\d\d){_MONTH}\d{{3}})(?:v\d+)?"
)
ARXIV_ID = r"(?:\d{4}\.\d{4,5}|[a-z-]+(?:\.[A-Z]{2})?/\d{7})"
_NAMED_ARXIV = re.compile(
    rf"(?:arxiv[:/.\s]*(?:abs/|pdf/)?|arxiv\.org/\w+/)({ARXIV_ID})(?:v\d+)?", re.IGNORECASE
)
_BARE_ARXIV = re.compile(rf"({ARXIV_ID})(?:v\d+)?")
_NOT_ALNUM = re.compile(r"[\W_]+")


def fold(text: str) -> str:
    """Without accents and ligatures.

    >>> fold("Müller and Łukasiewicz")
    'Muller and Lukasiewicz'
    """
    if text.isascii():
        return text
    letters = unicodedata.normalize("NFKD", text.translate(_PLAIN))
    return "".join(letter for letter in letters if not unicodedata.combining(letter))


def surname(name: str) -> str:
    """The last word of a family name, folded; "" if there is none.

    >>> [surname(name) for name in ("Ann B. Lee", "van der Maaten, Laurens", "K. Müller, Jr.", "Penkov MA")]
    ['Lee', 'Maaten', 'Muller', 'Penkov']
    """
    family, _, rest = fold(name).partition(",")
    if rest and rest.strip(" .").lower() not in _SUFFIXES:
        words = family.split()
    else:
        words = [word for word in family.split() if word.strip(".").lower() not in _SUFFIXES]
        # Initials after the name, as PubMed has them.
        while len(words) > 1 and len(words[-1]) <= 3 and words[-1].isupper():
            words.pop()
    return words[-1].strip(".") if words else ""


def letters_of(text: str) -> str:
    """Its letters and digits, folded and in lower case.

    >>> letters_of("BERT: Pre-training")
    'bertpretraining'
    """
    return _NOT_ALNUM.sub("", fold(text).casefold())


def title_key(letters: str) -> int:
    """64 bits that stand for a title, from its letters_of."""
    return int.from_bytes(blake2b(letters.encode(), digest_size=8).digest(), "little")


def year_in(text: str) -> int:
    """The first year from 1900 to 2099 in a text; 0 without."""
    found = _YEAR.search(text)
    return int(found[0]) if found else 0


def arxiv_year(paper: str) -> int:
    """The year in an arXiv id; 0 for anything else.

    >>> [arxiv_year(paper) for paper in ("2101.00001v2", "hep-th9901001", "paper-7")]
    [2021, 1999, 0]
    """
    match = _ARXIV.fullmatch(paper)
    if not match:
        return 0
    digits = int(match[1] or match[2])
    return digits + (1900 if digits > 90 else 2000)


def clean_arxiv(text: str) -> str:
    """The id without version; "" if there is none.

    >>> [clean_arxiv(text) for text in ("arXiv:2112.01206v2", "https://arxiv.org/abs/hep-th/9901001", "CoRR")]
    ['2112.01206', 'hep-th/9901001', '']
    """
    found = _BARE_ARXIV.fullmatch(text.strip()) or _NAMED_ARXIV.search(text)
    return found[1] if found else ""


class PaperTable:
    """Papers by id in a SQLite file, for the lifetime of one process.

    Records of one id are merged: of each column the first value that is not empty counts.
    """

    _COLUMNS = ("title", "abstract", "year", "authors", "field", "identified")
    _BATCH = 10_000

    def __init__(self, path: Path) -> None:
        self.path = path
        self._batch: list[tuple[Any, ...]] = []
        self._database = sqlite3.connect(path, isolation_level=None)
        for pragma in ("journal_mode = OFF", "synchronous = OFF", "locking_mode = EXCLUSIVE"):
            self._database.execute(f"PRAGMA {pragma}")
        self._database.execute("PRAGMA cache_size = -65536")  # 64 MiB
        columns = ", ".join(self._COLUMNS)
        self._database.execute(f"CREATE TABLE papers (place INTEGER PRIMARY KEY, id TEXT UNIQUE, {columns})")
        merged = ", ".join(f"{column} = coalesce({column}, excluded.{column})" for column in self._COLUMNS)
        self._insert = (
            f"INSERT INTO papers (id, {columns}) VALUES (?, ?, ?, ?, ?, ?, ?) "
            f"ON CONFLICT (id) DO UPDATE SET {merged}"
        )

    def add(self, paper: Metadata, identified: bool = True) -> None:
        """Raises OSError for a full disk."""
        authors, field = (
            orjson.dumps(value).decode() if value else None for value in (paper.authors, paper.field)
        )
        known = (paper.title or None, paper.abstract or None, paper.year or None)
        self._batch.append((paper.id, *known, authors, field, identified or None))
        if len(self._batch) == self._BATCH:
            self._write()

    def count(self, condition: str) -> int:
        """Papers that meet an SQL condition."""
        self._write()
        return int(self._database.execute(f"SELECT count(*) FROM papers WHERE {condition}").fetchone()[0])

    def papers(self, condition: str = "true") -> Iterator[Metadata]:
        """Those that meet an SQL condition, in the order of their first records."""
        self._write()
        columns = "id, title, abstract, year, authors, field"
        rows = self._database.execute(f"SELECT {columns} FROM papers WHERE {condition} ORDER BY place")
        for paper, title, abstract, year, authors, field in rows:
            fields = orjson.loads(field) if field else ()
            yield Metadata(
                paper,
                title or "",
                abstract or "",
                year or 0,
                tuple(orjson.loads(authors)) if authors else (),
                tuple(fields) if isinstance(fields, list) else fields,
            )

    def close(self) -> None:
        self._database.close()

    def _write(self) -> None:
        try:
            self._database.execute("BEGIN")
            self._database.executemany(self._insert, self._batch)
            self._database.execute("COMMIT")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_FULL:
                raise OSError(errno.ENOSPC, "No space left on device", str(self.path)) from None
            raise
        self._batch.clear()


_KEPT = "title IS NOT NULL AND abstract IS NOT NULL AND identified"


class Catalogue:
    """The papers of all files, those with title and abstract. Call add for each record, then finish.

    Rows count the papers kept, in the order of their first records.
    identifier: a kind of identifier that papers need to be kept, such as arxiv; None for any.
    """

    def __init__(self, path: Path, identifier: str | None) -> None:
        self.path = path
        self._identifier = identifier.lower() if identifier else None
        self._table = PaperTable(path)
        self.ids: list[str] = []
        self.rows: dict[str, int] = {}
        self.years = array("i")
        self._surnames: list[str] = []
        self._described: dict[int, Metadata] = {}
        # Sorted, and the rows in the same order.
        self._title_keys, self._title_rows = array("Q"), array("i")

    def add(self, paper: Metadata) -> None:
        paper = paper._replace(title=" ".join(paper.title.split()), abstract=paper.abstract.strip())
        self._table.add(paper, self._identifier is None or self._identifier in paper.identifiers)

    def add_described(self, references: Iterable[Reference]) -> None:
        """Entries of bibliographies with title and abstract: papers where no record has the title."""
        for entry in references:
            key = title_key(letters_of(entry.title))
            paper = Metadata(f"bib-{key:016x}", entry.title, entry.abstract, entry.year, entry.authors)
            self._described.setdefault(key, paper)

    def finish(self) -> Counter[str]:
        """Fill the rows. Returns how many papers were read, left out for each reason, and kept."""
        if self._described and self._identifier is None:
            known = {title_key(letters_of(paper.title)) for paper in self.papers()}
            for key, paper in self._described.items():
                if key not in known:
                    self.add(paper)
        conditions = {
            "read": "true",
            f"without an identifier of the kind {self._identifier}": "identified IS NULL",
            "without a title": "identified AND title IS NULL",
            "without an abstract": "identified AND title IS NOT NULL AND abstract IS NULL",
            "known by their entries in .bib files": f"{_KEPT} AND id GLOB 'bib-*'",
            "written": _KEPT,
        }
        counts = Counter({outcome: self._table.count(where) for outcome, where in conditions.items()})
        keys = array("Q")
        for paper in self.papers():
            self.rows[paper.id] = len(self.rows)
            self.ids.append(paper.id)
            self.years.append(paper.year)
            self._surnames.append("|".join(surname(name) for name in paper.authors[:AUTHORS]))
            keys.append(title_key(letters_of(paper.title)))
        order = sorted(range(len(keys)), key=keys.__getitem__)
        self._title_rows, self._title_keys = array("i", order), array("Q", (keys[row] for row in order))
        return +counts

    def papers(self) -> Iterator[Metadata]:
        """The papers kept, in the order of the rows."""
        return self._table.papers(_KEPT)

    def surnames(self, row: int) -> list[str]:
        """Of the first authors, folded."""
        return [name for name in self._surnames[row].split("|") if name]

    def titled(self, key: int) -> list[int]:
        """Rows of the papers whose title has this title_key."""
        first, last = bisect_left(self._title_keys, key), bisect_right(self._title_keys, key)
        return list(self._title_rows[first:last])

    def close(self) -> None:
        self._table.close()

    def resolve(self, reference: Reference) -> tuple[int | None, str]:
        """(row of the paper that a reference means, how it was found), or (None, why it was not)."""
        if reference.paper:
            row = self.rows.get(reference.paper)
            return row, "by id" if row is not None else "the cited paper is not in the collection"
        if (row := self.rows.get(reference.arxiv)) is not None:
            return row, "by arXiv id"
        if not (reference.title or reference.text):
            return None, "the reference has neither id nor title"
        found: dict[int, tuple[int, str]] = {}
        for letters in _possible_titles(reference):
            for row in self.titled(title_key(letters)):
                if (apart := self._years_apart(reference, letters, row)) is not None:
                    found[row] = apart, letters
        if not found:
            return None, "no paper has the title"
        least = min(apart for apart, _ in found.values())
        first, *others = sorted(row for row, (apart, _) in found.items() if apart == least)
        if all(found[row][1] == found[first][1] and self._versions(first, row) for row in others):
            return first, "by title"
        return None, "several papers have the title"

    def _versions(self, row: int, other: int) -> bool:
        """Whether two papers of one title are one: they share an author, and years do not contradict."""
        years = self.years[row], self.years[other]
        common = not set(self.surnames(row)).isdisjoint(self.surnames(other))
        return common and (not all(years) or abs(years[0] - years[1]) <= YEARS_APART)

    def _years_apart(self, reference: Reference, letters: str, row: int) -> int | None:
        """Years between the two (0 if one is unknown); None if authors or years contradict each other."""
        authors, year = {name.casefold() for name in self.surnames(row)}, self.years[row]
        names = {surname(name).casefold() for name in reference.authors}
        names = names or set(re.findall(r"[\w-]+", fold(reference.text).casefold()))
        if authors and names and authors.isdisjoint(names):
            return None
        years = [reference.year] if reference.year else list(map(int, _YEAR.findall(reference.text)))
        if years and year:
            apart = min(abs(year - other) for other in years)
            return apart if apart <= YEARS_APART else None
        return 0 if (authors and names) or len(letters) >= LONG_TITLE else None


def _possible_titles(reference: Reference) -> Iterator[str]:
    """The letters_of whatever may be the title of a reference."""
    if reference.title:
        yield letters_of(reference.title)
        return
    parts = [letters for part in _PUNCTUATION.split(reference.text) if (letters := letters_of(part))]
    for first in range(len(parts)):
        for last in range(first, min(first + _MOST_PARTS, len(parts))):
            letters = "".join(parts[first : last + 1])
            if len(letters) >= SHORTEST_PART:
                yield letters
