"""The fields of a new entry as LaTeX, BibTeX and the programs that read its .bib file can use them."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Sequence

from citerec.formats.bibliography.bibtex import GENRES
from citerec.formats.bibliography.entries import quoted_value
from citerec.formats.bibliography.item import MONTHS
from citerec.formats.bibliography.latex import escape_bare, escape_latex, journal_name
from citerec.formats.drafts.language import Language
from citerec.formats.latex_text import braced_argument

_LITERAL = frozenset((
    "url", "doi", "eprint", "isbn", "issn", "date", "urldate", "eventdate", "origdate", "month", "langid",
    "options", "crossref", "xref", "xdata", "ids", "related", "entryset",
))  # fmt: skip
"""Fields that are not typeset, or as they stand."""
_BIBLATEX = ("date", "journaltitle")
"""Fields of files that only biblatex reads."""
_NAMES = {
    "journaltitle": "journal", "location": "address", "eprinttype": "archiveprefix",
    "eprintclass": "primaryclass",
}  # fmt: skip
"""BibTeX's names of biblatex's fields."""
_TYPES = {"report": "techreport"}
_DATE = re.compile(r"(\d{4})(?:-(\d\d)(?:-\d\d)?)?[?~%]?(/(?:(\d{4})(?:-\d\d){0,2}[?~%]?|\.\.)?)?")


def typesettable(
    kind: str,
    fields: Sequence[tuple[str, str]],
    text: str,
    used: Container[str],
    language: Language | None = None,
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


def typeset(name: str, value: str, text: str) -> str:
    """Return a field's value as LaTeX can typeset it: without bare signs, and without macros for journals
    that the file, text, does not use."""
    if name.lower() in _LITERAL or not (is_braced(value) or is_quoted(value)):
        return value
    if name.lower().startswith("journal") and (journal := journal_name(value[1:-1])):
        return value if value[1:-1].strip("{} ") in text else f"{{{escape_latex(journal)}}}"
    return f"{value[0]}{escape_bare(value[1:-1])}{value[-1]}"


def _as_bibtex(kind: str, fields: Sequence[tuple[str, str]]) -> tuple[str, list[tuple[str, str]]]:
    """Return an entry's type and fields with BibTeX's names, which biblatex reads, too.

    BibTeX's styles leave out what only biblatex has, such as the year in `date`.
    """
    values = {name.lower(): (name, value) for name, value in reversed(fields)}  # the first of a name counts
    values = dict(reversed(values.items()))
    kind = _TYPES.get(kind.lower(), kind.lower())
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
                written |= _date_parts(value[1:-1])
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
    match = _DATE.fullmatch(date.strip())
    if not match:
        return {"year": f"{{{date}}}"}
    begin, month, is_range, end = match.groups()
    if is_range:
        return {"year": f"{{{begin}}}" if end == begin else f"{{{begin}--{end or ''}}}"}
    parts = {"year": f"{{{begin}}}"}
    if month and 1 <= int(month) <= len(MONTHS):
        parts["month"] = MONTHS[int(month) - 1]
    return parts


def _with_numeric_year(fields: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    for name, value in fields:
        if name.lower() == "year" and not re.match(r"[{\"\s]*\d{4}", value):
            value = next(iter(re.findall(r"\d{4}", value)), "")
        if value:
            yield name, value


def is_braced(value: str) -> bool:
    """True if a value is one text in braces."""
    return value.startswith("{") and braced_argument(value, 0)[1] == len(value)


def is_quoted(value: str) -> bool:
    """True if a value is one text in quotes."""
    return value.startswith('"') and quoted_value(value, 0)[1] == len(value)
