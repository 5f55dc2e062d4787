"""What is wrong in an entry as it stands: impossible identifiers, dates and venues, placeholders.

A DOI, an arXiv id or an address often tells the venue and year of its work: 10.1109/CVPR52729.2023.00373,
10.18653/v1/2020.acl-main.1, 10.1609/aaai.v36i2.20016. Each finding has both readings and where they are from.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from functools import cached_property, lru_cache
from operator import mul
from typing import NamedTuple

from citerec.formats.bibliography.entries import BibtexText
from citerec.formats.bibliography.paper import PREPRINT_DOI, PREPRINT_VENUE, LibraryPaper, is_published
from citerec.formats.bibliography.tables import read_table
from citerec.formats.identifiers import arxiv_date, find_arxiv_id
from citerec.formats.letters import fold, normalise_title

_REPOSITORY = re.compile(
    PREPRINT_DOI.pattern
    + r"|10\.(?:5555|5281|6084|13140|5061|17605|1184|17863|3929|5167|17632|57702|60692|57967|2307)/"
)
"""Beginnings of DOIs of preprints, data, repositories and JSTOR, which a paper of any venue may have."""
_ACM = re.compile(r"10\.1145/(\d{7})\.\d{7}")
_KDD = (1390156, 1835804, 2339530, 2623330, 2939672, 3219819, 3394486, 3534678, 3637528)
"""Numbers in ACM's DOIs, which count up: of KDD 2008, 2010, 2012 ..."""
MUCH_LATER, SHORT_VENUE = 6, 12
"""Old papers are put on arXiv this many years later; shorter names of venues may be any abbreviation."""
_PLACEHOLDER = re.compile(
    r"(?i)\W*(?:x{3,}|(?:19|20)?[x?]{2,4}|0000|todo|tb[da]|fixme|placeholder|(?:paper )?title|.*\btitle here"
    r"|(?:(?:first|last) ?name\W*)+|(?:anonymous )?authors?(?: (?:name|one|a))?|j(?:ohn|ane) doe)\W*"
)
PLACEHOLDER_ID = re.compile(  # 1122445.1122456: ACM's template
    r"(?i)(?<![a-z])x{3,}(?![a-z])|(?<!\w)\?{2,}|10\.(?:12345?|9999|0000|9\d{4})/|\b(\d)\1{3}\.\1{4,5}\b"
    r"|1122445\.1122456|n{5,}\.n{5,}|10\.475/123"
)
_RUN_TOGETHER = re.compile(
    r"[.,]\s+[Ii]n (?:Proceedings|Proc\.|Advances in)\b|arXiv preprint arXiv|\d\(\d+\):\s?\d+[-–]\d+, \d{4}"
)
_NO_DOI = re.compile(
    r"(?i)https?:|www\.|\d{4}|^[\d.]*$|^(?:doi:\s*)?10/|^\W*(?:none|n/?a|no|no.?doi|null|nan)?\W*$"
)
_NUMBER = re.compile(r"(?<![\w/-])(?:97[89][- ]?)?\d[\d -]{6,14}[\dxX](?![\w-])")
"""An ISBN or ISSN."""
_NOT_THE_VENUE = re.compile(  # workshops, other parts of a conference, and what is only named like it
    r"(?i)workshop|companion|findings|adjunct|tutorial|demo|CVPRW|ICCVW|late.breaking|symposi|weblogs"
    r"|social media|anthology|machine learning (?:and|for)|ethics|forum"
)
_LETTERS = re.compile(r"[^\W\d_]+")
_STOP = re.compile(r"the|of|on|and|for|in|an?|to|proc(?:eedings)?|annual|conf(?:erence)?|ieee|acm|cvf")


class Series(NamedTuple):
    """name: "" if it is none of those known. kind: conference or journal. prefixes: of its DOIs."""

    name: str = ""
    kind: str = ""
    names: Sequence[str] = ()
    prefixes: Sequence[str] = ()

    @property
    def whole_names(self) -> list[str]:
        return [name for name in self.names if " " in name]


@lru_cache
def all_series() -> dict[str, Series]:
    """Return the series by their names in lower case, and by their codes in identifiers."""
    series: dict[str, Series] = {}
    for row in read_table("series"):
        names, prefixes = tuple(row["names"].split("; ")), tuple(row["prefixes"].split())
        told = Series(row["series"], row["kind"], names, prefixes)
        series |= dict.fromkeys((row["series"].lower(), *row["codes"].split()), told)
    return series


