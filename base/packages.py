"""Telemetry of other packages, and the number of cores that they may use."""

from __future__ import annotations

import os


def cores() -> int:
    """Return the number of cores that this process may use, or of all cores where the system does not say."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def disable_telemetry() -> None:
    """Disable ONNX Runtime's telemetry and its machine id; call this before importing it.

    Version 1.32 does both unless ORT_DISABLE_TELEMETRY is set when it is imported.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
