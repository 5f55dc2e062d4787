"""Finds the files that the names of sources stand for, Zotero's database among them. Imports nothing slow."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from glob import glob
from pathlib import Path
from urllib.parse import unquote

from citerec.base.errors import InputError
from citerec.base.files import expand_user, files_below, real_path
from citerec.library import MANIFEST

FOLDER_SUFFIXES = (".bib", ".ris", ".nbib", ".enw", ".ciw", ".json", ".jsonl", ".ndjson")
"""Suffixes of the files to read when a source is a folder, also with .gz."""
_NAMED_ONLY = (".xml", ".csv", ".txt", ".yaml", ".yml")
"""Suffixes of files that may list papers, but in a folder mostly do not."""

_GLOB = re.compile(r"[*?\[]")


def find_sources(names: Sequence[str], option: str = "source") -> list[str]:
    """Return the absolute paths of the named files, each once. A folder means its papers.json, or else all
    files of papers in it.

    Names may be patterns, such as *.bib, and places in Zotero, which stay as they are. option: the one that
    names them, for errors.
    Raises InputError for a name without files.
    """
    sources: dict[str, None] = {}
    for name in names:
        path, files = expand_user(name), list[Path]()
        if is_place(name):
            check_place(name)
            sources[name] = None
            continue
        if os.path.isdir(path):
            own = [path / file for file in ("papers.json", "papers.json.gz") if os.path.isfile(path / file)]
            inside = _files_in(path)
            files = own[:1] or [file for file in inside if _ends_with(file, FOLDER_SUFFIXES)]
            if not files:
                known = f"{', '.join(FOLDER_SUFFIXES)}, also .gz; name others themselves"
                raise InputError(f"{option}={name}: has no files of papers ({known})")
        elif os.path.isfile(path):
            files = [path]
        elif _GLOB.search(name):
            files = _outside_libraries([*map(Path, sorted(glob(str(path), recursive=True)))])
        if not files:
            raise InputError(f"{option}={name}: no such file")
        sources.update(dict.fromkeys(str(real_path(file)) for file in files))
    return list(sources)


def left_out(names: Sequence[str]) -> Iterator[str]:
    """Yield a line for each file of papers in folders of sources that is read only if it is named."""
    from citerec.formats.bibliography.reading.recognise import recognise

    for folder in filter(os.path.isdir, map(expand_user, names)):
        for file in _files_in(folder):
            with suppress(InputError):
                if _ends_with(file, _NAMED_ONLY) and recognise(file):
                    yield f"{file}: is not read with its folder, only if source= names it"


def _ends_with(file: Path, suffixes: tuple[str, ...]) -> bool:
    return file.name.lower().removesuffix(".gz").endswith(suffixes)


def _files_in(folder: Path) -> list[Path]:
    """Return the files in a folder and below it, without hidden folders, as of editors and programs."""
    parts = ((file, file.relative_to(folder).parts) for file in files_below(folder))
    return _outside_libraries([file for file, names in parts if not any(name[0] == "." for name in names)])


def _outside_libraries(paths: Sequence[Path]) -> list[Path]:
    """Return the files that are not parts of a library, which may be in a folder of sources."""
    libraries = {path.parent for path in paths if path.name == MANIFEST}
    return [path for path in paths if os.path.isfile(path) and libraries.isdisjoint(path.parents)]


def absolute_names(names: Sequence[str]) -> list[str]:
    """Return names of sources as they can be found from any folder. Links stay, as they may change."""
    places = (name if is_place(name) else os.path.abspath(expand_user(name)) for name in names)
    return list(dict.fromkeys(places))


# Zotero.

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
