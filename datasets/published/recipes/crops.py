"""crops-lcr: what papers of PubMed Central on rice, wheat and millet cite, mostly known by title only."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from citerec.datasets.published.recipes import build_corpus

LICENCE = b"creativecommons.org/licenses"


def build(folders: Sequence[Path], target: Path) -> None:
    """Build the corpus from the JATS files that state a Creative Commons licence."""
    for file in folders[0].rglob("fulltext.xml"):
        if LICENCE not in file.read_bytes().lower():
            os.remove(file)
    rules: dict[str, Any] = {"candidates": "title", "leaks": "named", "words": "whole"}
    build_corpus(folders[0], target, train=0.92, val=0.04, test=0.04, **rules)
