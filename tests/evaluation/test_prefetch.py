import json
from pathlib import Path

import ir_measures
import numpy as np
import pytest
from ir_measures import RR, R

from datasets.errors import InputError
from datasets.prepare import open_corpus
from datasets.store import Corpus
from evaluation.prefetch import Prefetch, seen_groups
from evaluation.qrels import Qrels
from evaluation.report import Provenance
from retrieval.bm25 import BM25
from retrieval.popularity import Popularity
from retrieval.runs import Run

CUTOFFS = [1, 2, 10]


def test_metrics_are_those_of_the_files_on_disk(tiny_corpus: Corpus, tmp_path: Path) -> None:
    metrics = Prefetch(CUTOFFS)(Popularity(), tiny_corpus, "test", tmp_path)
    assert metrics == json.loads((tmp_path / "metrics.json").read_text())
    rescored = ir_measures.calc_aggregate(
        [RR] + [R @ k for k in CUTOFFS],
        list(ir_measures.read_trec_qrels(str(tmp_path / "qrels.trec"))),
        list(ir_measures.read_trec_run(str(tmp_path / "run.trec"))),
    )
    assert metrics["mrr"] == pytest.approx(rescored[RR], abs=1e-12)
    for k in CUTOFFS:
        assert metrics[f"recall@{k}"] == pytest.approx(rescored[R @ k], abs=1e-12)
    # "parsing" is first, "speech" and "vision" tie with "graph", "poetry" was never cited in training.
    assert metrics["recall@1"] == 0.25 and metrics["recall@10"] == 0.75 and metrics["unseen/recall@10"] == 0


def test_metrics_are_flat_and_complete(tiny_corpus: Corpus, tmp_path: Path) -> None:
    metrics = Prefetch(CUTOFFS)(BM25(), tiny_corpus, "test", tmp_path)
    measures = ["mrr", "recall@1", "recall@2", "recall@10"]
    names = [*measures, "queries", "seconds_per_query", "index_seconds", "candidates"]
    names += [f"{group}/{name}" for group in ("seen", "unseen") for name in [*measures, "queries"]]
    assert list(metrics) == [*names, "retriever", "data", "split", "fingerprint"]
    assert all(isinstance(value, int | float | str) for value in metrics.values())
    assert metrics["mrr"] == 1.0 and metrics["queries"] == 4 and metrics["candidates"] == 11
    assert metrics["seen/queries"] == 3 and metrics["unseen/queries"] == 1
    written = {path.name for path in tmp_path.iterdir() if path.is_file()}
    assert written == {"metrics.json", "run.trec", "qrels.trec", "report.md", "recall.png"}
    assert (tmp_path / "recall.png").read_bytes().startswith(b"\x89PNG")


def test_the_size_of_the_batches_does_not_matter(tiny_corpus: Corpus, tmp_path: Path) -> None:
    for batch in (1, 3, 100):
        Prefetch(CUTOFFS, batch=batch)(BM25(), tiny_corpus, "train", tmp_path / str(batch))
    runs = [(tmp_path / str(batch) / "run.trec").read_bytes() for batch in (1, 3, 100)]
    assert runs[0] == runs[1] == runs[2]


def test_no_query_gets_the_paper_it_stands_in(tiny_corpus: Corpus, tmp_path: Path) -> None:
    Prefetch([20])(BM25(), tiny_corpus, "train", tmp_path)
    run = Run.read(tmp_path / "run.trec")
    for query, found in next(run.batches(100)).items():
        row = list(tiny_corpus.context_ids).index(query)
        assert tiny_corpus.paper_ids[int(tiny_corpus.citing[row])] not in found and "bare" not in found


def test_the_report_says_what_was_done(tiny_corpus: Corpus, tmp_path: Path) -> None:
    origin = Provenance("python evaluate.py retriever=bm25", "k1: 1.2\n")
    Prefetch(CUTOFFS)(BM25(), tiny_corpus, "test", tmp_path, origin)
    report = (tmp_path / "report.md").read_text()
    for part in (
        "bm25 on tiny, split test",
        "4 contexts",
        "11 candidates",
        "citing paper",
        "| recall@10 | 1.0000 | 1.0000 | 1.0000 |",
        "| queries | 4 | 3 | 1 |",
        "](recall.png)",
        tiny_corpus.fingerprint,
        "python evaluate.py retriever=bm25",
        "k1: 1.2",
    ):
        assert part in report, part


def test_a_folder_with_only_a_test_split_is_evaluated(tiny_source: Path, tmp_path: Path) -> None:
    (tiny_source / "train.json").unlink()
    (tiny_source / "val.json").unlink()
    corpus = open_corpus(tiny_source, cache_dir=tmp_path / "cache")
    metrics = Prefetch(CUTOFFS)(BM25(), corpus, "test", tmp_path / "out")
    assert metrics["mrr"] == 1.0 and not [name for name in metrics if "seen" in name]
    assert "no training split" in (tmp_path / "out" / "report.md").read_text()


def test_seen_needs_one_target_that_training_cites(tiny_source: Path, tmp_path: Path) -> None:
    queries = json.loads((tiny_source / "test.json").read_text())
    queries[0]["positive_ids"] = ["poetry", "speech"]  # not seen, seen
    queries[1]["positive_ids"] = ["poetry", "retrieval"]  # neither
    (tiny_source / "test.json").write_text(json.dumps(queries))
    corpus = open_corpus(tiny_source, cache_dir=tmp_path / "cache")
    groups = seen_groups(corpus, corpus.split("test"))
    assert groups["seen"].tolist() == [True, False, False, True]
    np.testing.assert_array_equal(groups["unseen"], ~groups["seen"])
    assert len(Qrels.of_split(corpus, corpus.split("test")).judgements["c9"]) == 2


def test_a_failed_write_leaves_no_metrics(
    tiny_corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Prefetch(CUTOFFS)(BM25(), tiny_corpus, "test", tmp_path)

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("evaluation.prefetch.recall_plot", full)
    with pytest.raises(OSError, match="No space"):
        Prefetch(CUTOFFS)(Popularity(), tiny_corpus, "test", tmp_path)
    # The run is already that of the second evaluation: the metrics of the first must not stand beside it.
    assert not (tmp_path / "metrics.json").exists()


def test_a_split_that_is_not_there_is_one_line_and_loses_nothing(tiny_corpus: Corpus, tmp_path: Path) -> None:
    Prefetch(CUTOFFS)(BM25(), tiny_corpus, "test", tmp_path)
    with pytest.raises(InputError, match="'dev'; there are: train, val, test"):
        Prefetch(CUTOFFS)(BM25(), tiny_corpus, "dev", tmp_path)
    assert (tmp_path / "metrics.json").exists()


@pytest.mark.parametrize("settings", [{"cutoffs": []}, {"cutoffs": [0]}, {"cutoffs": [1.5]}, {"batch": 0}])
def test_settings_that_make_no_sense_are_one_line(settings: dict[str, object]) -> None:
    with pytest.raises(InputError, match="whole numbers"):
        Prefetch(**settings)  # type: ignore[arg-type]
