"""Drafts in Org: [cite:@?], [cite/t:see @lee2020; @TODO], [CITE]."""

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

SUFFIXES = (".org",)

KEY = re.compile(r"(?<!\w)@([\w\uf000-\uf8ff](?:[\w\uf000-\uf8ff:.#$%&+?<>~/-]*[\w\uf000-\uf8ff/])?|\?+|)")
CITATION = re.compile(r"\[cite(?:/[\w/-]*)?:([^\[\]]{0,5000})\]")
NOT_TEXT = re.compile(
    r"^[ \t]*#(?=[ \t]|$)[^\n]*|^[ \t]*#\+begin_(comment|src|example|export)\b.*?(?:^[ \t]*#\+end_\1|\Z)"
    r"|^[ \t]*:[A-Z_]+:[ \t]*\n.*?(?:^[ \t]*:END:|\Z)|(?<!\S)([=~])(?=\S)[^\n]{0,500}?(?<=\S)\2(?!\w)"
    r"|\\\((?:[^\\]|\\(?![()])){0,2000}\\\)|\\\[(?:[^\\]|\\(?![\[\]])){0,5000}\\\]",
    re.MULTILINE | re.DOTALL | re.IGNORECASE,
)
BIBLIOGRAPHY = re.compile(r"(^[ \t]*#\+bibliography:[ \t]*)([^\n]*)", re.MULTILINE | re.IGNORECASE)
_COMMAND = re.compile(rf"{CITATION.pattern}|{CITE_MARK.pattern}", re.IGNORECASE)
_KEYWORD = r"^[ \t]*#\+{}:[ \t]*([^\n]*)"
_TITLE, _DATE = (re.compile(_KEYWORD.format(name), re.M | re.I) for name in ("title", "date"))
_ABSTRACT = re.compile(r"^[ \t]*#\+begin_abstract\b(.*?)^[ \t]*#\+end_abstract", re.M | re.I | re.S)
_HEADING = re.compile(r"^(\*+)[ \t]+(.*?)[ \t]*(?::[\w@:]+:)?[ \t]*$", re.MULTILINE)
_LINE = re.compile(r"^[ \t]*(?:#\+[^\n]*|\|[^\n]*|[-+][ \t]+|\d+[.)][ \t]+)", re.MULTILINE)
_LINK = re.compile(r"\[\[[^\[\]\n]*\](?:\[([^\[\]\n]*)\])?\]|\[fn:[^\[\]\n]*\]")
_EMPHASIS = re.compile(r"(?<![\w*/_+])([*/_+])(?=\S)([^*/_+\n]{1,500}?)(?<=\S)\1(?!\w)")


def cite_org(key: str) -> str:
    return f"[cite:@{key}]"


def fill_org(command: str, keys: Sequence[str]) -> tuple[str, int] | None:
    """Insert keys in a citation; see `Syntax.fill`.

    >>> fill_org("[cite/t:see @lee2020; @?]", ["diaz", "bo"]), fill_org("[CITE]", ["diaz"])
    (('[cite/t:see @lee2020; @diaz]', 1), ('[cite:@diaz]', 1))
    """
    left, missing = list(keys), False

    def replace(match: re.Match[str]) -> str:
        nonlocal missing
        if not MISSING.fullmatch(match[1]):
            return match[0]
        missing = True
        return f"@{left.pop(0)}" if left else match[0]

    text = KEY.sub(replace, "[cite:@?]" if CITE_MARK.fullmatch(command) else command)
    return (text, len(keys) - len(left)) if missing else None


ORG = Syntax(_COMMAND, fill_org, "[cite:@?] or [CITE]", "# {}\n", BIBLIOGRAPHY)


def org_keys(match: re.Match[str]) -> list[str]:
    """Return the keys of a match of CITATION."""
    return [key for key in KEY.findall(match[1]) if key]


def parse_org(text: str) -> Contents:
    text = NOT_TEXT.sub(" ", text)
    title, date, abstract = (pattern.search(text) for pattern in (_TITLE, _DATE, _ABSTRACT))
    sections, paragraphs, keys = read_sections(text, CITATION, org_keys, _HEADING, plain_org)
    about = abstract[1] if abstract else ""
    about = about or next((part for _, name, part in sections if name.lower() == "abstract"), "")
    year = find_year(date[1]) if date else 0
    metadata = Metadata("", plain_org(title[1] if title else ""), plain_org(about), year)
    return Contents(metadata, paragraphs, keys, name_bibliographies(BIBLIOGRAPHY, text), [])


def plain_org(text: str) -> str:
    """Remove keywords, tables, links and emphasis.

    >>> plain_org("- We *parse* [[https://x.org][trees]].")
    'We parse trees.'
    """
    text = _LINK.sub(lambda match: match[1] or " ", _LINE.sub("", text))
    return " ".join(_EMPHASIS.sub(r"\2", text).split())


def read_org(path: Path, root: Path | None, reader: PlaceholderReader) -> Contents:
    return parse_org(reader(path.resolve()))
