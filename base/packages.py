"""What other packages do unasked, and the cores that they may use."""

from __future__ import annotations

import os


def cores() -> int:
    """Return the number of cores that this process may use, or has where the system does not tell."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def disable_telemetry() -> None:
    """Let ONNX Runtime send nothing and keep no number of this machine; call it before importing it.

    Version 1.32 does both unless ORT_DISABLE_TELEMETRY is set when it is imported.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
