"""Markdown (Pandoc, R Markdown, Quarto, Manubot): documents with their bibliography, and drafts.

Title, abstract, authors and date come from the YAML front matter, else from the headings. Further YAML
blocks may stand anywhere; a Quarto project adds its metadata, in any folder above. The main file of a book
(index.qmd beside _quarto.yml; index.Rmd, or else the first file, of _bookdown.yml) is read with its chapters,
and a document with the files that it includes. Citations are Pandoc's ([@key; @key2], @key in text). Code,
displayed formulas, tables, images and footnotes are not running text. Bibliographies are .bib files, CSL in
JSON or YAML, and entries in the front matter.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import date
from html import unescape
from itertools import chain
from pathlib import Path
from typing import Any

import yaml

from citerec.base.errors import InputError
from citerec.base.files import files_below, real_path, relative_path
from citerec.formats.bibliography.reading.csl import parse_yaml
from citerec.formats.documents import Metadata
from citerec.formats.drafts.bibliographies import References, csl_entries
from citerec.formats.drafts.inputs import Inputs, decode_text
from citerec.formats.drafts.language import (
    BREAK,
    CITE_MARK,
    Citation,
    Key,
    Language,
    Open,
    Section,
    Source,
    first_title,
    number_keys,
    replaced,
)
from citerec.formats.identifiers import find_year
from citerec.formats.latex_text import plain_text, running_text

_GROUP = r"\[(?:[^\[\]\n]++|\[[^\[\]\n]*+\]|\n(?![ \t]*\n)){0,40}+\]"
"""A citation in brackets, if it has keys; it may have others inside."""
_KEY = re.compile(
    r"(?<![^\W_])(?<![@\\])-?@(?:\{([^{}\s]+)\}|([\w\uf000][\w\u0300-\u036f]*(?:(?:[:.#$%&+?<>~/-]|:?//)[\w\u0300-\u036f]+)*)|(\?+))"
)
_NESTED = re.compile(r"\[[^\[\]\n]*\]")
_LOCATOR = re.compile(r" ?(\[(?!\^)[^\[\]\n@]*\])(?![(\[{:])")
"""What belongs to a key in the text: @lee2020 [p. 3]."""
_NO_LINK = r"(?![(:{]|\[(?!\^|[^\[\]\n]*@))"
_CITATION = re.compile(rf"{_GROUP}{_NO_LINK}|{CITE_MARK.pattern}|{_KEY.pattern}")
_WITHOUT_LINKS = re.compile(rf"{_GROUP}|{_KEY.pattern}")
_LINKED = re.compile(r"\](?:\([^()\n]*\)|\[([^\[\]\n]*)\])")
"""What follows the text of a link: an address, or the name of one."""
_WORD_BEFORE = re.compile(r"[^\s\[\](<>\"]*\Z")
_CROSS_REFERENCE = re.compile(
    r"(?:(?:supp?)?(?:fig|tbl|tab)|eq|sec|lst|algo?|thm|lem|cor|prp|cnj|def|exm|exr|rem|sol|tip|nte|wrn|imp|cau)[-:]",
    re.IGNORECASE,
)
_BOOK_REFERENCE = re.compile(r"\\@ref\([^()\n]*\)")
_FRONT_MATTER = re.compile(r"\A\s*---[ \t\r]*\n(.*?)\n(?:---|\.\.\.)[ \t\r]*(?:\n|\Z)", re.DOTALL)
_LATER = re.compile(
    r"(?:(?<=\n\n)|(?<=\n[ \r]\n))---[ \t\r]*\n(?=[A-Za-z][\w-]*[ \t]*:(?:\s|\Z))"
    r"((?:[^\n]*\n){1,20000}?)(?:---|\.\.\.)[ \t\r]*(?:\n|\Z)"
)
"""A YAML block after the beginning."""
_FORMULA = re.compile(r"(?<![\\$\w])\$(?![\s$])((?:[^$\\\n]|\\.|\n(?!\s*\n)){1,500}?)(?<!\s)\$(?![\d$])")
# Images whose captions have brackets, tables and footnotes.
_ASIDE = re.compile(
    r"!\[(?:[^\[\]]|\[[^\[\]]*\]){0,2000}\]\([^)\n]*\)(?:\{[^{}]*\})?|^[ \t]*(?:\|.*\||\+[-=+]+\+)[ \t]*$"
    r"|^\[\^[^\]\n]+\]:.*(?:\n(?:[ \t]+.*)?\S.*)*|\^\[(?:[^\[\]]|\[[^\[\]]*\]){0,2000}\]",
    re.MULTILINE,
)
_HEADING = re.compile(r"^ {0,3}(#{1,6})[ \t]+(.*?)[ \t]*#*[ \t]*$|^(\S.*)\n(=+|-{2,})[ \t]*$", re.MULTILINE)
_LINK = re.compile(
    r"!?\[([^\[\]]*)\](?:(?:\([^)]*\)|\[[^\[\]]*\])(?:\{[^{}]*\})?|\{[^{}]*\})|\[\^[^\]]*\]:?|<(https?://[^>]*)>"
)
_TAG = re.compile(r"</?[A-Za-z][^<>]{0,300}>|^[ \t]*:::.*$|\{(?:[.#=][^{}\n]{0,300}|-)\}", re.MULTILINE)
_COMMAND = re.compile(r"\\(?:(?:text\w{2}|emph)\{([^{}]*)\}|[A-Za-z]+\*?(?:\[[^\[\]]*\])?(?:\{[^{}]*\})*)")
_RULE = re.compile(
    rf"^[ \t]*[|+](?:[ \t]*:?[-=]+:?[ \t]*[|+])+(?=[ \t{BREAK}]*$)|(?<!\S)\|(?![^\s{BREAK}])"
    r"|\{\{<[^<>\n]*>\}\}",
    re.MULTILINE,
)
"""Lines and edges of tables, and Quarto's shortcodes."""
_WIKI_LINK = re.compile(r"!?\[\[(?:[^\[\]|\n]*\|)?([^\[\]|\n]+)\]\]")
_RAISED = re.compile(
    r"~~(?=\S)([^~\n]{1,300})~~|(?<=[\w)\]])~([^~\s]{1,20})~|(?<=[\w)\]])\^([^\^\s]{1,20})\^"
)
"""Text that is struck out, or stands below or above the line."""
_PART = re.compile(r"\((?:PART|APPENDIX)\\?\*?\)")
"""The name of a part of a bookdown book, before that of its first chapter."""
_LINE_START = re.compile(r"^[ \t]*(?:>[ \t]?|[-*+][ \t]+|\d+[.)][ \t]+)+", re.MULTILINE)
_EMPHASIS = re.compile(r"(?<!\w)(\*{1,3}|_{1,3})(?=\S)([^*_]{1,500}?)(?<=\S)\1(?!\w)|\*\*")
_BACKSLASH = re.compile(r"\\([^\w\s])")

