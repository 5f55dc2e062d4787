"""Evaluation: runs and qrels, measures, protocols, benchmarks and reports.

from citerec.evaluation import compare, evaluate
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from citerec.evaluation.comparison import compare as compare
    from citerec.evaluation.measures import evaluate as evaluate

__all__ = ["compare", "evaluate"]
_PLACES = {"compare": "comparison", "evaluate": "measures"}


def __getattr__(name: str) -> Any:
    """Import public names on first use: sweeps of trainings import only the reports."""
    if name in _PLACES:
        return getattr(import_module(f"citerec.evaluation.{_PLACES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
