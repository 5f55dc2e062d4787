"""Placeholder keys for the missing citations of a draft.

A citation is missing if its key is empty, ?, TODO, FIXME or XXX. Missing citations get placeholder keys
before parsing, so that the parsers of full texts (datasets.fulltext) cut their contexts like those of
training. A placeholder that is gone after parsing was in a comment or in code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from citerec.base.errors import InputError
from citerec.base.files import read_limited
from citerec.datasets.fulltext.documents import Metadata, Paragraph
from citerec.datasets.languages.latex import citation_placeholder, number_keys, read_paragraph
from citerec.datasets.languages.latex_source import MAX_FILE_BYTES, clean_latex
from citerec.datasets.records import TARGET_MARKER

PLACEHOLDER = "\uf000"
"""First character of placeholder keys. `clean_latex` removes their characters from texts; none is a word."""
MISSING = re.compile(r"\?*|(?:TODO|FIXME|XXX)(?:\W.*)?", re.IGNORECASE)
"""A key that stands for a missing one."""
_PARTS = re.compile(r"[{}\[\]<>\",;@]")
CITE_MARK = re.compile(r"\[(?:cite|citation needed)\]", re.IGNORECASE)
"""A missing citation in every syntax but LaTeX."""
_SUFFIX = re.compile(r"(?:TODO|FIXME|XXX)(?=\W)(.*)", re.IGNORECASE | re.DOTALL)
_NAMES = re.compile(r"[^\s\",{}][^\",{}\n]*?(?=\s*(?:[\",{}\n]|$))")
_WORDS = re.compile(r"[^\W\d_]{2,}|\d+")


class Syntax(NamedTuple):
    """commands: matches citations. fill: inserts missing keys; returns the text and their count, or None.

    marks: of missing citations, for messages. comment: of the syntax; one that ends its line begins it, too.
    bibliography: matches what names .bib files, which are group 2. replaced: the keys of a command that
    `fill` replaces.
    """

    commands: re.Pattern[str]
    fill: Callable[[str, Sequence[str]], tuple[str, int] | None]
    marks: str = ""
    comment: str = ""
    bibliography: re.Pattern[str] | None = None
    replaced: Callable[[str], Sequence[str]] = lambda command: ()


class Contents(NamedTuple):
    """keys: cited outside of comments and code, and placeholders. source: LaTeX that names the .bib files.

    csl: names of CSL JSON files.
    """

    metadata: Metadata
    paragraphs: list[Paragraph]
    keys: Collection[str]
    source: str
    notes: list[str]
    csl: Sequence[str] = ()


def read_sections(
    text: str,
    citation: re.Pattern[str],
    keys_of: Callable[[re.Match[str]], list[str]],
    heading: re.Pattern[str],
    convert: Callable[[str], str],
) -> tuple[list[tuple[int, str, str]], list[Paragraph], list[str]]:
    """Split a text at its headings; returns (level, name, text) per section, its paragraphs and cited keys.

    heading: group 1 has a sign per level, group 2 the name. Text before the first heading has level 0.
    """
    cites: list[list[str]] = []

    def insert_mark(match: re.Match[str]) -> str:
        if keys := keys_of(match):
            cites.append(keys)
            return citation_placeholder(len(cites) - 1)
        return match[0]

    text = citation.sub(insert_mark, text)
    numbers = number_keys(cites)
    starts = list(heading.finditer(text))
    ends = [*(match.start() for match in starts), len(text)]
    sections = [(0, "", text[: ends[0]])]
    sections += [
        (len(match[1]), convert(match[2]), text[match.end() : end])
        for match, end in zip(starts, ends[1:], strict=True)
    ]
    paragraphs = [
        read_paragraph(part, cites, numbers, f"{number} {name}", convert)
        for number, (_, name, part) in enumerate(sections)
    ]
    return sections, paragraphs, list(numbers)


def name_bibliographies(pattern: re.Pattern[str], text: str) -> str:
    """Return LaTeX that names the .bib files that a text names."""
    names = (name for match in pattern.finditer(text) for name in _NAMES.findall(match[2]))
    return "".join(f"\\addbibresource{{{name}}}" for name in names if name.endswith(".bib"))


def target_mark(command: str) -> str:
    r"""Return TARGET_MARKER after the words of the suffixes of missing keys, as rankers read names and years.

    >>> target_mark(r"\citep{TODO:blei2003latent, lee2020}"), target_mark("[see @TODO:srivastava; @?]")
    ('Blei 2003 Latent TARGETCIT', 'Srivastava TARGETCIT')
    """
    keys = (_SUFFIX.fullmatch(part.strip()) for part in _PARTS.split(command))
    words = (word for key in keys if key for word in _WORDS.findall(key[1]))
    return " ".join([*(word[0].upper() + word[1:] for word in words), TARGET_MARKER])


class PlaceholderReader:
    """Reads files, inserting a placeholder key for each missing citation. Keeps original texts and spans."""

    def __init__(self, syntax: Syntax) -> None:
        self.syntax = syntax
        self.texts: dict[Path, str] = {}
        self.spans: dict[str, tuple[Path, int, int]] = {}
        """File, start and end of the command of each placeholder."""
        self.replaced: dict[str, tuple[str, ...]] = {}
        """The keys that each placeholder replaces."""
        self.marks: dict[str, str] = {}
        """The mark in each placeholder's own context (target_mark)."""
        self._marked: dict[Path, str] = {}

    def original_keys(self, keys: Iterable[str]) -> Iterator[str]:
        """Yield the keys, and instead of a placeholder those that it replaces."""
        for key in keys:
            yield from self.replaced.get(key, (key,))

    def __call__(self, path: Path) -> str:
        if path not in self._marked:
            text = self.texts[path] = read_text(path)
            pieces, done = [], 0
            for match in self.syntax.commands.finditer(text):
                thousands, ones = divmod(len(self.spans), 1000)
                key = f"{PLACEHOLDER}{chr(0xF001 + thousands)}{chr(0xF401 + ones)}"
                if filled := self.syntax.fill(match[0], [key]):
                    self.spans[key] = (path, *match.span())
                    self.replaced[key] = tuple(self.syntax.replaced(match[0]))
                    self.marks[key] = target_mark(match[0])
                    before, after = filled[0].split(key, 1)
                    pieces += [clean_latex(text[done : match.start()] + before), key, clean_latex(after)]
                    done = match.end()
            self._marked[path] = "".join([*pieces, clean_latex(text[done:])]).removeprefix("\ufeff")
        return self._marked[path]


def read_text(path: Path) -> str:
    """Read a file without changes. Raises InputError if it cannot be read or is not UTF-8 text."""
    content = read_limited(path, MAX_FILE_BYTES)
    if content.startswith(b"%PDF"):
        raise InputError(f"{path}: is a PDF; give its source")
    if b"\0" in content:
        raise InputError(f"{path}: is not text; give a draft in LaTeX, Markdown, Typst or Org, in UTF-8")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{path}: is not UTF-8 (line {line}); convert it, e.g. with iconv -f LATIN1 -t UTF-8"
        ) from None
