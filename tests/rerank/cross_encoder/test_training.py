"""Training a reranker: outputs, learning, exact resuming, invalid options, two processes."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from citerec.base.errors import InputError
from citerec.datasets.corpus import Corpus
from citerec.rerank.cross_encoder.network import CrossEncoder
from citerec.rerank.cross_encoder.pairs import PairReader
from citerec.rerank.settings import PairSettings
from citerec.retrieval.lexical.bm25 import BM25
from citerec.tests.composing import compose_config
from citerec.tests.conftest import Done
from citerec.tests.runs import (
    TWO,
    Composed,
    assert_same_run,
    assert_same_up_to_rounding,
    history,
    run_forked,
    signal_at,
    steps_done,
)
from citerec.train import train

pytestmark = pytest.mark.filterwarnings("ignore")

TOP = {
    "model.lists": "top",
    "model.loss.name": "pointwise",
    "model.pairs.query": "paper",
}
"""The training of Nogueira et al. 2020."""


def same_files(one: Path, other: Path) -> bool:
    names = sorted(str(path.relative_to(one)) for path in one.rglob("*") if path.is_file())
    assert names == sorted(str(path.relative_to(other)) for path in other.rglob("*") if path.is_file())
    return all((one / name).read_bytes() == (other / name).read_bytes() for name in names)


def score_lists(
    best: Path, corpus: Corpus, depth: int, cited_too: bool
) -> list[tuple[list[float], list[bool]]]:
    """Return the logits of BM25's candidates per training query, and which of them are cited."""
    encoder, split, bm25 = CrossEncoder.open(best), corpus.split("train"), BM25().index(corpus)
    reader = PairReader(corpus, encoder.tokenizer, encoder.config)
    found = []
    for context, cited, papers in zip(
        split.contexts, split.positives, bm25.search(split.contexts, depth).papers, strict=True
    ):
        listed = papers[papers >= 0]
        listed = np.union1d(cited, listed) if cited_too else listed
        if not len(listed):
            continue
        with torch.inference_mode():
            logits = encoder(*reader.pairs(np.repeat(context, len(listed)), listed).padded())
        found.append((logits.tolist(), np.isin(listed, cited).tolist()))
    return found


def test_training_learns_and_saves_the_best_model(tiny_training: Composed, tmp_path: Path) -> None:
    changes = {"model.epochs": 20, "model.validation.every": 10, "output_dir": tmp_path / "out"}
    best = train(tiny_training(**changes))
    assert best == tmp_path / "out" / "reranker"
    rows = history(best.parent)
    assert [row["step"] for row in rows] == [10, 20, 30, 40, 50]
    assert rows[-1]["train/loss"] < 0.5 * rows[0]["train/loss"]
    about = json.loads((best / "about.json").read_text())
    assert about["encoder"] == "tiny" and about["retriever"] == "bm25"
    assert about["val/mrr"] == max(row["val/mrr"] for row in rows)


def test_without_validation_the_last_weights_are_saved(
    tiny_training: Composed, tiny_corpus: Corpus, tmp_path: Path
) -> None:
    changes = {"model.validation.queries": 0, "model.validation.every": 50, "model.epochs": 20}
    best = train(tiny_training(**changes, output_dir=tmp_path / "out"))
    assert "val/mrr" not in history(best.parent)[0]
    above = [
        logits[cited.index(True)] > logit
        for logits, cited in score_lists(best, tiny_corpus, 6, True)
        for logit, of in zip(logits, cited, strict=True)
        if not of
    ]
    assert len(above) > 5 and np.mean(above) > 0.8


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {
            "model.dropout": 0.2,
            "model.ema": 0.5,
            "model.schedule.decay": "linear",
            "model.schedule.warmup": 2,
        },
        {**TOP, "model.batch.queries": 1, "model.batch.accumulate": 2, "model.precision": "bfloat16"},
    ],
    ids=["dropout, average, decay", "accumulated, bfloat16, the first papers as they were found"],
)
def test_a_run_killed_within_a_round_resumes_to_the_weights_of_an_uninterrupted_one(
    tiny_options: Callable[..., list[str]],
    tiny_training: Composed,
    changes: dict[str, Any],
    tmp_path: Path,
) -> None:
    changes = {**changes, "resume": True}
    whole = train(tiny_training(**changes, output_dir=tmp_path / "whole"))
    changes = {**changes, "output_dir": tmp_path / "broken", "checkpoint_minutes": 0}
    killed = run_forked([*tiny_options(**changes), signal_at(4, signal.SIGKILL)], tmp_path / "broken")
    assert (killed.returncode, steps_done(tmp_path / "broken")) == (-signal.SIGKILL, 3), killed.stderr
    resumed = train(tiny_training(**changes))
    assert same_files(whole, resumed)
    state = assert_same_run(whole.parent, resumed.parent)
    # One of six queries has only cited candidates: a list, but no negatives.
    assert state["global_step"] == (9 if "model.lists" in changes else 7)


