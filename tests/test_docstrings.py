"""Runs the doctests."""

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = (
    *("base", "formats", "datasets", "retrieval", "training", "hatten", "rerank", "library"),
    "evaluation",
)
MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for package in PACKAGES
    for path in sorted((ROOT / package).rglob("*.py"))
    if ">>> " in path.read_text("utf-8")
]


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_docstrings(module: str) -> None:
    result = doctest.testmod(importlib.import_module(f"citerec.{module}"))
    assert result.attempted and not result.failed
