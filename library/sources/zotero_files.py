"""PDFs of Zotero's items and what the user marked in them, from its database.

Tables itemAttachments and itemAnnotations: zotero/zotero, resource/schema/userdata.sql; annotations since
Zotero 6. A program that runs has them in its database, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from citerec.base.errors import InputError
from citerec.formats.bibliography.attachments import SUFFIX
from citerec.library.sources.zotero_database import select_rows
from citerec.library.sources.zotero_places import FILE, attachment_base

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


class Annotation(NamedTuple):
    """What the user marked in a PDF, or wrote. kind: `highlight` or `note`; page: from 1, 0 if unknown."""

    kind: str
    text: str
    page: int


def read_attachments(database: Path) -> dict[str, tuple[str, ...]]:
    """Return the paths of the PDFs of items, by item key."""
    found: dict[str, dict[str, None]] = {}
    for item, key, path, kind in _rows(database, _ATTACHMENTS):
        if name := _place(database, key, path, kind):
            found.setdefault(item, {})[name] = None
    return {item: tuple(names) for item, names in found.items()}


def read_annotations(database: Path) -> dict[str, list[Annotation]]:
    """Return highlights and notes by the path of their PDF."""
    found: dict[str, list[Annotation]] = {}
    for key, path, kind, _, text, comment, position in _rows(database, _ANNOTATIONS):
        if name := _place(database, key, path, kind):
            page = _page(position)
            marked = [("highlight", text), ("note", comment)]
            found.setdefault(name, []).extend(
                Annotation(what, " ".join(str(words).split()), page) for what, words in marked if words
            )
    return found


def attachment_link(file: str) -> str:
    """Return the address by which Zotero opens a PDF of its storage; "" for other files."""
    if not (found := _STORED.fullmatch(Path(file).as_posix())):
        return ""
    database = Path(found[1]) / FILE
    try:
        changed = database.stat().st_mtime_ns
    except OSError:
        return ""
    group = _groups(database, changed).get(found[2])
    return f"zotero://open-pdf/{f'groups/{group}' if group else 'library'}/items/{found[2]}"


@lru_cache(maxsize=4)
def _groups(database: Path, changed: int) -> dict[str, int]:
    """Return the group of each attachment of a group's library. changed: when, so that it is read again."""
    try:
        [rows] = select_rows(database, [_GROUPS])
    except InputError:  # then the address is that of one's own library
        return {}
    return dict(rows)


def _rows(database: Path, statement: str) -> Iterator[Any]:
    try:
        [rows] = select_rows(database, [statement])
    except InputError as error:
        if "no such table" not in str(error):  # of an earlier version
            raise
        return
    yield from rows


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
