"""The folder of a library: what is in library.json, its lock, its generations.

    library.json        version, current generation, model, sources, counts, dates
    library.lock        locked by the process that changes the library
    generations/N/      the papers and what finds them (storage, lance)

A build and each change write a new generation, then replace library.json, then remove the old generation. A
killed process therefore leaves either the old library or the new one. Processes that have the old generation
open keep reading it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote

import msgspec
import xxhash

from citerec.base.errors import DamagedFile, InputError, error_text, quoted
from citerec.base.files import digest_file, disk_errors, file_lock, write_text
from citerec.library import MANIFEST
from citerec.library.sources.finding import is_zotero

VERSION = 6
"""Version of the folder layout: increment it when the files change."""
LOCK, GENERATIONS = "library.lock", "generations"
CHANGED = "has changed meanwhile; run the same command again"
_UNFINISHED = f".{MANIFEST}."
"""Beginning of the names of files that killed processes leave beside it."""


@dataclass(frozen=True)
class ReadFile:
    """A file that was read, with its size and hash at that time; for Zotero, the number of its papers and
    their hash, once these were read."""

    path: str
    size: int
    hash: str

    @classmethod
    def of(cls, source: str | Path) -> ReadFile:
        """Describe a file as it is now. Zotero's papers would have to be read for that, and are not.

        Raises InputError if the file is missing.
        """
        if is_zotero(str(source)):
            return cls(str(source), 0, "")
        file = Path(source)
        if not os.path.exists(file):
            raise InputError(f"{file}: no such file, but the library was built from it; restore it")
        return cls(str(file), file.stat().st_size, digest_file(file))


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """Content of library.json."""

    version: int = VERSION
    generation: int = 0
    """Number of the current generation."""
    model: str = ""
    """`model` that it was built with, absolute if it is a path"""
    named: list[str] = []
    """Sources by the names that the user gave, absolute: files, folders, patterns, places in Zotero."""
    sources: list[ReadFile] = []
    """What these were when they were read."""
    removed: list[str] = []
    """Ids of papers that the user removed; `update` does not add them again."""
    removed_works: dict[str, list[int]] = {}
    """The formats.same_work.Identity of each by id, which other papers may get; older libraries lack it."""
    separate: list[str] = []
    """Ids and keys of records that are not merged with others; "all": none are."""
    fulltext: bool = False
    """Whether the PDFs of papers are read (library.evidence)."""
    pdfs: list[str] = []
    """Folders of PDFs of any papers, absolute."""
    lance: int = 0
    """Version of its table in LanceDB (library.papers.lance); 0: it is held in memory."""
    created: str
    changed: str
    counts: dict[str, int] = {}
    checksum: str = ""
    """of all other fields"""


def read_manifest(path: Path) -> Manifest:
    """Read library.json. Raises InputError if it is missing, damaged or of another version."""
    try:
        content = msgspec.json.decode((path / MANIFEST).read_bytes())
        version = content.get("version") if isinstance(content, dict) else None
        if version == VERSION:
            manifest = msgspec.convert(content, Manifest)
            sealed = msgspec.json.encode(content | {"checksum": ""})  # older ones have fewer fields
            if manifest.checksum != xxhash.xxh3_64_hexdigest(sealed):
                raise msgspec.DecodeError("its content has changed")
            return manifest
    except (FileNotFoundError, NotADirectoryError):
        what = f"is not a library (it has no {MANIFEST})" if os.path.exists(path) else "no such folder"
        what = "is a file, not a library" if os.path.isfile(path) else what
        target = f"library={quote(str(path))}"
        try:
            check_target(path, False)
        except (InputError, OSError):  # a file, or a folder of others, which may be a source
            target = f"library=my-library source={quote(str(path))}"
        raise InputError(f"{path}: {what}; create one with citerec build {target}") from None
    except OSError as error:
        raise unreadable(path, error) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        problem = f"damaged library ({MANIFEST}: {error_text(error)})"
    else:
        which = f"of version {quoted(version)}" if version is not None else "without a version"
        problem = f"a library {which}, but this program reads version {VERSION}"
    raise InputError(f"{path}: {problem}; build it again: {rebuild_command(path, 'source=... ')}")


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Replace library.json, which makes a change visible."""
    content = msgspec.json.encode(msgspec.structs.replace(manifest, checksum=""))
    sealed = msgspec.structs.replace(manifest, checksum=xxhash.xxh3_64_hexdigest(content))
    write_text(path / MANIFEST, msgspec.json.format(msgspec.json.encode(sealed), indent=1).decode())


