"""From a plan to its page: which jobs run, are reused or fail, and what the page shows."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from citerec.base.errors import InputError
from citerec.base.files import write_text
from citerec.datasets.published import drafts
from citerec.datasets.published.repositories import Repository
from citerec.evaluation.benchmark import Output
from citerec.evaluation.benchmarks.contexts.prefetch import Prefetch
from citerec.evaluation.benchmarks.papers.mdcr import MDCR, TYPES
from citerec.evaluation.report import METRICS, group_tables, to_markdown
from citerec.evaluation.results import jobs
from citerec.evaluation.results.jobs import is_trained, job_settings, run_all, why_missing
from citerec.evaluation.results.page import write_page
from citerec.evaluation.results.plan import Job, Plan, read_plan
from citerec.tests.composing import compose_config
from citerec.tests.conftest import Done, write_tiny
from citerec.tests.evaluation.conftest import world
from citerec.tests.runs import train_config
from citerec.train import train
from citerec.training.settings import LAST, RESTART

ROOT = Path(__file__).parents[2]
PLANS = sorted((ROOT / "reproduce").glob("*.yaml"))


def write_plan(folder: Path, **changes: Any) -> Path:
    """A plan for the source files in `folder`/tiny."""
    tiny = [f"data.dir={folder / 'tiny'}", f"data.cache_dir={folder / 'cache'}"]
    content: dict[str, Any] = {
        "page": str(folder / "docs" / "page.md"),
        "outputs": str(folder / "results"),
        "title": "Side by side",
        "notes": "What to see here.",
        "data": {"tiny": {"title": "Tiny papers", "overrides": ["data=custom", *tiny]}},
        "training": {"ids": {"overrides": ["model=hatten"], "checkpoint": "ids.txt"}},
        "retrievers": {
            "bm25": ["retriever=bm25"],
            "popularity": ["retriever=popularity"],
            "fewer": ["retriever=bm25", "filters.exclude={ids}"],
        },
        "compare": [["bm25", "popularity"]],
    }
    path = folder / "plan.yaml"
    OmegaConf.save(OmegaConf.create(content | changes), path)
    return path


@pytest.fixture
def plan(tiny_source: Path) -> Plan:
    return read_plan(write_plan(tiny_source.parent))


def global_plan(folder: Path, papers: Path, distractors: Path) -> Plan:
    """BM25 and averaged word vectors on a small world."""
    cache = f"data.cache_dir={folder / 'cache'}"
    sampled = [f"data.papers={papers}", cache, "benchmark.rules.min_citations=0", "benchmark.tune=null"]
    whole = [f"benchmark.distractors={distractors}", "queries=10", "benchmark.samplings=2"]
    fields = ["benchmark.rules.min_cited=2", "benchmark.min_queries=2", "benchmark.size=1000"]
    data = {
        "whole": {
            "title": "A whole world",
            "overrides": ["benchmark=dataset_level", *sampled, *whole, "benchmark.sizes=[60,150]"],
            "notes": "What to see here.",
            "retrievers": {"bm25": [], "average": ["benchmark.sizes=[60]"]},
        },
        "fields": {"title": "Its fields", "overrides": ["benchmark=field_level", *sampled, *fields]},
        "mdcr": {
            "title": "MDCR",
            "overrides": ["benchmark=mdcr"],
            "retrievers": {},
            "notes": "Nothing of ours.",
        },
    }
    small = ["embeddings.epochs=1", "embeddings.dim=8", "embeddings.workers=1"]
    changes = {
        "data": data,
        "training": {},
        "retrievers": {"bm25": ["retriever=bm25"], "average": ["retriever=average", *small]},
        "compare": [["average", "bm25"]],
    }
    return read_plan(write_plan(folder, **changes))


def csv_files(page: Path) -> dict[str, str]:
    """The CSV files of a page, by their names without the ending."""
    return {path.stem: path.read_text("utf-8") for path in page.with_suffix("").glob("*.csv")}


ABSENT = {
    "drafts": "35 of 35 drafts could not be fetched; ",
    "drafts-2027": "drafts=drafts-2027: no such folder",
}
"""How plans fail whose data only a network has."""


@pytest.fixture
def public(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout, and tiny data in the cache, where plans look for built and downloaded data."""

    def offline(repository: Repository, *_: object) -> None:
        raise InputError(f"{repository.name} was not fetched")

    monkeypatch.setattr(drafts, "fetch_repository", offline)
    monkeypatch.setenv("CITATION_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("DATA", str(tmp_path / "cache" / "published"))
    jobs._settings.cache_clear()  # they name the cache
    published = tmp_path / "cache" / "published"
    published.mkdir(parents=True)
    for name in ("neurips2025-lcr", "acl-scisumm-lcr", "crops-lcr"):
        papers_file = write_tiny(published / name) / "papers.json"
        papers_file.with_suffix(".json.gz").write_bytes(gzip.compress(papers_file.read_bytes()))
        papers_file.unlink()
    papers = [paper | {"year": paper["year"] and paper["year"] - 9} for paper in world()]
    vispub = published / "vispub"
    vispub.mkdir()
    (vispub / "papers.jsonl.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, papers)).encode()))
    ids = [str(paper["paper_id"]) for paper in papers]
    (vispub / "queries.json").write_text(
        json.dumps({"test": {"Art": ids[60:70]}, "val": {"Art": ids[70:80]}})
    )
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    monkeypatch.chdir(checkout)
    return checkout


# Plans


def test_a_plan_combines_data_sets_and_retrievers(plan: Plan, tiny_source: Path) -> None:
    folder = tiny_source.parent
    assert [str(job) for job in plan.jobs] == ["tiny/bm25", "tiny/popularity", "tiny/fewer"]
    fewer = plan.jobs[2]
    ids = folder / "results" / "tiny" / "train" / "ids" / "ids.txt"
    assert [step.output for step in fewer.needs] == [ids] and not plan.jobs[0].needs
    data = f"data=custom data.dir={folder}/tiny data.cache_dir={folder}/cache"
    assert fewer.commands == [
        f"citerec train {data} model=hatten output_dir={ids.parent}",
        f"citerec evaluate {data} retriever=bm25 filters.exclude={ids} split=test "
        f"output_dir={folder}/results/tiny/fewer",
    ]


def test_trainings_may_need_others_and_be_shared_by_data_sets(tmp_path: Path) -> None:
    training = {
        "own": {"overrides": ["model=hatten"], "checkpoint": "h.ckpt"},
        "one": {"overrides": ["model=hatten"], "checkpoint": "h.ckpt", "shared": True},
        "next": {"overrides": ["model=scibert_reranker", "checkpoint={own}"], "checkpoint": "reranker"},
    }
    data = {name: {"title": name, "overrides": [f"data={name}"]} for name in ("x", "y")}
    rows = {"a": ["checkpoint={own}"], "b": ["checkpoint={one}"], "c": ["reranker={next}"]}
    plan = read_plan(write_plan(tmp_path, training=training, data=data, retrievers=rows, compare=[]))
    made = {str(job): job.needs for job in plan.jobs}
    assert made["x/b"] == made["y/b"] and made["x/a"] != made["y/a"]
    assert made["x/b"][0].folder == tmp_path / "results" / "train" / "one"
    assert "data=x" in made["x/a"][0].overrides and "data=x" not in made["x/b"][0].overrides
    first, second = made["x/c"]
    assert (first.name, second.name) == ("own", "next")
    assert f"checkpoint={first.output}" in second.overrides
    lines = plan.jobs[2].commands
    assert [line.split()[1] for line in lines] == ["train", "train", "evaluate"]
    assert f"reranker={second.output}" in lines[2]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"compare": [["bm25", "bm26"]]}, "compare: there is no retriever 'bm26'; choose from bm25, "),
        ({"highlight": ["bm26"]}, "highlight: there is no retriever 'bm26'; choose from bm25, "),
        ({"retrievers": {"x": "retriever=bm25"}}, r"field 'retrievers.*': must be a list, not a string"),
        ({"data": {"x": {"title": "X"}}}, r"field 'data\[\.\.\.\]\.overrides': is missing"),
        ({"data": {"x": {"title": "X", "overrides": [], "splt": "val"}}}, "data.*: .* unknown field `splt`"),
        ({"training": {"x": {"overrides": []}}}, r"field 'training\[\.\.\.\]\.checkpoint': is missing"),
        (
            {"data": {"x": {"title": "X", "overrides": [], "retrievers": {"y": []}}}},
            "data.x.retrievers: unknown retriever 'y'; list its overrides",
        ),
        (
            {"retrievers": {"bm25": ["checkpoint={idz}", "a=${split}"]}, "highlight": []},
            "data.tiny.retrievers.bm25: no training 'idz' above it; choose from results, ids",
        ),
        (
            {"training": {"x": {"overrides": ["checkpoint={y}"], "checkpoint": ""}}},
            "training.x: no training 'y' above it; choose from results",
        ),
    ],
)
def test_an_unusable_plan_is_one_line(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = write_plan(tmp_path, **{"compare": [], **changes})
    with pytest.raises(InputError, match=message) as error:
        read_plan(path)
    assert str(error.value).startswith(str(path)) and "\n" not in str(error.value)


@pytest.mark.parametrize("text", [None, "data: [", "- a", ""])
def test_a_file_that_is_not_a_plan_is_one_line(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "plan.yaml").write_text(text)
    with pytest.raises(InputError, match=r"plan\.yaml"):
        read_plan(tmp_path / "plan.yaml")


def test_jobs_are_selected_or_excluded_by_name_data_set_or_retriever(plan: Plan, tmp_path: Path) -> None:
    assert plan.select([]) == plan.select(["tiny"]) == plan.jobs
    assert plan.select(["tiny/fewer", "tiny/bm25"]) == [plan.jobs[0], plan.jobs[2]]
    with pytest.raises(InputError, match="no job 'bm25' in the plan; choose from tiny/bm25, "):
        plan.select(["bm25"])
    other = global_plan(tmp_path, tmp_path / "papers", tmp_path / "distractors")
    few = other.select(["whole", "fields/bm25"], ["average"])
    assert [str(job) for job in few] == ["whole/bm25", "fields/bm25"]
    few = other.select([], ["fields", "whole/average"])
    assert [str(job) for job in few] == ["whole/bm25"]
    with pytest.raises(InputError, match="no job 'bm26' in the plan; choose from whole/bm25, "):
        other.select([], ["bm26"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("retrieval", {"Prefetch"}),
        ("networks", {"Prefetch", "Pipeline"}),
        ("reranking", {"Pipeline", "Reranking", "Prefetch"}),
        ("global", {"DatasetLevel", "FieldLevel", "CSFCube"}),
        ("global-reranking", {"GlobalPrefetch", "GlobalReranking"}),
        ("drafts", {"Drafts"}),
    ],
)
def test_every_job_of_our_own_pages_composes(
    name: str, expected: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "initialize_config_dir", lambda *_, **options: nullcontext())
    monkeypatch.setattr(jobs, "compose", compose_config)
    plan = read_plan(next(path for path in PLANS if path.stem == name))
    result = [job_settings(job) for job in plan.jobs]
    assert {item["benchmark"]["_target_"].rpartition(".")[2] for item in result} == expected
    assert {key for item in result for key in item} == set(jobs.SETTINGS)
    assert not any(item["index_dir"] for item in result)  # it would be refused after another training
    for step in {str(item.folder): item for job in plan.jobs for item in job.needs}.values():
        assert compose_config("train", step.overrides).output_dir == str(step.folder)


# Jobs


@pytest.mark.slow
def test_only_missing_or_outdated_jobs_run(
    plan: Plan, ran: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_all(plan.jobs) == {}
    evaluations = ["evaluate bm25", "evaluate popularity"]
    assert ran == [*evaluations, "train ids", "evaluate fewer"]
    said = "[3 of 3] tiny/fewer: training ids, evaluating (missing), done in"
    assert said in capsys.readouterr().out
    ran.clear()
    assert run_all(plan.jobs) == {} and ran == []
    assert capsys.readouterr().out.count("up to date\n") == 3
    job = plan.jobs[2]
    config, later = job.folder / ".hydra" / "config.yaml", (job.folder / METRICS).stat().st_mtime + 1
    queries = Path(job_settings(job)["data"]["dir"]) / "test.json"
    changes: dict[str, Callable[[], object]] = {
        "ids.txt is newer": lambda: os.utime(job.needs[0].output, (later, later)),
        "missing": (job.folder / METRICS).unlink,
        "settings unreadable": config.unlink,
        "settings changed": lambda: config.write_text(config.read_text().replace("k1: ", "k1: 9")),
        "is newer": lambda: os.utime(queries, (later + 600, later + 600)),
    }
    for reason, change in changes.items():
        change()
        assert str(why_missing(job)).endswith(reason)
        ran.clear()
        run_all([job])
        assert ran == ["evaluate fewer"]


def test_an_interrupted_training_resumes(plan: Plan, ran: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    run_script = jobs._run_script

    def interrupted(script: str, overrides: list[str], folder: Path) -> None:
        run_script(script, overrides, folder)  # writes a first checkpoint
        raise InputError("interrupted")

    with monkeypatch.context() as patch:
        patch.setattr(jobs, "_run_script", interrupted)
        assert run_all(plan.jobs[2:]) == {"tiny/fewer": "interrupted"}
    assert run_all(plan.jobs[2:]) == {} and run_all(plan.jobs[2:]) == {}
    assert ran == ["train ids", "train ids", "evaluate fewer"]
    plan.jobs[2].needs[0].overrides.append("seed=1")
    monkeypatch.setattr(jobs, "_run_script", interrupted)
    for _ in range(2):  # the result is that of the earlier options
        assert run_all(plan.jobs[2:]) == {"tiny/fewer": "interrupted"}


def test_a_training_begins_anew_after_one_that_it_needs(tiny_source: Path, ran: list[str]) -> None:
    training = {
        "one": {"overrides": ["model=hatten"], "checkpoint": "ids.txt"},
        "two": {"overrides": ["model=ranker", "checkpoint={one}"], "checkpoint": "ids.txt"},
    }
    rows = {"both": ["retriever=bm25", "filters.exclude={two}"]}
    plan = read_plan(write_plan(tiny_source.parent, training=training, retrievers=rows, compare=[]))
    run_all(plan.jobs)
    first, second = plan.jobs[0].needs
    assert is_trained(second)
    last = second.folder / LAST
    write_text(last, "of the first training\n")
    for path in (second.output, last, plan.jobs[0].folder / METRICS):
        os.utime(path, (9, 9))
    assert is_trained(first) and not is_trained(second)
    ran.clear()
    run_all(plan.jobs)
    assert ran == ["train two", "evaluate both"] and not last.exists() and is_trained(second)


def test_variables_have_the_values_of_the_run(
    tiny_source: Path, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    overrides = ["data=custom", "data.dir=${oc.env:PLACE}", f"data.cache_dir={tiny_source.parent}/cache"]
    data = {"tiny": {"title": "Tiny", "overrides": overrides}}
    job = read_plan(write_plan(tiny_source.parent, data=data)).jobs[2]
    for place in (tiny_source, *(write_tiny(tiny_source.parent / name) for name in ("other", "José"))):
        monkeypatch.setenv("PLACE", str(place))
        assert run_all([job]) == run_all([job]) == {}
        assert ran == ["train ids", "evaluate fewer"]
        ran.clear()
    assert "'data.dir=${oc.env:PLACE}'" in job.commands[0]


LISTS = [f"retriever.files={form}" for form in ("{run}", "[{run}]", "[other.trec, '{run}']")]


@pytest.mark.parametrize("form", [*LISTS, "checkpoint={run.parent}", "reranker={run.parent}"])
def test_files_in_lists_and_folders_of_models_are_inputs(
    plan: Plan, ran: list[str], form: str, tmp_path: Path
) -> None:
    run_all(plan.jobs[:1])
    item, run = plan.jobs[0], tmp_path / "runs" / "run.trec"
    job = Job("tiny", "bm25", item.folder, [*item.overrides, form.format(run=run)])
    write_text(run, "")
    later = (job.folder / METRICS).stat().st_mtime + 1
    os.utime(run, (later, later))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jobs, "job_settings", lambda _: job_settings(item))
        assert why_missing(job) == f"{run if 'files' in form else run.parent} is newer"


def test_options_that_the_retriever_does_not_use_do_not_matter(plan: Plan) -> None:
    item = plan.jobs[0]
    other = Job(item.data, item.name, item.folder, [*item.overrides, "encoder=specter", "seed=0"])
    assert job_settings(item) == job_settings(other)
    assert job_settings(item) != job_settings(
        Job("d", "n", item.folder, [*item.overrides, "retriever.b=0.1"])
    )


def test_a_failed_job_keeps_the_others_and_leaves_no_old_result(
    plan: Plan, ran: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_all(plan.jobs[:2])
    broken = Job("tiny", "bm25", plan.jobs[0].folder, [*plan.jobs[0].overrides, "retriever.k1=-1"])
    unknown = Job("tiny", "popularity", plan.jobs[1].folder, ["retriever=bm26"])

    def fail(script: str, overrides: list[str], folder: Path) -> None:
        raise InputError("no")

    monkeypatch.setattr(jobs, "_run_script", fail)
    failed = run_all([broken, unknown])
    assert failed["tiny/bm25"] == "no" and "bm26" in failed["tiny/popularity"] and len(failed) == 2
    assert why_missing(broken) == "missing" and why_missing(plan.jobs[1]) is None
    assert "[1 of 2] tiny/bm25: evaluating (settings changed), failed: no" in capsys.readouterr().out


def test_the_last_line_of_a_command_is_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"no such command; .* \(citerec nothing exited with 2; .*txt\)"):
        jobs._run_script("nothing", ["--none"], tmp_path)
    command = tmp_path / "command"
    command.write_text(f"#!/bin/sh\necho 'error: other data; {RESTART}'; exit 2\n")
    command.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(command))
    with pytest.raises(InputError, match=f"^other data; remove or move {tmp_path} "):
        jobs._run_script("train", [], tmp_path)


@pytest.mark.parametrize("end", ["exit 130", "kill -TERM $$"])
def test_no_job_begins_after_one_that_was_stopped(
    plan: Plan, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, end: str
) -> None:
    command = tmp_path / "command"
    command.write_text(f"#!/bin/sh\n{end}\n")
    command.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(command))
    with pytest.raises(KeyboardInterrupt, match="was stopped"):
        run_all(plan.jobs[:2])


PROGRESS = "round 2 of 7, step 6000 of 35000, loss 0.5, 2.00 steps/s, about 240.0 min left"


def test_the_status_tells_how_far_trainings_are(tiny_source: Path, script: Callable[..., Done]) -> None:
    rows = {name: ["retriever=bm25", f"filters.exclude={{{name}}}"] for name in ("one", "two", "three")}
    trainings = {name: {"overrides": ["model=hatten"], "checkpoint": "ids.txt"} for name in rows}
    path = write_plan(tiny_source.parent, retrievers=rows, training=trainings, compare=[])
    item, two, _ = (job.needs[0] for job in read_plan(path, "elsewhere").jobs)
    write_text(item.output, "vision\n")
    write_text(two.folder / jobs.OUTPUT, f"step 5 of 9\n{PROGRESS}\nwaiting for another process\n")
    done = script("results", str(path), "status=true", "outputs=elsewhere")
    left = "about 4.0 h left of what has begun; not begun: 1 of 3"
    assert done.out.splitlines() == ["one: finished", f"two: {PROGRESS}", "three: not begun", left]


@pytest.mark.parametrize("last_words", ["echo stopped; exit 130", ":"], ids=["stops", "must be killed"])
def test_a_stopped_runner_stops_its_command_before(
    last_words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = tmp_path / "command"
    runner = f"sleep .5; kill -TERM {os.getpid()}"
    lines = [f"trap '{last_words}' TERM", "echo $$ > pid", runner, "while :; do sleep .1; done"]
    command.write_text("\n".join(["#!/bin/sh", *lines]))
    command.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.executable", str(command))
    monkeypatch.setattr(jobs, "PATIENCE", 1.0)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt, match="the same command goes on"):
        jobs._run_script("train", [], tmp_path / "out")
    assert signal.getsignal(signal.SIGTERM) == before
    assert ("stopped" in (tmp_path / "out" / jobs.OUTPUT).read_text()) == ("stopped" in last_words)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


@pytest.mark.slow
def test_a_plan_goes_on_after_its_runner_was_stopped_or_killed(tmp_path: Path) -> None:
    data = ["data=demo", "data.papers=120", "data.contexts=300", f"data.cache_dir={tmp_path / 'cache'}"]
    options = ["model=static", "model.rounds=3", "model.batch.queries=16", "model.batch.steps_per_round=50"]
    training = {"overrides": [*options, "checkpoint_minutes=0"], "checkpoint": "static"}
    path = write_plan(
        tmp_path,
        data={"demo": {"title": "Demo", "overrides": data}},
        training={"static": training},
        retrievers={"static": ["retriever=static", "checkpoint={static}"]},
        compare=[],
    )
    config = train_config(dict(option.split("=") for option in [*data, *options]), {"output_dir": "whole"})
    config.output_dir = str(tmp_path / "whole")
    whole = train(config)
    step = read_plan(path).jobs[0].needs[0]
    command = [sys.executable, "-m", "citerec", "results", str(path)]
    for number, code in ((signal.SIGTERM, 130), (signal.SIGKILL, -signal.SIGKILL)):
        checkpoint = step.folder / LAST
        before = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
        runner = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL)
        for _ in range(4_000):
            if runner.poll() is not None or (checkpoint.exists() and checkpoint.stat().st_mtime_ns > before):
                break
            time.sleep(0.05)
        assert runner.poll() is None and checkpoint.exists()
        runner.send_signal(number)
        assert runner.wait(60) == code and not is_trained(step)
    subprocess.run(command, cwd=tmp_path, check=True)  # waits for the training that the killed one left
    for name in ("model.safetensors", "about.json"):
        assert (step.output / name).read_bytes() == (whole / name).read_bytes()


