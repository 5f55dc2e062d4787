import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
import Stemmer
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from datasets.columns import Ragged
from datasets.corpus import Corpus, Split
from datasets.errors import InputError
from datasets.prepare import open_corpus
from datasets.records import SPLITS
from retrieval.bm25 import BM25, cited_in, largest
from retrieval.filters import Filters

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


def _words(text: str) -> list[str]:
    plain = text.replace("TARGETCIT", " ").replace("OTHERCIT", " ").lower()
    return Stemmer.Stemmer("english").stemWords(re.findall(r"\b\w\w+\b", plain))


@pytest.mark.parametrize("contexts", [0, 1, 2])
def test_scores_are_those_of_the_formula(tiny_corpus: Corpus, contexts: int) -> None:
    retriever = BM25(stopwords=None, k1=0.9, b=0.4, contexts=contexts)
    retriever.index(tiny_corpus)
    rows = np.flatnonzero(tiny_corpus.is_candidate).tolist()
    cited_in = {"parsing": ["c1", "c2", "c6"], "graph": ["c3"], "speech": ["c4"], "vision": ["c5"]}
    documents = []
    for row in rows:
        texts = [f"{tiny_corpus.titles[row]} {tiny_corpus.abstracts[row]}"]
        there = cited_in.get(tiny_corpus.paper_ids[row], [])
        if there == ["c1", "c2", "c6"]:  # evenly: the last of three, the second and third of three
            there = {0: [], 1: ["c6"], 2: ["c2", "c6"]}[contexts]
        there = there if contexts else []
        texts += [tiny_corpus.context_texts[list(tiny_corpus.context_ids).index(name)] for name in there]
        documents.append(_words(" ".join(texts)))
    ranking = retriever.search(CONTEXTS, 11)
    for row in CONTEXTS.tolist():
        citing = int(tiny_corpus.citing[row])
        query = _words(f"{tiny_corpus.context_texts[row]} {tiny_corpus.titles[citing]}")
        scores = dict(zip(rows, _plain_bm25(documents, query, 0.9, 0.4), strict=True))
        expected = sorted((s for r, s in scores.items() if s > 0 and r != citing), reverse=True)
        found = ranking.papers[row] >= 0
        np.testing.assert_allclose(ranking.scores[row][found], expected, rtol=1e-5)
        np.testing.assert_allclose(
            ranking.scores[row][found], [scores[r] for r in ranking.papers[row][found]], rtol=1e-5
        )


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
        ({"k1": float("inf")}, "retriever.k1"),
        ({"contexts": -1}, "retriever.contexts"),
        ({"contexts": 0.5}, "retriever.contexts"),
        ({"threads": 0}, "retriever.threads"),
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


@pytest.mark.parametrize("backend", ["numpy", "numba"])
def test_a_loaded_index_ranks_the_same_with_other_query_fields_too(
    tiny_corpus: Corpus, tmp_path: Path, backend: str
) -> None:
    saved = BM25(contexts=2)
    saved.index(tiny_corpus)
    saved.save(tmp_path / "index")
    for query in (("context", "title"), ("abstract",)):
        saved.query = query
        loaded = BM25(contexts=2, query=query, backend=backend)
        loaded.load(tmp_path / "index", tiny_corpus)
        found, again = saved.search(CONTEXTS, 11), loaded.search(CONTEXTS, 11)
        np.testing.assert_array_equal(found.papers, again.papers)
        np.testing.assert_array_equal(found.scores, again.scores)
        assert loaded.index_bytes == saved.index_bytes


@pytest.mark.parametrize(
    "other",
    [{"k1": 1.0}, {"b": 0.5}, {"method": "okapi"}, {"stemmer": None}, {"stopwords": None}, {"contexts": 1}],
)
def test_an_index_of_other_settings_is_refused(
    tiny_corpus: Corpus, tmp_path: Path, other: dict[str, object]
) -> None:
    saved = BM25()
    saved.index(tiny_corpus)
    saved.save(tmp_path / "index")
    with pytest.raises(InputError, match="an index of another "):
        BM25(**other).load(tmp_path / "index", tiny_corpus)  # type: ignore[arg-type]


def test_an_index_cut_short_is_refused(tiny_corpus: Corpus, tmp_path: Path) -> None:
    saved = BM25()
    saved.index(tiny_corpus)
    saved.save(tmp_path / "index")
    for path in (tmp_path / "index").glob("*.npy"):
        whole = path.read_bytes()
        path.write_bytes(whole[:-1])
        with pytest.raises(InputError, match=f"{path.name}: .* bytes instead of"):
            BM25().load(tmp_path / "index", tiny_corpus)
        path.write_bytes(whole)


def test_what_is_not_allowed_never_appears_and_the_rest_as_it_was(tiny_corpus: Corpus) -> None:
    retriever = BM25(query=["context"])
    retriever.index(tiny_corpus)
    everything = retriever.search(CONTEXTS, 11)
    assert (everything.papers == -1).any()  # fewer match than are asked for
    ids = [tiny_corpus.paper_ids[row] for row in np.flatnonzero(tiny_corpus.is_candidate).tolist()]
    for left_out in (ids[:1], ids[::2], ids[:-1]):
        rows = [tiny_corpus.paper_row(paper) for paper in left_out]
        ranking = retriever.search(CONTEXTS, 4, Filters(exclude=left_out))
        for row in CONTEXTS:
            expected = [paper for paper in everything.papers[row] if paper >= 0 and paper not in rows][:4]
            assert ranking.papers[row].tolist() == expected + [-1] * (4 - len(expected))


