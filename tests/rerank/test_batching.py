"""Batches of pairs: each once, none too large, little padding."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rerank.backends import batches


@given(st.lists(st.integers(1, 512), max_size=200), st.integers(1, 5000))
def test_each_pair_once_in_batches_of_so_many_tokens(lengths: list[int], tokens: int) -> None:
    given, found = np.array(lengths, np.int64), list(batches(np.array(lengths, np.int64), tokens))
    assert sorted(row for rows in found for row in rows.tolist()) == list(range(len(lengths)))
    longest = [int(given[rows].max()) for rows in found]
    assert longest == sorted(longest, reverse=True)
    for rows in found:
        padded = -(-int(given[rows].max()) // 8) * 8
        assert padded * len(rows) <= tokens or len(rows) == 1
    # One more pair would have been too many, but for the last batch.
    for rows in found[:-1]:
        assert -(-int(given[rows].max()) // 8) * 8 * (len(rows) + 1) > tokens


def test_sorted_batches_have_less_padding_than_batches_as_they_come() -> None:
    lengths = np.random.default_rng(0).integers(20, 512, 400)
    padded = sum(int(lengths[rows].max()) * len(rows) for rows in batches(lengths, 4096))
    plain = sum(int(lengths[first : first + 16].max()) * 16 for first in range(0, 400, 16))
    assert padded < 1.06 * lengths.sum() < plain / 1.5
