"""Papers as queries on a page of results: a plan, its evaluations, a benchmark built of them, tables."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from omegaconf import OmegaConf

from datasets.errors import InputError
from evaluation import jobs
from evaluation.benchmark import Output
from evaluation.benchmarks.csfcube import CSFCube
from evaluation.benchmarks.mdcr import MDCR, TYPES
from evaluation.benchmarks.scidocs import SciDocs
from evaluation.jobs import commands_of, run_all, settings_of, why_missing, why_unbuilt
from evaluation.plan import Plan, read_plan
from evaluation.published import figures, published
from evaluation.report import METRICS, Provenance, by_group, write_text
from evaluation.results import write_page

ROOT = Path(__file__).parents[2]


def write_plan(folder: Path, papers: Path, distractors: Path, **changes: Any) -> Path:
    """BM25 and averaged word vectors on a small world, and on a benchmark made of their lists."""
    cache = f"data.cache_dir={folder / 'cache'}"
    sampled = [f"data.papers={papers}", cache, "benchmark.rules.min_citations=0", "benchmark.tune=null"]
    content: dict[str, Any] = {
        "page": str(folder / "docs" / "page.md"),
        "outputs": str(folder / "results"),
        "title": "Papers as queries",
        "data": {
            "whole": {
                "title": "A whole world",
                "overrides": [
                    "benchmark=dataset_level",
                    *sampled,
                    f"benchmark.distractors={distractors}",
                    "queries=10",
                    "benchmark.samplings=2",
                    "benchmark.sizes=[60,150]",
                ],
                "published": "dataset-level",
                "notes": "What to see here.",
                "retrievers": {"bm25": [], "average": ["benchmark.sizes=[60]"]},
            },
            "fields": {
                "title": "Its fields",
                "overrides": [
                    "benchmark=field_level",
                    *sampled,
                    "benchmark.rules.min_cited=2",
                    "benchmark.min_queries=2",
                    "benchmark.size=1000",
                ],
            },
            "like": {
                "title": "A benchmark of it",
                "overrides": [
                    "benchmark=mdcr",
                    "benchmark.file={made}/mdcr.json",
                    f"benchmark.cache_dir={folder / 'cache'}",
                ],
                "retrievers": {"bm25": [], "title": ["retriever=bm25", "retriever.query=[title]"]},
            },
            "mdcr": {
                "title": "MDCR",
                "overrides": ["benchmark=mdcr"],
                "retrievers": {},
                "published": "mdcr",
                "notes": "Nothing of ours.",
            },
        },
        "building": {
            "made": {
                "overrides": [f"papers={papers}", f"cache_dir={folder / 'cache'}", "cited=2", "negatives=3"],
                "models": {"bm25": "fields/bm25", "average": "fields/average"},
            }
        },
        "retrievers": {
            "bm25": ["retriever=bm25"],
            "average": [
                "retriever=average",
                "embeddings.epochs=1",
                "embeddings.dim=8",
                "embeddings.workers=1",
            ],
        },
        "compare": [["average", "bm25"], ["title", "bm25"]],
    }
    path = folder / "plan.yaml"
    OmegaConf.save(OmegaConf.create(content | changes), path)
    return path


@pytest.fixture
def plan(tmp_path: Path, world_file: Path, distractors_file: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    monkeypatch.setenv("CITATION_CACHE", str(tmp_path / "cache"))
    return read_plan(write_plan(tmp_path, world_file, distractors_file))


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What ran, in this process instead of others."""
    done: list[str] = []

    def run(script: str, overrides: list[str], folder: Path) -> None:
        done.append(f"{script} {folder.parent.name}/{folder.name}")
        with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
            config = compose("evaluate" if script == "evaluate.py" else "build_mdcr", overrides)
        if script != "evaluate.py":
            instantiate(config)
            return
        instantiate(config.benchmark).run(folder, Provenance(), partial(instantiate, config.retriever))
        (folder / ".hydra").mkdir()
        OmegaConf.save(config, folder / ".hydra" / "config.yaml")

    monkeypatch.setattr(jobs, "_python", run)
    return done


def test_rows_are_those_of_a_data_set_and_a_benchmark_is_made_of_jobs_before_it(plan: Plan) -> None:
    assert [str(job) for job in plan.jobs] == [
        "whole/bm25",
        "whole/average",
        "fields/bm25",
        "fields/average",
        "like/bm25",
        "like/title",
    ]
    average, like = plan.jobs[1], plan.jobs[5]
    sizes = [override for override in average.overrides if override.startswith("benchmark.sizes")]
    assert sizes == ["benchmark.sizes=[60,150]", "benchmark.sizes=[60]"]  # the last one counts
    assert settings_of(average)["benchmark"]["sizes"] == [60]
    (made,) = like.building
    assert made.models == plan.jobs[2:4] and f"benchmark.file={made.place}/mdcr.json" in like.overrides
    assert "retriever.query=[title]" in like.overrides
    results = plan.jobs[2].folder.parents[1]
    assert commands_of(like)[0].startswith("python -m evaluation.build_mdcr papers=")
    named = f"models={{bm25:{results}/fields/bm25,average:{results}/fields/average}}"
    assert named in commands_of(like)[0] and f"output={made.place}" in commands_of(like)[0]


