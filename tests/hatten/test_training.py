"""Training as users run it: output files, learning, resuming after a kill, rejected options."""

from __future__ import annotations

import csv
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from hydra.errors import HydraException
from omegaconf import DictConfig

from citerec.base.errors import InputError, error_line
from citerec.datasets.corpus import Corpus
from citerec.hatten.model import HAtten, HAttenRetriever
from citerec.hatten.settings import HAttenSettings
from citerec.hatten.static.model import StaticModel
from citerec.hatten.words.vectors import load_initial_vectors
from citerec.tests.conftest import Done
from citerec.tests.hatten.made import measured_recall
from citerec.tests.runs import (
    TWO,
    assert_same_run,
    assert_same_up_to_rounding,
    history,
    overrides,
    run_forked,
    run_training,
    same,
    signal_at,
    steps_done,
    train_config,
    train_twice,
    train_until_crash,
)
from citerec.train import train
from citerec.training.checkpoint import save_torch
from citerec.training.loop import TrainingRun
from citerec.training.resume import CLIPPING, RunCheckpoint, resume_point
from citerec.training.settings import TrainerSettings, run_folder, wandb_id

ROUNDS, STEPS = 5, 10
Options = dict[str, Any]
SMALL: Options = {
    "model": "hatten",
    "model.encoder.heads": 2,
    "model.encoder.hidden": 32,
    "model.encoder.max_tokens": 64,
    "model.precision": "float32",
    "model.rounds": ROUNDS,
    "model.ema": 0.8,
    "model.word_dropout": 0.1,
    "model.batch.queries": 16,
    "model.batch.mined": 2,
    "model.batch.random": 1,
    "model.batch.contexts_per_paper": 2,
    "model.batch.steps_per_round": STEPS,
    "model.mining.depth": 20,
    "model.schedule.warmup": 5,
    "model.schedule.vectors": 3.0,
    "model.optimizer.lr": 0.01,
    "trainer.log_every_n_steps": 1,
}
INFONCE = "citerec.hatten.training.losses.InfoNCE"
LEARNS: Options = {
    **SMALL,
    "embeddings.dim": 32,
    "embeddings.epochs": 20,
    "model.encoder.input_scale": 8.0,
    "model.batch.queries": 64,
    "model.batch.random": 4,
    "model.loss._target_": INFONCE,
}
SHORT: Options = {
    **SMALL,
    "model.rounds": 3,
    "model.batch.steps_per_round": 4,
    "model.validation.queries": 0,
}
SHORTEST: Options = {**SHORT, "model.rounds": 2, "model.batch.steps_per_round": 2}
pytestmark = pytest.mark.filterwarnings("ignore")


def assert_same_model(*files: Path) -> None:
    item, other = map(HAtten.open, files)
    assert same(item.encoder.state_dict(), other.encoder.state_dict()) and item.about == other.about


