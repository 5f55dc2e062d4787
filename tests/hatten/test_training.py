"""Training as users run it: what it writes and learns, how it resumes after a kill, what it refuses."""

from __future__ import annotations

import csv
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
import torch
from hydra.errors import HydraException
from omegaconf import DictConfig

import hatten.train
from datasets.demo import open_demo
from datasets.errors import InputError, user_line
from hatten.checkpoint import load_model
from hatten.retriever import HAttenRetriever
from tests.runs import Composed, assert_same_run, crashed, history, same
from training.settings import DATED, run_folder

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
SHORT: dict[str, Any] = {"model.rounds": 3, "model.batch.steps_per_round": 4, "model.validation.queries": 0}
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def arguments(cache: Path, **options: Any) -> list[str]:
    folders = {"data": "demo", "data.cache_dir": cache, "embeddings.cache_dir": cache}
    return [f"{name}={value}" for name, value in {**SMALL, **folders, **options}.items()]


def start(folder: Path, arguments: list[str]) -> subprocess.Popen[str]:
    folder.mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, str(ROOT / "train.py"), "model=hatten", "output_dir=out", *arguments],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, err = process.communicate(timeout=600)
    return process.returncode, err


def when(condition: Callable[[], bool], process: subprocess.Popen[str], signal_number: int) -> None:
    """Send the signal as soon as the condition holds; an assertion fails if the process ends before."""
    while not condition():
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)
    process.send_signal(signal_number)


