"""Training a reranker: what it writes and learns, how it goes on after a crash, what it refuses."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from omegaconf import DictConfig

import rerank.train
from datasets.corpus import Corpus
from datasets.errors import InputError
from rerank.cross_encoder import CrossEncoder
from rerank.pairs import PairReader
from retrieval.bm25 import BM25

pytestmark = pytest.mark.filterwarnings("ignore")
Composed = Callable[..., DictConfig]

TOP = {
    "model.lists": "top",
    "model.loss.name": "pointwise",
    "model.pairs.query": "paper",
    "model.pairs.query_tokens": 20,
}
"""As Nogueira et al. 2020 train."""


def history(out: Path) -> list[dict[str, str]]:
    with (out / "history.csv").open() as file:
        return list(csv.DictReader(file))


def same(one: Any, other: Any) -> bool:
    """Whether nested lists, dictionaries and tensors are equal bit for bit."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else bool(one == other)


def same_files(one: Path, other: Path) -> bool:
    names = sorted(path.name for path in one.iterdir())
    assert names == sorted(path.name for path in other.iterdir())
    return all((one / name).read_bytes() == (other / name).read_bytes() for name in names)


class StopAt(pl.Callback):
    """Ends a run as a crash would, after a step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_train_batch_end(self, trainer: pl.Trainer, *_: object) -> None:
        if trainer.global_step == self.step:
            raise RuntimeError("crash")


def crashed(config: DictConfig, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(rerank.train, "Progress", lambda steps: StopAt(step))
        with pytest.raises(RuntimeError, match="crash"):
            rerank.train.train(config)


def test_it_learns_and_is_saved_as_a_folder_that_scores(
    tiny_training: Composed, tiny_corpus: Corpus, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    changes = {"model.epochs": 20, "model.validation.every": 10, "output_dir": out}
    best = rerank.train.train(tiny_training(**changes))
    assert best == out / "reranker"
    rows = history(out)
    assert [float(row["step"]) for row in rows] == [10, 20, 30, 40, 50]
    assert float(rows[-1]["train/loss"]) < 0.5 * float(rows[0]["train/loss"])
    assert all(float(row["train/pairs_per_second"]) > 0 for row in rows)
    about = json.loads((best / "about.json").read_text())
    assert about["encoder"] == "tiny" and about["retriever"] == "bm25"
    assert about["val/mrr"] == max(float(row["val/mrr"]) for row in rows)


def test_without_validation_the_last_weights_are_saved_and_know_what_was_trained(
    tiny_training: Composed, tiny_corpus: Corpus, tmp_path: Path
) -> None:
    changes = {"model.validation.queries": 0, "model.validation.every": 50, "model.epochs": 20}
    best = rerank.train.train(tiny_training(**changes, output_dir=tmp_path / "out"))
    assert "val/mrr" not in history(best.parent)[0]
    encoder, split = CrossEncoder.load(best), tiny_corpus.split("train")
    reader, bm25 = PairReader(tiny_corpus, encoder.tokenizer, encoder.config), BM25()
    bm25.index(tiny_corpus)
    found = bm25.search(split.contexts, 6).papers
    above = []
    for context, cited, papers in zip(split.contexts, split.positives, found, strict=True):
        listed = np.append(cited, np.setdiff1d(papers[papers >= 0], cited))
        with torch.inference_mode():
            scores = encoder(*reader.pairs(np.repeat(context, len(listed)), listed).padded())
        above += (scores[0] > scores[1:]).tolist()
    assert len(above) > 5 and np.mean(above) > 0.8


@pytest.mark.parametrize(
    "changes",
    [
        {
            "model.dropout": 0.2,
            "model.ema": 0.5,
            "model.schedule.decay": "linear",
            "model.schedule.warmup": 2,
        },
        {"model.batch.queries": 1, "model.batch.accumulate": 2, "model.precision": "bfloat16"},
        {**TOP, "model.dropout": 0.2, "model.batch.queries": 1, "model.batch.accumulate": 2},
    ],
    ids=["dropout, average, decay", "accumulated, bfloat16", "the first papers as they were found"],
)
def test_a_resumed_run_is_the_uninterrupted_one(
    tiny_training: Composed, changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {**changes, "resume": True}
    whole = rerank.train.train(tiny_training(**changes, output_dir=tmp_path / "whole"))
    broken = tiny_training(**changes, output_dir=tmp_path / "broken")
    crashed(broken, 5, monkeypatch)
    state = torch.load(tmp_path / "broken" / "last.ckpt", weights_only=True)
    assert state["global_step"] == 4
    resumed = rerank.train.train(broken)
    assert same_files(whole, resumed)
    states = [torch.load(best.parent / "last.ckpt", weights_only=True) for best in (whole, resumed)]
    # A query of six has found nothing but what it cites: no negative, but a list.
    assert states[0]["global_step"] == (9 if "model.lists" in changes else 7)
    for part in ("state_dict", "optimizer_states", "lr_schedulers"):
        assert same(states[0][part], states[1][part]), part
    for one, other in zip(history(whole.parent), history(resumed.parent), strict=True):
        assert {key: one[key] for key in one if "second" not in key} == {
            key: other[key] for key in other if "second" not in key
        }


def test_the_first_papers_are_learnt_by_their_labels(
    tiny_training: Composed, tiny_corpus: Corpus, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    changes = {**TOP, "model.pairs.query": "context", "model.epochs": 25, "model.validation.every": 100}
    changes |= {"model.validation.queries": 0, "model.negatives.depth": 5, "model.head": "linear"}
    caplog.set_level("INFO")
    best = rerank.train.train(tiny_training(**changes, output_dir=tmp_path / "out"))
    encoder, split = CrossEncoder.load(best), tiny_corpus.split("train")
    assert encoder.config.query_tokens == 20
    reader, bm25 = PairReader(tiny_corpus, encoder.tokenizer, encoder.config), BM25()
    bm25.index(tiny_corpus)
    found = bm25.search(split.contexts, 5).papers
    scores: dict[bool, list[float]] = {True: [], False: []}
    for context, cited, papers in zip(split.contexts, split.positives, found, strict=True):
        listed = papers[papers >= 0]
        if not len(listed):
            continue
        with torch.inference_mode():
            logits = encoder(*reader.pairs(np.repeat(context, len(listed)), listed).padded())
        for paper, logit in zip(listed, logits.tolist(), strict=True):
            scores[bool(paper in cited)].append(logit)
    share = len(scores[True]) / (len(scores[True]) + len(scores[False]))
    assert f"of the papers in the lists of training queries, {share:.1%} are cited" in caplog.text
    assert min(scores[True]) > 0 > np.mean(scores[False]) and np.mean(np.array(scores[False]) < 0) > 0.8


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model.lists": "best"}, "model.lists=best: choose one of cited, top"),
        ({"model.lists": "top", "model.loss.name": "hinge"}, "model.lists=top: model.loss.name=hinge takes"),
        (
            {
                "model.lists": "top",
                "model.loss.name": "pointwise",
                "model.negatives.depth": 1,
                "filter": True,
            },
            "none of the first 1 papers of any training query is cited",
        ),
    ],
)
def test_lists_that_cannot_be_are_named(
    tiny_training: Composed, changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    if changes.pop("filter", False):
        # One query, drawn with this seed, that does not cite what is cited most.
        changes |= {"retriever": "popularity", "seed": 3, "model.epochs": 1}
        changes |= {"model.queries_per_epoch": 1, "model.batch.queries": 1}
    with pytest.raises(InputError, match=message):
        rerank.train.train(tiny_training(**changes, output_dir=tmp_path / "out"))
