"""Ragged against plain lists."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasets.columns import Ragged

ROWS = st.lists(st.lists(st.integers(-(2**31), 2**31 - 1), max_size=5), max_size=8)


@given(ROWS)
def test_holds_the_rows(rows: list[list[int]]) -> None:
    ragged = Ragged.from_rows(rows)
    assert len(ragged) == len(rows)
    assert [row.tolist() for row in ragged] == rows
    assert [ragged[i].tolist() for i in range(-len(rows), len(rows))] == rows + rows
    assert ragged.lengths.tolist() == [len(row) for row in rows]
    assert ragged.values.dtype == np.int32 and ragged.offsets.dtype == np.int64


@given(ROWS.filter(len), st.data())
def test_take_equals_a_loop(rows: list[list[int]], data: st.DataObject) -> None:
    picked = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=12))
    taken = Ragged.from_rows(rows).take(np.array(picked, np.int64))
    assert [row.tolist() for row in taken] == [rows[i] for i in picked]
    assert taken.offsets[0] == 0 and taken.offsets[-1] == len(taken.values)


def test_rows_are_views() -> None:
    ragged = Ragged.from_rows([[1, 2], [3]])
    assert np.shares_memory(ragged[0], ragged.values)


@pytest.mark.parametrize("row", [2, -3])
def test_no_such_row(row: int) -> None:
    ragged = Ragged.from_rows([[1], [2]])
    with pytest.raises(IndexError):
        ragged[row]
    with pytest.raises(IndexError):
        ragged.take(np.array([0, 2 if row > 0 else -1]))
