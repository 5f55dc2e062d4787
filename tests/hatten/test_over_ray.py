"""What is kept of an encoding that was cut off; tests/datasets/test_ray.py has encoding over Ray itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from datasets.generate import generate_corpus
from datasets.prepare import open_corpus
from hatten.checkpoint import Model, save_model
from hatten.documents import Vocabulary
from hatten.encoder import build_encoder
from hatten.retriever import HAttenRetriever
from hatten.settings import EncoderConfig
from retrieval import dense
from retrieval.vectors import BATCH


def test_a_run_that_was_cut_off_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CITATION_CACHE", str(tmp_path / "parts"))
    generate_corpus(2 * BATCH + 100, 1000, tmp_path / "source", seed=0, workers=1)
    corpus = open_corpus(tmp_path / "source", cache_dir=tmp_path / "cache")
    vocabulary = Vocabulary([word for word in corpus.words if word.isalnum()][:2000])
    table = np.random.default_rng(0).standard_normal((len(vocabulary), 8)).astype(np.float32)
    encoder = build_encoder(EncoderConfig(dim=8, heads=2, hidden=16), table, vocabulary)
    save_model(Model(encoder, vocabulary, {}), tmp_path / "model.ckpt")
    retriever, rows = HAttenRetriever(tmp_path / "model.ckpt"), np.arange(2 * BATCH + 100)
    retriever.prepare(corpus)
    asked: list[int] = []
    last = 0

    def actors(retriever: HAttenRetriever, rows: Any, parts: dict[int, slice]) -> Iterator[tuple[int, Any]]:
        for number, part in parts.items():
            if part.start > last:
                raise KeyboardInterrupt
            asked.append(part.start)
            yield number, retriever.encode_papers(rows[part])

    monkeypatch.setattr(dense, "ray_shards", actors)
    with pytest.raises(KeyboardInterrupt):
        dense.encode_over_ray(retriever, corpus, rows)
    last = len(rows)
    found = dense.encode_over_ray(retriever, corpus, rows)
    np.testing.assert_array_equal(found, retriever.encode_papers(rows))
    assert asked == [0, BATCH, 2 * BATCH]
    assert not list((tmp_path / "parts").rglob("*.npy"))
