"""The papers of a collection, and how bibliography entries are resolved to them.

An entry with a paper id refers to that paper or none; an entry with an arXiv id, DOI, PubMed or PMC id to the
paper with that id, if there is one. Otherwise titles are compared by letters and digits: the entry's title,
or any sequence of up to six parts of the printed entry, split at punctuation. A paper with that title matches
if

- they share an author, if authors are known: one of the paper's first four authors is an author of the entry
  or occurs in the printed entry
- they are at most two years apart, if both years are known

If neither authors nor years can be compared, the title needs at least 20 letters. Among several matches the
nearest year wins. Ties go to the first paper if all are versions of one paper (same title, a common author,
at most two years apart); otherwise the entry stays unresolved.

Entries may be papers themselves (candidates=title, or entries with abstracts): one per identifier or title,
where short titles also need the same first author.
"""

from __future__ import annotations

import logging
import re
import sqlite3
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from citerec.base.errors import count_noun
from citerec.base.files import database_disk_error
from citerec.formats.documents import Metadata, Reference
from citerec.formats.identifiers import _YEAR, arxiv_month, identifier, identifier_kind
from citerec.formats.json_lines import encode_json
from citerec.formats.letters import LONG_TITLE, fold, normalise_title, title_key
from citerec.formats.names import surname
from citerec.formats.same_work import MAX_YEARS_APART

log = logging.getLogger(__name__)

AUTHORS = 4
"""Number of first authors used to resolve references and to check contexts for names."""
NO_TITLE = "no paper has the title"
MIN_PART = 12
"""Minimum number of letters of a part of a printed entry to be considered a title."""
_MAX_PARTS = 6
_PUNCTUATION = re.compile(r"[.?!,;:](?=\s|$)|[“”\"«»()\[\]]|``|''|\s[–—-]+\s|\n")

_HOW = {"doi": "by DOI", "pmid": "by PubMed id", "pmc": "by PMC id", "arxiv": "by arXiv id"}
"""Kinds of identifiers that resolve references."""


def _title_name(entry: Reference) -> str:
    """The name of an entry by a hash of its title, and of its first author if the title is short."""
    letters = normalise_title(entry.title)
    if len(letters) < LONG_TITLE and entry.authors:
        letters += f"|{surname(entry.authors[0]).casefold()}"
    return f"title:{title_key(letters):016x}"


def _names(entry: Reference) -> list[str]:
    """The names of an entry: its identifiers, arXiv id and title."""
    names = [*entry.identifiers, identifier("arxiv", entry.arxiv)]
    return [name for name in dict.fromkeys(names) if name.partition(":")[0] in _HOW] + (
        [_title_name(entry)] if entry.title else []
    )


