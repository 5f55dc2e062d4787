"""Zotero as a source: its database, zotero.sqlite, which is only read, and never locked.

`zotero`, `zotero://collection/NAME` and `zotero://group/NAME[/collection/NAME]` name the database of the
user, also while Zotero runs; a source that ends in .sqlite is another one.

Tables: zotero/zotero, resource/schema/userdata.sql. Those of items are the same since Zotero 5; annotations
since Zotero 6.
"""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from citerec.base.errors import InputError, error_text
from citerec.base.progress import spinner
from citerec.formats.bibliography.attachments import SUFFIX
from citerec.formats.bibliography.paper import LibraryPaper
from citerec.formats.bibliography.reading.zotero import NO_PAPERS, Collection, ZoteroLibrary
from citerec.formats.json_lines import Object, OnBadRecord
from citerec.library.sources.finding import (
    FILE,
    KEYS_FILE,
    attachment_base,
    check_place,
    files_of,
    find_database,
)

_TRIES, _PAUSE = 5, 0.2
_LIBRARY = "(SELECT libraryID FROM groups WHERE name = :group UNION SELECT libraryID FROM libraries \
WHERE type = 'user' AND :group = '')"
_ITEMS = f"""SELECT itemID, key, typeName FROM items JOIN itemTypes USING (itemTypeID)
WHERE libraryID IN {_LIBRARY} AND typeName NOT IN {NO_PAPERS}
AND itemID NOT IN (SELECT itemID FROM deletedItems)"""
_CHOSEN = f"itemID IN (SELECT itemID FROM ({_ITEMS}))"
_TABLES = (
    "SELECT name FROM groups",
    f"{_ITEMS} ORDER BY itemID",
    f"""SELECT itemID, fieldName, value FROM itemData JOIN fields USING (fieldID)
    JOIN itemDataValues USING (valueID) WHERE {_CHOSEN} AND value IS NOT NULL""",
    f"""SELECT itemID, creatorType, firstName, lastName FROM itemCreators JOIN creators USING (creatorID)
    JOIN creatorTypes USING (creatorTypeID) WHERE {_CHOSEN} ORDER BY itemID, orderIndex""",
    f"SELECT itemID, name FROM itemTags JOIN tags USING (tagID) WHERE {_CHOSEN} ORDER BY itemID, name",
    f"""SELECT collections.key, collections.collectionName, IFNULL(parents.key, '') FROM collections
    LEFT JOIN collections AS parents ON collections.parentCollectionID = parents.collectionID
    WHERE collections.libraryID IN {_LIBRARY}""",
    f"""SELECT itemID, key FROM collectionItems JOIN collections USING (collectionID)
    WHERE {_CHOSEN} ORDER BY itemID, collectionName""",
)
_TRASHED = """WITH RECURSIVE trashed AS (SELECT collectionID AS id FROM deletedCollections
UNION SELECT collectionID FROM collections JOIN trashed ON parentCollectionID = id)
SELECT key FROM collections JOIN trashed ON collectionID = id"""
_PDF = "application/pdf"
_STORAGE, _BASE = "storage:", "attachments:"
"""Beginnings of paths: in the folder of the attachment, and in one that the user has set for links."""
_NOT_DELETED = "NOT IN (SELECT itemID FROM deletedItems)"
_ATTACHMENTS = f"""SELECT parents.key, items.key, path, contentType FROM itemAttachments
JOIN items USING (itemID) JOIN items AS parents ON parentItemID = parents.itemID
WHERE path IS NOT NULL AND items.itemID {_NOT_DELETED} ORDER BY items.itemID"""
_ANNOTATIONS = f"""SELECT items.key, path, contentType, type, text, comment, position FROM itemAnnotations
JOIN itemAttachments ON itemAnnotations.parentItemID = itemAttachments.itemID
JOIN items ON items.itemID = itemAttachments.itemID
WHERE path IS NOT NULL AND itemAnnotations.itemID {_NOT_DELETED} ORDER BY path, sortIndex"""


_GROUPS = "SELECT key, groupID FROM items JOIN itemAttachments USING (itemID) JOIN groups USING (libraryID)"
_STORED = re.compile(r"(.*)/storage/([A-Z0-9]{8})/[^/]+")


def read_zotero(name: str, on_bad: OnBadRecord) -> Iterator[LibraryPaper]:
    """Yield the papers of a source in Zotero.

    Raises InputError if it is not written as above, if there is no such group or collection, or if Zotero has
    no database that can be read.
    """
    with spinner("reading Zotero"):
        group, collection = ("", "") if name.endswith(".sqlite") else check_place(name)
        if (path := zotero_database(name)) is None:
            raise InputError(f"{name}: Zotero has no database here; name it, as in source=~/Zotero/{FILE}")
        library, keys, files = read_database(path, group), citation_keys(path), read_attachments(path)
    yield from library.papers(name, on_bad, collection, keys, files)


def zotero_database(name: str) -> Path | None:
    """Return the database of a source in Zotero, if there is one."""
    return Path(name) if name.endswith(".sqlite") else find_database()


