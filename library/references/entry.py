"""What is wrong in an entry as it stands: identifiers, dates and venues that cannot be, placeholders.

A DOI, an arXiv id or an address often tells the venue and year of its work: 10.1109/CVPR52729.2023.00373,
10.18653/v1/2020.acl-main.1, 10.1609/aaai.v36i2.20016. Each finding has both readings and where they are from.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import date
from functools import cached_property, lru_cache
from typing import NamedTuple
from urllib.parse import unquote

from citerec.formats.bibliography.entries import BibtexText
from citerec.formats.bibliography.paper import PREPRINT_VENUE, LibraryPaper, is_published
from citerec.formats.bibliography.tables import read_table
from citerec.formats.identifiers import arxiv_date, clean_doi, find_arxiv_id
from citerec.formats.letters import fold, normalise_title

OWN = "the entry"
ARXIV = "arXiv"
REPOSITORY = re.compile(
    r"10\.(?:48550|5555|5281|6084|1101|21203|2139|31219|31234|13140|26434|5061|17605|1184|17863|3929|5167|17632"
    r"|57702|20944|36227|60692|57967)/"
)
"""Beginnings of DOIs of preprints, data and repositories, which a paper of any venue may have."""
SHORT_VENUE = 12
"""Characters of a venue's name that may be any abbreviation."""
LIKE_VENUE = 0.6
"""Share of words that a name and one that may be meant have."""
_NOT_THE_VENUE = re.compile(
    r"workshop|companion|findings|adjunct|tutorial|demo|CVPRW|ICCVW|late.breaking|symposi|weblogs"
    r"|social media|anthology",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\W\d_]+")
_STOP = re.compile(r"the|of|on|and|for|in|an?|to|proc(?:eedings)?|annual|conf(?:erence)?|ieee|acm|cvf")
_IEEE = re.compile(r"10\.1109/([a-z]+)\d*\.((?:19|20)\d\d)\.")
_AAAI = re.compile(r"10\.1609/aaai\.v(\d\d)i")
_ACL = re.compile(r"10\.18653/v1/(?:((?:19|20)\d\d)\.([a-z]+)-(?!w)|([pdneqk])(\d\d)-\d)")
_ACL_LETTERS = {"p": "acl", "d": "emnlp", "n": "naacl", "e": "eacl", "q": "tacl", "k": "conll"}
_ACL_PARTS = {"acl": ("long", "short", "main"), "emnlp": ("main",), "naacl": ("long", "short", "main")}
_SPRINGER_JOURNALS = {"s10994": "Machine Learning", "s11263": "IJCV", "s41586": "Nature"}
_SPRINGER = re.compile(r"10\.(?:1007|1038)/(s\d{5})-0(\d\d)-\d")
_DATED = re.compile(r"10\.(?:1016/j|1109/\w+|1111/j|1080/\d{7}[\dX]|3389/\w+)\b.*?\.((?:199|20[0-4])\d)\.")
"""DOIs of publishers who give them, with the year, when a paper is accepted."""
_ACM = re.compile(r"10\.1145/(\d{7})\.\d{7}")
_ACM_YEARS = (
    (1015330, 2004), (1390156, 2008), (1553374, 2009), (1835804, 2010), (2020408, 2011), (2339530, 2012),
    (2487575, 2013), (2623330, 2014), (2783258, 2015), (2939672, 2016), (3097983, 2017), (3219819, 2018),
    (3292500, 2019), (3394486, 2020), (3447548, 2021), (3534678, 2022), (3580305, 2023), (3637528, 2024),
)  # fmt: skip
"""Numbers of KDD's proceedings in their DOIs, which ACM counts up, and years."""
OLD_PAPERS = re.compile(r"130[1-4]\.")
"""Months in which papers of earlier conferences (UAI) were put on arXiv."""
_FIRST = {"TMLR": 2022, "ICLR": 2013, "TACL": 2013}
_EVERY_OTHER = {"ICCV": (1, "odd"), "ECCV": (0, "even")}
_THECVF = re.compile(r"thecvf\.com/content_?/?(cvpr|iccv|wacv)_?((?:19|20)\d\d)", re.I)
_NEURIPS = re.compile(r"(?:neurips|nips)\.cc/(?:paper(?:_files/paper)?)/((?:19|20)\d\d)/")
_ANTHOLOGY = re.compile(r"aclanthology\.org/((?:19|20)\d\d)\.([a-z]+)-(long|short|main)\.")
_JMLR = re.compile(r"jmlr\.org/papers/v(?:olume)?(\d\d?)/")
_PLACEHOLDER = re.compile(
    r"^\W*(?:x{3,}|\?{2,}|todo|tbd|tba|fixme|placeholder|lorem ipsum.*|(?:first|last) ?name.*"
    r"|anonymous authors?|author(?: (?:name|one|a))?|title|paper title|john doe|jane doe|.*\btitle here"
    r"|proceedings of(?: the)? \.\.\.)\W*$",
    re.IGNORECASE,
)
_PLACEHOLDER_ID = re.compile(
    r"x{3,}|\?{2,}|10\.(?:xxxx|1234|12345|9999|99999|0000)/|\b(\d)\1{3}\.\1{4,5}\b", re.I
)
_RUN_TOGETHER = re.compile(
    r"[.,]\s+(?:In|in) (?:Proceedings|Proc\.|Advances in)\b|\barXiv preprint arXiv\b"
    r"|\b\d+\(\d+\):\s?\d+[-–]\d+, (?:19|20)\d\d"
)
_NO_DOI = re.compile(r"https?:|www\.|\d{4,}|^[\d.]*$|^10/\w+$|^\W*(?:none|n/?a|no|null|nan|-+)?\W*$", re.I)
_NUMBER = re.compile(r"(?<![\w-])(?:97[89][- ]?)?\d[\d -]{6,14}[\dxX](?![\w-])")
"""An ISBN or ISSN."""
_LATEX = str.maketrans("", "", "{}\\")


