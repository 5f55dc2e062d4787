"""A small collection of papers that cite each other, and evaluate.py run in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hydra.utils import instantiate
from omegaconf import OmegaConf

from citerec.base.errors import InputError, error_line
from citerec.base.files import write_text
from citerec.datasets.citations.graph import CitationGraph, open_graph
from citerec.evaluate import build_benchmark
from citerec.evaluation.benchmark import Data
from citerec.evaluation.report import Provenance
from citerec.evaluation.results import jobs
from citerec.retrieval.base import Ranking, Retriever
from citerec.retrieval.lexical.bm25 import BM25
from citerec.tests.composing import compose_config
from citerec.tests.conftest import Done
from citerec.tests.datasets.conftest import write_lines

ROOT = Path(__file__).parents[2]
TOPICS = {
    "Art": ["painting", "colour", "brush", "canvas", "portrait", "museum", "fresco", "sculpture", "marble"],
    "Law": ["court", "statute", "judge", "contract", "tort", "appeal", "verdict", "treaty", "clause"],
    "Physics": ["quark", "boson", "lattice", "spin", "gauge", "vacuum", "symmetry", "plasma", "tensor"],
}
WORDS = [word for words in TOPICS.values() for word in words]


def world(papers: int = 120, seed: int = 0) -> list[dict[str, Any]]:
    """Papers of three fields and six years that cite earlier ones, mostly from their field."""
    rng = np.random.default_rng(seed)
    made: list[dict[str, Any]] = []
    for number in range(papers):
        field = list(TOPICS)[int(rng.integers(3))]
        words = rng.choice(TOPICS[field], 4, replace=False).tolist()
        text = " ".join([*words, *rng.choice(WORDS, 6).tolist()])
        paper: dict[str, Any] = {"paper_id": f"p{number}", "title": " ".join(words)}
        paper |= {"abstract": f"{text} and more of it", "year": 2000 + 6 * number // papers}
        paper |= {"fields": [field], "references": []}
        near = [other for other in made if other["fields"] == [field]]
        for other in rng.permutation(len(near))[: int(rng.integers(9))].tolist():
            paper["references"].append(near[other]["paper_id"])
        if number > 10 and rng.random() < 0.3:
            paper["references"].append(made[int(rng.integers(number))]["paper_id"])
        made.append(paper)
    made[3]["abstract"] = "short"
    made[4]["title"] = None
    made[5]["year"] = None
    made[50]["references"].append("p119")  # of a later year
    made[51]["fields"] = ["Law", "Art"]
    return made


@pytest.fixture
def world_file(tmp_path: Path) -> Path:
    """A file with the papers of `world`."""
    return write_lines(tmp_path / "papers.jsonl", world())


@pytest.fixture
def distractors_file(tmp_path: Path) -> Path:
    """A file of later papers that nothing cites."""
    rng = np.random.default_rng(7)

    def words(number: int) -> str:
        return " ".join(rng.choice(WORDS, number).tolist())

    papers = [
        {"paper_id": f"x{i}", "title": words(4), "abstract": f"{words(10)} besides", "year": 2018}
        for i in range(60)
    ]
    return write_lines(tmp_path / "distractors.jsonl", papers)


@pytest.fixture
def graph(world_file: Path, distractors_file: Path, tmp_path: Path) -> CitationGraph:
    return open_graph(world_file, distractors=distractors_file, cache_dir=tmp_path / "cache")


class Damaged(BM25):
    """BM25 whose scores are NaN, like those of diverged weights."""

    def _search(self, queries: Any, k: int, allowed: Any) -> Ranking:
        result = super()._search(queries, k, allowed)
        return Ranking(result.papers, np.where(result.papers >= 0, np.float32("nan"), result.scores))


def no_retriever() -> Retriever:
    """Retriever factory for evaluations whose scores are given."""
    raise AssertionError("no retriever is needed")


def metrics_of(folder: Path) -> dict[str, Any]:
    """Read metrics.json of an output folder."""
    result: dict[str, Any] = json.loads((folder / "metrics.json").read_text())
    return result


@pytest.fixture
def evaluate(script: Callable[..., Done]) -> Callable[..., Done]:
    """Runs `citerec evaluate ARGUMENTS` in the test's folder, within this process."""
    return partial(script, "evaluate.py")


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Lists `COMMAND FOLDER` of each run of a plan, all in this process; trainings only write an id file."""
    done: list[str] = []

    def run(script: str, overrides: list[str], folder: Path) -> None:
        done.append(f"{script} {folder.name}")
        folder.mkdir(parents=True, exist_ok=True)
        if script == "train":
            (folder / "ids.txt").write_text("vision\n")
            write_text(folder / ".hydra" / "overrides.yaml", json.dumps(overrides))
            return
        config = compose_config("evaluate", overrides)
        (folder / ".hydra").mkdir(exist_ok=True)
        OmegaConf.save(config, folder / ".hydra" / "config.yaml")
        retriever, corpus, filters = (
            partial(instantiate, config[key]) for key in ("retriever", "data", "filters")
        )
        data = Data(corpus, config.split, filters, config.index_dir)
        try:
            build_benchmark(config.benchmark).run(folder, Provenance(), retriever, data)
        except Exception as error:
            if line := error_line(error):
                raise InputError(line) from None
            raise

    monkeypatch.setattr(jobs, "_run_script", run)
    return done
