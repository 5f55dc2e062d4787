"""Which paper of the collection a reference means.

A reference with a paper's id means that paper or none. Otherwise titles are compared by their letters and
digits: the reference's, or any run of up to six parts of the printed entry between punctuation. Of the papers
of that title those remain that

- share an author, where authors are known: one of the paper's first four is among the reference's, or stands
  in the printed entry
- are of the same year or one or two years apart, where both are known

If neither authors nor years could be compared, the title must have 20 letters. Of several papers the nearest
in year is taken; if that is not a single one, none is.

Surnames, and names and titles made comparable.
The papers of all files: records of one id become one paper, and those with title and abstract are kept.
"""

from __future__ import annotations

import re
import unicodedata
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

import orjson

from datasets.fulltext.records import Paper, Reference
from datasets.prepare import Spool

# Letters that Unicode does not decompose.
_PLAIN = str.maketrans(
    {"ø": "o", "Ø": "O", "ł": "l", "Ł": "L", "đ": "d", "Đ": "D", "ß": "ss", "æ": "ae", "Æ": "Ae", "ı": "i"}
)
_SUFFIXES = frozenset(("jr", "sr", "ii", "iii", "iv"))
_MONTH = r"(?:0[1-9]|1[0-2])"
_ARXIV = re.compile(
    rf"(?:(\d\d){_MONTH}\.\d{{4,5}}|[a-z-]+(?:\.[A-Z]{{2}})?[/_]?(\d\d){_MONTH}\d{{3}})(?:v\d+)?"
)
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


def arxiv_year(paper: str) -> int:
    """The year in an id of arXiv, which a file may be named by; 0 if it is none.

    >>> [arxiv_year(paper) for paper in ("2101.00001v2", "hep-th9901001", "paper-7")]
    [2021, 1999, 0]
    """
    match = _ARXIV.fullmatch(paper)
    if not match:
        return 0
    digits = int(match[1] or match[2])
    return digits + (1900 if digits > 90 else 2000)


AUTHORS = 4
"""Authors of a paper by whose names references are resolved and contexts checked."""

_SCHEMA = """
CREATE TABLE papers (place INTEGER PRIMARY KEY, id TEXT UNIQUE, title TEXT, abstract TEXT, year INT,
                     authors TEXT, field TEXT, identified INT)
"""
_ADD = """
INSERT INTO papers (id, title, abstract, year, authors, field, identified)
VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET
    title = iif(title = '', excluded.title, title),
    abstract = iif(abstract = '', excluded.abstract, abstract),
    year = iif(year = 0, excluded.year, year),
    authors = iif(authors = '[]', excluded.authors, authors),
    field = iif(field IN ('""', '[]'), excluded.field, field),
    identified = max(identified, excluded.identified)
"""
_KEPT = "title != '' AND abstract != '' AND identified"


