"""Progress on long reads, for people: nothing is drawn where the output is no terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn


@contextmanager
def reading(path: Path | Sequence[Path], what: str) -> Iterator[Callable[[int], None]]:
    """A bar with the time left; the function it gives takes the bytes read so far, of all files if many."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        total = sum(file.stat().st_size for file in ([path] if isinstance(path, Path) else path)) or 1
        task = progress.add_task(f"reading {what}", total=total)
        yield lambda done: progress.update(task, completed=done)
