"""Progress: bars, drawn only on terminals, and the log of what takes long."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from pathlib import Path
from threading import Timer

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

log = logging.getLogger(__name__)

OnBytes = Callable[[int], None]
"""Called with the number of bytes read so far."""
PATIENCE = 2.0
"""Seconds of work before a spinner appears."""
LOG_INTERVAL = 20.0
"""Seconds between two log lines on the progress of long work."""


def show_log() -> None:
    """Log progress to stderr, unless the program has configured logging, or the level of our logger.

    `logging.getLogger("citerec").setLevel(logging.WARNING)` beforehand keeps it quiet.
    """
    ours, root = logging.getLogger("citerec"), logging.getLogger()
    if ours.level == logging.NOTSET and not ours.handlers and not root.handlers:
        handler = logging.StreamHandler()
        handler.addFilter(lambda record: not root.handlers)  # which show it themselves
        ours.addHandler(handler)
        ours.setLevel(logging.INFO)


@contextmanager
def read_progress(path: Path | Sequence[Path], what: str) -> Iterator[OnBytes]:
    """Show a bar over the bytes of one or more files; call the function with the bytes read so far."""
    with _bar(f"reading {what}", TaskProgressColumn()) as update:
        total = sum(file.stat().st_size for file in ([path] if isinstance(path, Path) else path)) or 1
        yield lambda done: update(done, total)


def copy_progress(what: str) -> AbstractContextManager[Callable[[int, int | None], None]]:
    """Show a bar over a transfer; call the function with the bytes done and the total (None if unknown)."""
    return _bar(what, DownloadColumn(), TransferSpeedColumn())


@contextmanager
def count_progress(what: str, total: int, done: float = 0) -> Iterator[Callable[[float], None]]:
    """Show a bar over `total` items, and log rate and remaining time every LOG_INTERVAL seconds; call the
    function with the number of items done since the last call. done: items of earlier runs."""
    earlier, logged = done, (start := time.monotonic())

    def advance(more: float) -> None:
        nonlocal done, logged
        done += more
        update(round(done), total)
        if (now := time.monotonic()) - logged > LOG_INTERVAL and done > earlier:
            logged, rate = now, (done - earlier) / (now - start)
            left = (total - done) / rate
            log.info(f"{what}: {done:,.0f} of {total:,}, {rate:,.1f}/s, {left:.0f} s left")

    with _bar(what, MofNCompleteColumn()) as update:
        yield advance


@contextmanager
def spinner(what: str) -> Iterator[None]:
    """Show work that takes longer than PATIENCE, with the elapsed time; bars inside appear below."""
    shown = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    progress = Progress(*shown, console=_console(), transient=True)
    if not progress.console.is_terminal:
        yield
        return
    progress.add_task(what, total=None)
    timer = Timer(PATIENCE, progress.start)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        progress.stop()


@cache
def _console() -> Console:
    """Return the one console that all bars share, so that they do not overwrite each other."""
    return Console(stderr=True)


@contextmanager
def _bar(what: str, *columns: ProgressColumn) -> Iterator[Callable[[int, int | None], None]]:
    console = _console()
    shown = (TextColumn("{task.description}"), BarColumn(), *columns, TimeRemainingColumn())
    with Progress(*shown, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
