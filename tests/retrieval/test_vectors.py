"""Several float16 arrays as one table of vectors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from citerec.retrieval.indexes.cpu import FlatIndex
from citerec.retrieval.indexes.index import build_index, load_index, search_exact
from citerec.retrieval.settings import IndexConfig
from citerec.retrieval.vectors import VectorTable


def table(sizes: list[int], dim: int, seed: int = 0) -> list[NDArray[np.float16]]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((size, dim)).astype(np.float16) for size in sizes]


@given(st.lists(st.integers(0, 7), min_size=1, max_size=5), st.data())
def test_rows_are_those_of_the_concatenated_arrays(sizes: list[int], data: st.DataObject) -> None:
    arrays = table(sizes, 3)
    whole = np.concatenate(arrays).astype(np.float32)
    halves = VectorTable(arrays)
    assert halves.shape == whole.shape and halves.nbytes == whole.nbytes // 2
    np.testing.assert_array_equal(np.asarray(halves), whole)
    start, stop = data.draw(st.integers(0, 40)), data.draw(st.integers(0, 40))
    np.testing.assert_array_equal(halves[start:stop], whole[start:stop])
    if len(whole):
        rows = np.array(data.draw(st.lists(st.integers(0, len(whole) - 1), max_size=20)), np.int64)
        np.testing.assert_array_equal(halves[rows], whole[rows])
    np.testing.assert_array_equal(np.concatenate([*halves.blocks(), whole[:0]]), whole)


@pytest.mark.parametrize("allowed", [None, 0.4])
def test_a_mapped_index_finds_what_exact_search_finds(tmp_path: Path, allowed: float | None) -> None:
    arrays = table([300, 1, 0, 199], 8)
    queries = np.random.default_rng(1).standard_normal((40, 8)).astype(np.float32)
    may = None if allowed is None else np.random.default_rng(2).random(500) < allowed
    index = build_index(IndexConfig(device="cpu"), VectorTable(arrays))
    assert isinstance(index, FlatIndex) and index.nbytes == 500 * 8 * 2 and len(index) == 500
    result = index.search(queries, 17, may)
    whole = np.concatenate(arrays).astype(np.float32)
    expected = search_exact(queries, whole, 17, candidates=may)
    assert result.papers.tolist() == expected.papers.tolist()
    np.testing.assert_allclose(result.scores, expected.scores, rtol=1e-5)
    index.save(tmp_path)
    loaded = load_index(IndexConfig(device="cpu"), tmp_path)
    again = loaded.search(queries, 17, may)
    assert again.papers.tolist() == result.papers.tolist() and again.scores.tolist() == result.scores.tolist()
    assert np.load(tmp_path / "halves.npy").tobytes() == b"".join(array.tobytes() for array in arrays)


@pytest.mark.parametrize("config", [IndexConfig("half", device="cpu"), IndexConfig("ivf", lists=4)])
def test_indexes_of_tables_match_those_of_arrays(config: IndexConfig) -> None:
    arrays = table([200, 220], 8)
    queries = np.random.default_rng(1).standard_normal((5, 8)).astype(np.float32)
    whole = np.concatenate(arrays).astype(np.float32)
    result, expected = (build_index(config, vectors) for vectors in (VectorTable(arrays), whole))
    assert result.search(queries, 6).papers.tolist() == expected.search(queries, 6).papers.tolist()
