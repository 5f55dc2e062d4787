"""Explanations, on texts with obvious answers and compared with plain counting."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from citerec.datasets.corpus import Corpus
from citerec.datasets.records import OTHER_MARKER, TARGET_MARKER
from citerec.library.explanation import (
    NO_EVIDENCE,
    EvidenceFinder,
    Explanation,
    _words,
    best_sentence,
    citing_sentence,
    excerpt,
    mentioned_name,
    paper_names,
    stem_weights,
)
from citerec.retrieval.terms import strip_markers

ABSTRACT = (
    "We present a new optimiser. It adapts the learning rate of each weight from moments of gradients. "
    "Code is at https://example.org/adaptive-learning-rate-gradients."
)


def test_the_best_sentence_and_its_matches() -> None:
    weights = stem_weights(
        f"adaptive learning rates {TARGET_MARKER} for gradient descent", "", lambda word: 1.0
    )
    sentence, matched = best_sentence(ABSTRACT, weights)
    assert sentence == "It adapts the learning rate of each weight from moments of gradients."
    assert [sentence[a:b] for a, b in matched] == ["adapts", "learning", "rate", "gradients"]


def test_words_near_the_mark_weigh_more() -> None:
    far = "parsing " + "of many other long sentences in several old treebanks " * 3
    weights = stem_weights(f"{far} and speech {TARGET_MARKER}", "Pictures", lambda word: 1.0)
    assert weights["speech"] == 1.0 > weights["pars"] > 0
    assert weights["pictur"] < weights["speech"], "the title is less than the context"
    weights = stem_weights(f"Old trees. New graphs {TARGET_MARKER}. Sounds", "", lambda word: 1.0)
    assert weights["tree"] < weights["new"] and weights["sound"] == 0.5, "other sentences count half"


def test_rare_words_weigh_more_and_stop_words_numbers_and_marks_nothing() -> None:
    rarity = {"moments": 9.0, "new": 0.5, "present": 0.5}
    context = f"new methods present moments {TARGET_MARKER}"
    sentence, _ = best_sentence(ABSTRACT, stem_weights(context, "", lambda word: rarity.get(word, 0.1)))
    assert "moments" in sentence
    assert best_sentence(ABSTRACT, stem_weights(context, "", lambda word: 0.1), least=1.0) == ("", ())
    nothing = stem_weights(f"as we did in 2015 {OTHER_MARKER} and {TARGET_MARKER}", "", lambda word: 1.0)
    assert nothing == {} and best_sentence(ABSTRACT, nothing) == ("", ())


@pytest.mark.parametrize(
    ("title", "names"),
    [
        ("Adam: A Method for Stochastic Optimization", ["Adam"]),
        ("Swin Transformer: Hierarchical Vision Transformer", ["Swin Transformer"]),
        ("Deep Residual Learning for Image Recognition", ["DRLIR"]),
        ("Long Short-Term Memory", ["LSTM"]),
        ("An Image is Worth 16x16 Words: Transformers", ["16x16"]),
        ("On the use of the MS-COCO and ImageNet sets in 3D", ["MS-COCO", "ImageNet"]),
        ("GPT-4 technical report", ["GPT-4"]),
        ("BERT-based parsing", ["BERT"]),
        ("A SURVEY OF PARSING", []),
        ("Attention is all you need", []),
        ("", []),
    ],
)
def test_names_of_papers(title: str, names: list[str]) -> None:
    assert paper_names(title) == names


@pytest.mark.parametrize(
    ("context", "name"),
    [
        ("we fine-tune BERT (TARGETCIT)", "BERT"),
        ("two BERTs TARGETCIT", "BERT"),
        ("as imagenet TARGETCIT shows", "ImageNet"),
        ("bert the puppet TARGETCIT", ""),
        ("RoBERTa TARGETCIT", ""),
        ("BERT and later ImageNet TARGETCIT", "ImageNet"),
        ("no mark but BERT", "BERT"),
        ("MambaST TARGETCIT oversmooths", "Mamba-ST"),
        ("We know BERT. We use TARGETCIT here. Then ImageNet.", ""),
    ],
)
def test_names_in_contexts(context: str, name: str) -> None:
    assert (
        mentioned_name(context, ["BERT", "ImageNet", "Mamba-ST", *paper_names("The TARGETCIT set")]) == name
    )


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


def test_evidence_over_a_corpus(tiny_corpus: Corpus) -> None:
    finder, row = EvidenceFinder(tiny_corpus), tiny_corpus.paper_row
    context = f"We start from a parser {TARGET_MARKER} of dependency trees in many languages"
    papers = [row("parsing"), row("speech"), row("bare")]
    parsing, speech, bare = finder.evidence(context, papers)
    assert parsing.sentence == "A transition based parser for dependency trees."
    assert parsing.cited_as == "We start from the parser of [CITE] for all languages."
    assert speech.sentence == "" and speech.cited_as == "" and speech.why == NO_EVIDENCE
    assert bare == Explanation(in_title=("trees",)) and bare.why == "its title contains “trees”"
    citing, *_ = finder.evidence(context, papers, citing=row("citing-train-1"))
    assert citing.cited_as == "A dependency parser [CITE] reads the captions.", (
        "not what the draft itself says"
    )
    assert finder.evidence(context, []) == []
    [ranked] = finder.evidence(f"inverted lists rank documents {TARGET_MARKER}", [row("retrieval")])
    assert ranked.sentence and not ranked.cited_as, "contexts of other splits are not quoted"


def test_similarity_counts_each_word_once(demo_corpus: Corpus) -> None:
    finder = EvidenceFinder(demo_corpus)
    context = demo_corpus.context_texts[3]
    others = np.arange(40, dtype=np.int32)
    lengths = demo_corpus.context_tokens.take(others).lengths
    asked = {word for word, *_ in _words(strip_markers(context))}
    expected = []
    for other, length in zip(others.tolist(), lengths.tolist(), strict=True):
        words = {demo_corpus.words[i] for i in demo_corpus.context_tokens[other].tolist()}
        total = sum(finder.rarity(word) for word in asked & words)
        expected.append(total / (1 + 1.2 * (0.25 + 0.75 * length / lengths.mean())))
    assert np.allclose(finder._similarity(context, others), expected)


def test_why_is_one_readable_line() -> None:
    long = "word " * 80 + "answer " + "word " * 80
    at = long.index("answer")
    evidence = Explanation(long, ((at, at + 6),), (), "BERT", "We use BERT [CITE].")
    assert "\n" not in evidence.why and len(evidence.why) < 300
    assert evidence.why.startswith("BERT is named here; “… ") and "answer" in evidence.why
    assert evidence.why.endswith("; cited as “We use BERT [CITE].”")
