"""From the list of jobs to the page: what runs, what is taken as it is, what fails, what the page says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from omegaconf import OmegaConf

from datasets.errors import InputError
from evaluation import jobs
from evaluation.jobs import commands_of, run_all, settings_of, why_missing
from evaluation.plan import Job, Plan, read_plan
from evaluation.published import published
from evaluation.results import write_page

ROOT = Path(__file__).parents[2]


def write_plan(folder: Path, **changes: Any) -> Path:
    """A plan for the source files in `folder`/tiny."""
    tiny = [f"data.dir={folder / 'tiny'}", f"data.cache_dir={folder / 'cache'}"]
    content: dict[str, Any] = {
        "page": str(folder / "docs" / "page.md"),
        "outputs": str(folder / "results"),
        "title": "Side by side",
        "notes": "What to see here.",
        "data": {
            "tiny": {"title": "Tiny papers", "overrides": ["data=custom", *tiny], "published": "ACL-200"}
        },
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


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What ran, in this process instead of others; training writes a file of ids."""
    done: list[str] = []

    def run(script: str, overrides: list[str], folder: Path) -> None:
        done.append(f"{script} {folder.name}")
        folder.mkdir(parents=True, exist_ok=True)
        if script == "train.py":
            (folder / "ids.txt").write_text("vision\n")
            return
        with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
            config = compose("evaluate", overrides)
        (folder / ".hydra").mkdir(exist_ok=True)
        OmegaConf.save(config, folder / ".hydra" / "config.yaml")
        made = [instantiate(config[key]) for key in ("benchmark", "retriever", "data", "filters")]
        made[0](made[1], made[2], config.split, folder, filters=made[3])

    monkeypatch.setattr(jobs, "_python", run)
    return done


def test_a_plan_is_data_times_retrievers(plan: Plan, tiny_source: Path) -> None:
    folder = tiny_source.parent
    assert [str(job) for job in plan.jobs] == ["tiny/bm25", "tiny/popularity", "tiny/fewer"]
    fewer = plan.jobs[2]
    ids = folder / "results" / "tiny" / "train" / "ids" / "ids.txt"
    assert [training.checkpoint for training in fewer.training] == [ids] and not plan.jobs[0].training
    data = f"data=custom data.dir={folder}/tiny data.cache_dir={folder}/cache"
    assert commands_of(fewer) == [
        f"python train.py {data} model=hatten output_dir={ids.parent}",
        f"python evaluate.py {data} retriever=bm25 filters.exclude={ids} split=test "
        f"output_dir={folder}/results/tiny/fewer",
    ]


