"""Training the magnitudes of word vectors, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import hatten.train
from datasets.demo import open_demo
from datasets.errors import InputError
from hatten.nnselect import NNSelectRetriever
from tests.runs import Composed, history

SMALL: dict[str, Any] = {
    "model": "nnselect",
    "data": "demo",
    "data.papers": 200,
    "data.contexts": 600,
    "embeddings.dim": 16,
    "embeddings.epochs": 10,
    "embeddings.min_count": 1,
    "embeddings.workers": 1,
    "model.rounds": 3,
    "model.ema": 0.8,
    "model.batch.queries": 32,
    "model.batch.steps_per_round": 15,
    "model.validation.queries": 50,
    "model.validation.depth": 100,
    "model.optimizer.lr": 0.1,
}
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def options(cache: Path, **more: Any) -> list[str]:
    folders = {"data.cache_dir": cache, "embeddings.cache_dir": cache}
    return [f"{name}={value}" for name, value in {**SMALL, **folders, **more}.items()]


@pytest.fixture(scope="module")
def best(composed: Composed, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a run saved."""
    out = tmp_path_factory.mktemp("nnselect")
    return hatten.train.train(composed("train", *options(cache), f"output_dir={out}"))


def test_it_learns_and_is_saved_with_the_recall_that_it_has(best: Path, cache: Path) -> None:
    assert best.name == "nnselect.ckpt"
    measured = [row["val/recall@10"] for row in history(best.parent)]
    assert len(measured) == 4 and max(measured[1:]) > measured[0]
    about = torch.load(best, weights_only=True)["about"]
    assert about["val/recall@10"] == max(measured[1:]) and about["vectors"] == "word2vec of demo"

    corpus = open_demo(papers=200, contexts=600, cache_dir=cache)
    retriever = NNSelectRetriever(best)
    retriever.index(corpus)
    split = corpus.split("val")
    rows = np.sort(np.random.default_rng((0, 2)).permutation(len(split))[:50])
    found = retriever.search(split.contexts[rows], 10).papers
    hits = [
        bool(set(split.positives[row].tolist()) & set(papers))
        for row, papers in zip(rows, found, strict=True)
    ]
    assert np.mean(hits) == pytest.approx(about["val/recall@10"])


def test_directions_stay_as_they_were(best: Path) -> None:
    weights = torch.load(best.parent / "last.ckpt", weights_only=True)["state_dict"]
    directions = weights["encoder.directions"]
    assert torch.equal(directions, weights["average.module.directions"])
    lengths = directions[1:].norm(dim=1)  # the first is <pad>
    torch.testing.assert_close(lengths, torch.ones_like(lengths))
    assert not torch.equal(weights["encoder.mean.word_weight"], weights["average.module.mean.word_weight"])


@pytest.mark.slow
def test_a_resumed_run_is_the_uninterrupted_one(
    trained_twice: Callable[..., tuple[Path, Path]], cache: Path
) -> None:
    more = {
        "model.batch.steps_per_round": 3,
        "model.word_dropout": 0.2,
        "model.mining.papers": 60,
        "model.validation.papers": 80,
    }
    whole, resumed = (
        torch.load(path, weights_only=True) for path in trained_twice(7, *options(cache, **more))
    )
    assert whole["about"] == resumed["about"] and whole["about"]["val/papers"] == 80
    assert all(torch.equal(weight, resumed["weights"][name]) for name, weight in whole["weights"].items())


@pytest.mark.slow
def test_the_recipe_of_the_paper_trains_it_too(composed: Composed, cache: Path, tmp_path: Path) -> None:
    given = options(cache, experiment="paper", output_dir=tmp_path)
    config = composed("train", *given)
    assert config.model.loss.name == "triplet"
    assert hatten.train.train(config).is_file()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"model.weighting": "tfidf"}, r"model\.weighting=tfidf: choose mean or idf"),
        ({"model.max_tokens": 0}, r"model\.max_tokens=0: must be at least 1"),
        ({"model.word_dropout": 2}, r"model\.word_dropout=2.*: must be at least 0 and at most 1"),
        ({"model.batch.stale": True}, r"stale=True: needs model\.encoder\.residual=mean, of model=hatten"),
        ({"model.schedule.mean_only_rounds": 1}, "mean_only_rounds=1: needs model.encoder.residual=mean"),
    ],
)
def test_options_that_do_not_work_are_named(
    given: dict[str, Any], message: str, composed: Composed, cache: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        hatten.train.train(composed("train", *options(cache, **given), f"output_dir={tmp_path / 'out'}"))
    assert not (tmp_path / "out").exists()


def test_what_is_no_checkpoint_of_it_is_one_clear_error(best: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="retriever=nnselect needs checkpoint=FILE"):
        NNSelectRetriever(None)
    with pytest.raises(InputError, match="there is no such checkpoint"):
        NNSelectRetriever(tmp_path / "none.ckpt")
    with pytest.raises(InputError, match=r"out: there is no nnselect\.ckpt in it, but hatten\.ckpt$"):
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "hatten.ckpt").touch()
        NNSelectRetriever(tmp_path / "out")
    (tmp_path / "words" / "static").mkdir(parents=True)
    with pytest.raises(InputError, match=r"words: there is no nnselect\.ckpt in it, but static$"):
        NNSelectRetriever(tmp_path / "words")
    assert NNSelectRetriever(best.parent).vocabulary.words == NNSelectRetriever(best).vocabulary.words
    content, file = torch.load(best, weights_only=True), tmp_path / "other.ckpt"
    torch.save({**content, "format": "hatten-1"}, file)
    with pytest.raises(
        InputError, match=r"other\.ckpt: not a checkpoint that train\.py model=nnselect saved"
    ):
        NNSelectRetriever(file)
    weights = content["weights"]
    for wrong in (
        {**content, "words": content["words"][:-1]},
        {name: value for name, value in content.items() if name != "max_tokens"},
        {**content, "weights": {**weights, "mean.word_weight": weights["mean.word_weight"][1:]}},
        {**content, "weights": []},
    ):
        torch.save(wrong, file)
        with pytest.raises(InputError, match="missing or does not fit") as raised:
            NNSelectRetriever(file)
        assert "\n" not in str(raised.value)
