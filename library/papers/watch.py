"""Keeps a library up to date: `citerec update`, once or whenever its sources change.

Every TICK, the sizes and times of the sources' files are compared with those of before; nothing else is done
until they change.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

from citerec.base.errors import InputError, error_text
from citerec.base.files import expand_user, files_below
from citerec.formats.bibliography.attachments import SUFFIX
from citerec.library.evidence.files import stamp_of
from citerec.library.papers.building import refresh
from citerec.library.papers.encoding import encode
from citerec.library.papers.folder import read_manifest
from citerec.library.papers.library import Library
from citerec.library.sources.finding import KEYS_FILE, files_of, find_database, find_sources, is_place

log = logging.getLogger(__name__)

TICK = 1.0
"""Seconds between looks at the sources, or more where a look takes long."""
SHARE = 0.02
"""Largest share of the time that looks take."""


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

    Logs a line for each update. What fails, such as a file that is half-written, is logged and tried again
    after the next change. Raises InputError if the library is gone or has no sources.
    """
    path = expand_user(path)
    seen, done, problem = list[object](), None, ""
    known, attached = None, list[Path]()
    while not stop.is_set():
        started, manifest = time.perf_counter(), read_manifest(path)
        if not manifest.named:
            raise InputError(f"{path}: has no source files; add some with citerec add")
        if manifest.fulltext and manifest != known:
            files = (file for paper in Library.open(path).papers() for file in paper.files)
            known, attached = manifest, [*map(Path, files)]
        before, seen = seen, _state(manifest.named, manifest.pdfs, attached)
        took = time.perf_counter() - started
        if seen != done and (seen == before or done is None):  # complete, such as all parts of a saved file
            problem = _update(path, problem)
            done = seen
        stop.wait(max(TICK, took / SHARE))


def _update(path: Path, before: str) -> str:
    """Update a library and its full texts. Returns what is wrong, which is logged if it was not so before."""
    from citerec.library.papers.fulltexts import update_full_texts

    started = time.perf_counter()
    try:
        change = refresh(path)
        if change.written:
            log.info("%s, in %.1f s", change, time.perf_counter() - started)
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


def _state(named: list[str], pdfs: list[str], attached: list[Path]) -> list[object]:
    """Return what is different after any change of the sources, folders of PDFs and PDFs of entries."""
    files = [*attached]
    files += [file for name in pdfs for file in files_below(Path(name)) if file.suffix.lower() == SUFFIX]
    for name in named:
        if not is_place(name):
            with suppress(InputError):  # there is no such file now
                files += [part for file in find_sources([name]) for part in files_of(Path(file))]
        elif database := find_database():
            files += [*files_of(database), *files_of(database.with_name(KEYS_FILE))]
    return [(file, stamp_of(file)) for file in files]
