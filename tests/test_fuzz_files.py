"""Fuzzed files (except corpora and full texts) are read or refused with one line that names the file."""

from __future__ import annotations

import gzip
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from citerec.base.errors import InputError
from citerec.datasets.citations.graph import open_graph
from citerec.datasets.citations.queries import read_query_lists
from citerec.evaluation.benchmarks.papers.csfcube import FACETS, CSFCubePools
from citerec.evaluation.benchmarks.papers.mdcr import read_pools, read_scores
from citerec.evaluation.benchmarks.papers.pools import read_texts
from citerec.evaluation.benchmarks.papers.scidocs import negative_distances, read_embeddings
from citerec.evaluation.protocol import Qrels
from citerec.hatten.published.pickles import load_array, load_word_list
from citerec.hatten.words.vectors import read_vectors
from citerec.retrieval.run import Run
from citerec.tests.datasets.building.fuzzing import damaged, fuzzed, lines
from citerec.tests.datasets.conftest import write_files

RUN = "".join(f"q{i} Q0 p%20{j} {j + 1} {1 / (j + 1)} bm25\n" for i in "ab" for j in range(3))
NUMBERS = [[(i * j) % 7 / 7 for j in range(5)] for i in range(1, 7)]
ROWS = [f"word{i} {' '.join(f'{number:.3f}' for number in row)}\n" for i, row in enumerate(NUMBERS)]
BINARY = [b"word%d " % i + np.array(row, np.float32).tobytes() + b"\n" for i, row in enumerate(NUMBERS)]
MDCR = {
    "Art": {"1": {"true": ["2", "3"], "bm25": ["4"]}, "9": {"true": ["2"], "bm25": ["5", "2"]}},
    "Law": {"7": {"true": ["1"], "bm25": []}},
}
SCORES = {"1_2": 0.5, "1_3": 1, "1_4": -2e3, "9_2": 0.0, "9_5": 7, "7_1": 1e-9}
GRADES = {"q": {"cands": ["a", "b"], "relevance_adju": [3, 0]}, "r": {"cands": ["q"], "relevance_adju": [2]}}
FOLDS = {
    facet: {fold: [f"q_{facet}", f"r_{facet}"] for fold in ("fold1_dev", "fold1_test", "fold2_test")}
    for facet in FACETS
}
FOLDS["all"] = {fold: [f"q_{facet}" for facet in FOLDS] for fold in FOLDS["method"]}
PAPERS = [
    {"paper_id": "p1", "title": "One", "abstract": "A.", "year": 2001, "fields": ["Art"], "references": []},
    {"paper_id": 2, "title": "Two", "abstract": None, "year": "2002", "references": ["p1", 7]},
]  # fmt: skip


def mdcr(folder: Path) -> Any:
    return read_scores(folder / "scores.json", read_pools(folder / "mdcr.json"))


def scidocs(folder: Path) -> Any:
    pools = Qrels.read(folder / "test.qrel").judgements
    return negative_distances(pools, read_embeddings(folder / "v.jsonl", {"p1", "2", "a"}))


def graph(folder: Path) -> Any:
    return open_graph(folder / "papers.jsonl", cache_dir=folder / "cache")


KINDS: dict[str, tuple[dict[str, bytes], Callable[[Path], Any]]] = {
    "run": ({"run": RUN.encode()}, lambda folder: Run.read(folder / "run")),
    "qrels": (
        {"qrels": b"a 0 p1 1\na 0 p2 0\nb 0 p%203 -1\r\n"},
        lambda folder: Qrels.read(folder / "qrels"),
    ),
    "GloVe": ({"v.txt": "".join(ROWS).encode()}, lambda folder: read_vectors(folder / "v.txt")),
    "word2vec": (
        {"v.txt": "".join(["6 5\n", *ROWS]).encode()},
        lambda folder: read_vectors(folder / "v.txt"),
    ),
    "binary": ({"v.bin": b"6 5\n" + b"".join(BINARY)}, lambda folder: read_vectors(folder / "v.bin")),
    "gzip": (
        {"v.gz": gzip.compress("".join(ROWS).encode(), mtime=0)},
        lambda folder: read_vectors(folder / "v.gz"),
    ),
    "array": (
        {"array": pickle.dumps(np.array(NUMBERS, np.float32), protocol=2)},
        lambda folder: load_array(folder / "array"),
    ),
    "words": (
        {"words": pickle.dumps(["a", "b\u00e9", "c"])},
        lambda folder: load_word_list(folder / "words"),
    ),
    "MDCR": ({"mdcr.json": json.dumps(MDCR).encode(), "scores.json": json.dumps(SCORES).encode()}, mdcr),
    "CSFCube": (
        {f"test-pid2anns-csfcube-{facet}.json": json.dumps(GRADES).encode() for facet in FACETS}
        | {"evaluation_splits.json": json.dumps(FOLDS).encode()},
        CSFCubePools.read,
    ),
    "SciDocs": (
        {
            "test.qrel": b"a 0 p1 1\na 0 2 0\np1 0 a 2\n",
            "v.jsonl": lines([{"paper_id": paper, "embedding": NUMBERS[0]} for paper in ("a", 2, "p1")]),
        },
        scidocs,
    ),
    "metadata": (
        {"papers.json": json.dumps({"p1": PAPERS[0], "2": PAPERS[1]}).encode()},
        lambda folder: list(read_texts(folder / "papers.json")),
    ),
    "texts": ({"texts": lines(PAPERS)}, lambda folder: list(read_texts(folder / "texts"))),
    "graph": ({"papers.jsonl": lines(PAPERS)}, graph),
    "queries": (
        {"queries": json.dumps({"val": {"Art": ["1"], "Law": ["2", "1"]}, "test": ["3"]}).encode()},
        lambda folder: read_query_lists(folder / "queries"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_intact_files_are_read(kind: str, tmp_path: Path) -> None:
    files, read = KINDS[kind]
    read(write_files(tmp_path, files))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@fuzzed(120)
@given(data=st.data())
def test_damaged_files_are_refused_or_read(kind: str, data: st.DataObject) -> None:
    files, read = KINDS[kind]
    name = data.draw(st.sampled_from(sorted(files)))
    with TemporaryDirectory() as folder:
        write_files(Path(folder), files | {name: data.draw(damaged(files[name]))})
        try:
            read(Path(folder))
        except InputError as error:
            line = str(error)
            assert any(path.name in line for path in Path(folder).iterdir())
            assert len(line) < 2 * len(folder) + 500 and "\n" not in line
