"""Our retrievers and rerankers as PyTerrier transformers, with the real package: make test-peers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from citerec.datasets.corpus import Corpus
from citerec.evaluation import evaluate
from citerec.rerank.cross_encoder.reranker import Reranker
from citerec.rerank.settings import ScoringSettings
from citerec.retrieval.lexical.bm25 import BM25
from citerec.retrieval.popularity import Popularity

pd, pt = pytest.importorskip("pandas"), pytest.importorskip("pyterrier")
K = 20


@pytest.fixture
def bm25(demo_corpus: Corpus) -> BM25:
    return BM25().index(demo_corpus)


def test_an_experiment_has_our_figures(demo_corpus: Corpus, bm25: BM25, tiny_reranker: Path) -> None:
    from citerec.interop.pyterrier import Rerank, Retrieve, qrels, topics

    reranker = Reranker.open(tiny_reranker, ScoringSettings("float32"))
    first = Retrieve(bm25, K)
    second: Any = first % 5 >> Rerank(reranker, demo_corpus)
    asked, cited = topics(demo_corpus, "test"), qrels(demo_corpus, "test")
    names = ["bm25", "reranked", "popularity"]
    systems = [first, second, Retrieve(Popularity().index(demo_corpus), K)]
    table = pt.Experiment(systems, asked, cited, ["recip_rank", "recall_5"], names=names, baseline=0)
    split = demo_corpus.split("test")
    ranking = bm25.search(split, K)
    result = evaluate(ranking, ["MRR", "R@5"])
    assert table["recip_rank"][0] == pytest.approx(result["MRR"], abs=1e-4)
    assert table["recall_5"][0] == pytest.approx(result["R@5"], abs=1e-4)
    assert table["recall_5"][1] == pytest.approx(result["R@5"], abs=1e-4)  # the same five papers
    top = ranking.papers[:, :5]
    assert ranking.queries
    scores = reranker.score_candidates(ranking.queries, top)
    results = second(asked)
    for row, (qid, own) in enumerate(zip(asked["qid"], asked["own"], strict=True)):
        of = results[results["qid"] == qid].sort_values("rank")
        order = np.argsort(-scores[row], kind="stable")
        assert own not in set(of["docno"])
        np.testing.assert_allclose(of["score"], scores[row][order], rtol=1e-5)
        assert set(of["docno"]) == {demo_corpus.paper_ids[paper] for paper in top[row] if paper >= 0}


def test_topics_of_others_have_a_query_alone(demo_corpus: Corpus, bm25: BM25) -> None:
    from citerec.interop.pyterrier import Rerank, Retrieve

    text = demo_corpus.titles[7]
    results = Retrieve(bm25, 3).search(text)
    assert results["docno"][0] == demo_corpus.paper_ids[7] and list(results["rank"]) == [0, 1, 2]
    again = Rerank(bm25)(results)
    np.testing.assert_allclose(again["score"], results["score"], rtol=1e-5)
    rewritten: Any = pt.apply.query(lambda topic: topic["query"] + " TARGETCIT") >> Retrieve(bm25, 3)
    assert list(rewritten.search(text)["docno"]) == list(results["docno"])
    fused = Retrieve(bm25, 3) + Retrieve(Popularity().index(demo_corpus), 3)  # PyTerrier's own operators
    assert len(fused.search(text)) >= 3


def test_labels_of_rows_may_be_there_twice_and_values_may_be_missing(demo_corpus: Corpus, bm25: BM25) -> None:
    from citerec.interop.pyterrier import Rerank, Retrieve, topics

    asked = topics(demo_corpus, "test")[:4]
    asked["known"] = [None, [demo_corpus.paper_ids[0]], float("nan"), ()]
    asked["year"] = asked["year"].astype("Int64")
    asked.loc[1, "year"] = None
    halves = pd.concat([asked[:2].reset_index(drop=True), asked[2:].reset_index(drop=True)])
    first, popular = Retrieve(bm25, 3), Retrieve(Popularity().index(demo_corpus), 3)
    expected = first(asked)
    assert first(halves).equals(expected)
    joined = (first | popular)(asked)  # pd.concat, with the labels of both
    scores = Rerank(bm25)(joined).set_index(["qid", "docno"])["score"]
    for row in expected.itertuples():
        assert scores[row.qid, row.docno] == pytest.approx(row.score, rel=1e-5)
