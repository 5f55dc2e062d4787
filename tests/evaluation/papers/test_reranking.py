"""Papers as queries: F1 as in Citeomatic, the two benchmarks, and summaries of their sweeps."""

from __future__ import annotations

import csv
import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from citerec.datasets.corpus import Corpus
from citerec.evaluation.benchmarks.contexts.prefetch import Prefetch
from citerec.evaluation.benchmarks.papers.reranking import GlobalPrefetch, GlobalReranking
from citerec.evaluation.measures import query_values
from citerec.evaluation.protocol import Qrels
from citerec.rerank.settings import ScoringSettings
from citerec.retrieval.base import Ranking
from citerec.retrieval.citations import Citations
from citerec.retrieval.fusion import Fusion
from citerec.retrieval.lexical.bm25 import BM25
from citerec.retrieval.run import Run


def citeomatic(ranked: list[str], cited: set[str], k: int) -> tuple[float, float, float]:
    """Precision, recall and F1 of one paper's top k, as defined in citeomatic/eval_metrics.py."""
    correct = sum(paper in cited for paper in ranked[:k])
    precision, recall = correct / k, correct / len(cited)
    both = precision + recall
    return precision, recall, 2 * precision * recall / both if correct else 0.0


@given(st.integers(0, 2**32 - 1), st.integers(1, 30), st.sampled_from([1, 3, 20]))
def test_f1_agrees_with_citeomatic(seed: int, retrieved: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    rows = np.stack([rng.permutation(40)[:retrieved] for _ in range(5)]).astype(np.int32)
    scores = np.sort(rng.random(rows.shape).astype(np.float32))[:, ::-1]
    ids, papers = [f"q{query}" for query in range(5)], [f"p{paper}" for paper in range(40)]
    cited = {query: {f"p{paper}" for paper in rng.permutation(40)[: rng.integers(1, 25)]} for query in ids}
    qrels = Qrels({query: dict.fromkeys(relevant, 1) for query, relevant in cited.items()})
    values = query_values(Run(ids, papers, Ranking(rows, scores)), qrels, [10], [k])
    for i, query in enumerate(ids):
        expected = citeomatic([papers[row] for row in rows[i]], cited[query], k)
        got = tuple(values[f"{name}@{k}"][i] for name in ("precision", "recall", "f1"))
        assert got == pytest.approx(expected)
        ranked = [papers[row] in cited[query] for row in rows[i]]
        precisions = [sum(ranked[: rank + 1]) / (rank + 1) for rank, hit in enumerate(ranked) if hit]
        assert values["map"][i] == pytest.approx(sum(precisions) / len(cited[query]))


def global_rerank(reranker: Path, folder: Path, **options: Any) -> GlobalReranking:
    defaults: dict[str, Any] = {
        "cutoffs": [10, 1000],
        "f1": [20, 3],
        "depths": [],
        "scores_dir": folder / "s",
    }
    return GlobalReranking(
        reranker=reranker, scoring=ScoringSettings(precision="float32"), **(defaults | options)
    )


def test_both_stages_are_measured_by_f1(tiny_corpus: Corpus, tiny_reranker: Path, tmp_path: Path) -> None:
    metrics = global_rerank(tiny_reranker, tmp_path, candidates=4)(BM25(), tiny_corpus, "test", tmp_path)
    assert metrics == json.loads((tmp_path / "metrics.json").read_text())
    split = tiny_corpus.split("test")
    rows = {tiny_corpus.context_ids[row]: place for place, row in enumerate(split.contexts.tolist())}
    for prefix, stage in (("", ""), ("base/", "base-")):
        run = next(Run.read(tmp_path / f"{stage}run.trec").batches(99))
        values = []
        for query, place in rows.items():
            cited = {tiny_corpus.paper_ids[row] for row in split.positives[place].tolist()}
            ranked = sorted(run.get(query, {}), key=lambda paper, scores=run[query]: -scores[paper])  # type: ignore[misc]
            values.append(citeomatic(ranked, cited, 3))
        precision, recall, f1 = (statistics.mean(column) for column in zip(*values, strict=True))
        assert metrics[f"{prefix}f1@3"] == pytest.approx(f1)
        assert metrics[f"{prefix}precision@3"] == pytest.approx(precision)
        of_means = 2 * precision * recall / (precision + recall)
        assert metrics[f"{prefix}f1@3/of_means"] == pytest.approx(of_means)
        with (tmp_path / f"{stage}per_query.csv").open(newline="") as file:
            table = {row["query_id"]: float(row["f1@3"]) for row in csv.DictReader(file)}
        assert [table[query] for query in rows] == pytest.approx([item[2] for item in values])
    gain = float(metrics["f1@3"]) - float(metrics["base/f1@3"])
    assert metrics["gain/f1@3"] == pytest.approx(gain) and "gain/f1@20/p" in metrics
    report = (tmp_path / "report.md").read_text()
    for part in ("# Global reranking: bm25 + tiny-reranker", "| f1@3 |", "| f1@20 |"):
        assert part in report, part
    assert "of_means" not in report
    assert metrics["benchmark"] == "global_rerank"


def test_another_benchmark_leaves_none_of_the_files_before(
    tiny_corpus: Corpus, tiny_reranker: Path, tmp_path: Path
) -> None:
    alone = GlobalPrefetch(cutoffs=[10], f1=[20])
    alone(BM25(), tiny_corpus, "test", tmp_path / "alone")
    (tmp_path / "both").mkdir()
    (tmp_path / "both" / "run-mine.trec").touch()
    global_rerank(tiny_reranker, tmp_path, candidates=4)(BM25(), tiny_corpus, "test", tmp_path / "both")
    alone(BM25(), tiny_corpus, "test", tmp_path / "both")
    files = {folder: {path.name for path in (tmp_path / folder).iterdir()} for folder in ("alone", "both")}
    assert files["both"] == files["alone"] | {"run-mine.trec"}


def test_query_papers_are_measured_by_f1(tiny_corpus: Corpus, tmp_path: Path) -> None:
    retriever = BM25(query=["title", "abstract"])
    metrics = GlobalPrefetch(cutoffs=[10], f1=[20])(retriever, tiny_corpus, "test", tmp_path)
    assert metrics["f1@20"] > 0 and metrics["recall@20"] == 1
    report = (tmp_path / "report.md").read_text()
    assert "| f1@20 |" in report
    Prefetch(cutoffs=[10])(BM25(), tiny_corpus, "test", tmp_path)  # other benchmarks have neither
    report = (tmp_path / "report.md").read_text()
    assert "f1@" not in report


def test_reports_say_which_retrievers_read_the_citation_graph(tiny_corpus: Corpus, tmp_path: Path) -> None:
    graph = Citations(BM25(), weights={"text": 1, "cited": 1, "citing": 1})
    for retriever in (graph, Fusion({"words": BM25(), "graph": graph}, weights="equal"), BM25()):
        metrics = GlobalPrefetch(cutoffs=[10], f1=[20])(retriever, tiny_corpus, "test", tmp_path)
        said = "- **This retriever reads the citation graph**" in (tmp_path / "report.md").read_text()
        assert said == ("protocol" in metrics) == (retriever.name != "bm25")
    assert graph.name == "bm25+citation-graph"
