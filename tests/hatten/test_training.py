"""Training as users run it: what it writes and learns, how it goes on after a kill, what it refuses."""

from __future__ import annotations

import csv
import functools
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

import hatten.train
import training.loop
from datasets.demo import open_demo
from datasets.errors import InputError, user_line
from hatten.checkpoint import load_model
from hatten.retriever import HAttenRetriever

ROOT = Path(__file__).parents[2]
ROUNDS = 5
SMALL: dict[str, Any] = {
    "data.papers": 200,
    "data.contexts": 600,
    "embeddings.dim": 16,
    "embeddings.epochs": 2,
    "embeddings.min_count": 1,
    "embeddings.workers": 1,
    "model.encoder.dim": 16,
    "model.encoder.heads": 2,
    "model.encoder.hidden": 32,
    "model.encoder.max_tokens": 64,
    "model.encoder.residual": "mean",
    "model.encoder.trainable_vectors": "all",
    "model.precision": "float32",
    "model.rounds": ROUNDS,
    "model.ema": 0.8,
    "model.word_dropout": 0.1,
    "model.loss.name": "infonce",
    "model.loss.temperature": 0.05,
    "model.batch.queries": 32,
    "model.batch.mined": 2,
    "model.batch.random": 1,
    "model.batch.contexts_per_paper": 2,
    "model.batch.stale": False,
    "model.batch.steps_per_round": 10,
    "model.mining.depth": 20,
    "model.mining.positives": True,
    "model.validation.queries": 50,
    "model.validation.depth": 100,
    "model.validation.monitor": "recall@10",
    "model.schedule.warmup": 5,
    "model.schedule.decay": "linear",
    "model.schedule.vectors": 3.0,
    "model.schedule.mean_only_rounds": 0,
    "model.optimizer.lr": 0.01,
    "trainer.log_every_n_steps": 1,
}
PLAIN: dict[str, Any] = {"model.encoder.residual": "none"}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def arguments(cache: Path, **options: Any) -> list[str]:
    settings = {**SMALL, "data.cache_dir": cache, "embeddings.cache_dir": cache, **options}
    return [f"{name}={value}" for name, value in settings.items()]


def start(folder: Path, arguments: list[str]) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        str(ROOT / "train.py"),
        "model=hatten",
        "data=demo",
        "output_dir=out",
        *arguments,
    ]
    folder.mkdir(exist_ok=True)
    return subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=600)
    return process.returncode, out, err


def when(condition: Callable[[], bool], process: subprocess.Popen[str], signal_number: int) -> None:
    """Send the signal as soon as the condition holds; an assertion fails if the process ends before."""
    while not condition():
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)
    process.send_signal(signal_number)


