"""Reads drafts in LaTeX or Markdown and finds their missing citations with contexts.

A citation is missing if its key is empty, ?, TODO, FIXME or XXX; in Markdown also [CITE]. Missing citations
get placeholder keys before parsing, so that the parsers of full texts (datasets.fulltext) cut their contexts
like those of training. A placeholder that is gone after parsing was in a comment or in code.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import chain, groupby
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from citerec.datasets.errors import InputError
from citerec.datasets.files import read_limited
from citerec.datasets.fulltext.catalogue import find_year
from citerec.datasets.fulltext.contexts import cut_window, find_citations
from citerec.datasets.fulltext.documents import FullText, Metadata, Paragraph, Reference
from citerec.datasets.fulltext.latex import (
    CITATION,
    KEY_GROUP,
    bib_files,
    citation_placeholder,
    cited_keys,
    document_body,
    number_keys,
    read_bibliography,
    read_metadata,
    read_paragraph,
    read_sections,
)
from citerec.datasets.fulltext.latex_source import (
    MAX_FILE_BYTES,
    Inputs,
    clean_latex,
    read_source,
    remove_blocks,
    running_text,
)
from citerec.datasets.records import OTHER_MARKER, TARGET_MARKER
from citerec.library.explanation import MARK
from citerec.retrieval.article_text import sentence_starts

WINDOW = 200
"""Characters on each side of a missing citation, as in the training contexts."""
MARK_KEY = MARK.strip("[]")
"""A missing citation among other keys."""
_MARKDOWN = (".md", ".markdown", ".qmd", ".rmd", ".txt")
_PLACEHOLDER = "\uf000"
"""First character of placeholder keys. `clean_latex` removes their characters from texts; none is a word."""
_MISSING = re.compile(r"\?*|(?:TODO|FIXME|XXX)(?:\W.*)?", re.IGNORECASE)


@dataclass(frozen=True)
class Place:
    """A missing citation: text[start:end] of a file is `command`, which lacks a key.

    context: surrounding text with TARGETCIT. sentence: for display, with [CITE] and the keys of other
    citations. beside: keys cited in the same sentence.
    """

    file: Path
    start: int
    end: int
    line: int
    command: str
    context: str
    sentence: str
    beside: tuple[str, ...]


@dataclass(frozen=True)
class Draft:
    """A parsed draft.

    cited: bibliography entries by key, None if missing. files: unchanged texts by path, the draft's first.
    bibs: .bib files. notes: what was skipped, and why.
    """

    path: Path
    title: str
    abstract: str
    year: int
    places: Sequence[Place]
    cited: dict[str, Reference | None]
    files: dict[Path, str]
    bibs: Sequence[Path]
    notes: Sequence[str]


class Syntax(NamedTuple):
    """commands: matches citations. fill: inserts missing keys; returns the text and their count, or None."""

    commands: re.Pattern[str]
    fill: Callable[[str, Sequence[str]], tuple[str, int] | None]


class _Contents(NamedTuple):
    """keys: cited outside of comments and code, and placeholders. source: LaTeX that names the .bib files."""

    metadata: Metadata
    paragraphs: list[Paragraph]
    keys: Collection[str]
    source: str
    notes: list[str]


def syntax_for(path: Path) -> Syntax:
    return MARKDOWN if path.suffix.lower() in _MARKDOWN else LATEX


def read_draft(path: Path, root: Path | None = None) -> Draft:
    """Read a draft with its inputs. root: folder that may contain inputs; None means the draft's folder.

    Raises InputError if a file cannot be read or is not UTF-8, or if no citation is missing.
    """
    path = path.resolve()
    if root is not None and not (root.is_dir() and path.is_relative_to(root.resolve())):
        raise InputError(f"root={root}: is not a folder that contains the draft")
    reader = _PlaceholderReader(syntax_for(path))
    read = _read_latex if reader.syntax is LATEX else _read_markdown
    metadata, paragraphs, keys, source, notes = read(path, root, reader)
    known = [key for key in keys if not key.startswith(_PLACEHOLDER)]
    entries = read_bibliography(path, source, known, root)
    cited = {key: entries.get(key) for key in known}
    full_text = FullText(paragraphs, dict.fromkeys([*cited, *reader.spans], Reference()) | entries)
    contexts: dict[str, str] = {}
    for citation in find_citations(full_text, WINDOW + len(OTHER_MARKER), Counter()):
        if citation.ref in reader.spans:
            context = cut_window(citation.left, citation.right, WINDOW, "whole")
            if re.search(r"\w", context.replace(TARGET_MARKER, "").replace(OTHER_MARKER, "")):
                contexts.setdefault(citation.ref, context)
    sentences: dict[str, tuple[str, tuple[str, ...]]] = {}
    for key, sentence in chain.from_iterable(map(_sentences, paragraphs)):
        sentences.setdefault(key, sentence)
    places = []
    for key, (file, start, end) in reader.spans.items():
        text = reader.texts[file]
        line, command = text.count("\n", 0, start) + 1, text[start:end]
        if key in contexts:
            places.append(Place(file, start, end, line, command, contexts[key], *sentences[key]))
        elif key in keys:
            notes.append(f"{file.name}:{line}: {command} has no running text around it and was skipped")
    if not places:
        without_text = any(key in keys for key in reader.spans)
        found = (
            "missing citations have no running text around them" if without_text else "no missing citations"
        )
        marks = "[@?] or [CITE]" if reader.syntax is MARKDOWN else r"\cite{?}, \cite{} or \citep{TODO}"
        raise InputError(f"{path}: {found}; write {marks} where a citation is missing")
    year, bibs = metadata.year or date.today().year, bib_files(path, source, root)
    return Draft(path, metadata.title, metadata.abstract, year, places, cited, reader.texts, bibs, notes)


class _PlaceholderReader:
    """Reads files, inserting a placeholder key for each missing citation. Keeps original texts and spans."""

    def __init__(self, syntax: Syntax) -> None:
        self.syntax = syntax
        self.texts: dict[Path, str] = {}
        self.spans: dict[str, tuple[Path, int, int]] = {}
        """File, start and end of the command of each placeholder."""
        self._marked: dict[Path, str] = {}

    def __call__(self, path: Path) -> str:
        if path not in self._marked:
            text = self.texts[path] = read_text(path)
            pieces, done = [], 0
            for match in self.syntax.commands.finditer(text):
                thousands, ones = divmod(len(self.spans), 1000)
                key = f"{_PLACEHOLDER}{chr(0xF001 + thousands)}{chr(0xF401 + ones)}"
                if filled := self.syntax.fill(match[0], [key]):
                    self.spans[key] = (path, *match.span())
                    before, after = filled[0].split(key, 1)
                    pieces += [clean_latex(text[done : match.start()] + before), key, clean_latex(after)]
                    done = match.end()
            self._marked[path] = "".join([*pieces, clean_latex(text[done:])]).removeprefix("\ufeff")
        return self._marked[path]


def read_text(path: Path) -> str:
    """Read a file without changes. Raises InputError if it cannot be read or is not UTF-8 text."""
    content = read_limited(path, MAX_FILE_BYTES)
    if content.startswith(b"%PDF"):
        raise InputError(f"{path}: is a PDF; give its LaTeX or Markdown source")
    if b"\0" in content:
        raise InputError(f"{path}: is not text; give a draft in LaTeX or Markdown, in UTF-8")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{path}: is not UTF-8 (line {line}); convert it, e.g. with iconv -f LATIN1 -t UTF-8"
        ) from None


def _sentences(paragraph: Paragraph) -> Iterator[tuple[str, tuple[str, tuple[str, ...]]]]:
    """Yield each placeholder in a paragraph with its sentence and the keys cited there."""
    text = paragraph.text
    bounds = [0, *sentence_starts(text), len(text)]
    spans = sorted(span for span in set(paragraph.citations) if span.ref is not None)
    for number, group in groupby(spans, key=lambda span: bisect_right(bounds, span.start)):
        cited = list(group)
        edges = [bounds[number - 1], *(edge for span in cited for edge in span[:2]), bounds[number]]
        between = [text[a:b] for a, b in zip(edges[::2], edges[1::2], strict=True)]
        keys = [str(span.ref) for span in cited]
        printed = ["?" if key.startswith(_PLACEHOLDER) else key for key in keys]
        beside = tuple(dict.fromkeys(key for key in keys if not key.startswith(_PLACEHOLDER)))
        for placeholder in (key for key in keys if key.startswith(_PLACEHOLDER)):
            shown = [
                MARK_KEY if key == placeholder else text for key, text in zip(keys, printed, strict=True)
            ]
            sentence = "".join(chain(*zip(between, [*shown, ""], strict=True))).strip()
            yield placeholder, (sentence, beside)


# LaTeX.

_CODE = "verbatim|Verbatim|lstlisting|minted|filecontents|comment|tikzpicture|pgfpicture"
_BEGIN_CODE, _END_CODE = (re.compile(rf"\\{tag}\s*\{{(?:{_CODE})\*?\}}") for tag in ("begin", "end"))
_FLOAT = re.compile(
    r"\\(?:begin|end)\s*\{(?:abstract|(?:sub|wrap|sideways)?figure|(?:wrap|sideways|long)?table)\*?\}"
)
_ENVIRONMENT = re.compile(r"\\(?:begin|end)\s*\{[^{}]*\}(?:\s*\[[^\[\]]*\])?")
_ASIDE = re.compile(
    r"\\(?:footnote|footnotetext|caption|todo|marginpar|thanks|abstract)\*?(?:\[[^\[\]]*\])?(?=\{)"
)


def _fill_latex(command: str, keys: Sequence[str]) -> tuple[str, int] | None:
    r"""Insert keys in a citation command; see `Syntax.fill`.

    >>> _fill_latex(r"\citep[see][]{lee2020, ?}", ["diaz", "bo"]), _fill_latex(r"\cite{lee2020}", [])
    (('\\citep[see][]{lee2020, diaz}', 1), None)
    """
    left, missing = list(keys), False

    def replace(match: re.Match[str]) -> str:
        nonlocal missing
        new, parts = [], match[1].split(",")
        for part in parts:
            key = part.strip()
            if not _MISSING.fullmatch(key) or (not key and len(parts) > 1):
                new.append(part)
                continue
            missing = True
            if left:
                new.append(part[: len(part) - len(part.lstrip())] + left.pop(0))
        start = match.start(1) - match.start()
        return f"{match[0][:start]}{','.join(new)}}}" if new else match[0]

    text = KEY_GROUP.sub(replace, command)
    return (text, len(keys) - len(left)) if missing else None


LATEX = Syntax(CITATION, _fill_latex)


def _read_latex(path: Path, root: Path | None, reader: _PlaceholderReader) -> _Contents:
    inputs = Inputs(reader, root)
    source = remove_blocks(read_source(path, inputs), _BEGIN_CODE, _END_CODE)
    body = document_body(source) or source  # a chapter has no \begin{document}
    keys = dict.fromkeys(key for match in CITATION.finditer(source) for key in cited_keys(match[1]))
    paragraphs, _ = read_sections(running_text(body))
    read = {span.ref for part in paragraphs for span in part.citations}
    if unread := {key for key in keys if key.startswith(_PLACEHOLDER)} - read:
        # In captions, footnotes, tables or the abstract, which training contexts exclude.
        separated = _ENVIRONMENT.sub(" ", _FLOAT.sub(r"\\section{}", body))
        more, _ = read_sections(_ASIDE.sub(" ", separated))
        paragraphs += [part for part in more if any(span.ref in unread for span in part.citations)]
    notes = [f"\\input{{{name}}} is not followed: {why}" for name, why in inputs.skipped.items()]
    return _Contents(read_metadata(CITATION.sub("", source), ""), paragraphs, keys, source, notes)


# Markdown (Pandoc).

_GROUP = re.compile(r"\[[^\[\]\n]*(?:\n(?![ \t]*\n)[^\[\]\n]*){0,5}\](?![(\[:{])")
_CITE_MARK = re.compile(r"\[(?:cite|citation needed)\]", re.IGNORECASE)
_KEY = re.compile(r"(?<![\w@])-?@(?:\{([^{}\s]+)\}|([\w\uf000](?:[\w:.#$%&+?<>~/-]*[\w/])?)|(\?+))")
_FRONT_MATTER = re.compile(r"\A\s*---[ \t]*\n(.*?)\n(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_NOT_TEXT = re.compile(
    r"^ {0,3}(`{3,}|~{3,})[^\n]*\n.*?(?:^ {0,3}\1[`~]*[ \t]*$|\Z)|<!--.*?(?:-->|\Z)|\$\$.*?\$\$"
    r"|(?<!`)(`{1,2})(?!`)[^\n]{1,1000}?(?<!`)\2(?!`)|!\[[^\[\]]*\]\([^)]*\)",
    re.MULTILINE | re.DOTALL,
)
_HEADING = re.compile(r"^ {0,3}(#{1,6})[ \t]+(.*?)[ \t]*#*[ \t]*$|^(\S.*)\n(=+|-{2,})[ \t]*$", re.MULTILINE)
_MARKS = re.compile("\ue000\\d+\ue001")
_LINK = re.compile(r"\[([^\[\]]*)\](?:\([^)]*\)|\[[^\[\]]*\])|\[\^[^\]]*\]:?|<(https?://[^>]*)>")
_LINE_START = re.compile(r"^[ \t]*(?:>[ \t]?|[-*+][ \t]+|\d+[.)][ \t]+)+", re.MULTILINE)
_EMPHASIS = re.compile(r"(?<!\w)(\*{1,3}|_{1,3})(?=\S)([^*_]{1,500}?)(?<=\S)\1(?!\w)|\*\*")
_BACKSLASH = re.compile(r"\\([^\w\s])")


def _fill_markdown(group: str, keys: Sequence[str]) -> tuple[str, int] | None:
    """Insert keys in a citation group; see `Syntax.fill`.

    >>> _fill_markdown("[see @lee2020; @?]", ["diaz", "bo"]), _fill_markdown("[CITE]", ["diaz", "bo"])
    (('[see @lee2020; @diaz]', 1), ('[@diaz]', 1))
    """
    left = [f"@{key}" if _KEY.fullmatch(f"@{key}") else f"@{{{key}}}" for key in keys]
    missing = False

    def replace(match: re.Match[str]) -> str:
        nonlocal missing
        if not match[3] and not _MISSING.fullmatch(match[1] or match[2]):
            return match[0]
        missing = True
        return left.pop(0) if left else match[0]

    text = _KEY.sub(replace, "[@?]" if _CITE_MARK.fullmatch(group) else group)
    return (text, len(keys) - len(left)) if missing else None


MARKDOWN = Syntax(_GROUP, _fill_markdown)


def _read_markdown(path: Path, root: Path | None, reader: _PlaceholderReader) -> _Contents:
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
    return _Contents(metadata, paragraphs, numbers, source, [])


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
