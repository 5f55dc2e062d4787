"""The bibliography of a LaTeX document: entries of .bib files, or printed ones, of a .bbl or the document."""

from __future__ import annotations

import logging
import re
from collections.abc import Container, Iterable, Iterator
from pathlib import Path

from bibtexparser.entrypoint import parse_string
from bibtexparser.middlewares.names import parse_single_name_into_parts, split_multiple_persons_names

from datasets.fulltext.latex_source import arguments, braced, decoded
from datasets.fulltext.latex_text import plain
from datasets.fulltext.schema import Reference

_FILES = re.compile(r"\\(?:bibliography|addbibresource(?:\[[^\]]*\])?|addglobalbib)\s*\{([^{}]+)\}")
_ENTRY = re.compile(r"^[ \t]*@\s*(\w+)\s*[{(]\s*([^\s,{}()=]+)\s*,", re.MULTILINE)
_STRINGS = re.compile(r"^[ \t]*@\s*string\s*[{(].*$", re.MULTILINE | re.IGNORECASE)
_ITEM = re.compile(r"\\bibitem\s*(?=[\[{])")
_PRINTED_END = re.compile(r"\\end\s*\{thebibliography\}")
_BIBLATEX_ENTRY = re.compile(r"\\entry\{([^{}]+)\}")
_BIBLATEX_END = "\\endentry"
_BIBLATEX_FIELD = re.compile(r"\\field\{(title|year|date)\}(?=\{)")
_FAMILY = re.compile(r"family=(?=\{)")
_COMMENT = re.compile(r"(?<!\\)%[^\n]*\n?[ \t]*")
_YEAR = re.compile(r"(?<!\d)(?:19|20)\d\d(?!\d)")
# Surnames in a printed entry: those of REVTeX's styles, and those with initials before or after them.
_REVTEX_NAME = re.compile(r"\\bibnamefont\s*(?=\{)")
_TITLE_STARTS = re.compile(r"\\newblock|``|“|\\emph|\\textit|\\em\b|\\it\b|\\bibinfo\s*\{title\}")
_INITIALS = r"(?:[^\W\d_]\.[\s~-]*)+"
_WITH_INITIALS = re.compile(rf"{_INITIALS}([^\W\d_][\w'’-]+)|([^\W\d_][\w'’-]+),\s+{_INITIALS}")
_AUTHORS_END = 400

logging.getLogger("bibtexparser").setLevel(logging.CRITICAL)  # broken entries are left out, as BibTeX does


def read_bibliography(path: Path, source: str, keys: Iterable[str]) -> dict[str, Reference]:
    """The entries with these keys, for the document at `path`; those that are nowhere are missing."""
    wanted = dict.fromkeys(keys)
    printed = _printed(path, source)
    entries = {key: _from_print(*printed[key]) for key in wanted if key in printed}
    # Files tell title and authors apart: they go before what is printed, the first before the others.
    for name in reversed([name.strip() for names in _FILES.findall(source) for name in names.split(",")]):
        file = (path.parent / (name if name.endswith(".bib") else f"{name}.bib")).resolve()
        if file.is_relative_to(path.parent.resolve()) and file.is_file():
            entries |= _from_bib(decoded(file), wanted)
    return entries


def _from_bib(text: str, wanted: Container[str]) -> dict[str, Reference]:
    """Only the entries wanted are parsed: some people cite out of files of a hundred thousand."""
    starts = list(_ENTRY.finditer(text))
    ends = [match.start() for match in starts[1:]] + [len(text)]
    parts = [text[match.start() : end] for match, end in zip(starts, ends, strict=True) if match[2] in wanted]
    if not parts:
        return {}
    library = parse_string("\n".join(_STRINGS.findall(text) + parts))
    entries = {}
    for entry in library.entries:
        fields = {name.lower(): str(field.value) for name, field in entry.fields_dict.items()}
        year = _YEAR.search(fields.get("year", "") or fields.get("date", ""))
        entries[entry.key] = Reference(
            title=plain(fields.get("title", "")),
            authors=tuple(_names(fields.get("author", ""))),
            year=int(year[0]) if year else 0,
        )
    return entries


def _names(authors: str) -> Iterator[str]:
    """ "Surname, Forename" of each."""
    for name in split_multiple_persons_names(authors):
        parts = parse_single_name_into_parts(name, strict=False)
        last, first = plain(" ".join(parts.von + parts.last)), plain(" ".join(parts.first))
        if last and last != "others":
            yield f"{last}, {first}" if first else last


def _printed(path: Path, source: str) -> dict[str, tuple[str, str]]:
    """Key -> (label, entry) as LaTeX: of the document itself, else of its .bbl or the only one beside it."""
    text = source
    if not _ITEM.search(source):
        files = [path.with_suffix(".bbl")]
        files += found if len(found := list(path.parent.glob("*.bbl"))) == 1 else []
        text = next((_COMMENT.sub("", decoded(file)) for file in files if file.is_file()), "")
    entries = {}
    done = 0
    while (start := _BIBLATEX_ENTRY.search(text, done)) and (
        end := text.find(_BIBLATEX_END, start.end())
    ) > 0:
        entries[start[1]] = "", text[start.end() : end]
        done = end
    starts = list(_ITEM.finditer(text))
    last = _PRINTED_END.search(text, starts[-1].end()) if starts else None
    ends = [match.start() for match in starts[1:]] + [last.start() if last else len(text)]
    for match, end in zip(starts, ends if starts else (), strict=True):
        item = text[match.end() : end]
        label, place = _label(item)
        key, place = braced(item, place)
        entries[key.strip()] = label, item[place:]
    return entries


def _label(item: str) -> tuple[str, int]:
    """What it begins with in square brackets, where braces may hide others, and where the key begins."""
    depth = 0
    for place, sign in enumerate(item if item.startswith("[") else ""):
        depth += {"{": 1, "}": -1}.get(sign, 0)
        if sign == "]" and depth == 0:
            brace = item.find("{", place)
            return item[1:place], len(item) if brace < 0 else brace
    return "", 0


def _from_print(label: str, entry: str) -> Reference:
    fields = {match[1]: argument for match, argument, _ in arguments(_BIBLATEX_FIELD, entry)}
    if "title" in fields:
        year = _YEAR.search(fields.get("year", "") or fields.get("date", ""))
        authors = tuple(plain(family) for _, family, _ in arguments(_FAMILY, entry))
        return Reference(title=plain(fields["title"]), authors=authors, year=int(year[0]) if year else 0)
    text = ". ".join(plain(part).strip(" .") for part in entry.split("\\newblock"))
    return Reference(authors=tuple(_printed_names(label, entry)), text=text)


def _printed_names(label: str, entry: str) -> Iterator[str]:
    """Surnames: of REVTeX, of natbib's label "Lee et al.(2010)Lee, Diaz", or those with initials."""
    revtex = [plain(name) for _, name, _ in arguments(_REVTEX_NAME, entry)]
    # natbib's list of all authors follows the year; without one, the short form has the first.
    short, _, full = plain(label).partition(")")
    listed = re.split(r",|\band\b|&", full or re.sub(r"\bet al\b.*|\(.*", "", short))
    title = _TITLE_STARTS.search(entry)
    authors = plain(entry[: min(title.start(), _AUTHORS_END) if title else _AUTHORS_END])
    initialled = [first or last for first, last in _WITH_INITIALS.findall(authors)]
    yield from revtex or initialled or [name.strip() for name in listed if re.search(r"[^\W\d_]{2}", name)]