class PaperTable:
    """Papers by id, and bibliography entries that may become papers, in a temporary SQLite file.

    Records with the same id are merged, and so are entries with a common name (identifier or title): the
    first non-empty value of each column wins.
    """

    _COLUMNS = ("title", "abstract", "year", "authors", "field", "identifiers", "identified")
    _BATCH = 10_000

    def __init__(self, path: Path) -> None:
        self.path = path
        self._batch: list[tuple[Any, ...]] = []
        self._database = sqlite3.connect(path, isolation_level=None)
        for pragma in ("journal_mode = OFF", "synchronous = OFF", "locking_mode = EXCLUSIVE"):
            self._database.execute(f"PRAGMA {pragma}")
        self._database.execute("PRAGMA cache_size = -65536")  # 64 MiB
        columns = ", ".join(self._COLUMNS)
        merged = ", ".join(f"{column} = coalesce({column}, excluded.{column})" for column in self._COLUMNS)
        self._insert = (
            f"INSERT INTO {{}} (id, {columns}) VALUES (?{', ?' * len(self._COLUMNS)}) "
            f"ON CONFLICT (id) DO UPDATE SET {merged}"
        )
        for table in ("papers", "entries"):
            self._database.execute(
                f"CREATE TABLE {table} (place INTEGER PRIMARY KEY, id TEXT UNIQUE, {columns})"
            )
        self._database.execute("CREATE TABLE names (name TEXT PRIMARY KEY, paper TEXT) WITHOUT ROWID")
        self._database.execute("CREATE INDEX named ON names (paper)")
        self._database.execute("BEGIN")  # one transaction for speed; the file is dropped in the end

    def add(self, paper: Metadata, identified: bool = True) -> None:
        """Add a record. Raises OSError if the disk is full."""
        self._batch.append(self._row(paper, identified))
        if len(self._batch) == self._BATCH:
            self._write()

    def add_entry(self, entry: Reference) -> None:
        """Add an entry, which has a title. Raises OSError if the disk is full."""
        names = _names(entry)
        id = next(filter(None, map(self.named, names)), f"bib-{names[-1].removeprefix('title:')}")
        paper = Metadata(id, entry.title, entry.abstract, entry.year, entry.authors)
        self._execute(self._insert.format("entries"), [self._row(paper, True)])
        self._execute("INSERT OR IGNORE INTO names VALUES (?, ?)", [(name, id) for name in names])

    def named(self, name: str) -> str | None:
        """The id of the paper or entry with a name; None if there is none."""
        row = self._database.execute("SELECT paper FROM names WHERE name = ?", (name,)).fetchone()
        return row and row[0]

    def assign(self, name: str, paper: str) -> bool:
        """Give a name to a paper. If it is that of an entry, the paper replaces the entry. False if another
        paper has it."""
        entry = self.named(name)
        if entry is None:
            self._execute("INSERT INTO names VALUES (?, ?)", [(name, paper)])
        elif entry.startswith("bib-"):
            self._execute("DELETE FROM entries WHERE id = ?", [(entry,)])
            self._execute("UPDATE names SET paper = ? WHERE paper = ?", [(paper, entry)])
        elif entry != paper:
            return False
        return True

    def count(self, condition: str, *values: str) -> int:
        """Count the papers that meet an SQL condition with these values for its question marks."""
        self._write()
        query = f"SELECT count(*) FROM papers WHERE {condition}"
        return int(self._database.execute(query, values).fetchone()[0])

    def papers(self, condition: str = "true", table: str = "papers") -> Iterator[Metadata]:
        """Yield the papers or `entries` that meet an SQL condition, in the order of their first records."""
        self._write()
        columns = "id, title, abstract, year, authors, field, identifiers"
        rows = self._database.execute(f"SELECT {columns} FROM {table} WHERE {condition} ORDER BY place")
        for paper, title, abstract, year, authors, field, identifiers in rows:
            fields = msgspec.json.decode(field) if field else ()
            yield Metadata(
                paper,
                title or "",
                abstract or "",
                year or 0,
                tuple(msgspec.json.decode(authors)) if authors else (),
                tuple(fields) if isinstance(fields, list) else fields,
                tuple(msgspec.json.decode(identifiers)) if identifiers else (),
            )

    def close(self) -> None:
        self._database.close()

    def _row(self, paper: Metadata, identified: bool) -> tuple[Any, ...]:
        lists = (
            encode_json(value).decode() if value else None
            for value in (paper.authors, paper.field, paper.identifiers)
        )
        fields = (paper.title or None, paper.abstract or None, paper.year or None)
        return (paper.id, *fields, *lists, identified or None)

    def _write(self) -> None:
        self._execute(self._insert.format("papers"), self._batch)
        self._batch.clear()

    def _execute(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        try:
            self._database.executemany(statement, rows)
        except sqlite3.OperationalError as error:
            raise (database_disk_error(error, self.path) or error) from None


class Catalogue:
    """The papers of all files that have a title and an abstract. Call `add` for each record, then `finish`.

    Rows number the papers kept, in the order of their first records.
    identifier: keep only papers with this kind of identifier, such as arxiv; None keeps all.
    candidates: `title` also keeps papers without an abstract, and untitled documents under their ids.
    """

    def __init__(self, path: Path, identifier: str | None, candidates: str = "abstract") -> None:
        self.path = path
        self._identifier = identifier_kind(identifier) if identifier else None
        self._with_abstract = candidates == "abstract"
        self._lacks = {f"without an identifier of the kind {self._identifier}": "identified IS NULL"}
        """Why papers are dropped: SQL conditions, of which the first that holds counts."""
        self._lacks["without a title"] = "title IS NULL"
        if self._with_abstract:
            self._lacks["without an abstract"] = "abstract IS NULL"
        self._kept = f"NOT ({' OR '.join(self._lacks.values())})"
        self._untitled: list[str] = []
        self._table = PaperTable(path)
        self.ids: list[str] = []
        self.rows: dict[str, int] = {}
        self.years = array("i")
        self.months = array("b")  # 0 if unknown
        self._surnames: list[str] = []
        # Sorted keys, and rows in the same order.
        self._title_keys, self._title_rows = array("Q"), array("i")

    def add(self, paper: Metadata, is_document: bool = False) -> None:
        """Add a record. is_document: it is named by its file, so its id can be shown as its title."""
        paper = paper._replace(title=" ".join(paper.title.split()), abstract=paper.abstract.strip())
        kinds = {name.partition(":")[0] for name in paper.identifiers}
        self._table.add(paper, self._identifier is None or self._identifier in kinds)
        if is_document and not paper.title and not self._with_abstract:
            self._untitled.append(paper.id)

    def add_entries(self, references: Iterable[Reference]) -> None:
        """Add bibliography entries as papers, unless `finish` finds records of the same papers."""
        for entry in references:
            if normalise_title(entry.title) and (entry.abstract or not self._with_abstract):
                self._table.add_entry(entry)

    def finish(self) -> Counter[str]:
        """Assign the rows. Returns how many papers were read, dropped for each reason, and kept."""
        for id in self._untitled:
            self._table.add(Metadata(id, id.replace("_", " ")), identified=False)
        twins = sum(
            False in {self._table.assign(name, paper.id) for name in paper.identifiers}
            for paper in self.papers()
        )
        if twins:
            log.warning(
                f"{count_noun(twins)} with the DOI or another identifier of another paper: one that several "
                "sources have is there as often, maybe in training and in test; build from one of them"
            )
        self._index()
        if self._identifier is None:
            self._add_entries_without_paper()
            self._index()
        conditions, others = {"read": "true"}, "true"
        for reason, lack in self._lacks.items():
            conditions[reason] = f"{others} AND {lack}"
            others += f" AND NOT ({lack})"
        conditions["known by bibliography entries only"] = f"{self._kept} AND id GLOB 'bib-*'"
        conditions["written"] = self._kept
        if not self._with_abstract:
            conditions["written without an abstract"] = f"{self._kept} AND abstract IS NULL"
        counts = Counter({outcome: self._table.count(where) for outcome, where in conditions.items()})
        return +counts

    def _add_entries_without_paper(self) -> None:
        for entry in self._table.papers(table="entries"):
            reference = Reference("", entry.title, entry.authors, entry.year)
            row, why = self._resolve_title(reference)
            if row is not None:
                self._table.assign(_title_name(reference), self.ids[row])
            elif why == NO_TITLE:
                self.add(entry)

    def _index(self) -> None:
        """Number the papers kept, and sort their titles."""
        self.ids, self.years, self.months = [], array("i"), array("b")
        self._surnames, keys = [], array("Q")
        for paper in self.papers():
            self.ids.append(paper.id)
            self.years.append(paper.year)
            arxiv = (name.partition(":")[2] for name in paper.identifiers if name.startswith("arxiv:"))
            self.months.append(arxiv_month(next(arxiv, paper.id), paper.year))
            self._surnames.append("|".join(surname(name) for name in paper.authors[:AUTHORS]))
            keys.append(title_key(normalise_title(paper.title)))
        self.rows = {id: row for row, id in enumerate(self.ids)}
        order = sorted(range(len(keys)), key=keys.__getitem__)
        self._title_rows, self._title_keys = array("i", order), array("Q", (keys[row] for row in order))

    def papers(self) -> Iterator[Metadata]:
        """Yield the papers kept, in row order."""
        return self._table.papers(self._kept)

    def why_dropped(self, paper: str) -> str:
        """Why a paper is not kept, such as "without an abstract"."""
        return next(
            reason for reason, lack in self._lacks.items() if self._table.count(f"id = ? AND ({lack})", paper)
        )

    def surnames(self, row: int) -> list[str]:
        """The folded surnames of the first authors."""
        return [name for name in self._surnames[row].split("|") if name]

    def close(self) -> None:
        self._table.close()

    def resolve(self, reference: Reference) -> tuple[int | None, str]:
        """Resolve a reference to (row of the paper, how it was found) or (None, why it was not)."""
        if reference.paper:
            row = self.rows.get(reference.paper)
            return row, "by id" if row is not None else "the cited paper is not in the collection"
        if (row := self.rows.get(reference.arxiv)) is not None:
            return row, "by arXiv id"
        names = _names(reference)
        for name in names[: -1 if reference.title else None]:
            if (row := self.rows.get(self._table.named(name) or "")) is not None:
                return row, _HOW[name.partition(":")[0]]
        if not (reference.title or reference.text):
            return None, "the reference has neither id nor title"
        row, how = self._resolve_title(reference)
        if row is None and reference.title:  # its own entry, or another title of a known paper
            row = self.rows.get(self._table.named(names[-1]) or "")
        return row, how if row is None else "by title"

    def _resolve_title(self, reference: Reference) -> tuple[int | None, str]:
        matches: dict[int, tuple[int, str]] = {}
        for letters in _candidate_titles(reference):
            key = title_key(letters)
            first, last = bisect_left(self._title_keys, key), bisect_right(self._title_keys, key)
            for row in self._title_rows[first:last]:
                if (distance := self._year_distance(reference, letters, row)) is not None:
                    matches[row] = distance, letters
        if not matches:
            return None, NO_TITLE
        least = min(distance for distance, _ in matches.values())
        first, *others = sorted(row for row, (distance, _) in matches.items() if distance == least)
        if all(matches[row][1] == matches[first][1] and self._same_paper(first, row) for row in others):
            return first, "by title"
        return None, "several papers have the title"

    def _same_paper(self, row: int, other: int) -> bool:
        """True if two papers with one title are versions of one paper: a common author, similar years."""
        years = self.years[row], self.years[other]
        common = not set(self.surnames(row)).isdisjoint(self.surnames(other))
        return common and (not all(years) or abs(years[0] - years[1]) <= MAX_YEARS_APART)

    def _year_distance(self, reference: Reference, letters: str, row: int) -> int | None:
        """Years between a reference and a paper (0 if unknown); None if the paper does not match."""
        authors, year = {name.casefold() for name in self.surnames(row)}, self.years[row]
        names = {surname(name).casefold() for name in reference.authors}
        names = names or set(re.findall(r"[\w-]+", fold(reference.text).casefold()))
        if authors and names and authors.isdisjoint(names):
            return None
        years = [reference.year] if reference.year else list(map(int, _YEAR.findall(reference.text)))
        if years and year:
            distance = min(abs(year - other) for other in years)
            return distance if distance <= MAX_YEARS_APART else None
        return 0 if (authors and names) or len(letters) >= LONG_TITLE else None


def _candidate_titles(reference: Reference) -> Iterator[str]:
    """Yield the letters of every possible title of a reference."""
    if reference.title:
        yield normalise_title(reference.title)
        return
    parts = [letters for part in _PUNCTUATION.split(reference.text) if (letters := normalise_title(part))]
    for first in range(len(parts)):
        for last in range(first, min(first + _MAX_PARTS, len(parts))):
            letters = "".join(parts[first : last + 1])
            if len(letters) >= MIN_PART:
                yield letters