_PROJECTS = ("_quarto.yml", "_bookdown.yml")
_INCLUDE = re.compile(
    r"\{\{<\s*include\s+([^\s<>]+)\s*>\}\}"
    r"|^[ \t]*```+[ \t]*\{r\b(?:[^}\n]*\bchild\s*=([^}\n]*)\}|[^`]*?^#\|\s*child:([^\n]*))[^`]*```+",
    re.MULTILINE,
)
_QUOTED = re.compile(r"['\"]([^'\"]+)['\"]|([\w./-]+\.\w+)")
_BLOCK = re.compile(r"(?:^[ \t]*\S[^\n]*(?:\n|\Z))+", re.MULTILINE)
_LINE = re.compile(r"([ \t]*)[^\n]*(?:\n|\Z)")
_ITEM = re.compile(
    r"[ \t]*(?:((?:[-*+]|\(?[\w@#]{1,9}[.)])[ \t]+)|(?:[~:][ \t]|\[\^[^\]\n]+\]:|!!!|\?\?\?|===))"
)
"""The beginning of a list item (group 1), or of a note, definition or the like."""
_LABEL = re.compile(r"\{#([\w:.-]+)|^#\|\s*label:\s*([\w:.-]+)", re.MULTILINE)
_NOCITE = re.compile(r"^nocite[ \t]*:(?:[^\n]*(?:\n(?:[ \t]|-)[^\n]*)*)", re.MULTILINE)
_PAIRS = (("<!--", "-->"), *((f"<{tag}", f"</{tag}>") for tag in ("script", "style", "pre")))
_KEY_CHARACTERS = r"[\w\u0300-\u036f:.#$%&+?<>~/-]"


