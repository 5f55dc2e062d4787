"""Lets the networks of a library's model read its papers: after a change, or in the background of a server.

What they make of a paper is kept beside the generations, so that other papers may come and go. Until they
have read all, questions are answered by the model without them, and they read the first papers of an answer.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace

from citerec.base.errors import InputError, error_text
from citerec.base.files import disk_errors, file_lock
from citerec.base.progress import count_progress
from citerec.library.papers.folder import read_manifest
from citerec.library.papers.library import Library
from citerec.library.papers.models import MOST_ENCODED
from citerec.retrieval.networks.encoder import PART, NetworkRetriever

log = logging.getLogger(__name__)

IN_LANGUAGES = "papers for other languages"
LOCK, WORK = "encoding.lock", "lets the networks read this library"
LONG = 60.0
"""Seconds from which it is said beforehand how long reading will take."""
MOST_READ = 256
"""Papers that are read before a question is answered: two seconds; the next question goes on."""
NICE = 10
"""Priority of reading in the background, below that of answers."""


@dataclass(frozen=True)
class Reading:
    """What the networks have read: `read` of `papers`, `new` of them in so many seconds."""

    papers: int
    read: int
    new: int = 0
    seconds: float = 0.0
    what: str = "papers"
    languages: Reading | None = None
    """by the encoder of passages that are not in English, if it is installed"""

    @property
    def complete(self) -> bool:
        return self.read == self.papers and (self.languages is None or self.languages.complete)

    def __str__(self) -> str:
        """Describe it in one line, for people."""
        state = f"all {self.papers:,}" if self.read == self.papers else f"{self.read:,} of {self.papers:,}"
        rate = f", {self.new:,} now in {self.seconds:.1f} s" if self.new else ""
        read = f"{state} {self.what} read by the encoder{rate}"
        return f"{read}; {self.languages}" if self.languages else read


def state(library: Library) -> Reading | None:
    """Return what the networks of a library have read; None as for `Library.networks`."""
    if (networks := library.networks) is None:
        return None
    networks.refresh()
    reading = Reading(len(library), len(library) - len(networks.missing()))
    if (others := library.languages) is not None:
        others.refresh()
        in_others = Reading(len(library), len(library) - len(others.missing()), what=IN_LANGUAGES)
        reading = replace(reading, languages=in_others)
    return reading


def encode(
    library: Library,
    wait: bool = True,
    most: int = MOST_ENCODED,
    pool: Executor | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> Reading | None:
    """Let the networks read the papers that they have not read; None as for `Library.networks`.

    What is done is kept if this is stopped at any time. wait: for another process that does the same. most:
    papers to read. pool: threads, by default those of answers. tell: is told how long it will take, if that
    is long.
    Raises InputError if another process does it and `wait` is false, OSError if the folder cannot be written.
    """
    if (networks := library.networks) is None:
        return None
    with file_lock(library.path / LOCK, WORK, wait):
        done = _encode(library, networks, "papers", most, pool, tell)
        networks.search_known()
        if (others := library.languages) is not None:
            read = _encode(library, others, IN_LANGUAGES, most, pool, tell)
            done = replace(done, languages=read)
            others.search_known()
    return done


def _encode(
    library: Library,
    networks: NetworkRetriever,
    what: str,
    most: int,
    pool: Executor | None,
    tell: Callable[[str], None],
) -> Reading:
    """Encode the papers by one encoder; the rest as for `encode`."""
    networks.refresh()
    before, started = networks.missing(), time.perf_counter()
    missing = before[:most]
    with count_progress(f"reading {what}", len(missing)) as advance:
        for start in range(0, len(missing), PART):
            networks.encode(missing[start : start + PART], advance, pool)
            left = (time.perf_counter() - started) * (len(missing) / PART - 1)
            if start == 0 and left > LONG:
                tell(
                    f"reading {len(missing):,} {what} takes about {left / 60:.0f} minutes; questions are "
                    "answered meanwhile, and Ctrl-C only puts the rest off"
                )
    seconds = time.perf_counter() - started
    if read_manifest(library.path).generation == library.manifest.generation:
        networks.store.keep(networks.keys.tolist())
    read = len(library) - len(before) + len(missing)
    return Reading(len(library), read, len(missing), seconds, what)


def encode_and_tell(library: Library) -> None:
    """Do the same for a command: print what was done, also if the user stops it."""
    try:
        with disk_errors(library.path, "what the networks make of its papers", "library"):
            done = encode(library, tell=lambda line: print(line, flush=True))
    except KeyboardInterrupt:
        print(f"{state(library)}; {library.encodes} goes on")
        raise
    if done is not None and (done.new or (done.languages and done.languages.new)):
        print(done)


class BackgroundEncoding:
    """Lets the networks read a library's papers in a thread of low priority, whenever some are missing."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None

    def start(self, library: Library) -> None:
        """Begin, unless it is under way or there is nothing to do."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=_encode_or_say_why_not, args=(library,), daemon=True)
            self._thread.start()

    def join(self) -> None:
        """Wait until it is done."""
        if self._thread is not None:
            self._thread.join()


def _encode_or_say_why_not(library: Library) -> None:
    def give_way() -> None:
        with suppress(OSError, AttributeError):  # not on all systems
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)

    try:
        reading = state(library)
        if reading is None or reading.complete:  # perhaps where nothing may be written
            return
        with ThreadPoolExecutor(1, initializer=give_way) as pool:
            encode(library, wait=False, pool=pool)
    except (InputError, OSError) as error:
        log.warning("%s: its papers are not read in the background (%s)", library.path, error_text(error))
