"""Evaluation: runs and qrels, measures, protocols, benchmarks and reports.

from citerec.evaluation import evaluate
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from citerec.evaluation.measures import evaluate as evaluate

__all__ = ["evaluate"]


def __getattr__(name: str) -> Any:
    """Import `evaluate` on first use: sweeps of trainings import only the reports."""
    if name == "evaluate":
        return import_module("citerec.evaluation.measures").evaluate
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
