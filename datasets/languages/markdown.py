"""Read Markdown documents (Pandoc, R Markdown, Quarto, Manubot), one paper per document.

Title, abstract, authors and date come from the YAML front matter, else from the headings. The main file of a
book (index.qmd beside _quarto.yml, index.Rmd beside _bookdown.yml) is read with its chapters, and a document
with the files that it includes. Citations are Pandoc's ([@key; @key2], @key in text). Code, displayed
formulas, tables, images and footnotes are not running text. Bibliographies are .bib files and CSL JSON.
"""

from __future__ import annotations

import html
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import yaml

from citerec.base.errors import InputError
from citerec.base.files import read_limited
from citerec.datasets.fulltext.catalogue import arxiv_year, find_arxiv_id, find_year, identifier
from citerec.datasets.fulltext.documents import Document, FullText, Metadata, Paragraph, Reference
from citerec.datasets.languages.latex import (
    citation_placeholder,
    number_keys,
    read_bibliography,
    read_paragraph,
)
from citerec.datasets.languages.latex_source import (
    MAX_CHARACTERS,
    MAX_INPUTS,
    decode_latex,
    plain_text,
    running_text,
)
from citerec.datasets.records import json_type

MAX_CSL_BYTES = 1 << 27
"""Maximum size of a CSL JSON file."""
SUFFIXES = (".md", ".markdown", ".qmd", ".rmd")
"""In lower case; R Markdown's is usually .Rmd."""

