import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
import Stemmer

from datasets.errors import InputError
from datasets.prepare import open_corpus
from datasets.store import Corpus
from retrieval.bm25 import BM25

CONTEXTS = np.arange(12)


def _plain_bm25(documents: list[list[str]], query: list[str], k1: float, b: float) -> np.ndarray:
    """Lucene's formula, word by word."""
    mean = sum(map(len, documents)) / len(documents)
    scores = np.zeros(len(documents))
    for word in query:
        n = sum(word in document for document in documents)
        idf = math.log(1 + (len(documents) - n + 0.5) / (n + 0.5))
        for i, document in enumerate(documents):
            tf = document.count(word)
            scores[i] += idf * tf / (tf + k1 * (1 - b + b * len(document) / mean))
    return scores


def test_scores_are_those_of_the_formula(tiny_corpus: Corpus) -> None:
    retriever = BM25(stopwords=None, k1=0.9, b=0.4)
    retriever.index(tiny_corpus)
    stem = Stemmer.Stemmer("english")

    def words(text: str) -> list[str]:
        return stem.stemWords(re.findall(r"\b\w\w+\b", text.lower()))

    rows = np.flatnonzero(tiny_corpus.is_candidate)
    documents = [words(f"{tiny_corpus.titles[int(r)]} {tiny_corpus.abstracts[int(r)]}") for r in rows]
    ranking = retriever.search(CONTEXTS, 11)
    for row in CONTEXTS:
        citing = int(tiny_corpus.citing[row])
        text = tiny_corpus.context_texts[int(row)].replace("TARGETCIT", "").replace("OTHERCIT", "")
        query = words(f"{text} {tiny_corpus.titles[citing]}")
        scores = dict(zip(rows, _plain_bm25(documents, query, 0.9, 0.4), strict=True))
        expected = sorted((s for r, s in scores.items() if s > 0 and r != citing), reverse=True)
        found = ranking.papers[row] >= 0
        np.testing.assert_allclose(ranking.scores[row][found], expected, rtol=1e-5)
        np.testing.assert_allclose(
            ranking.scores[row][found], [scores[r] for r in ranking.papers[row][found]], rtol=1e-5
        )


def test_the_compiled_back_end_gives_the_same(tiny_corpus: Corpus) -> None:
    rankings = []
    for backend in ("numpy", "numba"):
        retriever = BM25(backend=backend)
        retriever.index(tiny_corpus)
        rankings.append(retriever.search(CONTEXTS, 11))
    np.testing.assert_array_equal(rankings[0].papers, rankings[1].papers)
    np.testing.assert_allclose(rankings[0].scores, rankings[1].scores, rtol=1e-6)


def test_finds_the_cited_papers_and_not_the_citing_one(tiny_corpus: Corpus) -> None:
    retriever = BM25()
    retriever.index(tiny_corpus)
    test = tiny_corpus.split("test")
    ranking = retriever.search(test.contexts, 11)
    assert ranking.papers[:, 0].tolist() == test.positives.values.tolist()
    assert not (ranking.papers == tiny_corpus.citing[test.contexts][:, None]).any()


def test_the_markers_are_no_words_of_a_query(tiny_source: Path, tmp_path: Path) -> None:
    papers = json.loads((tiny_source / "papers.json").read_text())
    papers["graph"]["abstract"] = "TARGETCIT OTHERCIT targetcit othercit"
    (tiny_source / "papers.json").write_text(json.dumps(papers))
    corpus = open_corpus(tiny_source, cache_dir=tmp_path / "cache")
    retriever = BM25(query=["context"])
    retriever.index(corpus)
    ranking = retriever.search(np.array([0]), 11)  # c1 has both markers and no word of "graph"
    assert corpus.paper_row("graph") not in ranking.papers


def test_a_query_without_a_known_word_finds_nothing(tiny_source: Path, tmp_path: Path) -> None:
    contexts = json.loads((tiny_source / "contexts.json").read_text())
    contexts["c1"]["masked_text"] = "Zyx qwv TARGETCIT the of."
    contexts["c2"]["masked_text"] = "TARGETCIT ?"
    (tiny_source / "contexts.json").write_text(json.dumps(contexts))
    corpus = open_corpus(tiny_source, cache_dir=tmp_path / "cache")
    retriever = BM25(query=["context"])
    retriever.index(corpus)
    ranking = retriever.search(np.array([0, 1, 2]), 5)
    assert (ranking.papers[:2] == -1).all() and np.isneginf(ranking.scores[:2]).all()
    assert ranking.papers[2, 0] == corpus.paper_row("graph")


def test_title_and_abstract_of_the_citing_paper_are_read_where_asked(tiny_corpus: Corpus) -> None:
    found = {}
    for fields in (
        ("context",),
        ("context", "title"),
        ("context", "title", "abstract"),
        ("context", "context"),
    ):
        retriever = BM25(query=fields)
        retriever.index(tiny_corpus)
        found[fields] = retriever.search(CONTEXTS, 11)
    counts = [int((found[fields].papers >= 0).sum()) for fields in found]
    assert counts[0] == counts[3] < counts[1] < counts[2]
    once, twice = found[("context",)], found[("context", "context")]
    np.testing.assert_array_equal(once.papers, twice.papers)
    np.testing.assert_allclose(twice.scores, 2 * once.scores, rtol=1e-6)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"query": ["body"]}, "retriever.query"),
        ({"query": []}, "retriever.query"),
        ({"stemmer": "klingon"}, "retriever.stemmer"),
        ({"method": "bm42"}, "retriever.method"),
        ({"backend": "fortran"}, "retriever.backend"),
        ({"stopwords": "tlh"}, "retriever.stopwords"),
        ({"k1": -1}, "retriever.k1"),
        ({"b": 1.5}, "retriever.b"),
    ],
)
def test_settings_that_make_no_sense_are_one_line(settings: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        BM25(**settings)  # type: ignore[arg-type]


def test_a_corpus_without_words_is_one_line(tiny_source: Path, tmp_path: Path) -> None:
    papers = json.loads((tiny_source / "papers.json").read_text())
    for paper in papers.values():
        paper.update(title="?", abstract="! of the")
    (tiny_source / "papers.json").write_text(json.dumps(papers))
    with pytest.raises(InputError, match="no candidate has a word"):
        BM25().index(open_corpus(tiny_source, cache_dir=tmp_path / "cache"))
