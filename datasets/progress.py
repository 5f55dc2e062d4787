"""Progress on long reads, for people: nothing is drawn where the output is no terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn


@contextmanager
def reading(path: Path, what: str) -> Iterator[Callable[[int], None]]:
    """A bar with the time left; the function it gives takes the bytes read so far."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(f"reading {what}", total=path.stat().st_size or 1)
        yield lambda done: progress.update(task, completed=done)
