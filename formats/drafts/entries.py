"""Entries of bibliographies: BibTeX, CSL (JSON, YAML), Typst's YAML, and LaTeX as printed."""

from __future__ import annotations

import html
import logging
import re
from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import yaml
from bibtexparser.entrypoint import parse_string
from bibtexparser.middlewares.names import parse_single_name_into_parts, split_multiple_persons_names

from citerec.base.errors import InputError
from citerec.base.files import read_limited, real_path
from citerec.formats.documents import Reference
from citerec.formats.drafts.inputs import decode_text
from citerec.formats.identifiers import find_arxiv_id, find_year, identifier
from citerec.formats.json_lines import json_type
from citerec.formats.latex_text import braced_argument, macro_arguments, plain_text

logging.getLogger("bibtexparser").setLevel(logging.CRITICAL)  # broken entries are skipped, as by BibTeX

MAX_CSL_BYTES = 1 << 27
"""Maximum size of a CSL JSON file."""
BIB_ENTRY = re.compile(r"^[ \t]*@\s*(\w+)\s*[{(]\s*([^\s,{}()=]+)\s*,", re.MULTILINE)
ALIASES = re.compile(r"[,\s]ids\s*=\s*(?:\{([^{}]*)\}|\"([^\"]*)\")", re.IGNORECASE)
_BIB_STRINGS = re.compile(r"^[ \t]*@\s*string\s*[{(].*$", re.MULTILINE | re.IGNORECASE)
_MAY_NAME_ARXIV = ("eprint", "arxivid", "journal", "url", "note", "doi")
_ITEM = re.compile(r"\\(?:bibitem|harvarditem)\s*(?=[\[{])|\\bib\*?\s*(?=\{[^{}]*\}\s*\{\w+\}\s*\{)")
"""Those of LaTeX, harvard and amsrefs."""
_ITEMS_END = re.compile(r"\\end\s*\{thebibliography\}")
_BIBLATEX_ENTRY = re.compile(r"\\entry\{([^{}]+)\}")
_BIBLATEX_END = "\\endentry"
_BIBLATEX_FIELD = re.compile(r"\\field\{(title|year|date)\}(?=\{)")
_BIBLATEX_FAMILY = re.compile(r"family=(?=\{)")
COMMENT = re.compile(r"(?<!\\)%[^\n]*\n?[ \t]*")
_TAG = re.compile(r"</?[A-Za-z][^<>]{0,300}>")
# Surnames in a printed entry: in REVTeX's macros, or with initials before or after them.
_REVTEX_NAME = re.compile(r"\\bibnamefont\s*(?=\{)")
_TITLE_STARTS = re.compile(r"\\newblock|``|“|\\emph|\\textit|\\em\b|\\it\b|\\bibinfo\s*\{title\}")
_INITIALS = r"(?:[^\W\d_]\.[\s~-]*)+"
_WITH_INITIALS = re.compile(rf"{_INITIALS}([^\W\d_][\w'’-]+)|([^\W\d_][\w'’-]+),\s+{_INITIALS}")
_AUTHORS_END = 400


def bib_entries(text: str, wanted: Container[str] | None = None) -> dict[str, Reference]:
    """Parse BibTeX entries by key, only the `wanted` ones since files can be huge; None means all."""
    starts = list(BIB_ENTRY.finditer(text))
    ends = [match.start() for match in starts[1:]] + [len(text)][: len(starts)]
    has_aliases, aliases, parts = bool(ALIASES.search(text)), dict[str, str](), []
    for match, end in zip(starts, ends, strict=True):
        part = text[match.start() : end]
        others = find_aliases(part) if has_aliases else []
        if wanted is None or any(key in wanted for key in (match[2], *others)):
            parts.append(part)
            aliases |= dict.fromkeys(others, match[2])
    entries: dict[str, Reference] = {}
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
    entries = {alias: entries[key] for alias, key in aliases.items() if key in entries} | entries
    return entries if wanted is None else {key: one for key, one in entries.items() if key in wanted}


def find_aliases(entry: str) -> list[str]:
    """Return the other keys of a BibTeX entry (biblatex's field ids).

    >>> find_aliases("@article{moss2020, ids = {peat, moor}, year = 2020}")
    ['peat', 'moor']
    """
    found = ALIASES.search(entry)
    return [key for name in (found[1] or found[2] or "").split(",") if (key := name.strip())] if found else []