_CAPTION = re.compile(
    r"^[ \t>]*#\|[ \t]*(?:fig|tbl|lst)-(?:sub)?cap[ \t]*:([^\n]*)"
    r"|\bfig\.s?cap[ \t]*=[ \t]*(?:\"([^\"\n]*)\"|'([^'\n]*)')",
    re.MULTILINE,
)
"""A caption in the options of a cell of Quarto or knitr."""


class Markdown(Language):
    """Markdown."""

    name = "Markdown"
    suffixes = (".md", ".markdown", ".qmd", ".rmd")
    marks = "[@?] or [CITE]"
    comment = "<!-- {} -->"
    before = re.compile(
        rf"(?:(?P<opened>\[)(?:[^\[\]\n]|\[[^\[\]\n]*+\])*?)?(?<![^\W_])(?<![@\\/])@\{{?(?P<key>{_KEY_CHARACTERS}*)\Z"
    )
    after = re.compile(rf"{_KEY_CHARACTERS}*(?<=[\w\u0300-\u036f/?])")
    closing = "]"
    _paragraph_end = re.compile(  # a header is a part of the row after its rule
        rf"{Language._paragraph_end.pattern}|\n(?=[ \t]*\+[-=])"
        r"|(?<![-:]\|)(?<![-:] \|)\n(?=[ \t]*\|[-:| \t]*[^-:| \t\n])"
    )
    _hidden = re.compile(
        r"^[ \t]*(`{3,}+(?=[^`\n]*$)|~{3,}+)[^\n]*\n.*?(?:^[ \t]*\1[`~]*[ \t\r]*$|\Z)|<!--.*?-->"
        r"|(?<!`)(`{1,3})(?!`)(?:[^\n]|\n(?![ \t]*\n)){1,1000}?(?<!`)\2(?!`)"
        r"|^[ \t]*<(script|style|pre)\b.*?</\3>"
        r"|(?<!\\)\$(?:\$(?:[^\n]|\n(?![ \t]*\n))*?\$\$"
        r"|(?P<formula>(?![\s$])(?:[^$`<\\\n]|<(?!!)|\\.)+(?<!\s)\$(?!\d)))"  # hidden is only a displayed one
        r"|(?<=[\w-]=)(?:\"[^\"\n]{0,2000}\"|'[^'\n]{0,2000}')(?=[^{}\n]{0,2000}\})"
        r"|^[ \t]*\[@[^\]\n]+\]:[^\n]*"  # Manubot's names for identifiers
        r"|^[ \t]*>[ \t>]*(?P<quoted>`{3,}+(?=[^`\n]*$)|~{3,}+)[^\n]*"
        r"(?:\n[ \t]*>(?![ \t>]*(?P=quoted))[^\n]*+)*+(?:\n[ \t>]*(?P=quoted)[^\n]*)?",
        re.MULTILINE | re.DOTALL,
    )
    _note = re.compile(
        r"^ {0,3}\[\^(?P<name>[^\]\s]+)\]:[ \t]*(?P<text>[^\n]*(?:\n(?! {0,3}\[\^)[^\n]*\S[^\n]*)*"
        r"(?:(?:\n[ \t]*)+\n(?: {4}|\t)[^\n]*\S[^\n]*)*)"
        r"|\[\^(?P<called>[^\]\s]+)\](?!:)|\^\[(?P<inline>(?:[^\[\]]|\[[^\[\]]*\]){0,2000})\]",
        re.MULTILINE,
    )

    def citations(self, text: str) -> Iterator[Citation]:
        begin = 0
        for block in _yaml_blocks(text):
            yield from find_citations(text, begin, block.start())
            begin = block.end()
            for field in _NOCITE.finditer(text, block.start(), begin):
                yield from (Citation(key.start, key.end, (key,), False) for key in _keys(text, *field.span()))
        yield from find_citations(text, begin, len(text))

    def hidden(self, text: str) -> Iterator[tuple[int, int]]:
        for begin, end in _PAIRS:  # without an end they hide nothing, and the search for it is quadratic
            closed = text.rfind(end) + 1
            text = text[:closed] + text[closed:].replace(begin, begin[:2].ljust(len(begin)))
        spans = [match.span() for match in self._hidden.finditer(text) if not match["formula"]]
        return iter(sorted([*spans, *_indented_code(text, spans)]))

    def cite(self, key: str) -> str:
        return f"[@{_written(key)}]"

    def insertion(self, text: str, start: int, end: int, key: str) -> tuple[int, int, str]:
        if text[start - 1 : start] == "@":
            return start, end, _written(key)
        return super().insertion(text, start, end, key)

    def open_at(self, text: str, caret: int) -> Open | None:
        opened = super().open_at(text, caret)
        if opened is None or text[opened.start - 1] != "{":
            return opened
        braced = text.startswith("}", opened.rest)
        if braced and not opened.closing:
            return opened._replace(between=opened.between and "}; @{")
        end = opened.end + (braced and opened.end == opened.rest)
        return opened._replace(end=end, closing=f"}}{opened.closing}")

    def read(self, path: Path, inputs: Inputs) -> Source:
        folder, project = _read_project(path, inputs.root)
        inputs.root = inputs.root or folder
        text = _with_chapters(path, inputs, folder, project.get("chapters", ()))
        front, text = _split_front_matter(text, path)
        kinds = (*_kinds(front), *_kinds(project))
        files = (path.parent / name for name in _names(front.get("metadata-files")))
        named = _metadata(files, path.parent, inputs.root)
        names = [*dict.fromkeys([*_bibliographies(front), *named, *_bibliographies(project)])]
        front = {**front, **project}  # a project's fields include those of its main file
        aside = [match[match.lastindex or 0] for match in _CAPTION.finditer(text)]
        aside += _names([front.get("title"), front.get("abstract")])
        text = self.without_code(text)
        labels = self.labels(text)
        text = self.without_references(text, labels, kinds)
        sections, cites = self.sections(self.body(text))
        metadata = self._about(front, sections)
        items = front.get("references")
        entries = csl_entries(items) if isinstance(items, list) else {}
        references = References(path, names, inputs.root, own=entries)
        cites += [[key.key] for key in self.keys(" ".join(aside))]
        keys, uncited = [*number_keys(cites)], [*_uncited(front)]
        return Source(text, metadata, keys, references, uncited, inputs.notes, labels, kinds)

    def labels(self, text: str) -> set[str]:
        return {match[1] or match[2] for match in _LABEL.finditer(text)}

    def included(self, text: str) -> Iterator[str]:
        return (name for match in _INCLUDE.finditer(text) for name in _included(match))

    def cites(self, path: Path, source: Source) -> bool:
        """README files name people with @."""
        groups = (
            source.text[citation.start] == "[" and citation.cited for citation in self.citations(source.text)
        )
        return any(groups) or bool(self.bibliographies(decode_text(path)))

    def metadata(self, head: str) -> Metadata:
        with suppress(InputError):  # half-typed front matter
            front, text = _split_front_matter(head, Path("document"))
            return self._about(front, self.sections(self.body(text))[0])
        return Metadata("")

    def _about(self, front: dict[str, Any], sections: Sequence[Section]) -> Metadata:
        title = first_title(part for part in sections if not _PART.match(part.name))
        return Metadata(
            "",
            _front_matter_text(front, "title") or title,
            _front_matter_text(front, "abstract") or self.named_section(sections, "abstract"),
            find_year(_front_matter_text(front, "date")),
            tuple(_authors(front.get("author"))),
        )

    def _bibliographies(self, visible: str) -> list[Key]:
        keys: list[Key] = []
        for block in _yaml_blocks(visible):
            with suppress(InputError):  # half-typed
                place, end = block.span(1)
                for name in _bibliographies(_read_yaml(block[1], "")):
                    start = visible.find(name, place, end)
                    if start >= 0:
                        place = start + len(name)
                        keys.append(Key(name, start, place))
        return keys

    def plain(self, text: str) -> str:
        """Remove links, emphasis, escapes, tags, LaTeX commands and block markers.

        >>> MARKDOWN.plain("> We *parse* [trees](https://x.org) with [`code`]{.smallcaps}.")
        'We parse trees with `code`.'
        >>> MARKDOWN.plain("H~2~O &mdash; ~~old~~ 1^st^ [[N|note]] {{< pagebreak >}}\\n| a | b |\\n|---|:-:|")
        'H2O — old 1st note a b'
        """
        text = _WIKI_LINK.sub(r"\1", _RULE.sub(" ", text))
        for _ in range(2):  # a link may be around an image
            text = _LINK.sub(lambda match: match[1] or match[2] or " ", text)
        text = _RAISED.sub(lambda match: match[1] or match[2] or match[3], _LINE_START.sub("", text))
        text = _COMMAND.sub(lambda match: match[1] or "", _TAG.sub("", unescape(text)))
        text = _EMPHASIS.sub(lambda match: match[2] or "", text)
        return " ".join(_BACKSLASH.sub(r"\1", text).split())

    def body(self, text: str, running: bool = False) -> str:
        text = _without_yaml(text)
        text = _FORMULA.sub(lambda match: " " if "@" in match[1] else plain_text(match[0]), text)
        text = _BOOK_REFERENCE.sub("", text)
        return running_text(_ASIDE.sub(" ", text)) if running else text

    def headings(self, text: str) -> Iterator[tuple[int, str, int, int]]:
        for match in _HEADING.finditer(text):
            level = len(match[1]) if match[1] else 1 if match[4].startswith("=") else 2
            yield level, match[2] or match[3] or "", match.start(), match.end()


