"""Averaged word vectors against their formula, and as a retriever."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hydra.utils import instantiate
from hypothesis import given, settings
from hypothesis import strategies as st

from datasets.corpus import Corpus
from datasets.errors import InputError
from hatten.documents import ABSTRACT, CONTEXT, TITLE, Vocabulary
from hatten.means import START
from hatten.nnselect import AverageRetriever, AveragesEncoder
from hatten.words import WordVectors, inverse_document_frequency
from tests.hatten.made import documents
from tests.runs import Composed

WORDS = 9


def vectors(corpus: Corpus, seed: int = 0) -> WordVectors:
    """Random vectors of different lengths for the words of a corpus."""
    random = np.random.default_rng(seed)
    table = random.standard_normal((len(corpus.words), 7)) * random.uniform(0.5, 2, (len(corpus.words), 1))
    return WordVectors(corpus.words, table, "random")


def unit(vector: np.ndarray) -> np.ndarray:
    return np.asarray(vector / max(np.linalg.norm(vector), 1e-12))


def total(shares: Iterable[float], vectors: Iterable[np.ndarray]) -> np.ndarray:
    """Of unit length."""
    return unit(np.sum([share * vector for share, vector in zip(shares, vectors, strict=True)], axis=0))


text = st.lists(st.integers(0, WORDS - 1), min_size=1, max_size=6)


@settings(deadline=None)
@given(rows=st.lists(st.lists(text, min_size=1, max_size=3), min_size=1, max_size=4), seed=st.integers(0, 99))
def test_a_document_is_the_sum_of_its_fields_and_a_field_that_of_its_words(
    rows: list[list[list[int]]], seed: int
) -> None:
    table = np.random.default_rng(seed).standard_normal((WORDS, 4)).astype(np.float32)
    with torch.no_grad():
        found = AveragesEncoder(table).eval().encode(documents(rows)).numpy()
    expected = []
    for row in rows:
        shares = [START[kind, len(row) == 3] for kind in (TITLE, ABSTRACT, CONTEXT)[: len(row)]]
        fields = [unit(table[field].sum(0)) for field in row]  # magnitude times direction is the vector
        expected.append(total(shares, fields))
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_what_is_trained_are_magnitudes_and_the_weights_of_fields() -> None:
    encoder = AveragesEncoder(np.eye(4, dtype=np.float32))
    trained = {name for name, weight in encoder.named_parameters() if weight.requires_grad}
    assert trained == {"mean.word_weight", "mean.paragraph_weight"}
    encoder.encode(documents([[[1, 2], [3]]]))[0, 1].backward()
    assert all(weight.grad is not None for weight in encoder.parameters() if weight.requires_grad)


@pytest.mark.parametrize("weighting", ["mean", "idf"])
def test_ranks_by_the_cosine_of_averages(demo_corpus: Corpus, weighting: str) -> None:
    given = vectors(demo_corpus)
    retriever = AverageRetriever(lambda corpus: given, weighting)
    retriever.index(demo_corpus)
    contexts = np.array([5, 0, 17])
    found = retriever.search(contexts, 4)
    words = [any(map(str.isalnum, word)) for word in given.words]
    table = given.matrix * np.array(words)[:, None]  # punctuation counts for nothing
    if weighting == "idf":
        rows = Vocabulary(given.words).lookup(given.words)
        idf = inverse_document_frequency(demo_corpus, Vocabulary(given.words))
        table = table * idf[rows][:, None]

    def of(shares: list[float], *fields: np.ndarray) -> np.ndarray:
        return total(shares, [unit(table[field].sum(0)) for field in fields])

    titles, abstracts = demo_corpus.title_tokens, demo_corpus.abstract_tokens
    papers = np.array([of([0.5, 1.0], titles[i], abstracts[i]) for i in range(len(titles))])
    for query, context in enumerate(contexts.tolist()):
        own = int(demo_corpus.citing[context])
        text = demo_corpus.context_tokens[context]
        cosines = papers @ of([0.5, 0.3, 1.0], titles[own], abstracts[own], text)
        cosines[own] = -np.inf
        cosines[~demo_corpus.is_candidate] = -np.inf
        np.testing.assert_allclose(found.scores[query], np.sort(cosines)[::-1][:4], atol=5e-4)
        np.testing.assert_allclose(cosines[found.papers[query]], found.scores[query], atol=5e-4)


def test_an_index_goes_with_the_vectors_that_it_was_made_of(tiny_corpus: Corpus, tmp_path: Path) -> None:
    calls: list[int] = []

    def made(seed: int) -> Callable[..., WordVectors]:
        def make(corpus: Corpus) -> WordVectors:
            calls.append(seed)
            return vectors(corpus, seed)

        return make

    first = AverageRetriever(made(0))
    first.open(tiny_corpus, tmp_path / "index")
    second = AverageRetriever(made(0))
    second.open(tiny_corpus, tmp_path / "index")
    assert calls == [0, 0]  # once each
    ours, theirs = (retriever.search(np.arange(12), 5) for retriever in (first, second))
    assert (ours.papers == theirs.papers).all() and (ours.scores == theirs.scores).all()
    for other in (AverageRetriever(made(1)), AverageRetriever(made(0), "mean")):
        with pytest.raises(InputError, match="an index of another weights"):
            other.open(tiny_corpus, tmp_path / "index")


def test_the_configured_word_vectors_are_made_for_the_corpus(composed: Composed, tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"data.papers": 100, "data.contexts": 400, "data.cache_dir": tmp_path}
    sizes |= {"embeddings.dim": 8, "embeddings.epochs": 1, "embeddings.min_count": 1, "embeddings.workers": 1}
    sizes |= {"embeddings.cache_dir": tmp_path}
    options = [f"{name}={value}" for name, value in sizes.items()]
    config = composed("evaluate", "retriever=average", "data=demo", *options)
    retriever = instantiate(config.retriever)
    retriever.index(instantiate(config.data))
    assert retriever.encoder.dim == 8
    assert (retriever.search(np.arange(5), 10).papers >= 0).all()


def test_an_unknown_weighting_is_one_clear_error() -> None:
    with pytest.raises(InputError, match=r"retriever\.weighting=tfidf: choose mean or idf"):
        AverageRetriever(vectors, "tfidf")
