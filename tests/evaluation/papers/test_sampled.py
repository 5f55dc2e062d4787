"""Dataset-level and field-level evaluation: rankings, tuning, output files, reports and errors."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from citerec.base.errors import InputError
from citerec.datasets.citations.graph import CitationGraph
from citerec.datasets.citations.queries import QuerySet, graph_corpus
from citerec.evaluation.benchmark import Output
from citerec.evaluation.benchmarks.papers.sampled import DatasetLevel, FieldLevel, PoolRanker, tune
from citerec.evaluation.benchmarks.papers.sampling import SampledPool, Sampler, dataset_pools
from citerec.evaluation.comparison import compare_outputs
from citerec.evaluation.report import Provenance, to_markdown
from citerec.evaluation.settings import SamplingRules, Tuning
from citerec.retrieval.base import Ranking, Retriever
from citerec.retrieval.citations import Citations
from citerec.retrieval.encoders.article import ArticleRetriever
from citerec.retrieval.encoders.encoder import ArticleEncoder
from citerec.retrieval.fusion import Fusion
from citerec.retrieval.lexical.bm25 import BM25
from citerec.retrieval.settings import ArticleConfig
from citerec.tests.conftest import Done
from citerec.tests.datasets.conftest import write_lines
from citerec.tests.evaluation.conftest import Damaged, metrics_of, world

RULES = SamplingRules(year=2005, min_citations=0)
Make = Callable[[], Retriever]


@pytest.fixture
def sampler(graph: CitationGraph) -> Sampler:
    return Sampler(graph, RULES, seed=0)


@pytest.fixture
def article(tiny_bert: Path) -> Make:
    config = ArticleConfig("tiny", path=str(tiny_bert), max_tokens=32, query=("title", "context"))
    return lambda: ArticleRetriever(ArticleEncoder.pretrained(config), "float32")


def listed(ranking: Ranking, ids: Any) -> list[list[tuple[str, float]]]:
    """List each query's papers with their scores."""
    return [
        [(ids[p], round(s, 4)) for p, s in zip(papers.tolist(), scores.tolist(), strict=True) if p >= 0]
        for papers, scores in zip(ranking.papers, ranking.scores, strict=True)
    ]


def ranked_alone(
    sampler: Sampler, pool: SampledPool, make: Make, depth: int, folder: Path
) -> list[list[tuple[str, float]]]:
    """Rank a pool in a corpus that has only the pool's papers and queries."""
    rows = np.union1d(pool.papers, pool.queries)
    queries = QuerySet(np.sort(pool.queries), sampler.relevant.take(np.sort(pool.queries)))
    corpus = graph_corpus(sampler.graph, rows, {"test": queries}, "alone", folder)
    corpus.is_candidate = np.isin(rows, pool.papers)
    retriever = make().index(corpus)
    context_rows = {corpus.context_ids[row]: row for row in range(len(pool.queries))}
    contexts = [context_rows[sampler.graph.ids[row]] for row in pool.queries.tolist()]
    return listed(retriever.search(np.array(contexts), depth), corpus.paper_ids)


def fusion() -> Retriever:
    """A fusion of a part, as the text of a retriever that leaves the graph alone."""
    return Citations(Fusion({"bm25": BM25()}, weights="equal"), weights={"text": 1, "cited": 0, "citing": 0})


@pytest.mark.parametrize("kind", ["bm25", "threads", "article", "fusion"])
def test_a_pool_is_ranked_as_if_there_were_no_other_papers(
    sampler: Sampler, tmp_path: Path, article: Make, kind: str
) -> None:
    make = {"bm25": BM25, "threads": lambda: BM25(threads=3), "article": article, "fusion": fusion}[kind]
    pools = dataset_pools(sampler, sampler.queries(7, 0)[0], [70, 140], 2)
    ranker = PoolRanker(sampler, pools, [], "world", tmp_path / "cache", 25)
    ids = ranker.corpus.paper_ids
    first = []
    retriever = make()
    ranker.open(retriever, tmp_path / "index")
    for pool in pools:
        run = ranker.rank(retriever, pool, tmp_path / "index")
        own = [sampler.graph.ids[row] for row in pool.queries]
        assert run.query_ids == [f"{pool.group}/{query}" for query in own]
        result = listed(run.ranking, ids)
        alone = ranked_alone(sampler, pool, BM25 if kind == "threads" else make, 25, tmp_path / "cache")
        if kind == "article":  # another order of summation may swap near-ties, so compare only scores
            scores = [[score for _, score in query] for query in alone]
            assert [[s for _, s in query] for query in result] == [
                pytest.approx(query, abs=2e-4) for query in scores
            ]
        else:
            assert result == alone
        assert all(query not in dict(papers) for query, papers in zip(own, result, strict=True))
        first.append(result)
    for index_dir in (tmp_path / "index", None):  # loaded from disk, and built again
        retriever = make()
        ranker.open(retriever, index_dir)
        assert [listed(ranker.rank(retriever, pool, index_dir).ranking, ids) for pool in pools] == first


