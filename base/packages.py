"""Other packages without what they do unasked: caches where nothing can be written, telemetry."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import numba

F = TypeVar("F", bound=Callable[..., Any])


def compiled(**options: Any) -> Callable[[F], F]:
    """Return `numba.njit` with a cache: beside the module, or in the user's folder.

    If neither can be written, functions are compiled in each process.
    """

    def decorate(function: F) -> F:
        try:
            made: F = numba.njit(cache=True, **options)(function)
        except RuntimeError:  # no place for the cache
            made = numba.njit(**options)(function)
        return made

    return decorate


def cores() -> int:
    """Return the number of cores that this process may use, or has where the system does not tell."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def disable_telemetry() -> None:
    """Let ONNX Runtime send nothing and keep no number of this machine; call it before importing it.

    Version 1.32 does both unless ORT_DISABLE_TELEMETRY is set when it is imported.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