@pytest.fixture(scope="module")
def whole(demo: Options, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of an uninterrupted run."""
    return train(train_config(demo, LEARNS, {"output_dir": tmp_path_factory.mktemp("whole") / "out"})).parent


def test_a_run_learns_and_writes_its_files(whole: Path) -> None:
    assert {path.name for path in whole.iterdir()} == {
        *("hatten", "last.ckpt", "config.yaml", "history.csv", "metrics.json", "training.png"),
        *("csv", "mined", "lock"),
    }
    assert (whole / "training.png").read_bytes().startswith(b"\x89PNG")
    with (whole / "csv" / "version_0" / "metrics.csv").open() as file:
        assert len([row for row in csv.DictReader(file) if row["train/loss"]]) >= ROUNDS * STEPS
    # The pool of the last round, and the previous one, which an earlier checkpoint refers to.
    assert 1 <= len(list((whole / "mined").iterdir())) <= 2
    rows = history(whole)
    assert [row["round"] for row in rows] == list(range(ROUNDS + 1))
    assert rows[-1]["train/loss"] < 0.7 * rows[1]["train/loss"]
    assert rows[-1]["val/recall@10"] > rows[0]["val/recall@10"] + 0.05
    with (whole / "history.csv").open() as file:
        assert all(float(row["train/steps_per_second"]) > 0 for row in list(csv.DictReader(file))[1:])


def test_the_saved_model_is_the_best_round_and_has_the_measured_recall(whole: Path, demo: Options) -> None:
    record, rows = HAtten.open(whole / "hatten").about, history(whole)[1:]
    best = max(rows, key=lambda row: row["val/recall@10"])
    assert (record["round"], record["val/recall@10"]) == (best["round"], best["val/recall@10"])
    retriever = HAttenRetriever(whole / "hatten", arithmetic="float32")
    assert measured_recall(retriever, demo) == pytest.approx(record["val/recall@10"])
    assert record["corpus"] == retriever.corpus.fingerprint


@pytest.mark.slow
def test_killed_and_interrupted_runs_resume_to_the_same_weights(
    whole: Path, demo: Options, tmp_path: Path, script: Callable[..., Done]
) -> None:
    out, options = tmp_path / "out", overrides(demo, LEARNS)
    killed = run_forked([*options, "checkpoint_minutes=0", signal_at(5, signal.SIGKILL)], out)
    assert (killed.returncode, steps_done(out)) == (-signal.SIGKILL, 4), killed.stderr

    options += [f"output_dir={out}", "resume=true"]
    done = script("train.py", *options, signal_at(STEPS + 3, signal.SIGTERM))
    assert (done.code, steps_done(out)) == (130, STEPS + 3), done.err
    done = script("train.py", *options, signal_at(3 * STEPS + 5, signal.SIGINT))
    assert (done.code, done.err.splitlines()[-1]) == (
        130,
        "interrupted; go on with resume=true",
    ) and "Traceback" not in done.err
    assert steps_done(out) == 3 * STEPS

    done = script("train.py", *options)
    assert done.code == 0, done.err
    assert_same_run(whole, out)
    assert_same_model(whole / "hatten", out / "hatten")


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(
            {
                "model.restart": True,
                "model.encoder.trainable_vectors": "none",
                "model.schedule.decay": "none",
                "model.mining.queries": 100,
                "model.mining.papers": 60,
            },
            id="samples, from the average in each round",
        ),
        pytest.param({"model.loss._target_": INFONCE, "model.batch.random": 4}, id="infonce"),
        pytest.param(
            {"model.batch.mined": 0, "model.precision": "bfloat16", "model.encoder.max_tokens": 8},
            id="nothing mined, bfloat16",
        ),
    ],
)
@pytest.mark.slow
def test_every_variant_resumes_to_the_same_weights(options: Options, demo: Options, tmp_path: Path) -> None:
    in_the_third_round = 2 * SHORT["model.batch.steps_per_round"] + 1
    assert_same_model(*train_twice(train, in_the_third_round, tmp_path, demo, SHORT, options))


def test_the_setup_of_the_paper() -> None:
    config = train_config({"experiment": "paper", "data": "custom", "data.dir": "x"})
    model = config.model
    batch, encoder = model.batch, model.encoder
    assert batch.queries * (1 + 1 + batch.mined + batch.random) == 450
    assert (batch.mined, model.restart) == (3, True)
    assert (model.rounds, batch.steps_per_round, model.mining.queries) == (10, 5_000, 40_000)
    assert (config.data.tokenizer, model.markers) == ("reference", False)
    assert (model.precision, model.random_vectors) == ("float32", 0)
    assert (encoder.trainable_vectors, encoder.initial, model.mining.first) == ("none", "torch", "none")


@pytest.mark.parametrize("first", ["bm25", "none"])
def test_the_first_round_needs_no_trained_encoder(first: str, demo: Options, tmp_path: Path) -> None:
    options = {"model.mining.first": first, "output_dir": tmp_path}
    train_until_crash(train, 1, train_config(demo, SHORT, options))
    file = tmp_path / "mined" / "round-000.npz"  # no round is saved yet
    assert file.exists() == (first == "bm25")
    if first == "bm25":
        with np.load(file) as pool:  # top papers share more words with the query
            assert pool["relevant"][:, :3].mean() > pool["relevant"][:, -3:].mean()


@pytest.mark.parametrize(
    "recipe",
    [
        {},
        {"experiment": "paper"},
        pytest.param({"logger": "wandb"}, marks=pytest.mark.slow),
    ],
)
def test_the_included_recipes_train(
    recipe: Options, demo: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Smaller models and runs; all other options unchanged."""
    monkeypatch.setenv("WANDB_SILENT", "true")
    sizes: Options = {"model.encoder.hidden": 16, "model.batch.steps_per_round": 3, "model.rounds": 2}
    best = train(train_config(demo, sizes, recipe, {"output_dir": tmp_path}))
    config = HAtten.open(best).encoder.config
    assert (config.dim, config.heads) == (16, 8)  # of the word vectors
    assert len(history(tmp_path)) >= 2
    if "logger" in recipe:
        import wandb

        assert wandb.run is None  # otherwise the next job of a sweep would log to this run
        assert list((tmp_path / "wandb").glob("offline-run-*/*.wandb"))


def planned(name: str) -> Options:
    """The options of a training of reproduce/networks.yaml, but for the data."""
    plan = yaml.safe_load(Path("reproduce/networks.yaml").read_text("utf-8"))
    options = (option.split("=") for option in plan["training"][name]["overrides"])
    return {key: value for key, value in options if key.split(".")[0] != "data"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("words-only", ("words", "attention")),
        ("paragraphs-only", ("paragraphs", "attention")),
        ("mean-pooling", ("both", "mean")),
        ("cited-only", ("both", "attention")),
        ("random-negatives", ("both", "attention")),
    ],
)
def test_the_planned_ablations_train_what_they_keep_of_the_paper(
    name: str, expected: tuple[str, ...], demo: Options, tmp_path: Path
) -> None:
    """Smaller models and runs; all other options are those of reproduce/networks.yaml."""
    recipe = planned(name)
    sizes: Options = {"model.encoder.hidden": 16, "model.batch.queries": 8}
    sizes |= {"model.batch.steps_per_round": 2, "model.rounds": 2}
    best = train(train_config(recipe, demo, sizes, {"output_dir": tmp_path}))
    encoder = HAtten.open(best).encoder
    assert (encoder.config.levels, encoder.config.pooling) == expected
    assert (tmp_path / "mined").exists() == (name != "random-negatives")


