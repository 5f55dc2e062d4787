"""Which records describe the same work, by hashed identifiers.

A record matches an earlier one by id, DOI, arXiv id or title (letters and digits only), if what both have
agrees:

- titles, at least in most words of the shorter one; DOIs, but not of a preprint and its publication; arXiv
  ids, first authors' surnames and, unless the first pages are equal, their initials
- first page, volume, number and edition, or else day and month of what is no paper of a conference; of
  software, data and manuals the version
- the kind of work: a thesis is not the article of the same title. Articles, papers and chapters are one kind,
  since programs confuse them, and `misc` and the like are none
- years, which may be two apart if one record is of a preprint, or if the first pages are equal

If title and DOI or arXiv id are equal, the others count only if the years differ. If title and citation key
are equal, one of DOI, first author, year, and place in print with kind may differ, as after a correction;
none may if the title tells nothing, such as "Editorial". Equal ids of services are enough.

If neither years nor authors can be compared, the title must have at least 20 letters. Memory holds a few
numbers per record, and only records that share one of the first four are compared.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from functools import lru_cache
from typing import NamedTuple

from citerec.formats.bibliography.item import MONTHS
from citerec.formats.bibliography.paper import LibraryPaper, is_preprint, without_filled
from citerec.formats.letters import LONG_TITLE, fold, normalise_title, title_key
from citerec.formats.names import given_initials

MAX_YEARS_APART = 2

_WORD = re.compile(r"[^\W_]{3,}")
_TYPED = str.maketrans("\u2019\u02bc\u2010", "''-")
"""Apostrophes and the hyphen of typesetters, to those of keyboards."""
_COMMON = frozenset(("the", "and", "for", "with", "from", "into", "its", "their", "new", "using", "via"))
_RECORD_IDS = ("openalex:", "s2:")
"""Prefixes of ids of records. Ids of works are compared separately; other ids, and keys, identify a paper
only together with its title."""
_NO_TITLES = frozenset(
    ("editorial", "preface", "foreword", "introduction", "conclusion", "conclusions", "erratum", "abstracts",
     "corrigendum", "correction", "reply", "comment", "discussion", "bookreview", "bookreviews", "obituary",
     "news", "indexofauthors", "letterstotheeditor", "lettertotheeditor", "acknowledgments", "contents",
     "acknowledgements", "tableofcontents", "untitled", "references")
)  # fmt: skip
_PRINTED = re.compile(
    r"\b(pages|eid|volume|number|issue)\s*=\s*(?:\{((?:[^{}]|\{[^{}]*\})*)|\"?([^\",}]*))", re.IGNORECASE
)
_LABEL = re.compile(r"^\W*(?:vol(?:ume)?|nos?|nr|number|issue|pages?|pp|art|bd|[nptv])(?:[.:°º\s]+|(?=\d))")
_NUMBERED = re.compile(r"[^\W_]+(?:\.[^\W_]+)*")
_EDITION = re.compile(r"[eE](?:dition|DITION)\s*=\s*[{\"]*([^,}\"]*)")  # faster than IGNORECASE
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
_VERSION = re.compile(
    r"\s*@(?:software|dataset|manual|misc)\b.*?\b(?:version\s*=\s*[{\"]*|R package version )v?([^,}\"]*)",
    re.IGNORECASE | re.DOTALL,
)
_MONTH = re.compile(r"\bmonth\s*=\s*[{\"]*(\w{1,3})", re.IGNORECASE)
_DATE = re.compile(r"\bdate\s*=\s*[{\"]*\d{4}-(\d\d)(?:-(\d\d))?", re.IGNORECASE)
_TYPE = re.compile(r"\s*@\s*(\w+)")
_OF_CONFERENCES = ("inproceedings", "conference")
"""Types of entries with two dates, of the conference and of its proceedings."""
_KINDS = {
    **dict.fromkeys(("article", "inproceedings", "conference", "incollection", "inbook"), 1),
    **dict.fromkeys(("suppperiodical", "inreference", "suppbook", "suppcollection", "bookinbook"), 1),
    **dict.fromkeys(
        ("book", "mvbook", "collection", "mvcollection", "booklet", "reference", "mvreference"), 2
    ),
    **dict.fromkeys(("proceedings", "mvproceedings"), 2),
    **dict.fromkeys(("phdthesis", "mastersthesis", "thesis"), 3),
    **dict.fromkeys(("techreport", "report", "manual"), 4),
    **{"software": 5, "dataset": 6, "patent": 7, "standard": 8},
}
_SHORT, _PREPRINT, _NAMED = 1, 2, 1 << 21
_KIND_BITS, _MONTH_BITS, _DAY_BITS, _EDITION_BITS, _INITIALS = 2, 6, 10, 15, 32
_PART, _PART_MASK = 21, (1 << 21) - 1
"""Bits of each of the hashed first page, volume and number."""
_DETAILS = (
    *((shift, _PART_MASK) for shift in (0, _PART, 2 * _PART)),
    *((64 + shift, mask) for shift, mask in ((2, 15), (6, 15), (10, 31), (15, 63))),
)
"""Bits of `printed`, and behind them of `traits`."""
_LIKE = 0.6
"""Least share of the words of the shorter title that the other has."""


class Identity(NamedTuple):
    """Hashed identifiers of a paper; 0 if unknown."""

    id: int
    doi: int
    arxiv: int
    title: int
    author: int
    """Hash of the first author's surname."""
    words: int
    """A bit, of 64, for each word of the title."""
    printed: int
    """First page, volume and number."""
    traits: int
    """If the title is short, if it is a preprint, if users gave the id; kind, month, day, edition; a bit, of
    32, for each initial of the first author."""
    year: int

    def agrees(self, other: Identity, apart: int = 0) -> bool:
        """True if two papers with the same title may be the same paper. apart: years that may lie between."""
        of_versions = (self.traits ^ other.traits) & _PREPRINT  # which have DOIs of their own
        first = 1 + bool(of_versions)
        if any(map(_differ, self[first:5], other[first:5])) or not self._agrees_in_print(other, apart):
            return False
        if not self._same_author(other) and (self._details()[0] or -1) != other._details()[0]:
            return False
        return bool((self.year and other.year) or (self.author and other.author) or not self.traits & _SHORT)

    def agrees_besides_id(self, other: Identity) -> bool:
        """True if two papers with the same DOI or arXiv id may be the same paper, and not parts of it."""
        if self.title and self.title == other.title:
            same_year = self.year == other.year or not (self.year and other.year)
            return same_year or self._same_place_and_kind(other)
        if self.words and other.words:
            fewer = min(self.words.bit_count(), other.words.bit_count())
            if (self.words & other.words).bit_count() < _LIKE * fewer:
                return False
        if _differ(self.author, other.author):
            return False
        return self._agrees_in_print(other)

    def agrees_besides_name(self, other: Identity) -> bool:
        """True if two papers with the same id may be the same paper."""
        of_versions = (self.traits ^ other.traits) & _PREPRINT
        years = abs(self.year - other.year) if self.year and other.year else 0
        differences = [not of_versions and _differ(self.doi, other.doi), not self._same_author(other)]
        differences += [years > (of_versions and MAX_YEARS_APART), not self._same_place_and_kind(other)]
        return not self.traits & _NAMED or sum(differences) <= bool(self.title)

    def _same_author(self, other: Identity) -> bool:
        own, its = self.traits >> _INITIALS, other.traits >> _INITIALS
        return not _differ(self.author, other.author) and (not own or not its or own & its > 0)

    def _agrees_in_print(self, other: Identity, apart: int = 0) -> bool:
        """True if pages, volumes, numbers, kinds and years do not differ where both are known."""
        if not self._same_place_and_kind(other):
            return False
        if not self.year or not other.year or abs(self.year - other.year) <= apart:
            return True
        page, its_page = self._details()[0], other._details()[0]
        versions = bool((self.traits ^ other.traits) & _PREPRINT) or bool(page and page == its_page)
        return versions and abs(self.year - other.year) <= MAX_YEARS_APART

    def _same_place_and_kind(self, other: Identity) -> bool:
        return not any(map(_differ, self._details(), other._details()))

    def _details(self) -> list[int]:
        """Return first page, volume, number; kind of work, month, day, edition; 0 if unknown."""
        both = self.traits << 64 | self.printed
        return [both >> shift & mask for shift, mask in _DETAILS]

    def joined(self, other: Identity) -> Identity:
        """Return the identity of records of the same paper. What the first lacks comes from the second."""
        details = zip(self._details(), other._details(), _DETAILS, strict=True)
        packed = sum((own or two) << shift for own, two, (shift, _) in details)
        traits = self.traits & _SHORT | self.traits & other.traits & _PREPRINT | packed >> 64
        traits |= (self.traits | other.traits) >> _INITIALS << _INITIALS
        either = Identity(*(own or two for own, two in zip(self, other, strict=True)))
        return either._replace(printed=packed & (1 << 64) - 1, traits=traits)


