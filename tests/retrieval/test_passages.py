"""Passages of a draft that cite: overlaps and similarities, against plain versions; papers cited there."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from citerec.datasets.columns import Ragged
from citerec.datasets.corpus import Corpus
from citerec.datasets.tokenize import default_tokenize
from citerec.retrieval.passages import OVERLAP, REACH, STEM, CitedElsewhere, CitingPassages, cited_elsewhere

MARKERS = ("targetcit", "othercit")
WORDS = st.sampled_from(["adam", "optimiser", "optimisers", "the", "TARGETCIT", "OTHERCIT", "gradient", "."])
CONTEXT = st.lists(WORDS, max_size=9).map(" ".join)


def plain_vector(context: str, idf: dict[str, float]) -> dict[str, float]:
    words, vector = default_tokenize(context), dict[str, float]()
    mark = words.index("targetcit") if "targetcit" in words else len(words)
    for place, word in enumerate(words):
        if word not in MARKERS and word[:STEM] in idf:
            weight = idf[word[:STEM]] / (1 + abs(place - mark) / REACH)
            vector[word[:STEM]] = max(vector.get(word[:STEM], 0), weight)
    return vector


def plain_cosine(a: dict[str, float], b: dict[str, float]) -> float:
    lengths = math.hypot(*a.values()) * math.hypot(*b.values())
    return sum(a[stem] * b.get(stem, 0) for stem in a) / lengths if lengths else 0


@given(st.lists(CONTEXT, min_size=1, max_size=5), CONTEXT)
def test_similarities_are_those_of_a_plain_version(contexts: list[str], asked: str) -> None:
    read = [set(default_tokenize(context)) - {*MARKERS} for context in contexts]
    counts = Counter(stem for words in read for stem in {word[:STEM] for word in words})
    idf = {stem: math.log((len(contexts) + 1) / (n + 0.5)) for stem, n in counts.items()}
    _, result = CitingPassages(contexts, [()] * len(contexts)).compare(asked, -1)
    vectors = [plain_vector(context, idf) for context in [asked, *contexts]]
    wanted = [plain_cosine(vectors[0], vector) for vector in vectors[1:]]
    assert result == pytest.approx(wanted, abs=1e-5)


@given(st.lists(CONTEXT, min_size=1, max_size=5), CONTEXT)
def test_passages_elsewhere_share_no_sequence_of_words(contexts: list[str], asked: str) -> None:
    def sequences(context: str) -> set[tuple[str, ...]]:
        words = [word for word in default_tokenize(context) if word not in MARKERS]
        size = min(OVERLAP, len(words))
        return {tuple(words[i : i + size]) for i in range(len(words) - size + 1)} if words else set()

    elsewhere, _ = CitingPassages(contexts, [()] * len(contexts)).compare(asked, 0)
    own = sequences(asked)
    wanted = [bool(own) and row > 0 and own.isdisjoint(sequences(item)) for row, item in enumerate(contexts)]
    assert elsewhere.tolist() == wanted


def test_cosines_do_not_depend_on_the_hashes_of_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    texts = [" ".join(f"{word:05}" for word in rng.integers(0, 300, 40)) + " TARGETCIT" for _ in range(30)]

    def cosines() -> list[list[float]]:
        passages = CitingPassages(texts, [[]] * len(texts))
        return [passages.compare(text, -1)[1].tolist() for text in texts]

    expected = cosines()
    monkeypatch.setattr("citerec.retrieval.passages.hash", lambda value: -hash(value), raising=False)
    assert cosines() == expected


def test_a_draft_without_passages() -> None:
    elsewhere, cosines = CitingPassages((), ()).compare("Adam TARGETCIT", 0)
    assert len(elsewhere) == len(cosines) == 0


def test_papers_of_passages_elsewhere(tiny_corpus: Corpus) -> None:
    ids, texts = tiny_corpus.paper_ids, ["Optimisers step TARGETCIT.", "Here TARGETCIT.", "Graphs TARGETCIT."]
    passages = CitingPassages(texts, [[ids[2], ids[1]], [ids[0]], [ids[2], "not in the library"]])
    elsewhere = CitedElsewhere(Ragged.from_rows([[], []]), [passages, None], np.array([1, 0]))
    papers, cosines, distances = elsewhere.cited(tiny_corpus, 0, "Graphs TARGETCIT of steps.")
    assert papers.tolist() == [2, 1, 2] and distances.tolist() == [1, 1, 1]
    assert cosines[2] > cosines[0] == cosines[1]
    assert len(elsewhere.cited(tiny_corpus, 1, "Graphs TARGETCIT")[0]) == 0
    assert elsewhere.take(np.array([1, 0])).cited(tiny_corpus, 1, texts[0])[0].tolist() == [2]


def test_papers_of_passages_beside_overlap_and_are_near(tiny_corpus: Corpus) -> None:
    ids, asked = tiny_corpus.paper_ids, "Steps adapt to each gradient TARGETCIT."
    texts = ["Graphs TARGETCIT.", asked, asked, "So TARGETCIT, steps adapt to each gradient.", asked]
    passages = CitingPassages(texts, [[ids[0]], [ids[1]], [ids[2]], [ids[0], "unknown"], [ids[1]]])
    result = CitedElsewhere(Ragged.from_rows([[], []]), [passages, None], np.array([2, 0]))
    papers, cosines, _ = result.cited(tiny_corpus, 0, asked, beside=True)
    assert papers.tolist() == [1, 0, 1] and cosines[0] == cosines[2] > cosines[1] > 0
    far = replace(result, places=np.array([4, 0]))
    assert far.cited(tiny_corpus, 0, asked, beside=True)[0].tolist() == [2, 0]
    assert len(result.cited(tiny_corpus, 1, asked, beside=True)[0]) == 0


def test_contexts_of_a_corpus_are_passages_in_its_order(demo_corpus: Corpus) -> None:
    split = demo_corpus.split("val")
    result = cited_elsewhere(demo_corpus, split, split.contexts)
    for query, row in enumerate(split.contexts.tolist()):
        passages = result.passages[query]
        assert passages is not None
        assert passages.contexts[int(result.places[query])] == demo_corpus.context_texts[row]
        papers, _, _ = result.cited(demo_corpus, query, demo_corpus.context_texts[row])
        assert sorted(set(papers.tolist())) == result.known[query].tolist()


def test_second_copies_are_far_and_share_words() -> None:
    text = "Steps adapt to each gradient, as was said before TARGETCIT."
    others = [
        f"Steps adapt to each gradient, other words about {word} TARGETCIT."
        for word in ("trees", "peat", "graphs")
    ]
    passages = CitingPassages([text, *others, text], [["a"], ["b"], ["c"], ["b"], ["a", "b"]])
    assert [passages.copied(place) for place in range(6)] == [{"a"}, set(), set(), set(), {"a"}, set()]
    assert CitingPassages([text, text], [["a"], ["a"]]).copied(0) == set()
