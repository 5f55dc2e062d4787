"""BM25 against its formula written out, against bm25s and rank_bm25, and as a retriever."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import bm25s
import numpy as np
import pytest
import Stemmer
from hydra.utils import instantiate
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from citerec.base.errors import InputError
from citerec.datasets.corpus import Corpus
from citerec.datasets.prepare import open_corpus
from citerec.retrieval.arrays import Counts
from citerec.retrieval.lexical import bm25_formula
from citerec.retrieval.lexical.bm25 import BM25, top_scores
from citerec.retrieval.lexical.bm25_formula import METHODS, Formula, Postings, RankBM25
from citerec.retrieval.lexical.terms import Terms, strip_markers
from citerec.retrieval.queries import Queries
from citerec.tests.composing import compose_config
from citerec.tests.retrieval.made import counts_of, matrix, plain_bm25

CONTEXTS = np.arange(12)
PEERS = {"lucene": "lucene", "okapi": "atire"}
"""bm25s's name of the term frequency component of each variant."""


def rewritten(source: Path, cache: Path, **texts: str) -> Corpus:
    """The corpus with the texts of some contexts replaced."""
    contexts = json.loads((source / "contexts.json").read_text())
    for name, text in texts.items():
        contexts[name]["masked_text"] = text
    (source / "contexts.json").write_text(json.dumps(contexts))
    return open_corpus(source, cache_dir=cache)


# The formulas.

SIZES = st.tuples(st.integers(1, 7), st.integers(1, 6))
COUNTS = SIZES.flatmap(lambda size: arrays(np.int64, size, elements=st.integers(0, 3)))


def in_parts(counts: np.ndarray) -> list[Counts]:
    return [counts_of(part) for part in np.array_split(counts, 2) if len(part)]


def peer(counts: np.ndarray, method: str, k1: float, b: float) -> bm25s.BM25:
    index = bm25s.BM25(k1=k1, b=b, method=PEERS[method], idf_method="lucene")
    texts = [np.repeat(np.arange(len(row)), row).tolist() for row in counts]
    vocabulary = {f"w{i}": i for i in np.flatnonzero(counts.any(axis=0)).tolist()}
    index.index((texts, vocabulary), create_empty_token=False, show_progress=False)
    return index


@given(
    COUNTS.filter(lambda counts: counts.any(axis=0).all()),
    st.sampled_from(METHODS),
    st.sampled_from([0.0, 0.9, 2.0]),
    st.sampled_from([0.0, 0.4, 1.0]),
    st.data(),
)
def test_scores_are_those_of_bm25s(
    counts: np.ndarray, method: str, k1: float, b: float, data: st.DataObject
) -> None:
    query = data.draw(arrays(np.int64, counts.shape[1], elements=st.integers(0, 4)).filter(np.any))
    index = peer(counts, method, k1, b)
    expected = index.get_scores_from_ids(np.repeat(np.arange(len(query)), query))
    terms = np.flatnonzero(query).astype(np.int32)
    weights = query[terms].astype(np.float32)
    ours = Postings.from_counts(in_parts(counts), Formula(method, k1, b))
    scores = ours.scores(terms, weights)
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=2e-6)
    texts = data.draw(arrays(np.int64, 3, elements=st.integers(0, len(counts) - 1)))
    for adds in (bm25_formula.ADDS_PER_LOOKUP, 0):  # 0: always look up
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(bm25_formula, "ADDS_PER_LOOKUP", adds)
            np.testing.assert_array_equal(ours.scores(terms, weights, texts), scores[texts])
    assert scores.dtype == np.float32 and (scores[counts[:, terms].sum(axis=1) == 0] == 0).all()
    if k1 > 0:
        scores = RankBM25(in_parts(counts), Formula(method, k1, b)).scores(terms, weights)
        np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=2e-6)


def test_loaded_postings_are_mapped(tmp_path: Path) -> None:
    counts = np.random.default_rng(0).integers(0, 3, (20, 9)).astype(np.float32)
    saved = Postings.from_counts([counts_of(counts)], Formula("lucene", 1.2, 0.75))
    saved.save(tmp_path)
    loaded = Postings.load(tmp_path, 20)
    terms, weights = np.array([1, 4, 8], np.int32), np.array([1, 2, 1], np.float32)
    np.testing.assert_array_equal(saved.scores(terms, weights), loaded.scores(terms, weights))
    assert loaded.nbytes == saved.nbytes
    parts: list[np.ndarray | None] = [loaded.data, loaded.indices]  # no copies of the large arrays
    for part in parts:
        while part is not None and not isinstance(part, np.memmap):
            part = part.base
        assert isinstance(part, np.memmap)


# The terms of queries, against bm25s's tokeniser.


