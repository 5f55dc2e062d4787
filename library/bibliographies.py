"""Readers for BibTeX and RIS, the exports of reference managers (JabRef, Zotero, Mendeley, EndNote)."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import rispy
from bibtexparser.entrypoint import parse_string
from bibtexparser.middlewares.names import parse_single_name_into_parts, split_multiple_persons_names
from bibtexparser.model import Entry, ParsingFailedBlock

from citerec.datasets.errors import InputError
from citerec.datasets.fulltext.catalogue import find_arxiv_id, find_year
from citerec.datasets.fulltext.latex_source import braced_argument, decode_latex, plain_text
from citerec.datasets.json_lines import OnBadRecord
from citerec.library.papers import LibraryPaper, clean_text, make_paper, split_names, usable_paper

logging.getLogger("bibtexparser").setLevel(logging.CRITICAL)  # on_bad gets the broken entries

_VENUES = ("journal", "journaltitle", "booktitle", "series", "publisher", "school", "institution")
_GROUPS = ("groups", "collection", "collections", "mendeley-groups")
_TAGS = ("keywords", "mendeley-tags")
_INHERITED = ("journal", "journaltitle", "booktitle", "year", "date", "publisher", "series")
_ESCAPED = re.compile(r"\\([%&_#{}$])")
_NEEDS_PARSER = re.compile(r"[\\$~]")
_QUOTES = (("``", "“"), ("''", "”"), ("---", "—"), ("--", "–"))
_KEY = re.compile(r"@\s*\w+\s*[{(]\s*([^\s,{}()=]+)\s*,")
_STRING_NAME = re.compile(r"([\w-]\s*=\s*)([A-Za-z][\w:.+/-]*)(?=\s*[,}])")


def latex_to_text(latex: str) -> str:
    r"""Convert the LaTeX of a field to plain text.

    >>> latex_to_text(r"{BERT} and \'etudes of $x_i$ -- 5\%")
    'BERT and études of x_i – 5%'
    """
    unescaped = _ESCAPED.sub(lambda match: match[1] if match[1] not in "{}$" else match[0], latex)
    if _NEEDS_PARSER.search(unescaped):
        return clean_text(plain_text(latex))
    text = unescaped.replace("{", "").replace("}", "")
    for source, printed in _QUOTES:
        text = text.replace(source, printed)
    return clean_text(text)


def read_bibtex(path: Path, on_bad: OnBadRecord) -> Iterator[LibraryPaper]:
    """Yield the papers of a BibTeX file, in order. Raises InputError for a file without entries."""
    return parse_bibtex(decode_latex(path), str(path), on_bad)


def parse_bibtex(text: str, name: str, on_bad: OnBadRecord) -> Iterator[LibraryPaper]:
    """Yield the papers of BibTeX entries, in order. Raises InputError if there are none. name: for errors."""
    library = parse_string(text)
    blocks = [block for block in library.blocks if isinstance(block, Entry | ParsingFailedBlock)]
    if not blocks:
        raise InputError(f"{name}: has no entries (@article{{key, ...}})")
    # The parser keeps what it has read of an entry with a duplicate field or key.
    read = [block.ignore_error_block if isinstance(block, ParsingFailedBlock) else block for block in blocks]
    entries = {entry.key.lower(): entry for entry in reversed(read) if isinstance(entry, Entry)}
    strings = {name.lower(): str(string.value) for name, string in library.strings_dict.items()}
    for block, entry in zip(blocks, read, strict=True):
        where = f"{name}, line {(block.start_line or 0) + 1}"
        if key := _KEY.match(raw := block.raw or ""):
            where += f" ({key[1]})"
        if not isinstance(entry, Entry):
            on_bad(InputError(f"{where}: cannot be parsed: check its braces, quotes and commas"))
            continue
        parse = partial(_parse_entry, entry, entries, _expand_strings(raw, strings))
        yield from usable_paper(parse, where, on_bad)


def _parse_entry(entry: Entry, entries: dict[str, Entry], bibtex: str) -> LibraryPaper:
    fields = _fields(entry)
    parent = entries.get(fields.get("crossref", "").strip().lower())
    if parent is not None and parent is not entry:
        inherited = _fields(parent)
        inherited.setdefault("booktitle", inherited.get("title", ""))
        fields = {name: inherited[name] for name in _INHERITED if inherited.get(name)} | fields

    def first(*names: str) -> str:
        return next((value for name in names if (value := fields.get(name, "").strip())), "")

    eprint = first("eprint") if "arxiv" in first("archiveprefix", "eprinttype").lower() else ""
    arxiv_fields = [eprint, *map(first, ("arxivid", "arxiv", "url", "journal", "note"))]
    arxiv_fields.append(re.sub("^abs/", "arxiv:", first("volume")))  # DBLP's CoRR

    def names(keys: tuple[str, ...]) -> list[str]:
        return [name for key in keys for name in split_names(latex_to_text(first(key)))]

    return make_paper(
        key=entry.key,
        title=latex_to_text(first("title") + (f": {subtitle}" if (subtitle := first("subtitle")) else "")),
        abstract=latex_to_text(first("abstract")),
        authors=list(_author_names(first("author") or first("editor"))),
        year=find_year(first("year", "date")),
        venue=latex_to_text(first(*_VENUES)),
        doi=first("doi").replace("\\_", "_"),
        arxiv=next(filter(None, map(find_arxiv_id, arxiv_fields)), ""),
        url=first("url").replace("\\_", "_").replace("\\%", "%"),
        collections=names(_GROUPS),
        tags=names(_TAGS),
        bibtex=bibtex,
    )


def _fields(entry: Entry) -> dict[str, str]:
    """Return field values by lower-case name. The first of duplicate fields counts, as in BibTeX."""
    found: dict[str, str] = {}
    for field in entry.fields:
        value = str(field.value).strip()
        if value.startswith("{") and braced_argument(value, 0)[1] == len(value):
            value = value[1:-1]
        found.setdefault(field.key.lower(), value)
    return found


def _author_names(authors: str) -> Iterator[str]:
    """Yield each author as "First von Last Jr"."""
    for name in split_multiple_persons_names(authors):
        parts = parse_single_name_into_parts(name, strict=False)
        full_name = latex_to_text(" ".join(parts.first + parts.von + parts.last + parts.jr))
        if full_name and full_name != "others":
            yield full_name


def _expand_strings(raw: str, strings: dict[str, str]) -> str:
    """Replace @string names in an entry by their values, so that it is valid in other files."""

    def expand(match: re.Match[str]) -> str:
        value = strings.get(match[2].lower())
        return match[0] if value is None else f"{match[1]}{{{value}}}"

    return _STRING_NAME.sub(expand, raw).strip()


_RECORD = re.compile(r"^(TY  ?-.*?(?:^ER  ?-[^\n]*|(?=^TY  ?-)|\Z))", re.MULTILINE | re.DOTALL)
_RECORD_END = re.compile(r"^ER  ?-", re.MULTILINE)


def read_ris(path: Path, on_bad: OnBadRecord) -> Iterator[LibraryPaper]:
    """Yield the papers of a RIS file, in order. Raises InputError for a file without records."""
    pieces = _RECORD.split(decode_latex(path))  # alternately text outside records and a record
    if len(pieces) == 1:
        raise InputError(f"{path}: has no records (TY  - JOUR ... ER  -)")
    line = 1
    for number, piece in enumerate(pieces):
        if number % 2:
            where = f"{path}, line {line}"
            record = piece if _RECORD_END.search(piece) else f"{piece.rstrip()}\nER  - "
            yield from usable_paper(partial(_parse_ris, record, where), where, on_bad)
        elif piece.strip():
            start = line + piece[: -len(piece.lstrip())].count("\n")
            on_bad(InputError(f"{path}, line {start}: is outside of a record; records begin with TY  -"))
        line += piece.count("\n")


def _parse_ris(record: str, where: str) -> LibraryPaper:
    try:
        parsed = rispy.loads(record, skip_unknown_tags=True)
    except (rispy.parser.ParseError, ValueError, KeyError, IndexError, TypeError) as error:
        raise InputError(f"{where}: is not a RIS record: {error}") from None
    if not parsed:
        raise InputError(f"{where}: is not a RIS record (it must begin with TY  - and end with ER  -)")
    fields: dict[str, Any] = parsed[0]

    def values(*names: str) -> list[str]:
        found = (fields.get(name) or [] for name in names)
        return [str(text) for value in found for text in (value if isinstance(value, list) else [value])]

    def first(*names: str) -> str:
        return next(map(str.strip, values(*names)), "")

    url = first("urls", "url")
    number = first("number", "custom7", "accession_number")
    arxiv_fields = [number, url, first("notes"), first("journal_name")]
    return make_paper(
        key=first("label", "id"),
        title=first("title", "primary_title", "short_title"),
        abstract=first("abstract", "notes_abstract"),
        authors=map(_given_name_first, values("authors", "first_authors")),
        year=find_year(first("year", "publication_year", "date")),
        venue=first("secondary_title", "alternate_title3", "journal_name", "publisher"),
        doi=first("doi"),
        arxiv=next(filter(None, map(find_arxiv_id, arxiv_fields)), ""),
        url=url,
        tags=[name for text in values("keywords") for name in split_names(text)],
    )


def _given_name_first(name: str) -> str:
    """Turn "Lee, Ann B." into "Ann B. Lee"."""
    family, _, given = name.partition(",")
    given, _, suffix = given.partition(",")
    return f"{given} {family} {suffix}"
