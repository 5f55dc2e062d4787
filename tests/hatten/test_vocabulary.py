"""Words and ids of a model."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datasets.errors import InputError
from hatten.documents import Vocabulary

WORDS = st.lists(st.text(min_size=1, max_size=4), unique=True, max_size=30).filter(lambda w: "<pad>" not in w)


@settings(deadline=None, max_examples=50)
@given(known=WORDS, asked=WORDS)
def test_lookup_gives_the_place_of_each_known_word(known: list[str], asked: list[str]) -> None:
    vocabulary = Vocabulary(known)
    ids = vocabulary.lookup(asked)
    assert ids.dtype == np.int32 and len(ids) == len(asked)
    for word, word_id in zip(asked, ids.tolist(), strict=True):
        assert (word_id == -1) if word not in known else (vocabulary.words[word_id] == word)
        assert (word in vocabulary) == (word in known)


def test_padding_is_first_unless_the_words_say_where() -> None:
    assert Vocabulary(["deep", "nets"]).words == ["<pad>", "deep", "nets"]
    assert Vocabulary(["deep", "nets"]).pad_id == 0
    reference = Vocabulary(["deep", "<eos>", "<pad>", "<unk>"])
    assert reference.words == ["deep", "<eos>", "<pad>", "<unk>"]
    assert reference.pad_id == 2 and len(reference) == 4


def test_a_text_cannot_spell_padding() -> None:
    for vocabulary in (Vocabulary(["deep"]), Vocabulary(["deep", "<pad>"])):
        assert vocabulary.lookup(["<pad>", "deep"])[0] == -1
        assert "<pad>" not in vocabulary


@settings(deadline=None, max_examples=50)
@given(WORDS, WORDS)
def test_equal_words_in_equal_order_have_one_hash(one: list[str], other: list[str]) -> None:
    assert (Vocabulary(one).hash == Vocabulary(other).hash) == (one == other)
    assert (Vocabulary(one) == Vocabulary(other)) == (one == other)
    assert Vocabulary(one).hash == Vocabulary(["<pad>", *one]).hash


def test_a_word_twice_is_refused() -> None:
    with pytest.raises(InputError, match="'nets' is there twice"):
        Vocabulary(["nets", "deep", "nets"])
