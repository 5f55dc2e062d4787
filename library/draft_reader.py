"""A draft in LaTeX or Markdown: where a citation is missing, and what stands around it.

Missing is a citation whose key is empty, ?, TODO, FIXME or XXX; in Markdown also [CITE]. They get keys of
ours before anything is left out, so that the parsers of full texts (datasets.fulltext) cut their contexts as
those of training; a key that is gone afterwards stood in a comment or in code.
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

from datasets.errors import InputError
from datasets.files import read_limited
from datasets.fulltext.catalogue import year_in
from datasets.fulltext.contexts import citations, cut_window
from datasets.fulltext.documents import FullText, Metadata, Paragraph, Reference
from datasets.fulltext.latex import (
    CITATION,
    ONE_OF_ITS_KEYS,
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
from datasets.fulltext.latex_source import (
    LARGEST_FILE,
    Inputs,
    clean_latex,
    read_source,
    remove_blocks,
    running_text,
)
from datasets.records import OTHER_MARKER, TARGET_MARKER
from library.explanation import MARK
from retrieval.article_text import sentence_starts

WINDOW = 200
"""Characters on each side of a missing citation, as in the training contexts."""
HERE = MARK.strip("[]")
"""How it is shown between other keys."""
_MARKDOWN = (".md", ".markdown", ".qmd", ".rmd", ".txt")
_OURS = "\uf000"
"""Begins our keys, which are of characters that `clean_latex` takes out of texts and that are no words."""
_MISSING = re.compile(r"\?*|(?:TODO|FIXME|XXX)(?:\W.*)?", re.IGNORECASE)


@dataclass(frozen=True)
class Place:
    """A missing citation: text[start:end] of a file is `command`, which cites nothing yet.

    context: what is around it, with TARGETCIT. sentence: to be shown, with [CITE] and the keys of others;
    beside: these keys.
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
    """What was read of a draft.

    cited: its keys, with their entries of the bibliography, None where that lacks them. files: their texts as
    they are, the draft's first. bibs: its .bib files. notes: what was left alone, and why.
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
    """commands: what may lack a citation. filled: one with the keys that it lacks, and how many, or None."""

    commands: re.Pattern[str]
    filled: Callable[[str, Sequence[str]], tuple[str, int] | None]


class _Contents(NamedTuple):
    """keys: what is cited outside of comments and code, ours too. source: LaTeX that names the .bib files."""

    metadata: Metadata
    paragraphs: list[Paragraph]
    keys: Collection[str]
    source: str
    notes: list[str]


def syntax_for(path: Path) -> Syntax:
    return MARKDOWN if path.suffix.lower() in _MARKDOWN else LATEX


def read_draft(path: Path, root: Path | None = None) -> Draft:
    """A draft with its inputs; root: the folder that they may lie in, None for the draft's own.

    Raises InputError if a file cannot be read or is not in UTF-8, or if no citation is missing.
    """
    path = path.resolve()
    if root is not None and not (root.is_dir() and path.is_relative_to(root.resolve())):
        raise InputError(f"root={root}: is not a folder that contains the draft")
    marking = _Marking(syntax_for(path))
    read = _read_latex if marking.syntax is LATEX else _read_markdown
    about, paragraphs, keys, source, notes = read(path, root, marking)
    known = [key for key in keys if not key.startswith(_OURS)]
    entries = read_bibliography(path, source, known, root)
    cited = {key: entries.get(key) for key in known}
    full_text = FullText(paragraphs, dict.fromkeys([*known, *marking.found], Reference()) | entries)
    contexts: dict[str, str] = {}
    for citation in citations(full_text, WINDOW + len(OTHER_MARKER), Counter()):
        if citation.ref in marking.found:
            context = cut_window(citation.left, citation.right, WINDOW, "whole")
            if re.search(r"\w", context.replace(TARGET_MARKER, "").replace(OTHER_MARKER, "")):
                contexts.setdefault(citation.ref, context)
    sentences: dict[str, tuple[str, tuple[str, ...]]] = {}
    for key, said in chain.from_iterable(map(_sentences, paragraphs)):
        sentences.setdefault(key, said)
    places = []
    for number, (file, start, end) in marking.found.items():
        text = marking.texts[file]
        line, command = text.count("\n", 0, start) + 1, text[start:end]
        if number in contexts:
            places.append(Place(file, start, end, line, command, contexts[number], *sentences[number]))
        elif number in keys:
            notes.append(f"{file.name}:{line}: {command} has no running text around it and is left alone")
    if not places:
        left = any(number in keys for number in marking.found)
        found = (
            "its missing citations have no running text around them" if left else "nothing to cite is missing"
        )
        kinds = "[@?] or [CITE]" if marking.syntax is MARKDOWN else r"\cite{?}, \cite{} or \citep{TODO}"
        raise InputError(f"{path}: {found}; write {kinds} where a citation is to be found")
    year, bibs = about.year or date.today().year, bib_files(path, source, root)
    return Draft(path, about.title, about.abstract, year, places, cited, marking.texts, bibs, notes)


class _Marking:
    """Reads files with a number as the key of each missing citation; remembers texts and places."""

    def __init__(self, syntax: Syntax) -> None:
        self.syntax = syntax
        self.texts: dict[Path, str] = {}
        self.found: dict[str, tuple[Path, int, int]] = {}
        """Number -> file, and the command's first character and the one after its last."""
        self._marked: dict[Path, str] = {}

    def __call__(self, path: Path) -> str:
        if path not in self._marked:
            text = self.texts[path] = read_text(path)
            pieces, done = [], 0
            for match in self.syntax.commands.finditer(text):
                thousands, ones = divmod(len(self.found), 1000)
                number = f"{_OURS}{chr(0xF001 + thousands)}{chr(0xF401 + ones)}"
                if filled := self.syntax.filled(match[0], [number]):
                    self.found[number] = (path, *match.span())
                    before, after = filled[0].split(number, 1)
                    pieces += [clean_latex(text[done : match.start()] + before), number, clean_latex(after)]
                    done = match.end()
            self._marked[path] = "".join([*pieces, clean_latex(text[done:])]).removeprefix("\ufeff")
        return self._marked[path]


