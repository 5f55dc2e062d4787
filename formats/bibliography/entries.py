"""Find the entries of a BibTeX text and read their fields. Drafts, libraries and editors read them here.

As in BibTeX, an entry may begin anywhere, also behind another on its line. As in biber, `%` between fields
begins a comment. What BibTeX refuses is read as far as possible: an entry whose braces do not match ends at
the latest where a line begins with another one, so that a lost brace costs one entry.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import islice
from typing import NamedTuple

from citerec.formats.bibliography.item import MONTHS
from citerec.formats.latex_text import delimited_end

LONGEST = 1 << 20
"""Maximum characters of a field: abbreviations that double each other would fill the memory."""
_START = r"@[ \t]*(\w+)[ \t]*\n?[ \t]*([{(])"
_HEAD = re.compile(rf"(?<!\w){_START}")
_LINE_HEAD = re.compile(rf"^[ \t]*{_START}", re.MULTILINE)
_NEXT_HEAD = re.compile(rf"(?:^|(?<=[}})]))[ \t]*{_START}", re.MULTILINE)
"""Where an entry ends whose own end is lost."""
_MORE_FIELDS = re.compile(r"\s*\}?\s*,?\s*[A-Za-z][\w-]*\s*=\s*[{\"\w]")
"""Fields behind the end of an entry, which has one closing brace too many."""
_COMMENTED = re.compile(r"%[^\n]*\Z")
_GAP = re.compile(r"(?:[\s,]+|%[^\n]*)*")
_SPACE = re.compile(r"(?:\s+|%[^\n]*)*")
_NO_KEY = re.compile(
    r"\s*(?:[A-Za-z][\w-]*\s*=\s*[{\"]|(?:title|author|editor|year|date|month|journal|url|doi)\s*=)", re.I
)
"""A field where the key should be."""
_KEY = re.compile(
    r"\s*([^\s,{}\"]+(?:[^\S\n]+[^\s,{}\"=]+)*?)(?:\s*,|\s*(?=\}|\Z)|(?=\s+(?:%[^\n]*\s+)*[A-Za-z][\w:+-]*\s*=))"
)
"""A key and its comma, which may be missing before a field."""
_NAME = re.compile(r"(@?[^\s,={}\"#%@()][^\s,={}\"]*)\s*=\s*")
_BARE = re.compile(r"[^\s#{}\",=%)]+")
_JOINED = re.compile(r"\s*#\s*")
_LINE_FIELD = re.compile(
    r"(?:^[ \t]*+,?|,)[ \t]*+([A-Za-z][\w-]*)[ \t]*=[ \t]*"
    r"(?=[{\"]|[\w-]+[ \t]*(?:[,#]|\}?[ \t]*$))",
    re.MULTILINE,
)
"""The beginning of a field in an entry whose braces do not match."""
_LINE_COMMENT = re.compile(r"(?:^|(?<=[,}\"]))[ \t]*%[^\n]*", re.MULTILINE)
_UNESCAPED_BRACES = re.compile(r"(?<!\\)[{}]")
_COMMA = re.compile(r"[\s,]+")


class Field(NamedTuple):
    """A field of an entry: its name, and where its value with braces or quotes stands in the text."""

    name: str
    start: int
    end: int


class Entry(NamedTuple):
    """An entry as it stands in a text.

    kind: its type in lower case. key: "" if it has none. line: counted from 1. fields: None if they are
    malformed. is_plain: without what only some programs read, such as comments.
    """

    kind: str
    key: str
    line: int
    start: int
    end: int
    fields: tuple[Field, ...] | None
    is_plain: bool = True


class ReadEntry(NamedTuple):
    """The contents of an entry.

    fields: LaTeX by lower-case name. bibtex: valid in other files. problem: what is wrong with it.
    """

    kind: str
    key: str
    fields: dict[str, str]
    bibtex: str
    problem: str = ""

    @property
    def aliases(self) -> list[str]:
        """Its other keys, as in biblatex."""
        return [key for key in _COMMA.split(self.fields.get("ids", "")) if key]


class BibtexText:
    """A BibTeX text and its entries, in order.

    >>> text = BibtexText('@string{p = "Peat"} @book{moss, ids = {moor}, publisher = p}@misc{10.1/(a=b)}')
    >>> [text.keys(entry) for entry in text.entries], text.read(text.entries[0]).fields["publisher"]
    ([['moss', 'moor'], ['10.1/(a=b)']], 'Peat')
    """

    def __init__(self, text: str) -> None:
        self.text = text
        blocks = [*_split(text)]
        self.entries = [block for block in blocks if block.kind != "string"]
        self._strings = [block for block in blocks if block.kind == "string"]

    @cached_property
    def strings(self) -> dict[str, str]:
        """The texts of abbreviations by lower-case name."""
        strings: dict[str, str] = {}
        for name, start, end in (part for block in self._strings for part in block.fields or ()):
            strings[name.lower()] = read_value(self.text[start:end], strings) or ""
        return strings

    def source(self, entry: Entry) -> str:
        """Return the text of an entry."""
        return self.text[entry.start : entry.end]

    def keys(self, entry: Entry) -> list[str]:
        """Return the key of an entry, if it has one, and its aliases (biblatex's field ids)."""
        has_aliases = entry.fields is None or any(part.name.lower() == "ids" for part in entry.fields)
        contents = self.read(entry) if has_aliases else None
        return [*([entry.key] if entry.key else []), *(contents.aliases if contents else ())]

    def all_keys(self) -> set[str]:
        """Return the keys of all entries, with aliases."""
        return {key for entry in self.entries for key in self.keys(entry)}

    def read(self, entry: Entry) -> ReadEntry | None:
        """Read an entry, a malformed one by its lines. None if nothing of it can be read."""
        if entry.fields is None:
            return _recover(self.source(entry), entry, self.strings)
        fields: dict[str, str] = {}  # the first of duplicate fields counts, as in BibTeX
        pieces, done = list[str](), entry.start
        for name, start, end in entry.fields:
            written = self.text[start:end]
            if (value := read_value(written, self.strings)) is None:
                return _recover(self.source(entry), entry, self.strings)
            is_month = name.lower() == "month" and read_value(written, {}) == value  # jan, "3~" # mar
            if not is_month and written not in (value, f"{{{value}}}", f'"{value}"'):
                pieces += (self.text[done:start], f"{{{value}}}")  # abbreviations need this file
                done = end
            if not name.startswith("@"):  # some comment out a field so
                fields.setdefault(name.lower(), value)
        bibtex = "".join((*pieces, self.text[done : entry.end]))
        if not entry.is_plain:
            bibtex = write_fields(entry.kind, entry.key, fields)
        return ReadEntry(entry.kind, entry.key, fields, bibtex)


MOST_QUOTED = 20
"""Maximum beginnings of entries in the text of a field; more are taken for entries behind a lost brace."""
MOST_UNCLOSED = 20
"""Maximum comments in a line whose missing end is searched for; each search takes as long as the line."""


def _split(text: str) -> Iterator[Entry]:
    """Yield the entries and abbreviations."""
    place, limit, line, counted, unclosed = 0, -1, 1, 0, 0
    while head := _HEAD.search(text, place):
        if limit <= head.start():
            following = _LINE_HEAD.search(text, head.end())
            limit, unclosed = following.start() if following else len(text), 0
        kind, closing = head[1].lower(), "}" if head[2] == "{" else ")"
        if kind in ("comment", "preamble"):
            is_read = closing == "}" and unclosed < MOST_UNCLOSED
            end = delimited_end(text, head.end() - 1, limit) if is_read else 0
            place, unclosed = end or head.end(), unclosed + (not end)
            continue
        key, place, has_comma = ("", head.end(), True) if kind == "string" else _read_key(text, head, limit)
        fields, end, is_plain = _read_fields(text, place, limit, closing)
        if fields is None and limit < len(text):
            quoted = islice(_LINE_HEAD.finditer(text, limit), MOST_QUOTED, None)
            longer = _read_fields(text, place, next((head.start() for head in quoted), len(text)), closing)
            if any(text[start] == "{" and start < limit < stop for _, start, stop in longer[0] or ()):
                fields, end, is_plain = longer
        if fields is None or _MORE_FIELDS.match(text, end, limit):
            line_start = text.rfind("\n", 0, head.start()) + 1
            if fields is None and _COMMENTED.search(text, line_start, head.start()):
                continue
            following = _NEXT_HEAD.search(text, end, limit)
            fields, end = None, following.start() if following else limit
        line += text.count("\n", counted, head.start())
        counted, place = head.start(), max(end, head.end())
        is_plain = is_plain and "\n" not in head[0]
        yield Entry(kind, key, line, head.start(), end, fields if has_comma else None, is_plain)


def _read_key(text: str, head: re.Match[str], limit: int) -> tuple[str, int, bool]:
    """Return the key of an entry, where its fields begin, and if there is a comma before them."""
    place = head.end()
    if _NO_KEY.match(text, place, limit) or not (key := _KEY.match(text, place, limit)):
        return "", place, True
    return key[1], key.end(), key[0].endswith(",") or text.startswith("}", key.end())


def _read_fields(
    text: str, place: int, limit: int, closing: str
) -> tuple[tuple[Field, ...] | None, int, bool]:
    """Return the fields from a place on, where the entry ends, and if it has no comments.

    Malformed fields are None, and end at the latest at the limit.
    """
    fields, is_clean = list[Field](), True
    while gap := _GAP.match(text, place, limit):
        is_clean = is_clean and "%" not in gap[0] and gap[0].count(",") <= bool(fields)
        place = gap.end()
        if text.startswith(closing, place) and place < limit:
            return tuple(fields), place + 1, is_clean
        name = _NAME.match(text, place, limit)
        end = name and _value_parts(text, name.end(), limit)[1]
        if not name or not end:
            break
        fields.append(Field(name[1], name.end(), end))
        space = _SPACE.match(text, end, limit)
        place = space.end() if space else end
        is_clean = is_clean and "%" not in text[end:place] and not name[1].startswith("@")
        if place >= limit or text[place] not in f",{closing}":
            break
    return None, place, is_clean


def _value_parts(text: str, place: int, limit: int) -> tuple[list[tuple[int, int]], int]:
    """Return the spans of the parts of a value, with their delimiters, which # joins, and its end; 0 if it is
    malformed."""
    parts = list[tuple[int, int]]()
    while place < limit:
        if text[place] in '{"':
            end = delimited_end(text, place, limit)
        else:
            end = bare.end() if (bare := _BARE.match(text, place, limit)) else 0
        parts.append((place, end))
        joined = _JOINED.match(text, end, limit) if end else None
        if not joined:
            return parts, end
        place = joined.end()
    return parts, 0


def read_value(written: str, strings: Mapping[str, str]) -> str | None:
    """Return a value without delimiters; parts joined by # are joined. None if it is malformed or too long.

    >>> read_value('"A " # {B{c}} # jan', {"jan": "January"}), read_value("{a} b", {})
    ('A B{c}January', None)
    """
    written = written.strip()
    parts, end = _value_parts(written, 0, len(written))
    texts = [
        written[a + 1 : b - 1] if written[a] in '{"' else strings.get(written[a:b].lower(), written[a:b])
        for a, b in parts
    ]
    return "".join(texts) if end == len(written) and sum(map(len, texts)) <= LONGEST else None


def _recover(source: str, entry: Entry, strings: Mapping[str, str]) -> ReadEntry | None:
    """Read a malformed entry by its lines: a field begins at `name =` and ends where the next one begins."""
    head = _HEAD.match(source)
    assert head
    place = head.end()
    if entry.key:
        place = source.index(entry.key, place) + len(entry.key)
    raw = f",{_LINE_COMMENT.sub('', source[place:]).rstrip()}"
    starts = list(_LINE_FIELD.finditer(raw))
    if not starts:
        return None
    fields, broken = dict[str, str](), []
    for match, end in zip(starts, [*(match.start() for match in starts[1:]), len(raw)], strict=True):
        written = raw[match.end() : end].strip().removesuffix(",")
        value = read_value(written, strings)
        if value is None and end == len(raw):  # with the brace that closes the entry
            value = read_value(written.removesuffix("}").rstrip().removesuffix(","), strings)
        if value is None:
            broken.append(match[1])
            value = _UNESCAPED_BRACES.sub("", written).strip().strip('"')
        fields.setdefault(match[1].lower(), value)
    where = f" in {', '.join(broken)}" if broken else ""
    problem = f"braces, quotes or commas do not match{where}; the entry was read as far as possible"
    return ReadEntry(entry.kind, entry.key, fields, write_fields(entry.kind, entry.key, fields), problem)


def write_fields(kind: str, key: str, fields: Mapping[str, str]) -> str:
    """Return an entry. fields: LaTeX by name."""
    lines = "".join(
        f"  {name} = {value if name == 'month' and value.lower() in MONTHS else f'{{{value}}}'},\n"
        for name, value in fields.items()
    )
    return f"@{kind}{{{key},\n{lines}}}"