def test_the_command(tiny_source: Path, ran: list[str], script: Callable[..., Done]) -> None:
    rows = {"bm25": ["retriever=bm25"], "broken": ["retriever=bm25", "retriever.k1=-1"]}
    path = write_plan(tiny_source.parent, retrievers=rows, compare=[])
    command = partial(script, "results", str(path))
    code, out, error = command()
    assert code == 2 and error.count("\n") == 1
    assert error.startswith("error: 1 of 2 jobs failed; tiny/broken: ")
    assert "[2 of 2] tiny/broken: evaluating (missing), failed: " in out and "k1" in out
    page = tiny_source.parent / "docs" / "page.md"
    assert "| bm25 | 1.000 [1.000, 1.000] | 1.000 |" in page.read_text()
    code, out, _ = command("jobs=tiny/bm25")
    assert code == 0 and "[1 of 1] tiny/bm25: up to date" in out
    page.unlink()
    ran.clear()
    assert command("page_only=true")[0] == 0 and page.exists() and ran == []


# Pages


@pytest.mark.slow
def test_the_smallest_reproduction_runs_and_other_results_fail(
    script: Callable[..., Done], tmp_path: Path
) -> None:
    plan, changed = ROOT / "reproduce" / "demo.yaml", tmp_path / "changed.yaml"
    done = script("results", str(plan), "jobs=demo/bm25")
    assert done.code == 0 and "demo/bm25: recall@10 is 0.38" in done.out, done.err
    changed.write_text(plan.read_text().replace("recall@10: 0.388", "recall@10: 0.5"))
    done = script("results", str(changed), "jobs=demo/bm25")
    assert done.code == 2 and "demo/bm25: recall@10 is 0.38" in done.err and "expected 0.5 ± 0.02" in done.err
    changed.write_text(plan.read_text().replace("demo/static: {", "demo/other: {"))
    assert "expected: no job 'demo/other'" in script("results", str(changed)).err


