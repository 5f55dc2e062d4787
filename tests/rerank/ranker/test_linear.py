"""Inputs of the linear model: scales of features, and lists of libraries that mix what is known."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from citerec.datasets.columns import offsets_of
from citerec.datasets.generate import word
from citerec.datasets.records import PaperRecord
from citerec.rerank.ranker.features import is_relative
from citerec.rerank.ranker.linear import FLOOR, LinearModel, Lists, TrainingLists, typical_deviations
from citerec.rerank.ranker.model import RankingModel
from citerec.tests.rerank.made import linear, make_corpus, over_bm25, top

COLUMNS = ["bm25", "encoder", "abstract_words", "name_near", "length"]
"""Of fixed and of relative scale."""
TYPICAL = {"bm25": 2.0, "encoder": 0.5, "abstract_words": 1.5, "name_near": 0.1}


def make_lists(lists: Sequence[np.ndarray]) -> Lists:
    """Make lists of values [n, F] of the first F of COLUMNS."""
    values = np.concatenate(lists).astype(np.float32)
    return Lists(COLUMNS[: values.shape[1]], values, offsets_of(np.array([len(one) for one in lists])))


def inputs_of(lists: Lists) -> dict[str, np.ndarray]:
    names, values = LinearModel({}, TYPICAL).inputs(lists)
    return dict(zip(names, values.T, strict=True))


@st.composite
def any_lists(draw: st.DrawFn) -> list[np.ndarray]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    lists = []
    for length in draw(st.lists(st.integers(1, 30), min_size=1, max_size=5)):
        values = rng.normal(size=(length, len(COLUMNS))) * rng.choice([0, 1, 1e3], len(COLUMNS))
        values[rng.random(values.shape) < draw(st.sampled_from([0, 0.3, 1]))] = np.nan
        lists.append(values)
    return lists


@given(any_lists())
def test_inputs_match_plain_python(lists: list[np.ndarray]) -> None:
    inputs = inputs_of(make_lists(lists))
    for name, typical in TYPICAL.items():
        wanted = list[float]()
        for values in lists:
            column = values[:, COLUMNS.index(name)].astype(np.float32).astype(np.float64)
            known = column[np.isfinite(column)]
            centred = column - (known.mean() if len(known) else 0)
            scale = (
                np.hypot(known.std() if len(known) else 0, FLOOR * typical) if is_relative(name) else typical
            )
            wanted += (np.where(np.isfinite(column), centred, 0) / scale).tolist()
        np.testing.assert_allclose(inputs[name], wanted, rtol=1e-3, atol=1e-3, err_msg=name)
    assert "length" not in inputs, "it has no typical deviation"


# Scales.


def test_typical_deviations_are_medians_over_lists_that_vary() -> None:
    lists = [np.full((4, len(COLUMNS)), 3.0) for _ in range(5)]
    for scale, values in zip((1, 2, 5), lists, strict=False):
        values[:2, 0] += 2 * scale
    lists[0][:, 2] = np.nan
    assert typical_deviations(make_lists(lists)) == {"bm25": pytest.approx(2.0)}


def test_lists_are_concatenated_with_unknown_columns() -> None:
    parts = [
        TrainingLists(
            columns,
            np.full((2, len(columns)), number, np.float16),
            np.array([0, 2]),
            papers=np.array([4, number], np.int32),
            cited=np.array([False, True]),
            citing=np.array([7], np.int32),
            count=np.array([1]),
            source=np.array(["papers"]),
        )
        for number, columns in enumerate((["a", "bm25"], ["bm25", "known"]), 1)
    ]
    both = TrainingLists.concat(parts)
    assert both.columns == ["a", "bm25", "known"] and both.offsets.tolist() == [0, 2, 4]
    assert np.array_equal(both.values, [[1, 1, np.nan]] * 2 + [[np.nan, 2, 2]] * 2, equal_nan=True)
    assert both.papers.tolist() == [4, 1, 4, 2] and both.citing.tolist() == [7, 7]
    second = both.take(np.array([1]))
    assert second.papers.tolist() == [4, 2] and second.offsets.tolist() == [0, 2]
    assert second.without_draft().columns == ["a", "bm25"] and second.without("a", "bm25").columns == [
        "known"
    ]
    assert second.column("bm25").tolist() == [2, 2] and np.isnan(second.column("popularity")).all()


# Libraries that mix papers with and without abstracts.

ABSTRACT = ("abstract_words",)
TEXTS = dict.fromkeys(("title_beginnings", "title_share", "bm25", *ABSTRACT), 1.0)


@pytest.mark.parametrize("abstracts", [0, 1, 5, 45, 90, 91])
def test_an_abstract_is_no_reason_to_come_first(abstracts: int, tmp_path: Path) -> None:
    """The papers named by their titles do, whether they have abstracts or not."""
    rng = np.random.default_rng(0)

    def text(words: int, most: int) -> str:
        return " ".join(word(int(rank)) for rank in rng.integers(300, most, words))

    titles = [text(6, 3000) for _ in range(91)]
    papers = [
        PaperRecord(f"p{row}", title, text(80, 6000) if row < abstracts else "")
        for row, title in enumerate(titles)
    ]
    made = over_bm25(make_corpus(tmp_path / "store", papers), TEXTS)
    for sign in (1, -1):  # a model may have learned either
        weights = TEXTS | dict.fromkeys(ABSTRACT, sign * 3.0)
        made.model = RankingModel(linear(weights | {"title_beginnings": 5.0, "title_share": 5.0}))
        for row in (0, 3, 44, 90):
            words = titles[row].split()
            question = f"{text(2, 6000)} {' '.join(words[1:5])} {text(3, 6000)} TARGETCIT"
            assert top(made, question) == [f"p{row}"]


def test_the_only_abstract_is_the_mean_of_its_column(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    titles = [" ".join(word(int(rank)) for rank in rng.integers(100, 900, 8)) for _ in range(91)]
    papers = [PaperRecord(f"p{row}", title, "") for row, title in enumerate(titles)]
    papers[0] = papers[0]._replace(abstract=" ".join(map(word, rng.integers(100, 900, 80).tolist())))
    weights = {"abstract_words": 9.0, "title_beginnings": 0.1}
    made = over_bm25(make_corpus(tmp_path / "store", papers), weights)
    for row in range(5, 35):
        assert top(made, f"{titles[row]} TARGETCIT")[0] == f"p{row}"
