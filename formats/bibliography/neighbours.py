"""A new entry of a .bib file, written and placed like the entries that are there."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import TypeVar

from citerec.formats.bibliography.bibtex import GENRES, date_fields, is_delimited, typeset
from citerec.formats.bibliography.entries import BibtexText, Entry
from citerec.formats.bibliography.item import MONTHS
from citerec.formats.bibliography.latex import escape_latex
from citerec.formats.bibliography.paper import LibraryPaper
from citerec.formats.bibliography.references import bibtex
from citerec.formats.drafts.language import Language

T = TypeVar("T")

READ = 50
"""Number of entries, the last ones, whose form is read."""
SORTED = 5
"""Minimum number of entries for which an order by keys counts."""
_PRIVATE = re.compile(
    r"abstract|added-at|annot(?:e|ation)|attachments?|bdsk-.*|checked|citeulike-.*|comments?(?:-.*)?|creationdate"
    r"|date-(?:added|modified)|files?(?:[_-].*)?|groups?|int(?:er|ra)(?:hash)?|keywords?|local-?(?:file|url)"
    r"|marked(?:entry)?|mendeley-.*|modificationdate|notes|note[_-]?private|opt(?!ions).*|owne[dr]|pdf|posted-at"
    r"|printed|priority|qualityassured|rating|ranking|read(?:status)?|relevance|remarks?|review|shorthand_key"
    r"|timestamp|username|__.*",
    re.IGNORECASE,
)
"""Fields of reference managers, left out but for abstracts if asked and keywords if neighbours have them."""
_OWN_FILE = re.compile(r"[{\"]*(?:file|papers\d?|zotero|x-bdsk):", re.IGNORECASE)
"""The beginning of an address that opens on the owner's machine only."""
_KIND = re.compile(r"@\s*(\w+)")
_FIELD = re.compile(r"^([ \t]*)([A-Za-z][\w-]*)([ \t]*)=([ \t]*)([{\"]?)", re.MULTILINE)
_YEAR = re.compile(r"\byear\s*=\s*([\"{]?)", re.IGNORECASE)
_EQUALS = re.compile(r"(?<=\w) ?= ?(?=[{\"\w])")
_CASES: tuple[Callable[[str], str], ...] = (str.lower, str.upper, str.title)


@dataclass
class EntryForm:
    """How entries are written.

    indent: before a field; None if an entry is one line. equals: between name and value. column: where the
    signs = are aligned. quotes: values are in quotes. braces: numbers are in quotes or braces, too. last:
    after the last field. kind, name: set the case of types and fields. order: places of fields, from 0 to 1.
    """

    indent: str | None = "  "
    equals: str = " = "
    column: int = 0
    quotes: bool = False
    braces: bool | None = None
    last: str = ","
    kind: Callable[[str], str] = str.lower
    name: Callable[[str], str] = str.lower
    order: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, entries: Sequence[str]) -> EntryForm:
        """Read the form that most of the entries have."""
        form = cls()
        lines = [[*_FIELD.finditer(entry)] for entry in entries]
        fields = [*chain.from_iterable(lines)]
        if years := [bool(sign) for entry in entries for sign in _YEAR.findall(entry)]:
            form.braces = _most(years)
        if not fields:
            if len(entries) > 1 and not any("\n" in entry for entry in entries):
                form.indent = None
                form.equals = _most(match[0] for entry in entries for match in _EQUALS.finditer(entry))
            return form
        form.name = _most(_case(match[2]) for match in fields)
        form.kind = _most(_case(kind[1]) for entry in entries if (kind := _KIND.match(entry)))
        form.last = _most("," if entry.rstrip("} \t\r\n").endswith(",") else "" for entry in entries)
        form.quotes = _most([match[5] for match in fields if match[5]] or ["{"]) == '"'
        form.indent = _most(match[1] for own in lines for match in own[1:] or own)
        if not _most(entry.count("\n") > 1 for entry in entries):
            form.indent = None
        widths = {len(match[2]) + len(match[3]) for match in fields}
        before = " " * min(_most(len(match[3]) for match in fields), 1)
        if len(widths) == 1 < len({len(match[2]) for match in fields}) and form.indent is not None:
            form.column, before = widths.pop(), ""
        form.equals = f"{before}={_most(match[4] for match in fields)}"
        places: dict[str, list[float]] = {}
        for own in lines:
            for number, match in enumerate(own):
                places.setdefault(match[2].lower(), []).append(number / len(own))
        form.order = {name: sum(each) / len(each) for name, each in places.items()}
        return form

    def write(self, kind: str, key: str, fields: Sequence[tuple[str, str]]) -> str:
        """Return an entry. fields: names and values, with their braces."""
        ordered = sorted(fields, key=lambda pair: self.order.get(pair[0].lower(), 1))
        written = [
            f"{self.name(name).ljust(self.column)}{self.equals}{self._value(value)}"
            for name, value in ordered
        ]
        if self.indent is None:
            return f"@{self.kind(kind)}{{{', '.join([key, *written])}}}"
        lines = [f"{self.indent}{line}," for line in written]
        if lines:
            lines[-1] = lines[-1].removesuffix(",") + self.last
        return "\n".join([f"@{self.kind(kind)}{{{key},", *lines, "}"])

    def _value(self, value: str) -> str:
        if (digits := value.strip("{}")).isdigit() and self.braces is not None:
            value = f"{{{digits}}}" if self.braces else digits
        if is_delimited(value, '"') or (self.quotes and is_delimited(value, "{")):
            content = value[1:-1]
            # In quotes, Emacs ends a value at others, and pandoc 2 begins a comment at %.
            return f'"{content}"' if self.quotes and not {'"', "%"} & {*content} else f"{{{content}}}"
        return value