MARKDOWN = Markdown()


def _with_chapters(path: Path, inputs: Inputs, folder: Path, chapters: Iterable[str]) -> str:
    """Return the text of a document with its chapters and the files that it includes. folder: of its book."""
    path = real_path(path)
    text = _with_parts(path, (), inputs, folder)
    before, after = (
        [part for name in names for part in _find_part(name, path.parent, (path,), inputs, folder)]
        for names in _included_around(text)
    )
    front = _FRONT_MATTER.match(text)
    begin = front.end() if front else 0
    parts = [text[:begin] + "\n\n".join([*before, text[begin:]]), *after]
    for name in chapters:
        parts += _find_part(name, folder, (path,), inputs, folder)
    return "\n\n".join(parts)


def _included_around(text: str) -> Iterator[list[str]]:
    """Yield the Markdown files that the front matter puts before a text, and after it, also for one output
    format; and files of LaTeX, which are named as not read."""
    front, fields = _FRONT_MATTER.match(text), dict[str, Any]()
    if front and "include-" in front[1]:
        with suppress(InputError):  # reported when it is split
            fields = _read_yaml(front[1], "")
    formats = fields.get("format")
    places = [fields, *(formats.values() if isinstance(formats, dict) else ())]
    for field in ("include-before-body", "include-after-body"):
        names = dict.fromkeys(_names([place.get(field) for place in places if isinstance(place, dict)]))
        yield [name for name in names if Path(name).suffix.lower() in (*MARKDOWN.suffixes, ".tex")]


