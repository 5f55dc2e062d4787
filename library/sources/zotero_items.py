"""Papers of Zotero's items, as its API, its database and Better BibTeX's JSON have them.

Fields and item types: https://api.zotero.org/schema.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from citerec.base.errors import InputError
from citerec.base.files import BYTE_ORDER_MARK, read_limited
from citerec.datasets.formats.json_lines import Object, OnBadRecord, parse_object
from citerec.datasets.fulltext.catalogue import find_arxiv_id, find_year
from citerec.datasets.languages.inputs import MAX_FILE_BYTES
from citerec.library.export.formats import escape_latex, latex_authors, latex_title, latex_url, write_entry
from citerec.library.papers import LibraryPaper, make_paper, usable_paper
from citerec.library.sources.fields import Fields

NO_PAPERS = ("attachment", "note", "annotation")
"""Item types that are not papers."""
_TITLES = ("title", "caseName", "nameOfAct", "subject")
_VENUES = (
    *("publicationTitle", "proceedingsTitle", "bookTitle", "encyclopediaTitle", "dictionaryTitle"),
    *("conferenceName", "blogTitle", "websiteTitle", "university", "institution", "repository", "publisher"),
)
_TYPES = {
    "journalArticle": ("article", "journal"),
    "magazineArticle": ("article", "journal"),
    "newspaperArticle": ("article", "journal"),
    "conferencePaper": ("inproceedings", "booktitle"),
    "bookSection": ("incollection", "booktitle"),
    "encyclopediaArticle": ("incollection", "booktitle"),
    "dictionaryEntry": ("incollection", "booktitle"),
    "book": ("book", "publisher"),
    "thesis": ("phdthesis", "school"),
    "report": ("techreport", "institution"),
    "manuscript": ("unpublished", "note"),
}
"""BibTeX's type of an item, and its field for the venue; others are `misc`."""
_DATES = ("date", "issueDate", "dateDecided", "dateEnacted")
_NAME = ("firstName", "lastName", "name")
_MULTIPART = re.compile(r"(\d{4})-\d\d-\d\d (.*)", re.DOTALL)
_KEY = re.compile(r"[^\s{}()\\,\"#%~=]+")
"""What can be a key in BibTeX and LaTeX."""
_EXTRA = re.compile(r"^\s*(citation key|doi|arxiv)\s*:\s*(\S+)", re.IGNORECASE | re.MULTILINE)


class Collection(NamedTuple):
    name: str
    parent: str
    """Key of the collection that it is in; "" for none."""


class ZoteroLibrary(NamedTuple):
    """Items as the API's `data` has them, with the keys of their collections; and the collections by key."""

    items: list[Object]
    collections: dict[str, Collection]

    def papers(
        self, name: str, on_bad: OnBadRecord, collection: str = "", keys: Mapping[str, str] | None = None
    ) -> Iterator[LibraryPaper]:
        """Yield the papers, by default of all collections. A paper is also in what its collections are in.

        name: of the source. collection: its name, or its path (`Thesis/Methods`). keys: citation keys by item
        key. Raises InputError if there is no such collection, or more than one.
        """
        paths = {key: self._paths(key) for key in self.collections}
        wanted = self._find(collection, paths, name) if collection else None
        for number, item in enumerate(self.items):
            fields = Fields(item, f"{name}, item {item.get('key') or number}")
            key = (keys or {}).get(str(item.get("key")), "")
            yield from usable_paper(partial(_parse, fields, paths, wanted, key), fields.where, on_bad)

    def _paths(self, key: str) -> list[str]:
        """Return the path of a collection, and before it those of the ones that it is in."""
        names: list[str] = []
        seen: set[str] = set()
        while key in self.collections and key not in seen:
            seen.add(key)
            names.insert(0, self.collections[key].name)
            key = self.collections[key].parent
        return ["/".join(names[: depth + 1]) for depth in range(len(names))]

    def _find(self, wanted: str, paths: Mapping[str, list[str]], name: str) -> str:
        every = sorted({found[-1] for found in paths.values()})
        same = [path for path in every if path == wanted] or [p for p in every if p.endswith(f"/{wanted}")]
        if len(same) != 1:
            problem = "are several collections" if same else "has no such collection"
            raise InputError(f"{name}: {problem}; choose from {', '.join(same or every) or 'none'}")
        return same[0]