def test_only_what_is_missing_runs(plan: Plan, ran: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_all(plan.jobs) == {}
    evaluations = ["evaluate.py bm25", "evaluate.py popularity"]
    assert ran == [*evaluations, "train.py ids", "evaluate.py fewer"]
    assert "[3 of 3] tiny/fewer: training ids, evaluating (not there), done in" in capsys.readouterr().out
    ran.clear()
    assert run_all(plan.jobs) == {} and ran == []
    assert capsys.readouterr().out.count("there already\n") == 3


def test_an_interrupted_training_goes_on(
    plan: Plan, ran: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = jobs._python

    def interrupted(script: str, overrides: list[str], folder: Path) -> None:
        whole(script, overrides, folder)  # a first checkpoint is there
        raise InputError("interrupted")

    with monkeypatch.context() as patch:
        patch.setattr(jobs, "_python", interrupted)
        assert run_all(plan.jobs[2:]) == {"tiny/fewer": "interrupted"}
    assert run_all(plan.jobs[2:]) == {} and run_all(plan.jobs[2:]) == {}
    assert ran == ["train.py ids", "train.py ids", "evaluate.py fewer"]


def _newer(job: Job) -> str:
    stamp = (job.folder / "metrics.json").stat().st_mtime + 1
    os.utime(job.training[0].checkpoint, (stamp, stamp))
    return "ids.txt is newer"


def _interrupted(job: Job) -> str:
    (job.folder / "metrics.json").unlink()
    return "not there"


def _by_hand(job: Job) -> str:
    (job.folder / ".hydra" / "config.yaml").unlink()
    return "its settings cannot be read"


def _other_default(job: Job) -> str:
    path = job.folder / ".hydra" / "config.yaml"
    config = OmegaConf.load(path)
    config.retriever.k1 = 1.3
    OmegaConf.save(config, path)
    return "made with other settings"


def test_what_is_not_of_today_runs_again(plan: Plan, ran: list[str]) -> None:
    job = plan.jobs[2]
    run_all([job])
    for change in (_newer, _interrupted, _by_hand, _other_default):
        reason = change(job)
        found = why_missing(job)
        assert found is not None and found.endswith(reason)
        ran.clear()
        run_all([job])
        assert ran == ["evaluate.py fewer"]


def test_options_that_the_retriever_does_not_take_do_not_matter(plan: Plan) -> None:
    one = plan.jobs[0]
    other = Job(one.data, one.name, one.folder, [*one.overrides, "profile=auto", "seed=0"], [])
    assert settings_of(one) == settings_of(other)
    assert settings_of(one) != settings_of(Job("d", "n", one.folder, [*one.overrides, "retriever.b=0.1"], []))


def test_a_failed_job_loses_neither_the_others_nor_leaves_an_old_result(
    plan: Plan, ran: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    run_all(plan.jobs[:2])
    broken = Job("tiny", "bm25", plan.jobs[0].folder, [*plan.jobs[0].overrides, "retriever.k1=-1"], [])
    unknown = Job("tiny", "popularity", plan.jobs[1].folder, ["retriever=bm26"], [])
    with pytest.MonkeyPatch.context() as patch:

        def fail(script: str, overrides: list[str], folder: Path) -> None:
            raise InputError("no")

        patch.setattr(jobs, "_python", fail)
        failed = run_all([broken, unknown])
    assert failed["tiny/bm25"] == "no" and "bm26" in failed["tiny/popularity"] and len(failed) == 2
    assert why_missing(broken) == "not there" and why_missing(plan.jobs[1]) is None
    assert "[1 of 2] tiny/bm25: evaluating (made with other settings), failed: no" in capsys.readouterr().out


def test_the_page_has_all_that_is_there(plan: Plan, ran: list[str]) -> None:
    run_all(plan.jobs[:2])
    write_page(plan)
    page = plan.page.read_text()
    metrics = json.loads((plan.jobs[1].folder / "metrics.json").read_text())
    assert metrics["recall@10"] == 0.75
    for part in (
        "# Side by side",
        f"python -m evaluation.results {plan.path}",
        "What to see here.",
        "## Tiny papers",
        "4 queries of 2 citing papers (split test, transductive), 11 candidates.",
        "| bm25 | **1.000** | **1.000** | **1.000** [1.000, 1.000] | **1.000** |",
        "| popularity | 0.",
        "0.750 [0.500, 1.000]",
        "![R@k](page-tiny.png)",
        "Seen: the 3 queries",
        "1 queries of 1 citing papers (split test, inductive), 7 candidates. Not comparable",
        "| bm25 | popularity | R@10 | 1.0000 | 0.7500 | +0.2500 | +0.0000 to +0.5000 |",
        "Not evaluated: fewer (not there).",
        "**Other data: not comparable with the tables above**, unless",
        "| HAtten | 0.148 | 0.281 | 0.603 | 0.700 | 0.803 | 0.870 | 0.924 |",
        commands_of(plan.jobs[0])[0],
    ):
        assert part in page, part
    assert commands_of(plan.jobs[2])[1] not in page
    assert (plan.page.parent / "page-tiny.png").read_bytes().startswith(b"\x89PNG")
    # The inductive numbers are in a table of their own.
    transductive, inductive = page.split("### Inductive")
    inductive = inductive.split("### Differences")[0]
    assert transductive.count("| bm25 |") == 2 and inductive.count("| bm25 |") == 1


def test_a_page_of_nothing_says_what_is_missing(plan: Plan) -> None:
    write_page(plan)
    page = plan.page.read_text()
    assert "Not evaluated: bm25 (not there); popularity (not there); fewer (not there)." in page
    assert "###" not in page.split("### As published")[0]


def test_published_figures_are_those_of_the_paper() -> None:
    table = published("ACL-200")[1].splitlines()
    assert table[0] == "| as published | MRR | R@10 | R@100 | R@200 | R@500 | R@1000 | R@2000 |"
    assert [line.split(" |")[0] for line in table[2:]] == ["| BM25", "| Sent2vec", "| NNSelect", "| HAtten"]
    for name in ("ACL-200", "FullTextPeerRead", "RefSeer", "arXiv"):
        for line in published(name)[1].splitlines()[2:]:
            recalls = [float(cell) for cell in line.split("|")[3:-1]]
            assert len(recalls) == 6 and recalls == sorted(recalls)  # recall grows with k
    with pytest.raises(InputError, match="no figures for 'ACL'; there are ACL-200, "):
        published("ACL")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"compare": [["bm25", "bm26"]]}, r"compare: \['bm25', 'bm26'\] is no pair of retrievers: bm25, "),
        ({"compare": ["bm25"]}, "compare: bm25 is no pair"),
        ({"retrievers": {"x": "retriever=bm25"}}, "retrievers.x: must be a list of overrides"),
        ({"retrievers": ["x"]}, "retrievers: must be a mapping"),
        ({"data": {"x": {"title": "X"}}}, "data.x: the key 'overrides' is missing"),
        ({"data": {"x": {"title": "X", "overrides": [], "splt": "val"}}}, "data.x: there is no key 'splt'"),
        ({"training": {"x": {"overrides": []}}}, "training.x: the key 'checkpoint' is missing"),
        ({"pages": 3}, "the file: there is no key 'pages'"),
    ],
)
def test_a_plan_that_cannot_be_used_is_one_line(
    tiny_source: Path, changes: dict[str, Any], message: str
) -> None:
    path = write_plan(tiny_source.parent, **changes)
    with pytest.raises(InputError, match=message) as error:
        read_plan(path)
    assert str(error.value).startswith(str(path))


