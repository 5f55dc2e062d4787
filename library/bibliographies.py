"""BibTeX and RIS, what reference managers export (JabRef, Zotero, Mendeley, EndNote), as papers."""

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

from datasets.errors import InputError
from datasets.fulltext.catalogue import clean_arxiv, year_in
from datasets.fulltext.latex_source import braced_argument, decode_latex, plain_text
from datasets.json_lines import OnBadRecord
from library.papers import LibraryPaper, make_paper, names_in, one_line, usable_paper

logging.getLogger("bibtexparser").setLevel(logging.CRITICAL)  # broken entries are told to on_bad

_VENUES = ("journal", "journaltitle", "booktitle", "series", "publisher", "school", "institution")
_GROUPS = ("groups", "collection", "collections", "mendeley-groups")
_TAGS = ("keywords", "mendeley-tags")
_INHERITED = ("journal", "journaltitle", "booktitle", "year", "date", "publisher", "series")
_SIGNS = re.compile(r"\\([%&_#{}$])")
_NOT_PLAIN = re.compile(r"[\\$~]")
_QUOTES = (("``", "“"), ("''", "”"), ("---", "—"), ("--", "–"))
_KEY = re.compile(r"@\s*\w+\s*[{(]\s*([^\s,{}()=]+)\s*,")
_ABBREVIATION = re.compile(r"([\w-]\s*=\s*)([A-Za-z][\w:.+/-]*)(?=\s*[,}])")


def latex_to_text(latex: str) -> str:
    r"""LaTeX of a field as text.

    >>> latex_to_text(r"{BERT} and \'etudes of $x_i$ -- 5\%")
    'BERT and études of x_i – 5%'
    """
    unescaped = _SIGNS.sub(lambda sign: sign[1] if sign[1] not in "{}$" else sign[0], latex)
    if _NOT_PLAIN.search(unescaped):
        return one_line(plain_text(latex))
    text = unescaped.replace("{", "").replace("}", "")
    for sign, printed in _QUOTES:
        text = text.replace(sign, printed)
    return one_line(text)


def read_bibtex(path: Path, on_bad: OnBadRecord) -> Iterator[LibraryPaper]:
    """The entries of a file, in order. Raises InputError for a file without entries."""
    return parse_bibtex(decode_latex(path), str(path), on_bad)


def parse_bibtex(text: str, name: str, on_bad: OnBadRecord) -> Iterator[LibraryPaper]:
    """The BibTeX entries of a text, in order. Raises InputError, with its name, if it has none."""
    library = parse_string(text)
    blocks = [block for block in library.blocks if isinstance(block, Entry | ParsingFailedBlock)]
    if not blocks:
        raise InputError(f"{name}: has no entries (@article{{key, ...}})")
    # Of an entry with a field or a key that appears twice the parser tells what it has read.
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
        yield from usable_paper(partial(_of_entry, entry, entries, _spelled_out(raw, strings)), where, on_bad)


def _of_entry(entry: Entry, entries: dict[str, Entry], bibtex: str) -> LibraryPaper:
    fields = _fields(entry)
    parent = entries.get(fields.get("crossref", "").strip().lower())
    if parent is not None and parent is not entry:
        above = _fields(parent)
        above.setdefault("booktitle", above.get("title", ""))
        fields = {name: above[name] for name in _INHERITED if above.get(name)} | fields

    def first(*names: str) -> str:
        return next((value for name in names if (value := fields.get(name, "").strip())), "")

    eprint = first("eprint") if "arxiv" in first("archiveprefix", "eprinttype").lower() else ""
    places = [eprint, *map(first, ("arxivid", "arxiv", "url", "journal", "note"))]
    places.append(re.sub("^abs/", "arxiv:", first("volume")))  # DBLP's CoRR

    def names(of: tuple[str, ...]) -> list[str]:
        return [name for field in of for name in names_in(latex_to_text(first(field)))]

    return make_paper(
        key=entry.key,
        title=latex_to_text(first("title") + (f": {subtitle}" if (subtitle := first("subtitle")) else "")),
        abstract=latex_to_text(first("abstract")),
        authors=list(_names(first("author") or first("editor"))),
        year=year_in(first("year", "date")),
        venue=latex_to_text(first(*_VENUES)),
        doi=first("doi").replace("\\_", "_"),
        arxiv=next(filter(None, map(clean_arxiv, places)), ""),
        url=first("url").replace("\\_", "_").replace("\\%", "%"),
        collections=names(_GROUPS),
        tags=names(_TAGS),
        bibtex=bibtex,
    )


