"""The two tokenisers, and the compiled word table compared with them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citerec.datasets.records import MARKER_WORDS, OTHER_MARKER, OTHER_WORD, TARGET_MARKER, TARGET_WORD
from citerec.datasets.tokenize import TOKENIZERS, WordTable, default_tokenize, sentence_starts


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("Graph-based models, e.g. GCNs.", "graph - based models , e . g . gcns ."),
        ("(TARGETCIT)", "( targetcit )"),
        ("XTARGETCIT.", "x targetcit ."),
        ("[OTHERCIT;TARGETCITOTHERCIT]", "[ othercit ; targetcit othercit ]"),
        ("the model's 3.5 points, 1,000 times", "the model 's 3.5 points , 1,000 times"),
        ("don\u2019t x_i", "don 't x _ i"),
        ("ﬁne 𝑥² Zoë", "fine x2 zoë"),
        ("co\u00adoperate", "cooperate"),
        ("v1.2a 1.", "v1 . 2a 1 ."),
        ("वन अध्ययन, दैत्य। தமிழ் মৌলিক", "वन अध्ययन , दैत्य । தமிழ் মৌলিক"),
        (" \n\t ", ""),
    ],
)
def test_default_splits_words_from_punctuation(text: str, tokens: str) -> None:
    assert default_tokenize(text) == tokens.split()


@given(st.lists(st.one_of(st.text(max_size=8), st.sampled_from([TARGET_MARKER, OTHER_MARKER]))))
def test_tokens_are_words_punctuation_and_markers_and_nothing_is_lost(parts: list[str]) -> None:
    text = "".join(parts)
    tokens = default_tokenize(text)
    for marker, word in ((TARGET_MARKER, TARGET_WORD), (OTHER_MARKER, OTHER_WORD)):
        assert tokens.count(word) >= text.count(marker)
    assert all(token in MARKER_WORDS or "targetcit" not in token for token in tokens)
    for token in tokens:
        assert token and not any(sign.isspace() for sign in token)
        assert len(token) == 1 or any(sign.isalnum() for sign in token)
        assert token.isascii() <= (token == token.lower())
    plain = text.encode("ascii", "ignore").decode()
    assert "".join(default_tokenize(plain)) == "".join(plain.lower().split())


@given(st.lists(st.sampled_from([*"aÉ1.?!()”。\n", " " * 20, "z. B.", "3. Jahrh"])).map("".join))
def test_sentences_begin_at_a_letter_or_sign_after_an_end(text: str) -> None:
    starts = sentence_starts(text)
    assert starts == sorted(set(starts))
    assert all(not text[start].isspace() and text[:start].strip() for start in starts)


SIGNS = st.sampled_from(
    [*"aB7_'.,- \t\x1c\x00(\u00e9\u0130\u03a3\u2028\uff11", "TARGETCIT", "'ve", "1.2", "ll"]
)
TEXTS = st.lists(SIGNS, max_size=25).map("".join) | st.text(st.characters(codec="utf-8"), max_size=30)


def tokens_of(table: WordTable, texts: list[str]) -> list[list[str]]:
    rows = table.ids(texts)
    words = table.words()
    return [[words[word] for word in row] for row in rows]


@pytest.mark.parametrize("name", sorted(TOKENIZERS))
@given(st.lists(TEXTS, max_size=6), st.lists(TEXTS, max_size=3))
def test_the_table_matches_the_tokeniser(name: str, texts: list[str], more: list[str]) -> None:
    tokenize = TOKENIZERS[name]
    table = WordTable(tokenize)
    assert tokens_of(table, texts) == [tokenize(text) for text in texts]
    assert tokens_of(table, more) == [tokenize(text) for text in more]
    # Words are numbered in order of first occurrence.
    first = dict.fromkeys(word for text in [*texts, *more] for word in tokenize(text))
    assert table.words() == list(first) and len(table) == len(first)
