"""Fixtures of the training tests."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Options to train on a demo corpus of 200 papers, prepared once."""
    cache = tmp_path_factory.mktemp("cache")
    return {
        "data": "demo",
        "data.papers": 200,
        "data.contexts": 600,
        "data.cache_dir": cache,
        "embeddings": "word2vec",
        "embeddings.cache_dir": cache,
        "embeddings.dim": 16,
        "embeddings.epochs": 2,
        "embeddings.min_count": 1,
        "embeddings.workers": 1,
        "model.validation.queries": 50,
        "model.validation.depth": 100,
    }