class Finding(NamedTuple):
    """A contradiction. field: of the entry; entry, source: both readings; where: whose the other is."""

    field: str
    entry: str
    source: str
    where: str

    @property
    def text(self) -> str:
        if not self.entry or not self.source:
            return f"{self.field} {self.entry or self.source} ({self.where})"
        return f"{self.field} {self.entry}, but {self.source} ({self.where})"


class Facts(NamedTuple):
    """What an identifier or address tells of its work. series: of venues; exact: the work has this year, else
    at least the year before it."""

    series: str
    year: int
    exact: bool
    where: str


class Reference:
    """An entry with its fields as they are written. kind: type of the entry; "" if there is none."""

    def __init__(self, paper: LibraryPaper) -> None:
        self.paper, self.kind = paper, ""
        self.fields: Mapping[str, str] = {}
        text = BibtexText(paper.bibtex)
        for entry in text.entries[:1]:
            self.kind, contents = entry.kind, text.read(entry)
            self.fields = contents.fields if contents else {}

    @property
    def is_article(self) -> bool:
        return self.kind in ("", "article", "inproceedings", "conference", "misc", "unpublished", "online")

    @property
    def abridged(self) -> bool:
        """True if the list of authors ends with "and others"."""
        return bool(re.search(r"\bet\.? al\b|\bothers\b|\.\.\.", self.fields.get("author", ""), re.I))

    @cached_property
    def series(self) -> str:
        return find_series(self.paper.venue)

    @cached_property
    def addresses(self) -> str:
        names = ("url", "howpublished", "note", "link", "ee")
        return " ".join(self.fields.get(name, "") for name in names) or self.paper.url

    @cached_property
    def facts(self) -> list[Facts]:
        return [*_facts(self.paper, self.addresses)]


@lru_cache
def _series() -> list[tuple[str, list[str], frozenset[str]]]:
    return [
        (row["series"], row["names"].split("; "), frozenset(filter(None, row["prefixes"].split("; "))))
        for row in read_table("series")
    ]


@lru_cache
def _journals() -> frozenset[str]:
    return frozenset(row["series"] for row in read_table("series") if row["kind"] == "journal")


@lru_cache
def _prefixes() -> dict[str, frozenset[str]]:
    return {series: prefixes for series, _, prefixes in _series()}


