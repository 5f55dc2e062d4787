"""Two-stage local citation recommendation: finds the paper to cite in a passage.

    from citerec import Recommender

The command `citerec` lists what can be done from a shell.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from citerec.library.recommender import Recommender as Recommender

_PLACES = {"Recommender": "citerec.library.recommender"}

__all__ = ["Recommender"]

# A script's folder comes first on sys.path, and so does the current folder for `python -m`. In a checkout,
# our folder `datasets` would then hide Hugging Face's package.
_HERE = Path(__file__).resolve().parent
sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != _HERE]


def __getattr__(name: str) -> Any:
    """Import public names on first use, so that a question does not load what only training needs."""
    if name in _PLACES:
        return getattr(import_module(_PLACES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
