"""Passages keep the words, pages and sections of a text, and their lengths."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citerec.formats.articles.pdf_layout import PdfParagraph
from citerec.library.evidence.evidence import query_words
from citerec.library.evidence.passages import LEAST, MOST, cut

word = st.text("abcdefg", min_size=1, max_size=6)
sentence = st.lists(word, min_size=1, max_size=260).map(lambda words: f"{' '.join(words).capitalize()}.")
paragraph = st.lists(sentence, min_size=1, max_size=6).map(" ".join)
parts = st.lists(st.tuples(paragraph, st.integers(1, 3)), max_size=12).map(
    lambda found: [PdfParagraph(text, ((0, page),), f"S{page}") for text, page in found]
)


@given(parts)
def test_no_word_is_lost_and_none_too_many(texts: list[PdfParagraph]) -> None:
    passages = cut(texts)
    assert " ".join(passage.text for passage in passages).split() == [
        word for part in texts for word in part.text.split()
    ]
    lengths = [len(passage.text.split()) for passage in passages]
    assert all(0 < length <= MOST for length in lengths)


@given(parts)
def test_pages_are_those_of_the_paragraphs(texts: list[PdfParagraph]) -> None:
    pages = [part.starts[0][1] for part in texts for _ in part.text.split()]
    found = []
    for passage in cut(texts):
        at = 0
        for one in passage.text.split():
            at = passage.text.index(one, at)
            found.append(passage.page(at))
            at += len(one)
    assert found == pages


def test_passages_end_with_sentences_and_prefer_paragraphs() -> None:
    of_forty = "One " + "word " * 38 + "ends."
    texts = [PdfParagraph(" ".join([of_forty] * count), ((0, 1),), "A") for count in (3, 3, 7)]
    lengths = [len(passage.text.split()) for passage in cut(texts)]
    assert lengths == [120, 120, 200, 80]
    assert all(passage.text.endswith("ends.") for passage in cut(texts))


def test_a_section_begins_a_passage_but_a_short_one() -> None:
    texts = [
        PdfParagraph("word " * count + "end.", ((0, 1),), name)
        for count, name in ((79, "A"), (19, "B"), (99, "C"))
    ]
    passages = cut(texts)
    assert [(len(passage.text.split()), passage.section) for passage in passages] == [(80, "A"), (120, "B")]
    assert LEAST // 2 > 20


def test_a_page_begins_within_a_sentence() -> None:
    starts = ((0, 4), (22, 5))
    [passage] = cut([PdfParagraph("Words of a first page go on there.", starts)])
    assert [passage.page(passage.text.index(word)) for word in ("Words", "go", "there")] == [4, 5, 5]


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        (
            "Graphs first. Trees grow OTHERCIT and moss spreads TARGETCIT slowly. Stones stay.",
            "and moss spreads slowly",
        ),
        ("Graphs first. Trees grow OTHERCIT, TARGETCIT slowly. Stones stay.", "trees grow slowly"),
        ("Graphs first. Trees grow slowly. TARGETCIT Stones stay.", "trees grow slowly"),
        ("Trees grow slowly TARGETCIT", "trees grow slowly"),
        ("TARGETCIT say that trees grow. Stones stay.", "say that trees grow"),
        ("no mark is here", "no mark is here"),
    ],
)
def test_words_outside_what_a_mark_stands_for_count_half(text: str, whole: str) -> None:
    words, plain = query_words(text, 40.0, 1)
    same, weights = query_words(text, 40.0, 0.5)
    assert same == words
    counted = zip(words, weights.tolist(), plain.tolist(), strict=True)
    assert [word for word, a, b in counted if a == b and word.isalpha()] == whole.split()
    assert all(a in (b, b / 2) for a, b in zip(weights.tolist(), plain.tolist(), strict=True))