@lru_cache(1 << 14)
def find_series(venue: str) -> str:
    """Return the series of a venue's name; "" if it is none or several of those known, or a workshop.

    >>> find_series("2021 IEEE/CVF Conf. on Computer Vision and Pattern Recognition (CVPR)"), find_series("")
    ('CVPR', '')
    >>> find_series("ICML Workshop on Graphs"), find_series("Nature"), find_series("Nature Methods")
    ('', 'Nature', '')
    """
    if not venue or _NOT_THE_VENUE.search(venue):
        return ""
    words, letters = set(_WORD.findall(venue)), normalise_title(venue)
    alone = " ".join(word for word in _WORD.findall(fold(venue).lower()))
    series = set()
    for name, names, _ in _series():
        for written in names:
            if written.startswith("="):
                fits = alone == written[1:].lower()
            elif " " in written:
                fits = normalise_title(written) in letters
            else:
                fits = written in words or written.upper() in words or alone == written.lower()
            if fits:
                series.add(name)
    if len(series) > 1:
        series.discard(ARXIV)  # beside the venue
    return series.pop() if len(series) == 1 else ""


def is_conference(venue: str) -> bool:
    return (find_series(venue) or ARXIV) not in {ARXIV, *_journals()}


def is_workshop(venue: str) -> bool:
    """True if a venue is a workshop, or another part of a conference that is not its proceedings."""
    return bool(_NOT_THE_VENUE.search(venue))


def are_versions(first: str, second: str) -> bool:
    """True if one venue is a journal and the other a conference, as those of two versions of a work are."""
    series, other = find_series(first), find_series(second)
    return bool(series and other) and (series in _journals()) != (other in _journals())


def same_venue(first: str, second: str) -> bool | None:
    """True if two names are of one venue, False if of two; None if that cannot be told.

    A conference and a journal may both have a work, in two versions.

    >>> same_venue("Proc. ICML", "ICLR 2020"), same_venue("J. Vis.", "Journal of Vision"), same_venue("", "X")
    (False, True, None)
    """
    series, other = find_series(first), find_series(second)
    if ARXIV in (series, other) or PREPRINT_VENUE.search(first) or PREPRINT_VENUE.search(second):
        return None
    if series and other:
        return series == other or (None if are_versions(first, second) else False)
    if series or other:
        return (
            None if is_workshop(first) or is_workshop(second) else _mentions(first, second, series or other)
        )
    return _abbreviates(first, second) >= 1 or None


def _mentions(first: str, second: str, series: str) -> bool | None:
    venue = second if find_series(first) else first
    return any(_abbreviates(venue, name) >= 1 for name in _names(series)) or None


def _names(series: str) -> list[str]:
    """Return the long names of a series."""
    return next([name for name in names if " " in name] for other, names, _ in _series() if other == series)


def _telling_words(venue: str) -> list[str]:
    return [word for word in _WORD.findall(fold(venue).lower()) if not _STOP.fullmatch(word)]


def _abbreviates(first: str, second: str) -> float:
    """Return the share of the words of both names that begin a word of the other; 1 for initials."""
    one, two = map(_telling_words, (first, second))
    if not one or not two:
        return 0
    if "".join(one) == "".join(word[0] for word in two) or "".join(two) == "".join(word[0] for word in one):
        return 1
    pairs = ((a, two) for a in one), ((b, one) for b in two)
    shared = sum(
        any(a.startswith(b) or b.startswith(a) or a[:4] == b[:4] for b in others)
        for side in pairs
        for a, others in side
    )
    return shared / (len(one) + len(two))