def read_text(path: Path) -> str:
    """A file as it is. Raises InputError if it cannot be read, or is no text in UTF-8."""
    content = read_limited(path, LARGEST_FILE)
    if content.startswith(b"%PDF"):
        raise InputError(f"{path}: is a PDF; give its source in LaTeX or Markdown")
    if b"\0" in content:
        raise InputError(f"{path}: is not text; give a draft in LaTeX or Markdown, in UTF-8")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{path}: is not in UTF-8 (line {line}); iconv -f LATIN1 -t UTF-8 converts it"
        ) from None


def _sentences(paragraph: Paragraph) -> Iterator[tuple[str, tuple[str, tuple[str, ...]]]]:
    """Each of our keys in a paragraph, with its sentence and the keys that this cites."""
    text = paragraph.text
    bounds = [0, *sentence_starts(text), len(text)]
    spans = sorted(span for span in set(paragraph.citations) if span.ref is not None)
    for number, group in groupby(spans, key=lambda span: bisect_right(bounds, span.start)):
        cited = list(group)
        edges = [bounds[number - 1], *(edge for span in cited for edge in span[:2]), bounds[number]]
        between = [text[a:b] for a, b in zip(edges[::2], edges[1::2], strict=True)]
        keys = [str(span.ref) for span in cited]
        printed = ["?" if key.startswith(_OURS) else key for key in keys]
        beside = tuple(dict.fromkeys(key for key in keys if not key.startswith(_OURS)))
        for ours in (key for key in keys if key.startswith(_OURS)):
            shown = [HERE if key == ours else text for key, text in zip(keys, printed, strict=True)]
            yield ours, ("".join(chain(*zip(between, [*shown, ""], strict=True))).strip(), beside)


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


def _filled_latex(command: str, keys: Sequence[str]) -> tuple[str, int] | None:
    r"""
    >>> _filled_latex(r"\citep[see][]{lee2020, ?}", ["diaz", "bo"]), _filled_latex(r"\cite{lee2020}", [])
    (('\\citep[see][]{lee2020, diaz}', 1), None)
    """
    left, missing = list(keys), False

    def filled(match: re.Match[str]) -> str:
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

    text = ONE_OF_ITS_KEYS.sub(filled, command)
    return (text, len(keys) - len(left)) if missing else None


LATEX = Syntax(CITATION, _filled_latex)


def _read_latex(path: Path, root: Path | None, marking: _Marking) -> _Contents:
    inputs = Inputs(marking, root)
    source = remove_blocks(read_source(path, inputs), _BEGIN_CODE, _END_CODE)
    body = document_body(source) or source  # a chapter has no \begin{document}
    keys = dict.fromkeys(key for match in CITATION.finditer(source) for key in cited_keys(match[1]))
    paragraphs, _ = read_sections(running_text(body))
    read = {span.ref for part in paragraphs for span in part.citations}
    if left := {key for key in keys if key.startswith(_OURS)} - read:
        # In captions, footnotes, tables, the abstract, which training contexts leave out.
        apart = _ENVIRONMENT.sub(" ", _FLOAT.sub(r"\\section{}", body))
        aside, _ = read_sections(_ASIDE.sub(" ", apart))
        paragraphs += [part for part in aside if any(span.ref in left for span in part.citations)]
    notes = [f"\\input{{{name}}} is not followed: {why}" for name, why in inputs.skipped.items()]
    return _Contents(read_metadata(CITATION.sub("", source), ""), paragraphs, keys, source, notes)