def new_entry(
    text: str,
    paper: LibraryPaper,
    key: str,
    abstract: bool = False,
    language: Language | None = None,
    beside: str = "",
) -> tuple[int, str]:
    """Return where an entry of a paper goes in a .bib file, and what is inserted there.

    text: of the file. The entry goes between its neighbours if entries are sorted by key, else to the end.
    abstract: write it, too. language: of the documents that cite it. beside: key of another new entry, which
    the text lacks; this one goes to the same place, between entries whether or not that one is there by now.
    """
    bibliography = BibtexText(text)
    entries = [entry for entry in bibliography.entries if entry.key]
    form = EntryForm.of([bibliography.source(entry).rstrip() for entry in entries[-READ:]])
    written = bibtex([paper._replace(key=key)]).strip()
    for parsed in BibtexText(written).entries[:1]:
        values = [(name, " ".join(written[start:end].split())) for name, start, end in parsed.fields or ()]
        kept = {"keywords"} & form.order.keys()
        kind, fields = parsed.kind, [pair for pair in values if _is_public(*pair, kept)]
        if abstract and paper.abstract:
            own = dict(values).get("abstract", f"{{{escape_latex(paper.abstract)}}}")
            fields.append(("abstract", own))
        kind, fields = _typesettable(kind, fields, text, form.order, language)
        written = form.write(kind, key, fields)
    place, before, after = _place(text, entries, beside or key)
    return place, f"{before}{written}{after}".replace("\n", "\r\n" if "\r\n" in text else "\n")


def _place(text: str, entries: Sequence[Entry], key: str) -> tuple[int, str, str]:
    """Return where the entry of a key goes, and the line ends around it."""
    ends = [len(text[: entry.end].rstrip()) for entry in entries]
    keys = [entry.key.lower() for entry in entries]
    later = next((number for number, other in enumerate(keys) if other > key.lower()), None)
    if len(keys) >= SORTED and later is not None and all(before <= after for before, after in pairwise(keys)):
        if later:
            end = ends[later - 1]
            return end, _line_ends(text[end : entries[later].start]), ""
        return entries[later].start, "", "\n\n"
    wanted = _line_ends(text[ends[-2] : entries[-1].start]) if len(entries) > 1 else "\n\n"
    last = text.replace("\r\n", "\n")[-2:]
    gap = wanted[len(last) - len(last.rstrip("\n")) :] if text else ""
    return len(text), gap, "\n"


def public_paper(paper: LibraryPaper) -> LibraryPaper:
    """Return a paper without what concerns its owner alone: notes, local addresses, fields of programs."""
    text = paper.bibtex
    for entry in BibtexText(text).entries[:1]:
        for name, start, end in reversed(entry.fields or ()):
            if not _is_public(name, text[start:end], ("abstract", "keywords")):
                text = text[: text.rindex(name, 0, start)] + text[end:].lstrip(" \t\r\n,")
    return paper._replace(bibtex=text, url="" if _OWN_FILE.match(paper.url) else paper.url)


