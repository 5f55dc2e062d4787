"""How data sets are built from public repositories, each by one function (folders, target).

folders: the repositories of the release, checked out, in its order. target: a new folder for the files.
Each is an ordinary use of `citerec data build`, after bringing its sources into a layout that it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from citerec.datasets.building.build import BuildSettings, build

Recipe = Callable[[Sequence[Path], Path], None]


def recipe(name: str) -> Recipe:
    """Return the function `build` of a module of this package."""
    return cast(Recipe, import_module(f"{__name__}.{name}").build)


def build_corpus(source: Path, target: Path, **settings: Any) -> None:
    """Build a corpus, skipping up to a tenth of the records; settings: of `citerec data build`."""
    lenient: dict[str, Any] = {"on_error": "skip", "max_bad_share": 0.1}
    build(BuildSettings(source=(str(source),), output=str(target), **lenient, **settings))
