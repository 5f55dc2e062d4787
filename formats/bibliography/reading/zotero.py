"""Papers of Zotero's items, as its API, its database and Better BibTeX's JSON have them.

Fields and item types: https://api.zotero.org/schema.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from citerec.base.errors import InputError
from citerec.base.files import BYTE_ORDER_MARK, read_limited
from citerec.formats.bibliography.attachments import SUFFIX
from citerec.formats.bibliography.bibtex import entry_paper
from citerec.formats.bibliography.item import ROLES, Item, iso_date
from citerec.formats.bibliography.paper import LibraryPaper, clean_text, usable_paper
from citerec.formats.bibliography.reading.records import Fields
from citerec.formats.bibliography.tables import Names
from citerec.formats.drafts.inputs import MAX_FILE_BYTES
from citerec.formats.identifiers import clean_doi, find_arxiv_id, noted
from citerec.formats.json_lines import Object, OnBadRecord, parse_object
from citerec.formats.names import Name, parse_name

NO_PAPERS = ("attachment", "note", "annotation")
"""Item types that are not papers."""
_TITLES = ("title", "caseName", "nameOfAct", "subject")
TYPES, _VARIABLES = Names("types", "zotero"), Names("variables", "zotero")
"""Types that differ from CSL's, and fields."""
_ROLES = {
    "bookAuthor": "container-author",
    "seriesEditor": "collection-editor",
    "reviewedAuthor": "reviewed-author",
}
"""CSL's roles by Zotero's, where they differ; others that CSL does not have are authors, as in Zotero."""
_DATES = ("date", "issueDate", "dateDecided", "dateEnacted")
_NAME = ("firstName", "lastName", "name")
_MULTIPART = re.compile(r"(\d{4})((?:-\d\d){2}) (.*)", re.DOTALL)
_KEY = re.compile(r"[^\s{}()\\,\"#%~=]+")
"""What can be a key in BibTeX and LaTeX."""


class Collection(NamedTuple):
    name: str
    parent: str
    """Key of the collection that it is in; "" for none."""


class ZoteroLibrary(NamedTuple):
    """Items as the API's `data` has them, with the keys of their collections; and the collections by key."""

    items: list[Object]
    collections: dict[str, Collection]

    def papers(
        self,
        name: str,
        on_bad: OnBadRecord,
        collection: str = "",
        keys: Mapping[str, str] = MappingProxyType({}),
        files: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
    ) -> Iterator[LibraryPaper]:
        """Yield the papers, by default of all collections. A paper is also in the parents of its collections.

        name: of the source. collection: its name, or its path (`Thesis/Methods`). keys, files: citation keys
        and paths of PDFs by item key. Raises InputError if there is no such collection, or more than one.
        """
        paths = self.paths()
        wanted = self._find(collection, paths, name) if collection else None
        for number, item in enumerate(self.items):
            fields = Fields(item, f"{name}, item {item.get('key') or number}")
            own = str(item.get("key"))
            parse = partial(_parse, fields, paths, wanted, keys.get(own, ""))
            for paper in usable_paper(parse, fields.where, on_bad):
                yield paper._replace(files=files.get(own) or _attached(fields))

    def paths(self) -> dict[str, list[str]]:
        """Return the path of each collection, by key, after the paths of the collections that contain it."""
        paths: dict[str, list[str]] = {}
        for key in self.collections:
            above, names = key, dict[str, str]()
            while above in self.collections and above not in names:
                names[above], above = self.collections[above]
            ordered = [*names.values()][::-1]
            paths[key] = ["/".join(ordered[: depth + 1]) for depth in range(len(ordered))]
        return paths

    def _find(self, wanted: str, paths: Mapping[str, list[str]], name: str) -> str:
        every = sorted({places[-1] for places in paths.values()})
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
    collections = [*dict.fromkeys(path for key in fields.texts("collections") for path in paths.get(key, ()))]
    if fields.text("itemType") in NO_PAPERS or (wanted is not None and wanted not in collections):
        return None
    url, archive, date = fields.text("url"), fields.text("archiveID"), fields.text(*_DATES)
    if parts := _MULTIPART.fullmatch(date):  # as in the database: 2003-00-00 Spring 2003
        date = parts[1] + parts[2].replace("-00", "") if int(parts[1]) else parts[3]
    extra = noted(fields.text("extra"))
    arxiv = extra.get("arxiv", "") or (f"{archive} {url}" if "arxiv" in f"{archive} {url}".lower() else "")
    keys = fields.text("citationKey", "citekey"), extra.get("citation key", ""), key
    texts = {variable: fields.text(*names) for variable, names in _VARIABLES.read.items()}
    texts |= {
        "title": fields.text(*_TITLES),
        "abstract": fields.text("abstractNote"),
        "issued": iso_date(date),
        "accessed": fields.text("accessDate")[:10],
        "DOI": clean_doi(fields.text("DOI") or extra.get("doi", "")),
        "URL": url,
        "arxiv": find_arxiv_id(arxiv),
    }
    kind = fields.text("itemType")
    item = Item.of(TYPES.csl.get(kind, kind), texts, _creators(fields))
    tags = [tag.text("tag") for tag in fields.children("tags")] or fields.texts("tags")
    return entry_paper(item, next(filter(_KEY.fullmatch, keys), ""), collections, tags)


def _attached(fields: Fields) -> tuple[str, ...]:
    """Return the PDFs of an item in Better BibTeX's JSON."""
    paths = (attachment.text("path") for attachment in fields.children("attachments"))
    return tuple(dict.fromkeys(path for path in paths if path.lower().endswith(SUFFIX)))


def _creators(fields: Fields) -> dict[str, Sequence[Name]]:
    """Return the names of an item's creators by CSL's roles."""
    names: dict[str, list[Name]] = {}
    for creator in fields.children("creators"):
        role = creator.text("creatorType")
        role = _ROLES.get(role, role if role in ROLES else "author")
        first, last, whole = map(creator.text, _NAME)
        name = parse_name(f"{last}, {first}") if first else Name(literal=clean_text(whole or last))
        if name.full:
            names.setdefault(role, []).append(name)
    return {role: names[role] for role in ROLES if role in names}


def read_better_bibtex(path: Path, on_bad: OnBadRecord) -> Iterator[LibraryPaper]:
    """Yield the papers of Better BibTeX's own JSON, an object with Zotero's items and collections."""
    content = Fields(
        parse_object(read_limited(path, MAX_FILE_BYTES).removeprefix(BYTE_ORDER_MARK), str(path)), str(path)
    )
    collections, members = {}, dict[str, list[str]]()
    for key in content.child("collections").record:
        collection = content.child("collections").child(key)
        collections[key] = Collection(collection.text("name"), collection.text("parent"))
        items = collection.record.get("items")
        for item in items if isinstance(items, list) else ():
            members.setdefault(str(item), []).append(key)
    chosen = [
        {**item.record, "collections": members.get(str(item.record.get("itemID")), [])}
        for item in content.children("items")
    ]
    yield from ZoteroLibrary(chosen, collections).papers(str(path), on_bad)
