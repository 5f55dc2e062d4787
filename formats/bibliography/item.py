"""A work in CSL's types and variables: what all formats of bibliographies are read into and written from.

Types and variables: https://docs.citationstyles.org/en/stable/specification.html. Besides them there is
`arxiv`, an arXiv id. Dates are texts as ISO 8601 and EDTF write them (2014-03-04, 2010/2012, 1723~), or as
they were found.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from citerec.formats.bibliography.paper import LibraryPaper, is_placeholder, make_paper, split_names
from citerec.formats.identifiers import arxiv_in_note, date_year, find_arxiv_id
from citerec.formats.names import OTHERS, Name, ambiguous

ROLES = ("author", "editor", "container-author", "translator", "collection-editor", "composer", "director",
         "illustrator", "interviewer", "original-author", "recipient", "reviewed-author", "chair", "compiler",
         "contributor", "curator", "editorial-director", "executive-producer", "guest", "host", "narrator",
         "organizer", "performer", "producer", "script-writer", "series-creator")  # fmt: skip
"""Variables of names. The first that a work has are its authors."""
DATES = ("issued", "accessed", "event-date", "original-date", "submitted", "available-date")
CONTAINED = frozenset(
    ("article-journal", "article-magazine", "article-newspaper", "chapter", "entry", "entry-dictionary",
     "entry-encyclopedia", "paper-conference", "review", "review-book", "periodical")
)  # fmt: skip
"""Types of works that are parts of something with a title."""
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
SEASONS = {"spring": "21", "summer": "22", "autumn": "23", "fall": "23", "winter": "24"}
"""EDTF's numbers, in place of months."""
_IN_SERIES = frozenset(
    ("book", "chapter", "paper-conference", "entry", "entry-dictionary", "entry-encyclopedia")
)
_IN_JOURNALS = CONTAINED - _IN_SERIES
_ISO = re.compile(r"(\d{4})(?:[-/]?(\d\d)[-/]?(\d\d)|[-/](\d\d?)(?:[-/](\d\d?))?)?(?:T.*|/\d\d?:.*)?")


class Item(NamedTuple):
    """A work. fields: texts by variable, with CSL's mark-up. names: by role."""

    type: str
    fields: dict[str, str]
    names: dict[str, Sequence[Name]]

    @classmethod
    def of(cls, type: str, fields: Mapping[str, str], names: Mapping[str, Sequence[Name]]) -> Item:
        """Return an item without empty texts, empty lists of names and placeholders for missing ones."""
        texts = {name: text for name, text in fields.items() if text and not is_placeholder(text)}
        kept = (
            (role, [name for name in listed if not is_placeholder(name.literal or name.full)])
            for role, listed in names.items()
        )
        return cls(type, texts, {role: listed for role, listed in kept if listed})

    @property
    def authors(self) -> Sequence[Name]:
        """Those who are named as responsible for the work: authors, or else editors, ..."""
        listed = ([name for name in self.names.get(role, ()) if name != OTHERS] for role in ROLES)
        return next(filter(None, listed), ())

    @property
    def venue(self) -> str:
        """What the work appeared in, or who published it."""
        places = ("container-title", "event-title", "collection-title", "publisher")
        return next((text for name in places if (text := self.fields.get(name))), "")

    @property
    def arxiv(self) -> str:
        """Its arXiv id, or ""."""
        get = self.fields.get
        if named := find_arxiv_id(get("arxiv", "")):
            return named
        places = [get(name, "") for name in ("number", "archive_location", "URL", "container-title")]
        note, *others = (get(name, "") for name in ("note", "archive", "publisher"))
        if "arxiv" not in " ".join([*places, note, *others]).lower():
            return ""
        return next(filter(None, (*map(find_arxiv_id, places), arxiv_in_note(note))), "")

    def paper(
        self, key: str = "", collections: Iterable[str] = (), tags: Iterable[str] | None = None
    ) -> LibraryPaper:
        """Return the work as a paper of a library, without an entry. tags: None takes the keywords."""
        get, names = self.fields.get, self.authors
        return make_paper(
            key=key,
            title=get("title") or get("title-short") or get("original-title", ""),
            abstract=get("abstract", ""),
            authors=[name.full for name in names],
            names=ambiguous(names),
            year=date_year(get("issued", "")),
            venue=self.venue,
            doi=get("DOI", ""),
            arxiv=self.arxiv,
            url=get("URL", ""),
            collections=collections,
            tags=split_names(get("keyword", "")) if tags is None else tags,
        )


def number_variable(csl: str) -> str:
    """Return the variable of what other formats call number, for works of a type.

    >>> number_variable("article-journal"), number_variable("chapter"), number_variable("report")
    ('issue', 'collection-number', 'number')
    """
    return "issue" if csl in _IN_JOURNALS else "collection-number" if csl in _IN_SERIES else "number"


