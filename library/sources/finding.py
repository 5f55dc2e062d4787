"""Finds the files that the names of sources stand for."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from glob import glob
from pathlib import Path

from citerec.base.errors import InputError
from citerec.base.files import expand_user, files_below, real_path
from citerec.library import MANIFEST
from citerec.library.sources.zotero_places import check_place, is_place

FOLDER_SUFFIXES = (".bib", ".ris", ".nbib", ".enw", ".ciw", ".json", ".jsonl", ".ndjson")
"""Suffixes of the files to read when a source is a folder, also with .gz."""

_GLOB = re.compile(r"[*?\[]")


def find_sources(names: Sequence[str], option: str = "source") -> list[str]:
    """Return the absolute paths of the named files, each once. A folder means its papers.json, or else all
    files of papers in it.

    Names may be patterns, such as *.bib, and places in Zotero, which stay as they are. option: which names
    them, for errors.
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
            inside = _outside_libraries(files_below(path))
            files = own[:1] or [file for file in inside if _is_file_of_papers(file.name)]
            if not files:
                from citerec.formats.bibliography.reading.recognise import FORMATS

                raise InputError(f"{option}={name}: has no files of papers ({FORMATS}, also .gz)")
        elif os.path.isfile(path):
            files = [path]
        elif _GLOB.search(name):
            files = _outside_libraries([*map(Path, sorted(glob(str(path), recursive=True)))])
        if not files:
            raise InputError(f"{option}={name}: no such file")
        sources.update(dict.fromkeys(str(real_path(file)) for file in files))
    return list(sources)


def _is_file_of_papers(name: str) -> bool:
    """True if a file's name, also with .gz, has one of FOLDER_SUFFIXES."""
    return name.removesuffix(".gz").endswith(FOLDER_SUFFIXES)


def _outside_libraries(paths: Sequence[Path]) -> list[Path]:
    """Return the files that are not parts of a library, which may be in a folder of sources."""
    libraries = {path.parent for path in paths if path.name == MANIFEST}
    return [path for path in paths if os.path.isfile(path) and libraries.isdisjoint(path.parents)]


def absolute_names(names: Sequence[str]) -> list[str]:
    """Return names of sources as they can be found from any folder."""

    def absolute(name: str) -> str:
        path = expand_user(name)
        return name if is_place(name) else str(real_path(path) if os.path.exists(path) else Path.cwd() / path)

    return list(dict.fromkeys(map(absolute, names)))
