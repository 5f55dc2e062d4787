"""Reader for BibTeX and BibLaTeX (JabRef, Zotero, Mendeley)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, count
from pathlib import Path

from citerec.base.errors import InputError
from citerec.formats.bibliography.attachments import file_folders, parse_file_field, resolve_files
from citerec.formats.bibliography.bibtex import read_item
from citerec.formats.bibliography.entries import BibtexText, ReadEntry, write_fields
from citerec.formats.bibliography.item import ROLES, Item
from citerec.formats.bibliography.latex import latex_to_text
from citerec.formats.bibliography.paper import LibraryPaper, split_names, usable_paper
from citerec.formats.drafts.inputs import decode_text
from citerec.formats.json_lines import OnBadRecord
from citerec.formats.letters import fold
from citerec.formats.names import parse_name

_GROUPS = ("groups", "collection", "collections", "mendeley-groups")
_TAGS = ("keywords", "mendeley-tags")
_INHERITED = (
    *("journal", "journaltitle", "booktitle", "booksubtitle", "maintitle", "editor", "year", "date", "month"),
    *("publisher", "address", "location", "organization", "institution", "series", "volume", "edition"),
    *("eventtitle", "eventdate", "venue", "isbn", "issn", "language", "langid"),
)
"""Fields that an entry takes from its crossref. Others, such as the DOI, belong to the whole."""
_IN_BOOK = ("inbook", "bookinbook", "suppbook")
"""Types that have the author of their crossref, too."""
_PARTS = (
    *("article", "suppperiodical", "incollection", "suppcollection", "inproceedings", "conference"),
    *("inreference", "chapter", *_IN_BOOK),
)
"""Types with titles of their own; others, such as a version of software, take all from their crossref."""
_NOT_PAPERS = ("xdata", "control", "ieeetranbstctl")
"""Types of entries that serve other entries or styles."""
_MAX_PARENTS = 5
_READ_NAMES = (
    "title subtitle shorttitle origtitle booktitle booksubtitle maintitle mainsubtitle journal journaltitle "
    "journalsubtitle series eventtitle publisher school institution organization howpublished year date "
    "month day doi url eprint eprinttype archiveprefix arxivid arxiv volume note abstract entrysubtype"
)
_READ = {*_READ_NAMES.split(), *ROLES, "bookauthor"}
"""Fields that a paper of a library needs; its entry has the others."""
_NO_KEY = re.compile(r"(@\s*\w+\s*[{(])\s*,?")
_COMMA = re.compile(r"[\s,]+")


def read_bibtex(path: Path, on_bad: OnBadRecord) -> Iterator[LibraryPaper]:
    """Yield the papers of a BibTeX file, in order. Raises InputError for a file without entries."""
    text = decode_text(path)
    return parse_bibtex(text, str(path), on_bad, file_folders(path, text))


def parse_bibtex(
    text: str, name: str, on_bad: OnBadRecord, folders: Sequence[Path] = ()
) -> Iterator[LibraryPaper]:
    """Yield the papers of BibTeX entries, in order. Raises InputError if there are none.

    name: for errors. folders: to which names of their PDFs are relative; without any, PDFs are left out.
    """
    bibliography = BibtexText(text)
    entries = [
        (f"{name}, line {entry.line}" + (f" ({entry.key})" if entry.key else ""), bibliography.read(entry))
        for entry in bibliography.entries
    ]
    if not entries:
        raise InputError(f"{name}: has no entries (@article{{key, ...}})")
    by_key = {entry.key.lower(): entry for _, entry in reversed(entries) if entry and entry.key}
    by_key |= {alias.lower(): entry for entry in [*by_key.values()] for alias in entry.aliases}
    taken = {*by_key}
    for where, entry in entries:
        if entry is None:
            on_bad(InputError(f"{where}: cannot be parsed: check its braces, quotes and commas"))
        elif entry.kind not in _NOT_PAPERS:
            if entry.problem:
                on_bad(InputError(f"{where}: {entry.problem}"))
            for paper in usable_paper(partial(_make_paper, entry, by_key, folders), where, on_bad):
                if not entry.key:
                    paper = _with_key(paper, taken)
                    on_bad(InputError(f"{where}: has no key; it is {paper.key} in the library"))
                yield paper


def entry_item(bibtex: str) -> Item | None:
    """Return the item of an entry, only its type if the entry is broken; None if there is no entry."""
    text = BibtexText(bibtex)
    for entry in text.entries:
        contents = text.read(entry)
        return read_item(entry.kind, contents.fields if contents else {})
    return None


def _make_paper(entry: ReadEntry, entries: dict[str, ReadEntry], folders: Sequence[Path]) -> LibraryPaper:
    """Return the paper of an entry. entries: all by key, for crossref and xdata."""
    fields = _with_inherited(entry, entries)
    item = read_item(entry.kind, {name: value for name, value in fields.items() if name in _READ})
    names = [[name for key in keys for name in split_names(latex_to_text(fields.get(key, "")))]
             for keys in (_GROUPS, _TAGS)]  # fmt: skip
    paper = item.paper(entry.key, collections=names[0], tags=names[1])
    bibtex = entry.bibtex if fields is entry.fields else write_fields(entry.kind, entry.key, fields)
    files = resolve_files(parse_file_field(entry.fields.get("file", "")), folders) if folders else ()
    return paper._replace(bibtex=bibtex, aliases=tuple(entry.aliases), files=files)


def _with_inherited(entry: ReadEntry, entries: dict[str, ReadEntry], depth: int = 0) -> dict[str, str]:
    """Return the fields of an entry with those of its crossref and xdata, which are then left out."""
    others = {
        name: [entries[key] for key in _COMMA.split(entry.fields.get(name, "").lower()) if key in entries]
        for name in ("xdata", "crossref")
    }
    if depth == _MAX_PARENTS or not any(others.values()):
        return entry.fields
    fields = {name: value for name, value in entry.fields.items() if not others.get(name)}
    for other in others["xdata"]:
        fields = _with_inherited(other, entries, depth + 1) | fields
    for parent in others["crossref"]:
        above = _with_inherited(parent, entries, depth + 1)
        whole = "journaltitle" if entry.kind in ("article", "suppperiodical") else "booktitle"
        names = [*_INHERITED, *(["author"] if entry.kind in _IN_BOOK or entry.kind not in _PARTS else [])]
        if entry.kind not in _PARTS and not fields.get("title"):
            names += ["title", "subtitle"]
        inherited = {name: above[name] for name in names if above.get(name)}
        if "title" not in inherited and (title := above.get("title")):
            inherited.setdefault(whole, title)
            if subtitle := above.get("subtitle"):
                inherited.setdefault(f"{whole.removesuffix('title')}subtitle", subtitle)
        dated = ("date", "year", "month") if {"date", "year"} & {*fields} else ()
        left_out = {*dated, *(name for name, value in fields.items() if value)}
        fields |= {name: value for name, value in inherited.items() if name not in left_out}
    return fields


def _with_key(paper: LibraryPaper, taken: set[str]) -> LibraryPaper:
    """Return a paper whose entry has no key with one that no other entry has."""
    author = parse_name((*paper.names, *paper.authors, "")[0])
    words = re.findall(r"\w{3,}", fold(f"{author.short} {paper.title} paper").lower())
    stem = f"{words[0]}{paper.year or ''}"
    keys = chain([stem], (f"{stem}-{number}" for number in count(2)))
    key = next(key for key in keys if key not in taken)
    taken.add(key)
    id = f"key:{key}" if paper.id.startswith("title:") else paper.id
    return paper._replace(key=key, id=id, bibtex=_NO_KEY.sub(f"\\1{key},", paper.bibtex, count=1))
