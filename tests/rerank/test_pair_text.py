"""Subwords that are found once, and how two texts share the room of a pair."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from datasets.errors import InputError
from rerank import pairs as pair_text
from rerank.pairs import CIT, EOS, SEP, Piece, Subwords, TokenTable, divided

LENGTHS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30), st.integers(0, 30)), min_size=1)


@pytest.fixture
def tokenizer(tiny_bert: Path) -> Any:
    found = AutoTokenizer.from_pretrained(tiny_bert)
    found.add_special_tokens({"additional_special_tokens": [CIT, SEP, EOS]})
    return found


@given(LENGTHS, st.floats(0, 1), st.tuples(st.integers(0, 2), st.integers(0, 2)))
def test_a_room_is_divided_by_shares_and_none_of_it_wasted(
    rows: list[tuple[int, int, int]], share: float, least: tuple[int, int]
) -> None:
    first, second, room = np.array(rows).T
    kept, others = divided(first, second, room, share, least)
    assert (kept >= 0).all() and (others >= 0).all() and (kept <= first).all() and (others <= second).all()
    assert (kept + others == np.minimum(first + second, room)).all()
    assert (kept >= np.minimum(np.minimum(first, least[0]), room)).all()
    assert (others >= np.minimum(np.minimum(second, least[1]), np.maximum(room - least[0], 0))).all()
    # Who gives way has its share, to a token, but for what the other must have at the least.
    assert ((kept == first) | (kept >= np.minimum(np.floor(share * room), room - least[1]))).all()
    assert ((others == second) | (others >= np.floor((1 - share) * room) - least[0])).all()


@given(LENGTHS)
def test_with_equal_shares_the_longer_one_is_cut_first(rows: list[tuple[int, int, int]]) -> None:
    """Against taking tokens away one at a time."""
    first, second, room = np.array(rows).T
    kept, others = divided(first, second, room, 0.5)
    for row, (a, b, most) in enumerate(rows):
        longer = a > b
        while a + b > most:
            a, b = (a - 1, b) if a > b or (a == b and not longer) else (a, b - 1)
        assert (kept[row], others[row]) == (a, b)


def test_rows_are_read_once_when_they_are_first_met(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair_text, "BLOCK", 7)
    asked: list[int] = []

    def read(rows: list[int]) -> list[list[int]]:
        assert len(rows) <= 7
        asked.extend(rows)
        return [list(range(row * 100, row * 100 + row)) for row in rows]

    table = TokenTable(300, read)
    for rows in ([5, 3, 5], [3], [], list(range(299, 100, -1)), [0, 3, 250]):
        wanted = np.array(rows, np.int64)
        starts, lengths = table.starts(wanted), table.lengths(wanted)
        for row, start, length in zip(rows, starts.tolist(), lengths.tolist(), strict=True):
            assert table.values[start : start + length].tolist() == list(range(row * 100, row * 100 + row))
    assert sorted(asked) == [0, 3, 5, *range(101, 300)]


def test_pieces_are_put_where_they_belong() -> None:
    piece = Piece(np.arange(10, 20, dtype=np.int32), np.array([2, 0, 9]), np.array([3, 0, 1]))
    grid = np.zeros((3, 6), np.int64)
    assert piece.put(grid, np.array([1, 4, 5])).tolist() == [4, 4, 6]
    assert grid.tolist() == [[0, 12, 13, 14, 0, 0], [0] * 6, [0, 0, 0, 0, 0, 19]]


def test_special_tokens_in_a_text_are_text(tokenizer: Any) -> None:
    subwords = Subwords(tokenizer)
    found = subwords(["graph [SEP] networks", "Parsing"])
    special = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    assert not special & {token for tokens in found for token in tokens}
    assert found[1] == tokenizer("Parsing", add_special_tokens=False)["input_ids"]


def test_what_a_tokeniser_cuts_and_pads_by_itself_is_left_alone(tokenizer: Any) -> None:
    tokenizer.backend_tokenizer.enable_truncation(4)
    tokenizer.backend_tokenizer.enable_padding(length=16)
    text = "Messages pass along the edges of a graph"
    assert [len(tokens) for tokens in Subwords(tokenizer)([text])] == [8]
    assert tokenizer.backend_tokenizer.truncation["max_length"] == 4  # the tokeniser itself is unchanged


def test_the_frame_of_a_pair(tokenizer: Any) -> None:
    subwords, ids = Subwords(tokenizer), tokenizer.convert_tokens_to_ids
    cls, sep = ids("[CLS]"), ids("[SEP]")
    assert (subwords.before, subwords.between, subwords.after) == ([cls], [sep], [sep])
    assert (subwords.second_type, subwords.pad, subwords.special) == (1, ids("[PAD]"), 4)
    assert (subwords.cit, subwords.sep) == (ids(CIT), ids(SEP))


@pytest.fixture
def framed() -> Callable[[str, str], Any]:
    """A tokeniser with another frame of pairs."""

    def make(single: str, pair: str) -> Any:
        words = ["<s>", "</s>", "<unk>", "<pad>", "a", CIT, SEP, EOS]
        tokenizer = Tokenizer(models.WordLevel({word: row for row, word in enumerate(words)}, "<unk>"))
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        ends = [("<s>", 0), ("</s>", 1)]
        tokenizer.post_processor = processors.TemplateProcessing(single, pair, special_tokens=ends)
        return PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>"
        )

    return make


def test_the_frame_of_roberta(framed: Callable[[str, str], Any]) -> None:
    subwords = Subwords(framed("<s> $A </s>", "<s> $A </s> </s> $B </s>"))
    assert (subwords.before, subwords.between, subwords.after) == ([0], [1, 1], [1])
    assert (subwords.second_type, subwords.pad) == (0, 3)


def test_a_tokeniser_without_a_first_token_is_refused(framed: Callable[[str, str], Any]) -> None:
    with pytest.raises(InputError, match="puts no token before a pair of texts: no model for reranking"):
        Subwords(framed("$A </s>", "$A </s> $B </s>"))


def test_a_tokeniser_without_the_added_tokens_is_refused(tiny_bert: Path) -> None:
    tokenizer: Any = AutoTokenizer.from_pretrained(tiny_bert)
    with pytest.raises(InputError, match="the tokeniser lacks the token <cit> that rerankers read"):
        Subwords(tokenizer)
