"""Papers as BibTeX, RIS and CSL JSON, for LaTeX, reference managers and word processors."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence

from citerec.formats.bibliography.bibtex import entry_key, typeset, write_item
from citerec.formats.bibliography.csl import write_csl
from citerec.formats.bibliography.entries import BibtexText
from citerec.formats.bibliography.item import Item
from citerec.formats.bibliography.paper import LibraryPaper
from citerec.formats.bibliography.reading.bibtex import entry_item
from citerec.formats.bibliography.ris import write_record
from citerec.formats.names import parse_name

_HEAD = re.compile(r"@\s*\w+\s*[{(]\s*")
_KEY_END = re.compile(r"\s*[,})]")
_PROCEEDINGS = re.compile(
    r"\b(?:Proc|Proceedings|Conference|Workshop|Symposium|Meeting)\b|^[A-Z][a-z]*[A-Z][A-Za-z]*(?:[ -]\d+)?$"
)
_JOURNALS = ("JMLR", "TACL", "TPAMI", "TMLR", "PLoS", "PNAS")
"""Journals whose names look like those of conferences."""


def bibtex(papers: Iterable[LibraryPaper]) -> str:
    """Return one entry per paper: that of its source under the paper's key, else a generated one.

    Only abstracts are changed, since nobody sees there what biber and Typst cannot read.
    """
    return "\n\n".join(map(_entry, papers)) + "\n"


def _entry(paper: LibraryPaper) -> str:
    key = entry_key(paper.key or paper.id)
    if not (raw := paper.bibtex.strip()):
        return write_item(paper_item(paper), key)
    for entry in BibtexText(raw).entries[:1]:
        for name, start, end in reversed(entry.fields or ()):
            if name.lower() == "abstract":
                raw = f"{raw[:start]}{typeset(name, raw[start:end], raw)}{raw[end:]}"
        head = _HEAD.match(raw)
        place = head.end() if head else len(raw)
        if raw.startswith(entry.key, place) and _KEY_END.match(raw, place + len(entry.key)):
            raw = f"{raw[:place]}{key}{raw[place + len(entry.key) :]}"
    return raw


def ris(papers: Iterable[LibraryPaper]) -> str:
    """Return one RIS record per paper."""
    return "\n".join(write_record(paper_item(paper), paper.key or paper.id) for paper in papers)


def csl(papers: Iterable[LibraryPaper]) -> str:
    """Return a list in CSL JSON."""
    items = [
        write_csl(paper_item(paper), paper.key or paper.id)
        | ({"citation-key": paper.key} if paper.key else {})
        for paper in papers
    ]
    return json.dumps(items, ensure_ascii=False, indent=1) + "\n"


ENTRIES: dict[str, Callable[[Sequence[LibraryPaper]], str]] = {"bibtex": bibtex, "ris": ris, "csl": csl}
"""Functions that write papers, by format."""


def paper_item(paper: LibraryPaper) -> Item:
    """Return a paper as an item: that of its entry, with what only the library knows."""
    fields = {
        "title": paper.title,
        "issued": str(paper.year) if paper.year else "",
        "DOI": paper.doi,
        "arxiv": paper.arxiv,
        "URL": paper.url,
        "abstract": paper.abstract,
        "keyword": "; ".join(paper.tags),
    }
    if (item := entry_item(paper.bibtex)) is None:
        item = Item(_type(paper), {}, {})
        fields["container-title"] = paper.venue
    if not item.authors and paper.authors:
        item.names["author"] = [parse_name(name) for name in paper.names or paper.authors]
    item.fields.update({name: text for name, text in fields.items() if text and not item.fields.get(name)})
    return item


def _type(paper: LibraryPaper) -> str:
    """Return the type of a paper without an entry, by its venue."""
    if not paper.venue:
        return "article" if paper.arxiv else "document"
    is_journal = not _PROCEEDINGS.search(paper.venue) or paper.venue.split()[0] in _JOURNALS
    return "article-journal" if is_journal else "paper-conference"
