"""The best pair of sentences against all pairs, one paper at a time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from citerec.base.errors import InputError
from citerec.datasets.corpus import Corpus
from citerec.retrieval.encoders import article as module
from citerec.retrieval.encoders.article import ArticleRetriever, SentenceRetriever, article_retriever
from citerec.retrieval.encoders.article_text import ArticleReader
from citerec.retrieval.encoders.encoder import ArticleEncoder
from citerec.retrieval.filters import Filters
from citerec.retrieval.settings import ArticleConfig, IndexConfig


@pytest.fixture(scope="session")
def config(tiny_bert: Path) -> ArticleConfig:
    return ArticleConfig("tiny", path=str(tiny_bert), max_tokens=128, pooling="aspire", layout="sep")


@pytest.fixture(scope="session")
def retriever(demo_corpus: Corpus, config: ArticleConfig) -> SentenceRetriever:
    made = SentenceRetriever(config, "float32")
    made.index(demo_corpus)
    return made


@pytest.fixture(scope="session")
def scores(demo_corpus: Corpus, config: ArticleConfig) -> np.ndarray:
    """Scores of all papers for the first 12 contexts, [12, P]."""
    encoder = ArticleEncoder.pretrained(config)
    reader = ArticleReader(demo_corpus, encoder.tokenizer, config)
    with torch.no_grad():
        papers = [encoder.encode(reader.papers(np.array([row]))) for row in range(len(demo_corpus.paper_ids))]
        queries = [encoder.encode(reader.queries(np.array([row]))) for row in range(12)]
    assert max(map(len, papers)) > 2 and max(map(len, queries)) > 1
    return np.array([[-float(torch.cdist(q, p).min()) for p in papers] for q in queries])


def best(scores: np.ndarray, corpus: Corpus, may: np.ndarray, k: int) -> np.ndarray:
    scores = np.where(may, scores, -np.inf)
    scores[np.arange(12), corpus.citing[:12]] = -np.inf
    return -np.sort(-scores, axis=1)[:, :k]


@pytest.mark.parametrize("pairs", [1, 1 << 22])
@pytest.mark.parametrize("k", [1, 7, 200])
def test_finds_the_papers_of_the_nearest_sentences(
    demo_corpus: Corpus,
    retriever: SentenceRetriever,
    scores: np.ndarray,
    k: int,
    pairs: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "PAIRS", pairs)
    found = retriever.search(np.arange(12), k)
    expected = best(scores, demo_corpus, demo_corpus.is_candidate, k)
    there = np.isfinite(expected)
    np.testing.assert_allclose(found.scores[:, : expected.shape[1]][there], expected[there], atol=1e-3)
    for row in range(12):  # papers are distinct and have the score of their best pair
        papers = found.papers[row][found.papers[row] >= 0]
        assert len(set(papers.tolist())) == len(papers) == there[row].sum()
        np.testing.assert_allclose(found.scores[row, : len(papers)], scores[row, papers], atol=1e-3)


@settings(max_examples=10)
@given(share=st.floats(0.01, 0.5), k=st.integers(1, 40), seed=st.integers(0, 99))
def test_finds_only_allowed_papers(
    demo_corpus: Corpus, retriever: SentenceRetriever, scores: np.ndarray, share: float, k: int, seed: int
) -> None:
    drawn = np.random.default_rng(seed).random(len(demo_corpus.paper_ids)) < share
    may = drawn & demo_corpus.is_candidate
    left = [demo_corpus.paper_ids[row] for row in np.flatnonzero(~may & demo_corpus.is_candidate)]
    if not may.any():
        return
    found = retriever.search(np.arange(12), k, Filters(exclude=left))
    expected = best(scores, demo_corpus, may, k)
    assert may[found.papers[found.papers >= 0]].all()
    np.testing.assert_allclose(
        np.nan_to_num(found.scores, neginf=-99)[:, : expected.shape[1]],
        np.nan_to_num(expected, neginf=-99),
        atol=1e-3,
    )


@pytest.mark.parametrize("pooling", ["aspire", "mean"])
def test_a_query_without_a_word_finds_nothing(
    tiny_corpus: Corpus, config: ArticleConfig, pooling: str
) -> None:
    retriever = article_retriever(replace(config, query=("abstract",), pooling=pooling))
    retriever.index(tiny_corpus)
    tiny_corpus.citing = np.array([tiny_corpus.paper_row("bare"), 7], np.int32)
    found = retriever.search(np.array([0, 1]), 3)
    assert (found.papers[0] == -1).all() and (found.papers[1] >= 0).all()


def test_the_pooling_decides_which_retriever(config: ArticleConfig) -> None:
    assert isinstance(article_retriever(config), SentenceRetriever)
    assert isinstance(article_retriever(replace(config, pooling="cls")), ArticleRetriever)
    with pytest.raises(InputError, match=r"set index\.kind=exact"):
        article_retriever(config, index=IndexConfig(kind="hnsw"))