def _with_parts(path: Path, parents: tuple[Path, ...], inputs: Inputs, folder: Path) -> str:
    """Return the text of a file with those that it includes, at their places or else beside it."""
    text = inputs.open(path, parents)
    if parents:
        text = _without_yaml(text)
    parents = (*parents, path)

    def read_parts(match: re.Match[str]) -> str:
        names = _included(match)
        parts = (_find_part(name, path.parent, parents, inputs, folder) for name in names)
        return "\n\n".join(chain(*parts)) or match[0]

    return _INCLUDE.sub(read_parts, text)


def _find_part(name: str, beside: Path, parents: tuple[Path, ...], inputs: Inputs, folder: Path) -> list[str]:
    """Return the text of a file that the last of `parents` includes, in a list; empty if it is not read."""
    places = (beside / name, folder / name, beside / Path(name).name)
    file = inputs.find(name, places, parents, MARKDOWN.suffixes)
    return [_with_parts(file, parents, inputs, folder)] if file else []


def find_citations(text: str, begin: int, end: int, links: bool = True) -> Iterator[Citation]:
    """Yield the citations in a part of a text. links: brackets followed by others may be those of a link."""
    for match in (_CITATION if links else _WITHOUT_LINKS).finditer(text, begin, end):
        start, stop = match.span()
        if links and text[start - 1 : start] == "[" and _is_link(text, stop):
            continue  # [@ann](https://social.example/@ann)
        inside = match[0][1:]
        has_mark = "[" in inside and (CITE_MARK.search(inside) or not _KEY.search(_NESTED.sub("", inside)))
        if text[start] == "[" and (
            has_mark or text[start - 1 : start] == "^"
        ):  # ^[@lee2020], [as in [@lee2020]]
            yield from find_citations(text, start + 1, stop, links)
            continue
        keys = tuple(_keys(text, start, stop))
        if not keys and CITE_MARK.fullmatch(match[0]):
            keys = (Key("", start, stop),)
        beside = _LOCATOR.match(text, stop) if keys and text[start] != "[" else None
        if beside and not CITE_MARK.fullmatch(beside[1]):
            stop = beside.end()
        if keys or any(not _is_address(text, key.start()) for key in _KEY.finditer(text, start, stop)):
            yield Citation(start, stop, keys)


