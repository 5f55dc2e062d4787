"""A local Ray with two processes gives the same bytes as one process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from citerec.base import over_ray
from citerec.datasets.corpus import Corpus
from citerec.datasets.generate import generate_corpus
from citerec.datasets.prepare import open_corpus
from citerec.hatten.documents import Vocabulary
from citerec.hatten.model import HAtten, HAttenRetriever, build_encoder
from citerec.hatten.settings import EncoderConfig

MISSING = "the extra `ray` is not installed: make install EXTRAS='dev ray'"
pytestmark = [pytest.mark.slow, pytest.mark.skipif(find_spec("ray") is None, reason=MISSING)]


@pytest.fixture(scope="module", autouse=True)
def two_processes() -> Iterator[None]:
    with over_ray.ray_session(processes=2):
        yield


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """2,500 papers and 3,000 contexts."""
    folder = tmp_path_factory.mktemp("generated") / "source"
    generate_corpus(2500, 3000, folder, seed=0)
    return folder


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith(".")}


def test_results_come_in_the_order_of_the_work() -> None:
    def slow_at_first(batch: dict[str, Any]) -> dict[str, Any]:
        time.sleep(0.3 if batch["number"][0] == 0 else 0)
        return {"number": batch["number"], "process": [os.getpid()]}

    rows = list(over_ray.map_items([{"number": number} for number in range(6)], slow_at_first))
    assert [row["number"].as_py() for row in rows] == list(range(6))
    assert os.getpid() not in {row["process"].as_py() for row in rows}


def test_vectors_are_the_same_byte_for_byte(source: Path, tmp_path: Path) -> None:
    corpus = open_corpus(source, cache_dir=tmp_path / "cache")
    file = checkpoint(corpus, tmp_path / "model")
    retrievers = [HAttenRetriever(file) for _ in range(2)]
    retrievers[1].set_encoding("ray")
    for number, retriever in enumerate(retrievers):
        retriever.open(corpus, tmp_path / f"index{number}")
    assert len(np.load(tmp_path / "index0" / "vectors.npy")) == 2500
    assert content(tmp_path / "index0") == content(tmp_path / "index1")


def checkpoint(corpus: Corpus, path: Path) -> Path:
    words = [word for word in corpus.words if word.isalnum()][:3000]
    vocabulary = Vocabulary(words)
    table = np.random.default_rng(0).standard_normal((len(vocabulary), 16)).astype(np.float32)
    encoder = build_encoder(EncoderConfig(dim=16, heads=2, hidden=32), table, vocabulary)
    return HAtten(encoder, vocabulary, {}).save(path)


def test_an_unreachable_cluster_is_one_line() -> None:
    join = "from citerec.base.over_ray import ray_session; ray_session().__enter__()"
    environment = {**os.environ, "RAY_ADDRESS": "nonsense://127.0.0.1:1"}
    done = subprocess.run([sys.executable, "-c", join], env=environment, capture_output=True, text=True)
    assert "InputError: RAY_ADDRESS=nonsense://127.0.0.1:1: Ray cannot be joined" in done.stderr
