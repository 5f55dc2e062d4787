"""CSFCube's measures agree with the official script; bad files raise one-line errors."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citerec.base.errors import InputError
from citerec.evaluation.benchmarks.papers.csfcube import (
    CSFCube,
    CSFCubePools,
    query_measures,
    ranked_file,
    read_rankings,
)
from citerec.evaluation.report import Provenance
from citerec.retrieval.lexical.bm25 import BM25
from citerec.tests.conftest import Done
from citerec.tests.evaluation.conftest import ROOT, metrics_of, no_retriever

FOLDER = ROOT.parent / "shared" / "data" / "csfcube"
FACETS = ("background", "method", "result")
FOLDS = ("fold1_dev", "fold2_dev", "fold1_test", "fold2_test")


def write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")


@pytest.fixture
def cube(tmp_path: Path) -> Path:
    """A collection with two queries per facet, pools of 25, and rankings by `mine` in the same folder.

    The query q1 is in its own pools.
    """
    grades = {"q1": [0, 3, 1, 2] * 6 + [0], "q2": [2] + [0] * 24}
    pools: dict[str, dict[str, Any]] = {
        query: {"cands": [f"p{i}" for i in range(25)], "relevance_adju": grade}
        for query, grade in grades.items()
    }
    pools["q1"]["cands"][0] = "q1"
    splits: dict[str, dict[str, list[str]]] = {"all": {fold: [] for fold in FOLDS}}
    for facet in FACETS:
        write(tmp_path / f"test-pid2anns-csfcube-{facet}.json", pools)
        ranked = {
            query: [[paper, i / 2] for i, paper in enumerate(pool["cands"]) if paper != query]
            for query, pool in pools.items()
        }
        write(tmp_path / ranked_file("mine", facet), ranked)
        first, second = [f"q1_{facet}"], [f"q2_{facet}"]
        splits[facet] = dict(zip(FOLDS, (first, second, second, first), strict=True))
        for fold in FOLDS:
            splits["all"][fold] += splits[facet][fold]
    write(tmp_path / "evaluation_splits.json", splits)
    return tmp_path


def change(path: Path, **values: Any) -> None:
    """Replace values of a JSON object in a file; None removes a key."""
    content = json.loads(path.read_text(encoding="utf-8")) | values
    write(path, {key: value for key, value in content.items() if value is not None})


def run(
    folder: Path, out: str = "out", make: Any = no_retriever, **options: Any
) -> dict[str, dict[str, float]]:
    """Evaluate a retriever, or rankings, by default those of `mine`; return the metrics."""
    if make is no_retriever:
        options = {"ranked_dir": folder, "experiment_name": "mine"} | options
    benchmark = CSFCube(dir=folder, cache_dir=folder / "cache", **options)
    benchmark.run(folder / out, Provenance("the command"), make)
    return metrics_of(folder / out)


def plain_measures(grades: list[int]) -> dict[str, float]:
    """Compute the measures rank by rank, as the collection's README describes them."""
    hits = [grade >= 2 for grade in grades]
    at = [rank for rank, hit in enumerate(hits, 1) if hit]
    precision_at = {rank: sum(hits[:rank]) / rank for rank in range(1, len(hits) + 1)}

    def dcg(ranked: list[int], k: int) -> float:
        return ranked[0] + sum(gain / math.log2(rank) for rank, gain in enumerate(ranked[:k], 1) if rank > 1)

    def ndcg(k: int) -> float:
        best = dcg(sorted(grades, reverse=True), k)
        return dcg(grades, k) / best if best else 0.0

    recall = sum(hits[:20]) / len(at) if at else 0.0
    both = precision_at[20] + recall
    return {
        "recall": recall,
        "precision": precision_at[20],
        "f1": 2 * precision_at[20] * recall / both if both else 0.0,
        "r_precision": precision_at[at[-1]] if at else 0.0,
        "av_precision": sum(precision_at[rank] for rank in at) / len(at) if at else 0.0,
        "reciprocal_rank": 1 / at[0] if at else 0.0,
        "ndcg": ndcg(len(grades)),
        "ndcg@20": ndcg(20),
        "ndcg%20": ndcg(int(0.2 * len(grades))),
    }


