"""Keeps a library up to date: `citerec update`, once or whenever its sources change.

The system reports changes in the folders of the sources (watchfiles), and in that of Zotero's database; only
a Zotero whose database is not found is asked now and then. Nothing else is done until something changes.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

from watchfiles import watch

from citerec.base.errors import InputError, count_noun, error_text
from citerec.base.files import expand_user, files_below
from citerec.formats.bibliography.attachments import SUFFIX
from citerec.library.evidence.files import stamp_of
from citerec.library.papers.building import Change, refresh
from citerec.library.papers.encoding import encode
from citerec.library.papers.folder import read_manifest
from citerec.library.papers.library import Library
from citerec.library.sources.finding import find_sources
from citerec.library.sources.zotero_api import NotAvailable, ZoteroApi
from citerec.library.sources.zotero_places import KEYS_FILE, check_place, files_of, find_database, is_place

log = logging.getLogger(__name__)

TICK = 5000
"""Milliseconds between looks at what the system does not report."""
STEP = 200
"""Milliseconds without a change after which changes are complete, such as the parts of a saved file."""


@contextmanager
def watching(path: str | Path) -> Iterator[None]:
    """Watch the sources of a library in a thread, while the context lasts."""
    stop = Event()
    thread = Thread(target=_watch_or_say_why_not, args=(path, stop), name="watch")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _watch_or_say_why_not(path: str | Path, stop: Event) -> None:
    try:
        watch_sources(path, stop)
    except (InputError, OSError) as error:
        log.warning("%s; its sources are no longer watched", error_text(error))


def watch_sources(path: str | Path, stop: Event) -> None:
    """Update a library at once, and then whenever its sources change, until `stop` is set.

    Logs a line for each update. What fails, such as a file that is half-written, is logged and tried again.
    Raises InputError if the library is gone or has no sources.
    """
    path = expand_user(path)
    state, problem = None, ""
    while not stop.is_set():
        manifest = read_manifest(path)
        named = manifest.named
        if not named:
            raise InputError(f"{path}: has no source files; add some with citerec add")
        folders = _folders([*named, *manifest.pdfs])
        polled = any(map(_is_polled, named))
        for changes in _changes(folders, stop):
            if not (changes or polled or problem):
                continue
            if (now := _state(named, manifest.pdfs)) != state or problem:
                state, problem = now, _update(path, problem)
            manifest = read_manifest(path)
            if manifest.named != named or _folders([*named, *manifest.pdfs]) != folders:
                break


def _changes(folders: set[Path], stop: Event) -> Iterator[bool]:
    """Yield True at first and after changes in these folders, and False every TICK without one.

    Ends if one of them goes. Raises InputError if the system cannot report changes.
    """
    yield True
    if not folders:
        stop.wait(TICK / 1000)
        return
    options = {"stop_event": stop, "rust_timeout": TICK, "yield_on_timeout": True, "step": STEP}
    watched = watch(*folders, recursive=False, watch_filter=None, **options)  # type: ignore[arg-type]
    try:
        for number, changes in enumerate(watched):
            yield bool(changes) or number == 0  # the first comes after what happened since the first look
    except FileNotFoundError:
        return
    except OSError as error:
        raise InputError(
            f"the system does not report changes ({error_text(error)}); raise fs.inotify.max_user_watches "
            "or run citerec update now and then"
        ) from None


def _update(path: Path, before: str) -> str:
    """Update a library and its full texts. Returns what is wrong, which is logged if it was not so before."""
    from citerec.library.papers.fulltexts import update_full_texts

    started = time.perf_counter()
    try:
        change = refresh(path)
        if change.written:
            log.info("%s, %.1f s", _describe(change), time.perf_counter() - started)
            with suppress(InputError):  # another process does it
                encode(change.library, wait=False)
        report = update_full_texts(path)
    except (InputError, OSError) as error:
        if (problem := error_text(error)) != before:
            log.warning("%s", problem)
        return problem
    if report is not None and report.changed:
        log.info("%s", report)
        with suppress(InputError):  # another process does it
            encode(Library.open(path), wait=False)
    return ""


def _describe(change: Change) -> str:
    numbers = {"added": change.added, "removed": change.removed, "changed": change.replaced}
    counts = [(number, what) for what, number in numbers.items() if number]
    first = [f"{count_noun(number)} {what}" for number, what in counts[:1]]
    return ", ".join(first + [f"{number:,} {what}" for number, what in counts[1:]]) or "new contexts"


def _database() -> list[Path]:
    """Return the files of Zotero's database that change with it, if it is found."""
    path, _ = find_database()
    return [*files_of(path), *files_of(path.with_name(KEYS_FILE))] if path else []


def _is_polled(name: str) -> bool:
    return is_place(name) and not _database()


def _folders(named: list[str]) -> set[Path]:
    """Return the folders in which the system reports changes."""
    folders: set[Path] = set()
    for name in named:
        path = Path(name)
        if is_place(name):
            folders |= {file.parent for file in _database()}
        elif path.is_dir():
            folders |= {Path(inside) for inside, _, _ in os.walk(path)}
        else:
            with suppress(InputError):
                folders |= {Path(file).parent for file in find_sources([name])}
            folders.add(path.parent)
    return {folder for folder in folders if folder.is_dir()}


def _state(named: list[str], pdfs: list[str]) -> list[object]:
    """Return what is different after any change of the sources and folders of PDFs."""
    texts = [file for name in pdfs for file in files_below(Path(name)) if file.suffix.lower() == SUFFIX]
    state: list[object] = [(file, stamp_of(file)) for file in texts]
    for name in named:
        files: list[Path] = []
        if _is_polled(name):
            with suppress(InputError, NotAvailable), ZoteroApi() as zotero:
                state.append(zotero.state(check_place(name)[0]))
        elif is_place(name):
            files = _database()
        else:
            with suppress(InputError):
                files = [part for file in find_sources([name]) for part in files_of(Path(file))]
        for file in files:
            with suppress(OSError):
                stat = file.stat()
                state.append((file, stat.st_size, stat.st_mtime_ns, stat.st_ino))
    return state
