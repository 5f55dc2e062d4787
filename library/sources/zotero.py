"""Zotero as a source: `zotero`, `zotero://collection/NAME`, `zotero://group/NAME[/collection/NAME]`.

A running program is asked (zotero_api); if it does not run or refuses, its database is read
(zotero_database), and so is a source that ends in .sqlite.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from citerec.base.errors import InputError
from citerec.base.progress import spinner
from citerec.formats.bibliography.paper import LibraryPaper
from citerec.formats.bibliography.reading.zotero import ZoteroLibrary
from citerec.formats.json_lines import OnBadRecord
from citerec.library.sources.zotero_api import NotAvailable, ZoteroApi
from citerec.library.sources.zotero_database import citation_keys, read_database
from citerec.library.sources.zotero_files import read_attachments
from citerec.library.sources.zotero_places import FILE, check_place, find_database


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
        database = Path(name)
        return read_database(database), "", citation_keys(database), read_attachments(database)
    group, collection = check_place(name)
    found, port = find_database()
    try:
        library = ZoteroApi(port).read(group)
    except NotAvailable as problem:
        if found is None:
            raise InputError(
                f"{name}: {problem}; or name its database, as in source=~/Zotero/{FILE}"
            ) from None
        library = read_database(found, group)
    keys, files = (citation_keys(found), read_attachments(found)) if found else ({}, {})
    return library, collection, keys, files


def zotero_database(name: str) -> Path | None:
    """Return the database of a source in Zotero, if it has one."""
    return Path(name) if name.endswith(".sqlite") else find_database()[0]