def _author_names(authors: str) -> Iterator[str]:
    """Yield each author as "Surname, Forename"."""
    for name in split_multiple_persons_names(authors):
        parts = parse_single_name_into_parts(name, strict=False)
        last, first = plain_text(" ".join(parts.von + parts.last)), plain_text(" ".join(parts.first))
        if last and last != "others":
            yield f"{last}, {first}" if first else last


def read_printed(text: str) -> dict[str, tuple[str, str]]:
    """Return the printed entries of a LaTeX text as {key: (label, LaTeX)}."""
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
            for _ in range(2 if match[0].startswith("\\harvarditem") else 0):  # the label and the year
                place = item.find("{", braced_argument(item, place)[1])
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


def parse_printed(label: str, entry: str) -> Reference:
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


def read_other(path: Path) -> dict[str, Reference]:
    """Read the entries of a CSL file or Typst's YAML by key, and CSL also by identifier ("doi:10.1000/x").

    Manubot's citations.tsv beside a CSL file has more names for its entries. Raises InputError if the file is
    neither.
    """
    content = read_limited(path, MAX_CSL_BYTES)
    try:
        if path.suffix == ".json":
            loaded = msgspec.json.decode(content)
        else:
            loaded = yaml.load(content, yaml.CSafeLoader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        kind = "JSON" if path.suffix == ".json" else "YAML"
        reason = " ".join(str(getattr(error, "problem", None) or error).split())
        raise InputError(f"{path}: malformed {kind}: {reason}") from None
    if isinstance(loaded, dict) and path.suffix != ".json" and "references" not in loaded:
        works = {str(key): work for key, work in loaded.items() if isinstance(work, dict)}
        return {key: _typst_reference(work) for key, work in works.items()}
    items = loaded
    if isinstance(loaded, dict):
        alone = "id" in loaded and ("type" in loaded or "title" in loaded)
        items = [loaded] if alone else loaded.get("references", loaded.get("items"))
    if not isinstance(items, list):
        kind = "CSL JSON" if path.suffix == ".json" else "CSL in YAML"
        raise InputError(f"{path}: must be a list of entries ({kind}), not {json_type(loaded)}")
    entries = csl_entries(items)
    names = path.with_name("citations.tsv")
    if names.is_file() and real_path(names).parent == real_path(path).parent:
        for line in decode_text(names).splitlines():
            given, *_, key = line.split("\t")
            if key in entries:
                entries.setdefault(given, entries[key])
    return entries


def csl_entries(items: Iterable[object]) -> dict[str, Reference]:
    """Return CSL items by their ids and identifiers."""
    entries: dict[str, Reference] = {}
    for item in items:
        if isinstance(item, dict):
            reference = _csl_reference(item)
            for key in (str(item.get("id", "")), *reference.identifiers, f"arxiv:{reference.arxiv}"):
                entries.setdefault(key, reference)
    return entries


def _csl_reference(item: dict[str, Any]) -> Reference:
    def text(field: str) -> str:
        value = item.get(field)
        return " ".join(_TAG.sub("", html.unescape(str(value))).split()) if value else ""

    given = item.get("author")
    authors = [author for author in given if isinstance(author, dict)] if isinstance(given, list) else []
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


def _typst_reference(work: dict[str, Any]) -> Reference:
    """Return a work of Typst's YAML (github.com/typst/hayagriva)."""

    def text(value: object) -> str:
        chosen = value.get("value") if isinstance(value, dict) else value
        return " ".join(str(chosen).replace("{", "").replace("}", "").split()) if chosen else ""

    given = work.get("author")
    people = given if isinstance(given, list) else [given] if given else []
    names = (
        f"{text(one.get('name'))}, {text(one.get('given-name'))}".rstrip(", ")
        if isinstance(one, dict)
        else text(one)
        for one in people
    )
    numbers = work.get("serial-number")
    kinds = {**numbers, **work} if isinstance(numbers, dict) else work
    return Reference(
        title=text(work.get("title")),
        authors=tuple(filter(None, names)),
        year=find_year(text(work.get("date"))),
        abstract=text(work.get("abstract")),
        arxiv=find_arxiv_id(
            f"arxiv:{text(kinds.get('arxiv'))}" if kinds.get("arxiv") else text(work.get("url"))
        ),
        identifiers=tuple(identifier(kind, text(kinds[kind])) for kind in ("doi", "pmid") if kinds.get(kind)),
    )
