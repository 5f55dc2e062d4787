"""The two tokenisers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasets.records import MARKER_WORDS, OTHER_MARKER, OTHER_WORD, TARGET_MARKER, TARGET_WORD
from datasets.tokenize import TOKENIZERS, default_tokenize, reference_tokenize


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
        (" \n\t ", ""),
    ],
)
def test_default_parts_words_from_signs(text: str, tokens: str) -> None:
    assert default_tokenize(text) == tokens.split()


@given(st.lists(st.one_of(st.text(max_size=8), st.sampled_from([TARGET_MARKER, OTHER_MARKER]))))
def test_every_marker_is_one_token_of_its_own(parts: list[str]) -> None:
    text = "".join(parts)
    tokens = default_tokenize(text)
    for marker, word in ((TARGET_MARKER, TARGET_WORD), (OTHER_MARKER, OTHER_WORD)):
        assert tokens.count(word) >= text.count(marker)
    assert all(token in MARKER_WORDS or "targetcit" not in token for token in tokens)


@given(st.text())
def test_tokens_are_lower_case_words_or_single_signs_without_white_space(text: str) -> None:
    for token in default_tokenize(text):
        assert token and not any(sign.isspace() for sign in token)
        assert len(token) == 1 or any(sign.isalnum() for sign in token)
        assert token.isascii() <= (token == token.lower())


@given(st.text())
def test_nothing_but_white_space_is_lost_from_plain_text(text: str) -> None:
    plain = text.encode("ascii", "ignore").decode()
    assert "".join(default_tokenize(plain)) == "".join(plain.lower().split())


@given(st.text())
def test_reference_is_lower_case_and_white_space(text: str) -> None:
    assert reference_tokenize(text) == text.lower().split()


def test_names_of_the_configuration() -> None:
    assert TOKENIZERS["default"] is default_tokenize and TOKENIZERS["reference"] is reference_tokenize