@given(st.lists(st.integers(0, 3), min_size=20, max_size=60))
def test_measures_follow_the_readme(grades: list[int]) -> None:
    assert query_measures(grades) == pytest.approx(plain_measures(grades))


def test_means_are_over_folds_and_the_query_itself_is_not_scored(cube: Path) -> None:
    metrics = run(cube)
    assert list(metrics) == [*FACETS, "all", *(f"dev/{facet}" for facet in [*FACETS, "all"])]
    first = plain_measures([3, 1, 2] + [0, 3, 1, 2] * 5 + [0])
    second = plain_measures([2] + [0] * 24)
    for facet in [*FACETS, "all"]:
        assert metrics[f"dev/{facet}"]["ndcg%20"] == pytest.approx(100 * first["ndcg%20"])
        for name, ours in (("ndcg", "ndcg"), ("av_precision", "mean_av_precision")):
            assert metrics[facet][ours] == pytest.approx(50 * (first[name] + second[name]))
    assert "the command" in (cube / "out" / "report.md").read_text()
    rows = (cube / "out" / "per_query.csv").read_text().splitlines()
    assert len(rows) == 7 and rows[1].startswith("q1_background,q1,")


def test_rankings_keep_file_order_and_drop_the_query_itself(cube: Path) -> None:
    path = cube / ranked_file("mine", "method")
    before = json.loads(path.read_text())["q1"]
    change(path, q1=[["q1", 0.0], *([paper, 1.0] for paper, _ in reversed(before))])
    rankings = read_rankings(path, CSFCubePools.read(cube).pools["method"])
    assert [paper for paper, _ in rankings["q1"]] == [paper for paper, _ in reversed(before)]


