"""The bibliography of a document: .bib and CSL JSON files that it names, and printed entries.

Printed entries are those of LaTeX: in a .bbl file, or in the document itself.
"""

from __future__ import annotations

import glob
import html
import logging
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from bibtexparser.entrypoint import parse_string
from bibtexparser.middlewares.names import parse_single_name_into_parts, split_multiple_persons_names

from citerec.base.errors import InputError
from citerec.base.files import read_limited
from citerec.datasets.fulltext.catalogue import find_arxiv_id, find_year, identifier
from citerec.datasets.fulltext.documents import Reference
from citerec.datasets.languages.inputs import decode_text
from citerec.datasets.languages.latex_text import braced_argument, macro_arguments, plain_text
from citerec.datasets.records import json_type

logging.getLogger("bibtexparser").setLevel(logging.CRITICAL)  # broken entries are skipped, as by BibTeX

OTHER_FILES = (".json", ".yml", ".yaml")
"""Suffixes of bibliographies other than .bib files."""
MAX_CSL_BYTES = 1 << 27
"""Maximum size of a CSL JSON file."""
BIB_ENTRY = re.compile(r"^[ \t]*@\s*(\w+)\s*[{(]\s*([^\s,{}()=]+)\s*,", re.MULTILINE)
_BIB_STRINGS = re.compile(r"^[ \t]*@\s*string\s*[{(].*$", re.MULTILINE | re.IGNORECASE)
_MAY_NAME_ARXIV = ("eprint", "arxivid", "journal", "url", "note", "doi")
_NEARBY = ("", "*/", "*/*/")
"""Where a .bib file is looked for by its name."""
_ITEM = re.compile(r"\\bibitem\s*(?=[\[{])")
_ITEMS_END = re.compile(r"\\end\s*\{thebibliography\}")
_BIBLATEX_ENTRY = re.compile(r"\\entry\{([^{}]+)\}")
_BIBLATEX_END = "\\endentry"
_BIBLATEX_FIELD = re.compile(r"\\field\{(title|year|date)\}(?=\{)")
_BIBLATEX_FAMILY = re.compile(r"family=(?=\{)")
_COMMENT = re.compile(r"(?<!\\)%[^\n]*\n?[ \t]*")
_TAG = re.compile(r"</?[A-Za-z][^<>]{0,300}>")
# Surnames in a printed entry: in REVTeX's macros, or with initials before or after them.
_REVTEX_NAME = re.compile(r"\\bibnamefont\s*(?=\{)")
_TITLE_STARTS = re.compile(r"\\newblock|``|“|\\emph|\\textit|\\em\b|\\it\b|\\bibinfo\s*\{title\}")
_INITIALS = r"(?:[^\W\d_]\.[\s~-]*)+"
_WITH_INITIALS = re.compile(rf"{_INITIALS}([^\W\d_][\w'’-]+)|([^\W\d_][\w'’-]+),\s+{_INITIALS}")
_AUTHORS_END = 400


@dataclass(frozen=True)
class References:
    """The bibliography of the document at `path`.

    names: of files, as the document writes them. source: LaTeX that may have printed entries. root: folder
    that may contain the files; None means the document's. beside: the only .bib file of the document's folder
    counts if it names none.
    """

    path: Path
    names: Sequence[str]
    source: str | None = None
    root: Path | None = None
    beside: bool = False

    def bibs(self) -> dict[str, Path]:
        """Return the .bib files by their names, if they are in the folder of the document or in `root`.

        A file that is not at its place, such as an absolute path of another computer, is looked for by its
        name: beside the document and up to two folders below.
        """
        allowed = (self.root or self.path.parent).resolve()
        found: dict[str, Path] = {}
        names = self.names
        if self.beside and not names and len(bibs := [*self.path.parent.glob("*.bib")]) == 1:
            names = [bibs[0].name]
        for name in names:
            named = self.path.parent / f"{name.removesuffix('.bib')}.bib"
            last = glob.escape(re.split(r"[/\\]", named.name)[-1])
            nearby = (file for place in _NEARBY for file in sorted(self.path.parent.glob(f"{place}{last}")))
            for file in (named, *nearby):
                if file.is_file() and file.resolve().is_relative_to(allowed):
                    found[name] = file.resolve()
                    break
        return found

    def csl(self) -> list[Path]:
        """Return the CSL JSON files, at their places or else beside the document."""
        folder, found = self.path.parent, []
        root = (self.root or folder).resolve()
        for name in (name for name in self.names if name.endswith(".json")):
            files = (file for file in (folder / name, folder / Path(name).name) if file.is_file())
            found += [file for file in files if file.resolve().is_relative_to(root)][:1]
        return found

    def entries(self, keys: Iterable[str]) -> dict[str, Reference]:
        """Return the existing entries with these keys."""
        wanted = dict.fromkeys(keys)
        printed = {} if self.source is None else _read_printed(self.path, self.source)
        entries = {key: _parse_printed(*printed[key]) for key in wanted if key in printed}
        # .bib files have separate titles and authors: they override printed entries; the first file wins.
        for file in reversed(dict.fromkeys(self.bibs().values())):
            entries |= bib_entries(decode_text(file), wanted)
        for file in self.csl():
            found = read_csl(file)
            entries |= {key: found[key] for key in wanted if key in found}
        return entries