def read_database(path: Path, group: str = "") -> ZoteroLibrary:
    """Return the user's library, or a group's, without trashed items.

    Raises InputError for a group that the user is not in, and for a file that is damaged or not Zotero's.
    """
    groups, rows, values, creators, tags, names, members = select_rows(path, _TABLES, group)
    if group and (group,) not in groups:
        known = ", ".join(sorted(name for (name,) in groups)) or "none"
        raise InputError(f"zotero://group/{group}: there is no such group; choose from {known}")
    items: dict[int, Object] = {
        id: {"key": key, "itemType": kind, "creators": [], "tags": [], "collections": []}
        for id, key, kind in rows
    }
    try:
        for id, field, value in values:
            items[id][field] = value if isinstance(value, int) else str(value)
        for id, kind, first, last in creators:
            items[id]["creators"].append({"creatorType": kind, "firstName": first, "lastName": last})
        for id, tag in tags:
            items[id]["tags"].append({"tag": tag})
        for id, key in members:
            items[id]["collections"].append(key)
    except KeyError as error:
        raise InputError(f"{path}: damaged: its tables differ about item {error}") from None
    trashed = [key for (key,) in _rows(path, _TRASHED)]
    collections = {key: Collection(name, parent) for key, name, parent in names if key not in trashed}
    return ZoteroLibrary([*items.values()], collections)


def citation_keys(path: Path) -> dict[str, str]:
    """Return Better BibTeX's citation keys by item key, from its database beside zotero.sqlite, if any."""
    statement = "SELECT itemKey, citationKey FROM citationkey"
    return dict(_rows(path.with_name(KEYS_FILE), statement, optional=True))


def select_rows(path: Path, statements: Sequence[str], group: str = "") -> list[list[Any]]:
    """Return the rows of each statement, all of one state of a database that a program may be writing to."""
    for _ in range(_TRIES):
        before, problem = _stamps(path), ""
        try:
            with TemporaryDirectory() as folder, closing(_connect(path, Path(folder))) as database:
                database.text_factory = lambda text: text.decode("utf-8", "replace")
                rows = [database.execute(text, {"group": group}).fetchall() for text in statements]
        except (sqlite3.Error, OSError, UnicodeDecodeError) as error:  # the last: in a message
            problem = error_text(error)
        if _stamps(path) == before:
            if problem:
                raise InputError(f"{path}: cannot be read as the database of Zotero 5 or later: {problem}")
            return rows
        time.sleep(_PAUSE)
    raise InputError(f"{path}: Zotero is writing to it; try again")


def _connect(path: Path, folder: Path) -> sqlite3.Connection:
    """Open a database so that nothing is written beside it, and no lock is needed or taken.

    Then SQLite ignores what is still in a journal; if there is one, a copy in `folder` is read.
    """
    if not any(file.exists() and file.stat().st_size for file in files_of(path)[1:]):
        return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
    for file in files_of(path):
        if file.exists():
            shutil.copyfile(file, folder / file.name)
    return sqlite3.connect(folder / path.name)


def _stamps(path: Path) -> list[tuple[int, int]]:
    """Return sizes and times of a database's files. Raises InputError if there is none."""
    try:
        stats = [file.stat() for file in files_of(path) if file == path or file.exists()]
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    return [(stat.st_size, stat.st_mtime_ns) for stat in stats]


# PDFs.


class Annotation(NamedTuple):
    """What the user marked in a PDF, or wrote. kind: `highlight` or `note`; page: from 1, 0 if unknown."""

    kind: str
    text: str
    page: int


def read_attachments(database: Path) -> dict[str, tuple[str, ...]]:
    """Return the paths of the PDFs of items, by item key."""
    files: dict[str, dict[str, None]] = {}
    for item, key, path, kind in _rows(database, _ATTACHMENTS):
        if name := _place(database, key, path, kind):
            files.setdefault(item, {})[name] = None
    return {item: tuple(names) for item, names in files.items()}


def read_annotations(database: Path) -> dict[str, list[Annotation]]:
    """Return highlights and notes by the path of their PDF."""
    annotations: dict[str, list[Annotation]] = {}
    for key, path, kind, _, text, comment, position in _rows(database, _ANNOTATIONS):
        if name := _place(database, key, path, kind):
            page = _page(position)
            marked = [("highlight", text), ("note", comment)]
            annotations.setdefault(name, []).extend(
                Annotation(what, " ".join(str(words).split()), page) for what, words in marked if words
            )
    return annotations


def attachment_link(file: str) -> str:
    """Return the address by which Zotero opens a PDF of its storage; "" for other files."""
    if not (stored := _STORED.fullmatch(Path(file).as_posix())):
        return ""
    database = Path(stored[1]) / FILE
    try:
        changed = database.stat().st_mtime_ns
    except OSError:
        return ""
    group = _groups(database, changed).get(stored[2])
    return f"zotero://open-pdf/{f'groups/{group}' if group else 'library'}/items/{stored[2]}"


@lru_cache(maxsize=4)
def _groups(database: Path, changed: int) -> dict[str, int]:
    """Return the group of each attachment of a group's library; without, the address is that of one's own
    library. changed: when, so that it is read again."""
    return dict(_rows(database, _GROUPS, optional=True))


def _rows(database: Path, statement: str, optional: bool = False) -> list[Any]:
    """Return the rows of a statement; none if an earlier version of Zotero has not its table. optional: nor
    if the database cannot be read."""
    try:
        [rows] = select_rows(database, [statement])
    except InputError as error:
        if not optional and "no such table" not in str(error):
            raise
        return []
    return rows


def _place(database: Path, key: str, path: str, kind: str | None) -> str:
    """Return the absolute path of an attachment, "" if it is no PDF."""
    if kind != _PDF and not path.lower().endswith(SUFFIX):
        return ""
    if path.startswith(_STORAGE):
        return str(database.absolute().parent / "storage" / key / path.removeprefix(_STORAGE))
    if path.startswith(_BASE):
        base = attachment_base()
        return str(base / path.removeprefix(_BASE)) if base else ""
    return path


def _page(position: str | None) -> int:
    """Return the page of an annotation's position, as in {"pageIndex": 3, "rects": [...]}."""
    try:
        return int(json.loads(position or "")["pageIndex"]) + 1
    except (ValueError, TypeError, KeyError):
        return 0
