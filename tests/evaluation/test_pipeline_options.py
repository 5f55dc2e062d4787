"""What cannot be evaluated in two stages is one clear line, before hours of work."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from datasets.corpus import Corpus
from datasets.errors import InputError
from datasets.prepare import open_corpus
from evaluation.pipeline import Pipeline
from retrieval.bm25 import BM25
from retrieval.run import CachedRun


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reranker": None}, "benchmark=pipeline needs reranker=FOLDER"),
        ({"candidates": 0}, "candidates=0, .*whole numbers from 1 on"),
        ({"candidates": "some"}, "candidates=some"),
        ({"depths": [0]}, "whole numbers"),
        ({"fuse": "max"}, "benchmark.fuse=max: choose one of none, score, rank"),
        ({"weight": 1.5}, "benchmark.weight=1.5: choose tuned, or a number from 0 to 1"),
        ({"measure": "mrr@10"}, "benchmark.measure=mrr@10: choose recall@K"),
        ({"validation_queries": 0}, "benchmark.validation_queries=0"),
        ({"scoring": {"speed": 9}}, "scoring.speed: there is no such option"),
        ({"queries": 0}, "queries 0 .*whole numbers"),
    ],
)
def test_settings_that_cannot_be_are_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Pipeline(**({"reranker": "somewhere"} | options))


def test_what_cannot_be_used_is_one_line(
    tiny_corpus: Corpus, tiny_source: Path, tiny_reranker: Path, tmp_path: Path
) -> None:
    for folder in (tmp_path / "nowhere", tiny_source):
        with pytest.raises(InputError, match=str(folder)):
            Pipeline(folder, scores_dir=tmp_path)(BM25(), tiny_corpus, "test", tmp_path / "out")
    bare, long = (shutil.copytree(tiny_reranker, tmp_path / name) for name in ("bare", "long"))
    (bare / "tokenizer.json").unlink()
    settings = (long / "reranker.json").read_text()
    (long / "reranker.json").write_text(settings.replace('"max_tokens": 64', '"max_tokens": 4096'))
    for folder, message in (
        (bare, "the model has no tokeniser; expected tokenizer.json"),
        (long, r"pairs\.max_tokens=4096: the model reads at most 128"),
    ):
        with pytest.raises(InputError, match=message):
            Pipeline(folder, scores_dir=tmp_path)(BM25(), tiny_corpus, "test", tmp_path / "out")
    for folder in (bare, long):
        shutil.rmtree(folder)  # their weights are in safetensors too
    (tiny_source / "val.json").unlink()
    corpus = open_corpus(tiny_source, cache_dir=tmp_path / "other")
    with pytest.raises(InputError, match="fuse=score tunes a weight on split 'val', which corpus tiny lacks"):
        Pipeline(tiny_reranker, fuse="score")(BM25(), corpus, "test", tmp_path / "out")
    run = tmp_path / "run.trec"
    for line, message in (
        ("q1 Q0 parsing 1 2.0 x", "has none of the run's"),
        ("c9 Q0 lost 1 2.0 x", "'lost', which"),
    ):
        run.write_text(line + "\n")
        with pytest.raises(InputError, match=message):
            Pipeline(tiny_reranker, scores_dir=tmp_path)(
                CachedRun([run]), tiny_corpus, "test", tmp_path / "out"
            )
    assert not (tmp_path / "out").exists() and not list(tmp_path.rglob("*.safetensors"))