@lru_cache(1 << 14)
def find_series(venue: str) -> Series:
    """Return the series of a venue's name; without a name if it is none or several, or a workshop.

    >>> find_series("2021 IEEE/CVF Conf. on Computer Vision and Pattern Recognition (CVPR)").name
    'CVPR'
    >>> [find_series(name).name for name in ("ICML Workshop on Graphs", "Nature", "Nature Methods")]
    ['', 'Nature', '']
    """
    words, letters = {*_LETTERS.findall(venue)}, normalise_title(venue)
    alone = re.sub(r"\d", "", letters)

    def fits(name: str) -> bool:
        whole = normalise_title(name)
        if name.startswith("=") or whole == alone:
            return whole == alone
        return whole in letters if " " in name else not words.isdisjoint((name, name.upper()))

    fitting = [series for series in dict.fromkeys(all_series().values()) if any(map(fits, series.names))]
    return fitting[0] if len(fitting) == 1 and not _NOT_THE_VENUE.search(venue) else Series()


def same_venue(first: str, second: str) -> bool | None:
    """True if two names are of one venue, False if of two; None if that cannot be told.

    A conference and a journal may both have a work, in two versions.

    >>> same_venue("Proc. ICML", "ICLR 2020"), same_venue("J. Vis.", "Journal of Vision"), same_venue("", "X")
    (False, True, None)
    """
    one, two = find_series(first), find_series(second)
    if PREPRINT_VENUE.search(first) or PREPRINT_VENUE.search(second):
        return None
    if one.name and two.name:
        return one == two or (None if one.kind != two.kind else False)
    names, others = one.whole_names or [first], two.whole_names or [second]
    return any(_likeness(name, other) == 1 for name in names for other in others) or None


def may_be(venue: str, series: Series) -> bool:
    """True if a venue's name may mean a series that its identifier names."""
    if own := find_series(venue).name:
        return own == series.name
    is_vague = len(venue) < SHORT_VENUE or not _telling_words(venue)
    return is_vague or any(_likeness(venue, name) for name in (series.name, *series.whole_names))


def _telling_words(venue: str) -> list[str]:
    return [word for word in _LETTERS.findall(fold(venue).lower()) if not _STOP.fullmatch(word)]


def _likeness(first: str, second: str) -> float:
    """Return the share of the words of both names that begin a word of the other; 1 for initials."""
    one, two = map(_telling_words, (first, second))
    if not one or not two:
        return 0
    for words, others in ((one, two), (two, one)):
        if "".join(words) == "".join(word[0] for word in others):
            return 1
    pairs = [(word[:4], two) for word in one] + [(word[:4], one) for word in two]
    alike = (any(a.startswith(b[:4]) or b.startswith(a) for b in others) for a, others in pairs)
    return sum(alike) / len(pairs)


class Finding(NamedTuple):
    """A contradiction. field: of the entry; entry, source: both readings; where: whose the other is."""

    field: str
    entry: str
    source: str
    where: str

    @property
    def text(self) -> str:
        readings = ", but ".join(filter(None, (self.entry, self.source)))
        return f"{self.field} {readings} ({self.where})"


class Facts(NamedTuple):
    """What an identifier or address tells of its work. first, last: years in which it may have appeared."""

    where: str
    series: Series = Series()
    first: int = 0
    last: int = 9999


class Reference:
    """An entry with its fields as they are written. kind: type of the entry; "" if there is none."""

    def __init__(self, paper: LibraryPaper) -> None:
        text = BibtexText(paper.bibtex)
        entry = next(iter(text.entries), None)
        contents = text.read(entry) if entry else None
        self.paper, self.kind = paper, entry.kind if entry else ""
        self.fields: Mapping[str, str] = contents.fields if contents else {}
        names = ("url", "howpublished", "note", "link", "ee")
        self.addresses = " ".join(self.fields.get(name, "") for name in names) or paper.url
        self.series = find_series(paper.venue)

    @property
    def is_article(self) -> bool:
        return self.kind in ("", "article", "inproceedings", "conference", "misc", "unpublished", "online")

    @cached_property
    def facts(self) -> list[Facts]:
        """What its DOI and addresses tell of series and year (addresses.csv): for a conference or a yearly
        publication, the year; else the earliest, since others give DOIs when a paper is accepted."""
        text, facts = f"doi:{self.paper.doi} {self.addresses}".lower(), list[Facts]()
        for row in read_table("addresses"):
            if match := re.search(row["pattern"], text):
                series = all_series().get(match.groupdict().get("series") or "", Series())
                year, where = int(row["first_year"]) + int(match["year"]), match[0]
                last = year if series.kind == "conference" or row["yearly"] else 9999
                if series.name or self.paper.year >= 1995:  # earlier papers were printed again
                    where = f"doi:{self.paper.doi}" if where.startswith("doi:") else where
                    facts.append(Facts(where, series, year, last))
        return facts


