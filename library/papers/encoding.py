"""Lets the networks of a library's model read its papers: after a change, or in the background of a server.

What they make of a paper is kept beside the generations, so that other papers may come and go. Until they
have read all, questions are answered by the model without them, and they read the first papers of an answer.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from queue import SimpleQueue

from citerec.base.errors import InputError, error_text
from citerec.base.files import disk_errors, file_lock
from citerec.base.progress import count_progress
from citerec.library.papers.folder import read_manifest
from citerec.library.papers.library import Library
from citerec.library.papers.models import MOST_ENCODED
from citerec.library.papers.storage import Storage
from citerec.rerank.ranker.model import encoder_of
from citerec.retrieval.networks.encoder import PART, NetworkRetriever

log = logging.getLogger(__name__)

IN_LANGUAGES = "papers for other languages"
LOCK, WORK = "encoding.lock", "lets the networks read this library"
MOST_READ = 256
"""Papers that are read before a question is answered, in two seconds; the next question goes on."""
NICE = 10
"""Priority of reading in the background, below that of answers."""


@dataclass(frozen=True)
class Reading:
    """What an encoder has read: `read` of `papers`, `new` of them in so many seconds."""

    what: str
    papers: int
    read: int
    new: int = 0
    seconds: float = 0.0

    @property
    def complete(self) -> bool:
        return self.read == self.papers

    def __str__(self) -> str:
        """Describe it in one line, for people."""
        state = f"all {self.papers:,}" if self.complete else f"{self.read:,} of {self.papers:,}"
        rate = f", {self.new:,} now in {self.seconds:.1f} s" if self.new else ""
        return f"{state} {self.what} read by the encoder{rate}"


def in_words(readings: Sequence[Reading]) -> str:
    return "; ".join(map(str, readings))


def _encoders(library: Library) -> list[tuple[str, NetworkRetriever]]:
    """Return what reads the papers of a library; nothing without networks or past MOST_ENCODED papers."""
    if not isinstance(library.storage, Storage) or len(library) > MOST_ENCODED:
        return []
    rankers = (("papers", library.retriever), (IN_LANGUAGES, library.storage.languages))
    encoders = ((what, encoder_of(ranker)) for what, ranker in rankers if ranker is not None)
    return [(what, encoder) for what, encoder in encoders if encoder is not None]


def state(library: Library) -> list[Reading]:
    """Return what each encoder has read."""
    readings = []
    for what, networks in _encoders(library):
        networks.refresh()
        readings.append(Reading(what, len(library), len(library) - len(networks.missing())))
    return readings


def encode(
    library: Library, wait: bool = True, most: int = MOST_ENCODED, pool: Executor | None = None
) -> list[Reading]:
    """Let each encoder read the papers that it has not read.

    What is done is kept if this is stopped at any time. wait: for another process that does the same. most:
    papers to read. pool: threads, by default those of answers.
    Raises InputError if another process does it and `wait` is false, OSError if the folder cannot be written.
    """
    readings, encoders = list[Reading](), _encoders(library)
    with file_lock(library.path / LOCK, WORK, wait) if encoders else nullcontext():
        for what, networks in encoders:
            networks.refresh()
            before, started = networks.missing(), time.perf_counter()
            missing = before[:most]
            with count_progress(f"reading {what}", len(missing)) as advance:
                for start in range(0, len(missing), PART):
                    networks.encode(missing[start : start + PART], advance, pool)
            seconds, read = time.perf_counter() - started, len(library) - len(before) + len(missing)
            if read_manifest(library.path).generation == library.manifest.generation:
                networks.store.keep(networks.keys.tolist())
            networks.search_known()
            readings.append(Reading(what, len(library), read, len(missing), seconds))
    return readings


def encode_and_tell(library: Library) -> None:
    """Do the same for a command: print what was done, also if the user stops it."""
    try:
        with disk_errors(library.path, "what the networks make of its papers", "library"):
            done = encode(library)
    except KeyboardInterrupt:
        print(f"{in_words(state(library))}; {library.encodes} goes on")
        raise
    if any(reading.new for reading in done):
        print(in_words(done))


class BackgroundEncoding:
    """Lets the networks read a library's papers in a thread of low priority, whenever some are missing."""

    def __init__(self) -> None:
        self._libraries = SimpleQueue[Library]()
        threading.Thread(target=self._run, daemon=True).start()

    def start(self, library: Library) -> None:
        """Begin, or go on with this library when the one under way is done."""
        self._libraries.put(library)

    def _run(self) -> None:
        while True:
            library = self._libraries.get()
            if self._libraries.empty():  # else it has changed since
                _encode_or_say_why_not(library)


def _encode_or_say_why_not(library: Library) -> None:
    def give_way() -> None:
        with suppress(OSError, AttributeError):  # not on all systems
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)

    try:
        if all(reading.complete for reading in state(library)):  # perhaps where nothing may be written
            return
        with ThreadPoolExecutor(1, initializer=give_way) as pool:
            encode(library, wait=False, pool=pool)
    except (InputError, OSError) as error:
        log.warning("%s: its papers are not read in the background (%s)", library.path, error_text(error))