def test_early_stopping_holds_in_a_resumed_run(
    tiny_training: Composed, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    changes = {"model.validation.every": 1, "model.validation.patience": 2, "model.optimizer.lr": 1e-30}
    config = tiny_training(**changes, resume=True, output_dir=tmp_path / "out")
    caplog.set_level("INFO")
    train(config)
    assert "no better mrr in 2 validations: stopping" in caplog.text
    assert len(history(tmp_path / "out")) == 3
    train(config)
    assert len(history(tmp_path / "out")) == 3


def test_top_lists_are_learnt_from_their_labels(
    tiny_training: Composed, tiny_corpus: Corpus, tmp_path: Path
) -> None:
    changes = {**TOP, "model.pairs.query": "context", "model.epochs": 25, "model.validation.every": 100}
    changes |= {"model.validation.queries": 0, "model.negatives.depth": 5, "model.head": "linear"}
    best = train(tiny_training(**changes, output_dir=tmp_path / "out"))
    pairs = [
        pair
        for logits, of in score_lists(best, tiny_corpus, 5, False)
        for pair in zip(logits, of, strict=True)
    ]
    cited, others = ([logit for logit, of in pairs if of is wanted] for wanted in (True, False))
    assert min(cited) > 0 > np.mean(others) and np.mean(np.array(others) < 0) > 0.8


@pytest.mark.slow
def test_the_papers_recipe_is_three_passes_over_all_contexts_without_dropout_and_clipping(
    tiny_options: Callable[..., list[str]], tmp_path: Path
) -> None:
    config = compose_config("train", ["model=scibert_reranker", "experiment=paper"])
    ours = compose_config("train", ["model=scibert_reranker", "data=arxiv"])
    sizes: dict[str, Any] = {"negatives.depth": 6, "validation.every": 4, "validation.candidates": 8}
    sizes |= {"validation.monitor": "mrr", "pairs.max_tokens": 48}
    given = [option for option in tiny_options() if not option.startswith("model.")]
    given += ["model=scibert_reranker", "experiment=paper", f"output_dir={tmp_path}"]
    run = compose_config("train", [*given, *(f"model.{name}={value}" for name, value in sizes.items())])
    model = config.model
    names = ("citing", "context", "candidate", "truncate")
    pairs = {name: model.pairs[name] for name in names}
    assert (model.pairs.citing_words, model.new_tokens, model.optimizer.eps) == (157, "random", 1.6e-8)
    assert PairSettings(max_tokens=model.pairs.max_tokens, **pairs) == PairSettings.reference()
    assert (model.negatives.count, model.negatives.depth, model.batch.queries) == (62, 2000, 1)
    assert (model.loss.name, model.loss.margin, model.dropout) == ("hinge", 0.1, 0.0)
    assert config.trainer.gradient_clip_val is None and ours.trainer.gradient_clip_val == 1.0
    assert (ours.model.epochs, ours.model.queries_per_epoch, ours.model.dropout) == (1, 10_000, 0.1)
    train(run)
    rows = history(tmp_path)
    assert rows[-1]["step"] == 3 * 5  # all training contexts with candidates


def test_lists_without_a_cited_paper_are_refused(tiny_training: Composed, tmp_path: Path) -> None:
    # This seed samples one query, which does not cite the most cited paper.
    changes = {**TOP, "model.negatives.depth": 1, "retriever": "popularity", "seed": 3, "model.epochs": 1}
    changes |= {"model.queries_per_epoch": 1, "model.batch.queries": 1}
    with pytest.raises(InputError, match="no training query has a cited paper among its top 1 papers"):
        train(tiny_training(**changes, output_dir=tmp_path / "out"))


@pytest.mark.slow
def test_two_processes_match_one(
    tiny_options: Callable[..., list[str]], tiny_training: Composed, tmp_path: Path
) -> None:
    """Two queries per step, one per process, with gloo on a CPU; each pair is validated once."""
    more: dict[str, Any] = {"model.validation.every": 50, "model.ema": 0.5}
    # Without so large a term, Adam would take full steps on gradients that are only rounding errors.
    more |= {"model.optimizer.eps": 1.0, "model.optimizer.lr": 0.1}
    train(tiny_training(**more, output_dir=tmp_path / "one"))
    done = run_forked(tiny_options(**more, **TWO), tmp_path / "two", processes=2)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("training on tiny") == 1, done.stdout
    assert all(row["val/ceiling"] > 0 for row in history(tmp_path / "one"))
    assert_same_up_to_rounding(tmp_path / "one", tmp_path / "two", "reranker")


@pytest.mark.slow
def test_the_paper_has_no_biencoder(script: Callable[..., Done]) -> None:
    done = script("train.py", "model=biencoder", "experiment=paper")
    assert (done.code, done.err) == (2, "error: experiment=paper: the paper has no model=biencoder\n")


def test_queries_that_cannot_be_divided_are_refused(tiny_training: Composed, tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"model\.batch\.queries=1: cannot be divided among 2 .* multiple of 2"
    ):
        train(tiny_training(**TWO, **{"model.batch.queries": 1}, output_dir=tmp_path / "out"))