@pytest.mark.slow
@pytest.mark.parametrize("path", [path for path in PLANS if path.stem != "demo"], ids=lambda path: path.stem)
def test_the_smallest_row_of_every_other_plan_runs(
    path: Path, script: Callable[..., Done], public: Path, ran: list[str]
) -> None:
    of_tiny_pools = re.sub(
        r"benchmark.sizes=\[[\d,]+\]", "benchmark.sizes=[60,90]", path.read_text(encoding="utf-8")
    )
    (public / path.name).write_text(of_tiny_pools)
    plan = read_plan(public / path.name)
    job = next(job for job in plan.jobs if not job.needs)
    done = script("results", str(plan.path), f"jobs={job}")
    assert ran == [f"evaluate {job.name}"]
    if absent := ABSENT.get(path.stem):
        assert done.code == 2 and f"error: 1 of 1 jobs failed; {job}: {absent}" in done.err
        return
    if str(job) in plan.file.expected:  # tiny data have other figures
        assert done.code == 2 and re.search(rf"{job}: \S+ is .*, expected \d", done.err), done.err
    else:
        assert done.code == 0, done.err
    assert f"\n{job.name}," in "".join(csv_files(public / plan.file.page).values())


def test_the_page_shows_all_existing_results(plan: Plan, ran: list[str]) -> None:
    write_page(plan)
    page = plan.page.read_text()
    assert "Not run: bm25, popularity, fewer." in page and "![" not in page and "| --- |" not in page
    run_all(plan.jobs[:2])
    write_page(plan)
    page, files = plan.page.read_text(), csv_files(plan.page)
    metrics = json.loads((plan.jobs[1].folder / METRICS).read_text())
    assert metrics["recall@10"] == 0.75
    for part in (
        "# Side by side",
        f"citerec results {plan.path}",
        "What to see here.",
        "4 queries of 2 citing papers (split test, transductive), 11 candidates.",
        "![R@10, with 95 % intervals](page.png)",  # two lines of R@k show no more than the table
        "|  | R@10 | MRR |",
        "| bm25 | **1.000** [1.000, 1.000] | **1.000** |",
        "| popularity | 0.750 [0.500, 1.000] | 0.",
        "Not run: fewer.",
        "All tables, as CSV: [tiny](page/tiny.csv), [tiny-seen-and-unseen-targets](page/tiny-seen-",
    ):
        assert part in page, part
    assert page.count("| --- |") == 1
    assert plan.page.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    # R@20 and beyond need a pool of more than 11 papers.
    assert files["tiny"].startswith(
        "name,MRR,R@1,R@10,R@10 low,R@10 high,ms,MB,papers/s\nbm25,1.000,1.000,1.000,"
    )
    assert "\npopularity," in files["tiny-inductive"]
    assert "bm25,popularity,R@10,1.0000,0.7500,+0.2500,+0.0000 to +0.5000," in files["tiny-differences"]
    assert plan.jobs[0].commands[0] in files["tiny-commands"]
    assert plan.jobs[2].commands[1] not in files["tiny-commands"]
    outputs = {name: Output(plan.jobs[1].folder, metrics, {}) for name in ("a", "b", "c")}
    assert "![R@k](recall.png)" in to_markdown(Prefetch.view(outputs, "Tiny papers"), plan.page.parent)