def season(date: str) -> str:
    """Return the name of a date's season, such as Spring for 2009-21, or ""."""
    return next((name.title() for name, number in SEASONS.items() if date[4:] == f"-{number}"), "")


def iso_date(text: str) -> str:
    """Return a date as in ISO 8601 if it is a year with or without month and day or season, else as it is.

    >>> [iso_date(text) for text in ("2014/03/04/", "1999///", "20180305", "5 March 2014", "2018 Mar-Apr")]
    ['2014-03-04', '1999', '2018-03-05', '2014-03-05', '2018-03']
    >>> iso_date("2003/Spring"), iso_date("Fall 2003"), iso_date("in press"), iso_date("4-9 May 2014")
    ('2003-21', '2003-23', 'in press', '2014-05-04')
    """
    text = re.sub(r"^(\d{4})/+([^\d/.].*?)/*$", r"\2 \1", " ".join(text.split()))
    if (match := _ISO.fullmatch(text.rstrip("/"))) and 1 <= int(match[2] or match[4] or 1) <= 12:
        return "-".join([match[1], *(part.zfill(2) for part in match.groups()[1:] if part)])
    words = re.findall(r"[^\W\d_]+|\d+", text)
    numbers = [word for word in words if word.isdecimal()]
    years = [number for number in numbers if len(number) == 4]
    days = [number for number in numbers if len(number) != 4]
    months = [MONTHS.index(word[:3].lower()) + 1 for word in words if word[:3].lower() in MONTHS]
    if len(years) == 1 and months and len(words) == 1 + len(months) + len(days) <= 5:
        return "-".join([years[0], f"{months[0]:02}", *(day.zfill(2) for day in days[:1])])
    seasons = [SEASONS[word.lower()] for word in words if word.lower() in SEASONS]
    return f"{years[0]}-{seasons[0]}" if len(years) == len(seasons) == 1 and len(words) == 2 else text


def read_csl_date(value: Any) -> str:
    """Return a date of CSL JSON, in any of its shapes, as a text; "" for another value.

    >>> read_csl_date({"date-parts": [["2014", 3], [2015]]}), read_csl_date({"literal": "ca. 1850"})
    ('2014-03/2015', 'ca. 1850')
    """
    if isinstance(value, str | int) and not isinstance(value, bool):
        return iso_date(str(value))
    listed = value if isinstance(value, list) else [value]
    if listed and all(isinstance(date, dict) and "year" in date for date in listed):  # pandoc's YAML
        date_parts = [[date.get(part) for part in ("year", "month", "day")] for date in listed]
        value = listed[0] | {"date-parts": date_parts}
    if not isinstance(value, dict):
        return ""
    parts = value.get("date-parts")
    dates = []
    for date_part in parts if isinstance(parts, list) else []:
        listed = date_part if isinstance(date_part, list) else [date_part]
        numbers = [str(part) for part in listed if part not in (None, "")]
        if numbers and re.fullmatch(r"-?\d+", numbers[0]):
            year, *rest = numbers
            rest = rest[: next((at for at, part in enumerate(rest) if not part.isdecimal()), 2)]
            sign, digits = ("-", year[1:]) if year.startswith("-") else ("", year)
            dates.append("-".join([sign + digits.zfill(4), *(part.zfill(2) for part in rest)]))
    if dates:
        text = "/".join(dates[:2])
        season = str(value.get("season", "")).removeprefix("season-").lstrip("0").lower()
        season = SEASONS.get(season, season)[-1:]
        if season in ("1", "2", "3", "4") and "-" not in text:
            text += f"-2{season}"
        return text + ("~" if value.get("circa") else "")
    return next((str(value[name]) for name in ("raw", "literal", "edtf") if value.get(name)), "")


def csl_date(text: str) -> dict[str, Any]:
    """Return a date as CSL JSON. Both ends of a range get equally many parts; citeproc-js stops at others.

    >>> csl_date("2014-03/2015"), csl_date("forthcoming")
    ({'date-parts': [[2014], [2015]]}, {'literal': 'forthcoming'})
    """
    fields: dict[str, Any] = {}
    if text.endswith(("~", "?")):
        fields["circa"], text = True, text[:-1]
    parts: list[list[int]] = []
    for date in text.split("/") if text.count("/") < 2 else [text]:
        match = re.fullmatch(r"(-?\d{4})(?:-(\d\d))?(?:-(\d\d))?(?:T.*)?", date)
        if not match:
            return {"literal": text} if not parts or date else {"date-parts": parts}
        numbers = [int(part) for part in match.groups() if part]
        if len(numbers) > 1 and 21 <= numbers[1] <= 24:
            fields["season"] = numbers[1] - 20
            numbers = numbers[:1]
        parts.append(numbers)
    shortest = min(map(len, parts))
    return {"date-parts": [numbers[:shortest] for numbers in parts]} | fields
