"""Citation graph signals against their definition, without leaks from later papers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from citerec.datasets.citations.queries import open_papers
from citerec.datasets.corpus import Corpus
from citerec.datasets.splitting import RandomSplitting
from citerec.retrieval.base import Ranking
from citerec.retrieval.citations import LATER, SIGNALS, Citations
from citerec.retrieval.filters import Filters
from citerec.retrieval.lexical.bm25 import BM25
from citerec.retrieval.queries import Queries, Query
from citerec.tests.retrieval.made import assert_same

WEIGHTS = {"text": 0.5, "cited": 0.3, "citing": 0.2}
WORDS = [f"{a}{b}on" for a in ("gra", "quar", "bos", "phot", "mes", "lept") for b in ("v", "k", "t", "l")]
Paper = dict[str, Any]


def literature(seed: int, papers: int = 40) -> list[Paper]:
    """Papers of 1985 to 1994 with random references; some have no year."""
    rng = np.random.default_rng(seed)
    made: list[Paper] = []
    for number, year in enumerate(np.sort(rng.integers(1985, 1995, papers)).tolist()):
        title, abstract = (" ".join(rng.choice(WORDS, length)) for length in (4, 12))
        made.append({"paper_id": f"p{number}", "title": title, "abstract": abstract, "references": []})
        made[-1]["year"] = 0 if rng.random() < 0.1 else year
    for paper in made:
        cite(paper, made, rng)
    return made


def cite(paper: Paper, papers: list[Paper], rng: np.random.Generator) -> None:
    """Replace the references of a paper, at least one of which is not of a later year."""
    others = [other for other in papers if other is not paper]
    before = [other for other in others if paper["year"] == 0 or other["year"] <= paper["year"]]
    chosen = [*rng.choice(len(others), 4, replace=False).tolist()]
    references = [before[int(rng.integers(len(before)))], *(others[item] for item in chosen)]
    paper["references"] = sorted({other["paper_id"] for other in references})


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Callable[[list[Paper]], Corpus]:
    """Prepare a corpus in which each paper is a query."""
    folder = tmp_path_factory.mktemp("citations")

    def make(papers: list[Paper]) -> Corpus:
        path = folder / "papers.jsonl"
        path.write_text("\n".join(map(json.dumps, papers)) + "\n")
        return open_papers(path, RandomSplitting(0.4, 0.3, 0.3, seed=0), cache_dir=folder / "cache")

    return make


@pytest.fixture(scope="module")
def corpus(opened: Callable[[list[Paper]], Corpus]) -> Corpus:
    return opened(literature(0))


def indexed(corpus: Corpus, **options: Any) -> Citations:
    defaults: dict[str, Any] = {"similar": 5, "depth": 10, "weights": WEIGHTS}
    return Citations(BM25(), **(defaults | options)).index(corpus)


def all_queries(corpus: Corpus) -> np.ndarray:
    return np.arange(len(corpus.context_ids))


def is_before(year: int, other: int) -> bool:
    return 0 < year < other


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=4, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_scores_are_their_definition(opened: Callable[[list[Paper]], Corpus], seed: int) -> None:
    papers = literature(seed)
    corpus = opened(papers)
    retriever, text, n = indexed(corpus), BM25().index(corpus), len(papers)
    years = [paper["year"] for paper in papers]
    row = {paper["paper_id"]: number for number, paper in enumerate(papers)}
    # Relevant, and so in the graph, are cited papers that are not of a later year.
    cites = [
        {row[p] for p in item["references"] if item["year"] == 0 or papers[row[p]]["year"] <= item["year"]}
        for item in papers
    ]
    result = retriever.search(all_queries(corpus), n)
    for context, ranked in enumerate(result.papers):
        q = int(corpus.citing[context])
        plain = text.search(np.array([context]), n)
        scores = np.zeros(n)
        there = plain.papers[0] >= 0
        scores[plain.papers[0][there]] = plain.scores[0][there]
        first = plain.scores[0][there][:10]
        unit = max(first[0] - first[-1], first[0] / 100)
        scale = 1 - (first[0] - scores) / unit
        before = [p for p in range(n) if p != q and is_before(years[p], years[q])]
        near = sorted((p for p in before if scores[p] > 0), key=lambda p: (-scores[p], p))[:5]
        expected = {}
        for p in range(n):
            cited = sum(max(scale[s], 0) ** 2 for s in near if p in cites[s])
            citing = sum(max(scale[s], 0) ** 2 for s in near if s in cites[p] and p in before)
            later = is_before(years[q], years[p])
            expected[p] = 0.5 * scale[p] + 0.3 * cited**0.5 + 0.2 * citing**0.5 - LATER * later
        kept = ranked[ranked >= 0]
        assert q not in kept and len(set(kept.tolist())) == len(kept)
        got = result.scores[context][ranked >= 0]
        assert got == pytest.approx([expected[p] for p in kept.tolist()], rel=1e-4, abs=1e-3)
        # Papers found in the graph are never missing.
        left = set(range(n)) - {q, *kept.tolist()}
        graph = {p for s in near if scale[s] > 0 for p in cites[s]}
        assert not left & graph or all(is_before(years[q], years[p]) for p in left & graph)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=4, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_own_and_later_references_change_nothing(opened: Callable[[list[Paper]], Corpus], seed: int) -> None:
    rng = np.random.default_rng(seed)
    papers = literature(seed)
    query = int(rng.integers(len(papers) // 2, len(papers)))

    def ranking() -> Ranking:
        corpus = opened(papers)
        context = [row for row in all_queries(corpus) if corpus.citing[row] == query]
        return indexed(corpus).search(np.array(context), len(papers))

    asked = ranking()
    cite(papers[query], papers, rng)
    assert_same(ranking(), asked)
    for paper in papers:
        if not is_before(paper["year"], papers[query]["year"]):
            cite(paper, papers, rng)
    assert_same(ranking(), asked)


def test_the_own_paper_does_not_leak_its_references(corpus: Corpus) -> None:
    retriever, papers = indexed(corpus), len(corpus.paper_ids)
    row = int(corpus.citing[20])
    question = Query(corpus.context_texts[20], corpus.titles[row], year=1999, own=corpus.paper_ids[row])
    asked = Queries.from_list(corpus, [question])
    result = retriever.search(asked, papers)
    assert row not in result.papers[0]
    retriever._cites = retriever._cites.tolil()
    retriever._cites[row] = 0
    retriever._cites = retriever._cites.tocsr()
    retriever._cited_by = retriever._cites.T.tocsr()
    assert_same(retriever.search(asked, papers), result)


def test_a_query_without_a_year_is_the_latest(corpus: Corpus) -> None:
    retriever = indexed(corpus)
    texts = [(corpus.context_texts[20], corpus.titles[20])]
    now, later = (Queries.from_list(corpus, [Query(*texts[0], year=year)]) for year in (0, 1999))
    assert_same(retriever.search(now, 30), retriever.search(later, 30))
    assert retriever.search(now, 20).scores.min() > -LATER / 2
    early = Queries.from_list(corpus, [Query(*texts[0], year=1986)])
    assert retriever.search(early, 30).papers.tolist() != retriever.search(later, 30).papers.tolist()


def test_later_papers_come_last_also_with_filters(corpus: Corpus) -> None:
    retriever, n = indexed(corpus), len(corpus.paper_ids)
    contexts = all_queries(corpus)
    result = retriever.search(contexts, n)
    own = corpus.years[corpus.citing][:, None]
    later = (corpus.years[result.papers] > own) & (own > 0)
    later[result.papers < 0] = True
    assert later.any() and (np.diff(later.astype(int), axis=1) >= 0).all()
    field = np.arange(n) % 2 == 0
    half = retriever.search_allowed(contexts, n, field)
    scores = retriever.score(contexts, result.papers)
    np.testing.assert_allclose(scores[result.papers >= 0], result.scores[result.papers >= 0], rtol=1e-5)
    assert np.isneginf(scores[result.papers < 0]).all()
    np.testing.assert_allclose(
        retriever.score(contexts, half.papers)[half.papers >= 0], half.scores[half.papers >= 0], rtol=1e-5
    )
    assert field[half.papers[half.papers >= 0]].all()
    early = retriever.search(contexts, n, Filters(year="citing"))
    dated = (early.papers >= 0) & (corpus.years[corpus.citing] > 0)[:, None]
    assert not (corpus.years[early.papers] > corpus.years[corpus.citing][:, None])[dated].any()


def test_without_the_graph_only_later_papers_move(corpus: Corpus) -> None:
    only = indexed(corpus, weights={"text": 1, "cited": 0, "citing": 0}, depth=40)
    text = BM25().index(corpus)
    contexts = all_queries(corpus)
    result, plain = only.search(contexts, 39), text.search(contexts, 39)
    for query, (mine, theirs) in enumerate(zip(result.papers, plain.papers, strict=True)):
        own = corpus.years[corpus.citing[query]]
        late = (corpus.years[theirs] > own) & (own > 0)
        there = theirs >= 0
        assert mine.tolist() == [*theirs[there & ~late], *theirs[there & late], *theirs[~there]]
    assert only.protocol == "" and only.name == "bm25-later-last"
    assert "citation graph" in indexed(corpus).protocol


def test_tuned_weights_are_shares(corpus: Corpus) -> None:
    retriever = indexed(corpus, weights="tuned")
    weights = retriever.tuned["weights"]
    assert set(weights) == set(SIGNALS) and sum(weights.values()) == pytest.approx(1)


def test_queries_without_matches_find_nothing(corpus: Corpus) -> None:
    asked = Queries.from_list(corpus, [Query("zzz", year=1900), Query("zzz"), Query("zzz", year=1993)])
    retriever = indexed(corpus)
    assert (retriever.search(asked, 5).papers == -1).all()
    words = Queries.from_list(corpus, [Query(corpus.titles[0], year=1900)])
    result = retriever.search(words, 5)
    assert (result.papers >= 0).all()  # all later, except those without a year
    np.testing.assert_array_equal(result.scores < -LATER / 2, corpus.years[result.papers] > 0)


def test_papers_that_the_text_does_not_find_come_last_also_where_its_scores_are_negative(
    corpus: Corpus,
) -> None:
    class Negative(BM25):
        def _search(self, *asked: Any) -> Ranking:
            ranking = super()._search(*asked)
            return Ranking(ranking.papers, ranking.scores - 99)

        def score(self, *asked: Any) -> Any:
            return super().score(*asked) - 99

    retriever = Citations(Negative(), weights={"text": 1, "cited": 1e-6, "citing": 1e-6}).index(corpus)
    asked = Queries.from_list(corpus, [Query("gravon", year=1999)])
    mine, text = (part.search(asked, 40).papers[0] for part in (retriever, retriever.text))
    count = np.count_nonzero(text >= 0)
    assert set(mine[: count - 1]) < set(text[:count]) and mine[count] >= 0
