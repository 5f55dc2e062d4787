"""Libraries of a file or of Zotero that are asked without being built: `citerec ask papers.bib "..."`.

They are kept in the user's cache, one per source, and updated when the source has changed. Those that were
used least recently are removed.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
import time
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from citerec.base.errors import InputError, StorageError, count_noun
from citerec.base.files import disk_errors, file_lock, user_cache
from citerec.library import MANIFEST
from citerec.library.papers.building import create, refresh
from citerec.library.papers.encoding import MOST_READ, encode
from citerec.library.papers.folder import LOCK
from citerec.library.papers.library import Library
from citerec.library.papers.models import BUILT_IN
from citerec.library.settings import BuildSettings
from citerec.library.sources.finding import absolute_names
from citerec.retrieval.base import folder_bytes

log = logging.getLogger(__name__)

MOST, MOST_BYTES = 20, 1 << 31
"""Most libraries in the cache, and most bytes of them."""


def temporary_library(place: str) -> Library:
    """Return the library of a source, brought up to date.

    Raises InputError if the source cannot be read, or the cache not written.
    """
    [source] = absolute_names([place])
    # A library keeps the model that it was built with.
    model = max(file.stat().st_mtime_ns for file in BUILT_IN.rglob("*"))
    digest = hashlib.blake2b(f"{version('citerec')} {model} {source}".encode(), digest_size=8).hexdigest()
    stem = re.sub(r'[<>:"/\\|?*]', "_", Path(source).stem)  # Windows refuses these
    folder = cache() / f"{stem}-{digest}"
    with disk_errors(folder.parent, "the temporary library", "XDG_CACHE_HOME"):
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        library = _make(source, folder)
    except StorageError as error:  # its message advises to set `library`
        raise StorageError(f"{str(error).partition(';')[0]}; set XDG_CACHE_HOME to another folder") from None
    except InputError as error:  # those who ask name no source=
        raise type(error)(str(error).replace("source=", "")) from None
    (folder / LOCK).touch()
    with suppress(OSError):  # others may remove the same ones
        _evict(folder)
    return library


def cache() -> Path:
    """Return the folder of temporary libraries: the user's own, as others may share $CITATION_CACHE."""
    return user_cache() / "libraries"


def _make(source: str, folder: Path) -> Library:
    """Build the library of a source, or update it."""
    if os.path.exists(folder / MANIFEST):
        with suppress(InputError):  # it or the source is damaged; the latter is reported below
            library = refresh(folder, force=True).library
            encode(library, most=MOST_READ)
            return library
    started = time.perf_counter()
    library, *_ = create(BuildSettings(library=str(folder), source=(source,), overwrite=True))
    encode(library, most=MOST_READ)
    log.info("%s: %s, read in %.1f s", source, count_noun(len(library)), time.perf_counter() - started)
    return library


def _evict(used: Path) -> None:
    """Remove the libraries that were used least recently, except `used` and those that are being changed."""
    locks = sorted(used.parent.glob(f"*/{LOCK}"), key=lambda path: path.stat().st_mtime, reverse=True)
    size = 0
    for number, lock in enumerate(locks):
        size += folder_bytes(lock.parent)
        if (number >= MOST or size > MOST_BYTES) and lock.parent != used:
            with suppress(InputError, OSError), file_lock(lock, "changes the library", wait=False):
                shutil.rmtree(lock.parent, ignore_errors=True)
            with suppress(OSError):
                lock.parent.rmdir()  # Windows kept it for its lock
