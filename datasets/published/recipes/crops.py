"""crops-lcr: what papers of PubMed Central on rice, wheat and millet cite, mostly known by title only."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from citerec.datasets.building.build import build_corpus
from citerec.datasets.splitting import RandomSplitting

LICENCE = b"creativecommons.org/licenses"


def build(folders: Sequence[Path], target: Path) -> None:
    """Build the corpus from the JATS files that state a Creative Commons licence."""
    for file in folders[0].rglob("fulltext.xml"):
        if LICENCE not in file.read_bytes().lower():
            os.remove(file)
    splitting = RandomSplitting(0.92, 0.04, 0.04, seed=0)
    rules = {"candidates": "title", "leaks": "named", "words": "whole"}
    build_corpus(str(folders[0]), target, splitting, on_error="skip", max_bad_share=0.1, **rules)