def rebuild_command(path: Path, source: str = "") -> str:
    """Return the command that builds a library again, from its known sources or others."""
    return f"citerec build library={quote(str(path))} {source}overwrite=true"


def damaged(path: Path, error: Exception, generation: str = "") -> InputError:
    """Return the one error for every damage to a library; another one if a file may not be read, or if the
    generation that was read is no longer the current one."""
    if generation and generation != str(read_manifest(path).generation):
        return InputError(f"{path}: {CHANGED}")
    if isinstance(error, PermissionError):
        return unreadable(path, error)
    reason = error_text(error).replace(f"{path}/", "")
    return InputError(f"{path}: damaged library ({reason}); build it again: {rebuild_command(path)}")


def unreadable(path: Path, error: OSError) -> InputError:
    """Return the error for a library that this user may not read."""
    file = f" ({error.filename})" if error.filename and Path(error.filename) != path / MANIFEST else ""
    return InputError(f"{path}: cannot be read: {error.strerror}{file}")


@contextmanager
def damage_told(path: Path) -> Iterator[None]:
    """Report damage that is noticed while a library is asked, in one line with what to do."""
    try:
        yield
    except DamagedFile as error:
        raise damaged(path, error) from None


def outdated(path: Path) -> InputError:
    """Return the error for a library whose index or model this version does not read."""
    return InputError(f"{path}: built by another version; build it again: {rebuild_command(path)}")


def check_target(path: Path, overwrite: bool) -> None:
    """Raise InputError unless a library may be created at this path."""
    if not os.path.exists(path):
        return
    if not os.path.isdir(path):
        raise InputError(f"library={path}: is a file; name a folder")
    inside = {entry.name for entry in path.iterdir() if not entry.name.startswith(_UNFINISHED)}
    if MANIFEST in inside and not overwrite:
        raise InputError(
            f"{path}: a library already exists; use add or update to change it, overwrite=true to replace it"
        )
    if MANIFEST not in inside and (others := inside - {LOCK, GENERATIONS}):
        raise InputError(f"{path}: is not a library and not empty ({sorted(others)[0]}); name another folder")


@contextmanager
def lock_folder(path: Path) -> Iterator[None]:
    """Lock the folder, when other processes are ready, and remove what killed ones left behind."""
    with disk_errors(path, "the library", "library"):
        (path / GENERATIONS).mkdir(parents=True, exist_ok=True)
        with file_lock(path / LOCK, "changes the library"):
            remove_old_generations(path)
            yield


@contextmanager
def lock_target(path: Path, overwrite: bool) -> Iterator[None]:
    """Lock a folder to create a library in it. If that fails, a folder that was not there is removed.

    overwrite: replace an existing library.
    Raises InputError if the folder contains other files, or a library that must not be overwritten.
    """
    check_target(path, overwrite)
    is_new = not os.path.exists(path)
    try:
        with lock_folder(path):
            check_target(path, overwrite)
            yield
    except BaseException:
        if is_new and not os.path.exists(path / MANIFEST):
            shutil.rmtree(path, ignore_errors=True)
        raise


@contextmanager
def new_generation(path: Path) -> Iterator[tuple[int, Path]]:
    """Yield the number and folder of a generation to write, with its manifest. If that fails, the folder is
    removed, else the earlier generations are. Call it with the library's folder locked."""
    names = [folder.name for folder in (path / GENERATIONS).iterdir()]
    number = max((int(name) for name in names if name.isdecimal()), default=0) + 1
    folder = path / GENERATIONS / str(number)
    try:
        yield number, folder
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    remove_old_generations(path)


def remove_old_generations(path: Path) -> None:
    """Remove all generations except the current one, and what killed processes left of others."""
    for file in path.glob(f"{_UNFINISHED}*"):
        file.unlink(missing_ok=True)
    current = ""
    if os.path.exists(path / MANIFEST):
        try:
            current = str(read_manifest(path).generation)
        except InputError:
            return  # damaged: keep everything until a new library replaces it
    for folder in (path / GENERATIONS).iterdir():
        if folder.name != current:
            shutil.rmtree(folder, ignore_errors=True)


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
