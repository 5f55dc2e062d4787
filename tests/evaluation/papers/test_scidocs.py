"""SciDocs' numbers agree with the official script; what it skips is counted, and bad input is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytrec_eval

from citerec.base.errors import InputError
from citerec.evaluation.benchmarks.papers.scidocs import (
    METADATA,
    TASKS,
    SciDocs,
    read_embeddings,
)
from citerec.evaluation.measures import PerQuery
from citerec.evaluation.protocol import Qrels
from citerec.evaluation.report import Provenance
from citerec.retrieval.base import Retriever
from citerec.retrieval.lexical.bm25 import BM25
from citerec.tests.conftest import Done
from citerec.tests.evaluation.conftest import metrics_of, no_retriever

PAPERS = [f"{number:02d}ab" for number in range(40)]
Vectors = dict[str, list[float]]
Collection = tuple[Path, Vectors]


def qrel_lines(seed: int, queries: int = 6) -> str:
    """Pools with 2 relevant papers and 6 others."""
    rng = np.random.default_rng(seed)
    lines = []
    for query in rng.permutation(PAPERS)[:queries]:
        others = [paper for paper in PAPERS if paper != query]
        pool = rng.permutation(others)[:8].tolist()
        lines += [f"{query} 0 {paper} {int(place < 2)}" for place, paper in enumerate(pool)]
    return "\n".join(lines) + "\n"


@pytest.fixture
def collection(tmp_path: Path) -> Collection:
    """SciDocs' files, and vectors with few distinct values, so that many distances tie."""
    rng = np.random.default_rng(9)
    folder = tmp_path / "scidocs"
    for seed, name in enumerate(TASKS.values()):
        (folder / name).mkdir(parents=True)
        for split in ("val", "test"):
            (folder / name / f"{split}.qrel").write_text(qrel_lines(10 * seed + (split == "val")))
    words = ["citing", "graphs", "papers", "parsing", "trees", "vision", "words", "images"]
    papers = {
        paper: {"title": " ".join(rng.choice(words, 3)), "abstract": " ".join(rng.choice(words, 8))}
        for paper in PAPERS
    }
    (folder / METADATA).write_text(json.dumps({**papers, "zz": {"title": None, "abstract": None}}))
    return folder, {paper: rng.integers(0, 2, 3).astype(float).tolist() for paper in PAPERS}


