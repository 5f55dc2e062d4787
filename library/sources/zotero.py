"""Zotero as a source: `zotero`, `zotero://collection/NAME`, `zotero://group/NAME[/collection/NAME]`.

A running program is asked (zotero_api); if it does not run or refuses, its database is read
(zotero_database), and so is a source that ends in .sqlite.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from citerec.datasets.errors import InputError
from citerec.datasets.json_lines import OnBadRecord
from citerec.library.papers import LibraryPaper
from citerec.library.sources.zotero_api import NotAvailable, ZoteroApi
from citerec.library.sources.zotero_database import FILE, citation_keys, find_database, read_database

ZOTERO = "zotero"
_PLACE = re.compile(
    r"zotero(?:://(?:group/(?P<group>.+?))?(?:(?(group)/)collection/(?P<collection>.+?))?/?)?"
)


def is_place(name: str) -> bool:
    """True for the name of a source that is no file: all of Zotero, a collection or a group."""
    return name == ZOTERO or name.startswith(f"{ZOTERO}://")


def is_zotero(name: str) -> bool:
    """True for a source in Zotero. Its papers may change although its file, if it is one, does not.

    >>> [is_zotero(name) for name in ("zotero", "zotero://group/Lab", "old/zotero.sqlite", "zotero.bib")]
    [True, True, True, False]
    """
    return is_place(name) or name.endswith(".sqlite")


def read_zotero(name: str, on_bad: OnBadRecord) -> Iterator[LibraryPaper]:
    """Yield the papers of a source in Zotero.

    Raises InputError if it is not written as above, if there is no such group or collection, or if Zotero
    neither runs nor has a database that can be read.
    """
    if name.endswith(".sqlite"):
        path = Path(name)
        yield from read_database(path).papers(name, on_bad, keys=citation_keys(path))
        return
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
    keys = citation_keys(database) if database else {}
    yield from library.papers(name, on_bad, collection, keys)


def check_place(name: str) -> tuple[str, str]:
    """Return the group and the collection that a source names. Raises InputError for another form."""
    place = _PLACE.fullmatch(name)
    if place is None or name == f"{ZOTERO}://":
        raise InputError(
            f"source={name}: write zotero, zotero://collection/NAME, zotero://group/NAME or "
            "zotero://group/NAME/collection/NAME"
        )
    return unquote(place["group"] or ""), unquote(place["collection"] or "")
