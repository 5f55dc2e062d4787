"""Indexes on disk: a folder whose manifest says what the index belongs to."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from datasets.atomic import written_folder
from datasets.errors import InputError

FORMAT = 1
MANIFEST = "index.json"


def has_index(folder: Path) -> bool:
    """Whether a folder holds an index, of whatever kind."""
    return (folder / MANIFEST).is_file()


def folder_bytes(folder: Path) -> int:
    """Size of all files."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@contextmanager
def written_index(folder: Path, about: Mapping[str, Any], tuned: Mapping[str, Any]) -> Iterator[Path]:
    """A folder to write the files of an index into; it takes the place of `folder` when all went well.

    about: what the index belongs to (retriever, corpus, settings); tuned: what was chosen while it was made.
    Both stand in the manifest.
    Raises InputError if `folder` is there and is no index: nothing else is ever replaced.
    """
    if folder.exists() and not has_index(folder) and not (folder.is_dir() and not any(folder.iterdir())):
        raise InputError(f"{folder}: there is something else than an index; name another folder")
    with written_folder(folder) as part:
        yield part
        files = {
            str(path.relative_to(part)): path.stat().st_size
            for path in sorted(part.rglob("*"))
            if path.is_file()
        }
        manifest = {"format": FORMAT, "about": dict(about), "tuned": dict(tuned), "files": files}
        (part / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")


def read_index(folder: Path, about: Mapping[str, Any]) -> dict[str, Any]:
    """What was tuned for the index in a folder, which is whole and of what is described.

    Raises InputError that says what differs.
    """
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text("utf-8"))
        found, files = dict(manifest["about"]), dict(manifest["files"])
        known, tuned = manifest["format"] == FORMAT, dict(manifest["tuned"])
    except FileNotFoundError:
        raise InputError(f"{folder}: there is no index (no {MANIFEST} in it)") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: damaged ({error}); make the index again in another folder") from None
    if not known:
        raise InputError(f"{path}: an index of format {manifest['format']!r}; this version reads {FORMAT}")
    wanted = json.loads(json.dumps(dict(about)))  # tuples are lists in a file
    for key in [*wanted, *found]:
        if wanted.get(key) != found.get(key):
            raise InputError(
                f"{folder}: an index of another {key}: {_short(found.get(key))} there, "
                f"{_short(wanted.get(key))} here; make the index again in another folder"
            )
    for name, size in files.items():
        try:
            there = (folder / name).stat().st_size
        except OSError:
            raise InputError(f"{folder / name}: missing; make the index again") from None
        if there != size:
            raise InputError(
                f"{folder / name}: {there:,} bytes instead of {size:,}, cut short or changed; "
                "make the index again"
            )
    return tuned


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."