def test_unranked_candidates_are_counted_and_skipped_like_in_the_script(
    cube: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = cube / ranked_file("mine", "method")
    change(path, q1=json.loads(path.read_text())["q1"][:-2])
    result = run(cube)["dev/method"]
    assert "method: 2 candidates are not ranked" in caplog.text and "q1_p23, q1_p24" in caplog.text
    grades = ([3, 1, 2] + [0, 3, 1, 2] * 5)[:22]
    assert result["ndcg"] == pytest.approx(100 * plain_measures(grades)["ndcg"])


POOL = [[f"p{i}", 0.5] for i in range(1, 25)]
CANDIDATES = [f"p{i}" for i in range(25)]
ANNOTATIONS, RANKING = "test-pid2anns-csfcube-method.json", ranked_file("mine", "method")


@pytest.mark.parametrize(
    ("file", "changed", "line"),
    [
        (RANKING, {"q1": None}, "1 queries are not ranked, or unknown: q1"),
        (RANKING, {"q7": POOL}, "1 queries are not ranked, or unknown: q7"),
        (RANKING, {"q1": [*POOL[:-1], ["p24", float("nan")]]}, "query 'q1': 1 candidates .* NaN: p24"),
        (RANKING, {"q1": [*POOL, ["other", 1.0]]}, "query 'q1': 1 candidates are not in its pool, .*: other"),
        (RANKING, {"q1": [*POOL, ["p1", 1.0]]}, "query 'q1': 2 candidates .* ranked twice, .*: p1, p1"),
        (RANKING, {"q1": [*POOL[:-1], ["p24", "0.1"]]}, "must be a number, not a string"),
        (RANKING, {"q1": POOL[:19]}, "1 queries have fewer than 20 ranked candidates: q1"),
        (
            ANNOTATIONS,
            {"q1": {"cands": CANDIDATES, "relevance_adju": [3] * 24}},
            "query 'q1': each candidate",
        ),
        (ANNOTATIONS, {"q1": {"cands": ["a", "a"], "relevance_adju": [3, 0]}}, "query 'q1': each candidate"),
        (ANNOTATIONS, {"q1": {"cands": ["a"], "relevance_adju": [4]}}, "Expected `int` <= 3"),
        ("evaluation_splits.json", {"method": {"fold1_dev": []}}, "'method.fold1_dev': .* length >= 1"),
        (
            "evaluation_splits.json",
            {"all": {fold: ["q9_method"] for fold in FOLDS}},
            "annotations: q9_method",
        ),
    ],
)
def test_unusable_files_are_named(cube: Path, file: str, changed: dict[str, Any], line: str) -> None:
    change(cube / file, **changed)
    with pytest.raises(InputError, match=line) as error:
        run(cube)
    assert file in str(error.value) and "\n" not in str(error.value)
    assert not (cube / "out").exists()


@pytest.fixture
def abstracts(cube: Path) -> Path:
    """Texts of the collection: p3 shares the method sentence of q1, p7 all of q1."""
    background, method = "We look at parsing.", "Inverted lists rank documents."
    texts = {"q1": [background, method, "Trees."], "q2": [method, background, "Trees."]}
    texts |= {f"p{i}": [f"Nothing{i}.", "Else."] for i in range(25)}
    texts |= {"p3": [method], "p7": [background, method]}
    labels = {background: "objective_label", method: "method_label"}
    papers = [
        {
            "paper_id": paper,
            "title": f"Title {paper}",
            "abstract": sentences,
            "pred_labels": [labels.get(sentence, "result_label") for sentence in sentences],
        }
        for paper, sentences in texts.items()
    ]
    path = cube / "abstracts-csfcube-preds.jsonl"
    path.write_text("\n".join(map(json.dumps, papers)))
    return path


@pytest.mark.parametrize(("query", "first"), [("whole", "p7"), ("facet", "p3")])
def test_a_retriever_ranks_by_the_whole_abstract_or_the_facet(
    cube: Path, abstracts: Path, query: str, first: str
) -> None:
    result = run(cube, "bm25", BM25, query=query)
    ranked_dir = cube / "bm25" / "ranked"
    ranked = json.loads((ranked_dir / ranked_file(f"bm25-{query}", "method")).read_text())
    assert ranked["q1"][0][0] == first and len(ranked["q1"]) == 24  # without q1 itself
    for ranking in ranked.values():
        assert ranking == sorted(ranking, key=lambda pair: (pair[1], pair[0]))
    assert run(cube, ranked_dir=ranked_dir, experiment_name=f"bm25-{query}") == result


def test_queries_without_text_to_search_are_named(cube: Path, abstracts: Path) -> None:
    texts = abstracts.read_text(encoding="utf-8")
    abstracts.write_text(texts.replace("objective_label", "method_label"), encoding="utf-8")
    with pytest.raises(InputError, match=r"background: no sentences with this label .* in q1, q2"):
        run(cube, make=BM25, query="facet")
    abstracts.write_text(texts, encoding="utf-8")
    abstracts.unlink()
    with pytest.raises(InputError, match=r"no abstracts-csfcube-preds\.jsonl"):
        run(cube, make=BM25)


def test_the_command_prints_the_official_table(cube: Path, evaluate: Callable[..., Done]) -> None:
    options = ["benchmark=csfcube", "data.dir=.", "ranked_dir=.", "experiment_name=mine"]
    done = evaluate(*options, "output_dir=out")
    assert done.code == 0, done.err
    metrics = metrics_of(cube / "out")
    row = next(line for line in done.out.splitlines() if "method" in line and "test" in line)
    cells = [cell.strip() for cell in row.strip("│ ").split("│")]
    named = ["r_precision", "precision", "recall", "ndcg", "ndcg@20", "ndcg%20"]
    assert cells[2:8] == [f"{metrics['method'][name]:.2f}" for name in named]


@pytest.mark.skipif(not FOLDER.is_dir(), reason="the collection is missing")
def test_sample_rankings_agree_with_the_official_script(tmp_path: Path) -> None:
    CSFCube(dir=FOLDER, ranked_dir=FOLDER / "sample_ranked_pools", experiment_name="specter").run(
        tmp_path, Provenance(), no_retriever
    )
    metrics = metrics_of(tmp_path)
    golden = json.loads((FOLDER / "golden_metrics.json").read_text())["specter"]
    for facet, splits in golden["aggregate"].items():
        for split, expected in splits.items():
            result = metrics[facet if split == "test" else f"dev/{facet}"]
            in_percent = {name: 100 * value for name, value in expected.items()}
            assert result == pytest.approx(in_percent, abs=1e-4, rel=0)
    head, *rows = (row.split(",") for row in (tmp_path / "per_query.csv").read_text().splitlines())
    assert {row[0] for row in rows} == set(golden["per_query"])
    for row in rows:
        values = dict(zip(head[2:], map(float, row[2:]), strict=True))
        assert values == pytest.approx(golden["per_query"][row[0]], abs=1e-6, rel=0)