def test_a_page_tells_which_pairs_are_not_comparable(tiny_source: Path, ran: list[str]) -> None:
    rows = {"all": ["retriever=bm25"], "few": ["retriever=bm25", "queries=2"], "b": ["retriever=popularity"]}
    pairs = [["few", "all"], ["all", "b"]]
    plan = read_plan(write_plan(tiny_source.parent, retrievers=rows, compare=pairs))
    assert run_all(plan.jobs) == {}
    write_page(plan)
    assert re.search(r"few and all were not compared: .* different queries\.", plan.page.read_text())
    assert csv_files(plan.page)["tiny-differences"].splitlines()[1].startswith("all,b,")


@pytest.mark.parametrize("protocol", ["draft", "transductive"])
def test_a_page_without_headlines_has_no_picture(
    protocol: str, tiny_source: Path, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Prefetch, "headline", Prefetch.headline if protocol == "draft" else ())
    rows = {"bm25": ["retriever=bm25", f"benchmark.protocols=[{protocol}]"]}
    plan = read_plan(write_plan(tiny_source.parent, retrievers=rows, compare=[]))
    assert run_all(plan.jobs) == {}
    write_page(plan)
    page = plan.page.read_text()
    assert "![" not in page and not plan.page.with_suffix(".png").exists() and "](page/tiny" in page