def test_without_a_year_no_query_finds_later_papers(graph: CitationGraph, tmp_path: Path) -> None:
    sampler = Sampler(graph, SamplingRules(min_citations=0), seed=0)
    queries, _ = sampler.queries(20, 0)
    pools = dataset_pools(sampler, queries, [150], 1)
    ranker = PoolRanker(sampler, pools, [], "world", tmp_path / "cache", 150)
    run = ranker.rank(BM25(), pools[0], None)
    years = dict(zip(graph.ids, graph.years.tolist(), strict=True))
    for row, result in zip(queries.tolist(), listed(run.ranking, run.paper_ids), strict=True):
        names = [paper for paper, _ in result]
        assert all(paper.startswith("x") or years[paper] <= graph.years[row] for paper in names)
        assert any(paper.startswith("x") for paper in names)  # of 2018, later than all queries


def test_tuning_selects_the_highest_validation_map(sampler: Sampler, tmp_path: Path) -> None:
    tests, vals = (dataset_pools(sampler, rows, [100], 1) for rows in sampler.queries(4, 6))
    ranker = PoolRanker(sampler, tests, vals, "world", tmp_path / "cache", 100)
    retriever = BM25()
    tuned = tune(Tuning(k1=(0.0, 1.2, 8.0), b=(0.0, 1.0)), ranker, vals, retriever)
    for (k1, b), value in tuned.maps.items():
        run = ranker.rank(BM25(k1=k1, b=b), vals[0], None)
        assert value == pytest.approx(100 * ranker.measure(run, vals[0])["map"].mean())
    assert tuned.maps[tuned.k1, tuned.b] == max(tuned.maps.values()) and len(tuned.maps) == 6
    with pytest.raises(InputError, match=r"benchmark\.tune: no queries left for validation"):
        tune(Tuning(), ranker, [], retriever)


def test_each_pool_size_has_its_own_parameters(
    world_file: Path, distractors_file: Path, tmp_path: Path
) -> None:
    options = settings_of(
        world_file, tmp_path, distractors=distractors_file, samplings=1, depth=50, queries=6
    )
    tuning, sizes = Tuning(k1=(0.0, 1.2, 8.0), b=(0.0, 1.0), queries=6), [80, 150]
    result = DatasetLevel(sizes=sizes, **{**options, "tune": tuning}).run(
        tmp_path / "own", Provenance(), BM25
    )
    tuned = json.loads((tmp_path / "own" / "sample.json").read_text())["tuned"]
    for size, text in zip(sizes, [part.split(": MAP")[0] for part in tuned.split("; ")], strict=True):
        assert text.startswith(f"{size} papers: k1 = ")
        k1, b = (float(part.split(" = ")[1]) for part in text.split(": ")[1].split(", "))
        fixed = DatasetLevel(sizes=[size], **options)
        alone = fixed.run(tmp_path / "fixed", Provenance(), partial(BM25, k1=k1, b=b)).metrics
        assert alone[str(size)]["map"] == result.metrics[str(size)]["map"]


def settings_of(world_file: Path, tmp_path: Path, **more: Any) -> dict[str, Any]:
    options = {"papers": world_file, "rules": RULES, "queries": 6, "cache_dir": tmp_path / "cache"}
    return options | {"tune": None} | more