def _parse(
    fields: Fields, paths: Mapping[str, list[str]], wanted: str | None, key: str
) -> LibraryPaper | None:
    """Return the paper of an item; None for attachments and notes, and outside the wanted collection.

    paths: of collections, by key. key: the citation key, if the item has none itself.
    """
    collections = list(
        dict.fromkeys(path for one in fields.texts("collections") for path in paths.get(one, ()))
    )
    if fields.text("itemType") in NO_PAPERS or (wanted is not None and wanted not in collections):
        return None
    creators = fields.children("creators")
    authors = [one for one in creators if one.text("creatorType") in ("author", "")] or creators
    url, archive, date = fields.text("url"), fields.text("archiveID"), fields.text(*_DATES)
    if parts := _MULTIPART.fullmatch(date):  # as in the database: 2003-00-00 Spring 2003
        date = parts[1] if int(parts[1]) else parts[2]
    extra = {name.lower(): value for name, value in _EXTRA.findall(fields.text("extra"))}
    arxiv = extra.get("arxiv", "") or (f"{archive} {url}" if "arxiv" in f"{archive} {url}".lower() else "")
    keys = fields.text("citationKey", "citekey"), extra.get("citation key", ""), key
    paper = make_paper(
        key=next(filter(_KEY.fullmatch, keys), ""),
        title=fields.text(*_TITLES),
        abstract=fields.text("abstractNote"),
        authors=[" ".join(filter(None, map(one.text, _NAME))) for one in authors],
        year=find_year(date),
        venue=fields.text(*_VENUES),
        doi=fields.text("DOI") or extra.get("doi", ""),
        arxiv=find_arxiv_id(arxiv),
        url=url,
        collections=collections,
        tags=[tag.text("tag") for tag in fields.children("tags")] or fields.texts("tags"),
    )
    return paper._replace(bibtex=_entry(fields, paper))


def _entry(fields: Fields, paper: LibraryPaper) -> str:
    """Return a BibTeX entry, with the fields that a LibraryPaper lacks."""
    kind, venue = _TYPES.get(fields.text("itemType"), ("misc", "howpublished"))
    has_author = any(one.text("creatorType") in ("author", "") for one in fields.children("creators"))
    values = {
        "title": latex_title(paper.title),
        "author" if has_author else "editor": latex_authors(paper.authors),
        "year": str(paper.year or ""),
        "publisher": escape_latex(fields.text("publisher")),
        venue: escape_latex(paper.venue),
        "volume": escape_latex(fields.text("volume")),
        "number": escape_latex(fields.text("issue", "reportNumber")),
        "pages": escape_latex(fields.text("pages")).replace("-", "--").replace("----", "--"),
        "edition": escape_latex(fields.text("edition")),
        "doi": escape_latex(paper.doi),
        "eprint": escape_latex(paper.arxiv),
        "archiveprefix": "arXiv" if paper.arxiv else "",
        "url": latex_url(paper.url),
    }
    return write_entry(kind, paper.key or paper.id, values)


def read_better_bibtex(path: Path, on_bad: OnBadRecord) -> Iterator[LibraryPaper]:
    """Yield the papers of Better BibTeX's own JSON, an object with Zotero's items and collections."""
    content = Fields(
        parse_object(read_limited(path, MAX_FILE_BYTES).removeprefix(BYTE_ORDER_MARK), str(path)), str(path)
    )
    collections, members = {}, dict[str, list[str]]()
    for key in content.child("collections").record:
        about = content.child("collections").child(key)
        collections[key] = Collection(about.text("name"), about.text("parent"))
        items = about.record.get("items")
        for item in items if isinstance(items, list) else ():
            members.setdefault(str(item), []).append(key)
    found = [
        {**item.record, "collections": members.get(str(item.record.get("itemID")), [])}
        for item in content.children("items")
    ]
    yield from ZoteroLibrary(found, collections).papers(str(path), on_bad)


def unknown_group(name: str, groups: Iterable[str]) -> InputError:
    """Return the error for a group that the user is not in. groups: the names of the others."""
    known = ", ".join(sorted(groups)) or "none"
    return InputError(f"zotero://group/{name}: there is no such group; choose from {known}")