@pytest.mark.parametrize("text", [None, "data: [", "- a", ""])
def test_a_file_that_is_no_plan_is_one_line(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "plan.yaml").write_text(text)
    with pytest.raises(InputError, match=r"plan\.yaml"):
        read_plan(tmp_path / "plan.yaml")


def test_jobs_are_chosen_by_name_or_data_set(plan: Plan) -> None:
    assert plan.chosen([]) == plan.chosen(["tiny"]) == plan.jobs
    assert plan.chosen(["tiny/fewer", "tiny/bm25"]) == [plan.jobs[0], plan.jobs[2]]
    with pytest.raises(InputError, match="no job 'bm25' in the plan; there are tiny/bm25, "):
        plan.chosen(["bm25"])


@pytest.mark.slow
def test_the_command(tiny_source: Path) -> None:
    retrievers = {"bm25": ["retriever=bm25"], "broken": ["retriever=bm25", "retriever.k1=-1"]}
    path = write_plan(tiny_source.parent, retrievers=retrievers, compare=[])
    command = [sys.executable, "-m", "evaluation.results", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("error: 1 of 2 jobs failed; tiny/broken: ") and done.stderr.count("\n") == 1
    assert "[2 of 2] tiny/broken: evaluating (not there), failed: " in done.stdout and "k1" in done.stdout
    assert "| bm25 | 1.000 |" in (tiny_source.parent / "docs" / "page.md").read_text()
    again = subprocess.run([*command, "tiny/bm25"], cwd=ROOT, capture_output=True, text=True)
    assert again.returncode == 0 and "[1 of 1] tiny/bm25: there already" in again.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", ["retrieval.yaml", "reranking.yaml"])
def test_every_job_of_our_own_pages_composes(name: str) -> None:
    plan = read_plan(ROOT / "docs" / name)
    for job in plan.of_data(next(iter(plan.data))):
        assert set(settings_of(job)) == {"data", "retriever", "benchmark", "filters", "split", "index_dir"}
        with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
            for training in job.training:
                assert compose("train", training.overrides).output_dir == str(training.folder)