@pytest.mark.pictures
def test_output_files(world_file: Path, distractors_file: Path, tmp_path: Path) -> None:
    item, two, other = (tmp_path / name for name in ("one", "two", "other"))
    options = settings_of(world_file, tmp_path, distractors=distractors_file, depth=50)
    options["tune"] = Tuning(k1=(1.2, 2.0), b=(0.5,), queries=3)
    benchmark = DatasetLevel(sizes=[150, 80], **options)
    for folder in (item, two):
        benchmark.run(folder, Provenance("the command", "a: 1"), BM25)
    files = ["metrics.json", "per_query.csv", "report.md", "sample.json"]
    assert sorted(path.name for path in item.iterdir()) == files
    for name in ("metrics.json", "per_query.csv", "sample.json"):
        assert (item / name).read_bytes() == (two / name).read_bytes()
    metrics = metrics_of(item)
    assert list(metrics) == ["80", "150"] and metrics["80"]["samplings"] == 3 and metrics["80"]["map"] > 0
    rows = (item / "per_query.csv").read_text().splitlines()
    assert rows[0] == "query_id,citing_id,map,ndcg,recall_30" and len(rows) == 1 + 6 * 2 * 3
    result: dict[str, list[float]] = {}
    for row in rows[1:]:
        size, sampling, _ = row.split(",")[0].split("/")
        result.setdefault(f"{size}/{sampling}", []).append(float(row.split(",")[2]))
    of_80 = [100 * np.mean(result[f"80/{sampling}"]) for sampling in range(3)]
    assert metrics["80"]["map"] == pytest.approx(np.mean(of_80), abs=1e-4)
    assert metrics["80"]["map_sd"] == pytest.approx(np.std(of_80, ddof=1), abs=1e-4)
    report = (item / "report.md").read_text()
    assert "the command" in report and "60 distractors" in report
    assert "on validation, the best of 2 pairs" in report

    outputs = {"BM25": Output(item, metrics, {}), "again": Output(two, metrics, {})}
    rows = "\n".join(to_markdown(DatasetLevel.view(outputs, "arXiv"), tmp_path)).splitlines()
    first = next(row for row in rows if row.startswith("| BM25 |"))
    assert first.replace("BM25", "again") in rows and f" **{metrics['80']['map']:.2f}** ± " in first
    assert not (tmp_path / "map.png").exists()  # two sizes are no curve
    outputs = {"BM25": Output(item, {**metrics, "200": metrics["150"]}, {})}
    to_markdown(DatasetLevel.view(outputs, "arXiv"), tmp_path)
    assert (tmp_path / "map.png").stat().st_size > 5000
    assert compare_outputs(item, two, ["map"])["map"].difference == 0
    DatasetLevel(sizes=[80], **{**options, "queries": 5}).run(other, Provenance(), BM25)
    with pytest.raises(InputError, match=r"not comparable: groups is \{'80': 80, '150': 150\} and"):
        compare_outputs(item, other, ["map"])


