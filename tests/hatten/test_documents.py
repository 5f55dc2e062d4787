"""What the encoder is given: the right words of the right paragraphs, cut where they should be."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datasets.columns import Ragged
from datasets.corpus import Corpus
from datasets.errors import InputError
from hatten.documents import (
    ABSENT_TYPE,
    ABSTRACT,
    CONTEXT,
    TITLE,
    DocumentReader,
    Documents,
    Vocabulary,
    from_padded,
)


def words_of(documents: Documents, vocabulary: Vocabulary) -> list[list[list[str] | None]]:
    """Each document's paragraphs as words, None where one is absent."""
    return [
        [None if row < 0 else [vocabulary.words[i] for i in documents.paragraphs[row]] for row in rows]
        for rows in documents.index
    ]


def known_words(corpus: Corpus, tokens: Any, vocabulary: Vocabulary) -> list[str] | None:
    return [corpus.words[i] for i in tokens if corpus.words[i] in vocabulary.words] or None


@pytest.fixture
def vocabulary(tiny_corpus: Corpus) -> Vocabulary:
    """Every other word of the corpus, in another order, and the target marker."""
    return Vocabulary([*reversed(tiny_corpus.words[::2]), *({"targetcit"} - set(tiny_corpus.words[::2]))])


def test_papers_are_title_and_abstract(tiny_corpus: Corpus, vocabulary: Vocabulary) -> None:
    rows = np.array([3, 0, 6, 3])
    documents = DocumentReader(tiny_corpus, vocabulary, 512).papers(rows)
    columns = (tiny_corpus.title_tokens, tiny_corpus.abstract_tokens)
    expected = [[known_words(tiny_corpus, column[row], vocabulary) for column in columns] for row in rows]
    assert words_of(documents, vocabulary) == expected
    bare = tiny_corpus.paper_row("bare")
    assert bare == 6 and expected[2][1] is None
    assert documents.types.tolist() == [[TITLE, ABSTRACT]] * 2 + [[TITLE, ABSENT_TYPE]] + [[TITLE, ABSTRACT]]
    assert not documents.is_query.any()


def test_queries_are_citing_title_citing_abstract_and_context(
    tiny_corpus: Corpus, vocabulary: Vocabulary
) -> None:
    rows = np.array([8, 0, 2, 9, 1])
    documents = DocumentReader(tiny_corpus, vocabulary, 512).queries(rows)
    expected = []
    for row in rows:
        citing = tiny_corpus.citing[row]
        parts = (
            tiny_corpus.title_tokens[citing],
            tiny_corpus.abstract_tokens[citing],
            tiny_corpus.context_tokens[row],
        )
        expected.append([known_words(tiny_corpus, part, vocabulary) for part in parts])
    assert words_of(documents, vocabulary) == expected
    assert documents.types.tolist() == [[TITLE, ABSTRACT, CONTEXT]] * 5
    assert documents.is_query.all()


def test_a_citing_paper_of_several_contexts_is_there_once(tiny_corpus: Corpus) -> None:
    reader = DocumentReader(tiny_corpus, Vocabulary(tiny_corpus.words), 512)
    documents = reader.queries(np.arange(6))  # three contexts of each of two papers
    assert len(documents.paragraphs) == 2 * 2 + 6
    assert [len(set(column)) for column in documents.index.T.tolist()] == [2, 2, 6]


def test_a_text_without_a_known_word_is_absent(tiny_corpus: Corpus) -> None:
    reader = DocumentReader(tiny_corpus, Vocabulary(["targetcit"]), 512)
    papers, queries = reader.papers(np.arange(4)), reader.queries(np.arange(4))
    assert len(papers.paragraphs) == 0 and (papers.index == -1).all() and (papers.types == ABSENT_TYPE).all()
    assert queries.types.tolist() == [[ABSENT_TYPE, ABSENT_TYPE, CONTEXT]] * 4
    assert len(reader.papers(np.empty(0, np.int64))) == 0


TARGET = 1  # ids of the store; 0 is unknown to the model