def _differ(own: int, other: int) -> bool:
    return bool(own and other and own != other)


ALL = "all"
"""Name of all records, in a list of those that are kept apart."""


def is_apart(paper: LibraryPaper, separate: Container[str]) -> bool:
    """True if a record is one of those, by id or key, that are not merged with others."""
    return ALL in separate or any(name in separate for name in (paper.id, paper.key, *paper.aliases) if name)


def identity(paper: LibraryPaper, apart: bool = False) -> Identity:
    """Return the identity of a record. apart: return an identity that only an equal record has."""
    own = _identity(paper)
    if not apart:
        return own
    # Users change the rest without changing the work, and an id may have got a number.
    record = without_filled(paper)._replace(id="", aliases=(), collections=(), tags=(), files=())
    return Identity(hash_text(f"{own.id} {record}"), *[0] * (len(own) - 1))


def _identity(paper: LibraryPaper) -> Identity:
    letters = normalise_title(paper.title)
    words = title_key(letters) if letters else 0
    title = 0 if letters in _NO_TITLES else words
    kind_of_id, _, value = paper.id.partition(":")
    preprint = is_preprint(paper)
    type_of_entry = match[1].lower() if (match := _TYPE.match(paper.bibtex)) else ""
    kind = 0 if preprint else _KINDS.get(type_of_entry, 0)
    printed = 0 if preprint else _printed(paper.bibtex, kind)
    is_dated = not (preprint or printed or type_of_entry in _OF_CONFERENCES)
    month, day = _month_and_day(paper.bibtex) if is_dated else (0, 0)
    name = _record_id(paper, words)
    traits = (len(letters) < LONG_TITLE) * _SHORT | preprint * _PREPRINT | kind << _KIND_BITS
    traits |= month << _MONTH_BITS | day << _DAY_BITS | _edition(paper.bibtex) << _EDITION_BITS
    traits |= 0 if name.startswith(_RECORD_IDS) else _NAMED
    for letter in given_initials((*paper.names, *paper.authors, "")[0]):
        traits |= 1 << _INITIALS + ord(letter) % 32
    return Identity(
        hash_text(name),
        hash_text(paper.doi or (value if kind_of_id == "doi" else "")),
        hash_text(paper.arxiv or (value if kind_of_id == "arxiv" else "")),
        title,
        hash_text(paper.surname().casefold().translate(_TYPED)),
        _title_bits(paper.title),
        printed,
        traits,
        max(paper.year, 0),
    )


