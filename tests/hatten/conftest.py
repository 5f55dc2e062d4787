"""Fixtures for what needs more papers than the tiny corpus has."""

from __future__ import annotations

import pytest

from datasets.demo import open_demo
from datasets.store import Corpus


@pytest.fixture(scope="session")
def demo_corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """A generated corpus of 120 papers and 300 contexts; tests only read it."""
    return open_demo(papers=120, contexts=300, cache_dir=tmp_path_factory.mktemp("demo"))