def _facts(paper: LibraryPaper, addresses: str) -> Iterator[Facts]:
    doi, where = paper.doi, f"doi:{paper.doi}"
    known = _prefixes()
    if match := _IEEE.match(doi):
        series = match[1].upper()
        yield Facts(
            series if series in known else "", int(match[2]), series in known and series != "TPAMI", where
        )
    elif match := _AAAI.match(doi):
        yield Facts("AAAI", 1986 + int(match[1]), True, where)
    elif match := _ACL.match(doi):
        letter = _ACL_LETTERS.get(match[3] or "", match[2] or "")
        year = int(match[1] or (f"20{match[4]}" if int(match[4]) < 60 else f"19{match[4]}"))
        part = doi.split("-", 1)[1].split(".")[0] if match[1] else ""
        is_main = not match[1] or part in _ACL_PARTS.get(letter, ())
        series = next((name for name in known if name.lower() == letter), "") if is_main else ""
        yield Facts("" if letter == "emnlp" and not match[1] else series, year, True, where)
    elif match := _SPRINGER.match(doi):
        yield Facts(_SPRINGER_JOURNALS.get(match[1], ""), 2000 + int(match[2]), False, where)
    elif (match := _DATED.match(doi)) and paper.year >= 1995:  # earlier papers were printed again
        yield Facts("", int(match[1]), False, where)
    if match := _THECVF.search(addresses):
        yield Facts(match[1].upper(), int(match[2]), True, match[0])
    if match := _NEURIPS.search(addresses):
        yield Facts("NeurIPS", int(match[1]), True, match[0])
    if match := _ANTHOLOGY.search(addresses):
        series = next((name for name in known if name.lower() == match[2]), "")
        yield Facts(series if match[3] in _ACL_PARTS.get(match[2], ()) else "", int(match[1]), True, match[0])
    if (match := _JMLR.search(addresses)) and int(match[1]) > 1:
        yield Facts("JMLR", 1999 + int(match[1]), True, match[0])


def check_entry(reference: Reference, today: date) -> list[Finding]:
    """Return what in an entry cannot be, or contradicts itself."""
    return [
        *_identifiers(reference, today),
        *_dates(reference, today),
        *_venues(reference),
        *_texts(reference),
    ]


def _identifiers(reference: Reference, today: date) -> Iterator[Finding]:
    paper, get = reference.paper, reference.fields.get
    written = get("doi", paper.doi).strip()
    if re.match(r"10\.9\d{4}/", paper.doi):
        yield Finding("doi", paper.doi, "", "no registrant has this prefix")
    elif match := _PLACEHOLDER_ID.search(f"{written} {get('eprint', '')} {reference.addresses}"):
        yield Finding("doi" if match[0] in written else "url", match[0], "", "a placeholder")
    elif not (paper.doi or "10." in written or find_arxiv_id(written) or _NO_DOI.search(written)):
        yield Finding("doi", written, "", "not a DOI, which begins with 10.")
    address = unquote(reference.addresses.translate(_LATEX))
    linked = clean_doi(address.split("doi.org/", 1)[-1]) if "doi.org/" in address else ""
    if linked and written and are_apart(paper.doi, linked):
        yield Finding("doi", paper.doi, linked, "its own address")
    ids = {
        id: name
        for name in ("eprint", "arxiv", "journal", "doi")
        if (id := find_arxiv_id(_named(name, get(name, ""))))
    }
    if "arxiv.org" in reference.addresses and (id := find_arxiv_id(reference.addresses)):
        ids.setdefault(id, "its own address")
    if len(ids) == 2:
        (id, name), (other, second) = ids.items()
        yield Finding(name, id, other, second)
    for id in ids:
        year, month = arxiv_date(id)
        if year and (year, month) > (today.year, today.month):
            yield Finding("arxiv", id, f"{today:%Y-%m}", "an arXiv id of the future")
        elif re.fullmatch(r"\d{4}\.\d+", id) and (not year or (len(id) == 10) != (id[:4] >= "1501")):
            yield Finding("arxiv", id, "", "not an arXiv id")
    for name, lengths in (("isbn", (10, 13)), ("issn", (8,))):
        for number in _NUMBER.findall(get(name, "")):
            if len(re.sub(r"[ -]", "", number)) in lengths and not _checks(number):
                yield Finding(name, number, "", "its check digit is wrong")


def _named(name: str, value: str) -> str:
    return value if name in ("eprint", "arxiv") or "arxiv" in value.lower() else ""


def are_apart(doi: str, other: str) -> bool:
    """True if two DOIs are of two works: none of a repository, and none a part of the other."""
    one, two = map(normalise_title, (doi, other))
    is_part = one.startswith(two) or two.startswith(one)
    return not (is_part or REPOSITORY.match(doi) or REPOSITORY.match(other))