@pytest.mark.parametrize("stemmer", ["english", None])
@pytest.mark.parametrize("tokens", ["default", "reference"])
def test_stored_words_give_the_terms_of_bm25s(
    tiny_source: Path, tmp_path: Path, tokens: str, stemmer: str | None
) -> None:
    contexts = json.loads((tiny_source / "contexts.json").read_text())
    contexts["c1"]["masked_text"] = (
        "State-of-the-art (TARGETCIT), we don't use x 0.95; re-runs,OTHERCIT-based"
    )
    (tiny_source / "contexts.json").write_text(json.dumps(contexts))
    corpus = open_corpus(tiny_source, cache_dir=tmp_path / "cache", tokenizer=tokens)
    terms = Terms.from_words(corpus.words, stemmer, "en")
    assert Terms.from_words(corpus.words, stemmer, "en") is terms
    assert Terms.from_words(corpus.words, stemmer, None) is not terms
    fields = ("context", "title", "abstract", "context")
    counts = terms.query_counts(Queries.from_contexts(corpus, CONTEXTS), fields)
    queries = Queries.from_contexts(corpus, CONTEXTS)
    texts = [" ".join(map(strip_markers, parts)) for parts in zip(*map(queries.texts, fields), strict=True)]
    stem = Stemmer.Stemmer(stemmer) if stemmer else None
    expected = bm25s.tokenize(texts, stopwords="en", stemmer=stem, return_ids=False, show_progress=False)
    for row, of_text in enumerate(expected):
        result = matrix(counts)[row].tocoo()
        assert {terms.names[i]: n for i, n in zip(result.col, result.data, strict=True)} == Counter(of_text)


# The retriever.


def words_of(text: str) -> list[str]:
    plain = text.replace("TARGETCIT", " ").replace("OTHERCIT", " ").lower()
    return Stemmer.Stemmer("english").stemWords(re.findall(r"\b\w\w+\b", plain))


@pytest.mark.parametrize(
    ("options", "fields", "constants"),
    [
        *(([f"retriever.contexts={n}"], ["context", "title"], (1, 1.2, 0.75)) for n in (0, 1, 2)),
        (["retriever.k1=0.9", "retriever.b=0.4"], ["context", "title"], (1, 0.9, 0.4)),
        (["retriever=bm25_gu"], ["title", "abstract", "context"], (2.2, 1.2, 0.75)),  # the paper's
    ],
)
def test_scores_are_those_of_the_formula(
    tiny_corpus: Corpus, options: list[str], fields: list[str], constants: tuple[float, float, float]
) -> None:
    choices = ["retriever=bm25", "retriever.stopwords=null", *options]
    retriever = instantiate(compose_config("evaluate", choices).retriever).index(tiny_corpus)
    # Evenly spaced of three contexts: the last, or the second and third.
    parsing = {"retriever.contexts=1": ["c6"], "retriever.contexts=2": ["c2", "c6"]}.get(options[0], [])
    others = {"graph": ["c3"], "speech": ["c4"], "vision": ["c5"]} if parsing else {}
    context_of = dict(zip(tiny_corpus.context_ids, tiny_corpus.context_texts, strict=True))
    rows, documents = np.flatnonzero(tiny_corpus.is_candidate).tolist(), []
    for row in rows:
        texts = [tiny_corpus.titles[row], tiny_corpus.abstracts[row]]
        cited = ({"parsing": parsing} | others).get(tiny_corpus.paper_ids[row], [])
        documents.append(words_of(" ".join([*texts, *(context_of[name] for name in cited)])))
    ranking = retriever.search(CONTEXTS, 11)
    for row in CONTEXTS.tolist():
        citing = int(tiny_corpus.citing[row])
        of_query = {"context": tiny_corpus.context_texts[row], "title": tiny_corpus.titles[citing]}
        of_query["abstract"] = tiny_corpus.abstracts[citing]
        query = words_of(" ".join(of_query[field] for field in fields))
        scores = dict(zip(rows, constants[0] * plain_bm25(documents, query, *constants[1:]), strict=True))
        expected = sorted((s for r, s in scores.items() if s > 0 and r != citing), reverse=True)
        result = ranking.papers[row] >= 0
        np.testing.assert_allclose(ranking.scores[row][result], expected, rtol=1e-5)
        own = [scores[r] for r in ranking.papers[row][result]]
        np.testing.assert_allclose(ranking.scores[row][result], own, rtol=1e-5)


def test_markers_are_not_query_words(tiny_source: Path, tmp_path: Path) -> None:
    papers = json.loads((tiny_source / "papers.json").read_text())
    papers["graph"]["abstract"] = "TARGETCIT OTHERCIT targetcit othercit"
    (tiny_source / "papers.json").write_text(json.dumps(papers))
    corpus = open_corpus(tiny_source, cache_dir=tmp_path / "cache")
    # c1 has both markers and no word of "graph"
    ranking = BM25(query=["context"]).index(corpus).search(np.array([0]), 11)
    assert corpus.paper_row("graph") not in ranking.papers


def test_a_query_without_a_known_word_finds_nothing(tiny_source: Path, tmp_path: Path) -> None:
    corpus = rewritten(tiny_source, tmp_path / "cache", c1="Zyx qwv TARGETCIT the of.", c2="TARGETCIT ?")
    ranking = BM25(query=["context"]).index(corpus).search(np.array([0, 1, 2]), 5)
    assert (ranking.papers[:2] == -1).all() and np.isneginf(ranking.scores[:2]).all()
    assert ranking.papers[2, 0] == corpus.paper_row("graph")