@pytest.mark.slow
def test_the_page_of_two_stages(tiny_source: Path, tiny_reranker: Path, ran: list[str]) -> None:
    reranked = ["retriever=bm25", f"reranker={tiny_reranker}", "scoring.precision=float32"]
    pipeline = ["benchmark=pipeline", "benchmark.depths=[2]", *reranked]
    rows = {
        "bm25": ["retriever=bm25"],
        "pipeline": [*pipeline, "candidates=4"],
        "fused": [*pipeline, "candidates=3", "benchmark.fuse=score"],
        "oracle": ["benchmark=rerank", "candidates=2", *reranked],
    }
    compare = [["pipeline", "bm25"], ["fused", "pipeline"]]
    shown = ["pipeline", "fused", "oracle"]
    plan = read_plan(write_plan(tiny_source.parent, retrievers=rows, compare=compare, shown=shown))
    assert run_all(plan.jobs) == {}
    write_page(plan)
    page, files = plan.page.read_text(), csv_files(plan.page)
    assert "|  | R@10 before | R@10 | MRR | ceiling | s/query |" in page and "| bm25 |" not in page
    assert re.search(r"\| pipeline \| 1.000 \[1.000, 1.000\] \| \*\*1.000\*\* .*\| 1.000 \|", page), page
    assert "| oracle |" in page
    for name, part in {
        "tiny-prefetch": "\nbm25,1.000,1.000,",
        "tiny-pipeline-reranked": '\nfused,"bm25 + tiny-reranker, fused by score",3,4,',
        "tiny-pipeline-r-10-by-number-of-reranked-candidates": "name,2,3,4\npipeline,1.000,,1.000\n",
        "tiny-reranking-candidates-of-an-oracle": "\noracle,",
        "tiny-differences": "pipeline,bm25,R@10,1.0000,1.0000,",
        "tiny-commands": "benchmark=rerank candidates=2",
    }.items():
        assert part in files[name], (name, files[name])
    assert "\noracle," not in files["tiny-pipeline-reranked"] and "\npipeline," not in files["tiny-prefetch"]
    assert plan.page.with_suffix(".png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_from_a_plan_of_query_papers_to_its_page(
    tmp_path: Path, world_file: Path, distractors_file: Path, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CITATION_CACHE", str(tmp_path / "cache"))
    plan = global_plan(tmp_path, world_file, distractors_file)
    assert run_all(plan.select([], ["whole/average"])) == {}
    assert ran == ["evaluate bm25", "evaluate bm25", "evaluate average"]
    write_page(plan)
    page, files = plan.page.read_text(), csv_files(plan.page)
    for part in (
        "**A whole world.** What to see here. 10 queries.",
        "|  | A whole world: MAP, 60 papers | A whole world: MAP, 150 papers | Its fields: MAP |",
        "Not run: average.",
        "**MDCR.** Nothing of ours.",
    ):
        assert part in page, part
    for name, part in {
        "whole": "MAP,60,150\n",
        "whole-ndcg": "nDCG,60,150\n",
        "whole-r-30": "R@30,60,150\n",
        "fields": "MAP,Art,Law,Physics,AVG\n",
        "fields-field": "field,queries,candidates\n",
        "fields-differences": "average,bm25,MAP,",
        "fields-commands": plan.jobs[2].commands[0],
        "whole-commands": plan.jobs[0].commands[0],
    }.items():
        assert part in files[name], (name, files[name])
    assert plan.jobs[1].commands[-1] not in files["whole-commands"]
    metrics = json.loads((plan.jobs[2].folder / METRICS).read_text())
    maps = [f"{metrics[field]['map']:.2f}" for field in ("Art", "Law", "Physics", "AVG")]
    assert f"\nbm25,{','.join(maps)}\n" in files["fields"]


def test_tables_mark_the_best_value_and_leave_gaps(tmp_path: Path) -> None:
    tables: dict[str, dict[str, dict[str, float]]] = {
        "a": {"900": {"map": 10.0, "map_sd": 0.5, "samplings": 3}, "1000": {"map": 9.0}},
        "b": {"900": {"map": 12.0, "map_sd": 0.0, "samplings": 1}},
    }
    labels = {"map": "MAP", "ndcg": "nDCG", "recall_30": "R@30"}
    maps, ndcg, recall = map(str, group_tables(tables, labels, lambda size: f"{int(size):,}"))
    assert maps.splitlines()[0] == "| MAP | 900 | 1,000 |"
    assert maps.splitlines()[2:] == ["| a | 10.00 ± 0.50 | 9.00 |", "| b | **12.00** |  |"]
    assert ndcg.splitlines()[2:] == ["| a |  |  |", "| b |  |  |"] and recall.startswith("| R@30 |")
    by_field = {"AVG": {"map": 3.0, "recall_5": 1.0}, "Art": {"map": 3.0, "recall_5": 1.0}}
    outputs = {}
    for name, value in (("a", 4.0), ("b", 6.0)):
        outputs[name] = Output(tmp_path / name, by_field, {})
        write_text(tmp_path / name / TYPES, json.dumps({"graph": {"map": value, "recall_5": 2.0}}))
    result = to_markdown(MDCR.view(outputs, ""), tmp_path)
    assert result[0].splitlines()[0] == "| MAP | Art | AVG |"  # the average comes last
    assert result[-1].splitlines()[2:] == ["| a | 4.00 | **2.00** |", "| b | **6.00** | **2.00** |"]