def test_fewer_wanted_or_fewer_queries_at_a_time_change_nothing(tiny_corpus: Corpus) -> None:
    retriever, threaded = BM25(), BM25(threads=2)
    retriever.index(tiny_corpus)
    threaded.index(tiny_corpus)
    ranking = retriever.search(CONTEXTS, 11)
    np.testing.assert_array_equal(retriever.search(CONTEXTS, 3).papers, ranking.papers[:, :3])
    np.testing.assert_array_equal(threaded.search(CONTEXTS, 11).papers, ranking.papers)
    for row in CONTEXTS:
        np.testing.assert_array_equal(retriever.search(CONTEXTS[[row]], 11).scores, ranking.scores[[row]])


def test_terms_of_a_query_count_once_where_wanted(tiny_source: Path, tmp_path: Path) -> None:
    contexts = json.loads((tiny_source / "contexts.json").read_text())
    contexts["c1"]["masked_text"] = "graph parsing TARGETCIT"
    contexts["c2"]["masked_text"] = "graph parsing graphs graph TARGETCIT parsing"
    (tiny_source / "contexts.json").write_text(json.dumps(contexts))
    corpus = open_corpus(tiny_source, cache_dir=tmp_path / "cache")
    for count_terms in (True, False):
        retriever = BM25(query=["context"], count_terms=count_terms)
        retriever.index(corpus)
        scores = retriever.search(np.array([0, 1]), 5).scores
        assert np.array_equal(scores[0], scores[1]) == (not count_terms)


def _found(source: Path, cache: Path) -> list[list[tuple[str, float]]]:
    corpus = open_corpus(source, cache_dir=cache)
    retriever = BM25(contexts=5)
    retriever.index(corpus)
    ranking = retriever.search(np.arange(6), 11)  # the training contexts
    pairs = (
        zip(*row, strict=True) for row in zip(ranking.papers.tolist(), ranking.scores.tolist(), strict=True)
    )
    return [[(corpus.paper_ids[paper], score) for paper, score in row if paper >= 0] for row in pairs]


def test_only_cited_in_enter_the_index(tiny_source: Path, tmp_path: Path) -> None:
    before = _found(tiny_source, tmp_path / "before")
    contexts = json.loads((tiny_source / "contexts.json").read_text())
    for name in ("c7", "c8", "c9", "c10", "c11", "c12"):
        contexts[name]["masked_text"] = "Transition systems TARGETCIT and acoustic features of new words."
    (tiny_source / "contexts.json").write_text(json.dumps(contexts))
    assert _found(tiny_source, tmp_path / "after") == before
    contexts["c3"]["masked_text"] = "Transition systems TARGETCIT."
    (tiny_source / "contexts.json").write_text(json.dumps(contexts))
    assert _found(tiny_source, tmp_path / "changed") != before


def test_contexts_need_a_training_split(tiny_source: Path, tmp_path: Path) -> None:
    for split in SPLITS[:2]:
        (tiny_source / f"{split}.json").unlink()
    corpus = open_corpus(tiny_source, cache_dir=tmp_path / "cache")
    with pytest.raises(InputError, match=r"retriever\.contexts: corpus tiny has no split 'train'"):
        BM25(contexts=1).index(corpus)


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.lists(st.integers(0, 11), min_size=1, max_size=3), min_size=1, max_size=30), st.integers(1, 6)
)
def test_contexts_of_a_paper_are_taken_evenly(cited: list[list[int]], most: int) -> None:
    split = Split("train", np.arange(len(cited)) + 100, Ragged.from_rows(cited))
    taken = cited_in(split, 12, most)
    assert len(taken) == 12
    for paper, contexts in enumerate(taken):
        every = [100 + i for i, papers in enumerate(cited) for p in papers if p == paper]
        assert len(contexts) == min(len(every), most)
        if len(every) <= most:
            assert contexts.tolist() == every
        else:
            places = [every.index(context) for context in contexts.tolist()]
            gaps = np.diff([-1, *places]) if len(set(every)) == len(every) else np.array([1])
            assert gaps.max() - gaps.min() <= 1


# Few values, so that ties are common, and sizes on both sides of where a sample is looked at first.
SCORES = st.integers(1, 900).flatmap(
    lambda n: arrays(np.float32, n, elements=st.sampled_from([0.0, 0.5, 1.0, 2.0]), fill=st.just(1))
)


@settings(deadline=None, max_examples=50)
@given(SCORES, st.integers(1, 60))
def test_the_largest_are_those_of_a_plain_sort(scores: np.ndarray, k: int) -> None:
    expected = [place for place in np.argsort(-scores, kind="stable").tolist() if scores[place] > 0][:k]
    assert sorted(largest(scores, k).tolist()) == sorted(expected)


def test_the_largest_of_many_scores() -> None:
    rng = np.random.default_rng(0)
    for scores in (rng.gamma(0.5, size=20_000), np.arange(20_000.0) % 16 == 1, np.arange(20_000.0) % 16 == 0):
        expected = np.argsort(-scores.astype(np.float32), kind="stable")[:700]
        assert set(largest(scores.astype(np.float32), 700).tolist()) == set(expected.tolist())
