"""rank_bm25 and bm25s, two implementations by others, give the same scores for the same formula."""

import math
from pathlib import Path

import numpy as np
import pytest
import rank_bm25
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csc_matrix

from datasets.corpus import Corpus
from datasets.errors import InputError
from retrieval.bm25 import BM25, RANK_BM25_METHODS, Okapi, Postings, documents, index_counts

CONTEXTS = np.arange(12)
TEXTS = st.lists(st.lists(st.integers(0, 8), max_size=12), min_size=1, max_size=9).filter(any)
QUERY = st.lists(st.integers(0, 9), min_size=1, max_size=12)


def counted(texts: list[list[int]]) -> csc_matrix:
    return csc_matrix(np.array([np.bincount(text, minlength=10) for text in texts], np.float32))


def weighted(query: list[int]) -> tuple[np.ndarray, np.ndarray]:
    terms, often = np.unique(query, return_counts=True)
    return terms.astype(np.int32), often.astype(np.float32)


@settings(deadline=None, max_examples=50)
@given(TEXTS, QUERY, st.sampled_from(RANK_BM25_METHODS), st.sampled_from([0.0, 0.75, 1.0]))
def test_both_libraries_agree(texts: list[list[int]], query: list[int], method: str, b: float) -> None:
    ours = Okapi(documents(counted(texts).tocsr()), method, 1.2, b).scores(*weighted(query))
    theirs = Postings(index_counts([counted(texts)], method, 1.2, b), False).scores(*weighted(query))
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@settings(deadline=None, max_examples=50)
@given(TEXTS, QUERY)
def test_okapi_is_the_published_formula(texts: list[list[int]], query: list[int]) -> None:
    scores = Okapi(documents(counted(texts).tocsr()), "okapi", 1.2, 0.75).scores(*weighted(query))
    average = sum(map(len, texts)) / len(texts)
    for text, score in zip(texts, scores.tolist(), strict=True):
        expected = 0.0
        for word in query:  # Gu et al. 2022, appendix: a word that occurs twice counts twice
            n = sum(word in other for other in texts)
            idf = math.log(1 + (len(texts) - n + 0.5) / (n + 0.5))
            f = text.count(word)
            expected += idf * f * 2.2 / (f + 1.2 * (1 - 0.75 + 0.75 * len(text) / average))
        assert score == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_robertson_is_rank_bm25_as_it_comes_where_no_term_is_in_half_of_the_texts() -> None:
    texts = [[0, 1, 1, 2], [3, 4], [5, 5, 6], [0, 7, 8], [2, 8, 8, 8, 3]]
    query = [1, 5, 8, 8, 3, 0]
    plain = rank_bm25.BM25Okapi(texts, k1=1.2, b=0.75)
    assert all(idf > 0 for idf in plain.idf.values())
    index = index_counts([counted(texts)], "robertson", 1.2, 0.75)
    scores = Postings(index, False).scores(*weighted(query))
    np.testing.assert_allclose(scores * 2.2, plain.get_scores(query), rtol=1e-5)


@pytest.mark.parametrize("method", RANK_BM25_METHODS)
def test_the_back_ends_rank_alike(tiny_corpus: Corpus, method: str) -> None:
    options = {"method": method, "contexts": 2, "query": ("context", "title", "context")}
    rankings = []
    for backend in ("numpy", "numba", "rank_bm25"):
        retriever = BM25(backend=backend, **options)  # type: ignore[arg-type]
        retriever.index(tiny_corpus)
        assert retriever.index_bytes > 0
        rankings.append(retriever.search(CONTEXTS, 11))
    for other in rankings[1:]:
        np.testing.assert_array_equal(rankings[0].papers, other.papers)
        np.testing.assert_allclose(rankings[0].scores, other.scores, rtol=1e-5)


def test_a_loaded_index_ranks_the_same(tiny_corpus: Corpus, tmp_path: Path) -> None:
    saved, loaded = BM25(method="okapi", backend="rank_bm25"), BM25(method="okapi", backend="rank_bm25")
    saved.index(tiny_corpus)
    saved.save(tmp_path / "index")
    loaded.load(tmp_path / "index", tiny_corpus)
    found, again = saved.search(CONTEXTS, 11), loaded.search(CONTEXTS, 11)
    np.testing.assert_array_equal(found.papers, again.papers)
    np.testing.assert_array_equal(found.scores, again.scores)
    with pytest.raises(InputError, match="an index of another library: rank_bm25 there, bm25s here"):
        BM25(method="okapi").load(tmp_path / "index", tiny_corpus)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "bm25l"}, "has no 'bm25l'"),
    ],
)
def test_what_rank_bm25_cannot_do_is_one_line(settings: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        BM25(backend="rank_bm25", **settings)  # type: ignore[arg-type]
