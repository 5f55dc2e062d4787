"""Work in forked processes, which may be killed: without the seconds that a new one needs to import all."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.process import BaseProcess


def in_child(work: Callable[[], object]) -> BaseProcess:
    """Start a forked process that calls `work`."""
    process = get_context("fork").Process(target=work, daemon=True)
    process.start()
    return process


def exit_code(work: Callable[[], object]) -> int | None:
    """Call `work` in a forked process; None if it takes more than two minutes."""
    process = in_child(work)
    process.join(120)
    return process.exitcode