GROUP = re.compile(r"\[[^\[\]\n]*(?:\n(?![ \t]*\n)[^\[\]\n]*){0,5}\](?![(\[:{])")
"""A citation in brackets, if it has keys."""
KEY = re.compile(r"(?<![\w@\\])-?@(?:\{([^{}\s]+)\}|([\w\uf000](?:[\w:.#$%&+?<>~/-]*[\w/])?)|(\?+))")
CROSS_REFERENCE = re.compile(
    r"(?:(?:supp?)?(?:fig|tbl)|eq|sec|lst|thm|lem|cor|prp|cnj|def|exm|exr|rem|sol|tip|nte|wrn|imp|cau)[-:]"
)
_BOOK_REFERENCE = re.compile(r"\\@ref\([^()\n]*\)")
FRONT_MATTER = re.compile(r"\A\s*---[ \t]*\n(.*?)\n(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
NOT_TEXT = re.compile(
    r"^[ \t]*(`{3,}|~{3,})[^\n]*\n.*?(?:^[ \t]*\1[`~]*[ \t]*$|\Z)|<!--.*?(?:-->|\Z)|\$\$.*?\$\$"
    r"|(?<!`)(`{1,2})(?!`)[^\n]{1,1000}?(?<!`)\2(?!`)|!\[[^\[\]\uf000]*\]\([^)]{0,2000}\)(?:\{[^{}]*\})?"
    r"|^[ \t]*\[@[^\]\n]+\]:[^\n]*",  # Manubot's names for identifiers
    re.MULTILINE | re.DOTALL,
)
_FORMULA = re.compile(r"(?<![\\$\w])\$(?![\s$])((?:[^$\\\n]|\\.|\n(?!\s*\n)){1,500}?)(?<!\s)\$(?![\d$])")
# Images whose captions have brackets, tables and footnotes.
_ASIDE = re.compile(
    r"!\[(?:[^\[\]]|\[[^\[\]]*\]){0,2000}\]\([^)\n]*\)(?:\{[^{}]*\})?|^[ \t]*(?:\|.*\||\+[-=+]+\+)[ \t]*$"
    r"|^\[\^[^\]\n]+\]:.*(?:\n(?:[ \t]+.*)?\S.*)*|\^\[(?:[^\[\]]|\[[^\[\]]*\]){0,2000}\]",
    re.MULTILINE,
)
_HEADING = re.compile(r"^ {0,3}(#{1,6})[ \t]+(.*?)[ \t]*#*[ \t]*$|^(\S.*)\n(=+|-{2,})[ \t]*$", re.MULTILINE)
_MARKS = re.compile("\ue000\\d+\ue001")
_LINK = re.compile(r"!?\[([^\[\]]*)\](?:\([^)]*\)|\[[^\[\]]*\]|\{[^{}]*\})|\[\^[^\]]*\]:?|<(https?://[^>]*)>")
_TAG = re.compile(r"</?[A-Za-z][^<>]{0,300}>|^[ \t]*:::.*$|\{[.#][^{}\n]{0,300}\}", re.MULTILINE)
_COMMAND = re.compile(r"\\(?:(?:text\w{2}|emph)\{([^{}]*)\}|[A-Za-z]+\*?(?:\[[^\[\]]*\])?(?:\{[^{}]*\})*)")
_LINE_START = re.compile(r"^[ \t]*(?:>[ \t]?|[-*+][ \t]+|\d+[.)][ \t]+)+", re.MULTILINE)
_EMPHASIS = re.compile(r"(?<!\w)(\*{1,3}|_{1,3})(?=\S)([^*_]{1,500}?)(?<=\S)\1(?!\w)|\*\*")
_BACKSLASH = re.compile(r"\\([^\w\s])")

_PROJECTS = ("_quarto.yml", "_bookdown.yml")
_INCLUDE = re.compile(
    r"\{\{<\s*include\s+([^\s<>]+)\s*>\}\}|^[ \t]*```+[ \t]*\{r\b[^}\n]*\bchild\s*=([^}\n]*)\}[^`]*```+",
    re.MULTILINE,
)
_QUOTED = re.compile(r"['\"]([^'\"]+)['\"]")


class ParsedMarkdown(NamedTuple):
    """A Markdown text. keys: cited, in order. source: LaTeX that names the .bib files. csl: JSON files."""

    metadata: Metadata
    paragraphs: list[Paragraph]
    keys: Collection[str]
    source: str
    csl: tuple[str, ...] = ()


def is_markdown(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES


def read_markdown(path: Path, paper: str) -> Document:
    """Read the paper of a document. Raises InputError if it is too large or its YAML is malformed."""
    folder, parsed = _read_project(path)[0], parse_document(path, paper, running=True)

    def entries() -> dict[str, Reference]:
        entries = read_bibliography(path, parsed.source, parsed.keys, folder)
        for name in parsed.csl:
            if file := find_csl(path, name, folder):
                found = read_csl(file)
                entries |= {key: found[key] for key in parsed.keys if key in found}
        return entries

    return Document(
        parsed.metadata, lambda: FullText(parsed.paragraphs, entries()), lambda: list(entries().values())
    )


def find_csl(path: Path, name: str, root: Path) -> Path | None:
    """The CSL JSON file that a document names, at its place or beside the document, if it is below `root`."""
    files = (path.parent / name, path.parent / Path(name).name)
    allowed = (file for file in files if file.is_file() and file.resolve().is_relative_to(root.resolve()))
    return next(allowed, None)


def read_csl(path: Path) -> dict[str, Reference]:
    """Read the entries of a CSL JSON file by id and identifier ("doi:10.1000/x").

    Manubot's citations.tsv beside it has more names for them. Raises InputError if the file is not a list.
    """
    try:
        items = orjson.loads(read_limited(path, MAX_CSL_BYTES))
    except orjson.JSONDecodeError as error:
        raise InputError(f"{path}: malformed JSON: {error}") from None
    if not isinstance(items, list):
        raise InputError(f"{path}: must be a list of entries (CSL JSON), not {json_type(items)}")
    entries: dict[str, Reference] = {}
    for item in items:
        if not isinstance(item, dict):
            continue
        reference = _csl_reference(item)
        for key in (str(item.get("id", "")), *reference.identifiers, f"arxiv:{reference.arxiv}"):
            entries.setdefault(key, reference)
    names = path.with_name("citations.tsv")
    if names.is_file():
        for line in decode_latex(names).splitlines():
            given, *_, key = line.split("\t")
            if key in entries:
                entries.setdefault(given, entries[key])
    return entries


def _csl_reference(item: dict[str, Any]) -> Reference:
    def text(field: str) -> str:
        value = item.get(field)
        return " ".join(_TAG.sub("", html.unescape(str(value))).split()) if value else ""

    authors = [author for author in item.get("author") or () if isinstance(author, dict)]
    names = [[str(author.get(part) or "") for part in ("family", "given", "literal")] for author in authors]
    known = (identifier(kind, text(kind)) for kind in ("DOI", "PMID", "PMCID"))
    return Reference(
        title=text("title"),
        authors=tuple(", ".join(filter(None, parts[:2])) or parts[2] for parts in names if any(parts)),
        year=find_year(str(item.get("issued") or "")),
        abstract=text("abstract"),
        arxiv=find_arxiv_id(text("URL")),
        identifiers=tuple(filter(None, known)),
    )


def parse_document(
    path: Path, paper: str = "", running: bool = False, read: Callable[[Path], str] = decode_latex
) -> ParsedMarkdown:
    """Parse a document with its chapters and the files that it includes; see `parse_markdown`.

    read: returns the text of a file.
    """
    folder, project = _read_project(path)
    text, _ = _read_text(path, folder, project, read)
    parsed = parse_markdown(text, path, paper, project, running)
    if not parsed.source and not parsed.csl and len(bibs := list(path.parent.glob("*.bib"))) == 1:
        parsed = parsed._replace(source=_name_bibliography([bibs[0].name]))
    return parsed


def markdown_documents(files: Sequence[Path]) -> list[Path]:
    """The files that cite and are neither chapters of a book nor included by others."""
    documents, parts = [], set()
    for path in files:
        with suppress(InputError):  # reading reports it
            folder, project = _read_project(path)
            text, included = _read_text(path, folder, project)
            parts |= included
            front, text = _split_front_matter(text, path)
            groups = GROUP.findall(NOT_TEXT.sub(" ", text))
            if not front.get("bibliography") and not any(map(group_keys, groups)):
                continue
        documents.append(path)
    return [path for path in documents if path.resolve() not in parts]


def parse_markdown(
    text: str, path: Path, paper: str = "", project: dict[str, Any] | None = None, running: bool = False
) -> ParsedMarkdown:
    """Parse a text. Raises InputError if its front matter is not YAML.

    paper: its id. project: front matter that applies where its own lacks a field. running: without tables,
    footnotes and captions, as in LaTeX; otherwise their citations are found as well.
    """
    front, text = _split_front_matter(text, path)
    front = {**front, **(project or {})}  # a project's fields include those of its main file
    text = _BOOK_REFERENCE.sub("", _FORMULA.sub(_formula_text, NOT_TEXT.sub(" ", text)))
    if running:
        text = running_text(_ASIDE.sub(" ", text))
    cites: list[list[str]] = []

    def insert_placeholder(match: re.Match[str]) -> str:
        if keys := group_keys(match[0]):
            cites.append(keys)
            return citation_placeholder(len(cites) - 1)
        return "" if any(key for _, key, _ in KEY.findall(match[0])) else match[0]

    text = GROUP.sub(insert_placeholder, text)
    text = KEY.sub(insert_placeholder, text)  # "@lee2020 shows"
    numbers = number_keys(cites)
    sections = _sections(text)
    paragraphs = [
        read_paragraph(section, cites, numbers, f"{number} {name}", _plain_markdown)
        for number, (_, name, section) in enumerate(sections)
    ]
    title = next((name for level, name, _ in sections if level == 1), "")
    abstract = next((part for _, name, part in sections if name.strip("*:. ").lower() == "abstract"), "")
    id_year = arxiv_year(paper)
    metadata = Metadata(
        id=paper,
        title=_front_matter_text(front, "title") or title,
        abstract=_front_matter_text(front, "abstract") or _plain_markdown(_MARKS.sub("", abstract)),
        year=id_year or find_year(_front_matter_text(front, "date")),
        authors=tuple(_authors(front.get("author"))),
        identifiers=(identifier("arxiv", paper),) if id_year else (),
    )
    bibliography = [front.get("bibliography"), front.get("manubot-output-bibliography")]
    csl = tuple(name for name in _names(bibliography) if name.endswith(".json"))
    source = _name_bibliography(name for name in _names(bibliography) if name not in csl)
    return ParsedMarkdown(metadata, paragraphs, numbers, source, csl)


def group_keys(group: str) -> list[str]:
    """The keys in a citation, without cross-references to figures and the like."""
    keys = (braced or key for braced, key, _ in KEY.findall(group))
    return [key for key in keys if key and not CROSS_REFERENCE.match(key)]


def _formula_text(match: re.Match[str]) -> str:
    return " " if "@" in match[1] else plain_text(match[0])


def _name_bibliography(names: Iterable[object]) -> str:
    return "".join(f"\\addbibresource{{{name}}}" for name in names)


class _Loader(yaml.SafeLoader):
    """Reads tags of programs, such as R's !expr, as empty values."""


_Loader.add_multi_constructor("", lambda loader, tag, node: None)


def _split_front_matter(text: str, path: Path) -> tuple[dict[str, Any], str]:
    start = FRONT_MATTER.match(text)
    if not start:
        return {}, text
    return _read_yaml(start[1], f"{path}: its front matter (between --- lines)"), text[start.end() :]


def _read_yaml(text: str, what: str) -> dict[str, Any]:
    try:
        fields = yaml.load(text, _Loader)
    except (yaml.YAMLError, ValueError) as error:
        reason = " ".join(str(getattr(error, "problem", None) or error).split())
        raise InputError(f"{what} is not YAML: {reason}") from None
    return fields if isinstance(fields, dict) else {}


def _read_project(path: Path) -> tuple[Path, dict[str, Any]]:
    """The folder and fields of the book that a document belongs to; its own folder and {} if none.

    For the main file, they include `chapters`.
    """
    for folder in dict.fromkeys((path.parent, path.parent.parent)):
        for name in _PROJECTS:
            if not (folder / name).is_file():
                continue
            given = _read_yaml(decode_latex(folder / name), str(folder / name))
            book = given.get("book")
            fields = {**given, **book} if isinstance(book, dict) else given
            index = next((file for file in sorted(folder.glob("index.*")) if is_markdown(file)), None)
            if index:
                fields = {**fields, **_split_front_matter(decode_latex(index), index)[0]}
            if name == "_bookdown.yml":
                files = sorted(file.name for file in folder.glob("[!_]*.[Rr]md"))
                chapters = fields.get("rmd_files") or files
            else:
                chapters = [fields.get("chapters"), fields.get("appendices")] if book else []
            places = [folder / bib for bib in _names(fields.get("bibliography"))]
            bibliography = {"bibliography": [os.path.relpath(place, path.parent) for place in places]}
            if index and path.resolve() == index.resolve():
                return folder, {**fields, **bibliography, "chapters": list(_names(chapters))}
            return folder, bibliography  # a chapter has its own title
    return path.parent, {}


def _names(value: object) -> Iterator[str]:
    """The strings in nested lists and objects, in order."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _names(inner)


def _read_text(
    path: Path, folder: Path, project: dict[str, Any], read_file: Callable[[Path], str] = decode_latex
) -> tuple[str, set[Path]]:
    """The text with the chapters and included files, which are in `folder`, and their paths."""
    path, folder = path.resolve(), folder.resolve()
    left, parts = [MAX_CHARACTERS, MAX_INPUTS], set()

    def read(file: Path, parents: tuple[Path, ...]) -> str:
        text = read_file(file)
        left[0] -= len(text)
        left[1] -= 1
        if min(left) < 0:
            raise InputError(
                f"{path}: more than {MAX_CHARACTERS:,} characters or {MAX_INPUTS:,} files with its chapters"
            )
        if parents:
            parts.add(file)
            text = FRONT_MATTER.sub("", text)

        def read_parts(match: re.Match[str]) -> str:
            names = [match[1]] if match[1] else _QUOTED.findall(match[2])
            found = [find_part(name, file.parent, (*parents, file)) for name in names]
            return "\n\n".join(text for text in found if text) or match[0]

        return _INCLUDE.sub(read_parts, text)

    def find_part(name: str, beside: Path, parents: tuple[Path, ...]) -> str:
        """The text of an included file, at its place or else beside the document."""
        for place in (beside / name, folder / name, beside / Path(name).name):
            part = place.resolve()
            if is_markdown(part) and part.is_relative_to(folder) and part not in parents and part.is_file():
                return read(part, parents)
        return ""

    texts = [read(path, ())]
    texts += [find_part(name, folder, (path,)) for name in project.get("chapters", ())]
    return "\n\n".join(texts), parts


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


def _authors(value: object) -> Iterator[str]:
    """Names of front matter: strings, or objects with a name or with given and family names."""
    for author in value if isinstance(value, list) else [value]:
        name = author.get("name", author) if isinstance(author, dict) else author
        if isinstance(name, dict):
            name = " ".join(str(name[part]) for part in ("given", "family") if name.get(part))
        if isinstance(name, str) and name.strip():
            yield _plain_markdown(name)


def _plain_markdown(text: str) -> str:
    """Remove links, emphasis, escapes, tags, LaTeX commands and block markers.

    >>> _plain_markdown("> We *parse* [trees](https://x.org) with [`code`]{.smallcaps}.")
    'We parse trees with `code`.'
    """
    text = _LINE_START.sub("", _LINK.sub(lambda match: match[1] or match[2] or " ", text))
    text = _COMMAND.sub(lambda match: match[1] or "", _TAG.sub("", text))
    text = _EMPHASIS.sub(lambda match: match[2] or "", text)
    return " ".join(_BACKSLASH.sub(r"\1", text).split())
