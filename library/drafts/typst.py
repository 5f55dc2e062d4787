"""Drafts in Typst: #cite(<?>), @?, @TODO, [CITE]."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from citerec.datasets.fulltext.catalogue import find_year
from citerec.datasets.fulltext.documents import Metadata
from citerec.library.drafts.placeholders import (
    CITE_MARK,
    MISSING,
    Contents,
    PlaceholderReader,
    Syntax,
    name_bibliographies,
    read_sections,
)

SUFFIXES = (".typ",)

_LABEL = r"<([^<>\s]*)>|label\(\"([^\"\n]*)\"\)"
KEY = re.compile(rf"\bcite\(\s*({_LABEL})|(?<![\w@\\/.])@((?:[\w\uf000](?:[\w:.-]*\w)?)|\?+)")
"""A cited key: in a label (group 1), which is that of a call of cite, or after @."""
NOT_TEXT = re.compile(
    r"(?<!:)//[^\n]*|/\*.*?(?:\*/|\Z)|(`{3,}).*?(?:\1|\Z)|`[^`\n]*`|(?<!\\)\$(?:[^$\\]|\\.){0,2000}\$",
    re.DOTALL,
)
BIBLIOGRAPHY = re.compile(r"(\bbibliography\(\s*\(?)((?:\s*\"[^\"\n]*\"\s*,?)+)")
_REFERENCE = re.compile(r"\w(?:[\w:.-]*\w)?")
"""What may follow @."""
CROSS_REFERENCE = re.compile(r"(?:fig|tab|tbl|eq|equ|eqt|sec|lst|alg|thm|lem|def|app|chap)[-:]")
_COMMAND = re.compile(
    rf"#?\bcite\(\s*(?:{_LABEL})[^()\n]*\)|(?<![\w@\\/.])@(?:\?+|(?:TODO|FIXME|XXX)\b[\w:.-]*)"
    rf"|{CITE_MARK.pattern}",
    re.IGNORECASE,
)
CITATION = re.compile(rf"#?(?:{KEY.pattern})(?:(?<=[>)])[^()\n]*\))?(?:\[[^\[\]\n]*\])?")
_FIELD = r"(?:\"([^\"]{0,2000})\"|\[((?:[^\[\]]|\[[^\[\]]*\]){0,20000})\])"
_TITLE, _ABSTRACT = (re.compile(rf"\b{name}\s*:\s*{_FIELD}") for name in ("title", "abstract"))
_DATE = re.compile(r"\bdate\s*:([^\n]*)|\bdatetime\(\s*year\s*:([^,)\n]*)")
_HEADING = re.compile(r"^[ \t]*(=+)[ \t]+(.*?)[ \t]*(?:<[^<>\s]*>)?[ \t]*$", re.MULTILINE)
_RULE = re.compile(r"^[ \t]*#(?:set|show|import|include|let|bibliography)\b[^\n]*", re.MULTILINE)
_CALL = re.compile(r"#[A-Za-z][\w.-]*(?:\([^()\n]{0,1000}\))?|(?<=\s)<[\w:.-]+>")
_SIGNS = re.compile(r"(?<!\w)[*_](?=\S)|(?<=\S)[*_](?!\w)|[\[\]]|^[ \t]*[-+/][ \t]+", re.MULTILINE)
_ESCAPED = re.compile(r"\\([^\w\s])")


def cite_typst(key: str) -> str:
    """Return the citation of a key.

    >>> cite_typst("lee2020"), cite_typst("conf/acl/Lee")
    ('@lee2020', '#cite(label("conf/acl/Lee"))')
    """
    return f"@{key}" if _REFERENCE.fullmatch(key) else f'#cite(label("{key}"))'


def fill_typst(command: str, keys: Sequence[str]) -> tuple[str, int] | None:
    """Insert a key in a citation; see `Syntax.fill`.

    >>> fill_typst("@?", ["bo"]), fill_typst('#cite(<?>, form: "prose")', ["bo"]), fill_typst("@lee2020", [])
    (('@bo', 1), ('#cite(label("bo"), form: "prose")', 1), None)
    """
    found = KEY.search(command)
    if found and not MISSING.fullmatch(found[2] or found[3] or found[4] or ""):
        return None
    if not keys:
        return command, 0
    if found is None or found[1] is None:
        return cite_typst(keys[0]), 1
    start, end = found.span(1)
    return f'{command[:start]}label("{keys[0]}"){command[end:]}', 1


TYPST = Syntax(_COMMAND, fill_typst, "#cite(<?>), @? or [CITE]", "/* {} */", BIBLIOGRAPHY)


def typst_keys(match: re.Match[str]) -> list[str]:
    """Return the key of a match of KEY, unless it refers to a figure or the like."""
    key = match[2] or match[3] or match[4]
    return [] if not key or CROSS_REFERENCE.match(key) else [key]


def parse_typst(text: str) -> Contents:
    text = NOT_TEXT.sub(" ", text)
    given = [match[1] or match[2] if match else "" for match in (_TITLE.search(text), _ABSTRACT.search(text))]
    date = _DATE.search(text)
    body = _RULE.sub("", text)
    sections, paragraphs, keys = read_sections(body, CITATION, typst_keys, _HEADING, plain_typst)
    title = given[0] or next((name for level, name, _ in sections if level == 1), "")
    abstract = given[1] or next((part for _, name, part in sections if name.lower() == "abstract"), "")
    year = find_year(date[1] or date[2] or "") if date else 0
    metadata = Metadata("", plain_typst(title), plain_typst(abstract), year)
    return Contents(metadata, paragraphs, keys, name_bibliographies(BIBLIOGRAPHY, text), [])


def plain_typst(text: str) -> str:
    """Remove calls, labels, emphasis and escapes.

    >>> plain_typst("We *parse* #text(red)[trees] fast. <sec:a>")
    'We parse trees fast.'
    """
    return " ".join(_ESCAPED.sub(r"\1", _SIGNS.sub("", _CALL.sub("", text))).split())


def read_typst(path: Path, root: Path | None, reader: PlaceholderReader) -> Contents:
    return parse_typst(reader(path.resolve()))
