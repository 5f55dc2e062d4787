"""Two stages end to end on the tiny corpus, compared with sorting by the reranker's scores."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ir_measures
import numpy as np
import pytest
from ir_measures import RR, R
from safetensors.numpy import load_file

from citerec.base.errors import InputError
from citerec.datasets.corpus import Corpus
from citerec.datasets.prepare import open_corpus
from citerec.evaluation.benchmarks.contexts.pipeline import Pipeline, Reranking
from citerec.evaluation.benchmarks.contexts.prefetch import Prefetch
from citerec.evaluation.benchmarks.contexts.stages import cautions, depth_metrics
from citerec.evaluation.comparison import compare_outputs
from citerec.evaluation.report import Provenance, print_parts
from citerec.rerank.cross_encoder.reranker import Reranker
from citerec.rerank.settings import ScoringSettings
from citerec.retrieval.filters import Filters
from citerec.retrieval.lexical.bm25 import BM25
from citerec.retrieval.popularity import Popularity
from citerec.retrieval.run import CachedRun, Run
from citerec.tests.conftest import Done
from citerec.tests.datasets.files.test_beir import DOCUMENTS, QRELS, beir
from citerec.tests.evaluation.conftest import metrics_of

CUTOFFS = [1, 10]
DATA = [
    "benchmark=pipeline",
    "data=custom",
    "data.dir=tiny",
    "data.papers=tiny/papers.json",
    "data.cache_dir=cache",
]


def pipeline(reranker: Path, folder: Path, **options: Any) -> Pipeline:
    defaults: dict[str, Any] = {"cutoffs": CUTOFFS, "scores_dir": folder / "scores", "depths": []}
    return Pipeline(reranker=reranker, scoring=ScoringSettings(precision="float32"), **(defaults | options))


def scored_pairs(folder: Path) -> list[int]:
    """Keys of all pairs scored so far."""
    return [key for file in folder.rglob("*.safetensors") for key in load_file(file)["keys"].tolist()]


def test_the_order_is_that_of_sorting_the_scores(
    tiny_corpus: Corpus, tiny_reranker: Path, tmp_path: Path
) -> None:
    metrics = pipeline(tiny_reranker, tmp_path, candidates=4)(BM25(), tiny_corpus, "test", tmp_path)
    assert metrics["arithmetic"].startswith("torch ") and metrics["arithmetic"].endswith("float32")
    base, result = (next(Run.read(tmp_path / f"{name}run.trec").batches(99)) for name in ("base-", ""))
    reranker = Reranker.open(tiny_reranker, pipeline(tiny_reranker, tmp_path).scoring)
    rows = {query: row for row, query in enumerate(tiny_corpus.context_ids)}
    pairs = 0
    for query, papers in base.items():
        head, tail = list(papers)[:4], list(papers)[4:]
        pairs += len(head)
        contexts = np.full(len(head), rows[query])
        scores = reranker.score(tiny_corpus, contexts, np.array([tiny_corpus.paper_row(p) for p in head]))
        assert len(set(scores.tolist())) == len(head)
        assert [result[query][paper] for paper in head] == pytest.approx(scores, abs=1e-6)
        best = [paper for _, paper in sorted(zip(scores, head, strict=True), key=lambda pair: -pair[0])]
        assert sorted(result[query], key=lambda paper: -result[query][paper]) == best + tail
    assert metrics["pairs"] == metrics["pairs_new"] == pairs == len(scored_pairs(tmp_path))


def test_metrics_are_those_of_the_files_and_of_the_prefetcher_alone(
    tiny_corpus: Corpus, tiny_reranker: Path, tmp_path: Path
) -> None:
    metrics = pipeline(tiny_reranker, tmp_path, candidates=2)(Popularity(), tiny_corpus, "test", tmp_path)
    assert metrics == json.loads((tmp_path / "metrics.json").read_text())
    measures = [RR, R @ 1, R @ 10, R @ 2]
    qrels = list(ir_measures.read_trec_qrels(str(tmp_path / "qrels.trec")))
    for prefix, file in (("", "run.trec"), ("base/", "base-run.trec")):
        run = list(ir_measures.read_trec_run(str(tmp_path / file)))
        values = ir_measures.calc_aggregate(measures, qrels, run)
        for name, measure in (("mrr", RR), ("recall@1", R @ 1), ("recall@10", R @ 10)):
            assert metrics[prefix + name] == pytest.approx(values[measure], abs=1e-12)
        assert (
            prefix or metrics["ceiling"] == values[R @ 10] > values[R @ 2] == 0.25
        )  # two of ten change places
    alone = Prefetch(cutoffs=CUTOFFS)(Popularity(), tiny_corpus, "test", tmp_path / "alone")
    for name in ("mrr", "recall@1", "recall@10", "recall@10/low", "seen/mrr", "unseen/recall@10"):
        assert metrics[f"base/{name}"] == alone[name]
    differences = compare_outputs(tmp_path, tmp_path / "alone", ["mrr", "recall@10"])
    for name, gain in differences.items():
        result = [metrics[f"gain/{name}{end}"] for end in ("", "/p", "/low", "/high")]
        assert result == [gain.difference, gain.p, gain.low, gain.high]
    seconds = metrics["base/seconds_per_query"] + metrics["pairs"] / 4 / metrics["pairs_per_second"]
    assert metrics["seconds_per_query"] == pytest.approx(seconds)
    assert (tmp_path / "reranking.png").read_bytes().startswith(b"\x89PNG")


def test_a_sweep_scores_each_pair_once_and_depths_match_separate_evaluations(
    tiny_corpus: Corpus, tiny_reranker: Path, tmp_path: Path
) -> None:
    new, curves = [], []
    for k in (1, 3, 7, 5):
        benchmark = pipeline(tiny_reranker, tmp_path, candidates=k, depths=[1, 3, 5, 1000])
        metrics = benchmark(BM25(), tiny_corpus, "test", tmp_path / str(k))
        assert list(depth_metrics(metrics)) == [depth for depth in (1, 3, 5) if depth < k] + [k]
        new.append(metrics["pairs_new"])
        curves.append(depth_metrics(metrics))
        assert depth_metrics(metrics)[k]["recall@10"] == metrics["recall@10"]
        assert all(row["recall@10"] <= row["ceiling"] for row in depth_metrics(metrics).values())
    keys = scored_pairs(tmp_path / "scores")
    assert len(keys) == len(set(keys)) == sum(map(int, new)) and new[3] == 0
    for depth, mine in curves[2].items():  # depths of the largest evaluation equal separate ones
        for other in curves:
            for name in ("recall@10", "mrr", "ceiling"):
                assert depth not in other or other[depth][name] == mine[name]


def test_candidates_beyond_the_pool_size_mean_all(
    tiny_corpus: Corpus, tiny_reranker: Path, tmp_path: Path
) -> None:
    result = []
    for candidates in (10**6, "all", 11):
        folder = tmp_path / str(candidates)
        benchmark = pipeline(tiny_reranker, tmp_path, candidates=candidates)
        metrics = benchmark(BM25(), tiny_corpus, "test", folder)
        assert metrics["reranked"] == 11 and metrics["ceiling"] == metrics["base/recall@10"]
        result.append((folder / "run.trec").read_text())
    assert result[0] == result[1] == result[2]
    # A pool of one paper, which only one query finds.
    only = Filters(
        exclude=[paper for paper in tiny_corpus.paper_ids if paper not in ("bare", "citing-train-2")]
    )
    metrics = pipeline(tiny_reranker, tmp_path)(BM25(), tiny_corpus, "test", tmp_path, filters=only)
    assert metrics["reranked"] == 1 and metrics["recall@10"] == 0 and metrics["pairs"] == 1


def test_filters_and_protocols_apply_to_both_stages(
    tiny_corpus: Corpus, tiny_reranker: Path, tmp_path: Path
) -> None:
    benchmark = pipeline(tiny_reranker, tmp_path, candidates=3, protocols=["transductive", "inductive"])
    metrics = benchmark(BM25(), tiny_corpus, "test", tmp_path, filters=Filters(year=2005))
    assert metrics["inductive/queries"] == 1 and metrics["candidates"] == 6
    for name in ("run.trec", "base-run.trec", "run-inductive.trec", "base-run-inductive.trec"):
        papers = [line.split()[2] for line in (tmp_path / name).read_text().splitlines()]
        assert papers and all(tiny_corpus.years[tiny_corpus.paper_row(paper)] <= 2005 for paper in papers)
    assert {"base/inductive/mrr", "gain/inductive/mrr", "inductive/ceiling"} <= metrics.keys()
    assert list(depth_metrics(metrics, "inductive")) == [metrics["inductive/candidates"]]
    report = (tmp_path / "report.md").read_text()
    assert "- Filters: year: 2005." in report and "## Results, inductive" in report
    assert "queries are too few to compare two rankings." in report
    # The next evaluation removes the files of other protocols.
    pipeline(tiny_reranker, tmp_path)(BM25(), tiny_corpus, "val", tmp_path)
    assert not (tmp_path / "base-run-inductive.trec").exists()


@pytest.mark.parametrize(
    ("recall", "said"), [(0.1, "The reranker is worse than what it reranks.\n"), (0.2, "")]
)
def test_a_reranker_that_loses_is_told(recall: float, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    metrics = {"recall@10": recall, "base/recall@10": 0.2, "queries": 50}
    print_parts(cautions(metrics, "transductive"), "title")
    assert capsys.readouterr().out == said


def test_fusion_weights_of_zero_and_one_give_the_single_stages(
    tiny_corpus: Corpus, tiny_reranker: Path, tmp_path: Path
) -> None:
    def run(name: str, **options: Any) -> dict[str, float]:
        benchmark = pipeline(tiny_reranker, tmp_path, candidates=5, **options)
        metrics = benchmark(BM25(), tiny_corpus, "test", tmp_path / name)
        assert metrics["pairs_new"] == 0 or name == "alone"
        return next(Run.read(tmp_path / name / "run.trec").batches(99))["c9"]

    def order(scores: dict[str, float]) -> list[str]:
        return sorted(scores, key=lambda paper: -scores[paper])

    alone = run("alone")
    base = next(Run.read(tmp_path / "alone" / "base-run.trec").batches(99))["c9"]
    assert order(alone) != order(base)
    assert order(run("one", fuse="score", weight=1)) == order(alone)
    assert order(run("zero", fuse="score", weight=0)) == order(base)
    run("half", fuse="score", weight=0.5)
    assert "Sums of z-scores, 0.5 times the reranker's" in (tmp_path / "half/report.md").read_text()


def test_the_weight_is_tuned_on_validation_and_its_scores_are_cached(
    tiny_corpus: Corpus, tiny_reranker: Path, tmp_path: Path
) -> None:
    benchmark = pipeline(tiny_reranker, tmp_path, candidates=4, fuse="score", measure="recall@1", depths=[2])
    metrics = benchmark(BM25(), tiny_corpus, "test", tmp_path)
    assert metrics["fuse"] == "score" and 0 <= float(metrics["weight"]) <= 1
    of_validation = len(scored_pairs(tmp_path)) - int(metrics["pairs"])
    assert 0 < of_validation <= 2 * 4
    again = benchmark(BM25(), tiny_corpus, "test", tmp_path)
    assert again["weight"] == metrics["weight"] and again["mrr"] == metrics["mrr"]
    assert len(scored_pairs(tmp_path)) == of_validation + int(metrics["pairs"])
    # On validation itself, no other weight is better.
    tuned = benchmark(BM25(), tiny_corpus, "val", tmp_path)["recall@1"]
    for weight in (0, 0.3, 1):
        other = pipeline(tiny_reranker, tmp_path, candidates=4, fuse="score", weight=weight)
        assert float(other(BM25(), tiny_corpus, "val", tmp_path)["recall@1"]) <= float(tuned)


def test_a_run_of_an_earlier_evaluation_is_reranked_without_searching(
    tiny_corpus: Corpus, tiny_reranker: Path, tmp_path: Path
) -> None:
    Prefetch(cutoffs=[20], run_depth=None)(BM25(), tiny_corpus, "test", tmp_path / "bm25")
    direct = pipeline(tiny_reranker, tmp_path, candidates=3)(BM25(), tiny_corpus, "test", tmp_path / "a")
    cached = CachedRun([tmp_path / "bm25" / "run.trec"])
    again = pipeline(tiny_reranker, tmp_path, candidates=3)(cached, tiny_corpus, "test", tmp_path / "b")
    for name in ("mrr", "recall@1", "base/mrr", "ceiling", "pairs"):
        assert direct[name] == again[name]
    assert again["retriever"] == "run" and again["pairs_new"] == 0


def test_the_report_says_what_was_done(tiny_corpus: Corpus, tiny_reranker: Path, tmp_path: Path) -> None:
    origin = Provenance("citerec evaluate benchmark=pipeline", "candidates: 3\n")
    pipeline(tiny_reranker, tmp_path, candidates=3, depths=[2])(BM25(), tiny_corpus, "test", tmp_path, origin)
    report = (tmp_path / "report.md").read_text()
    for part in (
        "# Pipeline: bm25 + tiny-reranker on tiny, split test",
        "- tiny-reranker reranks bm25's top 3; the others follow.",
        "| measure | base | reranked | gain | p |",
        "| recall@10 | 1.0000 [1.000, 1.000] | 1.0000 [1.000, 1.000] | 0.0000 [0.000, 0.000] | 1.0000 |",
        "| reranked candidates | R@10 | MRR | prefetch ceiling | s/query |",
        "| 2 | 1.0000 |",
        "](reranking.png)",
        "| pairs | not cached | pairs/s |",
        "citerec evaluate benchmark=pipeline",
        "candidates: 3",
    ):
        assert part in report, part


# Reranking alone


def reranking(reranker: Path, folder: Path, candidates: int | str) -> Reranking:
    options = {"cutoffs": [1, 10], "depths": [], "scores_dir": folder / "scores"}
    return Reranking(reranker=reranker, candidates=candidates, **options)


def test_the_oracle_always_includes_the_cited_paper(
    tiny_corpus: Corpus, tiny_reranker: Path, tmp_path: Path
) -> None:
    metrics = reranking(tiny_reranker, tmp_path, 2)(Popularity(), tiny_corpus, "test", tmp_path)
    base, final = (next(Run.read(tmp_path / f"{name}run.trec").batches(9)) for name in ("base-", ""))
    # "parsing" is the most popular; ties after it go to the first.
    assert {query: list(papers) for query, papers in base.items()} == {
        "c9": ["parsing", "graph", "speech"],
        "c10": ["parsing", "graph"],
        "c11": ["parsing", "graph", "poetry"],
        "c12": ["parsing", "graph", "vision"],
    }
    assert all(set(final[query]) == set(base[query]) for query in base)
    assert metrics["ceiling"] == metrics["recall@10"] == 1 and metrics["base/recall@2"] == 0.25
    assert metrics["pairs"] == 11 and metrics["benchmark"] == "rerank"
    report = (tmp_path / "report.md").read_text()
    assert "reranks up to 3: popularity's, then the cited that it missed." in report


def test_the_whole_database_is_every_paper_but_the_citing_one(
    tiny_corpus: Corpus, tiny_reranker: Path, tmp_path: Path
) -> None:
    metrics = reranking(tiny_reranker, tmp_path, "all")(Popularity(), tiny_corpus, "test", tmp_path)
    run = next(Run.read(tmp_path / "run.trec").batches(9))
    papers = {p for p, may in zip(tiny_corpus.paper_ids, tiny_corpus.is_candidate, strict=True) if may}
    assert set(run["c9"]) == papers - {"citing-test-1"} and metrics["pairs"] == 4 * 10


def test_the_whole_database_lacks_the_document_with_the_querys_id(
    tiny_reranker: Path, tmp_path: Path
) -> None:
    documents = [*DOCUMENTS, {"_id": "q1", "title": "what parses trees?", "text": "what parses trees?"}]
    corpus = open_corpus(beir(tmp_path / "beir", corpus=documents), cache_dir=tmp_path)
    reranking(tiny_reranker, tmp_path, "all")(BM25(), corpus, "test", tmp_path)
    run = next(Run.read(tmp_path / "run.trec").batches(9))
    assert set(run["q1"]) == {"d1", "d2"} and set(run["q2"]) == {"d1", "d2", "q1"}


def test_the_ceiling_counts_no_more_papers_than_ten_places_hold(tiny_reranker: Path, tmp_path: Path) -> None:
    documents = [{**DOCUMENTS[0], "_id": f"d{number}"} for number in range(14)]
    qrels = [QRELS[0], *(f"q1\td{number}\t1" for number in range(12)), "q3\td13\t1"]
    corpus = open_corpus(beir(tmp_path / "beir", qrels, corpus=documents), cache_dir=tmp_path)
    metrics = pipeline(tiny_reranker, tmp_path, candidates="all")(BM25(), corpus, "test", tmp_path)
    assert metrics["ceiling"] == pytest.approx((10 / 12 + 1) / 2)


def test_filters_apply_to_appended_papers(tiny_corpus: Corpus, tiny_reranker: Path, tmp_path: Path) -> None:
    only = Filters(exclude=["poetry", "graph"])
    metrics = reranking(tiny_reranker, tmp_path, 1)(Popularity(), tiny_corpus, "test", tmp_path, filters=only)
    assert metrics["ceiling"] == 0.75
    for candidates in (1, "all"):
        reranking(tiny_reranker, tmp_path, candidates)(
            Popularity(), tiny_corpus, "test", tmp_path, filters=only
        )
        assert not {"poetry", "graph"} & {line.split()[2] for line in (tmp_path / "run.trec").open()}


# Unusable input


def test_unusable_input_is_one_line(
    tiny_corpus: Corpus, tiny_source: Path, tiny_reranker: Path, tmp_path: Path
) -> None:
    for folder in (tmp_path / "nowhere", tiny_source):
        with pytest.raises(InputError, match=str(folder)):
            Pipeline(reranker=folder, scores_dir=tmp_path)(BM25(), tiny_corpus, "test", tmp_path / "out")
    (tiny_source / "val.json").unlink()
    corpus = open_corpus(tiny_source, cache_dir=tmp_path / "other")
    with pytest.raises(InputError, match="no split 'val'"):
        Pipeline(reranker=tiny_reranker, fuse="score")(BM25(), corpus, "test", tmp_path / "out")
    assert not (tmp_path / "out").exists() and not list(tmp_path.rglob("*.safetensors"))


# From the command line


@pytest.mark.slow
def test_a_sweep_over_candidates_has_its_tables_and_keeps_successful_jobs(
    tiny_source: Path, tiny_reranker: Path, evaluate: Callable[..., Done]
) -> None:
    reranker, out = f"reranker={tiny_reranker},nowhere", tiny_source.parent / "out"
    done = evaluate("-m", *DATA, "retriever=bm25", reranker, "candidates=2,5", "output_dir=out")
    assert done.code == 2 and done.err.count("\n") == 1
    assert done.err.startswith("error: 2 of 4 jobs failed; reranker=nowhere candidates=2: nowhere: ")
    jobs = [metrics_of(out / number) for number in "01"]
    keys = scored_pairs(tiny_source.parent / "cache" / "pair-scores")
    assert len(keys) == len(set(keys)) == jobs[1]["pairs"] > jobs[0]["pairs"] == jobs[0]["pairs_new"]
    summary = (out / "summary.md").read_text()
    assert "|  | stages | candidates | queries | base R@10 | R@10 | base MRR |" in summary
    assert "reranker=nowhere candidates=5: nowhere: " in summary
    assert (out / "reranking.png").read_bytes().startswith(b"\x89PNG")
    with (out / "summary.csv").open(newline="") as file:
        assert [row["failure"] == "" for row in csv.DictReader(file)] == [True, True, False, False]
