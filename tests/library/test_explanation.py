"""Explanations, on texts with obvious answers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from citerec.datasets.corpus import Corpus
from citerec.datasets.prepare import open_corpus
from citerec.datasets.records import OTHER_MARKER, TARGET_MARKER
from citerec.datasets.tokenize import default_tokenize
from citerec.library.ask.recommendation import NOTHING_FITS, SEVERAL_FIT, what_fits
from citerec.library.evidence.explanation import (
    NO_EVIDENCE,
    Explainer,
    Explanation,
    best_sentence,
    citing_sentence,
    excerpt,
)
from citerec.rerank.ranker.corpus_statistics import CorpusStatistics
from citerec.retrieval.queries import Queries, Query

ABSTRACT = (
    "We present a new optimiser. It adapts the learning rate of each weight from moments of gradients. "
    "Code is at https://example.org/adaptive-learning-rate-gradients."
)


class Rarities(Explainer):
    """Words of given idf; others have 1."""

    def __init__(self, rarities: dict[str, float]) -> None:
        self.rarities = rarities

    def idf(self, word: str) -> float:
        return self.rarities.get(word, 1.0)


def weights(context: str, **rarities: float) -> dict[str, float]:
    return Rarities(rarities).stem_weights(default_tokenize(context))


def test_the_evidence_sentence_and_its_matches() -> None:
    given = weights(f"adaptive learning rates {TARGET_MARKER} for gradient descent")
    _, sentence, matched = best_sentence(ABSTRACT, given)
    assert sentence == "It adapts the learning rate of each weight from moments of gradients."
    assert [sentence[a:b] for a, b in matched] == ["adapts", "learning", "rate", "gradients"]
    assert best_sentence(ABSTRACT, given, least=4.0) == (0, "", ())


def test_rare_words_near_the_mark_weigh_more_and_stop_words_numbers_and_marks_nothing() -> None:
    found = weights(f"parsing of treebanks and speech {TARGET_MARKER} sounds", speech=2.0)
    assert found["speech"] > found["sound"] > found["treebank"] > found["pars"] > 0
    nothing = weights(f"as in 2015 {OTHER_MARKER} and {TARGET_MARKER}, x")
    assert nothing == {} and best_sentence(ABSTRACT, nothing) == (0, "", ())


@pytest.mark.parametrize("ranked", [False, True])
def test_explanations_over_a_corpus(tiny_corpus: Corpus, ranked: bool) -> None:
    statistics = CorpusStatistics.build(tiny_corpus) if ranked else None
    explainer, row = Explainer(tiny_corpus, statistics), tiny_corpus.paper_row
    papers = [row("parsing"), row("speech"), row("bare")]

    def explain(context: str, papers: list[int]) -> list[Explanation]:
        return explainer.explain(Queries.from_list(tiny_corpus, [Query(context)]), papers)

    context = f"We start from a parser {TARGET_MARKER} of dependency trees in many languages"
    parsing, speech, bare = explain(context, papers)
    assert parsing.sentence == "A transition based parser for dependency trees."
    assert speech.sentence == "" and bare.in_title == ("trees",)
    assert bare.why == "its title contains “trees”"
    assert explain(context, []) == []


def test_matches_in_a_title_of_two_sentences(tiny_source: Path, tmp_path: Path) -> None:
    papers = json.loads((tiny_source / "papers.json").read_text())
    papers["bare"]["title"] = "Which parser do you mean? A study of trees"
    (tiny_source / "papers.json").write_text(json.dumps(papers))
    corpus = open_corpus(tiny_source, cache_dir=tmp_path / "cache")
    query = Queries.from_list(corpus, [Query(f"Words form trees {TARGET_MARKER} in many languages")])
    [found] = Explainer(corpus).explain(query, [corpus.paper_row("bare")])
    assert found.in_title == ("trees",)


@pytest.mark.parametrize(
    ("context", "sentence"),
    [
        (f"old trees. We parse [{TARGET_MARKER}, {OTHER_MARKER}] well. And", "We parse [CITE], […] well."),
        (f"transition systems ({TARGET_MARKER}) built", "… transition systems [CITE] built …"),
        (f"{TARGET_MARKER} is fine.", "[CITE] is fine."),
    ],
)
def test_citing_sentences(context: str, sentence: str) -> None:
    assert citing_sentence(context) == sentence


@given(st.text(), st.integers(0, 400), st.integers(1, 60))
def test_citing_sentences_are_cut_around_their_mark(text: str, at: int, longest: int) -> None:
    text = text.replace(TARGET_MARKER, "")
    sentence = citing_sentence(f"{text[:at]} {TARGET_MARKER} {text[at:]}")
    assert "[CITE]" in sentence
    shown = excerpt(sentence, ((sentence.index("[CITE]"), sentence.index("[CITE]") + 6),), longest + 40)
    assert len(shown) <= longest + 44 and "[CITE]" in shown


def test_why_is_one_readable_line() -> None:
    long = "word " * 80 + "answer " + "word " * 80
    at = long.index("answer")
    evidence = Explanation(long, ((at, at + 6),), (), "BERT", "We use BERT [CITE].", None, "Lee 2001")
    assert "\n" not in evidence.why and len(evidence.why) < 300
    assert evidence.why.startswith("BERT is named here; “… ") and "answer" in evidence.why
    assert evidence.why.endswith("; cited for this in Lee 2001: “We use BERT [CITE].”")
    assert Explanation().why == NO_EVIDENCE


@pytest.mark.parametrize(
    ("probabilities", "papers", "cosine", "said"),
    [
        ([0.1] * 10, 1000, 0.5, SEVERAL_FIT),
        ([0.1] * 10, 1000, None, SEVERAL_FIT),
        ([0.08] * 10, 1000, 0.5, ""),  # the first ten have .8
        ([0.1] * 10, 60, 0.5, ""),  # the first six of 60 papers have .6
        ([0.27, 0.25, 0.22, 0.2], 39, 0.35, SEVERAL_FIT),
        ([0.29, 0.25, 0.22, 0.2], 39, 0.35, ""),
        ([0.3, 0.1], 29, 0.25, NOTHING_FITS),  # near to nothing, whatever the probability
        ([0.3, 0.1], 29, 0.35, ""),
        ([0.3, 0.1], 5000, 0.3, NOTHING_FITS),  # the best of so many would be nearer
        ([0.6, 0.1], 5000, 0.3, ""),  # a name, perhaps
        ([0.1] * 10, 1000, 0.3, NOTHING_FITS),
        ([0.05] * 50, 1_000_000, 0.48, ""),
        ([0.05] * 50, 1000, None, NOTHING_FITS),
        ([0.05] * 50, 1001, None, ""),
        ([], 0, None, ""),
        ([0.85, 0.1], 2, 0.05, NOTHING_FITS),  # among so few, something always seems probable
        ([0.85, 0.1], 3, 0.05, ""),
    ],
)
def test_whether_anything_fits(
    probabilities: list[float], papers: int, cosine: float | None, said: str
) -> None:
    assert what_fits(np.array(probabilities), papers, cosine) == said