def check_entry(reference: Reference, today: date) -> list[Finding]:
    """Return what is impossible in an entry, or contradicts itself."""
    return [
        *_identifiers(reference, today),
        *_dates(reference, today),
        *_venues(reference),
        *_texts(reference),
    ]


def are_apart(doi: str, other: str) -> bool:
    """True if two DOIs or arXiv ids are of two works: neither is of a repository, or a part of the other."""
    is_part = doi.startswith(other) or other.startswith(doi)
    return not (is_part or _REPOSITORY.match(doi) or _REPOSITORY.match(other))


def _identifiers(reference: Reference, today: date) -> Iterator[Finding]:
    paper, get = reference.paper, reference.fields.get
    written = get("doi", paper.doi).strip()
    if PLACEHOLDER_ID.search(written):
        yield Finding("doi", written, "", "a placeholder: nobody registers such DOIs")
    elif not (paper.doi or "10." in written or find_arxiv_id(written) or _NO_DOI.search(written)):
        yield Finding("doi", written, "", "not a DOI, which begins with 10.")
    if (date := arxiv_date(id := paper.arxiv)) > (today.year, today.month):
        yield Finding("arxiv", id, f"{today:%Y-%m}", "an arXiv id of the future")
    elif re.fullmatch(r"\d{4}\.\d+", id) and (date == (0, 0) or (len(id) == 10) != (id[:4] >= "1501")):
        yield Finding("arxiv", id, "", "not an arXiv id")
    for name, lengths in (("isbn", (10, 13)), ("issn", (8,))):
        for number in _NUMBER.findall(get(name, "")):
            if len(re.sub(r"[ -]", "", number)) in lengths and not _checks(number):
                yield Finding(name, number, "", "its check digit is wrong")


def _checks(number: str) -> bool:
    """True if the check digit of an ISBN or ISSN is right."""
    digits = [10 if digit in "xX" else int(digit) for digit in re.sub("[ -]", "", number)]
    weights, modulus = ((1, 3) * 7, 10) if len(digits) == 13 else (range(len(digits), 0, -1), 11)
    return sum(map(mul, digits, weights)) % modulus == 0


def _dates(reference: Reference, today: date) -> Iterator[Finding]:
    paper, series, facts = reference.paper, reference.series, [Facts("today", last=today.year)]
    posted, month = arxiv_date(paper.arxiv)
    if posted != paper.year:  # else the year is that of the preprint
        facts += reference.facts
    own = paper.doi.startswith("10.48550/") or not (is_published(paper) or series.name)
    if own and reference.is_article and posted - paper.year < MUCH_LATER:
        # Papers of the last days of December get ids of January.
        facts.append(Facts(f"arXiv:{paper.arxiv}", first=posted - (month == 1)))
    if (match := _ACM.match(paper.doi)) and reference.kind == "inproceedings":
        facts.append(Facts(f"doi:{paper.doi}", last=2008 + 2 * bisect_left(_KDD, int(match[1]))))
    for where, _, first, last in facts if paper.year else ():
        if not first - 1 <= paper.year <= last + 1:
            yield Finding("year", str(paper.year), str(first or last), where)
    odd = {"ICCV": 1, "ECCV": 0}.get(series.name, paper.year % 2)
    if paper.year > 1990 and paper.year % 2 != odd:
        held = f"{series.name} is held in {'odd' if odd else 'even'} years"
        yield Finding("year", str(paper.year), "", held)


def _venues(reference: Reference) -> Iterator[Finding]:
    paper, series = reference.paper, reference.series
    for facts in reference.facts if series.name or not PREPRINT_VENUE.search(paper.venue) else ():
        if paper.venue and facts.series.name and not may_be(paper.venue, facts.series):
            yield Finding("venue", paper.venue, facts.series.name, facts.where)
            return
    is_strange = paper.doi and paper.doi.split("/")[0] not in series.prefixes
    if series.name and is_strange and reference.is_article and not _REPOSITORY.match(paper.doi):
        begin = f"DOIs of {series.name} begin with {' or '.join(series.prefixes)}"
        expected = begin if series.prefixes else f"{series.name} gives no DOIs"
        yield Finding("doi", paper.doi, series.name, expected)


def _texts(reference: Reference) -> Iterator[Finding]:
    paper = reference.paper
    texts = {"title": paper.title, "venue": paper.venue, "author": " ".join(paper.authors)}
    for name, text in (texts | {"year": reference.fields.get("year", "")}).items():
        if _PLACEHOLDER.fullmatch(text):
            yield Finding(name, text, "", "a placeholder")
    if (match := _RUN_TOGETHER.search(paper.title)) and len(paper.title) > 60:
        yield Finding("title", paper.title, match[0].strip(" .,"), "two references run together")
