"""Drafts in Markdown (Pandoc): [@?], [@TODO], [see @lee2020; @?], [CITE]."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from citerec.datasets.languages import markdown
from citerec.datasets.languages.markdown import GROUP, KEY, parse_document
from citerec.library.drafts.placeholders import CITE_MARK, MISSING, Contents, PlaceholderReader, Syntax

SUFFIXES = (*markdown.SUFFIXES, ".txt")

_COMMAND = re.compile(  # also without brackets
    rf"{GROUP.pattern}|(?<![\w@/\\])-?@(?:\?+|(?:TODO|FIXME|XXX)(?:[:.#-]\w+)*\b)(?!\w)"
)
_BIBLIOGRAPHY = re.compile(r"(?m)^(bibliography:[ \t]*)(.*)$")


def cite_markdown(key: str) -> str:
    """Return the citation of a key.

    >>> cite_markdown("lee2020"), cite_markdown("lee's")
    ('[@lee2020]', "[@{lee's}]")
    """
    return f"[{_cited(key)}]"


def _cited(key: str) -> str:
    return f"@{key}" if KEY.fullmatch(f"@{key}") else f"@{{{key}}}"


def fill_markdown(group: str, keys: Sequence[str]) -> tuple[str, int] | None:
    """Insert keys in a citation group; see `Syntax.fill`.

    >>> fill_markdown("[see @lee2020; @?]", ["diaz", "bo"]), fill_markdown("[CITE]", ["diaz", "bo"])
    (('[see @lee2020; @diaz]', 1), ('[@diaz]', 1))
    """
    left = list(map(_cited, keys))
    missing = False

    def replace(match: re.Match[str]) -> str:
        nonlocal missing
        if not match[3] and not MISSING.fullmatch(match[1] or match[2]):
            return match[0]
        missing = True
        return left.pop(0) if left else match[0]

    text = KEY.sub(replace, "[@?]" if CITE_MARK.fullmatch(group) else group)
    return (text, len(keys) - len(left)) if missing else None


MARKDOWN = Syntax(_COMMAND, fill_markdown, "[@?] or [CITE]", "<!-- {} -->", _BIBLIOGRAPHY)


def read_markdown(path: Path, root: Path | None, reader: PlaceholderReader) -> Contents:
    found = parse_document(path, read=reader)
    return Contents(found.metadata, found.paragraphs, found.keys, found.source, [], found.csl)
