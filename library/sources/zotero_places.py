"""Where Zotero is: the names of its sources, and the user's database. Imports nothing slow."""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote

from citerec.base.errors import InputError
from citerec.base.files import expand_user

FILE, KEYS_FILE = "zotero.sqlite", "better-bibtex.sqlite"
JOURNALS = ("-wal", "-journal")
"""Suffixes of the files that hold what is not in the database yet, or not for certain."""
ZOTERO = "zotero"
_PLACE = re.compile(
    r"zotero(?:://(?:group/(?P<group>.+?))?(?:(?(group)/)collection/(?P<collection>.+?))?/?)?"
)
_PROFILES = (
    ".zotero/zotero/*/prefs.js",
    "Library/Application Support/Zotero/Profiles/*/prefs.js",
    ".var/app/org.zotero.Zotero/.zotero/zotero/*/prefs.js",
    "snap/zotero-snap/common/.zotero/zotero/*/prefs.js",
)
_DIRECTORIES = ("Zotero", "snap/zotero-snap/common/Zotero")
"""Profiles and the usual data directories, in the user's folder."""
_PREFERENCE = re.compile(
    r'^user_pref\("extensions\.zotero\.(dataDir|baseAttachmentPath)", (.+)\);\s*$',
    re.MULTILINE,
)


def is_temporary(place: str) -> bool:
    """True if `place` is a source, which has a temporary library, instead of a library."""
    return is_place(place) or os.path.isfile(expand_user(place))


def is_place(name: str) -> bool:
    """True for the name of a source that is no file: all of Zotero, a collection or a group."""
    return name == ZOTERO or name.startswith(f"{ZOTERO}://")


def is_zotero(name: str) -> bool:
    """True for a source in Zotero. Its papers may change although its file, if it is one, does not.

    >>> [is_zotero(name) for name in ("zotero", "zotero://group/Lab", "old/zotero.sqlite", "zotero.bib")]
    [True, True, True, False]
    """
    return is_place(name) or name.endswith(".sqlite")


def check_place(name: str) -> tuple[str, str]:
    """Return the group and the collection that a source names. Raises InputError for another form."""
    place = _PLACE.fullmatch(name)
    if place is None or name == f"{ZOTERO}://":
        raise InputError(
            f"source={name}: write zotero, zotero://collection/NAME, zotero://group/NAME or "
            "zotero://group/NAME/collection/NAME"
        )
    return unquote(place["group"] or ""), unquote(place["collection"] or "")


def find_database() -> Path | None:
    """Return the user's zotero.sqlite, where the newest profile says, if there is one."""
    folders = [Path.home() / name for name in _DIRECTORIES]
    if (own := _preferences().get("dataDir")) and isinstance(own, str):
        folders.insert(0, Path(own))
    files = (folder / FILE for folder in folders)
    return next((file for file in files if file.is_file()), None)


def attachment_base() -> Path | None:
    """Return the folder that the user has set for linked attachments, if any."""
    folder = _preferences().get("baseAttachmentPath")
    return Path(folder) if folder and isinstance(folder, str) else None


def _preferences() -> dict[str, object]:
    """Return preferences of the newest profile, by the end of their name."""
    profiles = [path for pattern in _PROFILES for path in Path.home().glob(pattern)]
    newest = max(profiles, key=lambda path: path.stat().st_mtime, default=None)
    preferences: dict[str, object] = {}
    for name, value in _PREFERENCE.findall(newest.read_text("utf-8", "replace")) if newest else ():
        with suppress(ValueError):
            preferences[name] = json.loads(value)
    return preferences


def files_of(path: Path) -> list[Path]:
    """Return the files of a database, of which only the first must exist."""
    return [path, *(path.with_name(path.name + suffix) for suffix in JOURNALS)]
