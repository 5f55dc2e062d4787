"""Global benchmarks and what cannot be used: one line that names it, or a count of what is passed over."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from datasets.errors import InputError
from evaluation.benchmark import Benchmark
from evaluation.benchmarks.csfcube import FACETS, CSFCube
from evaluation.benchmarks.mdcr import MDCR
from evaluation.benchmarks.sampled import DatasetLevel, FieldLevel
from evaluation.benchmarks.scidocs import METADATA, TASKS, SciDocs
from evaluation.report import Provenance
from evaluation.settings import SamplingRules
from retrieval.base import Ranking, Retriever
from retrieval.bm25 import BM25
from tests.evaluation.conftest import metrics_of, world, write_lines

POOL = [f"c{number}" for number in range(24)]
FOLDS = ("fold1_dev", "fold1_test", "fold2_test")
RULES = SamplingRules(min_citations=0, min_cited=2)


class Damaged(BM25):
    """BM25 whose scores are NaN, as those of weights that diverged."""

    def _search(self, contexts: Any, k: int, allowed: Any) -> Ranking:
        found = super()._search(contexts, k, allowed)
        return Ranking(found.papers, np.where(found.papers >= 0, np.float32("nan"), found.scores))


def texts(*names: str) -> list[dict[str, Any]]:
    return [{"paper_id": name, "title": f"graphs of {name}", "abstract": "words of graphs"} for name in names]


def mdcr(folder: Path, papers: list[dict[str, Any]]) -> MDCR:
    """A query with its pool."""
    pool = {"random": POOL[2:], "true": POOL[:2]}
    (folder / "mdcr.json").write_text(json.dumps({"Art": {"q": pool}}))
    write_lines(folder / "mdcr_data.jsonl", papers)
    return MDCR(file=folder / "mdcr.json", cache_dir=folder / "cache")


def csfcube(folder: Path, papers: list[dict[str, Any]]) -> CSFCube:
    """The same as a pool of each facet."""
    grades = [3, 2, *[0] * 22]
    for facet in FACETS:
        pools = {"q": {"cands": POOL, "relevance_adju": grades}}
        (folder / f"test-pid2anns-csfcube-{facet}.json").write_text(json.dumps(pools))
    asked = {facet: [f"q_{facet}"] for facet in FACETS} | {"all": [f"q_{facet}" for facet in FACETS]}
    folds = {facet: dict.fromkeys(FOLDS, queries) for facet, queries in asked.items()}
    (folder / "evaluation_splits.json").write_text(json.dumps(folds))
    write_lines(folder / "abstracts-csfcube-preds.jsonl", papers)
    return CSFCube(dir=folder, cache_dir=folder / "cache")


def scidocs(folder: Path, papers: list[dict[str, Any]]) -> SciDocs:
    """The same as a pool of each task."""
    for name in TASKS.values():
        (folder / name).mkdir()
        lines = [f"q 0 {paper} {int(place < 2)}" for place, paper in enumerate(POOL)]
        (folder / name / "test.qrel").write_text("\n".join(lines) + "\n")
    (folder / METADATA).write_text(json.dumps({paper["paper_id"]: paper for paper in papers}))
    return SciDocs(dir=folder, cache_dir=folder / "cache")


def dataset_level(folder: Path, papers: list[dict[str, Any]], kind: Any = DatasetLevel, **more: Any) -> Any:
    given = {"rules": RULES, "queries": 3, "samplings": 1, "tune": None, "cache_dir": folder / "cache"}
    return kind(papers=write_lines(folder / "papers.jsonl", papers), **given, **(more or {"sizes": [100]}))


def field_level(folder: Path, papers: list[dict[str, Any]], **more: Any) -> FieldLevel:
    made: FieldLevel = dataset_level(
        folder, papers, FieldLevel, size=100, min_queries=1, run_depth=None, **more
    )
    return made


def refused(benchmark: Benchmark, folder: Path, retriever: type[Retriever] = BM25) -> str:
    """The line that ends it; nothing is left that looks like a result."""
    with pytest.raises(InputError) as error:
        benchmark.run(folder / "out", Provenance(), retriever)
    assert "\n" not in str(error.value) and not (folder / "out" / "metrics.json").exists()
    return str(error.value)


@pytest.mark.parametrize("make", [mdcr, csfcube, scidocs, dataset_level, field_level])
def test_nan_as_the_score_of_a_retriever_is_named(tmp_path: Path, make: Any) -> None:
    sampled = make in (dataset_level, field_level)
    benchmark = make(tmp_path, world() if sampled else texts("q", *POOL))
    line = refused(benchmark, tmp_path, Damaged)
    assert re.match(rf"retriever=bm25: NaN scores for \d+ queries, such as {'p' if sampled else ''}\w+", line)


@pytest.mark.parametrize("make", [mdcr, csfcube])
def test_ids_that_the_texts_lack_are_named(tmp_path: Path, make: Any) -> None:
    line = refused(make(tmp_path, texts("q", *POOL[:-2])), tmp_path)
    assert line.endswith("2 papers of the benchmark are not in it: c22, c23") and ".jsonl: " in line


def test_ids_that_the_texts_lack_are_counted_where_the_official_script_skips_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    scidocs(tmp_path, texts("q", *POOL[1:])).run(tmp_path / "out", Provenance(), BM25)
    assert any(line.endswith("lacks 1 papers of the benchmark: c0") for line in caplog.messages)
    told = "cite: 1 candidates are not scored and not ranked, as by the official script: q_c0."
    assert told in caplog.messages and told in (tmp_path / "out" / "report.md").read_text()
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert 0 < metrics["cite"]["map"] <= 50  # c0 was to be found, too


def test_queries_without_a_relevant_candidate_do_not_ask_and_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    papers = world()
    for paper in papers[60:90]:
        paper["references"] = ["elsewhere"]
    dataset_level(tmp_path, papers).run(tmp_path / "out", Provenance(), BM25)
    asked = json.loads((tmp_path / "out" / "sample.json").read_text())["queries"]["100"]
    assert not {paper["paper_id"] for paper in papers[60:90]} & set(asked)
    counted = next(line for line in caplog.messages if "cite fewer than 2 candidates" in line)
    assert int(counted.split()[0]) >= 30 and "are not later, and cannot" in counted
    assert any(
        line.startswith("30 citations are of or by papers that are in no file") for line in caplog.messages
    )
    for paper in papers:
        paper["references"] = []
    line = refused(dataset_level(tmp_path, papers), tmp_path / "none")
    assert "no paper passes the filters and cites 2 or more that do" in line


def test_a_field_without_queries_is_named_or_counted(tmp_path: Path) -> None:
    papers = world()
    papers[0]["fields"] = ["Music"]
    field_level(tmp_path, papers).run(tmp_path / "out", Provenance(), BM25)
    assert set(metrics_of(tmp_path / "out")) == {"Art", "Law", "Physics", "AVG"}
    told = "1 fields have fewer than 1 queries and are left out: Music (0)."
    assert told in (tmp_path / "out" / "report.md").read_text()
    named = field_level(tmp_path, papers, fields=["Art", "Music"])
    assert "1 fields have fewer than 1 queries: Music (0)" in refused(named, tmp_path / "none")
