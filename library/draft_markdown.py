"""Drafts in Markdown (Pandoc): [@?], [@TODO], [see @lee2020; @?], [CITE]."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import yaml

from citerec.datasets.errors import InputError
from citerec.datasets.fulltext.catalogue import find_year
from citerec.datasets.fulltext.documents import Metadata
from citerec.datasets.fulltext.latex import citation_placeholder, number_keys, read_paragraph
from citerec.library.draft_placeholders import MISSING, PLACEHOLDER, Contents, PlaceholderReader, Syntax

SUFFIXES = (".md", ".markdown", ".qmd", ".rmd", ".txt")

_GROUP = re.compile(r"\[[^\[\]\n]*(?:\n(?![ \t]*\n)[^\[\]\n]*){0,5}\](?![(\[:{])")
_COMMAND = re.compile(  # also without brackets
    rf"{_GROUP.pattern}|(?<![\w@/\\])-?@(?:\?+|(?:TODO|FIXME|XXX)(?:[:.#-]\w+)*\b)(?!\w)"
)
_CITE_MARK = re.compile(r"\[(?:cite|citation needed)\]", re.IGNORECASE)
_KEY = re.compile(r"(?<![\w@])-?@(?:\{([^{}\s]+)\}|([\w\uf000](?:[\w:.#$%&+?<>~/-]*[\w/])?)|(\?+))")
_FRONT_MATTER = re.compile(r"\A\s*---[ \t]*\n(.*?)\n(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_NOT_TEXT = re.compile(
    r"^ {0,3}(`{3,}|~{3,})[^\n]*\n.*?(?:^ {0,3}\1[`~]*[ \t]*$|\Z)|<!--.*?(?:-->|\Z)|\$\$.*?\$\$"
    r"|(?<!`)(`{1,2})(?!`)[^\n]{1,1000}?(?<!`)\2(?!`)"
    rf"|!\[[^\[\]{PLACEHOLDER}]*\]\([^)]*\)"
    rf"|(?<![\\$])\$(?=[^\s$])[^$\n]*{PLACEHOLDER}[^$\n]*(?<=\S)\$(?!\d)",  # a mark in a formula
    re.MULTILINE | re.DOTALL,
)
_HEADING = re.compile(r"^ {0,3}(#{1,6})[ \t]+(.*?)[ \t]*#*[ \t]*$|^(\S.*)\n(=+|-{2,})[ \t]*$", re.MULTILINE)
_MARKS = re.compile("\ue000\\d+\ue001")
_LINK = re.compile(r"!?\[([^\[\]]*)\](?:\([^)]*\)|\[[^\[\]]*\])|\[\^[^\]]*\]:?|<(https?://[^>]*)>")
_LINE_START = re.compile(r"^[ \t]*(?:>[ \t]?|[-*+][ \t]+|\d+[.)][ \t]+)+", re.MULTILINE)
_EMPHASIS = re.compile(r"(?<!\w)(\*{1,3}|_{1,3})(?=\S)([^*_]{1,500}?)(?<=\S)\1(?!\w)|\*\*")
_BACKSLASH = re.compile(r"\\([^\w\s])")


def fill_markdown(group: str, keys: Sequence[str]) -> tuple[str, int] | None:
    """Insert keys in a citation group; see `Syntax.fill`.

    >>> fill_markdown("[see @lee2020; @?]", ["diaz", "bo"]), fill_markdown("[CITE]", ["diaz", "bo"])
    (('[see @lee2020; @diaz]', 1), ('[@diaz]', 1))
    """
    left = [f"@{key}" if _KEY.fullmatch(f"@{key}") else f"@{{{key}}}" for key in keys]
    missing = False

    def replace(match: re.Match[str]) -> str:
        nonlocal missing
        if not match[3] and not MISSING.fullmatch(match[1] or match[2]):
            return match[0]
        missing = True
        return left.pop(0) if left else match[0]

    text = _KEY.sub(replace, "[@?]" if _CITE_MARK.fullmatch(group) else group)
    return (text, len(keys) - len(left)) if missing else None


MARKDOWN = Syntax(_COMMAND, fill_markdown)


def read_markdown(path: Path, root: Path | None, reader: PlaceholderReader) -> Contents:
    text = reader(path)
    front: dict[str, Any] = {}
    if start := _FRONT_MATTER.match(text):
        try:
            front = yaml.safe_load(start[1])
        except yaml.YAMLError as error:
            reason = " ".join(str(getattr(error, "problem", None) or error).split())
            raise InputError(f"{path}: its front matter (between --- lines) is not YAML: {reason}") from None
        front, text = front if isinstance(front, dict) else {}, text[start.end() :]
    text = _NOT_TEXT.sub(" ", text)
    cites: list[list[str]] = []

    def insert_placeholder(match: re.Match[str]) -> str:
        keys = [a or b for a, b, _ in _KEY.findall(match[0]) if a or b]
        cites.append(keys)
        return citation_placeholder(len(cites) - 1) if keys else match[0]

    text = _GROUP.sub(insert_placeholder, text)
    text = _KEY.sub(insert_placeholder, text)  # "@lee2020 shows"
    numbers = number_keys(cites)
    sections = _sections(text)
    paragraphs = [
        read_paragraph(section, cites, numbers, f"{number} {name}", _plain_markdown)
        for number, (_, name, section) in enumerate(sections)
    ]
    title = next((name for level, name, _ in sections if level == 1), "")
    abstract = next((part for _, name, part in sections if name.strip("*:. ").lower() == "abstract"), "")
    metadata = Metadata(
        id="",
        title=_front_matter_text(front, "title") or title,
        abstract=_front_matter_text(front, "abstract") or _plain_markdown(_MARKS.sub("", abstract)),
        year=find_year(_front_matter_text(front, "date")),
    )
    named = front.get("bibliography") or []
    source = "".join(f"\\addbibresource{{{name}}}" for name in ([named] if isinstance(named, str) else named))
    return Contents(metadata, paragraphs, numbers, source, [])


def _sections(text: str) -> list[tuple[int, str, str]]:
    """Split a text into (level, heading, text) per section. Text before the first heading has level 0."""
    sections, level, name, done = [], 0, "", 0
    for match in _HEADING.finditer(text):
        sections.append((level, name, text[done : match.start()]))
        level = len(match[1]) if match[1] else 1 if match[4].startswith("=") else 2
        name, done = _plain_markdown(_MARKS.sub("", match[2] or match[3] or "")), match.end()
    return [*sections, (level, name, text[done:])]


def _front_matter_text(front: dict[str, Any], name: str) -> str:
    value = front.get(name)
    return _plain_markdown(str(value)) if isinstance(value, str | int | date) else ""


def _plain_markdown(text: str) -> str:
    """Remove links, emphasis, escapes and block markers.

    >>> _plain_markdown("> We *parse* [trees](https://x.org) with `code`.")
    'We parse trees with `code`.'
    """
    text = _LINE_START.sub("", _LINK.sub(lambda match: match[1] or match[2] or " ", text))
    text = _EMPHASIS.sub(lambda match: match[2] or "", text)
    return " ".join(_BACKSLASH.sub(r"\1", text).split())