def test_fields_are_measured_separately(
    world_file: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    options = settings_of(world_file, tmp_path, samplings=2, depth=20)
    out = tmp_path / "out"
    FieldLevel(size=30, min_queries=1, **{**options, "queries": 3}).run(out, Provenance(), BM25)
    metrics = metrics_of(out)
    assert list(metrics) == ["Art", "Law", "Physics", "AVG"]
    fields = [metrics[field] for field in ("Art", "Law", "Physics")]
    assert all(row["queries"] == 3 and row["candidates"] <= 30 for row in fields)
    assert metrics["AVG"]["map"] == pytest.approx(np.mean([row["map"] for row in fields]), abs=1e-4)
    queries = json.loads((out / "sample.json").read_text())["queries"]
    assert {field: len(ids) for field, ids in queries.items()} == {"Art": 3, "Law": 3, "Physics": 3}
    names = {f"{field}/{paper}" for field, ids in queries.items() for paper in ids}
    rows = (out / "per_query.csv").read_text().splitlines()[1:]
    assert {row.split(",")[0].replace("/0/", "/") for row in rows if "/0/" in row} == names

    def refused(**settings: Any) -> str:
        with pytest.raises(InputError) as error:
            FieldLevel(**{**options, **settings}).run(tmp_path / "no", Provenance(), BM25)
        return str(error.value)

    assert "no paper has the field 'Music'" in refused(size=30, fields=["Law", "Music"])
    few = refused(size=60, fields=["Art", "Physics"], min_queries=7)
    assert "2 fields have fewer than 7 queries of 2005: Art (" in few
    strict = {**options, "size": 60, "rules": SamplingRules(year=2005, min_citations=0, min_cited=4)}
    drawing = FieldLevel(min_queries=1, **strict)
    counts = [len(result) for result in drawing.queries_by_field(drawing.make_sampler())[0].values()]
    assert min(counts) < max(counts)  # otherwise nothing is left out below
    FieldLevel(min_queries=max(counts), **strict).run(tmp_path / "few", Provenance(), BM25)
    assert f"fields have fewer than {max(counts)} queries and are left out" in caplog.text


def test_papers_without_a_relevant_candidate_are_not_queries_and_are_counted(tmp_path: Path) -> None:
    papers = world()
    for paper in papers[60:90]:
        paper["references"] = ["elsewhere"]
    rules = SamplingRules(min_citations=0, min_cited=2)
    options = settings_of(write_lines(tmp_path / "papers.jsonl", papers), tmp_path, rules=rules, samplings=1)
    benchmark = DatasetLevel(sizes=[100], **options)
    benchmark.run(tmp_path / "out", Provenance(), BM25)
    queries = json.loads((tmp_path / "out" / "sample.json").read_text())["queries"]["100"]
    assert not {paper["paper_id"] for paper in papers[60:90]} & set(queries)
    report = (tmp_path / "out" / "report.md").read_text()
    assert re.search(r"(3\d|[4-9]\d) others cannot, because they cite fewer than 2 candidates\.", report)
    assert "30 citations involve papers that are in none of the files" in report
    with pytest.raises(InputError, match=r"^retriever=bm25: NaN scores for \d queries, such as p\d+"):
        benchmark.run(tmp_path / "nan", Provenance(), Damaged)
    assert not (tmp_path / "nan" / "metrics.json").exists()


def test_test_queries_of_one_field_are_not_validation_queries_of_another(tmp_path: Path) -> None:
    papers = [{**paper, "fields": ["Art", "Law"]} for paper in world()]
    options = settings_of(write_lines(tmp_path / "papers.jsonl", papers), tmp_path, samplings=1, depth=20)
    tuning = Tuning(k1=(1.2,), b=(0.5,), queries=20)
    benchmark = FieldLevel(size=100, min_queries=1, **{**options, "tune": tuning, "queries": 5})
    tests, vals, _ = benchmark.queries_by_field(benchmark.make_sampler(), 20)
    assert set(tests["Art"]) != set(tests["Law"])
    in_test = {*tests["Art"].tolist(), *tests["Law"].tolist()}
    assert all(len(rows) and not in_test & set(rows.tolist()) for rows in vals.values())
    benchmark.run(tmp_path / "out", Provenance(), BM25)
    assert list(metrics_of(tmp_path / "out")) == ["Art", "Law", "AVG"]


def test_the_command(world_file: Path, tmp_path: Path, evaluate: Callable[..., Done]) -> None:
    options = ["benchmark=dataset_level", f"data.papers={world_file}", "data.cache_dir=cache", "queries=5"]
    done = evaluate("benchmark=field_level", "output_dir=none")
    assert done.code == 2 and "data.papers: name a file of papers" in done.err
    options += ["benchmark.rules.min_citations=0", "benchmark.tune.k1=[1.2]", "output_dir=out"]
    done = evaluate(*options, "benchmark.sizes=[80,100]")
    assert done.code == 0 and set(metrics_of(tmp_path / "out")) == {"80", "100"}
    done = evaluate(*options, "benchmark.sizes=[80,5000]")
    assert done.code == 2 and "a pool of 5,000 papers cannot be filled" in done.err
    assert len([line for line in done.err.splitlines() if line.startswith("error:")]) == 1


def test_training_contexts_are_those_of_other_papers(sampler: Sampler, tmp_path: Path) -> None:
    queries, _ = sampler.queries(20, 0)
    pools = dataset_pools(sampler, queries, [100], 1)
    ranker = PoolRanker(sampler, pools, [], "world", tmp_path / "cache", 100, training=True)
    corpus, citing = ranker.corpus, {sampler.graph.ids[row] for row in queries.tolist()}
    training = {corpus.paper_ids[row] for row in corpus.citing[corpus.split("train").contexts].tolist()}
    assert training and not training & citing
    plain = PoolRanker(sampler, pools, [], "world", tmp_path / "cache", 100)
    (with_contexts,), (without,), (same,) = (
        [other.measure(other.rank(retriever, pools[0], None), pools[0])["map"].mean()]
        for other, retriever in ((ranker, BM25(contexts=100)), (plain, BM25()), (ranker, BM25()))
    )
    assert same == without != with_contexts