def test_the_planned_mean_path_trains_weights_but_no_word_vectors(demo: Options, tmp_path: Path) -> None:
    recipe, sizes = planned("mean-path"), {"model.batch.queries": 8, "model.batch.steps_per_round": 4}
    models = []
    for rate in (1e-4, 1e-1):
        options = {"model.optimizer.lr": rate, "model.rounds": 1, "output_dir": tmp_path / str(rate)}
        models.append(StaticModel.open(train(train_config(recipe, demo, sizes, options))).encoder.weights())
    slow, fast = models
    assert np.array_equal(slow["word_vectors"], fast["word_vectors"])
    assert not np.allclose(slow["mean.word_weight"], fast["mean.word_weight"])


def test_a_run_resumes_only_with_its_own_settings_data_and_state(
    demo: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(message: str, options: Options) -> None:
        with pytest.raises(InputError, match=message):
            train(train_config(demo, SHORTEST, {"output_dir": tmp_path, "resume": True}, options))

    train_until_crash(train, 3, train_config(demo, SHORTEST, {"output_dir": tmp_path}))
    for part, other in (
        ("model", {"model.optimizer.lr": 1e-3}),
        ("seed", {"seed": 1}),
        ("trainer.gradient_clip_val", {"trainer.gradient_clip_val": 2}),
        ("embeddings", {"embeddings.window": 3}),
        ("", {"data.seed": 1}),
    ):
        what = f"settings of `{part}`" if part else "data"
        said = f"config.yaml: the interrupted run had other {what}; use the same, or restart"
        with monkeypatch.context() as patch:  # before word vectors are trained
            patch.setattr("citerec.hatten.model.load_initial_vectors", lambda *_: pytest.fail("too late"))
            refused(said, other)
    state = (tmp_path / "last.ckpt").read_bytes()
    (tmp_path / "last.ckpt").write_bytes(state[: len(state) // 2])
    refused(r"last\.ckpt: damaged", {})
    (tmp_path / "last.ckpt").write_bytes(state)
    for pool in (tmp_path / "mined").iterdir():
        pool.write_bytes(b"other")
    refused("not the pool that this run mined", {})


def test_a_run_is_resumed_with_another_cache_and_other_cores(tmp_path: Path) -> None:
    vectors = {"source": "glove", "cache_dir": "/a", "workers": 8}
    RunCheckpoint(tmp_path).start_new_run({"embeddings": vectors})  # by a version without CLIPPING
    save_torch({}, tmp_path / "last.ckpt")
    here = {"embeddings": {**vectors, "cache_dir": "/b", "workers": 2}, CLIPPING: 1.0}
    assert resume_point(tmp_path, here) == tmp_path / "last.ckpt"


def test_processes_need_a_folder_in_common(demo_corpus: Corpus) -> None:
    with pytest.raises(InputError, match=r"several processes need a folder in common: TrainingRun\(FOLDER\)"):
        TrainingRun(trainer=TrainerSettings(devices=2)).start(demo_corpus, HAttenSettings())


def test_a_model_that_diverged_is_not_saved(demo: Options, tmp_path: Path) -> None:
    options = {"model.validation.queries": 0, "model.optimizer.lr": 1e30, "output_dir": tmp_path}
    with pytest.raises(InputError, match="the training diverged, its loss is not finite"):
        train(train_config(demo, SHORTEST, options))
    assert not (tmp_path / "hatten").exists()


def test_fixed_word_vectors_are_not_in_checkpoints_and_must_be_the_same(
    demo: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixed = {"model.encoder.trainable_vectors": "none", "output_dir": tmp_path}
    train_until_crash(train, 3, train_config(demo, SHORTEST, fixed))
    state = torch.load(tmp_path / "last.ckpt", weights_only=True)["state_dict"]
    assert {"encoder.type_vectors.weight", "average.type_vectors.weight"} < set(state)
    assert not any("word_vectors" in name for name in state)

    def other_vectors(*given: Any) -> tuple[Any, ...]:
        *named, table = load_initial_vectors(*given)
        return *named, -table

    monkeypatch.setattr("citerec.hatten.model.load_initial_vectors", other_vectors)
    with pytest.raises(InputError, match="the interrupted run began with other word vectors"):
        train(train_config(demo, SHORTEST, fixed, {"resume": True}))


def test_a_misspelt_split_to_validate_on_is_one_line(demo: Options, tmp_path: Path) -> None:
    validation = {"model.validation.split": "dev", "model.validation.queries": 10}
    config = train_config(demo, SHORTEST, {"output_dir": tmp_path}, validation)
    with pytest.raises(InputError, match="no split 'dev'; choose from train, val, test"):
        train(config)


def test_a_resumed_run_says_whether_it_starts_anew_or_is_finished(
    demo: Options, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")

    def said(config: DictConfig) -> str:
        caplog.clear()
        train(config)
        return caplog.text

    resumed = train_config(demo, SHORTEST, {"output_dir": tmp_path, "resume": True})
    train_until_crash(train, 1, train_config(demo, SHORTEST, {"output_dir": tmp_path}))
    assert "stopped before its state was first saved: starting from the beginning" in said(resumed)
    assert f"the run in {tmp_path} is finished; more rounds need another output_dir" in said(resumed)


def test_a_resumed_run_continues_its_run_in_weights_and_biases(tmp_path: Path) -> None:
    assert wandb_id(str(tmp_path), True) is None
    (tmp_path / "wandb").mkdir()
    (tmp_path / "wandb" / "latest-run").symlink_to("offline-run-20260101_000000-abc123")
    assert (wandb_id(str(tmp_path), True), wandb_id(str(tmp_path), False)) == ("abc123", None)
    options = {"logger": "wandb", "output_dir": tmp_path, "resume": True}
    assert train_config(options).logger.wandb.id == "abc123"


def test_a_new_run_leaves_the_run_of_a_used_folder_alone(demo: Options, tmp_path: Path) -> None:
    def run(seed: int) -> DictConfig:
        return train_config(demo, SHORTEST, {"model.rounds": 1, "seed": seed, "output_dir": tmp_path})

    def files() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    train(run(0))
    first = files()
    with pytest.raises(InputError, match=r"has a run; go on with resume=true, or name another output_dir$"):
        train(run(1))
    assert files() == first


def test_a_run_in_a_dated_folder_becomes_the_latest_once_a_round_is_saved(
    demo: Options, tmp_path: Path
) -> None:
    def run(folder: str) -> DictConfig:
        return train_config(demo, SHORTEST, {"model.rounds": 1, "output_dir": folder})

    base, times = str(tmp_path), ("2026-01-01_00-00-00", "2026-01-01_00-00-01", "2026-01-01_00-00-02")
    assert run_folder(base, True, times[0]) == f"{base}/{times[0]}"  # nothing to resume
    train(run(f"{base}/{times[0]}"))
    train_until_crash(train, 1, run(f"{base}/{times[1]}"))
    assert run_folder(base, True, times[2]) == f"{base}/{times[0]}"
    assert run_folder(base, False, times[2]) == f"{base}/{times[2]}"
    train(run(f"{base}/{times[2]}/0"))  # a job of a sweep
    assert run_folder(base, True, "new") == f"{base}/{times[2]}"


EXACT: Options = {
    **SMALL,
    "model.rounds": 3,
    "model.batch.queries": 33,  # cannot be divided by two
    "model.batch.steps_per_round": 4,
    "model.mining.depth": 2,  # all are drawn: of 20, rounding would change the order, and so the draw
    "model.encoder.dropout": 0,  # each process draws its own
    "model.word_dropout": 0,
    "model.optimizer.eps": 0.1,  # otherwise, gradients that are only rounding errors lead to full steps
    "trainer.gradient_clip_val": "null",  # would hide a factor
}


@pytest.mark.slow
def test_two_processes_match_one_and_are_resumed_by_two_others(demo: Options, tmp_path: Path) -> None:
    """Processes share queries, papers and mining, with gloo on a CPU. The first starts the second."""
    train(train_config(demo, EXACT, {"output_dir": tmp_path / "one"}))
    options, two = overrides({"resume": True}, demo, EXACT, TWO), tmp_path / "out"
    run = run_training([*options, signal_at(6, signal.SIGKILL)], two)  # the other process ends, too
    assert (run.returncode, steps_done(two)) == (-signal.SIGKILL, 4), run.stderr
    done = run_forked(options, two, processes=2)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("training on") == 1 and done.stdout.count("round 3 done") == 1, done.stdout
    assert_same_up_to_rounding(tmp_path / "one", two, "hatten")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"model.encoder.dim": 32, "model.encoder.heads": 3},
            "dim=32 is not the 16 of the word vectors; .*; .*heads=3 does not divide 16; choose from 1, 2",
        ),
        ({"model.encoder.width": 3}, "model.encoder.width: there is no such option; choose from dim, heads"),
        ({"model.loss._target_": "mine.Loss"}, "model.loss._target_=mine.Loss: no such class"),
        ({"model.loss.temperature": 1}, "model.loss: .*unexpected keyword argument 'temperature'"),
        ({"seed": -1}, "seed=-1: must not be below 0"),
        ({"seed": 2**32}, "seed=4294967296: must be below 4294967296"),
        ({"model.encoder.max_paragraphs": 2}, "model.encoder.max_paragraphs=2: must be at least 3"),
        ({"model.encoder.paragraph_types": 10}, "model.encoder.paragraph_types=10: must be at least 11"),
        ({"trainer.num_nodes": 2}, "^trainer.num_nodes=2: start the processes with torchrun or Slurm"),
        ({"model.workers": 1000}, "model.workers=1000: this machine has"),
        ({"model.validation.monitor": "recall@7"}, "monitor=recall@7: choose one of mrr, recall@1"),
        ({"model.validation.monitor": "recall@500"}, "recall@500: choose one of .*recall@100$"),
        ({"model.mining._target_": "mine.Mining"}, "model.mining._target_=mine.Mining: no such class"),
        ({"model.mining.deep": 1}, "model.mining: .*unexpected keyword argument 'deep'"),
        ({"model": "biencoder", "encoder.path": "nowhere"}, "nowhere: no such model folder"),
        (
            {**TWO, "model.batch.queries": 1},
            "queries=1: cannot be divided among 2 processes; set it to at least 2$",
        ),
        ({"trainer": "gpu"}, "^trainer.accelerator=gpu: no GPU found; use trainer=cpu$"),
    ],
)
def test_errors_name_invalid_options(
    options: Options, message: str, demo: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    with pytest.raises((InputError, HydraException)) as raised:
        train(train_config(demo, options, {"output_dir": tmp_path / "out"}))
    line = error_line(raised.value)
    assert line is not None and re.search(message, line)
    assert not (tmp_path / "out").exists()


def test_torchrun_must_start_the_processes_of_the_options(
    demo: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(InputError, match="num_nodes=1: not the 3 processes of torchrun's --nproc"):
        train(train_config(demo, SHORT, TWO, {"output_dir": tmp_path / "out"}))


def test_too_many_queries_per_batch_are_rejected_before_word_vectors_are_trained(
    monkeypatch: pytest.MonkeyPatch, demo: Options, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        "citerec.hatten.model.load_initial_vectors", lambda *_: pytest.fail("word vectors are trained")
    )
    with pytest.raises(InputError, match=r"queries=100000: more than the [\d,]+ training contexts of demo"):
        train(train_config(demo, {"output_dir": tmp_path / "out", "model.batch.queries": 100_000}))


def test_unusable_data_give_one_line_and_exit_code_2(tmp_path: Path, script: Callable[..., Done]) -> None:
    options = overrides({"model": "static", "data": "custom", "data.dir": "nowhere", "output_dir": "out"})
    done = script("train.py", *options)
    assert done.code == 2
    assert done.err.startswith("error: ") and done.err.count("\n") == 1 and "nowhere" in done.err
    assert not (tmp_path / "out" / "config.yaml").exists()
