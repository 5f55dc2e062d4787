"""Documents: the words of each paragraph, and where they are truncated."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from citerec.base.errors import InputError
from citerec.datasets.columns import Ragged
from citerec.datasets.corpus import Corpus
from citerec.hatten.documents import (
    ABSENT_TYPE,
    ABSTRACT,
    CONTEXT,
    TITLE,
    DocumentReader,
    Documents,
    Vocabulary,
    drop_words,
)


def words_of(documents: Documents, vocabulary: Vocabulary) -> list[list[list[str] | None]]:
    """Return the paragraphs of each document as words, None for absent ones."""
    return [
        [None if row < 0 else [vocabulary.words[i] for i in documents.paragraphs[row]] for row in rows]
        for rows in documents.index
    ]


@pytest.fixture
def vocabulary(tiny_corpus: Corpus) -> Vocabulary:
    """Every other word of the corpus, in another order, and the target marker."""
    return Vocabulary([*reversed(tiny_corpus.words[::2]), *({"targetcit"} - set(tiny_corpus.words[::2]))])


def test_papers_have_title_and_abstract_and_queries_also_a_context(
    tiny_corpus: Corpus, vocabulary: Vocabulary
) -> None:
    reader = DocumentReader(tiny_corpus, vocabulary, 512)
    papers, contexts = np.array([3, 0, 6, 3]), np.array([8, 0, 2, 9, 1])
    columns = (tiny_corpus.title_tokens, tiny_corpus.abstract_tokens)

    def words(row: int, *more: Any) -> list[list[str] | None]:
        tokens = [*(column[row] for column in columns), *more]
        return [[tiny_corpus.words[i] for i in own if tiny_corpus.words[i] in vocabulary.words] or None
                for own in tokens]  # fmt: skip

    result = reader.papers(papers)
    expected = [words(row) for row in papers]
    assert words_of(result, vocabulary) == expected
    assert tiny_corpus.paper_row("bare") == 6 and expected[2][1] is None
    assert result.types.tolist() == [[TITLE, ABSTRACT]] * 2 + [[TITLE, ABSENT_TYPE]] + [[TITLE, ABSTRACT]]
    assert not result.is_query.any()
    result = reader.queries(contexts)
    citing = tiny_corpus.citing[contexts]
    texts = [tiny_corpus.context_tokens[row] for row in contexts]
    assert words_of(result, vocabulary) == [words(*pair) for pair in zip(citing, texts, strict=True)]
    assert result.types.tolist() == [[TITLE, ABSTRACT, CONTEXT]] * 5
    assert result.is_query.all()


def test_a_citing_paper_with_several_contexts_is_read_once(tiny_corpus: Corpus) -> None:
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


@given(
    texts=st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=9, unique=True), max_size=6),
    share=st.sampled_from([0.0, 0.5, 1.0]),
)
def test_dropped_words_leave_the_others_in_order_and_no_text_without_any(
    texts: list[list[int]], share: float
) -> None:
    index = np.arange(len(texts))[:, None]
    documents = Documents(Ragged.from_rows(texts), index, np.zeros_like(index))
    dropped = drop_words(documents, share, np.random.default_rng(0))
    assert dropped.index is index and len(dropped.paragraphs) == len(texts)
    for text, left in zip(texts, map(list, dropped.paragraphs), strict=True):
        assert left and left == [word for word in text if word in left]
        assert share == 0.5 or left == (text[:1] if share else text)


@given(
    texts=st.lists(st.lists(st.integers(0, 5), max_size=14), min_size=1, max_size=6),
    most=st.integers(1, 9),
)
def test_long_texts_are_truncated_and_words_near_the_marker_added(texts: list[list[int]], most: int) -> None:
    words = ["unknown", "targetcit", "a", "b", "c", "d"]
    column, rows = Ragged.from_rows(texts), np.arange(len(texts))
    corpus: Any = SimpleNamespace(
        **dict.fromkeys(("title_tokens", "abstract_tokens", "context_tokens"), column),
        **dict.fromkeys(("titles", "abstracts", "context_texts"), [""] * len(texts)),
        **{"words": words, "citing": rows.astype(np.int32), "years": rows, "own_papers": lambda rows: rows},
    )
    vocabulary = Vocabulary(words[1:])
    documents = DocumentReader(corpus, vocabulary, most, near=(1, 3)).queries(rows)
    for text, (title, abstract, context, *near) in zip(texts, words_of(documents, vocabulary), strict=True):
        kept, read = [words[i] for i in text if i], context or []
        mark = read.index("targetcit") if "targetcit" in read else None
        around = [None if mark is None else read[max(mark - n, 0) : mark + n + 1] for n in (1, 3)]
        assert near == around
        assert title == abstract == (kept[:most] or None)
        if len(kept) <= most or "targetcit" not in kept:
            assert context == (kept[:most] or None)
            continue
        assert context is not None and len(context) == most
        place = kept.index("targetcit")
        starts = [i for i in range(len(kept) - most + 1) if kept[i : i + most] == context]
        # Centred on the marker as far as the ends of the text allow.
        assert min(max(place - most // 2, 0), len(kept) - most) in starts


def test_padding_is_first_unless_listed_and_no_text_can_contain_it() -> None:
    own, reference = Vocabulary(["deep", "nets"]), Vocabulary(["deep", "<eos>", "<pad>", "<unk>"])
    assert (own.words, own.pad_id) == (["<pad>", "deep", "nets"], 0)
    assert reference.words == ["deep", "<eos>", "<pad>", "<unk>"]
    assert reference.pad_id == 2 and len(reference) == 4
    for vocabulary in (own, reference):
        ids = vocabulary.lookup(["<pad>", "deep", "unknown"])
        assert ids.dtype == np.int32 and ids.tolist() == [-1, vocabulary.words.index("deep"), -1]
    assert own == Vocabulary(["<pad>", "deep", "nets"]) != Vocabulary(["nets", "deep"])
    with pytest.raises(InputError, match="'nets' appears twice"):
        Vocabulary(["nets", "deep", "nets"])