def test_repeated_fields_and_terms_count_repeatedly(tiny_source: Path, tmp_path: Path) -> None:
    corpus = rewritten(
        tiny_source,
        tmp_path / "cache",
        c1="graph parsing TARGETCIT",
        c2="graph parsing graphs graph TARGETCIT parsing parsing",
    )
    forms = [("context",), ("context", "title"), ("context", "title", "abstract"), ("context", "context")]
    result = [BM25(query=fields).index(corpus).search(CONTEXTS, 11) for fields in forms]
    counts = [int((ranking.papers >= 0).sum()) for ranking in result]
    assert counts[0] == counts[3] < counts[1] < counts[2]
    np.testing.assert_array_equal(result[0].papers, result[3].papers)
    np.testing.assert_allclose(result[3].scores, 2 * result[0].scores, rtol=1e-6)
    np.testing.assert_allclose(result[0].scores[1], 3 * result[0].scores[0], rtol=1e-6)


def test_set_parameters_applies_to_the_next_index(tiny_corpus: Corpus) -> None:
    retriever = BM25().index(tiny_corpus)
    retriever.set_parameters(k1=0.4, b=0.1)
    retriever.index(tiny_corpus)
    expected = BM25(k1=0.4, b=0.1).index(tiny_corpus).search(CONTEXTS, 11)
    np.testing.assert_array_equal(retriever.search(CONTEXTS, 11).scores, expected.scores)
    with pytest.raises(InputError, match=r"retriever\.b"):
        retriever.set_parameters(b=2)


def test_a_corpus_without_words_raises_one_line(tiny_source: Path, tmp_path: Path) -> None:
    papers = json.loads((tiny_source / "papers.json").read_text())
    for paper in papers.values():
        paper.update(title="?", abstract="! of the")
    (tiny_source / "papers.json").write_text(json.dumps(papers))
    with pytest.raises(InputError, match="no candidate has a word"):
        BM25().index(open_corpus(tiny_source, cache_dir=tmp_path / "cache"))


# Training contexts in the index.


def test_only_training_contexts_enter_the_index(tiny_source: Path, tmp_path: Path) -> None:
    def matches(corpus: Corpus) -> list[list[tuple[str, float]]]:
        ranking = BM25(contexts=5).index(corpus).search(np.arange(6), 11)  # the training contexts
        rows = zip(ranking.papers.tolist(), ranking.scores.tolist(), strict=True)
        pairs = (zip(papers, scores, strict=True) for papers, scores in rows)
        return [[(corpus.paper_ids[paper], score) for paper, score in row if paper >= 0] for row in pairs]

    before = matches(open_corpus(tiny_source, cache_dir=tmp_path / "before"))
    text = "Transition systems TARGETCIT and acoustic features of new words."
    others = dict.fromkeys(("c7", "c8", "c9", "c10", "c11", "c12"), text)
    assert matches(rewritten(tiny_source, tmp_path / "after", **others)) == before
    assert matches(rewritten(tiny_source, tmp_path / "changed", c3="Transition systems TARGETCIT.")) != before


# Few values, so that ties are common, and sizes below and above the minimum for sampling.
SCORES = st.integers(1, 900).flatmap(
    lambda n: arrays(np.float32, n, elements=st.sampled_from([0.0, 0.5, 1.0, 2.0]), fill=st.just(1))
)


@given(SCORES, st.integers(1, 60))
def test_top_scores_are_those_of_a_plain_sort(scores: np.ndarray, k: int) -> None:
    expected = [place for place in np.argsort(-scores, kind="stable").tolist() if scores[place] > 0][:k]
    assert sorted(top_scores(scores, k).tolist()) == sorted(expected)


@given(COUNTS, st.data())
def test_contributions_in_units_score_alike_but_for_rounding(counts: np.ndarray, data: st.DataObject) -> None:
    formula = Formula("lucene", 1.2, 0.75)
    rounded = Postings.from_counts(in_parts(counts), formula, dtype=np.uint16)
    terms = np.arange(counts.shape[1], dtype=np.int32)
    weights = data.draw(arrays(np.float32, len(terms), elements=st.sampled_from([0.25, 1.0, 3.0])))
    exact, most = Postings.from_counts(in_parts(counts), formula), weights.sum() * bm25_formula.UNIT / 2
    scores = rounded.scores(terms, weights)
    np.testing.assert_allclose(scores, exact.scores(terms, weights), rtol=1e-5, atol=most)
    texts = data.draw(arrays(np.int64, 3, elements=st.integers(0, len(counts) - 1)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bm25_formula, "ADDS_PER_LOOKUP", 0)
        np.testing.assert_array_equal(rounded.scores(terms, weights, texts), scores[texts])


def test_contributions_in_units_end_at_16() -> None:
    rare = Formula("okapi", 90, 0)  # of 11 * 91 / 101 times an IDF of 1.95
    counts = counts_of(np.eye(10) * 11)
    [most] = set(Postings.from_counts([counts], rare, dtype=np.uint16).data.tolist())
    assert most == 2**16 - 1
