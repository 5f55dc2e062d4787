"""Properties of every retriever: queries and contexts, given papers, saved indexes, batches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from citerec.datasets.corpus import Corpus
from citerec.datasets.prepare import open_corpus
from citerec.hatten.model import HAttenRetriever
from citerec.rerank.ranker.model import Ranker, RankingModel
from citerec.retrieval.base import Retriever
from citerec.retrieval.citations import Citations
from citerec.retrieval.encoders.article import article_retriever
from citerec.retrieval.filters import Filters
from citerec.retrieval.fusion import Fusion
from citerec.retrieval.lexical.bm25 import BM25
from citerec.retrieval.popularity import Popularity
from citerec.retrieval.queries import Queries, Query
from citerec.retrieval.run import CachedRun
from citerec.retrieval.settings import ArticleConfig, IndexConfig
from citerec.tests.conftest import write_tiny
from citerec.tests.hatten.made import random_model
from citerec.tests.rerank.made import linear
from citerec.tests.retrieval.made import assert_same, write_runs
from citerec.tests.retrieval.networks.test_store import network

ALL = np.arange(12)
FIELDS = ["title", "abstract", "context"]
Maker = Callable[[Corpus, Path, Path, Path], Retriever]


def hatten(corpus: Corpus, folder: Path, *_: Path) -> Retriever:
    if not (folder / "hatten").exists():
        random_model(corpus.words, dim=12, hidden=8, max_tokens=20).save(folder / "hatten")
    return HAttenRetriever(folder, arithmetic="float32")


def article(index: IndexConfig | None = None, **settings: Any) -> Maker:
    def make(_: Corpus, __: Path, bert: Path, ___: Path) -> Retriever:
        config = ArticleConfig("tiny", path=str(bert), max_tokens=64, **settings)
        return article_retriever(config, arithmetic="float32", index=index)

    return make


def run(corpus: Corpus, folder: Path, *_: Path) -> Retriever:
    return CachedRun(write_runs(BM25().index(corpus), corpus, folder, ["train", "val", "test"]))


def ranker(*_: Any) -> Retriever:
    model = RankingModel(linear({"bm25": 1.0, "title_share": 0.5, "citing_words": 0.7, "name_near": 1.0}))
    return Ranker(model, {"bm25": BM25(), "bm25_contexts": BM25(contexts=100)}, depth=15)


MAKERS: dict[str, Maker] = {
    "bm25": lambda *_: BM25(query=FIELDS, threads=2),
    "bm25_contexts": lambda *_: BM25(contexts=2),
    "rank_bm25": lambda *_: BM25(backend="rank_bm25", contexts=2),
    "popularity": lambda *_: Popularity(),
    "hatten": hatten,
    "article": article(),
    "half": article(IndexConfig("half")),
    "ivf": article(IndexConfig("ivf", lists=3, probes=1)),
    "l2": article(similarity="l2"),
    "sentences": article(pooling="aspire"),
    "network": lambda _, folder, __, networks: network(folder / "encoded", networks),
    "fusion": lambda *_: Fusion({"bm25": BM25(), "popularity": Popularity()}),
    "citations": lambda *_: Citations(BM25(), similar=5, depth=10),
    "run": run,
    "ranker": ranker,
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("every")
    return open_corpus(write_tiny(folder / "tiny"), cache_dir=folder / "cache")


@pytest.fixture(scope="module", params=MAKERS)
def make(
    request: Any,
    corpus: Corpus,
    tiny_bert: Path,
    tiny_networks: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[], Retriever]:
    folder = tmp_path_factory.mktemp("made")
    return lambda: MAKERS[request.param](corpus, folder, tiny_bert, tiny_networks)


@pytest.fixture(scope="module")
def retriever(corpus: Corpus, make: Callable[[], Retriever]) -> Retriever:
    return make().index(corpus)


def question(corpus: Corpus, row: int) -> Query:
    """A context of the corpus as a user's query."""
    paper = int(corpus.citing[row])
    texts = (corpus.context_texts[row], corpus.titles[paper], corpus.abstracts[paper])
    return Query(*texts, year=int(corpus.years[paper]), own=corpus.paper_ids[paper])


def test_a_query_gets_the_papers_of_its_context(corpus: Corpus, retriever: Retriever) -> None:
    if retriever.partial:
        pytest.skip("runs cannot answer new queries")
    asked = Queries.from_list(corpus, [question(corpus, row) for row in ALL.tolist()])
    assert not asked.new_words
    for filters in (None, Filters(exclude=["speech", "graph"]), Filters(year="citing")):
        result, expected = (retriever.search(queries, 7, filters) for queries in (asked, ALL))
        np.testing.assert_array_equal(result.papers, expected.papers)
        np.testing.assert_allclose(result.scores, expected.scores, rtol=1e-5, atol=1e-6)


def test_scores_of_given_papers_are_those_of_the_search(retriever: Retriever) -> None:
    papers = np.random.default_rng(0).permuted(np.tile(np.arange(-1, 12, dtype=np.int32), (12, 1)), axis=1)
    scores = retriever.score(ALL, papers)
    result = retriever.search(ALL, 12)
    for query in range(12):
        expected = dict(zip(result.papers[query].tolist(), result.scores[query].tolist(), strict=True))
        for paper, score in zip(papers[query].tolist(), scores[query].tolist(), strict=True):
            if paper in expected and paper >= 0:
                assert score == pytest.approx(expected[paper], rel=1e-4, abs=1e-4)
            elif not isinstance(retriever, Citations):  # scores papers that it does not find
                assert score == -np.inf
    few = retriever.score(ALL, papers[:, :5])
    np.testing.assert_allclose(few, scores[:, :5], rtol=1e-4, atol=1e-4)


def test_a_loaded_index_ranks_the_same(
    corpus: Corpus,
    make: Callable[[], Retriever],
    retriever: Retriever,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, loaded = retriever, make()
    made.save(tmp_path / "index")
    monkeypatch.setattr(type(loaded), "_index", None)  # nothing is indexed or tuned again
    loaded.load(tmp_path / "index", corpus)
    assert loaded.tuned == made.tuned and loaded.index_bytes == made.index_bytes > 0
    for filters, k in ((None, 12), (Filters(year="citing"), 4), (Filters(exclude=["graph"]), 1)):
        assert_same(loaded.search(ALL, k, filters), made.search(ALL, k, filters))
    loaded.save(tmp_path / "again")
    item, other = (
        {
            path.relative_to(folder): path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file() and path.name[0] != "."
        }
        for folder in (tmp_path / "index", tmp_path / "again")
    )
    assert item == other


def test_results_do_not_depend_on_k_or_caching(retriever: Retriever) -> None:
    result = retriever.search(ALL, 11)
    for k in (1, 3):
        fewer = retriever.search(ALL, k)
        np.testing.assert_array_equal(fewer.papers, result.papers[:, :k])
        np.testing.assert_allclose(fewer.scores, result.scores[:, :k], atol=1e-3)
    for rows in ([4, 0, 4, 7], [7, 1], *([row] for row in range(12))):
        again = retriever.search(np.array(rows), 11)
        # By paper: rounding may swap two of nearly the same score.
        for query, row in enumerate(rows):
            ours, theirs = np.argsort(again.papers[query]), np.argsort(result.papers[row])
            np.testing.assert_array_equal(again.papers[query][ours], result.papers[row][theirs])
            np.testing.assert_allclose(again.scores[query][ours], result.scores[row][theirs], atol=1e-3)
