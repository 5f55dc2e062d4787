"""The model in the box: small, the mean of its rankers, and it answers over the library of the repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from datasets.errors import InputError
from library.box import LARGEST, averaged
from library.library import Library
from library.models import BOX
from library.recommender import Recommender, indexer
from library.sources import read_source
from rerank.ranker import RankingModel, Trees, Weights

EXAMPLES = Path(__file__).parents[2] / "examples" / "library.bib"


def test_weights_are_means_and_a_missing_column_counts_nothing() -> None:
    first = RankingModel({"bare": Weights({"a": 1.0, "b": 2.0}), "abroad": Weights({"a": 3.0})}, {"seed": 1})
    second = RankingModel({"bare": Weights({"a": 3.0})}, {"seed": 2})
    found = averaged([first, second])
    assert found.models == {"bare": Weights({"a": 2.0, "b": 1.0}), "abroad": Weights({"a": 3.0})}
    assert found.about == {"mean of": [{"seed": 1}, {"seed": 2}]}


def test_trees_have_no_mean() -> None:
    trees = object.__new__(Trees)
    with pytest.raises(InputError, match="linear"):
        averaged([RankingModel({"bare": trees})])


def test_the_box_is_small() -> None:
    assert sum(file.stat().st_size for file in BOX.rglob("*")) <= LARGEST


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("Adam [CITE] is the usual optimiser for deep networks.", "kingma2015adam"),
        ("We index vectors with Faiss [CITE] for fast search.", "johnson2021faiss"),
    ],
)
def test_it_answers_over_the_library_of_the_repository(tmp_path: Path, text: str, key: str) -> None:
    bad: list[InputError] = []
    Library.create(tmp_path / "own", read_source(EXAMPLES, bad.append), indexer=indexer(""))
    found = Recommender.open(tmp_path / "own").recommend(text, k=3)
    assert key in [paper.key for paper in found]
