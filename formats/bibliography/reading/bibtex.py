"""Reader for BibTeX and BibLaTeX (JabRef, Zotero, Mendeley)."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import NamedTuple

from bibtexparser.entrypoint import parse_string
from bibtexparser.model import Entry, ExplicitComment, ImplicitComment, ParsingFailedBlock

from citerec.base.errors import InputError
from citerec.formats.bibliography.attachments import file_folders, parse_file_field, resolve_files
from citerec.formats.bibliography.bibtex import read_item
from citerec.formats.bibliography.item import MONTHS, ROLES, Item
from citerec.formats.bibliography.latex import latex_to_text
from citerec.formats.bibliography.paper import LibraryPaper, split_names, usable_paper
from citerec.formats.drafts.inputs import decode_text
from citerec.formats.json_lines import OnBadRecord
from citerec.formats.latex_text import braced_argument
from citerec.formats.letters import fold
from citerec.formats.names import parse_name

logging.getLogger("bibtexparser").setLevel(logging.CRITICAL)  # on_bad gets the broken entries

_GROUPS = ("groups", "collection", "collections", "mendeley-groups")
_TAGS = ("keywords", "mendeley-tags")
_INHERITED = (
    *("journal", "journaltitle", "booktitle", "booksubtitle", "maintitle", "editor", "year", "date", "month"),
    *("publisher", "address", "location", "organization", "institution", "series", "volume", "edition"),
    *("eventtitle", "eventdate", "venue", "isbn", "issn", "language", "langid"),
)
"""Fields that an entry has from its crossref. Others, such as the DOI, are those of the whole."""
_IN_BOOK = ("inbook", "bookinbook", "suppbook")
"""Types that have the author of their crossref, too."""
_PARTS = (
    *("article", "suppperiodical", "incollection", "suppcollection", "inproceedings", "conference"),
    *("inreference", "chapter", *_IN_BOOK),
)
"""Types with titles of their own; others, such as a version of software, have all from their crossref."""
_NOT_PAPERS = ("xdata", "control", "ieeetranbstctl")
"""Types of entries for others, and for styles."""
_MAX_PARENTS = 5
_READ_NAMES = (
    "title subtitle shorttitle origtitle booktitle booksubtitle maintitle mainsubtitle journal journaltitle "
    "journalsubtitle series eventtitle publisher school institution organization howpublished year date "
    "month day doi url eprint eprinttype archiveprefix arxivid arxiv volume note abstract entrysubtype"
)
_READ = {*_READ_NAMES.split(), *ROLES, "bookauthor"}
"""Fields that a paper of a library needs; its entry has the others."""
_HEAD = re.compile(r"@\s*(\w+)\s*[{(]\s*(?:([^\s,{}()=]+)\s*(?:,|(?=\s[A-Za-z][\w-]*\s*=)))?")
"""The beginning of an entry: its type and its key, if it has one."""
_NO_KEY = re.compile(r"(@\s*\w+\s*[{(])\s*,?")
_NOT_A_KEY = re.compile(r"=\s*[{\"]")
"""A field stands where the key should."""
_SPLIT_HEAD = re.compile(r"^([ \t]*)@(?=[ \t]|\w+[ \t]*\n)(\s*)(\w+)(\s*)([{(])", re.MULTILINE)
"""An entry with a space before its type, or its brace on the next line, which the parser does not expect."""
_FIELD = re.compile(
    r"(?:^[ \t]*+,?|,)[ \t]*+([A-Za-z][\w-]*)[ \t]*=[ \t]*"
    r"(?=[{\"]|[\w-]+[ \t]*(?:[,#]|\}?[ \t]*$))",
    re.MULTILINE,
)
"""The beginning of a field."""
LONGEST = 1 << 20
"""Maximum characters of a field: abbreviations that double each other would fill the memory."""
_BARE = re.compile(r"[^\s#{}\",=]+")
_BETWEEN = re.compile(r"\s*(#)?\s*")
_QUOTE_OR_BRACE = re.compile(r"\\.|[{}\"]", re.DOTALL)
_COMMA = re.compile(r"[\s,]+")
_BRACES = re.compile(r"(?<!\\)[{}]")


def read_bibtex(path: Path, on_bad: OnBadRecord) -> Iterator[LibraryPaper]:
    """Yield the papers of a BibTeX file, in order. Raises InputError for a file without entries."""
    text = decode_text(path)
    return parse_bibtex(text, str(path), on_bad, file_folders(path, text))


class _ParsedEntry(NamedTuple):
    """fields: LaTeX by lower-case name. bibtex: valid in other files. problem: what is wrong with it."""

    kind: str
    key: str
    fields: dict[str, str]
    bibtex: str
    problem: str = ""


def parse_bibtex(
    text: str, name: str, on_bad: OnBadRecord, folders: Sequence[Path] = ()
) -> Iterator[LibraryPaper]:
    """Yield the papers of BibTeX entries, in order. Raises InputError if there are none.

    name: for errors. folders: where the names of their PDFs begin; without any, PDFs are left out.
    """
    entries = [
        (f"{name}, line {line}" + (f" ({key})" if key else ""), entry)
        for line, key, entry in _entries_of(text)
    ]
    if not entries:
        raise InputError(f"{name}: has no entries (@article{{key, ...}})")
    by_key = {entry.key.lower(): entry for _, entry in reversed(entries) if entry and entry.key}
    by_key |= {alias.lower(): entry for entry in [*by_key.values()] for alias in _ids(entry)}
    taken = {*by_key}
    for where, entry in entries:
        if entry is None:
            on_bad(InputError(f"{where}: cannot be parsed: check its braces, quotes and commas"))
        elif entry.kind not in _NOT_PAPERS:
            if entry.problem:
                on_bad(InputError(f"{where}: {entry.problem}"))
            for paper in usable_paper(partial(_make_paper, entry, by_key, folders), where, on_bad):
                if not entry.key:
                    paper = _with_key(paper, taken)
                    on_bad(InputError(f"{where}: has no key; it is {paper.key} in the library"))
                yield paper


def _entries_of(text: str) -> Iterator[tuple[int, str, _ParsedEntry | None]]:
    """Yield line and key of each entry, with the entry unless nothing of it can be read."""
    library = parse_string(_SPLIT_HEAD.sub(r"\1@\3\5\2\4", text), parse_stack=[])
    strings: dict[str, str] = {}
    for string in library.strings:
        strings[string.key.lower()] = _plain_value(string.value, strings) or ""
    for block, after in zip(library.blocks, [*library.blocks, None][1:], strict=True):
        raw, line = block.raw or "", (block.start_line or 0) + 1
        head = _HEAD.match(raw.lstrip())
        key = head[2] or "" if head else ""
        if isinstance(block, Entry | ParsingFailedBlock):
            # What follows one closing brace too many is a comment to the parser.
            rest = (after.raw or "") if isinstance(after, ImplicitComment) else ""
            is_cut = isinstance(block, ParsingFailedBlock) or _FIELD.search(rest)
            yield line, key, _parse_block(block, rest if is_cut else "", strings)
        elif isinstance(block, ExplicitComment) and head and head[1].lower() == "commentary":
            # A type of biblatex that the parser takes for a comment.
            entry = _recover(raw, strings)
            yield line, key, entry and entry._replace(problem="", bibtex=raw.strip())


def _parse_block(
    block: Entry | ParsingFailedBlock, rest: str, strings: dict[str, str]
) -> _ParsedEntry | None:
    """Parse an entry. rest: of its text, behind where the parser ended it. None if nothing can be read."""
    # The parser keeps what it has read of an entry with a duplicate field or key.
    entry = block.ignore_error_block if isinstance(block, ParsingFailedBlock) else block
    raw = block.raw or ""
    if not isinstance(entry, Entry) or rest or _NOT_A_KEY.search(entry.key):
        return _recover(raw + rest, strings)
    fields: dict[str, str] = {}  # the first of duplicate fields counts, as in BibTeX
    for field in entry.fields:
        written = str(field.value).strip()
        if (value := _plain_value(written, strings)) is None:
            return _recover(raw, strings)
        is_month = field.key.lower() == "month" and _plain_value(written, {}) == value  # jan, "3~" # mar
        if not is_month and written not in (value, f"{{{value}}}", f'"{value}"'):
            # Abbreviations need this file.
            place = re.compile(rf"(\b{re.escape(field.key)}\s*=\s*){re.escape(written)}")
            raw = place.sub(lambda match, value=value: f"{match[1]}{{{value}}}", raw, count=1)  # type: ignore[misc]
        fields.setdefault(field.key.lower(), value)
    return _ParsedEntry(entry.entry_type.lower(), entry.key, fields, raw.strip())


def entry_item(bibtex: str) -> Item | None:
    """Return the item of an entry, of one that is broken only its type; None if there is none."""
    for _, _, entry in _entries_of(bibtex) if bibtex else ():
        if entry:
            return read_item(entry.kind, entry.fields)
    head = _HEAD.match(bibtex.lstrip())
    return read_item(head[1], {}) if head else None


def _plain_value(written: str, strings: dict[str, str]) -> str | None:
    """Return a value without delimiters; parts joined by # are joined. None if it is malformed or too long.

    >>> _plain_value('"A " # {B{c}} # jan', {"jan": "January"}), _plain_value("{a} b", {})
    ('A B{c}January', None)
    """
    parts, place, written = list[str](), 0, written.strip()
    while place < len(written):
        if written[place] == "{":
            content, end = braced_argument(written, place)
            closed = end - place == len(content) + 2
        elif written[place] == '"':
            content, end = quoted_value(written, place)
            closed = end > 0
        else:
            name = _BARE.match(written, place)
            content, end = (strings.get(name[0].lower(), name[0]), name.end()) if name else ("", 0)
            closed = name is not None
        between = _BETWEEN.match(written, end)
        if not closed or between is None or (between[1] is None and between.end() < len(written)):
            return None
        parts.append(content)
        if sum(map(len, parts)) > LONGEST:
            return None
        place = between.end()
    return "".join(parts)


def quoted_value(written: str, start: int) -> tuple[str, int]:
    """Return the text in quotes, and where they end; 0 if they do not, outside of braces."""
    depth = 0
    for sign in _QUOTE_OR_BRACE.finditer(written, start + 1):
        depth += {"{": 1, "}": -1}.get(sign[0], 0)
        if sign[0] == '"' and depth == 0:
            return written[start + 1 : sign.start()], sign.end()
    return "", 0


def _recover(raw: str, strings: dict[str, str]) -> _ParsedEntry | None:
    """Read a malformed entry by its lines: a field begins at `name =` and ends where the next one begins."""
    raw = raw.lstrip()
    head = _HEAD.match(raw)
    if head and not head[0].endswith(","):
        raw = f"{head[0]},{raw[head.end() :]}"
    starts = list(_FIELD.finditer(raw))
    if not head or not starts:
        return None
    fields, broken = dict[str, str](), []
    for match, end in zip(starts, [*(match.start() for match in starts[1:]), len(raw)], strict=True):
        written = raw[match.end() : end].strip().removesuffix(",")
        value = _plain_value(written, strings)
        if value is None and end == len(raw):  # with the brace that closes the entry
            value = _plain_value(written.removesuffix("}").rstrip().removesuffix(","), strings)
        if value is None:
            broken.append(match[1])
            value = _BRACES.sub("", written).strip().strip('"')
        fields.setdefault(match[1].lower(), value)
    where = f" in {', '.join(broken)}" if broken else ""
    problem = f"braces, quotes or commas do not match{where}; the entry was read as far as possible"
    kind, key = head[1].lower(), head[2] or ""
    if not key and not broken and raw.rstrip().endswith(("}", ")")):
        problem = ""  # the parser wants a key
    return _ParsedEntry(kind, key, fields, _write_fields(kind, key, fields), problem)


def _write_fields(kind: str, key: str, fields: dict[str, str]) -> str:
    lines = "".join(
        f"  {name} = {value if name == 'month' and value.lower() in MONTHS else f'{{{value}}}'},\n"
        for name, value in fields.items()
    )
    return f"@{kind}{{{key},\n{lines}}}"


def _make_paper(
    entry: _ParsedEntry, entries: dict[str, _ParsedEntry], folders: Sequence[Path]
) -> LibraryPaper:
    """Return the paper of an entry. entries: all by key, for crossref and xdata."""
    fields = _with_inherited(entry, entries)
    item = read_item(entry.kind, {name: value for name, value in fields.items() if name in _READ})
    names = [[name for key in keys for name in split_names(latex_to_text(fields.get(key, "")))]
             for keys in (_GROUPS, _TAGS)]  # fmt: skip
    paper = item.paper(entry.key, collections=names[0], tags=names[1])
    bibtex = entry.bibtex if fields is entry.fields else _write_fields(entry.kind, entry.key, fields)
    files = resolve_files(parse_file_field(entry.fields.get("file", "")), folders) if folders else ()
    return paper._replace(bibtex=bibtex, aliases=tuple(_ids(entry)), files=files)


def _ids(entry: _ParsedEntry) -> list[str]:
    """Return the other keys of an entry, as in biblatex."""
    return [key for key in _COMMA.split(entry.fields.get("ids", "")) if key]


def _with_inherited(entry: _ParsedEntry, entries: dict[str, _ParsedEntry], depth: int = 0) -> dict[str, str]:
    """Return the fields of an entry with those of its crossref and xdata, which are then left out."""
    found = {
        name: [entries[key] for key in _COMMA.split(entry.fields.get(name, "").lower()) if key in entries]
        for name in ("xdata", "crossref")
    }
    if depth == _MAX_PARENTS or not any(found.values()):
        return entry.fields
    fields = {name: value for name, value in entry.fields.items() if not found.get(name)}
    for other in found["xdata"]:
        fields = _with_inherited(other, entries, depth + 1) | fields
    for parent in found["crossref"]:
        above = _with_inherited(parent, entries, depth + 1)
        whole = "journaltitle" if entry.kind in ("article", "suppperiodical") else "booktitle"
        names = [*_INHERITED, *(["author"] if entry.kind in _IN_BOOK or entry.kind not in _PARTS else [])]
        if entry.kind not in _PARTS and not fields.get("title"):
            names += ["title", "subtitle"]
        given = {name: above[name] for name in names if above.get(name)}
        if "title" not in given and (title := above.get("title")):
            given.setdefault(whole, title)
            if subtitle := above.get("subtitle"):
                given.setdefault(f"{whole.removesuffix('title')}subtitle", subtitle)
        if {"date", "year"} & {*fields}:
            given = {name: value for name, value in given.items() if name not in ("date", "year", "month")}
        fields |= {name: value for name, value in given.items() if not fields.get(name)}
    return fields


def _with_key(paper: LibraryPaper, taken: set[str]) -> LibraryPaper:
    """Return a paper whose entry has no key with one that no other entry has."""
    author = parse_name((*paper.names, *paper.authors, "")[0])
    words = re.findall(r"\w{3,}", fold(f"{author.short} {paper.title} paper").lower())
    stem = f"{words[0]}{paper.year or ''}"
    keys = chain([stem], (f"{stem}-{number}" for number in count(2)))
    key = next(key for key in keys if key not in taken)
    taken.add(key)
    id = f"key:{key}" if paper.id.startswith("title:") else paper.id
    return paper._replace(key=key, id=id, bibtex=_NO_KEY.sub(f"\\1{key},", paper.bibtex, count=1))
