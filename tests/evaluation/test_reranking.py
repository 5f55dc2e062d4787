"""Candidates that hold the cited paper for certain, and what is published of such evaluations."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from datasets.corpus import Corpus
from evaluation.pipeline import Reranking, appended
from retrieval.base import Ranking
from retrieval.filters import Filters
from retrieval.popularity import Popularity
from retrieval.run import Run


def test_appended_papers_stand_behind_those_that_were_found() -> None:
    ranking = Ranking(
        np.array([[4, 2], [7, -1], [-1, -1]], np.int32),
        np.array([[3, 1], [2, -np.inf], [-np.inf, -np.inf]], np.float32),
    )
    found = appended(ranking, [np.array([2, 9, 8]), np.array([7]), np.array([5])])
    assert found.papers.tolist() == [[4, 2, 8, 9], [7, -1, -1, -1], [5, -1, -1, -1]]
    assert found.scores[0].tolist() == [3, 1, 0, -1] and np.isneginf(found.scores[1, 1:]).all()
    assert appended(ranking, [np.empty(0, np.int32)] * 3).papers.tolist() == ranking.papers.tolist()


def reranking(reranker: Path, folder: Path, candidates: int | str) -> Reranking:
    return Reranking(reranker, candidates, cutoffs=[1, 10], depths=[], scores_dir=folder / "scores")


def test_the_oracle_always_has_the_cited_paper(
    tiny_corpus: Corpus, tiny_reranker: Path, tmp_path: Path
) -> None:
    metrics = reranking(tiny_reranker, tmp_path, 2)(Popularity(), tiny_corpus, "test", tmp_path)
    base, final = (next(Run.read(tmp_path / f"{name}run.trec").batches(9)) for name in ("base-", ""))
    # "parsing" is the most popular; of the equals after it the first comes next.
    assert {query: list(papers) for query, papers in base.items()} == {
        "c9": ["parsing", "graph", "speech"],
        "c10": ["parsing", "graph"],
        "c11": ["parsing", "graph", "poetry"],
        "c12": ["parsing", "graph", "vision"],
    }
    assert all(set(final[query]) == set(base[query]) for query in base)
    assert metrics["ceiling"] == metrics["recall@10"] == 1 and metrics["base/recall@2"] == 0.25
    assert metrics["pairs"] == 11 and metrics["benchmark"] == "rerank"
    report = (tmp_path / "report.md").read_text()
    assert "candidates of an oracle: the first 2 of popularity" in report
    assert "DualEnh (Medić and Šnajder 2020) | 0.366 | 0.703 |" in report and "as published" in report


def test_the_whole_database_is_every_paper_but_the_citing_one(
    tiny_corpus: Corpus, tiny_reranker: Path, tmp_path: Path
) -> None:
    metrics = reranking(tiny_reranker, tmp_path, "all")(Popularity(), tiny_corpus, "test", tmp_path)
    run = next(Run.read(tmp_path / "run.trec").batches(9))
    papers = {p for p, may in zip(tiny_corpus.paper_ids, tiny_corpus.is_candidate, strict=True) if may}
    assert set(run["c9"]) == papers - {"citing-test-1"} and metrics["pairs"] == 4 * 10


def test_filters_hold_for_what_is_appended(tiny_corpus: Corpus, tiny_reranker: Path, tmp_path: Path) -> None:
    only = Filters(exclude=["poetry", "graph"])
    metrics = reranking(tiny_reranker, tmp_path, 1)(Popularity(), tiny_corpus, "test", tmp_path, filters=only)
    assert metrics["ceiling"] == 0.75
    for candidates in (1, "all"):
        reranking(tiny_reranker, tmp_path, candidates)(
            Popularity(), tiny_corpus, "test", tmp_path, filters=only
        )
        assert not {"poetry", "graph"} & {line.split()[2] for line in (tmp_path / "run.trec").open()}
