"""Fixtures for rerankers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig

from citerec.tests.composing import compose_config
from citerec.tests.runs import Composed

TINY: dict[str, Any] = {
    "model": "scibert_reranker",
    "data": "custom",
    "encoder": "minilm",
    "encoder.name": "tiny",
    "model.epochs": 3,
    "model.precision": "float32",
    "model.dropout": 0.0,
    "model.pairs.max_tokens": 48,
    "model.loss.name": "listwise",
    "model.batch.queries": 2,
    "model.batch.tokens": 100,
    "model.negatives.count": 3,
    "model.negatives.depth": 6,
    "model.validation.candidates": 8,
    "model.validation.every": 2,
    "model.validation.monitor": "mrr",
    "model.validation.patience": 0,
    "model.optimizer.lr": 0.003,
    "trainer.log_every_n_steps": 1,
}
"""A training run on the tiny corpus: 5 training queries with BM25 candidates, 2 validation queries."""


@pytest.fixture
def tiny_options(tiny_source: Path, tiny_bert: Path, tmp_path: Path) -> Callable[..., list[str]]:
    """Return a function that makes the overrides of a run on the tiny corpus, with changes."""
    folders = {"data.dir": tiny_source, "data.cache_dir": tmp_path / "cache", "encoder.path": tiny_bert}

    def given(**more: Any) -> list[str]:
        return [f"{name}={value}" for name, value in {**TINY, **folders, **more}.items()]

    return given


@pytest.fixture
def tiny_training(tiny_options: Callable[..., list[str]]) -> Composed:
    """Return a function that composes the configuration of a run on the tiny corpus, with changes."""

    def composed(**more: Any) -> DictConfig:
        return compose_config("train", tiny_options(**more))

    return composed
