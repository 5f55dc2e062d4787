"""Items of bibliographies as fields of BibTeX and biblatex, and back (reading.bibtex reads files).

Types that only biblatex has are written where BibTeX has none: its styles treat them as `misc`. A type of CSL
without a type of its own is in the field `entrysubtype`. Variables without a field keep their names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from citerec.formats.bibliography.entries import write_fields
from citerec.formats.bibliography.item import (
    CONTAINED,
    MONTHS,
    ROLES,
    Item,
    iso_date,
    number_variable,
    season,
)
from citerec.formats.bibliography.latex import (
    escape_bare,
    escape_latex,
    journal_name,
    latex_title,
    latex_to_names,
    latex_to_text,
    latex_url,
    marked_up,
)
from citerec.formats.bibliography.paper import LibraryPaper, terminal_text
from citerec.formats.bibliography.tables import Names
from citerec.formats.identifiers import arxiv_in_note, clean_doi, find_arxiv_id
from citerec.formats.latex_text import delimited_end
from citerec.formats.names import parse_names

_TYPES = Names("types", "bibtex")
_SUBTYPES = {"article": "preprint", "article-magazine": "magazine", "article-newspaper": "newspaper"}
_SUBTYPES_READ = {csl: csl for csl in _TYPES.written.keys() - _TYPES.read.keys() - {"article"}} | {
    name: csl for csl, name in _SUBTYPES.items()
}
_VARIABLES = Names("variables", "bibtex")
"""Variables whose fields do not depend on the type."""
_NAME_FIELDS = {"container-author": "bookauthor"}
_DATE_FIELDS = {"accessed": "urldate", "event-date": "eventdate", "original-date": "origdate"}
_IN_JOURNALS = ("article", "suppperiodical", "periodical", "review")
_SPAN = re.compile(r"(\d{4})(?:-\d\d){0,2}/(?:(\d{4})(?:-\d\d){0,2}|\.\.)?")
"""A range of dates, perhaps without an end."""
GENRES = {"phdthesis": "PhD thesis", "mastersthesis": "Master's thesis"}
_URL = re.compile(r"\\url\b|https?://[^\s{}]+")
_URL_COMMAND = re.compile(r"\\url\s*\{([^{}]*)\}")
_PROTECTED = re.compile(r"\\([_%&#~$])|\{\\?([_%&#~$])\}")
_VERBATIM = ("DOI", "URL")
"""Variables that biblatex, pandoc and the url package read without escapes."""
_NOT_IN_KEYS = re.compile(r"[\s\"#%'(),={}\\~<>^|]+")
_DOCTORAL = re.compile(r"^$|ph\.? ?-?d|doct|dissert|habil", re.IGNORECASE)
_MASTERS = re.compile(r"master|magist|\bm\.? ?(?:sc|a|s|phil|eng)\b", re.IGNORECASE)
_LITERAL = frozenset((
    "url", "doi", "eprint", "isbn", "issn", "date", "urldate", "eventdate", "origdate", "month", "langid",
    "options", "crossref", "xref", "xdata", "ids", "related", "entryset",
))  # fmt: skip
"""Fields that are not typeset, or are typeset as they stand."""


def entry_paper(
    item: Item, key: str, collections: Iterable[str] = (), tags: Iterable[str] | None = None
) -> LibraryPaper:
    """Return the paper of an item, with its entry. collections, tags: as for `Item.paper`."""
    paper = item.paper(key, collections=collections, tags=tags)
    if paper.arxiv:
        item.fields.setdefault("arxiv", paper.arxiv)
    return paper._replace(bibtex=write_item(item, paper.key or paper.id))


def entry_key(key: str) -> str:
    """Return a key without what BibTeX, biber or pandoc refuse in one.

    >>> entry_key("O'Neil 2010, {x}"), entry_key("smith&sons:2017")
    ('ONeil2010x', 'smith&sons:2017')
    """
    return _NOT_IN_KEYS.sub("", key) or "paper"


def write_item(item: Item, key: str) -> str:
    """Return an entry. Abstract and keywords are left out: a library keeps them in its own columns."""
    kind = entry_type(item)
    values = {"title": "", "author": "", "editor": ""}
    for role in ROLES:
        if names := item.names.get(role):
            values[_NAME_FIELDS.get(role, role)] = " and ".join(name.bibtex(escape_latex) for name in names)
    left = {name: text for name, text in item.fields.items() if text and name not in ("abstract", "keyword")}
    left.pop("entrytype", "")
    if left.get("genre", "") == GENRES.get(kind):
        left.pop("genre")
    values |= date_fields(left)
    for variable, field in (*_placed(item.type, kind, left).items(), *_VARIABLES.written.items()):
        if text := left.pop(variable, ""):
            values[variable.lower() if values.get(field) else field] = _latex(variable, text)
    if arxiv := left.pop("arxiv", ""):
        values |= {"eprint": latex_url(arxiv), "archiveprefix": "arXiv"}
    if values.get("number") and "number" in left and kind in _IN_JOURNALS:  # of the article
        left.setdefault("eid", left.pop("number"))
    values |= {name: _latex(name, text) for name, text in left.items()}
    if _TYPES.csl[kind] != item.type and not (item.type == "article" and arxiv):
        values["entrysubtype"] = _SUBTYPES.get(item.type, item.type)
    texts = {name: text for name, value in values.items() if (text := terminal_text(value))}
    return write_fields(kind, entry_key(key), texts)


def entry_type(item: Item) -> str:
    """Return BibTeX's or biblatex's type of an item."""
    if (kind := item.fields.get("entrytype", "")) in _TYPES.csl:
        return kind
    if item.type == "thesis":
        genre = item.fields.get("genre", "")
        if _MASTERS.search(genre):
            return "mastersthesis"
        return "phdthesis" if _DOCTORAL.search(genre) else "thesis"
    return _TYPES.written.get(item.type, "misc")


def _placed(csl: str, kind: str, fields: Mapping[str, str]) -> dict[str, str]:
    """Return the fields of the variables whose field depends on the type. fields: those the item has."""
    is_article = kind in _IN_JOURNALS
    container = "journal" if is_article else "booktitle" if csl in CONTAINED else "howpublished"
    publishers = {"thesis": "school", "report": "institution"}
    publisher = "organization" if kind == "manual" else publishers.get(csl, "publisher")
    numbers = (number_variable(csl), "number", "issue", "collection-number")
    placed = {"container-title": container, "publisher": publisher, "publisher-place": "address"}
    return placed | {next((name for name in numbers if fields.get(name)), "issue"): "number"}


def _latex(variable: str, text: str) -> str:
    if variable in _VERBATIM:
        return latex_url(text)
    if variable == "page":
        return escape_latex(re.sub(r"(?<=\w)\s*[-–]\s*(?=\w)", "--", text))
    return marked_up(text, latex_title if variable in ("title", "title-short") else escape_latex)


def date_fields(left: dict[str, str]) -> dict[str, str]:
    """Return the fields of dates, and take them from what is left."""
    values = {field: escape_latex(left.pop(variable, "")) for variable, field in _DATE_FIELDS.items()}
    issued = left.pop("issued", "")
    if (match := re.fullmatch(r"(\d{4})-(\d\d)(?:-(\d\d))?", issued)) and 1 <= int(match[2]) <= 12:
        month, day = MONTHS[int(match[2]) - 1], (match[3] or "").lstrip("0")
        return values | {"year": match[1], "month": month, "day": day}
    if named := season(issued):
        return values | {"year": issued[:4], "month": named}
    if span := _SPAN.fullmatch(issued):  # only biblatex has ranges, and BibTeX prints all that is in `year`
        years = span[1] if span[2] == span[1] else f"{span[1]}--{span[2] or ''}"
        return values | {"year": years, "date": issued}
    return values | {"year": escape_latex(issued)}


def typeset(name: str, value: str, text: str) -> str:
    """Return a field's value as LaTeX can typeset it: without bare signs, and without macros for journals
    that the file, text, does not use."""
    if name.lower() in _LITERAL or not any(is_delimited(value, opening) for opening in '{"'):
        return value
    if name.lower().startswith("journal") and (journal := journal_name(value[1:-1])):
        return value if value[1:-1].strip("{} ") in text else f"{{{escape_latex(journal)}}}"
    return f"{value[0]}{escape_bare(value[1:-1])}{value[-1]}"


def is_delimited(value: str, opening: str) -> bool:
    """True if a value is one text in braces, or in quotes."""
    return value.startswith(opening) and delimited_end(value, 0) == len(value)


def read_item(kind: str, fields: Mapping[str, str]) -> Item:
    """Return the item of an entry. kind: its type. fields: LaTeX by lower-case name."""
    kind = kind.lower()
    csl = _SUBTYPES_READ.get(fields.get("entrysubtype", "").lower()) or _TYPES.csl.get(kind, "document")

    def text(*names: str) -> str:
        return next(filter(None, (latex_to_text(fields[name]) for name in names if fields.get(name))), "")

    def titled(name: str, subtitle: str) -> str:
        return ": ".join(filter(None, (text(name), text(subtitle))))

    variables = {_VARIABLES.csl[name] for name in fields if name in _VARIABLES.csl}
    values = {variable: text(*names) for variable, names in _VARIABLES.read.items() if variable in variables}
    values["title"] = titled("title", "subtitle")
    journal = titled("journaltitle", "journalsubtitle") or titled("journal", "journalsubtitle")
    book = titled("booktitle", "booksubtitle")
    if csl in CONTAINED:
        book = book or titled("maintitle", "mainsubtitle")
    elif not _URL.search(fields.get("howpublished", "")):
        book = book or text("howpublished")
    values["container-title"] = (journal or book) if kind in _IN_JOURNALS else (book or journal)
    if csl == "thesis":
        values["publisher"] = text("school", "institution", "publisher", "organization")
        values["genre"] = text("type") or GENRES.get(kind, "")
    else:
        values["publisher"] = text("publisher", "institution", "school", "organization")
    values["publisher-place"] = text("address", "location")
    number = number_variable(csl)
    values[number] = text("number") or values.get(number, "")
    values["page"] = values.get("page", "").replace("–", "-").replace("--", "-")
    place = _URL.search(_literal(fields.get("howpublished", "")))
    values["URL"] = _literal(fields.get("url", "")) or (place[0] if place else "")
    values["DOI"] = clean_doi(_literal(fields.get("doi", ""))) or _literal(fields.get("doi", ""))
    values |= {variable: text(field) for variable, field in _DATE_FIELDS.items()}
    values["issued"] = _read_date(_literal(fields.get("date", "")), text("year"), text("month"), text("day"))
    _read_eprint(fields, values)
    names = {
        role: parse_names(latex_to_names(fields.get(_NAME_FIELDS.get(role, role), ""))) for role in ROLES
    }
    item = Item.of(csl, values, names)
    if kind in _TYPES.csl and entry_type(item) != kind:
        item.fields["entrytype"] = kind
    return item


def _literal(latex: str) -> str:
    """Return a URL or DOI without what protects it from LaTeX."""
    return _PROTECTED.sub(lambda sign: sign[1] or sign[2], _URL_COMMAND.sub(r"\1", latex)).strip("{} ")


def _read_date(date: str, year: str, month: str, day: str) -> str:
    """Return when a work was issued; BibTeX has the day with the month, or in a field of its own."""
    if date or not month or not re.fullmatch(r"\d{4}", year):
        return iso_date(date or year or month)
    if month.isdecimal() and 1 <= int(month) <= 12:
        month = MONTHS[int(month) - 1]
    days = re.findall(r"\d+", month) or [day]
    named = min((name for name in MONTHS if name in month.lower()), key=month.lower().find, default="")
    return iso_date(f"{days[0]} {named} {year}" if named else f"{month} {year}")


def _read_eprint(fields: Mapping[str, str], values: dict[str, str]) -> None:
    """Add the arXiv or PubMed id."""
    kind = (fields.get("eprinttype") or fields.get("archiveprefix", "")).lower()
    eprint = _literal(fields.get("eprint", ""))
    if kind == "pubmed":
        values.setdefault("PMID", eprint)
    places = [eprint] if "arxiv" in kind or not kind else []
    places += [fields.get(name, "") for name in ("arxivid", "arxiv", "url", "journal", "howpublished")]
    places.append(arxiv_in_note(fields.get("note", "")))
    places.append(re.sub("^abs/", "arxiv:", fields.get("volume", "")))  # DBLP's CoRR
    values["arxiv"] = next(filter(None, map(find_arxiv_id, places)), "")