def _is_link(text: str, end: int) -> bool:
    """True if a text in brackets, which ends at `end`, is that of a link."""
    if (match := _LINKED.match(text, end)) is None or match[1] is None:
        return match is not None
    name = re.escape(match[1])
    return bool(name) and re.search(rf"^ {{0,3}}\[{name}\]:", text, re.MULTILINE | re.IGNORECASE) is not None


def _is_address(text: str, at: int) -> bool:
    """True if an @ is in a web address, such as https://example.org/@ann."""
    if text[at - 1 : at] != "/":
        return False
    before = _WORD_BEFORE.search(text, max(0, at - 200), at)
    return before is not None and ("." in before[0] or ":" in before[0])


def _included(match: re.Match[str]) -> list[str]:
    """Return the files that an inclusion names."""
    if match[1]:
        return [match[1]]
    return [quoted or bare for quoted, bare in _QUOTED.findall(match[2] or match[3])]


def _keys(text: str, start: int, end: int) -> Iterator[Key]:
    """Yield the keys in a part of a text, without cross-references to figures and the like."""
    for match in _KEY.finditer(text, start, end):
        number = match.lastindex or 0
        if not _CROSS_REFERENCE.match(match[number]) and not _is_address(text, match.start()):
            yield Key(match[number], *match.span(number))


