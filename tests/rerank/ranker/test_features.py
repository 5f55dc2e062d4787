"""Features compared with plain Python; names of papers; missing sources."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import random as random_matrix

from citerec.datasets.columns import Ragged
from citerec.datasets.corpus import Corpus
from citerec.datasets.records import SECTION, TARGET_MARKER, PaperRecord
from citerec.hatten.nnselect.model import AverageRetriever
from citerec.hatten.words.vectors import Embeddings, WordVectors
from citerec.rerank.ranker.corpus_statistics import CorpusStatistics
from citerec.rerank.ranker.features import (
    BESIDE_WEIGHT,
    CITING,
    DRAFT,
    FEATURES,
    NEIGHBOURS,
    PASSAGES,
    Candidates,
)
from citerec.rerank.ranker.paper_names import title_names
from citerec.rerank.ranker.texts import (
    TOP,
    WeightedTexts,
    best_products,
    dot_products,
)
from citerec.retrieval.lexical.bm25 import BM25
from citerec.retrieval.passages import CitedElsewhere, CitingPassages
from citerec.retrieval.queries import Queries, Query, cut_around_mark
from citerec.tests.rerank.made import make_corpus

TERMS, TEXTS, PAPERS = 12, 9, 5


@dataclass(frozen=True)
class RandomVectors(Embeddings):
    """The same random vectors whenever a corpus has as many words."""

    def load(self, corpus: Corpus) -> WordVectors:
        vectors = np.random.default_rng(0).normal(size=(len(corpus.words), 8)).astype(np.float32)
        return WordVectors(list(corpus.words), vectors, "random")


def average() -> AverageRetriever:
    """Make a dense retriever of random word vectors."""
    return AverageRetriever(RandomVectors())


def open_statistics(
    corpus: Corpus, split: str = "test", dense: bool = True
) -> tuple[CorpusStatistics, dict[str, Any], Queries]:
    parts: dict[str, Any] = {"bm25": BM25()}
    if dense:
        parts["dense"] = average()
    for part in parts.values():
        part.index(corpus)
    queries = Queries.from_contexts(corpus, corpus.split(split).contexts)
    return CorpusStatistics.build(corpus), parts, queries


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1))
def test_kernels_match_matrix_products(seed: int) -> None:
    rng = np.random.default_rng(seed)
    queries, texts = (random_matrix(n, TERMS, 0.4, "csr", np.float32, rng) for n in (3, TEXTS))
    rows = rng.integers(-1, TEXTS, (3, 4)).astype(np.int32)
    whole = (queries @ texts.T).toarray()
    asked, held = (WeightedTexts(matrix.indptr, matrix.indices, matrix.data) for matrix in (queries, texts))
    scratch = np.zeros(TERMS, np.float32)
    found = dot_products(asked, held, scratch, rows)
    expected = np.where(rows >= 0, np.take_along_axis(whole, np.maximum(rows, 0), 1), 0)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert not scratch.any(), "the scratch is left clean"

    cited = Ragged.from_rows([rng.integers(0, TEXTS, rng.integers(0, 6)) for _ in range(PAPERS)])
    papers = rng.integers(-1, PAPERS, (3, 4)).astype(np.int32)
    source, own = rng.integers(0, 3, TEXTS).astype(np.int32), rng.integers(-1, 3, 3).astype(np.int32)
    best, rows = best_products(asked, held, scratch, papers, cited, source, own)
    for q, k in np.ndindex(papers.shape):
        texts_of = cited[int(papers[q, k])] if papers[q, k] >= 0 else np.empty(0, np.int32)
        there = sorted((whole[q, row] for row in texts_of if source[row] != own[q]), reverse=True)[:TOP]
        np.testing.assert_allclose(best[q, k], there + [-np.inf] * (TOP - len(there)), rtol=1e-4, atol=1e-5)
        shown = rows[q, k][: len(there)]
        assert set(rows[q, k][len(there) :]) <= {-1} and set(shown) <= set(texts_of.tolist())
        np.testing.assert_allclose(whole[q, shown], best[q, k, : len(there)], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "title, names",
    [
        ("LoRA: Low-Rank Adaptation", ["LoRA"]),
        ("Language models are few-shot learners", []),
        ("A study of BERT and word2vec on GPT-3", ["BERT", "word2vec", "GPT-3"]),
        ("ATTENTION IS ALL YOU NEED", []),
        ("A title whose head is rather long: and more", []),
        ("", []),
    ],
)
def test_names_in_titles(title: str, names: list[str]) -> None:
    assert title_names(title) == names


def test_names_are_weighted_by_distance_from_the_mark(tiny_corpus: Corpus) -> None:
    statistics = CorpusStatistics.build(tiny_corpus)
    row = tiny_corpus.paper_row("parsing")
    names = statistics.title_names.from_texts(
        tiny_corpus, lambda text: ["dependency parsing"][: text == "parse"], ["parse"], "title_names"
    )
    far, near = (
        Candidates(statistics, {}, Queries.from_list(tiny_corpus, [Query(text)]), np.array([[0]], np.int32))
        for text in ("dependency parsing of trees by hand TARGETCIT", "by hand dependency parsing TARGETCIT")
    )
    assert row == 0 and len(names.hashes) == 1
    weight = names.weights[0]
    assert near.name_scores(names)[0, 0] == pytest.approx(weight * 3 / 4)
    assert far.name_scores(names)[0, 0] == pytest.approx(weight * 3 / (3 + 5))
    none = Queries.from_list(tiny_corpus, [Query("parsing dependency TARGETCIT")])
    assert Candidates(statistics, {}, none, np.array([[0]], np.int32)).name_scores(names)[0, 0] == 0


def test_bm25_features_match_a_plain_sum(demo_corpus: Corpus) -> None:
    statistics, parts, queries = open_statistics(demo_corpus, dense=False)
    papers = np.tile(np.flatnonzero(demo_corpus.is_candidate)[:20], (len(queries), 1)).astype(np.int32)
    found = Candidates(statistics, parts, queries, papers).columns()["abstract_words"]
    stems = [[int(t) for t in statistics.terms.word_terms[w]] for w in range(len(demo_corpus.words))]
    abstracts = statistics.abstract
    for q in range(0, len(queries), 7):
        words = queries.words("context")[q].tolist()
        weight: dict[int, float] = {}
        for word in words:
            for term in stems[word]:
                weight[term] = weight.get(term, 0) + 1
        for k in range(0, 20, 3):
            part = slice(abstracts.offsets[papers[q, k]], abstracts.offsets[papers[q, k] + 1])
            pairs = zip(abstracts.terms[part].tolist(), abstracts.weights[part].tolist(), strict=True)
            assert found[q, k] == pytest.approx(
                sum(weight.get(t, 0) * w for t, w in pairs), rel=1e-4, abs=1e-5
            )


def test_the_citing_papers_own_citations_are_excluded(demo_corpus: Corpus) -> None:
    statistics, parts, queries = open_statistics(demo_corpus, "train")
    split = demo_corpus.split("train")
    papers = np.tile(np.flatnonzero(demo_corpus.is_candidate)[:30], (len(queries), 1)).astype(np.int32)
    found = Candidates(statistics, parts, queries, papers)
    columns = found.columns()
    citing = demo_corpus.citing[split.contexts]
    cites = {(int(a), int(b)) for a, row in zip(citing, split.positives, strict=True) for b in row}
    for q in range(0, len(queries), 17):
        for k in range(30):
            others = {a for a, b in cites if b == papers[q, k] and a != citing[q]}
            assert np.isnan(columns["citing_words"][q, k]) == (not others)


def test_columns_of_a_batch_match_those_of_single_queries(demo_corpus: Corpus) -> None:
    statistics, parts, queries = open_statistics(demo_corpus)
    rng = np.random.default_rng(0)
    candidates = np.flatnonzero(demo_corpus.is_candidate)
    papers = np.stack([rng.permutation(candidates)[:15] for _ in range(len(queries))]).astype(np.int32)
    papers[:, -1] = -1
    whole = Candidates(statistics, parts, queries, papers).columns()
    always = {name for name, one in FEATURES.items() if one.group != PASSAGES}
    assert {*always, "bm25", "dense"} <= set(whole)
    for q in range(0, len(queries), 5):
        one = Candidates(statistics, parts, queries[np.array([q])], papers[[q]]).columns()
        for name, values in whole.items():
            assert values.shape == papers.shape
            np.testing.assert_allclose(one[name][0, :-1], values[q, :-1], rtol=1e-4, atol=1e-4, err_msg=name)


def test_surroundings_add_to_the_context(demo_corpus: Corpus) -> None:
    statistics, parts, queries = open_statistics(demo_corpus)
    papers = np.tile(np.flatnonzero(demo_corpus.is_candidate)[:10], (len(queries), 1)).astype(np.int32)
    texts = queries.texts("context")
    more = [
        f"{text.replace(TARGET_MARKER, '')} {other}" for text, other in zip(texts[1:], texts, strict=False)
    ]
    texts = texts[:-1]
    queries, papers = queries[: len(texts)], papers[:-1]

    def columns(asked: list[Query]) -> Any:
        return Candidates(statistics, parts, Queries.from_list(demo_corpus, asked), papers).columns()

    plain = columns([Query(text) for text in texts])
    found = columns([Query(text, surroundings=of) for text, of in zip(texts, more, strict=True)])
    for name, values in plain.items():
        if name == "section_title_share":
            assert not values.any() and np.abs(found[name]).max() > 0.01
        else:
            np.testing.assert_array_equal(found[name], values, err_msg=name)
    whole = columns([Query(cut_around_mark(text, SECTION)) for text in more])
    added = whole["title_share"] - plain["title_share"]
    np.testing.assert_allclose(found["section_title_share"], added, rtol=1e-4, atol=1e-4)


def test_missing_sources_leave_columns_empty(tiny_corpus: Corpus) -> None:
    del tiny_corpus.splits["train"]
    tiny_corpus.years = np.zeros_like(tiny_corpus.years)
    statistics, parts, queries = open_statistics(tiny_corpus, dense=False)
    papers = np.tile(np.arange(6, dtype=np.int32), (len(queries), 1))
    found = Candidates(statistics, parts, queries, papers).columns()
    unknown = {"encoder", "encoder_title", "english_encoder"}
    empty = {name for name, values in found.items() if np.isnan(values).all()}
    assert empty == unknown | {name for name, one in FEATURES.items() if one.group in (CITING, DRAFT)}
    assert not found["author_near"].any()


@pytest.mark.parametrize(
    "context, title",
    [
        ("Les protéines TARGETCIT", "Protein folding"),
        ("Faltung der Proteinen TARGETCIT", "Protein folding"),
        ("LINGÜÍSTICA TARGETCIT", "Linguistic trees"),
        ("La fotografía TARGETCIT", "Photographs"),
        ("Квантовые спектры TARGETCIT", "Spectra"),
    ],
)
def test_beginnings_of_words_are_shared_by_languages(context: str, title: str, tmp_path: Path) -> None:
    papers = [
        PaperRecord("p0", title, ""),
        PaperRecord("p1", "Graph networks", ""),
        PaperRecord("p2", "Pro", ""),
    ]
    corpus = make_corpus(tmp_path / "store", papers)
    statistics = CorpusStatistics.build(corpus)
    asked = Queries.from_list(corpus, [Query(context), Query("The networked TARGETCIT")])
    rows = np.tile(np.arange(3, dtype=np.int32), (2, 1))
    columns = Candidates(statistics, {}, asked, rows).columns()
    found = columns["title_beginnings"]
    assert found[0, 0] > 0 and found[1, 1] > 0 and not found[0, 1:].any() and not found[1, [0, 2]].any()
    assert not columns["title_share"][0].any(), "no stem is shared"


def test_passages_that_cite_papers_elsewhere(demo_corpus: Corpus) -> None:
    statistics, parts, _ = open_statistics(demo_corpus)
    papers = np.flatnonzero(demo_corpus.is_candidate)[:4].astype(np.int32)
    first, second, *_ = (demo_corpus.paper_ids[row] for row in papers)
    contexts = [
        "Adam adapts its steps TARGETCIT.",
        "Trees TARGETCIT.",
        "We TARGETCIT adapt steps.",
        "So TARGETCIT, they are.",
    ]
    passages = CitingPassages(contexts, [[first], [second, first], [], [second, "unknown"]])
    asked = [Query("We TARGETCIT adapt steps.", passages=passages, place=2), Query("Trees TARGETCIT.")]
    queries = Queries.from_list(demo_corpus, asked)
    rows = np.tile(np.append(papers[::-1], -1), (2, 1))
    found = Candidates(statistics, parts, queries, rows).columns()
    count, words, distance = (found[f"elsewhere_{name}"] for name in ("count", "words", "distance"))
    assert np.exp(count[0]).tolist() == pytest.approx([np.nan, np.nan, 2, 2, np.nan], nan_ok=True)
    assert np.exp(distance[0]).tolist() == pytest.approx([np.nan, np.nan, 1, 1, np.nan], nan_ok=True)
    assert words[0, 3] > 5 * words[0, 2]
    assert all(np.isnan(column[1]).all() for column in (count, words, distance))


def test_papers_like_those_that_passages_beside_cite(
    demo_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    statistics, parts, _ = open_statistics(demo_corpus)
    papers = np.flatnonzero(demo_corpus.is_candidate)[:6].astype(np.int32)
    one, two = (demo_corpus.paper_ids[row] for row in papers[:2])
    text = "We adapt all steps of the network TARGETCIT."
    passages = CitingPassages([text, f"Then {text}", text], [[one], [], [two, one]])
    queries = Queries.from_list(demo_corpus, [Query(text, passages=passages, place=1), Query(text)])
    rows = np.tile(np.append(papers, -1), (2, 1))
    x = Candidates(statistics, parts, queries, rows)
    found = x.columns()
    _, words = passages.compare(text, 1)
    np.testing.assert_allclose(found["beside_words"][0], [words[0], words[2], 0, 0, 0, 0, 0], rtol=1e-5)
    vectors = parts["dense"].indexed_vectors(papers)
    cosines = vectors @ vectors[:2].T * (words[0] + BESIDE_WEIGHT)
    cosines[0, 0] = cosines[1, 1] = -np.inf  # not with itself
    np.testing.assert_allclose(found["beside_cosine"][0, :6], cosines.max(axis=1), rtol=1e-4)
    assert np.isnan(found["beside_encoder"]).all(), "no network has read the papers"
    assert all(np.isnan(found[f"beside_{name}"][1]).all() for name in ("words", "cosine"))
    assert np.isnan(found["beside_order"]).all(), "the order of a data set tells how it was made"
    places = np.random.default_rng(0).permutation(len(demo_corpus.paper_ids))
    monkeypatch.setattr(demo_corpus, "places", places)
    found = Candidates(statistics, parts, queries, rows).columns()
    near = np.exp((1 - np.abs(places[papers][:, None] - places[papers[:2]])) / NEIGHBOURS)
    near[0, 0] = near[1, 1] = 0
    np.testing.assert_allclose(found["beside_order"][0, :6], near.max(axis=1), rtol=1e-5)
    assert np.isnan(found["beside_order"][1]).all()


def test_papers_cited_elsewhere(demo_corpus: Corpus) -> None:
    statistics, parts, _ = open_statistics(demo_corpus)
    rows = demo_corpus.split("train").contexts[:3]
    papers = np.tile(np.flatnonzero(demo_corpus.is_candidate)[:25], (3, 1)).astype(np.int32)
    known = Ragged.from_rows([papers[0, [3, 7]], [], papers[0, [0]]])
    queries = Queries.from_contexts(demo_corpus, rows, CitedElsewhere.papers(known))
    found = Candidates(statistics, parts, queries, papers).columns()["known"]
    assert np.flatnonzero(found[0]).tolist() == [3, 7] and np.flatnonzero(found[2]).tolist() == [0]
    assert np.isnan(found[1]).all()