def write_vectors(path: Path, vectors: dict[str, Any]) -> Path:
    lines = [json.dumps({"paper_id": paper, "embedding": vector}) for paper, vector in vectors.items()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def official(qrel: Path, vectors: Vectors) -> dict[str, float]:
    """Measure a task like the official script: rounded distances as a run, evaluated by trec_eval."""
    with qrel.open(encoding="utf-8") as file:
        judged = pytrec_eval.parse_qrel(file)
    lines = []
    for query, pool in judged.items():
        if not vectors.get(query):
            continue
        for paper in pool:
            if paper in vectors:
                far = (
                    -np.linalg.norm(np.array(vectors[query]) - np.array(vectors[paper]))
                    if vectors[paper]
                    else -np.inf
                )
                lines.append(f"{query} 0 {paper} 1 {np.round(far, 5)} n/a\n")
    values = pytrec_eval.RelevanceEvaluator(judged, {"map", "ndcg"}).evaluate(pytrec_eval.parse_run(lines))
    return {
        name: np.round(100 * np.mean([result[name] for result in values.values()]), 2)
        for name in ("map", "ndcg")
    }


def run(folder: Path, **settings: Any) -> dict[str, dict[str, float]]:
    out = folder.parent / "out"
    make: Callable[[], Retriever] = settings.pop("make", no_retriever)
    benchmark = SciDocs(dir=folder, cache_dir=folder.parent / "cache", **settings)
    benchmark.run(out, Provenance(), make).show(out)
    return metrics_of(out)


@pytest.mark.parametrize("split", ["test", "val"])
def test_embeddings_are_measured_like_the_official_script(collection: Collection, split: str) -> None:
    folder, vectors = collection
    result = run(folder, embeddings_file=write_vectors(folder / "v.jsonl", vectors), split=split)
    expected = {task: official(folder / name / f"{split}.qrel", vectors) for task, name in TASKS.items()}
    assert result == expected and list(result) == ["co-view", "co-read", "cite", "co-cite"]
    assert len({row["map"] for row in result.values()}) > 1
    values = PerQuery.read(folder.parent / "out" / "per_query.csv")
    cite = [row for row, name in enumerate(values.query_ids) if name.startswith("cite/")]
    assert np.round(100 * values.values["map"][cite].mean(), 2) == result["cite"]["map"]


def test_distances_keep_five_decimals(collection: Collection) -> None:
    folder, _ = collection
    rng = np.random.default_rng(3)
    vectors = {paper: (1e-5 * rng.random(4)).tolist() for paper in PAPERS}  # float32 would change them
    result = run(folder, embeddings_file=write_vectors(folder / "v.jsonl", vectors))
    assert result == {task: official(folder / name / "test.qrel", vectors) for task, name in TASKS.items()}


def test_papers_without_embeddings_are_skipped_like_in_the_script_and_counted(
    collection: Collection, caplog: pytest.LogCaptureFixture
) -> None:
    folder, vectors = collection
    pools = Qrels.read(folder / "cite" / "test.qrel").judgements
    gone, empty, *_, last = pools
    del vectors[gone]
    vectors[empty] = []
    lost = next(paper for paper in pools[last] if paper in vectors and paper not in pools)
    del vectors[lost]
    result = run(folder, embeddings_file=write_vectors(folder / "v.jsonl", vectors))
    assert result == {task: official(folder / name / "test.qrel", vectors) for task, name in TASKS.items()}
    skipped = next(line for line in caplog.messages if line.startswith("cite: ") and "queries" in line)
    assert skipped == (
        "cite: 2 queries have no scores and are left out of the means, as in the official script: "
        f"{gone}, {empty}."
    )
    assert any(f"{last}_{lost}" in line for line in caplog.messages if "candidates have no scores" in line)
    assert skipped in (folder.parent / "out" / "report.md").read_text()


def test_a_retriever_is_measured_by_its_scores(collection: Collection) -> None:
    folder, _ = collection
    result = run(folder, make=BM25)
    values = PerQuery.read(folder.parent / "out" / "per_query.csv")
    assert len(values) == 4 * 6
    for task in TASKS:
        rows = [row for row, name in enumerate(values.query_ids) if name.startswith(f"{task}/")]
        assert 0 < result[task]["map"] == np.round(100 * values.values["map"][rows].mean(), 2)


def test_papers_without_a_text_are_reported(collection: Collection, caplog: pytest.LogCaptureFixture) -> None:
    folder, _ = collection
    papers = json.loads((folder / METADATA).read_text())
    query, pool = next(iter(Qrels.read(folder / "cite" / "test.qrel").judgements.items()))
    del papers[query]
    other = next(paper for paper, relevance in pool.items() if not relevance)
    papers[other] |= {"title": "", "abstract": None}
    (folder / METADATA).write_text(json.dumps(papers))
    run(folder, make=BM25)
    assert any(line.endswith(f"lacks 1 papers of the benchmark: {query}") for line in caplog.messages)
    assert any(
        f"official script: {query}." in line for line in caplog.messages if line.startswith("cite: 1 q")
    )
    (folder / METADATA).write_text(json.dumps({"elsewhere": {"title": "a", "abstract": "b"}}))
    with pytest.raises(InputError, match=r"\.json: none of the \d+ queries has a text: "):
        run(folder, make=BM25)


READERS: dict[str, Callable[[Path], Any]] = {
    "test.qrel": Qrels.read,
    "v.jsonl": lambda path: read_embeddings(path, {"a", "b"}),
}


@pytest.mark.parametrize(
    ("file", "text", "line"),
    [
        ("test.qrel", "q 0 a 1\nq 0 a 0\n", r"query 'q' has the paper 'a' twice"),
        ("test.qrel", "q 0 a 1\nq a 1\n", r"Row #2: Expected 4 columns, got 3: q a 1"),
        ("test.qrel", "q 0 a yes\n", r"row 1, field 'relevance': invalid value 'yes'"),
        ("test.qrel", "", r"Empty CSV file"),
        ("v.jsonl", '{"paper_id": "a", "embedding": [1, NaN]}', r"line 1: "),
        ("v.jsonl", '{"paper_id": "a", "embedding": [1, null]}', r"field 'embedding\[1\]': must be a number"),
        ("v.jsonl", '{"paper_id": "a"}', r"line 1, field 'embedding': is missing"),
        (
            "v.jsonl",
            '{"paper_id": "a", "embedding": [1, 2]}\n{"paper_id": "b", "embedding": [1]}',
            r"line 2, paper 'b': the embedding has 1 numbers, others have 2",
        ),
    ],
)
def test_unusable_files_are_named(tmp_path: Path, file: str, text: str, line: str) -> None:
    (tmp_path / file).write_text(text)
    with pytest.raises(InputError, match=line) as error:
        READERS[file](tmp_path / file)
    assert file in str(error.value) and "\n" not in str(error.value)


def test_embeddings_of_other_papers_are_skipped_and_the_last_one_wins(tmp_path: Path) -> None:
    lines = [("x", [1.0]), ("a", [1.0, 0.1]), ("a", [2.0, 0.5]), ("b", [])]
    text = "\n".join(json.dumps({"paper_id": paper, "embedding": vector}) for paper, vector in lines)
    (tmp_path / "v.jsonl").write_text(text)
    result = read_embeddings(tmp_path / "v.jsonl", {"a", "b"})
    assert result["a"].tolist() == [2.0, 0.5] and len(result["b"]) == 0
    assert set(result) == {"a", "b"}


def test_unusable_settings_are_named(collection: Collection, tmp_path: Path) -> None:
    folder, vectors = collection
    other = write_vectors(folder / "o.jsonl", {"elsewhere": [1.0]})
    cases: list[tuple[dict[str, Any], str]] = [
        ({"embeddings_file": tmp_path / "none.jsonl"}, r"No such file .*none\.jsonl"),
        ({"embeddings_file": other}, "co-view: none of its 6 queries has scores: "),
    ]
    for settings, line in cases:
        with pytest.raises((InputError, FileNotFoundError), match=line):
            run(folder, **settings)
    (folder / "cite" / "test.qrel").unlink()
    with pytest.raises(InputError, match=r"scidocs: no cite/test\.qrel; .*or leave out data\.dir"):
        run(folder, embeddings_file=write_vectors(folder / "v.jsonl", vectors))


def test_the_command(collection: Collection, evaluate: Callable[..., Done]) -> None:
    folder, vectors = collection
    options = ["benchmark=scidocs", "data.dir=scidocs", "data.cache_dir=cache", "output_dir=out"]
    file = write_vectors(folder / "v.jsonl", vectors | {PAPERS[0]: [0.5]})
    done = evaluate(*options, f"embeddings_file={file}")
    assert done.code == 2 and done.err.count("\n") == 1 and "the embedding has" in done.err
    options[1] = "benchmark.dir=scidocs"  # the same option
    done = evaluate(*options, "retriever=bm25")
    assert done.code == 0 and "co-view" in done.out, done.err
