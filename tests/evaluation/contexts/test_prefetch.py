import re
from pathlib import Path

import ir_measures
import pytest
from ir_measures import R

from citerec.base.errors import InputError
from citerec.datasets.corpus import Corpus
from citerec.datasets.generate import open_demo
from citerec.datasets.prepare import open_corpus
from citerec.evaluation.benchmark import Output
from citerec.evaluation.benchmarks.contexts.prefetch import Prefetch
from citerec.evaluation.report import Provenance
from citerec.retrieval.citations import Citations
from citerec.retrieval.filters import Filters
from citerec.retrieval.fusion import Fusion
from citerec.retrieval.lexical.bm25 import BM25
from citerec.retrieval.popularity import Popularity
from citerec.retrieval.run import CachedRun

CUTOFFS = [1, 2, 10]


def test_metrics_are_flat_and_complete(tiny_corpus: Corpus, tmp_path: Path) -> None:
    metrics = Prefetch(cutoffs=CUTOFFS)(BM25(), tiny_corpus, "test", tmp_path)
    measures = ["mrr", "recall@1", "recall@2", "recall@10"]
    # Two citing papers; the unseen queries are all from one of them, so they have no intervals.
    with_intervals = [name + end for name in measures for end in ("", "/low", "/high")]
    counts = ["queries", "citing_papers", "candidates", "seconds_per_query"]
    names = [*with_intervals, *counts, *(f"seen/{name}" for name in [*with_intervals, "queries"])]
    names += [f"unseen/{name}" for name in [*measures, "queries"]]
    names += [f"inductive/{name}" for name in [*measures, *counts]]
    names += ["index_seconds", "index_bytes", "papers_per_second"]
    assert list(metrics) == [*names, "retriever", "data", "split", "filters", "fingerprint", "processors"]
    assert all(isinstance(value, int | float | str) for value in metrics.values())
    assert metrics["mrr"] == 1.0 and metrics["queries"] == 4 and metrics["candidates"] == 11
    assert metrics["seen/queries"] == 3 and metrics["unseen/queries"] == 1
    written = {path.name for path in tmp_path.iterdir() if path.is_file()}
    both = {"run.trec", "qrels.trec", "per_query.csv"}
    both |= {"run-inductive.trec", "qrels-inductive.trec", "per_query-inductive.csv"}
    assert written == both | {"metrics.json", "report.md", "recall.png"}
    assert (tmp_path / "recall.png").read_bytes().startswith(b"\x89PNG")


def test_the_inductive_protocol_is_reported_separately(tiny_corpus: Corpus, tmp_path: Path) -> None:
    metrics = Prefetch(cutoffs=CUTOFFS)(Popularity(), tiny_corpus, "test", tmp_path)
    # Only "poetry" is cited by no training context, and popularity ranks no such paper.
    assert metrics["inductive/queries"] == 1 and metrics["inductive/candidates"] == 7
    assert metrics["inductive/mrr"] == 0 and metrics["mrr"] != 0
    assert (tmp_path / "qrels-inductive.trec").read_text() == "c11 0 poetry 1\n"
    assert (tmp_path / "run-inductive.trec").read_text() == ""
    alone = Prefetch(cutoffs=CUTOFFS, protocols=["inductive"])(BM25(), tiny_corpus, "test", tmp_path)
    assert alone["inductive/recall@1"] == 1 and "mrr" not in alone and "seen/mrr" not in alone
    assert not (tmp_path / "run.trec").exists() and (tmp_path / "recall.png").exists()
    assert "Results, transductive" not in (tmp_path / "report.md").read_text()
    head, *_, table = Prefetch.view({name: Output(tmp_path, dict(alone), {}) for name in "abc"}, "")
    assert head == "### Inductive" and str(table).count("**1.000**") == 9  # no curve of other queries


