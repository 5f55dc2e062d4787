"""Dataset-level and field-level evaluation: what they write, report and refuse."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from omegaconf import OmegaConf

from datasets.errors import InputError
from evaluation.benchmarks.sampled import DatasetLevel, FieldLevel, SampledBenchmark
from evaluation.benchmarks.sampling import Rules, Tuning
from evaluation.compare import compare
from evaluation.pool_curves import pool_curves
from evaluation.report import Provenance
from retrieval.bm25 import BM25
from retrieval.run import Run
from tests.evaluation.conftest import world, write_lines

ROOT = Path(__file__).parents[2]
RULES = Rules(year=2005, min_citations=0)


def settings_of(world_file: Path, tmp_path: Path, **more: Any) -> dict[str, Any]:
    return {"papers": world_file, "rules": RULES, "queries": 6, "cache_dir": tmp_path / "cache"} | more


def test_what_an_evaluation_writes(world_file: Path, distractors_file: Path, tmp_path: Path) -> None:
    given = settings_of(world_file, tmp_path, distractors=distractors_file, run_depth=5, depth=50)
    benchmark = DatasetLevel(sizes=[150, 80], tune=Tuning(k1=[1.2, 2.0], b=[0.5], queries=3), **given)
    for name in ("one", "two"):
        benchmark.run(tmp_path / name, Provenance("the command", "a: 1"), BM25)
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert files == [
        "map.png",
        "metrics.json",
        "per_query.csv",
        "qrels.trec",
        "report.md",
        "run.trec",
        "sample.json",
    ]
    for name in set(files) - {"report.md", "map.png"}:  # the report tells the seconds
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    metrics = json.loads((tmp_path / "one" / "metrics.json").read_text())
    assert list(metrics) == ["80", "150"] and metrics["80"]["samplings"] == 3 and metrics["80"]["map"] > 0
    rows = (tmp_path / "one" / "per_query.csv").read_text().splitlines()
    assert rows[0] == "query_id,citing_id,map,ndcg,recall_30" and len(rows) == 1 + 6 * 2 * 3
    found: dict[str, list[float]] = {}
    for row in rows[1:]:
        size, sampling, _ = row.split(",")[0].split("/")
        found.setdefault(f"{size}/{sampling}", []).append(float(row.split(",")[2]))
    of_80 = [100 * np.mean(found[f"80/{sampling}"]) for sampling in range(3)]
    assert metrics["80"]["map"] == pytest.approx(np.mean(of_80), abs=1e-4)
    assert metrics["80"]["map_sd"] == pytest.approx(np.std(of_80, ddof=1), abs=1e-4)
    assert len((tmp_path / "one" / "run.trec").read_text().splitlines()) == 6 * 2 * 5
    report = (tmp_path / "one" / "report.md").read_text()
    assert (
        "the command" in report
        and "on validation, the best of 2 pairs" in report
        and "60 distractors" in report
    )
    table = pool_curves({"BM25": tmp_path / "one", "again": tmp_path / "two"}, tmp_path / "curves")
    assert table[1][1:] == table[2][1:] and table[1][1].startswith(f"{metrics['80']['map']:.1f} ± ")
    assert (tmp_path / "curves" / "map.png").stat().st_size > 5000
    DatasetLevel(sizes=[80], **{**given, "queries": 5}).run(tmp_path / "other", Provenance(), BM25)
    assert compare(tmp_path / "one", tmp_path / "two", ["map"])["map"].difference == 0
    with pytest.raises(InputError, match=r"not comparable: groups \{'80': 80, '150': 150\} in the first"):
        compare(tmp_path / "one", tmp_path / "other", ["map"])
    with pytest.raises(
        InputError, match=r"other: has other queries, papers, rules or another seed than .*one"
    ):
        pool_curves({"a": tmp_path / "one", "b": tmp_path / "other"}, tmp_path / "curves")


def test_fields_are_measured_by_themselves(
    world_file: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    given = settings_of(world_file, tmp_path, run_depth=None, samplings=2, depth=20)
    FieldLevel(size=30, **{**given, "queries": 3}).run(tmp_path / "out", Provenance(), BM25)
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert list(metrics) == ["Art", "Law", "Physics", "AVG"]
    fields = [metrics[field] for field in ("Art", "Law", "Physics")]
    assert all(row["queries"] == 3 and row["candidates"] <= 30 for row in fields)
    assert metrics["AVG"]["map"] == pytest.approx(np.mean([row["map"] for row in fields]), abs=1e-4)
    sample = json.loads((tmp_path / "out" / "sample.json").read_text())
    assert {field: len(ids) for field, ids in sample["queries"].items()} == {"Art": 3, "Law": 3, "Physics": 3}
    run = Run.read(tmp_path / "out" / "run.trec")
    assert set(run.query_ids) == {
        f"{field}/{paper}" for field, ids in sample["queries"].items() for paper in ids
    }
    with pytest.raises(
        InputError, match=r"1 fields have fewer than 1 queries of 2005: Music|no paper has the field"
    ):
        FieldLevel(size=30, fields=["Law", "Music"], **given).run(tmp_path / "no", Provenance(), BM25)
    with pytest.raises(InputError, match=r"2 fields have fewer than 7 queries of 2005: Art \(\d\), .*\(\d\)"):
        few = {**given, "queries": 6}
        FieldLevel(size=60, fields=["Art", "Physics"], min_queries=7, **few).run(
            tmp_path / "no", Provenance(), BM25
        )
    caplog.clear()
    lawless = Rules(year=2005, min_citations=0, min_cited=4)
    drawing = FieldLevel(size=60, **{**given, "rules": lawless})
    counts = {field: len(found) for field, found in drawing.drawn(drawing.sampler())[0].items()}
    most = max(counts.values())
    assert min(counts.values()) < most  # else nothing would be left out below
    benchmark = FieldLevel(size=60, min_queries=most, **{**given, "rules": lawless})
    benchmark.run(tmp_path / "few", Provenance(), BM25)
    assert f"fields have fewer than {most} queries and are left out" in caplog.text


def test_a_paper_of_two_fields_is_not_for_test_in_one_and_for_validation_in_the_other(
    tmp_path: Path,
) -> None:
    papers = [{**paper, "fields": ["Art", "Law"]} for paper in world()]
    given = settings_of(write_lines(tmp_path / "papers.jsonl", papers), tmp_path, samplings=1, depth=20)
    tuning = Tuning(k1=[1.2], b=[0.5], queries=20)
    benchmark = FieldLevel(size=100, tune=tuning, **{**given, "queries": 5})
    tests, vals = benchmark.drawn(benchmark.sampler(), 20)
    assert set(tests["Art"]) != set(tests["Law"])
    asked = {*tests["Art"].tolist(), *tests["Law"].tolist()}
    assert all(len(rows) and not asked & set(rows.tolist()) for rows in vals.values())
    benchmark.run(tmp_path / "out", Provenance(), BM25)
    assert list(json.loads((tmp_path / "out" / "metrics.json").read_text())) == ["Art", "Law", "AVG"]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"sizes": []}, r"benchmark\.sizes"),
        ({"sizes": [0]}, r"benchmark\.sizes"),
        ({"samplings": 0}, r"benchmark\.samplings: 0 is no whole number"),
        ({"queries": "all"}, r"benchmark\.queries: 'all' is no whole number"),
        ({"run_depth": -1}, r"benchmark\.run_depth"),
    ],
)
def test_settings_that_are_none_are_refused(world_file: Path, tmp_path: Path, values: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        DatasetLevel(**{**settings_of(world_file, tmp_path), "sizes": [50]} | values)


@pytest.mark.parametrize("kind", [DatasetLevel, FieldLevel])
def test_the_configuration_names_what_is_there(kind: type[SampledBenchmark]) -> None:
    name = {DatasetLevel: "dataset_level", FieldLevel: "field_level"}[kind]
    keys = set(OmegaConf.load(ROOT / "conf" / "benchmark" / f"{name}.yaml").benchmark) - {"_target_"}
    known = {*inspect.signature(kind).parameters, *inspect.signature(SampledBenchmark).parameters} - {"more"}
    assert keys <= known and {*known} - keys <= {"distractors"}
    with pytest.raises(InputError, match=r"data\.papers: name a file of papers"):
        sampled = DatasetLevel(None, RULES, [5], queries=3)
        (sampled if kind is DatasetLevel else FieldLevel(None, RULES, 5, queries=3)).sampler()


@pytest.mark.slow
def test_the_command(world_file: Path, tmp_path: Path) -> None:
    command = [
        sys.executable,
        str(ROOT / "evaluate.py"),
        "benchmark=dataset_level",
        f"data.papers={world_file}",
    ]
    command += ["benchmark.sizes=[80,100]", "benchmark.rules.min_citations=0", "queries=5", "output_dir=out"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert set(json.loads((tmp_path / "out" / "metrics.json").read_text())) == {"80", "100"}
    command[command.index("benchmark.sizes=[80,100]")] = "benchmark.sizes=[80,5000]"
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert done.returncode == 2 and "a pool of 5,000 papers cannot be filled" in done.stderr
    assert len([line for line in done.stderr.splitlines() if line.startswith("error:")]) == 1