def _fields(entry: Entry) -> dict[str, str]:
    """By name in lower case; of one that appears twice the first, as BibTeX has it."""
    found: dict[str, str] = {}
    for field in entry.fields:
        value = str(field.value).strip()
        if value.startswith("{") and braced_argument(value, 0)[1] == len(value):
            value = value[1:-1]
        found.setdefault(field.key.lower(), value)
    return found


def _names(authors: str) -> Iterator[str]:
    """Each as "First von Last Jr"."""
    for name in split_multiple_persons_names(authors):
        parts = parse_single_name_into_parts(name, strict=False)
        whole = latex_to_text(" ".join(parts.first + parts.von + parts.last + parts.jr))
        if whole and whole != "others":
            yield whole


def _spelled_out(raw: str, strings: dict[str, str]) -> str:
    """The entry with the abbreviations of @string in full, so that it can stand in another file."""

    def full(match: re.Match[str]) -> str:
        value = strings.get(match[2].lower())
        return match[0] if value is None else f"{match[1]}{{{value}}}"

    return _ABBREVIATION.sub(full, raw).strip()


_RECORD = re.compile(r"^(TY  ?-.*?(?:^ER  ?-[^\n]*|(?=^TY  ?-)|\Z))", re.MULTILINE | re.DOTALL)
_RECORD_ENDS = re.compile(r"^ER  ?-", re.MULTILINE)


def read_ris(path: Path, on_bad: OnBadRecord) -> Iterator[LibraryPaper]:
    """The records of a file, in order. Raises InputError for a file without records."""
    pieces = _RECORD.split(decode_latex(path))  # what is in no record, a record, and so on
    if len(pieces) == 1:
        raise InputError(f"{path}: has no records (TY  - JOUR ... ER  -)")
    line = 1
    for number, piece in enumerate(pieces):
        if number % 2:
            where = f"{path}, line {line}"
            whole = piece if _RECORD_ENDS.search(piece) else f"{piece.rstrip()}\nER  - "
            yield from usable_paper(partial(_of_ris, whole, where), where, on_bad)
        elif piece.strip():
            at = line + piece[: -len(piece.lstrip())].count("\n")
            on_bad(InputError(f"{path}, line {at}: is in no record; a record begins with TY  -"))
        line += piece.count("\n")


def _of_ris(record: str, where: str) -> LibraryPaper:
    try:
        parsed = rispy.loads(record, skip_unknown_tags=True)
    except (rispy.parser.ParseError, ValueError, KeyError, IndexError, TypeError) as error:
        raise InputError(f"{where}: is not a RIS record: {error}") from None
    if not parsed:
        raise InputError(f"{where}: is not a RIS record (it must begin with TY  - and end with ER  -)")
    fields: dict[str, Any] = parsed[0]

    def listed(*names: str) -> list[str]:
        values = (fields.get(name) or [] for name in names)
        return [str(text) for value in values for text in (value if isinstance(value, list) else [value])]

    def first(*names: str) -> str:
        return next(map(str.strip, listed(*names)), "")

    url = first("urls", "url")
    places = [first("number", "custom7", "accession_number"), url, first("notes"), first("journal_name")]
    return make_paper(
        key=first("label", "id"),
        title=first("title", "primary_title", "short_title"),
        abstract=first("abstract", "notes_abstract"),
        authors=map(_ordered, listed("authors", "first_authors")),
        year=year_in(first("year", "publication_year", "date")),
        venue=first("secondary_title", "alternate_title3", "journal_name", "publisher"),
        doi=first("doi"),
        arxiv=next(filter(None, map(clean_arxiv, places)), ""),
        url=url,
        tags=[name for text in listed("keywords") for name in names_in(text)],
    )


def _ordered(name: str) -> str:
    """ "Lee, Ann B." -> "Ann B. Lee"."""
    family, _, given = name.partition(",")
    given, _, suffix = given.partition(",")
    return f"{given} {family} {suffix}"
