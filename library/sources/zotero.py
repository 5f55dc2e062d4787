"""Zotero as a source, and as the place where papers are saved.

`zotero`, `zotero://collection/NAME` and `zotero://group/NAME[/collection/NAME]` ask the running program
(zotero_api); if it does not run or refuses, its database is read (zotero_database), and so is a source that
ends in .sqlite. Papers are saved in a collection by the running program, or at zotero.org with a key.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from citerec.base.errors import InputError
from citerec.base.progress import spinner
from citerec.base.settings import check_key
from citerec.formats.bibliography.item import Item
from citerec.formats.bibliography.paper import LibraryPaper, clean_text
from citerec.formats.bibliography.reading.zotero import TYPES, ZoteroLibrary
from citerec.formats.bibliography.references import paper_item
from citerec.formats.identifiers import clean_doi
from citerec.formats.json_lines import Object, OnBadRecord
from citerec.formats.letters import normalise_title
from citerec.library.sources.zotero_api import KEY, MOST, NotAvailable, ZoteroApi
from citerec.library.sources.zotero_database import citation_keys, read_attachments, read_database
from citerec.library.sources.zotero_places import FILE, check_place, find_database

EXAMPLE = "zotero://collection/Cited"
_ALL = {"title": "title", "abstract": "abstractNote", "issued": "date", "URL": "url", "language": "language"}
_FIELDS: dict[str, dict[str, str]] = {
    "journalArticle": {"container-title": "publicationTitle", "volume": "volume", "issue": "issue",
                       "page": "pages", "ISSN": "ISSN", "DOI": "DOI"},
    "conferencePaper": {"container-title": "proceedingsTitle", "event-title": "conferenceName",
                        "volume": "volume", "page": "pages", "publisher": "publisher", "ISBN": "ISBN",
                        "DOI": "DOI"},
    "book": {"publisher": "publisher", "publisher-place": "place", "volume": "volume", "edition": "edition",
             "number-of-pages": "numPages", "ISBN": "ISBN", "collection-title": "series"},
    "bookSection": {"container-title": "bookTitle", "publisher": "publisher", "publisher-place": "place",
                    "page": "pages", "volume": "volume", "edition": "edition", "ISBN": "ISBN"},
    "preprint": {"container-title": "repository", "publisher": "repository", "DOI": "DOI"},
    "thesis": {"publisher": "university", "publisher-place": "place", "genre": "thesisType"},
    "report": {"publisher": "institution", "publisher-place": "place", "number": "reportNumber",
               "page": "pages"},
}  # fmt: skip
"""Zotero's fields by CSL's variables, of each type; what they have had since Zotero 7."""
_EDITED = ("journalArticle", "conferencePaper", "book", "bookSection")


# Reading.


def read_zotero(name: str, on_bad: OnBadRecord) -> Iterator[LibraryPaper]:
    """Yield the papers of a source in Zotero.

    Raises InputError if it is not written as above, if there is no such group or collection, or if Zotero
    neither runs nor has a database that can be read.
    """
    with spinner("reading Zotero"):
        library, collection, keys, files = _read(name)
    yield from library.papers(name, on_bad, collection, keys, files)


def _read(name: str) -> tuple[ZoteroLibrary, str, dict[str, str], dict[str, tuple[str, ...]]]:
    """Return the library of a source, the collection that it names, Better BibTeX's keys, and PDFs."""
    if name.endswith(".sqlite"):
        file = Path(name)
        return read_database(file), "", citation_keys(file), read_attachments(file)
    group, collection = check_place(name)
    database = find_database()[0]
    try:
        with ZoteroApi() as zotero:
            library = zotero.read(group)
    except NotAvailable as problem:
        if database is None:
            raise InputError(
                f"{name}: {problem}; or name its database, as in source=~/Zotero/{FILE}"
            ) from None
        library = read_database(database, group)
    keys, files = (citation_keys(database), read_attachments(database)) if database else ({}, {})
    return library, collection, keys, files


def zotero_database(name: str) -> Path | None:
    """Return the database of a source in Zotero, if it has one."""
    return Path(name) if name.endswith(".sqlite") else find_database()[0]


# Saving.