def bib_entries(text: str, wanted: Container[str] | None = None) -> dict[str, Reference]:
    """Parse BibTeX entries by key, only the `wanted` ones since files can be huge; None means all."""
    starts = list(BIB_ENTRY.finditer(text))
    ends = [match.start() for match in starts[1:]] + [len(text)][: len(starts)]
    parts = [
        text[match.start() : end]
        for match, end in zip(starts, ends, strict=True)
        if wanted is None or match[2] in wanted
    ]
    entries = {}
    for entry in parse_string("\n".join(_BIB_STRINGS.findall(text) + parts)).entries if parts else ():
        fields = {name.lower(): str(field.value) for name, field in entry.fields_dict.items()}
        entries[entry.key] = Reference(
            title=plain_text(fields.get("title", "")),
            authors=tuple(_author_names(fields.get("author", ""))),
            year=find_year(fields.get("year", "") or fields.get("date", "")),
            abstract=plain_text(fields.get("abstract", "")),
            arxiv=next(filter(None, (find_arxiv_id(fields.get(name, "")) for name in _MAY_NAME_ARXIV)), ""),
            identifiers=tuple(identifier(kind, fields[kind]) for kind in ("doi", "pmid") if fields.get(kind)),
        )
    return entries


def _author_names(authors: str) -> Iterator[str]:
    """Yield each author as "Surname, Forename"."""
    for name in split_multiple_persons_names(authors):
        parts = parse_single_name_into_parts(name, strict=False)
        last, first = plain_text(" ".join(parts.von + parts.last)), plain_text(" ".join(parts.first))
        if last and last != "others":
            yield f"{last}, {first}" if first else last


def _read_printed(path: Path, source: str) -> dict[str, tuple[str, str]]:
    """Printed entries as {key: (label, LaTeX)}: from the document, else its .bbl or the only one nearby."""
    text = source
    if not _ITEM.search(source):
        files = [path.with_suffix(".bbl")]
        files += found if len(found := list(path.parent.glob("*.bbl"))) == 1 else []
        text = next((_COMMENT.sub("", decode_text(file)) for file in files if file.is_file()), "")
    entries = {}
    done = 0
    while (start := _BIBLATEX_ENTRY.search(text, done)) and (
        end := text.find(_BIBLATEX_END, start.end())
    ) > 0:
        entries[start[1]] = "", text[start.end() : end]
        done = end
    if starts := list(_ITEM.finditer(text)):
        last = _ITEMS_END.search(text, starts[-1].end())
        ends = [match.start() for match in starts[1:]] + [last.start() if last else len(text)]
        for match, end in zip(starts, ends, strict=True):
            item = text[match.end() : end]
            label, place = _split_label(item)
            key, place = braced_argument(item, place)
            entries[key.strip()] = label, item[place:]
    return entries


def _split_label(item: str) -> tuple[str, int]:
    """The label at the start of an item, in brackets with balanced braces, and where the key starts."""
    depth = 0
    for place, sign in enumerate(item if item.startswith("[") else ""):
        depth += {"{": 1, "}": -1}.get(sign, 0)
        if sign == "]" and depth == 0:
            brace = item.find("{", place)
            return item[1:place], len(item) if brace < 0 else brace
    return "", 0


def _parse_printed(label: str, entry: str) -> Reference:
    fields = {match[1]: argument for match, argument, _ in macro_arguments(_BIBLATEX_FIELD, entry)}
    if "title" in fields:
        families = tuple(plain_text(family) for _, family, _ in macro_arguments(_BIBLATEX_FAMILY, entry))
        year = find_year(fields.get("year", "") or fields.get("date", ""))
        return Reference(title=plain_text(fields["title"]), authors=families, year=year)
    text = ". ".join(plain_text(part).strip(" .") for part in entry.split("\\newblock"))
    return Reference(authors=tuple(_printed_names(label, entry)), text=text)


def _printed_names(label: str, entry: str) -> list[str]:
    """Surnames from REVTeX macros, else those with initials, else natbib's "Lee et al.(2010)Lee, Diaz"."""
    if revtex := [plain_text(name) for _, name, _ in macro_arguments(_REVTEX_NAME, entry)]:
        return revtex
    title = _TITLE_STARTS.search(entry)
    authors = plain_text(entry[: min(title.start(), _AUTHORS_END) if title else _AUTHORS_END])
    if initialled := [first or last for first, last in _WITH_INITIALS.findall(authors)]:
        return initialled
    # The full author list follows the year; if missing, the short form has the first author.
    short, _, full = plain_text(label).partition(")")
    listed = re.split(r",|\band\b|&", full or re.sub(r"\bet al\b.*|\(.*", "", short))
    return [name.strip() for name in listed if re.search(r"[^\W\d_]{2}", name)]


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
        for line in decode_text(names).splitlines():
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
