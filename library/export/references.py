"""Papers as RIS and CSL JSON, for reference managers and word processors; BibTeX is in formats.

Types and fields are those of the paper's BibTeX entry, if its source was one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from bibtexparser.middlewares.names import parse_single_name_into_parts
from rispy import BaseWriter, RisWriter, dumps

from citerec.library.export.formats import bibtex, entry_type, terminal_text
from citerec.library.papers import LibraryPaper
from citerec.library.sources.bibtex import entry_fields

_TYPES = {
    "article": ("JOUR", "article-journal"),
    "inproceedings": ("CONF", "paper-conference"),
    "conference": ("CONF", "paper-conference"),
    "book": ("BOOK", "book"),
    "mvbook": ("BOOK", "book"),
    "collection": ("EDBOOK", "book"),
    "proceedings": ("CONF", "book"),
    "incollection": ("CHAP", "chapter"),
    "inbook": ("CHAP", "chapter"),
    "phdthesis": ("THES", "thesis"),
    "mastersthesis": ("THES", "thesis"),
    "thesis": ("THES", "thesis"),
    "techreport": ("RPT", "report"),
    "report": ("RPT", "report"),
    "unpublished": ("UNPB", "manuscript"),
    "online": ("ELEC", "webpage"),
    "software": ("COMP", "software"),
    "dataset": ("DATA", "dataset"),
    "patent": ("PAT", "patent"),
}
"""RIS and CSL types by BibTeX's."""
_OTHER, _PREPRINT = ("GEN", "document"), ("GEN", "article")
_PARTS = ("JOUR", "CONF", "CHAP")
"""RIS types of what appears in something that has a title; the venue of others is their publisher."""
_FIELDS = {
    "volume": ("volume", "volume"),
    "number": ("number", "issue"),
    "publisher": ("publisher", "publisher"),
    "edition": ("edition", "edition"),
}
"""RIS and CSL names of fields of BibTeX."""


class _Writer(RisWriter):
    def set_header(self, count: int) -> str:
        return ""  # RIS has no numbers between records


def ris(papers: Iterable[LibraryPaper]) -> str:
    """Return one RIS record per paper."""
    writer: type[BaseWriter] = _Writer
    return dumps([_ris(paper) for paper in papers], implementation=writer)


def csl(papers: Iterable[LibraryPaper]) -> str:
    """Return a list in CSL JSON (https://docs.citationstyles.org/en/stable/specification.html)."""
    return json.dumps([_csl(paper) for paper in papers], ensure_ascii=False, indent=1) + "\n"


ENTRIES: dict[str, Callable[[Sequence[LibraryPaper]], str]] = {"bibtex": bibtex, "ris": ris, "csl": csl}
"""Functions that write papers, by format."""


def _ris(paper: LibraryPaper) -> dict[str, Any]:
    kind, entry = _types(paper)[0], entry_fields(paper.bibtex)
    names = [", ".join(filter(None, name)) for name in _names(paper)]
    first, _, last = _pages(entry).partition("-")
    fields = {ris: entry.get(name, "") for name, (ris, _) in _FIELDS.items()} | {
        "type_of_reference": kind,
        "id": paper.key or paper.id,
        "title": paper.title,
        "authors": names,
        "year": str(paper.year or ""),
        "secondary_title" if kind in _PARTS else "publisher": paper.venue,
        "start_page": first,
        "end_page": last,
        "doi": paper.doi,
        "urls": [paper.url],
        "abstract": paper.abstract,
        "keywords": list(paper.tags),
        "notes": [f"arXiv:{paper.arxiv}" if paper.arxiv else ""],
    }
    return {name: clean for name, value in fields.items() if (clean := _clean(value))}


def _csl(paper: LibraryPaper) -> dict[str, Any]:
    kinds, entry = _types(paper), entry_fields(paper.bibtex)
    names = [
        {"family": family, "given": given} if given else {"literal": family}
        for family, given in _names(paper)
    ]
    fields = {csl: entry.get(name, "") for name, (_, csl) in _FIELDS.items()} | {
        "id": paper.key or paper.id,
        "citation-key": paper.key,
        "type": kinds[1],
        "title": paper.title,
        "container-title" if kinds[0] in _PARTS else "publisher": paper.venue,
        "page": _pages(entry),
        "DOI": paper.doi,
        "URL": paper.url,
        "abstract": paper.abstract,
        "keyword": "; ".join(paper.tags),
        "note": f"arXiv:{paper.arxiv}" if paper.arxiv else "",
    }
    item: dict[str, Any] = {name: clean for name, value in fields.items() if (clean := _clean(value))}
    if names:
        item["author"] = names
    if paper.year:
        item["issued"] = {"date-parts": [[paper.year]]}
    return item


def _types(paper: LibraryPaper) -> tuple[str, str]:
    """Return the RIS and the CSL type."""
    return _TYPES.get(entry_type(paper), _PREPRINT if paper.arxiv else _OTHER)


def _names(paper: LibraryPaper) -> list[tuple[str, str]]:
    """Return family name and given names of each author; an institution's words are split, too."""
    parts = [parse_single_name_into_parts(terminal_text(name), strict=False) for name in paper.authors]
    return [(" ".join(name.von + name.last + name.jr), " ".join(name.first)) for name in parts]


def _pages(entry: dict[str, str]) -> str:
    return entry.get("pages", "").replace("–", "-").replace("--", "-")


def _clean(value: Any) -> Any:
    """Return a text, or the texts of a list, without control characters and empty texts."""
    if isinstance(value, list):
        return [clean for text in value if (clean := terminal_text(text))]
    return terminal_text(value)
