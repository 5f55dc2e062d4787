"""Progress on long work, for people: nothing is drawn where the output is no terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)


@contextmanager
def reading(path: Path | Sequence[Path], what: str) -> Iterator[Callable[[int], None]]:
    """A bar with the time left; the function it gives takes the bytes read so far, of all files if many."""
    with _bar(f"reading {what}", TaskProgressColumn()) as update:
        total = sum(file.stat().st_size for file in ([path] if isinstance(path, Path) else path)) or 1
        yield lambda done: update(done, total)


@contextmanager
def moving(what: str) -> Iterator[Callable[[int, int | None], None]]:
    """The same for bytes that are moved: the function takes those done and all there are, None if unknown."""
    with _bar(what, DownloadColumn(), TransferSpeedColumn()) as update:
        yield update


@contextmanager
def counting(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """The same for things that are counted: the function takes how many more are done."""
    done = 0

    def advance(more: int) -> None:
        nonlocal done
        done += more
        update(done, total)

    with _bar(what, MofNCompleteColumn()) as update:
        yield advance


@contextmanager
def _bar(what: str, *columns: ProgressColumn) -> Iterator[Callable[[int, int | None], None]]:
    console = Console(stderr=True)
    shown = (TextColumn("{task.description}"), BarColumn(), *columns, TimeRemainingColumn())
    with Progress(*shown, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
