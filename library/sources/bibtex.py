"""Reader for BibTeX and BibLaTeX (JabRef, Zotero, Mendeley)."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from bibtexparser.entrypoint import parse_string
from bibtexparser.middlewares.names import parse_single_name_into_parts, split_multiple_persons_names
from bibtexparser.model import Entry, ImplicitComment, ParsingFailedBlock

from citerec.base.errors import InputError
from citerec.datasets.formats.json_lines import OnBadRecord
from citerec.datasets.fulltext.catalogue import find_arxiv_id, find_year
from citerec.datasets.languages.inputs import decode_text
from citerec.datasets.languages.latex_text import braced_argument, plain_text
from citerec.library.papers import LibraryPaper, clean_text, make_paper, split_names, usable_paper

logging.getLogger("bibtexparser").setLevel(logging.CRITICAL)  # on_bad gets the broken entries

_VENUES = ("journal", "journaltitle", "booktitle", "series", "publisher", "school", "institution")
_GROUPS = ("groups", "collection", "collections", "mendeley-groups")
_TAGS = ("keywords", "mendeley-tags")
_INHERITED = ("journal", "journaltitle", "booktitle", "year", "date", "publisher", "series")
_ESCAPED = re.compile(r"\\([%&_#{}$])")
_NEEDS_PARSER = re.compile(r"[\\$~]")
_QUOTES = (("``", "“"), ("''", "”"), ("---", "—"), ("--", "–"))
_KEY = re.compile(r"@\s*(\w+)\s*[{(]\s*([^\s,{}()=]+)\s*,")
_SPLIT_HEAD = re.compile(r"^([ \t]*@[ \t]*\w+)([ \t]*\n\s*)\{", re.MULTILINE)
"""An entry whose brace is on the next line, which the parser does not expect."""
_FIELD = re.compile(
    r"(?:^[ \t]*+,?|,)[ \t]*+([A-Za-z][\w-]*)[ \t]*=[ \t]*"
    r"(?=[{\"]|[\w-]+[ \t]*(?:[,#]|\}?[ \t]*$))",
    re.MULTILINE,
)
"""The beginning of a field."""
_BARE = re.compile(r"[^\s#{}\",=]+")
_BETWEEN = re.compile(r"\s*(#)?\s*")
_QUOTE_OR_BRACE = re.compile(r"\\.|[{}\"]", re.DOTALL)
_BRACES = re.compile(r"(?<!\\)[{}]")
_NAME_PART = re.compile(
    r"(?:^|,)\s*\"?(given|family|prefix|suffix)\s*=\s*(\{(?:[^{}]|\{[^{}]*\})*\}|\"[^\"]*\"|[^,]*)"
)


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
    return parse_bibtex(decode_text(path), str(path), on_bad)


class _ParsedEntry(NamedTuple):
    """fields: values by lower-case name. bibtex: valid in other files. problem: what is wrong with it."""

    key: str
    fields: dict[str, str]
    bibtex: str
    problem: str = ""


def parse_bibtex(text: str, name: str, on_bad: OnBadRecord) -> Iterator[LibraryPaper]:
    """Yield the papers of BibTeX entries, in order. Raises InputError if there are none. name: for errors."""
    library = parse_string(_SPLIT_HEAD.sub(r"\1{\2", text), parse_stack=[])
    strings: dict[str, str] = {}
    for string in library.strings:
        strings[string.key.lower()] = _plain_value(string.value, strings) or ""
    entries: list[tuple[str, _ParsedEntry | None]] = []
    for block, after in zip(library.blocks, [*library.blocks[1:], None], strict=True):
        if isinstance(block, Entry | ParsingFailedBlock):
            # What follows one closing brace too many is a comment to the parser.
            rest = (after.raw or "") if isinstance(after, ImplicitComment) else ""
            parsed = _parse_block(block, rest if _FIELD.search(rest) else "", strings)
            where = f"{name}, line {(block.start_line or 0) + 1}"
            key = _KEY.match(block.raw or "")
            entries.append((f"{where} ({key[2]})" if key else where, parsed))
    if not entries:
        raise InputError(f"{name}: has no entries (@article{{key, ...}})")
    by_key = {entry.key.lower(): entry.fields for _, entry in reversed(entries) if entry}
    for where, entry in entries:
        if entry is None:
            on_bad(InputError(f"{where}: cannot be parsed: check its braces, quotes and commas"))
            continue
        if entry.problem:
            on_bad(InputError(f"{where}: {entry.problem}"))
        yield from usable_paper(partial(_make_paper, entry, by_key), where, on_bad)


def _parse_block(
    block: Entry | ParsingFailedBlock, rest: str, strings: dict[str, str]
) -> _ParsedEntry | None:
    """Parse an entry. rest: of its text, behind where the parser ended it. None if nothing can be read."""
    # The parser keeps what it has read of an entry with a duplicate field or key.
    entry = block.ignore_error_block if isinstance(block, ParsingFailedBlock) else block
    raw = block.raw or ""
    if not isinstance(entry, Entry) or rest:
        return _recover(raw + rest, strings)
    fields: dict[str, str] = {}  # the first of duplicate fields counts, as in BibTeX
    for field in entry.fields:
        written = str(field.value).strip()
        if (value := _plain_value(written, strings)) is None:
            return _recover(raw, strings)
        if written not in (value, f"{{{value}}}", f'"{value}"'):  # abbreviations and # need this file
            place = re.compile(rf"(\b{re.escape(field.key)}\s*=\s*){re.escape(written)}")
            raw = place.sub(lambda match, value=value: f"{match[1]}{{{value}}}", raw, count=1)  # type: ignore[misc]
        fields.setdefault(field.key.lower(), value)
    return _ParsedEntry(entry.key, fields, raw.strip())


def entry_fields(bibtex: str) -> dict[str, str]:
    """Return the fields of an entry as plain text, by lower-case name; none if it cannot be read."""
    blocks = parse_string(bibtex, parse_stack=[]).blocks if bibtex else []
    parsed = [
        _parse_block(block, "", {}) for block in blocks if isinstance(block, Entry | ParsingFailedBlock)
    ]
    fields = parsed[0].fields if parsed and parsed[0] else {}
    return {name: latex_to_text(value) for name, value in fields.items()}


def _plain_value(written: str, strings: dict[str, str]) -> str | None:
    """Return a value without delimiters; parts joined by # are joined. None if it is malformed.

    >>> _plain_value('"A " # {B{c}} # jan', {"jan": "January"}), _plain_value("{a} b", {})
    ('A B{c}January', None)
    """
    parts, place, written = [], 0, written.strip()
    while place < len(written):
        if written[place] == "{":
            content, end = braced_argument(written, place)
            closed = end - place == len(content) + 2
        elif written[place] == '"':
            content, end = _quoted_value(written, place)
            closed = end > 0
        else:
            name = _BARE.match(written, place)
            content, end = (strings.get(name[0].lower(), name[0]), name.end()) if name else ("", 0)
            closed = name is not None
        between = _BETWEEN.match(written, end)
        if not closed or between is None or (between[1] is None and between.end() < len(written)):
            return None
        parts.append(content)
        place = between.end()
    return "".join(parts)


def _quoted_value(written: str, start: int) -> tuple[str, int]:
    """Return the text in quotes, and where they end; 0 if they do not, outside of braces."""
    depth = 0
    for sign in _QUOTE_OR_BRACE.finditer(written, start + 1):
        depth += {"{": 1, "}": -1}.get(sign[0], 0)
        if sign[0] == '"' and depth == 0:
            return written[start + 1 : sign.start()], sign.end()
    return "", 0


def _recover(raw: str, strings: dict[str, str]) -> _ParsedEntry | None:
    """Read a malformed entry by its lines: a field begins at `name =` and ends where the next one begins."""
    head = _KEY.match(raw.lstrip())
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
    lines = "".join(f"  {name} = {{{value}}},\n" for name, value in fields.items())
    where = f" in {', '.join(broken)}" if broken else ""
    problem = f"braces, quotes or commas do not match{where}; the entry was read as far as possible"
    return _ParsedEntry(head[2], fields, f"@{head[1]}{{{head[2]},\n{lines}}}", problem)


def _make_paper(entry: _ParsedEntry, entries: dict[str, dict[str, str]]) -> LibraryPaper:
    """Return the paper of an entry. entries: the fields of all by key, for crossref."""
    fields = _without_braces(entry.fields)
    parent = entries.get(fields.get("crossref", "").strip().lower())
    if parent is not None and parent is not entry.fields:
        inherited = _without_braces(parent)
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
        bibtex=entry.bibtex,
    )


def _without_braces(fields: dict[str, str]) -> dict[str, str]:
    """Remove second braces around whole values, as in {{Title}}."""
    found = {}
    for name, value in fields.items():
        value = value.strip()
        if value.startswith("{") and braced_argument(value, 0)[1] == len(value):
            value = value[1:-1]
        found[name] = value
    return found


def _author_names(authors: str) -> Iterator[str]:
    """Yield each author as "First von Last Jr"; also in biblatex's form, given=Ann, family=Lee."""
    for name in split_multiple_persons_names(authors):
        if named := {key: value.strip('{}"') for key, value in _NAME_PART.findall(name)}:
            parts = [named[part] for part in ("given", "prefix", "family", "suffix") if part in named]
        else:
            person = parse_single_name_into_parts(name, strict=False)
            parts = person.first + person.von + person.last + person.jr
        full_name = latex_to_text(" ".join(parts))
        if full_name and full_name != "others":
            yield full_name
