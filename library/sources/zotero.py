"""Zotero as a source: `zotero`, `zotero://collection/NAME`, `zotero://group/NAME[/collection/NAME]`.

A running program is asked (zotero_api); if it does not run or refuses, its database is read
(zotero_database), and so is a source that ends in .sqlite.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from citerec.base.errors import InputError
from citerec.base.progress import spinner
from citerec.datasets.formats.json_lines import OnBadRecord
from citerec.library.papers import LibraryPaper
from citerec.library.sources.zotero_api import NotAvailable, ZoteroApi
from citerec.library.sources.zotero_database import citation_keys, read_database
from citerec.library.sources.zotero_items import ZoteroLibrary
from citerec.library.sources.zotero_places import FILE, check_place, find_database


def read_zotero(name: str, on_bad: OnBadRecord) -> Iterator[LibraryPaper]:
    """Yield the papers of a source in Zotero.

    Raises InputError if it is not written as above, if there is no such group or collection, or if Zotero
    neither runs nor has a database that can be read.
    """
    with spinner("reading Zotero"):
        library, collection, keys = _read(name)
    yield from library.papers(name, on_bad, collection, keys)


def _read(name: str) -> tuple[ZoteroLibrary, str, dict[str, str]]:
    """Return the library of a source, the collection that it names, and Better BibTeX's keys."""
    if name.endswith(".sqlite"):
        return read_database(Path(name)), "", citation_keys(Path(name))
    group, collection = check_place(name)
    database, port = find_database()
    try:
        library = ZoteroApi(port).read(group)
    except NotAvailable as problem:
        if database is None:
            raise InputError(
                f"{name}: {problem}; or name its database, as in source=~/Zotero/{FILE}"
            ) from None
        library = read_database(database, group)
    return library, collection, citation_keys(database) if database else {}