def save(papers: Sequence[LibraryPaper], place: str) -> str:
    """Put papers into a collection, which is made if there is none. Return a line for the user.

    place: zotero://collection/NAME or zotero://group/NAME/collection/NAME. Papers that the library has, by
    their titles, are only added to the collection. Raises InputError.
    """
    group, name = check_place(place, "save")
    if not name:
        raise InputError(f"save={place}: names no collection; write e.g. {EXAMPLE}")
    items = [zotero_item(paper) for paper in papers]
    check_key(KEY, key := os.environ.get(KEY, ""))
    try:
        with ZoteroApi(key, place) as zotero:
            library = zotero.library(group)
            collection = _collection(zotero, library, name, place)
            objects, there = [], 0
            for paper, item in zip(papers, items, strict=True):
                same = _same_item(zotero, library, paper)
                inside = same.get("collections", []) if same else []
                if same is None:
                    objects.append(item | {"collections": [collection]})
                elif collection in inside:
                    there += 1
                else:
                    keep = {"key": same["key"], "version": same["version"]}
                    objects.append({**keep, "collections": [*inside, collection]})
            for start in range(0, len(objects), MOST):
                zotero.write(f"{library}/items", objects[start : start + MOST])
    except NotAvailable as problem:
        raise InputError(f"{place}: {problem}") from None
    new = sum("itemType" in item for item in objects)
    return f"{place}: {new} new, {len(objects) - new} that Zotero has, {there} that were there"


def _collection(zotero: ZoteroApi, library: str, name: str, place: str) -> str:
    """Return the key of a collection by its name or path; it is made if there is none."""
    all_paths = ZoteroLibrary([], zotero.collections(library)).paths()
    paths = {key: above[-1] for key, above in all_paths.items()}
    same = [key for key, path in paths.items() if path == name]
    same = same or [key for key, path in paths.items() if path.endswith(f"/{name}")]
    if len(same) > 1:
        choice = ", ".join(sorted({paths[key] for key in same}))
        raise InputError(f"{place}: are several collections; choose from {choice}")
    if same:
        return same[0]
    keys = {path: key for key, path in paths.items()}
    parent, parts = "", name.split("/")
    if not all(parts):
        raise InputError(f"{place}: names a collection without a name; write e.g. {EXAMPLE}")
    for depth, part in enumerate(parts, 1):
        if there := keys.get("/".join(parts[:depth])):
            parent = there
        else:
            made = {"name": part, "parentCollection": parent or False}
            [parent] = zotero.write(f"{library}/collections", [made])
    return parent


def _same_item(zotero: ZoteroApi, library: str, paper: LibraryPaper) -> Object | None:
    """Return the item of a paper, if the library has it."""
    wanted = normalise_title(paper.title)
    for item in zotero.titled(library, paper.title) if wanted else ():
        dois = {clean_doi(str(item.get("DOI") or "")), paper.doi} - {""}
        if normalise_title(clean_text(str(item.get("title") or ""))) == wanted and len(dois) < 2:
            return item
    return None


def zotero_item(paper: LibraryPaper) -> dict[str, Any]:
    """Return a paper as a new item of Zotero."""
    item = paper_item(paper)
    kind = TYPES.written.get(item.type, item.type)
    if kind not in _FIELDS:
        kind = "preprint" if item.fields.get("arxiv") else "document"
    made: dict[str, Any] = {"itemType": kind, "creators": _creators(item, kind)}
    fields = {**item.fields, "title": clean_text(item.fields.get("title", ""))}
    for variable, name in (*_ALL.items(), *_FIELDS.get(kind, {"publisher": "publisher"}).items()):
        if text := fields.get(variable):
            made.setdefault(name, text)
    arxiv, doi = fields.get("arxiv"), fields.get("DOI")
    more = [f"Citation Key: {paper.key}" if paper.key else ""]
    if kind == "preprint" and arxiv:
        made |= {"repository": "arXiv", "archiveID": f"arXiv:{arxiv}"}
    elif arxiv:
        more.append(f"arXiv: {arxiv}")
    more.append(f"DOI: {doi}" if doi and "DOI" not in made else "")
    made["extra"] = "\n".join(filter(None, more))
    made["tags"] = [{"tag": tag} for tag in paper.tags]
    return made


def _creators(item: Item, kind: str) -> list[dict[str, str]]:
    creators = []
    for role in ("author", "editor") if kind in _EDITED else ("author",):
        for name in item.names.get(role, ()):
            creator = {"creatorType": role}
            if name.literal or not name.given:
                creators.append(creator | {"name": name.full})
            else:
                family = " ".join(filter(None, (name.particle, name.family)))
                first = ", ".join(filter(None, (name.given, name.suffix)))
                creators.append(creator | {"firstName": first, "lastName": family})
    return creators