def test_from_a_plan_to_its_page(plan: Plan, ran: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    write_page(plan)  # of nothing
    page = plan.page.read_text()
    assert "Not evaluated: bm25 (not there); average (not there)." in page and "###" in page

    assert run_all(plan.chosen(["like"])) == {
        str(job): "building made needs fields/bm25 (not there)" for job in plan.jobs[4:]
    }
    assert ran == []
    assert run_all(plan.chosen([], ["title"])) == {}
    evaluated = [f"evaluate.py {job}" for job in plan.jobs]
    assert ran == [*evaluated[:4], "evaluation.build_mdcr results/made", evaluated[4]]
    write_page(plan)
    page = plan.page.read_text()
    for part in (
        "# Papers as queries",
        f"python -m evaluation.results {plan.path}",
        "## A whole world\n\nWhat to see here.\n\n10 queries. ",
        "| MAP | 60 | 150 |",
        "| nDCG | 60 | 150 |",
        "| R@30 | 60 | 150 |",
        "![MAP by the size of the pool](page-whole.png)",
        "### As published, A whole world",
        "| BM25 | 40.4 | 73.8 | 43.0 | 32.8 |",
        "| MAP | Art | Law | Physics | AVG |",
        "| field | queries | candidates |",
        "### Differences",
        "| average | bm25 | MAP |",
        "| model | average Jaccard index | chosen |",
        "| R@5 | Art | Law | Physics | AVG |",
        "|  | bm25 MAP | bm25 R@5 | average MAP | average R@5 | graph MAP | graph R@5 | most_cited MAP |",
        "Not evaluated: title (not there).",
        "## MDCR\n\nNothing of ours.\n\n### As published, MDCR",
        commands_of(plan.jobs[4])[0],
        commands_of(plan.jobs[0])[0],
    ):
        assert part in page, part
    assert commands_of(plan.jobs[5])[-1] not in page
    assert (plan.page.parent / "page-whole.png").read_bytes().startswith(b"\x89PNG")
    metrics = json.loads((plan.jobs[2].folder / METRICS).read_text())
    maps = [f"{metrics[field]['map']:.2f}" for field in ("Art", "Law", "Physics", "AVG")]
    row = next(line for line in page.split("| MAP | Art |")[1].splitlines() if line.startswith("| bm25 |"))
    assert row.replace("*", "") == f"| bm25 | {' | '.join(maps)} |"

    ran.clear()
    assert run_all(plan.jobs) == {} and ran == ["evaluate.py like/title"]  # the rest is there already
    stamp = (plan.jobs[2].folder / METRICS).stat().st_mtime + 100
    os.utime(plan.jobs[2].folder / METRICS, (stamp, stamp))
    assert why_unbuilt(plan.jobs[4].building[0]) == "fields/bm25 is newer"
    assert why_missing(plan.jobs[4]) == "its benchmark made: fields/bm25 is newer"


def test_tables_mark_the_best_of_several_and_leave_gaps(tmp_path: Path) -> None:
    tables: dict[str, dict[str, dict[str, float]]] = {
        "a": {"900": {"map": 10.0, "map_sd": 0.5, "samplings": 3}, "1000": {"map": 9.0}},
        "b": {"900": {"map": 12.0, "map_sd": 0.0, "samplings": 1}},
    }
    labels = {"map": "MAP", "ndcg": "nDCG", "recall_30": "R@30"}
    maps, ndcg, recall = by_group(tables, labels, lambda size: f"{int(size):,}")
    assert maps.splitlines()[0] == "| MAP | 900 | 1,000 |"
    assert maps.splitlines()[2:] == ["| a | 10.00 ± 0.50 | 9.00 |", "| b | **12.00** |  |"]
    assert ndcg.splitlines()[2:] == ["| a |  |  |", "| b |  |  |"] and recall.startswith("| R@30 |")
    by_field = {"AVG": {"map": 3.0, "recall_5": 1.0}, "Art": {"map": 3.0, "recall_5": 1.0}}
    outputs = {}
    for name, value in (("a", 4.0), ("b", 6.0)):
        outputs[name] = Output(tmp_path / name, by_field, {})
        write_text(tmp_path / name / TYPES, json.dumps({"graph": {"map": value, "recall_5": 2.0}}))
    found = MDCR.page(outputs, tmp_path / "x.png", "")
    assert found[0].splitlines()[0] == "| MAP | Art | AVG |"  # the average comes last
    assert found[-1].splitlines()[2:] == [
        "| a | 4.00 | **2.00** |",
        "| b | **6.00** | **2.00** |",
        "| mean | 5.00 | 2.00 |",
    ]
    cube = {"all": {"mean_av_precision": 34.231}, "method": {"ndcg%20": 50.0}}
    whole, facets = CSFCube.page({"a": Output(tmp_path, cube, {})}, tmp_path / "x.png", "")
    assert "| a |  |  |  |  |  |  | 34.23 |  |" in whole
    assert "| method MAP | method NDCG%20 |" in facets and "| 50.00 |" in facets
    cited = {"cite": {"map": 88.3, "ndcg": 94.9}}
    (tasks,) = SciDocs.page({"a": Output(tmp_path, cited, {})}, tmp_path / "x.png", "")
    assert tasks.splitlines()[0] == "|  | cite MAP | cite nDCG |" and "| a | 88.30 | 94.90 |" in tasks


def test_published_figures_are_whole() -> None:
    content = figures()
    for name, tables in content.items():
        for table in tables:
            rows = table.get("rows", {}).values()
            assert {len(row) for row in rows} <= {len(table.get("columns", []))}, name
    fields = next(table for table in content["mdcr"] if table["source"].endswith("MAP on MDCR"))
    for who, row in fields["rows"].items():  # the paper's averages are of its fields
        assert sum(row[:-1]) / 19 == pytest.approx(row[-1], abs=0.06), who
    assert published("scidocs")[0].startswith("Cohan et al. 2020, Table 1")
    with pytest.raises(InputError, match="no figures for 'MDCR'; there are ACL-200, "):
        published("MDCR")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "global"}, "the file: there is no key 'kind'"),
        (
            {"data": {"x": {"title": "X", "overrides": [], "retrievers": {"y": []}}}},
            "data.x.retrievers: there is no retriever 'y'; name its overrides",
        ),
        (
            {"data": {"x": {"title": "X", "overrides": [], "retrievers": ["bm25"]}}},
            "data.x.retrievers: must be a mapping",
        ),
        ({"building": {"made": {"overrides": []}}}, "building.made: the key 'models' is missing"),
        (
            {"building": {"made": {"overrides": [], "models": {"a": "fields/bm26"}}}},
            "building.made.models.a: there is no job 'fields/bm26' before it",
        ),
    ],
)
def test_a_plan_that_cannot_be_used_is_one_line(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    path = write_plan(tmp_path, tmp_path / "p", tmp_path / "d", **{"compare": [], **changes})
    with pytest.raises(InputError, match=message) as error:
        read_plan(path)
    assert str(error.value).startswith(str(path)) and "\n" not in str(error.value)


def test_trainings_may_be_shared_by_data_sets(tmp_path: Path) -> None:
    training = {
        "own": {"overrides": ["model=hatten"], "checkpoint": "h.ckpt"},
        "one": {"overrides": ["model=hatten"], "checkpoint": "h.ckpt", "shared": True},
    }
    data = {name: {"title": name, "overrides": [f"data={name}"]} for name in ("x", "y")}
    rows = {"a": ["checkpoint={own}"], "b": ["checkpoint={one}"]}
    path = write_plan(
        tmp_path, tmp_path, tmp_path, training=training, data=data, retrievers=rows, compare=[], building={}
    )
    made = {str(job): job.training[0] for job in read_plan(path).jobs}
    assert made["x/b"] == made["y/b"] and made["x/a"] != made["y/a"]
    assert made["x/b"].folder == tmp_path / "results" / "train" / "one"
    assert "data=x" in made["x/a"].overrides and "data=x" not in made["x/b"].overrides


def test_jobs_are_left_out_by_retriever_data_set_or_name(plan: Plan) -> None:
    assert [str(job) for job in plan.chosen(["whole", "fields/bm25"], ["average"])] == [
        "whole/bm25",
        "fields/bm25",
    ]
    assert [str(job) for job in plan.chosen([], ["fields", "like/title"])] == [
        "whole/bm25",
        "whole/average",
        "like/bm25",
    ]
    with pytest.raises(InputError, match="no job 'bm26' in the plan; there are whole/bm25, "):
        plan.chosen([], ["bm26"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("global.yaml", {"DatasetLevel", "FieldLevel", "MDCR", "CSFCube"}),
        ("global_reranking.yaml", {"GlobalPrefetch", "GlobalReranking"}),
    ],
)
def test_every_job_of_our_own_pages_composes(name: str, expected: set[str]) -> None:
    plan = read_plan(ROOT / "docs" / name)
    kinds = {settings_of(job)["benchmark"]["_target_"].rpartition(".")[2] for job in plan.jobs}
    assert kinds == expected
    for one in plan.data.values():
        if one.published:
            assert published(one.published)
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        for training in {one.name: one for job in plan.jobs for one in job.training}.values():
            assert compose("train", training.overrides).output_dir == str(training.folder)
        for building in {one.name: one for job in plan.jobs for one in job.building}.values():
            assert compose("build_mdcr", building.overrides).output == str(building.place)
