"""Work in forked processes, which may be killed: without the seconds that a new one needs to import all."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from typing import TextIO


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


def with_stderr(work: Callable[[], object], most_bytes: int | None = None) -> tuple[BaseProcess, TextIO]:
    """Start a forked process, whose files may have `most_bytes`; return it and what it writes to stderr."""
    read, write = os.pipe()

    def run() -> None:
        os.dup2(write, 2)
        sys.stderr = os.fdopen(2, "w", buffering=1)
        logging.getLogger().handlers.clear()  # those of pytest
        if most_bytes is not None:
            import resource  # which Windows lacks

            resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, resource.RLIM_INFINITY))
        work()

    process = in_child(run)
    os.close(write)
    return process, os.fdopen(read)