def _record_id(paper: LibraryPaper, title: int) -> str:
    """Return what only records of the same paper have."""
    if paper.id.startswith(_RECORD_IDS):
        return paper.id
    own_id = "" if paper.id.startswith(("doi:", "arxiv:", "title:")) else paper.id
    return f"{title} {name}" if (name := paper.key or own_id) else ""


def _title_bits(title: str) -> int:
    bits = 0
    for word in _WORD.findall(fold(title).casefold()):
        if word not in _COMMON:
            bits |= 1 << _word_bit(word)
    return bits


@lru_cache(1 << 14)
def _word_bit(word: str) -> int:
    return hash_text(word) & 63


def _printed(bibtex: str, kind: int) -> int:
    """Return the hashed first page, volume and number of an entry, or version of software."""
    parts = dict[int, int]()
    if version := _VERSION.match(bibtex):
        parts[2] = (hash_text(version[1].strip().lower()) & _PART_MASK) or 1
    for match in _PRINTED.finditer(bibtex):
        place = {"volume": 1, "number": 2, "issue": 2}.get(match[1].lower(), 0)
        words = _NUMBERED.findall(_LABEL.sub("", (match[2] or match[3] or "").lower(), count=1))
        if place == 2 and words and words[0][:3] in MONTHS:
            continue  # a number elsewhere
        if place not in parts and words:
            last = next((number for number, word in enumerate(words) if re.search(r"\d", word)), 0)
            # Of reports and standards, all counts: IEEE Std 802.1Q, 98-12.
            words = words if place and (last or kind > 3) else words[: last + 1]
            parts[place] = (hash_text(" ".join(words).lstrip("0")) & _PART_MASK) or 1
    return sum(value << place * _PART for place, value in parts.items())


