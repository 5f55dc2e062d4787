"""Dataset-level and field-level evaluation: rankings of pools, measures, tuning, and what is written."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from datasets.citations.corpus import Asked, corpus_of
from datasets.citations.graph import open_graph
from datasets.errors import InputError
from evaluation.compare import compare
from evaluation.global_sampling.dataset_level import DatasetLevel
from evaluation.global_sampling.field_level import FieldLevel
from evaluation.global_sampling.pools import Pool, dataset_pools
from evaluation.global_sampling.ranking import PoolRanker, means
from evaluation.global_sampling.rules import Rules, Sampler
from evaluation.global_sampling.tuning import Tuning, tune
from evaluation.pool_curves import pool_curves
from evaluation.report import Provenance
from retrieval.article import ArticleEncoder, ArticleRetriever
from retrieval.base import Retriever
from retrieval.bm25 import BM25
from retrieval.models import ArticleConfig
from retrieval.runs import Run

ROOT = Path(__file__).parents[2]
RULES = Rules(year=2005, min_citations=0)
Make = Callable[[], Retriever]


@pytest.fixture
def sampler(world_file: Path, distractors_file: Path, tmp_path: Path) -> Sampler:
    graph = open_graph(world_file, distractors=distractors_file, cache_dir=tmp_path / "cache")
    return Sampler(graph, RULES, seed=0)


@pytest.fixture
def article(tiny_bert: Path) -> Make:
    config = ArticleConfig("tiny", path=str(tiny_bert), max_tokens=32, query=("title", "context"))
    return lambda: ArticleRetriever(ArticleEncoder.pretrained(config), "float32")


def ranked_alone(
    sampler: Sampler, pool: Pool, make: Make, depth: int, folder: Path
) -> list[list[tuple[str, float]]]:
    """What a retriever finds in a corpus that has no other papers than the pool (and what asks)."""
    rows = np.union1d(pool.papers, pool.queries)
    asked = Asked(np.sort(pool.queries), sampler.relevant.take(np.sort(pool.queries)))
    corpus = corpus_of(sampler.graph, rows, {"test": asked}, "alone", folder)
    corpus.is_candidate = np.isin(rows, pool.papers)
    retriever = make()
    retriever.index(corpus)
    place = {corpus.context_ids[row]: row for row in range(len(pool.queries))}
    contexts = [place[sampler.graph.ids[row]] for row in pool.queries.tolist()]
    found = retriever.search(np.array(contexts), depth)
    return [
        [
            (corpus.paper_ids[p], round(s, 4))
            for p, s in zip(papers.tolist(), scores.tolist(), strict=True)
            if p >= 0
        ]
        for papers, scores in zip(found.papers, found.scores, strict=True)
    ]


def listed(run: Run) -> list[list[tuple[str, float]]]:
    ranking = run.ranking
    return [
        [
            (run.paper_ids[p], round(s, 4))
            for p, s in zip(papers.tolist(), scores.tolist(), strict=True)
            if p >= 0
        ]
        for papers, scores in zip(ranking.papers, ranking.scores, strict=True)
    ]


@pytest.mark.parametrize("kind", ["bm25", "threads", "article"])
def test_a_pool_is_ranked_as_if_there_were_no_other_papers(
    sampler: Sampler, tmp_path: Path, article: Make, kind: str
) -> None:
    make = {"bm25": BM25, "threads": lambda: BM25(threads=3), "article": article}[kind]
    queries, _ = sampler.queries(7, 0)
    pools = dataset_pools(sampler, queries, [70, 140], 2)
    ranker = PoolRanker(sampler, pools, [], "world", tmp_path / "cache", 25)
    for pool, run in zip(pools, ranker.ranked(make(), pools, tmp_path / "index"), strict=True):
        assert run.query_ids == [f"{pool.group}/{sampler.graph.ids[row]}" for row in pool.queries]
        alone = ranked_alone(sampler, pool, article if kind == "article" else BM25, 25, tmp_path / "cache")
        if kind == "article":  # sums in another order: the same papers where scores are not nearly equal
            alone_scores = [[score for _, score in found] for found in alone]
            assert [[score for _, score in found] for found in listed(run)] == [
                pytest.approx(found, abs=2e-4) for found in alone_scores
            ]
        else:
            assert listed(run) == alone
        own = [sampler.graph.ids[row] for row in pool.queries]
        assert all(query not in dict(found) for query, found in zip(own, listed(run), strict=True))
    again = [listed(run) for run in ranker.ranked(make(), pools, tmp_path / "index")]  # from the disk
    assert again == [listed(run) for run in ranker.ranked(make(), pools, None)]


def test_without_a_year_no_query_finds_what_is_later(
    world_file: Path, distractors_file: Path, tmp_path: Path
) -> None:
    graph = open_graph(world_file, distractors=distractors_file, cache_dir=tmp_path / "cache")
    sampler = Sampler(graph, Rules(min_citations=0), seed=0)
    queries, _ = sampler.queries(20, 0)
    pools = dataset_pools(sampler, queries, [150], 1)
    ranker = PoolRanker(sampler, pools, [], "world", tmp_path / "cache", 150)
    (run,) = ranker.ranked(BM25(), pools, None)
    years = dict(zip(graph.ids, graph.years.tolist(), strict=True))
    for row, found in zip(queries.tolist(), listed(run), strict=True):
        names = [paper for paper, _ in found]
        assert all(paper.startswith("x") or years[paper] <= graph.years[row] for paper in names)
        assert any(paper.startswith("x") for paper in names)  # of 2018, later than all


def plain_measures(found: list[str], relevant: set[str]) -> dict[str, float]:
    """Average precision, nDCG and recall at 30 of a list, by their definitions, in percent."""
    hits = [paper in relevant for paper in found]
    precisions = [sum(hits[: i + 1]) / (i + 1) for i in range(len(hits)) if hits[i]]
    gain = sum(1 / np.log2(i + 2) for i in range(len(hits)) if hits[i])
    ideal = sum(1 / np.log2(i + 2) for i in range(len(relevant)))
    values = (sum(precisions) / len(relevant), gain / ideal, sum(hits[:30]) / len(relevant))
    return dict(zip(("map", "ndcg", "recall_30"), (100 * value for value in values), strict=True))


def test_measures_are_their_definitions(sampler: Sampler, tmp_path: Path) -> None:
    pools = dataset_pools(sampler, sampler.queries(9, 0)[0], [90], 1)
    ranker = PoolRanker(sampler, pools, [], "world", tmp_path / "cache", 40)
    (run,) = ranker.ranked(BM25(), pools, None)
    values = ranker.values(run, pools[0])
    batch = next(iter(run.batches(9)))
    plain = []
    for row in pools[0].queries.tolist():
        names = batch[f"90/{sampler.graph.ids[row]}"]
        relevant = {sampler.graph.ids[one] for one in sampler.relevant[row].tolist()}
        plain.append(plain_measures(sorted(sorted(names, reverse=True), key=lambda p: -names[p]), relevant))
    for name, value in means(values).items():
        assert value == pytest.approx(np.mean([row[name] for row in plain]))


def test_the_best_parameters_are_those_of_the_highest_validation_map(
    sampler: Sampler, tmp_path: Path
) -> None:
    test, val = sampler.queries(4, 6)
    tests, vals = (dataset_pools(sampler, rows, [100], 1) for rows in (test, val))
    ranker = PoolRanker(sampler, tests, vals, "world", tmp_path / "cache", 100)
    retriever = BM25()
    tuned = tune(Tuning(k1=[0.0, 1.2, 8.0], b=[0.0, 1.0]), ranker, vals, retriever)
    for (k1, b), value in tuned.tried.items():
        (run,) = ranker.ranked(BM25(k1=k1, b=b), vals, None)
        assert value == pytest.approx(means(ranker.values(run, vals[0]))["map"])
    assert tuned.tried[tuned.k1, tuned.b] == max(tuned.tried.values()) and len(tuned.tried) == 6
    assert (retriever.settings()["k1"], retriever.settings()["b"]) == (tuned.k1, tuned.b)
    with pytest.raises(InputError, match=r"benchmark\.tune: no queries are left for validation"):
        tune(Tuning(), ranker, [], retriever)


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
