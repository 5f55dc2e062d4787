"""The pipeline as users run it: in processes of its own."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from retrieval.run import Run

ROOT = Path(__file__).parents[2]
MEASURES = ("recall@10", "mrr", "base/recall@10", "base/mrr", "ceiling")

pytestmark = pytest.mark.slow


def evaluate(folder: Path, *arguments: str, processes: int = 1) -> subprocess.CompletedProcess[str]:
    """Run evaluate.py in `folder`, on the source files in `folder`/tiny."""
    python = [sys.executable]
    if processes > 1:
        python += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    data = ["data=custom", "data.dir=tiny", "data.papers=tiny/papers.json", "data.cache_dir=cache"]
    command = [*python, str(ROOT / "evaluate.py"), *arguments, "benchmark=pipeline", *data]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)


def metrics_in(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "metrics.json").read_text())
    return found


def scored(folder: Path) -> list[list[int]]:
    """The keys of all pairs that were ever scored, by file."""
    files = sorted((folder / "cache" / "pair-scores").rglob("*.safetensors"))
    return [load_file(file)["keys"].tolist() for file in files]


@pytest.fixture
def folder(tiny_source: Path, tiny_reranker: Path) -> Path:
    shutil.copytree(tiny_reranker, tiny_source.parent / "reranker")
    return tiny_source.parent


def test_the_fixed_names_by_one_process_and_by_two(folder: Path) -> None:
    given = ["retriever=bm25", "checkpoint=null", "reranker=reranker", "candidates=7", "queries=3"]
    given += ["split=test", "scoring.precision=float32", "benchmark.fuse=score", "benchmark.chunk=5"]
    done = evaluate(folder, *given, "output_dir=two", processes=2)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Base -> Reranked: MRR") == 1 and "two/report.md" in done.stdout
    keys = scored(folder)
    assert len(keys) > 1 and len({key for part in keys for key in part}) == sum(map(len, keys))
    shutil.rmtree(folder / "cache" / "pair-scores")
    done = evaluate(folder, *given, "output_dir=one")
    assert done.returncode == 0, done.stderr
    assert sorted(key for part in scored(folder) for key in part) == sorted(k for part in keys for k in part)
    one, two = metrics_in(folder / "one"), metrics_in(folder / "two")
    assert one["queries"] == 3 and {"pairs_per_second", "seconds_per_query", *MEASURES} <= one.keys()
    times = {name for name in one if "second" in name}
    assert {k: v for k, v in one.items() if k not in times} == {
        k: v for k, v in two.items() if k not in times
    }
    rankings = [Run.read(folder / name / "run.trec").ranking for name in ("one", "two")]
    assert (rankings[0].papers == rankings[1].papers).all()
    assert np.allclose(rankings[0].scores, rankings[1].scores, atol=1e-5)
    report = (folder / "one" / "report.md").read_text()
    assert "benchmark=pipeline" in report and "Base -> Reranked" in report


def test_a_sweep_over_candidates_has_its_tables_and_keeps_what_did_not_fail(folder: Path) -> None:
    sweep = ["-m", "retriever=bm25", "reranker=reranker,nowhere", "candidates=2,5", "output_dir=out"]
    done = evaluate(folder, *sweep)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert done.stderr.startswith("error: 2 of 4 jobs failed; reranker=nowhere candidates=2: nowhere: ")
    jobs = [metrics_in(folder / "out" / number) for number in "01"]
    keys = [key for part in scored(folder) for key in part]
    assert len(keys) == len(set(keys)) == jobs[1]["pairs"] > jobs[0]["pairs"] == jobs[0]["pairs_new"]
    summary = (folder / "out" / "summary.md").read_text()
    assert (
        "| reranked candidates | R@10 | MRR | prefetch ceiling | s/query | base R@10 | base MRR |" in summary
    )
    assert "| pipeline | 2 | 5 |\n" in summary and "reranker=nowhere candidates=5: nowhere: " in summary
    assert (folder / "out" / "reranking.png").read_bytes().startswith(b"\x89PNG")
    with (folder / "out" / "summary.csv").open(newline="") as file:
        assert [row["failure"] == "" for row in csv.DictReader(file)] == [True, True, False, False]


def test_what_cannot_be_used_is_one_line_and_code_2(folder: Path) -> None:
    (folder / "other.trec").write_text("q7 Q0 p8 1 0.5 other\n")
    done = evaluate(folder, "retriever=run", "retriever.files=[other.trec]", "reranker=reranker")
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("error: other.trec: corpus tiny has none of the run's 1 queries")
