"""Progress bars, drawn only on terminals."""

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

OnBytes = Callable[[int], None]
"""Called with the number of bytes read so far."""


@contextmanager
def read_progress(path: Path | Sequence[Path], what: str) -> Iterator[OnBytes]:
    """Show a bar over the bytes of one or more files; call the function with the bytes read so far."""
    with _bar(f"reading {what}", TaskProgressColumn()) as update:
        total = sum(file.stat().st_size for file in ([path] if isinstance(path, Path) else path)) or 1
        yield lambda done: update(done, total)


@contextmanager
def copy_progress(what: str) -> Iterator[Callable[[int, int | None], None]]:
    """Show a bar over a transfer; call the function with the bytes done and the total (None if unknown)."""
    with _bar(what, DownloadColumn(), TransferSpeedColumn()) as update:
        yield update


@contextmanager
def count_progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a bar over `total` items; call the function with the number of items done since the last call."""
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
