"""Pools are ranked and measured as if there were no other papers, and BM25 is tuned on others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from datasets.citations.graph import open_graph
from datasets.citations.queries import QuerySet, corpus_of
from datasets.errors import InputError
from evaluation.benchmarks.sampling import (
    Pool,
    PoolRanker,
    Rules,
    Sampler,
    Tuning,
    dataset_pools,
    means,
    tune,
)
from retrieval.article import ArticleRetriever
from retrieval.base import Retriever
from retrieval.bm25 import BM25
from retrieval.encoder import ArticleEncoder
from retrieval.run import Run
from retrieval.settings import ArticleConfig

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
    asked = QuerySet(np.sort(pool.queries), sampler.relevant.take(np.sort(pool.queries)))
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
