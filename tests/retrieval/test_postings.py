"""The index against the one that bm25s makes of the same texts, and the scores against its own."""

from pathlib import Path

import bm25s
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import csc_matrix

from retrieval.bm25 import METHODS, Postings, index_counts

SIZES = st.tuples(st.integers(1, 7), st.integers(1, 6))
COUNTS = SIZES.flatmap(lambda size: arrays(np.int64, size, elements=st.integers(0, 3)))


def peer(counts: np.ndarray, method: str, k1: float, b: float) -> bm25s.BM25:
    of_counts, of_rarity = METHODS[method]
    index = bm25s.BM25(k1=k1, b=b, method=of_counts, idf_method=of_rarity)
    texts = [np.repeat(np.arange(len(row)), row).tolist() for row in counts]
    vocabulary = {f"w{i}": i for i in np.flatnonzero(counts.any(axis=0)).tolist()}
    index.index((texts, vocabulary), create_empty_token=False, show_progress=False)
    return index


@settings(deadline=None, max_examples=50)
@given(
    COUNTS.filter(lambda counts: counts.any(axis=0).all()),
    st.sampled_from(sorted(METHODS)),
    st.sampled_from([0.0, 0.9, 2.0]),
    st.sampled_from([0.0, 0.4, 1.0]),
)
def test_the_index_is_that_of_bm25s(counts: np.ndarray, method: str, k1: float, b: float) -> None:
    expected = peer(counts, method, k1, b)
    parts = [csc_matrix(part.astype(np.float32)) for part in np.array_split(counts, 2) if len(part)]
    found = index_counts(parts, method, k1, b)
    for part in ("indptr", "indices"):
        np.testing.assert_array_equal(found.scores[part], expected.scores[part])
    np.testing.assert_allclose(found.scores["data"], expected.scores["data"], rtol=1e-5, atol=1e-7)
    query = np.array([[0, 0, counts.shape[1] - 1]])
    assert found.scores["num_docs"] == len(counts) and found.scores["data"].dtype == np.float32
    np.testing.assert_allclose(
        found.get_scores_from_ids(query[0]), expected.get_scores_from_ids(query[0]), rtol=1e-5, atol=1e-6
    )


@settings(deadline=None, max_examples=50)
@given(COUNTS.filter(np.any), st.sampled_from([m for m in sorted(METHODS) if m != "bm25l"]), st.data())
def test_a_weighted_term_scores_as_if_it_stood_there_as_often(
    counts: np.ndarray, method: str, data: st.DataObject
) -> None:
    query = data.draw(arrays(np.int64, counts.shape[1], elements=st.integers(0, 4)).filter(np.any))
    index = index_counts([csc_matrix(counts.astype(np.float32))], method, 1.2, 0.75)
    repeated = index.get_scores_from_ids(np.repeat(np.arange(len(query)), query))
    terms = np.flatnonzero(query).astype(np.int32)
    for compiled in (False, True):
        scores = Postings(index, compiled).scores(terms, query[terms].astype(np.float32))
        np.testing.assert_allclose(scores, repeated, rtol=1e-5, atol=1e-6)


def test_without_a_term_a_paper_scores_nothing_in_bm25l_too() -> None:
    counts = np.array([[2, 0], [0, 1], [0, 0]])
    index = index_counts([csc_matrix(counts.astype(np.float32))], "bm25l", 1.2, 0.75)
    scores = Postings(index, False).scores(np.array([0], np.int32), np.ones(1, np.float32))
    # bm25s gives the others what a text without the term gets, the first as much more.
    theirs = peer(counts, "bm25l", 1.2, 0.75).get_scores_from_ids([0])
    np.testing.assert_allclose(scores, theirs - theirs[1], rtol=1e-5)
    assert scores[0] > 0 and scores[1:].tolist() == [0, 0]


@pytest.mark.parametrize("method", sorted(METHODS))
def test_a_loaded_index_is_mapped_and_scores_the_same(method: str, tmp_path: Path) -> None:
    counts = np.random.default_rng(0).integers(0, 3, (20, 9)).astype(np.float32)
    saved = Postings(index_counts([csc_matrix(counts)], method, 1.2, 0.75), compiled=False)
    saved.save(tmp_path)
    loaded = Postings.load(tmp_path, compiled=False)
    terms, weights = np.array([1, 4, 8], np.int32), np.array([1, 2, 1], np.float32)
    np.testing.assert_array_equal(saved.scores(terms, weights), loaded.scores(terms, weights))
    assert loaded.nbytes == saved.nbytes
    # The large arrays lie on the disk: none of them is a copy.
    for part in (loaded._matrix.data, loaded._matrix.indices):
        while part is not None and not isinstance(part, np.memmap):
            part = part.base
        assert isinstance(part, np.memmap)
