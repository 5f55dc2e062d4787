"""The model in the box: small, the mean of its rankers, and it answers over the library of the repository."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from datasets.errors import InputError
from library.box import LARGEST, average_rankers
from library.library import Library
from library.models import BOX
from library.recommender import Recommender, indexer
from library.sources import read_source
from rerank.ranker import RankingModel, Trees, Weights

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "library.bib"


def test_weights_are_means_and_a_missing_column_counts_nothing() -> None:
    first = RankingModel({"bare": Weights({"a": 1.0, "b": 2.0}), "abroad": Weights({"a": 3.0})}, {"seed": 1})
    second = RankingModel({"bare": Weights({"a": 3.0})}, {"seed": 2})
    found = average_rankers([first, second])
    assert found.models == {"bare": Weights({"a": 2.0, "b": 1.0}), "abroad": Weights({"a": 3.0})}
    assert found.about == {"mean of": [{"seed": 1}, {"seed": 2}]}
    with pytest.raises(InputError, match="linear"):
        average_rankers([RankingModel({"bare": object.__new__(Trees)})])


def test_the_box_is_small() -> None:
    assert sum(file.stat().st_size for file in BOX.rglob("*")) <= LARGEST


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library of the repository with the model in the box."""
    bad: list[InputError] = []
    folder = tmp_path_factory.mktemp("box") / "own"
    Library.create(folder, read_source(EXAMPLES, bad.append), indexer=indexer(""))
    return folder


def test_it_answers_over_the_library_of_the_repository(own: Path) -> None:
    found = Recommender.open(own).recommend("We index vectors with Faiss [CITE] for fast search.", k=3)
    assert "johnson2021faiss" in [paper.key for paper in found]


HEAVY = {
    "torch", "hydra", "omegaconf", "transformers", "lightning", "lightning_utilities", "pandas", "sklearn"
}  # fmt: skip


def test_it_answers_without_what_takes_long_to_import(own: Path) -> None:
    asked = ["ask", f"library={own}", "Adam [CITE] is the usual optimiser for deep networks.", "format=cite"]
    code = f"""
import sys, library.server, recommend
sys.argv[1:] = {asked}
recommend.main()
print(*sorted({HEAVY} & set(sys.modules)), file=sys.stderr)"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "kingma2015adam" in done.stdout and done.stderr.strip() == ""