@pytest.fixture(scope="module")
def whole(composed: Composed, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of an uninterrupted run."""
    out = tmp_path_factory.mktemp("whole") / "out"
    hatten.train.train(composed("train", *arguments(cache), f"output_dir={out}"))
    return out


def steps_done(out: Path) -> int:
    return int(torch.load(out / "last.ckpt", weights_only=True)["global_step"])


def test_a_run_writes_its_files(whole: Path) -> None:
    names = {path.name for path in whole.iterdir()}
    assert names == {
        *("hatten.ckpt", "last.ckpt", "config.yaml", "history.csv", "metrics.json", "training.png"),
        *("csv", "mined"),
    }
    assert (whole / "training.png").read_bytes().startswith(b"\x89PNG")
    with (whole / "csv" / "version_0" / "metrics.csv").open() as file:
        steps = [row for row in csv.DictReader(file) if row["train/loss"]]
    assert len(steps) >= ROUNDS * SMALL["model.batch.steps_per_round"]
    # One pool for the last round, and the one before it, which the state before the last one names.
    assert 1 <= len(list((whole / "mined").iterdir())) <= 2


def test_a_run_learns(whole: Path) -> None:
    rows = history(whole)
    assert [row["round"] for row in rows] == list(range(ROUNDS + 1))
    assert rows[-1]["train/loss"] < 0.7 * rows[1]["train/loss"]
    assert rows[-1]["val/recall@10"] > rows[0]["val/recall@10"] + 0.05
    with (whole / "history.csv").open() as file:
        assert all(float(row["train/steps_per_second"]) > 0 for row in list(csv.DictReader(file))[1:])


def test_the_saved_model_is_that_of_the_best_round_and_has_the_recall_that_was_measured(
    whole: Path, cache: Path
) -> None:
    about, rows = load_model(whole / "hatten.ckpt").about, history(whole)[1:]
    best = max(rows, key=lambda row: row["val/recall@10"])
    assert (about["round"], about["val/recall@10"]) == (best["round"], best["val/recall@10"])
    corpus = open_demo(papers=200, contexts=600, cache_dir=cache)
    assert about["corpus"] == corpus.fingerprint
    retriever = HAttenRetriever(whole / "hatten.ckpt", arithmetic="float32")
    retriever.index(corpus)
    split = corpus.split("val")
    measured = np.sort(np.random.default_rng((0, 2)).permutation(len(split))[:50])
    found = retriever.search(split.contexts[measured], 10).papers
    pairs = zip(measured, found, strict=True)
    hits = [bool(set(split.positives[row].tolist()) & set(papers)) for row, papers in pairs]
    assert np.mean(hits) == pytest.approx(about["val/recall@10"])


@pytest.mark.slow
def test_a_killed_and_an_interrupted_run_resume_to_the_same_weights(
    whole: Path, cache: Path, tmp_path: Path
) -> None:
    out, total = tmp_path / "out", ROUNDS * SMALL["model.batch.steps_per_round"]
    last = out / "last.ckpt"
    run = start(tmp_path, arguments(cache))
    when(last.exists, run, signal.SIGKILL)
    assert finish(run)[0] == -signal.SIGKILL
    done = steps_done(out)
    assert 0 < done < total

    before = last.stat().st_mtime_ns
    run = start(tmp_path, [*arguments(cache), "resume=true"])
    when(lambda: last.stat().st_mtime_ns > before, run, signal.SIGINT)
    code, err = finish(run)
    assert code == 130 and err.splitlines()[-1] == "interrupted" and "Traceback" not in err
    assert done < steps_done(out) < total

    code, err = finish(start(tmp_path, [*arguments(cache), "resume=true"]))
    assert code == 0, err
    assert_same_run(whole, out)
    models = [load_model(folder / "hatten.ckpt") for folder in (whole, out)]
    assert same(models[0].encoder.state_dict(), models[1].encoder.state_dict())
    assert models[0].about == models[1].about


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(
            {
                **PLAIN,
                "model.loss.name": "triplet",
                "model.encoder.trainable_vectors": "markers",
                "model.schedule.decay": "none",
                "model.mining.queries": 100,
                "model.mining.papers": 60,
            },
            id="triplet, samples",
        ),
        pytest.param(
            {"model.batch.stale": True, "model.batch.random": 4, "model.schedule.mean_only_rounds": 1},
            id="mean path first, stale",
        ),
        pytest.param(
            {"model.batch.stale": True, "model.batch.mined": 0, "model.loss.correct_rate": True},
            id="stale, nothing mined",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"model.batch.mined": 0, "model.precision": "bfloat16", "model.encoder.max_tokens": 8},
            id="nothing mined, bfloat16",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_every_variant_resumes_as_if_nothing_had_happened(
    options: dict[str, Any], cache: Path, trained_twice: Callable[..., tuple[Path, Path]]
) -> None:
    in_the_third_round = 2 * SHORT["model.batch.steps_per_round"] + 1
    whole, resumed = trained_twice(in_the_third_round, *arguments(cache, **{**SHORT, **options}))
    models = [load_model(path) for path in (whole, resumed)]
    assert same(models[0].encoder.state_dict(), models[1].encoder.state_dict())
    assert models[0].about == models[1].about


@pytest.mark.parametrize(("experiment", "documents"), [("paper", 448), ("paper_small", 102)])
def test_the_papers_set_up_is_one(experiment: str, documents: int, composed: Composed) -> None:
    model = composed("train", f"experiment={experiment}", "data=custom", "data.dir=x").model
    batch, encoder = model.batch, model.encoder
    assert batch.queries * (1 + 1 + batch.mined + batch.random) == documents
    assert model.rounds * batch.steps_per_round == 35_000
    assert (encoder.trainable_vectors, encoder.input_dropout, model.mining.first) == ("none", 0.0, "bm25")


@pytest.mark.parametrize("first", ["bm25", "none"])
def test_the_first_round_needs_no_trained_encoder(
    first: str,
    cache: Path,
    composed: Composed,
    tmp_path: Path,
) -> None:
    options = {**SHORT, "model.mining.first": first, "output_dir": tmp_path}
    crashed(hatten.train.train, 1, composed("train", *arguments(cache, **options)))
    file = tmp_path / "unfinished" / "mined" / "round-000.npz"  # no round is saved yet
    assert file.exists() == (first == "bm25")
    if first == "bm25":
        with np.load(file) as pool:  # papers that share words with the query, at the top above all
            assert pool["relevant"][:, :3].mean() > pool["relevant"][:, -3:].mean()


@pytest.mark.parametrize(
    "recipe", ["logger=csv", "experiment=paper_small", pytest.param("logger=wandb", marks=pytest.mark.slow)]
)
def test_the_recipes_that_come_with_it_train(
    recipe: str, cache: Path, composed: Composed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Smaller, but with every other option as it is."""
    monkeypatch.setenv("WANDB_SILENT", "true")
    paper = recipe.startswith("experiment=paper")
    sizes = {name: value for name, value in SMALL.items() if name.startswith(("data.", "embeddings."))}
    sizes |= {"model.encoder.dim": 16, "model.encoder.heads": 2, "model.encoder.hidden": 16}
    sizes |= {"model.batch.steps_per_round": 3, "model.rounds": 2}
    sizes |= {"model.schedule.mean_only_rounds": 0 if paper else 1, "output_dir": tmp_path / "out"}
    sizes |= {"data.cache_dir": cache, "embeddings.cache_dir": cache}
    best = hatten.train.train(composed("train", recipe, *(f"{key}={value}" for key, value in sizes.items())))
    assert load_model(best).encoder.config.residual == ("none" if paper else "mean")
    assert len(history(tmp_path / "out")) >= 2
    if recipe == "logger=wandb":
        import wandb

        assert wandb.run is None  # or the next job of a sweep would write into this one's
        assert list((tmp_path / "out" / "wandb").glob("offline-run-*/*.wandb"))


def test_a_run_is_resumed_with_its_own_settings_data_and_state_alone(
    cache: Path, composed: Composed, tmp_path: Path
) -> None:
    def config(**other: Any) -> DictConfig:
        short = {**SHORT, "model.rounds": 2, "model.batch.steps_per_round": 2, "output_dir": tmp_path}
        return composed("train", *arguments(cache, **{**short, **other}))

    def refused(message: str, **other: Any) -> None:
        with pytest.raises(InputError, match=message):
            hatten.train.train(config(resume=True, **other))

    crashed(hatten.train.train, 3, config())
    state = (tmp_path / "last.ckpt").read_bytes()
    for part, other in (
        ("model", {"model.optimizer.lr": 1e-3}),
        ("seed", {"seed": 1}),
        ("embeddings", {"embeddings.window": 3}),
        ("data", {"data.seed": 1}),
    ):
        said = f"config.yaml: the interrupted run had other settings of `{part}`; give the same, or start"
        refused(said, **other)
    (tmp_path / "last.ckpt").write_bytes(state[: len(state) // 2])
    refused(r"last\.ckpt: damaged")
    (tmp_path / "last.ckpt").write_bytes(state)
    for pool in (tmp_path / "mined").iterdir():
        pool.write_bytes(b"other")
    refused("not the pool that this run mined")


def test_a_new_run_in_a_used_folder_touches_nothing_until_its_first_round_is_saved(
    cache: Path, composed: Composed, tmp_path: Path
) -> None:
    def config(seed: int) -> DictConfig:
        short = {**SHORT, "model.rounds": 2, "model.batch.steps_per_round": 2, "seed": seed}
        return composed("train", *arguments(cache, **short, output_dir=tmp_path))

    def files(folder: Path) -> dict[str, bytes]:
        paths = [path for name in names for path in (folder / name, *(folder / name).glob("*"))]
        return {str(path.relative_to(folder)): path.read_bytes() for path in paths if path.is_file()}

    names = [
        "hatten.ckpt",
        "last.ckpt",
        "config.yaml",
        "history.csv",
        "metrics.json",
        "training.png",
        "mined",
    ]
    hatten.train.train(config(0))
    first = files(tmp_path)
    assert len(first) >= len(names)
    for _ in range(2):
        crashed(hatten.train.train, 1, config(1))
        assert files(tmp_path) == first and not (tmp_path / "earlier").exists()
    crashed(hatten.train.train, 3, config(1))  # in its second round
    second = files(tmp_path)
    assert second["config.yaml"] != first["config.yaml"] and second["last.ckpt"] != first["last.ckpt"]
    (earlier,) = (tmp_path / "earlier").iterdir()
    assert files(earlier) == first and not (tmp_path / "unfinished").exists()
    hatten.train.train(config(2))
    assert sorted(map(str, (files(one) for one in (tmp_path / "earlier").iterdir()))) == sorted(
        map(str, (first, second))
    )  # nothing is ever deleted


def test_a_run_in_a_folder_named_by_its_time_is_the_latest_once_a_round_is_saved(
    cache: Path, composed: Composed, tmp_path: Path
) -> None:
    def config(folder: str) -> DictConfig:
        short = {**SHORT, "model.rounds": 1, "model.batch.steps_per_round": 2}
        return composed("train", *arguments(cache, **short, output_dir=folder))

    base, times = str(tmp_path), ("2026-01-01_00-00-00", "2026-01-01_00-00-01", "2026-01-01_00-00-02")
    assert run_folder(base, True, times[0]) == f"{base}/{times[0]}"  # nothing to resume
    hatten.train.train(config(f"{base}/{times[0]}"))
    crashed(hatten.train.train, 1, config(f"{base}/{times[1]}"))
    assert run_folder(base, True, times[2]) == f"{base}/{times[0]}"
    assert run_folder(base, False, times[2]) == f"{base}/{times[2]}"
    hatten.train.train(config(f"{base}/{times[2]}/0"))  # a job of a sweep
    assert (tmp_path / "latest").resolve() == tmp_path / times[2]


@pytest.mark.slow
def test_by_default_each_run_has_a_new_folder_and_resume_goes_on_in_the_latest(
    cache: Path, tmp_path: Path
) -> None:
    def trained(*options: str) -> Path:
        command = [sys.executable, str(ROOT / "train.py"), "model=hatten", *given, *options]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return (base / "latest").resolve()

    base = tmp_path / "outputs" / "train" / "hatten-demo"
    given = arguments(cache, **{**SHORT, "model.rounds": 1, "model.batch.steps_per_round": 1})
    one = trained()
    assert time.strptime(one.name, DATED) and (one / "hatten.ckpt").is_file() and (one / ".hydra").is_dir()
    assert trained("resume=true") == one
    two = trained()
    assert {path.name for path in base.iterdir()} == {one.name, two.name, "latest"} and one != two


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model.encoder.dim": 32}, "of 16 dimensions do not fit an encoder of 32; set model.encoder.dim=16"),
        ({"model.encoder.heads": 3}, "dim=16 must be even and divisible by heads=3"),
        ({"model.encoder.hidden": "wide"}, "model.encoder.hidden=wide: must be a whole number"),
        ({"model.encoder.width": 3}, "model.encoder.width: there is no such option; there are: dim, heads"),
        ({"model.precision": "half"}, "model.precision=half: choose auto, float32 or bfloat16"),
        ({"seed": -1}, "seed=-1: must be a whole number, not below 0"),
        ({"seed": "a"}, "seed=a: must be a whole number, not below 0"),
        ({"model.rounds": 0}, "model.rounds=0: must be at least 1"),
        ({"model.rounds": 1.5}, "model.rounds=1.5: must be a whole number"),
        ({"model.ema": 1}, "model.ema=1"),
        ({"model.ema": "high"}, "model.ema=high: must be a number"),
        ({"model.workers": 1000}, "model.workers=1000: this machine has"),
        ({"model.loss.name": "hinge"}, "model.loss.name=hinge: choose triplet or infonce"),
        ({"model.loss.temperature": 0}, "model.loss.temperature=0"),
        ({"model.loss.positives": "[a]"}, "model.loss.positives=.*: must be a list of whole numbers"),
        ({"model.optimizer.lr": "high"}, "model.optimizer.lr=high: must be a number"),
        ({"model.optimizer.lr": -1}, "model.optimizer: Invalid learning rate: -1"),
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
    options: dict[str, Any], message: str, cache: Path, composed: Composed, tmp_path: Path
) -> None:
    with pytest.raises((InputError, HydraException)) as raised:
        hatten.train.train(composed("train", *arguments(cache, output_dir=tmp_path / "out", **options)))
    line = user_line(raised.value)
    assert line is not None and re.search(message, line)
    assert not (tmp_path / "out").exists()


def test_a_batch_of_too_many_queries_is_refused_before_word_vectors_are_trained(
    monkeypatch: pytest.MonkeyPatch, cache: Path, composed: Composed, tmp_path: Path
) -> None:
    monkeypatch.setattr("hatten.recipe.HAtten.build", lambda *_: pytest.fail("word vectors are trained"))
    options = {"output_dir": tmp_path / "out", "model.batch.queries": 100_000}
    with pytest.raises(InputError, match=r"queries=100000: more than the [\d,]+ training contexts of demo"):
        hatten.train.train(composed("train", *arguments(cache, **options)))


def test_a_trainer_for_gpus_without_one_is_refused(
    cache: Path, composed: Composed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    given = arguments(cache, **SHORT, trainer="gpu", output_dir=tmp_path / "out")
    with pytest.raises(InputError, match=r"^trainer\.accelerator=gpu: no GPU found; take trainer=cpu$"):
        hatten.train.train(composed("train", *given))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["model.colour=red"], "colour"),
        (["data=custom", "data.dir=nowhere"], "nowhere"),
    ],
)
def test_what_cannot_be_used_is_one_line_and_code_2(given: list[str], message: str, tmp_path: Path) -> None:
    code, err = finish(start(tmp_path, given))
    assert code == 2
    assert err.startswith("error: ") and err.count("\n") == 1 and message in err
    assert not (tmp_path / "out" / "config.yaml").exists()