def _checks(number: str) -> bool:
    """True if the check digit of an ISBN or ISSN is right.

    >>> [_checks(number) for number in ("0-306-40615-2", "978-0-306-40615-7", "2049-3630", "2049-3631")]
    [True, True, True, False]
    """
    digits = [10 if digit in "xX" else int(digit) for digit in re.sub(r"[ -]", "", number)]
    if len(digits) == 13:
        return sum(digit * (1, 3)[place % 2] for place, digit in enumerate(digits)) % 10 == 0
    return sum(digit * (len(digits) - place) for place, digit in enumerate(digits)) % 11 == 0


def _dates(reference: Reference, today: date) -> Iterator[Finding]:
    paper = reference.paper
    if paper.year > today.year + 1:
        yield Finding("year", str(paper.year), str(today.year), "today")
        return
    if not paper.year:
        return
    for facts in reference.facts:
        before, after = facts.year - paper.year, paper.year - facts.year
        if before > 1 or (facts.exact and after > 1):
            yield Finding("year", str(paper.year), str(facts.year), facts.where)
            return
    # Old papers are put on arXiv, too, but do not get a DOI of arXiv's for their own.
    posted = arxiv_date(paper.arxiv)[0]
    published = is_published(paper) or reference.series not in ("", ARXIV)
    own = paper.doi.startswith("10.48550/") or not published
    posted -= arxiv_date(paper.arxiv)[1] == 1  # the last of December get ids of January
    if own and posted - paper.year > published and not OLD_PAPERS.match(paper.arxiv):
        yield Finding("year", str(paper.year), str(arxiv_date(paper.arxiv)[0]), f"arXiv:{paper.arxiv}")
    if (match := _ACM.match(paper.doi)) and reference.kind == "inproceedings":
        latest = next((year for number, year in _ACM_YEARS if number >= int(match[1])), today.year)
        if paper.year - latest > 1:
            yield Finding("year", str(paper.year), f"{latest} or before", f"doi:{paper.doi}")
    series = reference.series
    if paper.year < _FIRST.get(series, 0):
        yield Finding("year", str(paper.year), str(_FIRST[series]), f"the first year of {series}")
    if series in _EVERY_OTHER and paper.year >= 1990 and paper.year % 2 != _EVERY_OTHER[series][0]:
        yield Finding("year", str(paper.year), "", f"{series} is held in {_EVERY_OTHER[series][1]} years")


def _venues(reference: Reference) -> Iterator[Finding]:
    paper, series = reference.paper, reference.series
    if not paper.venue or (PREPRINT_VENUE.search(paper.venue) and series in ("", ARXIV)):
        return
    for facts in reference.facts:
        if facts.series and facts.series != series and not _may_be(paper.venue, series, facts.series):
            yield Finding("venue", paper.venue, facts.series, facts.where)
            return
    prefix = paper.doi.split("/")[0]
    if series not in ("", ARXIV) and prefix and not REPOSITORY.match(paper.doi) and reference.is_article:
        prefixes = _prefixes()[series]
        if prefix not in prefixes:
            expected = (
                f"DOIs of {series} begin with {' or '.join(sorted(prefixes))}"
                if prefixes
                else f"{series} gives no DOIs"
            )
            yield Finding("doi", paper.doi, series, expected)


def _may_be(venue: str, series: str, other: str) -> bool:
    """True if a venue's name may mean a series that its identifier names."""
    if series or other.lower() in venue.lower():
        return not series
    return (
        len(venue) < SHORT_VENUE
        or not _telling_words(venue)
        or any(_abbreviates(venue, name) >= LIKE_VENUE for name in _names(other))
    )


def _texts(reference: Reference) -> Iterator[Finding]:
    paper, get = reference.paper, reference.fields.get
    for name, text in (("title", paper.title), ("venue", paper.venue)):
        if (
            text
            and _PLACEHOLDER.match(text)
            and not (name == "title" and text.endswith("...") and len(text) > 20)
        ):
            yield Finding(name, text, "", "a placeholder")
    if (authors := " ".join(paper.authors)) and _PLACEHOLDER.match(authors):
        yield Finding("author", authors, "", "a placeholder")
    if (year := get("year", "").strip()) and re.fullmatch(r"[xX?]{2,4}|(?:19|20)[xX?]{2}|0000", year):
        yield Finding("year", year, "", "a placeholder")
    if (match := _RUN_TOGETHER.search(paper.title)) and len(paper.title) > 60:
        yield Finding("title", paper.title, match[0].strip(" .,"), "two references run together")