@given(
    texts=st.lists(st.lists(st.integers(0, 5), max_size=14), min_size=1, max_size=6),
    most=st.integers(1, 9),
)
def test_long_texts_are_cut_at_the_end_and_contexts_around_the_marker(
    texts: list[list[int]], most: int
) -> None:
    words = ["unknown", "targetcit", "a", "b", "c", "d"]
    column, rows = Ragged.from_rows(texts), np.arange(len(texts))
    corpus: Any = SimpleNamespace(
        **dict.fromkeys(("title_tokens", "abstract_tokens", "context_tokens"), column),
        **dict.fromkeys(("titles", "abstracts", "context_texts"), [""] * len(texts)),
        **{"words": words, "citing": rows.astype(np.int32), "years": rows},
    )
    vocabulary = Vocabulary(words[1:])
    documents = DocumentReader(corpus, vocabulary, most).queries(rows)
    for text, (title, abstract, context) in zip(texts, words_of(documents, vocabulary), strict=True):
        known = [words[i] for i in text if i]
        assert title == abstract == (known[:most] or None)
        if len(known) <= most or "targetcit" not in known:
            assert context == (known[:most] or None)
            continue
        assert context is not None and len(context) == most
        place = known.index("targetcit")
        starts = [i for i in range(len(known) - most + 1) if known[i : i + most] == context]
        # As many words before the marker as after it, or as near to that as the ends allow.
        assert min(max(place - most // 2, 0), len(known) - most) in starts


@given(
    rows=st.lists(
        st.lists(st.lists(st.integers(1, 9), max_size=4), min_size=3, max_size=3), min_size=1, max_size=5
    ),
    hidden=st.integers(0, 2),
)
def test_padded_arrays_become_documents(rows: list[list[list[int]]], hidden: int) -> None:
    ids = np.zeros((len(rows), 3, 4), np.int64)
    for i, paragraphs in enumerate(rows):
        for j, paragraph in enumerate(paragraphs):
            ids[i, j, : len(paragraph)] = paragraph
    absent = np.zeros((len(rows), 3), np.bool_)
    absent[0, hidden] = True
    types = np.broadcast_to([TITLE, ABSTRACT, CONTEXT], absent.shape)
    documents = from_padded(ids, types, absent, pad_id=0)
    for i, paragraphs in enumerate(rows):
        for j, paragraph in enumerate(paragraphs):
            there = bool(paragraph) and not absent[i, j]
            assert documents.types[i, j] == (types[i, j] if there else ABSENT_TYPE)
            assert (documents.index[i, j] >= 0) == there
            if there:
                assert documents.paragraphs[documents.index[i, j]].tolist() == paragraph
    assert len(documents.paragraphs) == (documents.index >= 0).sum()


WORDS = st.lists(st.text(min_size=1, max_size=4), unique=True, max_size=30).filter(lambda w: "<pad>" not in w)


@settings(deadline=None, max_examples=50)
@given(known=WORDS, asked=WORDS)
def test_lookup_gives_the_place_of_each_known_word(known: list[str], asked: list[str]) -> None:
    vocabulary = Vocabulary(known)
    ids = vocabulary.lookup(asked)
    assert ids.dtype == np.int32 and len(ids) == len(asked)
    for word, word_id in zip(asked, ids.tolist(), strict=True):
        assert (word_id == -1) if word not in known else (vocabulary.words[word_id] == word)


def test_padding_is_first_unless_the_words_say_where() -> None:
    assert Vocabulary(["deep", "nets"]).words == ["<pad>", "deep", "nets"]
    assert Vocabulary(["deep", "nets"]).pad_id == 0
    reference = Vocabulary(["deep", "<eos>", "<pad>", "<unk>"])
    assert reference.words == ["deep", "<eos>", "<pad>", "<unk>"]
    assert reference.pad_id == 2 and len(reference) == 4


def test_a_text_cannot_spell_padding() -> None:
    for vocabulary in (Vocabulary(["deep"]), Vocabulary(["deep", "<pad>"])):
        assert vocabulary.lookup(["<pad>", "deep"])[0] == -1


def test_vocabularies_of_the_same_words_in_the_same_order_are_equal() -> None:
    assert Vocabulary(["deep", "nets"]) == Vocabulary(["<pad>", "deep", "nets"])
    assert Vocabulary(["deep", "nets"]) != Vocabulary(["nets", "deep"])


def test_a_word_twice_is_refused() -> None:
    with pytest.raises(InputError, match="'nets' is there twice"):
        Vocabulary(["nets", "deep", "nets"])
