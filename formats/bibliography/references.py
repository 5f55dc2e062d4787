"""Papers as BibTeX, RIS and CSL JSON, for LaTeX, reference managers and word processors."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain, count

from citerec.formats.bibliography.bibtex import entry_key, read_item, typeset, write_item
from citerec.formats.bibliography.csl import write_csl
from citerec.formats.bibliography.entries import BibtexText, write_fields
from citerec.formats.bibliography.item import CONTAINED, Item
from citerec.formats.bibliography.paper import PREPRINT_VENUE, LibraryPaper
from citerec.formats.bibliography.reading.bibtex import entry_item
from citerec.formats.bibliography.ris import write_record
from citerec.formats.letters import normalise_title
from citerec.formats.names import OTHERS, parse_name

_PROCEEDINGS = re.compile(
    r"\b(?:Proc|Proceedings|Conference|Workshop|Symposium|Meeting)\b|^[A-Z][a-z]*[A-Z][A-Za-z]*(?:[ -]\d+)?$"
)
_JOURNALS = ("JMLR", "TACL", "TPAMI", "TMLR", "PLoS", "PNAS")
"""Journals whose names look like those of conferences."""
_IN_PRINT = ("container-title", "publisher", "volume", "issue", "number", "collection-number", "page")


def numbered(key: str) -> Iterator[str]:
    """Yield a key, then with -1, -2 and so on."""
    return chain([key], (f"{key}-{number}" for number in count(1)))


def cite_keys(papers: Collection[LibraryPaper]) -> list[str]:
    """Return the keys of papers in exports: those of .bib files as they stand there, others without what
    BibTeX or pandoc refuse. Of two papers with one key, the second gets -1."""
    keys, taken = dict[str, str](), set[str]()
    for paper in {paper.id: paper for paper in papers}.values():
        own = [entry.key for entry in BibtexText(paper.bibtex).entries[:1]]
        key = paper.key if own == [paper.key] else entry_key(paper.key or paper.id)
        keys[paper.id] = next(key for key in numbered(key) if key not in taken)
        taken.add(keys[paper.id])
    return [keys[paper.id] for paper in papers]


def bibtex(papers: Collection[LibraryPaper]) -> str:
    """Return one entry per paper: that of its source, completed, under the paper's key, else a generated one.

    Only abstracts are changed, in which nobody notices what biber and Typst cannot read.
    """
    return "\n\n".join(map(_entry, papers, cite_keys(papers))) + "\n"


def _entry(paper: LibraryPaper, key: str) -> str:
    item = paper_item(paper)
    if not (raw := _completed(paper.bibtex.strip(), item)):
        return write_item(item, key)
    for entry in BibtexText(raw).entries[:1]:
        for name, start, end in reversed(entry.fields or ()):
            if name.lower() == "abstract":
                raw = f"{raw[:start]}{typeset(name, raw[start:end], raw)}{raw[end:]}"
        head = rf"(@\s*\w+\s*[{{(]\s*){re.escape(entry.key)}(?=\s*[,}})])"
        raw = re.sub(head, lambda match: f"{match[1]}{key}", raw, count=1)
    return raw


def ris(papers: Collection[LibraryPaper]) -> str:
    """Return one RIS record per paper."""
    return "\n".join(map(write_record, map(paper_item, papers), cite_keys(papers)))


def csl(papers: Collection[LibraryPaper]) -> str:
    """Return a list in CSL JSON."""
    items = [
        write_csl(paper_item(paper), key) | ({"citation-key": key} if paper.key else {})
        for paper, key in zip(papers, cite_keys(papers), strict=True)
    ]
    return json.dumps(items, ensure_ascii=False, indent=1) + "\n"


ENTRIES: dict[str, Callable[[Collection[LibraryPaper]], str]] = {"bibtex": bibtex, "ris": ris, "csl": csl}
"""Functions that write papers, by format."""


def paper_item(paper: LibraryPaper) -> Item:
    """Return a paper as an item: that of its entry, with what only the library knows."""
    own = entry_item(paper.bibtex) or Item(_type(paper), {}, {})
    place = "container-title" if own.type in (*CONTAINED, "document") else "publisher"
    fields = {
        "title": paper.title,
        "issued": str(paper.year) if paper.year else "",
        "DOI": paper.doi,
        "arxiv": paper.arxiv,
        "URL": paper.url,
        "abstract": paper.abstract,
        "keyword": "; ".join(paper.tags),
        place: "" if own.venue else paper.venue,
    }
    authors = [parse_name(name) for name in paper.names or paper.authors]
    return _filled(own, Item(_type(paper), fields, {"author": authors}))


def _type(paper: LibraryPaper) -> str:
    """Return the type of a paper without an entry, by its venue."""
    if not paper.venue or PREPRINT_VENUE.search(paper.venue):
        return "article" if paper.arxiv or paper.venue else "document"
    is_journal = not _PROCEEDINGS.search(paper.venue) or paper.venue.split()[0] in _JOURNALS
    return "article-journal" if is_journal else "paper-conference"


def merge_entries(paper: LibraryPaper, records: Iterable[LibraryPaper]) -> LibraryPaper:
    """Return a paper with its entry completed by the type and place in print in other records' entries."""
    for bibtex in dict.fromkeys(record.bibtex for record in records):
        if bibtex != paper.bibtex and (its := entry_item(bibtex)):
            names = (*_IN_PRINT, "genre") if its.type == "thesis" else _IN_PRINT
            other = Item(its.type, {name: its.fields.get(name, "") for name in names}, {})
            paper = paper._replace(bibtex=_completed(paper.bibtex, other))
    return paper


def _filled(own: Item, other: Item) -> Item:
    """Return an item with the fields of another that it lacks, the other's authors in place of "others" or of
    none, and the other's type if it has neither type nor venue."""
    lacking = {name: text for name, text in other.fields.items() if text and not own.fields.get(name)}
    is_open = OTHERS in own.names.get("author", ()) or not own.authors
    names = other.names if is_open and len(other.authors) > len(own.authors) else {}
    is_untyped = own.type == "document" and not own.venue and other.type != "article"
    return Item(other.type if is_untyped else own.type, own.fields | lacking, own.names | names)


def _completed(bibtex: str, other: Item) -> str:
    """Return an entry completed from an item; unchanged if it lacks nothing, or if the two appeared in
    different places, such as a conference and a journal."""
    text = BibtexText(bibtex)
    if not text.entries or (entry := text.read(text.entries[0])) is None:
        return bibtex
    own = read_item(entry.kind, entry.fields)
    item = _filled(own, other)
    known = {"title", *own.fields, *(["arxiv"] if own.paper().arxiv or "eprint" in entry.fields else [])}
    lacking = {name: value for name, value in item.fields.items() if name not in known}
    names = {"author": item.names["author"]} if item.authors != own.authors else {}
    written = write_item(Item(item.type, lacking, names), "key")
    new, kept = BibtexText(written).entries[0], entry.fields.keys() - names.keys()
    added = {name: written[a + 1 : b - 1] for name, a, b in new.fields or () if name not in kept}
    places = {normalise_title(part.fields.get("container-title", "")) for part in (own, other)} - {""}
    if (not added and item.type == own.type) or len(places) > 1:
        return bibtex
    return write_fields(entry.kind if item.type == own.type else new.kind, entry.key, entry.fields | added)