# Markdown, as Pandoc reads it.

_GROUPS = re.compile(r"\[[^\[\]\n]*(?:\n(?![ \t]*\n)[^\[\]\n]*){0,5}\](?![(\[:{])")
_WISH = re.compile(r"\[(?:cite|citation needed)\]", re.IGNORECASE)
_KEY = re.compile(r"(?<![\w@])-?@(?:\{([^{}\s]+)\}|([\w\uf000](?:[\w:.#$%&+?<>~/-]*[\w/])?)|(\?+))")
_FRONT = re.compile(r"\A\s*---[ \t]*\n(.*?)\n(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_NO_TEXT = re.compile(
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


def _filled_markdown(group: str, keys: Sequence[str]) -> tuple[str, int] | None:
    """
    >>> _filled_markdown("[see @lee2020; @?]", ["diaz", "bo"]), _filled_markdown("[CITE]", ["diaz", "bo"])
    (('[see @lee2020; @diaz]', 1), ('[@diaz]', 1))
    """
    left = [f"@{key}" if _KEY.fullmatch(f"@{key}") else f"@{{{key}}}" for key in keys]
    missing = False

    def filled(match: re.Match[str]) -> str:
        nonlocal missing
        if not match[3] and not _MISSING.fullmatch(match[1] or match[2]):
            return match[0]
        missing = True
        return left.pop(0) if left else match[0]

    text = _KEY.sub(filled, "[@?]" if _WISH.fullmatch(group) else group)
    return (text, len(keys) - len(left)) if missing else None


MARKDOWN = Syntax(_GROUPS, _filled_markdown)


def _read_markdown(path: Path, root: Path | None, marking: _Marking) -> _Contents:
    text = marking(path)
    front: dict[str, Any] = {}
    if start := _FRONT.match(text):
        try:
            front = yaml.safe_load(start[1])
        except yaml.YAMLError as error:
            reason = " ".join(str(getattr(error, "problem", None) or error).split())
            raise InputError(f"{path}: the lines between --- at its start are not YAML: {reason}") from None
        front, text = front if isinstance(front, dict) else {}, text[start.end() :]
    text = _NO_TEXT.sub(" ", text)
    cites: list[list[str]] = []

    def marked(match: re.Match[str]) -> str:
        keys = [a or b for a, b, _ in _KEY.findall(match[0]) if a or b]
        cites.append(keys)
        return citation_placeholder(len(cites) - 1) if keys else match[0]

    text = _GROUPS.sub(marked, text)
    text = _KEY.sub(marked, text)  # "@lee2020 shows"
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
        title=_of_front(front, "title") or title,
        abstract=_of_front(front, "abstract") or _plain_markdown(_MARKS.sub("", abstract)),
        year=year_in(_of_front(front, "date")),
    )
    named = front.get("bibliography") or []
    source = "".join(f"\\addbibresource{{{name}}}" for name in ([named] if isinstance(named, str) else named))
    return _Contents(metadata, paragraphs, numbers, source, [])


def _sections(text: str) -> list[tuple[int, str, str]]:
    """Level and text of each heading, and what follows it; what comes before the first has level 0."""
    found, level, name, done = [], 0, "", 0
    for match in _HEADING.finditer(text):
        found.append((level, name, text[done : match.start()]))
        level = len(match[1]) if match[1] else 1 if match[4].startswith("=") else 2
        name, done = _plain_markdown(_MARKS.sub("", match[2] or match[3] or "")), match.end()
    return [*found, (level, name, text[done:])]


def _of_front(front: dict[str, Any], name: str) -> str:
    value = front.get(name)
    return _plain_markdown(str(value)) if isinstance(value, str | int | date) else ""


def _plain_markdown(text: str) -> str:
    """
    >>> _plain_markdown("> We *parse* [trees](https://x.org) with `code`.")
    'We parse trees with `code`.'
    """
    text = _LINE_START.sub("", _LINK.sub(lambda match: match[1] or match[2] or " ", text))
    text = _EMPHASIS.sub(lambda match: match[2] or "", text)
    return " ".join(_BACKSLASH.sub(r"\1", text).split())
