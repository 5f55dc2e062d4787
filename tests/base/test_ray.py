"""A local Ray with two processes gives the same bytes as one process."""

from __future__ import annotations

import gzip
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from citerec.base import over_ray
from citerec.datasets.corpus import Corpus
from citerec.datasets.generate import generate_corpus
from citerec.datasets.prepare import open_corpus
from citerec.hatten.documents import Vocabulary
from citerec.hatten.encoder import build_encoder
from citerec.hatten.model import HAtten, HAttenRetriever
from citerec.hatten.settings import EncoderConfig
from citerec.tests.datasets.conftest import run_citerec

ray = pytest.importorskip("ray", reason="the extra `ray` is not installed: make install EXTRAS='dev ray'")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def two_processes() -> Iterator[None]:
    with over_ray.ray_session(processes=2):
        yield


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """2,500 papers and 3,000 contexts."""
    folder = tmp_path_factory.mktemp("generated") / "source"
    generate_corpus(2500, 3000, folder, seed=0, workers=1)
    return folder


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("citerec.datasets.columns.CHUNK", 30_000)


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith(".")}


def test_results_come_in_the_order_of_the_work() -> None:
    def slow_at_first(batch: dict[str, Any]) -> dict[str, Any]:
        time.sleep(0.3 if batch["number"][0] == 0 else 0)
        return {"number": batch["number"], "process": [os.getpid()]}

    rows = list(over_ray.map_items([{"number": number} for number in range(6)], slow_at_first))
    assert [row["number"].as_py() for row in rows] == list(range(6))
    assert os.getpid() not in {row["process"].as_py() for row in rows}


def test_a_store_is_the_same_byte_for_byte(source: Path, tmp_path: Path) -> None:
    """For plain files, and for gzipped files with a bad record."""
    papers = json.loads((source / "papers.json").read_text())
    papers["x00000007"]["title"] = 7
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "papers.json").write_bytes(gzip.compress(json.dumps(papers).encode()))
    for name in ("contexts", "train", "val", "test"):
        (broken / f"{name}.json").symlink_to(source / f"{name}.json")
    for folder, on_error in ((source, "raise"), (broken, "skip")):
        options: dict[str, Any] = {"field": "field", "on_error": on_error, "max_bad_share": 0.5}
        one = open_corpus(folder, cache_dir=tmp_path / "one", **options)
        many = open_corpus(folder, cache_dir=tmp_path / "many", backend="ray", **options)
        assert content(one.path) == content(many.path)
    assert many.dropped["papers"]["kinds"] == {"wrong type": 1}


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


def test_an_unreachable_cluster_is_one_line(tiny_source: Path, tmp_path: Path) -> None:
    options = ["data=custom", f"data.dir={tiny_source}", f"data.cache_dir={tmp_path}", "data.backend=ray"]
    done = run_citerec("data inspect", *options, RAY_ADDRESS="nonsense://127.0.0.1:1")
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("error: RAY_ADDRESS=nonsense://127.0.0.1:1: Ray cannot be joined")


def test_workers_import_our_datasets(tiny_source: Path, tmp_path: Path) -> None:
    """From the command line, on a running Ray, with another package named `datasets` on the path."""
    other = tmp_path / "other" / "datasets"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text("raise ImportError('the other datasets was imported')\n")
    options = ["data=custom", f"data.dir={tiny_source}", f"data.cache_dir={tmp_path / 'cache'}"]
    options += ["data.backend=ray", "examples=0", f"output_dir={tmp_path / 'out'}"]
    address = ray.get_runtime_context().gcs_address
    done = run_citerec("data inspect", *options, PYTHONPATH=str(other.parent), RAY_ADDRESS=address)
    assert done.returncode == 0, done.stderr
