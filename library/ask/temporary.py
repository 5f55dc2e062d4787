"""Libraries of a file or of Zotero that are asked without being built: `citerec ask papers.bib "..."`.

They are kept in the user's cache, one per source, and updated when the source has changed. Those that have
not been used for longest leave.
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

from citerec.base.errors import InputError, count_noun
from citerec.base.files import disk_errors, expand_user, file_lock, user_cache
from citerec.base.progress import spinner
from citerec.library import MANIFEST
from citerec.library.ask.recommender import Recommender
from citerec.library.papers.building import create, refresh
from citerec.library.papers.encoding import encode, state
from citerec.library.papers.folder import LOCK
from citerec.library.papers.library import Library
from citerec.library.papers.models import BUILT_IN
from citerec.library.settings import BuildSettings
from citerec.library.sources.finding import absolute_names
from citerec.library.sources.zotero_places import is_place
from citerec.retrieval.base import folder_bytes

log = logging.getLogger(__name__)

MOST, MOST_BYTES = 20, 1 << 31
"""Libraries in the cache, and their size."""
MOST_READ = 256
"""Papers that its networks read before a question is answered: two seconds; the next question goes on."""


def open_recommender(place: str, reranker: str | None = None, serves: bool = False) -> Recommender:
    """Open the library in a folder, or the temporary one of a file or a place in Zotero.

    serves: this process will stay, so its networks may read the papers in the background.
    """
    with spinner("opening the library (the first time may take a minute)"):
        recommender = Recommender.open(library_folder(place), reranker)
    if serves:
        recommender.encode_in_background()
    else:
        _read_missing(recommender.library, 0 if is_temporary(place) else MOST_READ)
    return recommender


def _read_missing(library: Library, most: int) -> None:
    """Let the networks of a library read at most so many papers that they lack, and tell what they have read
    if they lack some: they rank better when they have read all."""
    reading = state(library)
    if reading is None or reading.complete:
        return
    with suppress(InputError, OSError):  # another process does it, or nothing may be written
        reading = encode(library, wait=False, most=most) or reading
    more = "" if reading.complete else f"; {library.encodes} goes on"
    log.warning("%s: %s%s", library.path, reading, more)


def is_temporary(place: str) -> bool:
    """True if `place` is a source instead of a library."""
    return is_place(place) or os.path.isfile(expand_user(place))


def library_folder(place: str) -> Path:
    """Return the folder of a library; that of a source is brought up to date.

    Raises InputError if the source cannot be read, or the cache not written.
    """
    if not is_temporary(place):
        return Path(place)
    [source] = absolute_names([place])
    model = max(
        file.stat().st_mtime_ns for file in BUILT_IN.rglob("*")
    )  # a library keeps that of its building
    digest = hashlib.blake2b(f"{version('citerec')} {model} {source}".encode(), digest_size=8).hexdigest()
    stem = re.sub(r'[<>:"/\\|?*]', "_", Path(source).stem)  # Windows refuses these
    folder = cache() / f"{stem}-{digest}"
    with disk_errors(folder.parent, "the temporary library", "XDG_CACHE_HOME"):
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _make(source, folder)
    (folder / LOCK).touch()
    with suppress(OSError):  # others may remove the same ones
        _evict(folder)
    return folder


def cache() -> Path:
    """Return the folder of temporary libraries: the user's own, where others share $CITATION_CACHE."""
    return user_cache() / "libraries"


def _make(source: str, folder: Path) -> None:
    """Build the library of a source, or update it."""
    if os.path.exists(folder / MANIFEST):
        with suppress(InputError):  # it is damaged, or the source is, which is then said below
            encode(refresh(folder, force=True).library, most=MOST_READ)
            return
    started = time.perf_counter()
    library, _ = create(BuildSettings(library=str(folder), source=(source,), overwrite=True))
    encode(library, most=MOST_READ)
    log.info("%s: %s, read in %.1f s", source, count_noun(len(library)), time.perf_counter() - started)


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