def test_outputs_of_other_queries_are_described_apart(tmp_path: Path) -> None:
    corpus = open_demo(200, 600, cache_dir=tmp_path / "cache")
    benchmark = Prefetch(cutoffs=[1, 20, 100], protocols=["transductive", "draft"])
    few = Filters(exclude=sorted(corpus.paper_ids)[:-30])
    rows = {
        "draft": Prefetch(cutoffs=[1], protocols=["draft"])(BM25(), corpus, "val", tmp_path),
        "few": benchmark(BM25(), corpus, "val", tmp_path, filters=few),
        "test": benchmark(BM25(), corpus, "test", tmp_path),
    }
    parts = Prefetch.view({name: Output(tmp_path, dict(row), {}) for name, row in rows.items()}, "")
    head, table, *_ = map(str, parts)
    for name in ("few", "test"):
        row = rows[name]
        text = f"{row['queries']} queries of {row['citing_papers']} citing papers (split {row['split']}, "
        assert f"{text}transductive), {row['candidates']} candidates" in head
        assert any(f"{text}draft), {row['candidates']} candidates" in str(part) for part in parts)
    assert head.count(".") == 2 and "| R@20 | R@100 |" in table
    seen = [str(part) for part in parts if str(part).startswith("Seen: ")]
    assert [text.count(" candidates.") for text in seen] == [2]


def test_a_truncated_run_file_gives_the_same_recall_up_to_its_depth(tmp_path: Path) -> None:
    corpus = open_demo(200, 600, cache_dir=tmp_path / "cache")
    deep = Prefetch(cutoffs=[1, 5, 100], run_depth=None)(Popularity(), corpus, "test", tmp_path / "deep")
    short = Prefetch(cutoffs=[1, 5, 100], run_depth=5)(Popularity(), corpus, "test", tmp_path / "short")
    none = Prefetch(cutoffs=[1, 5, 100], run_depth=0)(Popularity(), corpus, "test", tmp_path / "short")
    assert deep["recall@100"] == short["recall@100"] == none["recall@100"]
    assert not list((tmp_path / "short").glob("run*")) and (tmp_path / "short" / "metrics.json").exists()
    Prefetch(cutoffs=[1, 5, 100], run_depth=5)(Popularity(), corpus, "test", tmp_path / "short")
    sizes = [(tmp_path / name / "run.trec").stat().st_size for name in ("deep", "short")]
    assert sizes[1] < sizes[0] / 2
    rescored = ir_measures.calc_aggregate(
        [R @ 1, R @ 5],
        list(ir_measures.read_trec_qrels(str(tmp_path / "short" / "qrels.trec"))),
        list(ir_measures.read_trec_run(str(tmp_path / "short" / "run.trec"))),
    )
    # Popularity has many ties, which trec_eval orders by id.
    assert [rescored[R @ 1], rescored[R @ 5]] == pytest.approx([deep["recall@1"], deep["recall@5"]])


def test_a_sample_of_queries(tmp_path: Path) -> None:
    corpus = open_demo(200, 600, cache_dir=tmp_path / "cache")
    runs = []
    for folder, seed in (("a", 1), ("b", 1), ("c", 2)):
        metrics = Prefetch(cutoffs=CUTOFFS, queries=20, seed=seed)(BM25(), corpus, "test", tmp_path / folder)
        assert metrics["queries"] == 20
        runs.append((tmp_path / folder / "qrels.trec").read_text())
    assert runs[0] == runs[1] != runs[2]
    assert "20 of the 70 contexts of split test" in (tmp_path / "a/report.md").read_text()
    whole = Prefetch(cutoffs=CUTOFFS, queries=10**6)(BM25(), corpus, "test", tmp_path / "d")
    assert whole["queries"] == 70 and set(runs[0].split("\n")) < set(
        (tmp_path / "d" / "qrels.trec").read_text().split("\n")
    )


def test_tuned_parameters_and_a_loaded_index_are_reported(tiny_corpus: Corpus, tmp_path: Path) -> None:
    class Tuned(Popularity):
        def _index(self, corpus: Corpus) -> None:
            super()._index(corpus)
            self.tuned = {"weight": 0.3, "of": ["a", "b"]}

    first = Prefetch(cutoffs=CUTOFFS)(
        Tuned(), tiny_corpus, "val", tmp_path / "out", index_dir=tmp_path / "index"
    )
    assert first["papers_per_second"] == 11 / float(first["index_seconds"])
    again = Prefetch(cutoffs=CUTOFFS)(
        Tuned(), tiny_corpus, "val", tmp_path / "out", index_dir=tmp_path / "index"
    )
    assert "papers_per_second" not in again
    for metrics in (first, again):
        assert metrics["tuned/weight"] == 0.3 and metrics["tuned/of"] == '["a", "b"]'
    report = (tmp_path / "out" / "report.md").read_text()
    assert re.search(r"\| popularity \| 0\.\d+ \|  \| 0\.\d \|", report)
    assert 'Chosen on the validation split: popularity: weight 0.3, of ["a", "b"].' in report