def _indented_code(text: str, hidden: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the spans of indented code: lines after an empty one that begin with four spaces, or with four
    more than the list item, note or definition that they are in. hidden: spans of other code."""
    front = _FRONT_MATTER.match(text)
    inside: list[int] = []
    """Where the contents of the open list items and the like begin."""
    for block in _BLOCK.finditer(text, front.end() if front else 0):
        lines = [*_LINE.finditer(text, *block.span())]
        width = _width(lines[0][1])
        while inside and width < inside[-1]:
            inside.pop()
        limit = (inside[-1] if inside else 0) + 4
        if width >= limit and not _ITEM.match(text, *lines[0].span()):
            ends = (number for number, line in enumerate(lines) if _width(line[1]) < limit)
            code = lines[: next(ends, len(lines))]
            start, end = code[0].start(), code[-1].end()
            place = bisect_right(hidden, (start, end))
            if not any(a < end and start < b for a, b in hidden[max(0, place - 1) : place + 1]):
                yield start, end
            continue
        for line in lines:
            if item := _ITEM.match(text, *line.span()):
                width = _width(line[1])
                inside = [column for column in inside if column <= width] + [width + len(item[1] or "    ")]


def _width(spaces: str) -> int:
    return len(spaces.expandtabs(4))


def _written(key: str) -> str:
    """Return a key as it follows @.

    >>> _written("lee2020"), _written("lee's")
    ('lee2020', "{lee's}")
    """
    return key if _KEY.fullmatch(f"@{key}") else f"{{{key}}}"


def _bibliographies(front: dict[str, Any]) -> list[str]:
    return [*_names([front.get("bibliography"), front.get("manubot-output-bibliography")])]


def _uncited(front: dict[str, Any]) -> Iterator[str]:
    """Yield the keys in all fields; * if the field nocite names all."""
    yield from (key.key for text in _names(front) for key in _keys(text, 0, len(text)))
    if any("@*" in text for text in _names(front.get("nocite"))):
        yield "*"


def _kinds(front: dict[str, Any]) -> Iterator[str]:
    """Yield what labels of Quarto's own kinds of floats begin with."""
    crossref = front.get("crossref")
    kinds = crossref.get("custom") if isinstance(crossref, dict) else None
    for kind in kinds if isinstance(kinds, list) else ():
        if isinstance(kind, dict) and isinstance(kind.get("key"), str):
            yield f"{kind['key']}-"
            yield f"{kind['key'].capitalize()}-"


class _Loader(yaml.CSafeLoader):
    """Reads tags of programs, such as R's !expr, as empty values."""


_Loader.add_multi_constructor("", lambda loader, tag, node: None)


def _yaml_blocks(text: str) -> list[re.Match[str]]:
    """Return the blocks of YAML in a text, outside of code; group 1 is their content."""
    front = _FRONT_MATTER.match(text)
    later = [*_LATER.finditer(text, front.end() if front else 0)]
    if later:
        code = [match.span() for match in MARKDOWN._hidden.finditer(text)]
        later = [block for block in later if not any(a <= block.start() < b for a, b in code)]
    return [front, *later] if front else later


def _without_yaml(text: str) -> str:
    return replaced(text, ((*block.span(), "") for block in _yaml_blocks(text)))


def _split_front_matter(text: str, path: Path) -> tuple[dict[str, Any], str]:
    """Return the fields of the YAML blocks of a text, and the text without them. The first block that has a
    field counts; bibliographies and references are collected from all."""
    fields: dict[str, Any] = {}
    removed: list[tuple[int, int, str]] = []
    for block in _yaml_blocks(text):
        try:
            # From the beginning, so that messages count lines from there.
            more = _read_yaml(
                text[: block.end(1)] if not removed and _FRONT_MATTER.match(text) else block[1],
                f"{path}: its front matter (between --- lines)",
            )
        except InputError:
            if block.start() == 0 or not removed:
                raise
            continue
        removed.append((*block.span(), ""))
        for name in ("bibliography", "references", "nocite"):
            if name in fields and name in more:
                both = (value if isinstance(value, list) else [value] for value in (fields[name], more[name]))
                fields[name] = [*chain(*both)]
        fields = more | fields
    return fields, replaced(text, removed)


def _read_yaml(text: str, what: str) -> dict[str, Any]:
    try:
        fields = parse_yaml(text, what, _Loader)
    except InputError:
        if "\t" not in text:
            raise
        fields = parse_yaml(text.expandtabs(4), what, _Loader)  # other readers take tabs for spaces
    return fields if isinstance(fields, dict) else {}


def _metadata(files: Iterable[Path], beside: Path, root: Path | None) -> Iterator[str]:
    """Yield the bibliographies that files of metadata name, as seen from the folder `beside`."""
    for file in files:
        if os.path.isfile(file) and (root is None or real_path(file).is_relative_to(real_path(root))):
            for name in _names(_read_yaml(decode_text(file), str(file)).get("bibliography")):
                yield os.path.relpath(file.parent / name, beside)


def _read_project(path: Path, root: Path | None) -> tuple[Path, dict[str, Any]]:
    """Return the folder and fields of the book or project that a document belongs to; its own folder and {}
    if none. A Quarto project may be any folder above.

    For the main file, they include `chapters`. root: folder outside of which no file is read.
    """
    beside = path.parent
    bibs: list[str] = []
    for level, folder in enumerate((beside, *real_path(beside).parents)):
        if root and not real_path(folder).is_relative_to(real_path(root)):
            break
        bibs += _metadata([folder / "_metadata.yml"], beside, root)
        for name in _PROJECTS:
            file = folder / name
            if not os.path.isfile(file) or (root and not real_path(file).is_relative_to(real_path(root))):
                continue
            settings = _read_yaml(decode_text(file), str(file))
            book = settings.get("book")
            fields = {**settings, **book} if isinstance(book, dict) else settings
            inside = (
                file for file in sorted(folder.glob("index.*")) if file.suffix.lower() in MARKDOWN.suffixes
            )
            index = next((file for file in inside if real_path(file).parent == real_path(folder)), None)
            is_book = isinstance(book, dict) or name == "_bookdown.yml"
            first, merged = _merged_files(folder, settings) if name == "_bookdown.yml" else (None, [])
            if name == "_bookdown.yml" and level > 1 and relative_path(path, folder) not in merged:
                continue
            if first and (index is None or real_path(path) == real_path(first)):
                index = first
            if index and (is_book or real_path(path) == real_path(index)):
                fields = {**fields, **_split_front_matter(decode_text(index), index)[0]}
            named = (*_names(settings.get("bibliography")), *_names(fields.get("bibliography")))
            bibs += [relative_path(folder / bib, beside) for bib in dict.fromkeys(named)]
            more = (folder / name for name in _names(settings.get("metadata-files")))
            bibs += _metadata(more, beside, root)
            bibliography = {"bibliography": bibs}
            if index and real_path(path) == real_path(index):
                chapters = [fields.get("chapters"), fields.get("appendices")] if book else merged
                files = [name for name in _names(chapters) if Path(name).suffix and folder / name != index]
                return folder, {**fields, **bibliography, "chapters": files}
            return folder, {**bibliography, "crossref": fields.get("crossref")}  # a chapter has its own title
    return beside, {}


def merged_names(folder: Path) -> list[str]:
    """Return the names, without suffixes, of what bookdown makes of the chapters in a folder."""
    file = folder / "_bookdown.yml"
    if not os.path.isfile(file):
        return []
    named = _names(_read_yaml(decode_text(file), str(file)).get("book_filename"))
    return [name.removesuffix(".Rmd") for name in named] or ["_main"]


def _merged_files(folder: Path, settings: dict[str, Any]) -> tuple[Path | None, list[str]]:
    """Return the main file of a book by bookdown, None if there is none, and the names of all its files:
    those listed, for any format, else those in its folder; then those in further folders (`rmd_subdir`)."""
    root, subdir = real_path(folder), settings.get("rmd_subdir")
    places = [folder / name for name in (["."] if subdir is True else _names(subdir))]
    inside = (place for place in places if real_path(place).is_relative_to(root))
    merged = merged_names(folder)
    beside, below = (
        [
            name
            for file in files
            if file.suffix.lower() == ".rmd" and file.name[0] != "_" and file.stem not in merged
            if "/." not in f"/{(name := relative_path(file, folder))}"  # no hidden folder
        ]
        for files in (sorted(folder.iterdir()), chain.from_iterable(map(files_below, inside)))
    )
    listed = [Path(name).as_posix() for name in _names(settings.get("rmd_files"))]
    names = [*dict.fromkeys([*(listed or beside), *below])]
    files = (folder / name for name in names if name.lower().endswith(MARKDOWN.suffixes))
    existing = [file for file in files if os.path.isfile(file) and real_path(file).is_relative_to(root)]
    return next((file for file in existing if file.stem == "index"), existing[0] if existing else None), names


def _names(value: object) -> Iterator[str]:
    """Yield the strings in nested lists and objects, in order, without NUL, which no file's name has."""
    if isinstance(value, str):
        yield value.replace("\0", "")
    elif isinstance(value, list | dict):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _names(inner)


def _front_matter_text(front: dict[str, Any], name: str) -> str:
    value = front.get(name)
    text = str(value) if isinstance(value, str | int | date) else ""
    return MARKDOWN.plain(MARKDOWN.without_citations(text))


def _authors(value: object) -> Iterator[str]:
    """Names of front matter: strings, or objects with a name or with given and family names."""
    for author in value if isinstance(value, list) else [value]:
        name = author.get("name", author) if isinstance(author, dict) else author
        if isinstance(name, dict):
            name = " ".join(str(name[part]) for part in ("given", "family") if name.get(part))
        if isinstance(name, str) and name.strip():
            yield MARKDOWN.plain(name)