class Catalogue:
    """Call add for each record, then finish. Rows count the papers kept, in the order of their first records.

    identifier: a kind of identifier that papers must have to be kept; None for any.
    """

    def __init__(self, path: Path, identifier: str | None) -> None:
        self.path = path
        self._identifier = identifier.lower() if identifier else None
        self._spool = Spool(path, _SCHEMA, _ADD)
        self.ids: list[str] = []
        self.rows: dict[str, int] = {}
        self.years = array("i")
        self._surnames: list[str] = []
        # Sorted, and the rows in the same order.
        self._title_keys, self._title_rows = array("Q"), array("i")

    def add(self, paper: Paper) -> None:
        identified = self._identifier is None or self._identifier in paper.identifiers
        self._spool.add(
            (
                paper.id,
                " ".join(paper.title.split()),
                paper.abstract.strip(),
                paper.year,
                orjson.dumps(paper.authors).decode(),
                orjson.dumps(paper.field).decode(),
                identified,
            )
        )

    def finish(self) -> Counter[str]:
        """Fill the rows; returns how many papers there are, and how many are left out for what reason."""
        counts: Counter[str] = Counter()
        for outcome, condition in (
            ("read", "true"),
            (f"without an identifier of the kind {self._identifier}", "NOT identified"),
            ("without a title", "identified AND title = ''"),
            ("without an abstract", "identified AND title != '' AND abstract = ''"),
            ("written", _KEPT),
        ):
            counts[outcome] = self._one(f"SELECT count(*) FROM papers WHERE {condition}")
        keys = array("Q")
        for paper, title, year, authors in self._spool.select(
            f"SELECT id, title, year, authors FROM papers WHERE {_KEPT} ORDER BY place"
        ):
            self.rows[paper] = len(self.rows)
            self.ids.append(paper)
            self.years.append(year)
            self._surnames.append("|".join(surname(name) for name in orjson.loads(authors)[:AUTHORS]))
            keys.append(title_key(letters_of(title)))
        order = sorted(range(len(keys)), key=keys.__getitem__)
        self._title_rows, self._title_keys = array("i", order), array("Q", (keys[row] for row in order))
        return +counts

    def surnames(self, row: int) -> list[str]:
        """Of the first authors, folded."""
        return [name for name in self._surnames[row].split("|") if name]

    def titled(self, key: int) -> list[int]:
        """Rows of the papers whose title has this key."""
        first, last = bisect_left(self._title_keys, key), bisect_right(self._title_keys, key)
        return list(self._title_rows[first:last])

    def papers(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """(id, record of papers.json) of the papers kept, in the order of the rows."""
        for paper, title, abstract, year, authors, field in self._spool.select(
            f"SELECT id, title, abstract, year, authors, field FROM papers WHERE {_KEPT} ORDER BY place"
        ):
            record = {"title": title, "abstract": abstract, "year": year or None}
            record["authors"] = orjson.loads(authors)
            if fields := orjson.loads(field):
                record["field"] = fields
            yield paper, record

    def close(self) -> None:
        self._spool.close()

    def _one(self, query: str) -> int:
        return int(next(self._spool.select(query))[0] or 0)


YEARS_APART = 2
LONG_TITLE = 20
SHORTEST_PART = 12
"""Letters that a part of a printed entry has at least to be taken for a title."""
_PARTS = 6
_PUNCTUATION = re.compile(r"[.?!,;:](?=\s|$)|[“”\"«»()\[\]]|``|''|\s[–—-]+\s|\n")
_YEAR = re.compile(r"(?<!\d)(?:19|20)\d\d(?!\d)")


def resolve(reference: Reference, catalogue: Catalogue) -> tuple[int | None, str]:
    """(row of the paper, how it was found), or (None, why not)."""
    if reference.paper:
        row = catalogue.rows.get(reference.paper)
        return row, "by id" if row is not None else "the cited paper is not in the collection"
    if not (reference.title or reference.text):
        return None, "the reference has neither id nor title"
    agreeing: dict[int, int] = {}
    for letters in _titles(reference):
        for row in catalogue.titled(title_key(letters)):
            apart = _agrees(reference, letters, row, catalogue)
            if apart is not None:
                agreeing[row] = apart
    if not agreeing:
        return None, "no paper has the title"
    least = min(agreeing.values())
    nearest = [row for row, apart in agreeing.items() if apart == least]
    return (nearest[0], "by title") if len(nearest) == 1 else (None, "several papers have the title")


def _titles(reference: Reference) -> Iterator[str]:
    """Letters of what may be the title."""
    if reference.title:
        yield letters_of(reference.title)
        return
    parts = [letters for part in _PUNCTUATION.split(reference.text) if (letters := letters_of(part))]
    for first in range(len(parts)):
        for last in range(first, min(first + _PARTS, len(parts))):
            letters = "".join(parts[first : last + 1])
            if len(letters) >= SHORTEST_PART:
                yield letters


def _agrees(reference: Reference, letters: str, row: int, catalogue: Catalogue) -> int | None:
    """Years between the two (0 if one is unknown), None if authors or years contradict."""
    authors, year = {name.casefold() for name in catalogue.surnames(row)}, catalogue.years[row]
    names = {surname(name).casefold() for name in reference.authors}
    if not names:
        names = set(re.findall(r"[\w-]+", fold(reference.text).casefold()))
    compared = bool(authors and names)
    if compared and authors.isdisjoint(names):
        return None
    years = [reference.year] if reference.year else [int(found) for found in _YEAR.findall(reference.text)]
    if years and year:
        compared = True
        apart = min(abs(year - other) for other in years)
        return apart if apart <= YEARS_APART else None
    return 0 if compared or len(letters) >= LONG_TITLE else None