@pytest.fixture(scope="module")
def whole(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of an uninterrupted run."""
    folder = tmp_path_factory.mktemp("whole")
    code, _, err = finish(start(folder, arguments(cache)))
    assert code == 0, err
    return folder / "out"


def history(out: Path) -> list[dict[str, str]]:
    with (out / "history.csv").open() as file:
        return list(csv.DictReader(file))


def state_of(out: Path) -> dict[str, Any]:
    content: dict[str, Any] = torch.load(out / "last.ckpt", weights_only=True)
    return content


def same_weights(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def assert_same_run(one: Path, other: Path) -> None:
    """Weights, their averages, the optimiser's state, the saved model and what was measured, bit for bit."""
    ours, theirs = state_of(one), state_of(other)
    assert same_weights(ours["state_dict"], theirs["state_dict"])
    states = [state["optimizer_states"][0]["state"] for state in (ours, theirs)]
    assert states[0].keys() == states[1].keys()
    for key, weights in states[0].items():
        assert same_weights(weights, states[1][key])
    models = [load_model(out / "hatten.ckpt") for out in (one, other)]
    assert same_weights(models[0].encoder.state_dict(), models[1].encoder.state_dict())
    assert models[0].about == models[1].about
    measured = [
        [{name: value for name, value in row.items() if "second" not in name} for row in history(out)]
        for out in (one, other)
    ]
    assert measured[0] == measured[1]


def test_a_run_writes_its_files(whole: Path) -> None:
    names = {path.name for path in whole.iterdir()}
    assert {"hatten.ckpt", "last.ckpt", "config.yaml", "history.csv", "training.png", "csv", "mined"} <= names
    assert [name for name in names if name.startswith(".") and name != ".hydra"] == []
    assert (whole / "training.png").read_bytes().startswith(b"\x89PNG")
    with (whole / "csv" / "version_0" / "metrics.csv").open() as file:
        steps = [row for row in csv.DictReader(file) if row["train/loss"]]
    assert len(steps) >= ROUNDS * SMALL["model.batch.steps_per_round"]
    # One pool for the last round, and the one before it, which the state before the last one names.
    assert 1 <= len(list((whole / "mined").iterdir())) <= 2


def test_a_run_learns(whole: Path) -> None:
    rows = history(whole)
    assert [int(row["round"]) for row in rows] == list(range(ROUNDS + 1))
    losses = [float(row["train/loss"]) for row in rows[1:]]
    assert losses[-1] < 0.7 * losses[0]
    recalls = [float(row["val/recall@10"]) for row in rows]
    assert recalls[-1] > recalls[0] + 0.05
    assert all(float(row["train/steps_per_second"]) > 0 for row in rows[1:])


def test_the_saved_model_is_that_of_the_best_round_and_recalls_what_was_measured(
    whole: Path, cache: Path
) -> None:
    model = load_model(whole / "hatten.ckpt")
    rows = history(whole)[1:]
    best = max(rows, key=lambda row: float(row["val/recall@10"]))
    assert model.about["round"] == int(best["round"])
    assert model.about["val/recall@10"] == float(best["val/recall@10"])
    corpus = open_demo(papers=200, contexts=600, cache_dir=cache)
    assert model.about["corpus"] == corpus.fingerprint
    retriever = HAttenRetriever(whole / "hatten.ckpt", arithmetic="float32")
    retriever.index(corpus)
    split = corpus.split("val")
    rows_measured = np.sort(np.random.default_rng((0, 2)).permutation(len(split))[:50])
    found = retriever.search(split.contexts[rows_measured], 10).papers
    hits = [
        set(split.positives[row].tolist()) & set(papers)
        for row, papers in zip(rows_measured, found, strict=True)
    ]
    assert np.mean([bool(hit) for hit in hits]) == pytest.approx(model.about["val/recall@10"])


def test_a_killed_and_an_interrupted_run_go_on_to_the_same_weights(
    whole: Path, cache: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    last = out / "last.ckpt"
    run = start(tmp_path, arguments(cache))
    when(last.exists, run, signal.SIGKILL)
    assert finish(run)[0] == -signal.SIGKILL
    done = state_of(out)["global_step"]
    assert 0 < done < ROUNDS * SMALL["model.batch.steps_per_round"]

    before = last.stat().st_mtime_ns
    run = start(tmp_path, [*arguments(cache), "resume=true"])
    when(lambda: last.stat().st_mtime_ns > before, run, signal.SIGINT)
    code, _, err = finish(run)
    assert code == 130 and err.splitlines()[-1] == "interrupted" and "Traceback" not in err
    assert done < state_of(out)["global_step"] < ROUNDS * SMALL["model.batch.steps_per_round"]

    code, _, err = finish(start(tmp_path, [*arguments(cache), "resume=true"]))
    assert code == 0, err
    assert_same_run(whole, out)


class StopAt(pl.Callback):
    """Ends a run as a crash would, in the middle of a round."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_train_batch_end(self, trainer: pl.Trainer, *_: object) -> None:
        if trainer.global_step == self.step:
            raise RuntimeError("crash")


def train(out: Path, cache: Path, **options: Any) -> Path:
    config = composed(cache).copy()
    for name, value in {"output_dir": str(out), **options}.items():
        OmegaConf.update(config, name, value, force_add=True)
    return hatten.train.train(config)


@functools.cache
def composed(cache: Path) -> DictConfig:
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        return compose("train", ["data=demo", "output_dir=out", *arguments(cache)])


SHORT: dict[str, Any] = {"model.rounds": 3, "model.batch.steps_per_round": 4, "model.validation.queries": 0}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "options",
    [
        {
            **PLAIN,
            "model.loss.name": "triplet",
            "model.encoder.trainable_vectors": "markers",
            "model.schedule.decay": "none",
            "model.mining.queries": 100,
            "model.mining.papers": 60,
        },
        {"model.batch.stale": True, "model.batch.random": 4, "model.schedule.mean_only_rounds": 1},
        {"model.batch.stale": True, "model.batch.mined": 0, "model.loss.correct_rate": True},
        {"model.batch.mined": 0, "model.precision": "bfloat16", "model.encoder.max_tokens": 8},
    ],
    ids=["triplet, samples", "mean path first, stale", "stale, nothing mined", "nothing mined, bfloat16"],
)
def test_every_variant_resumes_as_if_nothing_had_happened(
    options: dict[str, Any], cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {**SHORT, **options}
    train(tmp_path / "whole", cache, **options)
    of_two_rounds = state_of(tmp_path / "whole")["global_step"] // 3 * 2
    with monkeypatch.context() as patch:
        patch.setattr(training.loop, "Progress", lambda: StopAt(of_two_rounds + 1))
        with pytest.raises(RuntimeError, match="crash"):
            train(tmp_path / "broken", cache, **options)
    assert state_of(tmp_path / "broken")["global_step"] == of_two_rounds
    train(tmp_path / "broken", cache, resume=True, **options)
    assert_same_run(tmp_path / "whole", tmp_path / "broken")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "recipe", [["data=demo"], ["data=demo", "experiment=paper"], ["data=demo", "logger=wandb"]]
)
def test_the_recipes_that_come_with_it_train(
    recipe: list[str], cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Smaller, but with every other option as it is."""
    monkeypatch.setenv("WANDB_SILENT", "true")
    sizes = {name: value for name, value in SMALL.items() if name.startswith(("data.", "embeddings."))}
    sizes |= {"model.encoder.dim": 16, "model.encoder.heads": 2, "model.encoder.hidden": 16}
    sizes |= {"model.batch.steps_per_round": 3, "model.rounds": 2}
    sizes |= {"model.schedule.mean_only_rounds": 0 if "experiment=paper" in recipe else 1}
    folders = {"data.cache_dir": cache, "embeddings.cache_dir": cache, "output_dir": tmp_path / "out"}
    given = [f"{name}={value}" for name, value in {**sizes, **folders}.items()]
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        config = compose("train", [*recipe, *given])
    best = hatten.train.train(config)
    assert load_model(best).encoder.config.residual == ("none" if "experiment=paper" in recipe else "mean")
    assert len(history(tmp_path / "out")) >= 2
    if "logger=wandb" in recipe:
        import wandb

        assert wandb.run is None  # or the next job of a sweep would write into this one's
        assert list((tmp_path / "out" / "wandb").glob("offline-run-*/*.wandb"))


@pytest.mark.filterwarnings("ignore")
def test_a_run_is_resumed_with_its_own_settings_data_and_state_alone(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {**SHORT, "model.rounds": 2, "model.batch.steps_per_round": 2}
    monkeypatch.setattr(training.loop, "Progress", lambda: StopAt(3))
    with pytest.raises(RuntimeError, match="crash"):
        train(tmp_path, cache, **options)
    state = (tmp_path / "last.ckpt").read_bytes()
    for other, what in (
        ({"model.optimizer.lr": 1e-3}, "other settings of `model`"),
        ({"seed": 1}, "other settings of `seed`"),
        ({"embeddings.window": 3}, "other settings of `embeddings`"),
        ({"data.seed": 1}, "other settings of `data`"),
    ):
        with pytest.raises(
            InputError, match=f"config.yaml: the interrupted run had {what}; give the same, or start"
        ):
            train(tmp_path, cache, resume=True, **{**options, **other})
    (tmp_path / "last.ckpt").write_bytes(state[: len(state) // 2])
    with pytest.raises(InputError, match=r"last\.ckpt: damaged"):
        train(tmp_path, cache, resume=True, **options)
    (tmp_path / "last.ckpt").write_bytes(state)
    for pool in (tmp_path / "mined").iterdir():
        pool.write_bytes(b"other")
    with pytest.raises(InputError, match="not the pool that this run mined"):
        train(tmp_path, cache, resume=True, **options)

    # A new run of other settings that does not come far leaves nothing of the first to go on from.
    monkeypatch.setattr(training.loop, "Progress", lambda: StopAt(1))
    other = {**options, "model.optimizer.lr": 1e-3}
    with pytest.raises(RuntimeError, match="crash"):
        train(tmp_path, cache, **other)
    assert not (tmp_path / "last.ckpt").exists()
    assert (tmp_path / "earlier" / "last.ckpt").read_bytes() == state  # nor is it lost


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model.encoder.dim": 32}, "of 16 dimensions do not fit an encoder of 32; set model.encoder.dim=16"),
        ({"model.encoder.heads": 3}, "dim=16 must be even and divisible by heads=3"),
        ({"model.encoder.hidden": "wide"}, "model.encoder.hidden=wide: must be a whole number"),
        ({"model.encoder.width": 3}, "model.encoder.width: there is no such option; there are: dim, heads"),
        ({"model.precision": "half"}, "precision half: choose one of auto, float32, bfloat16"),
        ({"seed": -1}, "seed=-1: must be a whole number, not below 0"),
        ({"seed": "a"}, "seed=a: must be a whole number, not below 0"),
        ({"model.rounds": 0}, "model.rounds=0: must be at least 1"),
        ({"model.rounds": 1.5}, "model.rounds=1.5: must be a whole number"),
        ({"model.ema": 1}, "model.ema=1"),
        ({"model.ema": "high"}, "model.ema=high: must be a number"),
        ({"model.workers": 1000}, "model.workers=1000: this machine has"),
        ({"model.loss.name": "hinge"}, "model.loss.name=hinge: choose triplet or infonce"),
        ({"model.loss.temperature": 0}, "model.loss.temperature=0"),
        ({"model.loss.positives": ["a"]}, "model.loss.positives=.*: must be a list of whole numbers"),
        ({"model.batch.queries": 0}, "model.batch.queries=0: must be at least 1"),
        ({"model.batch.random": -1}, "model.batch.random=-1: must not be below 0"),
        ({**PLAIN, "model.batch.stale": True}, "model.batch.stale=True: needs model.encoder.residual=mean"),
        ({"model.mining.depth": 0}, "model.mining.depth=0: must be at least 1"),
        ({"model.mining.positives": "some"}, "model.mining.positives=some: must be true or false"),
        ({"model.schedule.decay": "cosine"}, "model.schedule.decay=cosine: choose none or linear"),
        (
            {**PLAIN, "model.schedule.mean_only_rounds": 1},
            "mean_only_rounds=1: needs model.encoder.residual=mean",
        ),
        (
            {"model.validation.monitor": "recall@7"},
            "model.validation.monitor=recall@7: choose one of mrr, recall@1",
        ),
        ({"model.validation.monitor": "recall@500"}, "recall@500: choose one of .*recall@100$"),
    ],
)
def test_options_that_do_not_work_are_named(
    options: dict[str, Any], message: str, cache: Path, tmp_path: Path
) -> None:
    with pytest.raises((InputError, OmegaConfBaseException)) as raised:
        train(tmp_path / "out", cache, **options)
    line = user_line(raised.value)
    assert line is not None and re.search(message, line)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["model.colour=red"], "colour"),
        (["data=custom", "data.dir=nowhere"], "nowhere"),
    ],
)
def test_what_cannot_be_used_is_one_line_and_code_2(given: list[str], message: str, tmp_path: Path) -> None:
    code, _, err = finish(start(tmp_path, given))
    assert code == 2
    assert err.startswith("error: ") and err.count("\n") == 1 and message in err
    assert not (tmp_path / "out" / "config.yaml").exists()