def _is_public(name: str, value: str, kept: Container[str]) -> bool:
    """True unless only the owner needs a field. kept: names that are public in spite of _PRIVATE."""
    return (name.lower() in kept or not _PRIVATE.fullmatch(name)) and not _OWN_FILE.match(value)


def _line_ends(gap: str) -> str:
    """Return the line ends between two entries; at least one."""
    return "\n" * max(1, min(gap.replace("\r\n", "\n").count("\n"), 2))


def _case(word: str) -> Callable[[str], str]:
    return next((case for case in _CASES if case(word) == word), str.lower)


def _most(values: Iterable[T]) -> T:
    """Return the most frequent value, the first of several."""
    return Counter(values).most_common(1)[0][0]


# Fields as BibTeX and the programs that read the file can use them.

_BIBLATEX = ("date", "journaltitle")
"""Fields of files that only biblatex reads."""
_NAMES = {
    "journaltitle": "journal", "location": "address", "eprinttype": "archiveprefix",
    "eprintclass": "primaryclass",
}  # fmt: skip
"""BibTeX's names of biblatex's fields."""


def _typesettable(
    kind: str, fields: Sequence[tuple[str, str]], text: str, used: Container[str], language: Language | None
) -> tuple[str, list[tuple[str, str]]]:
    """Return an entry's type and fields (names and values, with their braces) for a .bib file.

    text: of the file. used: names of the fields there, in lower case. language: of what cites it.
    """
    if not any(name in used for name in _BIBLATEX):
        kind, fields = _as_bibtex(kind, fields)
    if language and language.numeric_years:
        fields = [*_with_numeric_year(fields)]
    if language and (typst := language.entry_types.get(kind.lower())):
        if typst == "thesis" and "type" not in {name.lower() for name, _ in fields}:
            fields = [*fields, ("type", f"{{{GENRES[kind.lower()]}}}")]
        kind = typst
    return kind, [(name, typeset(name, value, text)) for name, value in fields]


def _as_bibtex(kind: str, fields: Sequence[tuple[str, str]]) -> tuple[str, list[tuple[str, str]]]:
    """Return an entry's type and fields with BibTeX's names, which biblatex reads, too.

    BibTeX's styles leave out what only biblatex has, such as the year in `date`.
    """
    values = {name.lower(): (name, value) for name, value in reversed(fields)}  # the first of a name counts
    values = dict(reversed(values.items()))
    kind = {"report": "techreport"}.get(kind.lower(), kind.lower())
    if kind == "thesis":
        degree = values.get("type", ("", ""))[1]
        kind = "mastersthesis" if re.search("master|mathesis", degree, re.IGNORECASE) else "phdthesis"
        if re.search("mathesis|phdthesis", degree):  # names of biblatex's, not text
            values.pop("type")
    names = _NAMES | ({"institution": "school"} if "thesis" in kind else {})
    written: dict[str, str] = {}
    for name, value in values.values():
        if name.lower() == "date":
            if "year" not in values:
                written |= _date_parts(value.strip('{}"'))
        elif (other := names.get(name.lower())) and other not in values:
            written.setdefault(other, value)
        else:
            written.setdefault(name, value)
    return kind, [(name, value) for name, value in written.items()]


def _date_parts(date: str) -> dict[str, str]:
    """Return BibTeX's fields of a date of biblatex: year, or years, and the month of a single date.

    >>> _date_parts("2004-07~"), _date_parts("1998/2001"), _date_parts("2021-03-04/2021-05-06")
    ({'year': '{2004}', 'month': 'jul'}, {'year': '{1998--2001}'}, {'year': '{2021}'})
    """
    parts = date_fields({"issued": re.sub("[?~%]", "", date.strip())})
    return {
        name: text if text in MONTHS else f"{{{text}}}"
        for name, text in parts.items()
        if text and name in ("year", "month")
    }


def _with_numeric_year(fields: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    for name, value in fields:
        if name.lower() == "year" and not re.match(r"[{\"\s]*\d{4}", value):
            value = next(iter(re.findall(r"\d{4}", value)), "")
        if value:
            yield name, value