def test_training_queries_carry_a_warning(
    tiny_source: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tiny_source / "val.json").rename(tiny_source / "train_named.json")
    corpus = open_corpus(tiny_source, cache_dir=tmp_path / "cache", splits=["train", "train_named", "test"])
    for split, warned in (("test", False), ("train", True), ("train_named", True)):
        caplog.clear()
        Prefetch(cutoffs=CUTOFFS)(BM25(), corpus, split, tmp_path)
        assert ("has seen the answers" in caplog.text) is warned
        assert ("These are training queries" in (tmp_path / "report.md").read_text()) is warned


def test_a_run_is_measured_up_to_its_depth_with_one_protocol(tiny_corpus: Corpus, tmp_path: Path) -> None:
    made = Prefetch(cutoffs=[1, 2, 10], run_depth=2)(BM25(), tiny_corpus, "test", tmp_path / "bm25")
    cached = CachedRun([tmp_path / "bm25" / "run.trec"])
    again = Prefetch(cutoffs=[1, 2, 10])(cached, tiny_corpus, "test", tmp_path / "run")
    assert (
        again["recall@2"] == made["recall@2"] and 2 <= int(again["limit"]) < 10 and "recall@10" not in again
    )
    assert "inductive/mrr" in made and "inductive/mrr" not in again
    graph = Citations(cached, weights={"text": 1, "cited": 1, "citing": 1})
    for joined in (Fusion({"run": cached, "words": BM25()}, weights="equal"), graph):
        assert "inductive/mrr" not in Prefetch()(joined, tiny_corpus, "test", tmp_path / joined.name)
        split = tiny_corpus.split("val").contexts
        assert not joined.covers(split).any() and joined.covers(tiny_corpus.split("test").contexts).all()
    with pytest.raises(InputError, match=r"protocols=.*inductive.*: a run is of one protocol"):
        Prefetch(protocols=["inductive", "draft"])(cached, tiny_corpus, "test", tmp_path / "run")
    assert (
        f"The run has at most {again['limit']} papers per query."
        in (tmp_path / "run" / "report.md").read_text()
    )


def test_the_report_says_what_was_done(tiny_corpus: Corpus, tmp_path: Path) -> None:
    origin = Provenance("citerec evaluate retriever=bm25", "k1: 1.2\n")
    Prefetch(cutoffs=CUTOFFS)(BM25(), tiny_corpus, "test", tmp_path, origin)
    report = (tmp_path / "report.md").read_text()
    for part in (
        "bm25 on tiny, split test",
        "- 4 of the 4 contexts of split test, 10 papers for each.",
        "11 candidates",
        "| recall@10 | 1.0000 [1.000, 1.000] | 1.0000 [1.000, 1.000] | 1.0000 |",
        "4 queries of 2 citing papers",
        "inductive), 7 candidates.",
        "| queries | 4 | 3 | 1 |",
        "](recall.png)",
        tiny_corpus.fingerprint,
        "citerec evaluate retriever=bm25",
        "k1: 1.2",
    ):
        assert part in report, part


def test_a_folder_with_only_a_test_split_is_evaluated(tiny_source: Path, tmp_path: Path) -> None:
    (tiny_source / "train.json").unlink()
    (tiny_source / "val.json").unlink()
    corpus = open_corpus(tiny_source, cache_dir=tmp_path / "cache")
    metrics = Prefetch(cutoffs=CUTOFFS)(BM25(), corpus, "test", tmp_path / "out")
    assert metrics["mrr"] == 1.0 and not [name for name in metrics if "seen" in name]


def test_a_failed_write_leaves_no_metrics(
    tiny_corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Prefetch(cutoffs=CUTOFFS)(BM25(), tiny_corpus, "test", tmp_path)

    def full(*args: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("citerec.evaluation.report.draw_curves", full)
    with pytest.raises(OSError, match="No space"):
        Prefetch(cutoffs=CUTOFFS)(Popularity(), tiny_corpus, "test", tmp_path)
    # The run is already the second evaluation's: the metrics of the first must not remain next to it.
    assert not (tmp_path / "metrics.json").exists()
