"""CSFCube (Mysore et al. 2021): the collection's files as they are."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path


def build(folders: Sequence[Path], target: Path) -> None:
    """Copy the collection, without its history."""
    shutil.copytree(folders[0], target, ignore=shutil.ignore_patterns(".git"))