def _edition(bibtex: str) -> int:
    """Return the number of an edition, 2 for 2nd or Second, below 64; 0 if it is unknown."""
    text = match[1].lower() if (match := _EDITION.search(bibtex)) else ""
    named = [place for place, word in enumerate(_ORDINALS, 1) if word in text]
    return next(((int(number) - 1) % 63 + 1 for number in [*re.findall(r"\d{1,4}", text), *named]), 0)


def _month_and_day(bibtex: str) -> tuple[int, int]:
    """Return when an entry appeared; 0 if unknown."""
    if date := _DATE.search(bibtex):
        return min(int(date[1]), 12), min(int(date[2] or 0), 31)
    month = match[1].lower() if (match := _MONTH.search(bibtex)) else ""
    if month.isdecimal():
        return min(int(month), 12), 0
    return MONTHS.index(month) + 1 if month in MONTHS else 0, 0


def hash_text(text: str) -> int:
    """Return 64 bits for a text; 0 if it is empty."""
    return title_key(text) if text else 0


def similar_titles(first: str, other: str) -> bool:
    """True if at least half of the words of the shorter title are in the other.

    >>> similar_titles("BERT", "BERT: Pre-training of Transformers"), similar_titles("A trees", "B graphs")
    (True, False)
    """
    words, others = ({*_WORD.findall(fold(title).casefold())} for title in (first, other))
    shorter = min(len(words), len(others))
    same_letters = normalise_title(first) == normalise_title(other)
    return same_letters or (shorter > 0 and len(words & others) * 2 >= shorter)


MAX_SAME_KEY = 100
"""Maximum number of different papers per key, such as a title, to compare a record with."""


def first_records(records: Iterable[Identity], distinct: int = 0) -> list[int]:
    """Return, for each record, the place of the first one of the same work.

    distinct: number of the first records that are known to be different works.
    """
    firsts = list[int]()
    by_key: tuple[dict[int, list[int]], ...] = ({}, {}, {}, {})  # by id, DOI, arXiv id and title
    papers: dict[int, Identity] = {}  # merged identity of each first one's records
    for row, own in enumerate(records):
        first = _find_first(own, by_key, papers) if row >= distinct else None
        papers[row if first is None else first] = own if first is None else papers[first].joined(own)
        firsts.append(row if first is None else first)
        for index, key in zip(by_key, own[:4], strict=True):
            if key:
                listed = index.setdefault(key, [])
                if firsts[row] not in listed and len(listed) < MAX_SAME_KEY:
                    listed.append(firsts[row])
    return firsts


def _find_first(
    own: Identity, by_key: tuple[dict[int, list[int]], ...], papers: dict[int, Identity]
) -> int | None:
    checks = own.agrees_besides_name, own.agrees_besides_id, own.agrees_besides_id
    for index, key, agrees in zip(by_key[:3], own[:3], checks, strict=True):
        same = [place for place in index.get(key, ()) if agrees(papers[place])] if key else []
        if same:
            return min(same)
    candidates = by_key[3].get(own.title, ()) if own.title else ()
    return min((place for place in candidates if own.agrees(papers[place])), default=None)
