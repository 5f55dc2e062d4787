"""Per-query measures on disk and from Python, and comparisons of two evaluations."""

import json
import pickle
import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from citerec.base.errors import InputError
from citerec.datasets.corpus import Corpus
from citerec.datasets.generate import open_demo
from citerec.evaluation import compare, evaluate
from citerec.evaluation.benchmarks.contexts.prefetch import Prefetch
from citerec.evaluation.comparison import CompareSettings, compare_outputs
from citerec.evaluation.measures import PerQuery, measure
from citerec.evaluation.significance import format_p, holm, paired_difference
from citerec.retrieval.base import Ranking
from citerec.retrieval.filters import Filters
from citerec.retrieval.lexical.bm25 import BM25
from citerec.retrieval.popularity import Popularity
from citerec.tests.conftest import Done

IDS = st.text(st.characters(codec="utf-8", exclude_characters="\r"), min_size=1, max_size=4)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(
        st.tuples(IDS, IDS, st.floats(allow_nan=False), st.floats(allow_nan=False)), min_size=1, max_size=5
    )
)
def test_values_written_and_read_are_the_same(
    rows: list[tuple[str, str, float, float]], tmp_path: Path
) -> None:
    queries, papers, first, second = (list(column) for column in zip(*rows, strict=True))
    table = PerQuery(queries, papers, {"mrr": np.array(first), "recall@10": np.array(second)})
    table.write(tmp_path / "per_query.csv")
    again = PerQuery.read(tmp_path / "per_query.csv")
    assert (list(again.query_ids), list(again.citing_ids)) == (queries, papers)
    assert {name: array.tolist() for name, array in again.values.items()} == {
        "mrr": first,
        "recall@10": second,
    }
    same = np.equal.outer(np.array(papers, object), np.array(papers, object))
    np.testing.assert_array_equal(np.equal.outer(again.papers, again.papers), same)


@pytest.mark.parametrize(
    "text", ["", "query_id,citing_id,mrr\n", "a,b\n1,2,3\n", "query_id,citing_id,mrr\nq,p,x\n"]
)
def test_another_file_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "per_query.csv").write_text(text)
    with pytest.raises(
        InputError, match=r"per_query.csv: no measures per query \(.*benchmarks write this file"
    ):
        PerQuery.read(tmp_path / "per_query.csv")


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Evaluations on one small corpus: bm25, popularity, and some that are not comparable with them."""
    folder = tmp_path_factory.mktemp("outputs")
    corpus = open_demo(200, 600, cache_dir=folder / "cache")
    Prefetch(cutoffs=[1, 10, 100])(BM25(), corpus, "test", folder / "bm25")
    Prefetch(cutoffs=[1, 10, 100])(Popularity(), corpus, "test", folder / "popularity")
    Prefetch(cutoffs=[1, 10, 100])(BM25(), corpus, "val", folder / "val")
    Prefetch(cutoffs=[1, 10])(BM25(), corpus, "test", folder / "to-10")
    Prefetch(cutoffs=[1, 10, 100], queries=50)(BM25(), corpus, "test", folder / "sample")
    Prefetch(cutoffs=[1, 10, 100])(BM25(), corpus, "test", folder / "filtered", filters=Filters(year=2024))
    return folder


def test_differences_agree_with_the_metrics(outputs: Path) -> None:
    result = compare_outputs(outputs / "bm25", outputs / "popularity", ["mrr", "recall@10"])
    for name, item in result.items():
        a, b = (json.loads((outputs / key / "metrics.json").read_text()) for key in ("bm25", "popularity"))
        assert (item.a, item.b) == pytest.approx((a[name], b[name]))
        assert item.low < item.difference < item.high and (item.queries, item.papers) == (70, 10)
    inductive = compare_outputs(outputs / "bm25", outputs / "popularity", ["mrr"], "inductive")["mrr"]
    assert inductive.b == 0 and inductive.queries < 60
    assert compare_outputs(outputs / "bm25", outputs / "to-10", ["R@1"])["recall@1"].difference == 0


def test_queries_are_matched_by_their_ids(outputs: Path, tmp_path: Path) -> None:
    lines = (outputs / "popularity" / "per_query.csv").read_text().splitlines()
    (tmp_path / "per_query.csv").write_text("\n".join([lines[0], *lines[:0:-1]]))
    (tmp_path / "metrics.json").write_bytes((outputs / "popularity" / "metrics.json").read_bytes())
    named = compare_outputs(outputs / "bm25", tmp_path, ["MRR", "R@10", "recall@100"])
    assert named == compare_outputs(outputs / "bm25", outputs / "popularity")


@pytest.mark.parametrize(
    ("other", "measures", "message"),
    [
        ("val", ["mrr"], "not comparable: split is 'test' and 'val'"),
        ("filtered", ["mrr"], "not comparable: filters is '' and 'year: 2024'"),
        ("sample", ["mrr"], "not comparable: they have different queries"),
        ("to-10", ["MRR"], "rankings of 10 and 100 papers: .* use the same benchmark.cutoffs"),
        ("nowhere", ["mrr"], "nowhere/per_query.csv: No such file"),
        ("popularity", ["R@7"], "no measure 'recall@7'; choose from mrr, recall@1, recall@10,"),
    ],
)
def test_incomparable_evaluations_are_one_line(
    outputs: Path, other: str, measures: list[str], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        compare_outputs(outputs / "bm25", outputs / other, measures)


def test_evaluations_of_other_relevant_papers_are_refused(outputs: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(outputs / "popularity", other)
    qrels = (other / "qrels.trec").read_text().splitlines()
    (other / "qrels.trec").write_text("\n".join([*qrels[:-1], f"{qrels[-1].split()[0]} 0 another 1\n"]))
    with pytest.raises(InputError, match="not comparable: other papers are relevant; use the same data"):
        compare_outputs(outputs / "bm25", other)


def grouped(folder: Path, level: float, sizes: dict[str, float]) -> Path:
    """An evaluation of 20 papers in two pools each of some sizes, with their MAP less `level`."""
    rng = np.random.default_rng(0)
    ids, papers, values = [], [], []
    for size, mean in sizes.items():
        for sampling in (0, 1):
            ids += [f"{size}/{sampling}/p{paper}" for paper in range(20)]
            papers += [f"p{paper}" for paper in range(20)]
            values += (level + mean + 0.01 * rng.standard_normal(20)).tolist()
    folder.mkdir()
    PerQuery(ids, papers, {"map": np.array(values)}).write(folder / "per_query.csv")
    metrics = {size: {"map": 0.0, "candidates": int(size)} for size in sizes}
    (folder / "metrics.json").write_text(json.dumps(metrics))
    return folder


def test_pool_sizes_are_compared_one_by_one(tmp_path: Path) -> None:
    a = grouped(
        tmp_path / "a", 0.5, {"100": 0.05, "400": -0.05}
    )  # better in small pools, worse in large ones
    b = grouped(tmp_path / "b", 0.5, {"100": 0.0, "400": 0.0, "900": 0.0})
    for group, lead in (("100", 0.05), ("400", -0.05)):
        item = compare_outputs(a, b, ["map"], group=group)["map"]
        assert item.difference == pytest.approx(lead, abs=1e-9) and (item.queries, item.papers) == (40, 20)
    with pytest.raises(InputError, match="not comparable: candidates is None and 900"):
        compare_outputs(a, b, ["map"], group="900")
    (b / "metrics.json").write_text(json.dumps({"split": "test", "filters": {}, "candidates": 9}))
    for one, other in ((a, b), (b, a)):  # one without groups
        for group in ("", "100"):
            with pytest.raises(InputError, match="not comparable: "):
                compare_outputs(one, other, ["map"], group=group)


def test_systems_are_compared_in_python(demo_corpus: Corpus) -> None:
    split, measures = demo_corpus.split("test"), ["R@10", "MRR"]
    bm25, popularity = (item.index(demo_corpus) for item in (BM25(), Popularity()))
    result = compare([bm25, popularity], split, measures)
    rankings = [item.search(split, 100) for item in (bm25, popularity)]
    named = dict(zip(("bm25", "popularity"), rankings, strict=True))
    assert result == compare(named, split, measures)
    assert [(row["system"], row["measure"]) for row in result.rows] == [*product(named, measures)]
    for row in result.rows:
        expected = evaluate(named[row["system"]], [row["measure"]], intervals=True)[row["measure"]]
        assert (row["mean"], row["low"], row["high"]) == expected
    ours, theirs = (measure(ranking, measures) for ranking in rankings)
    for row in result.rows[2:]:
        name = row["measure"]
        item = paired_difference(theirs.values[name], ours.values[name], ours.papers)
        assert row["difference"] == item.difference == row["mean"] - evaluate(rankings[0], [name])[name]
        assert (row["difference_low"], row["difference_high"], row["p"]) == (item.low, item.high, item.p)
    assert [row["p_holm"] for row in result.rows] == [
        None,
        None,
        *holm([row["p"] for row in result.rows[2:]]),
    ]
    lines, row = str(result).splitlines(), result.rows[2]
    assert lines[2].startswith(f"| bm25 | R@10 | {result.rows[0]['mean']:.4f} [")
    assert lines[4].endswith(f" | {format_p(row['p'])} | {format_p(row['p_holm'], tests=2)} |")
    citing = demo_corpus.citing[split.contexts]
    one = split.take(np.flatnonzero(citing == citing[0]))
    assert "nan" not in str(compare([bm25, popularity], one, measures))  # no interval of one citing paper
    with pytest.raises(InputError, match="rankings of 10 and 100 papers: not comparable in MRR or AP"):
        compare([bm25, rankings[0], bm25.search(split, 10)], split, measures)
    assert len(compare([rankings[0], bm25.search(split, 10)], split, ["R@10"]).rows) == 2
    with pytest.raises(InputError, match="two or more systems; by name"):
        compare([bm25, bm25], split)
    with pytest.raises(InputError, match="bm25 ranks other queries than split val"):
        compare(named, demo_corpus.split("val"), measures)
    with pytest.raises(InputError, match="ranking 2 ranks other queries than bm25"):
        compare([bm25, Popularity().index(demo_corpus).search(demo_corpus.split("val"), 100)], split)


def test_the_command_prints_a_table(outputs: Path, script: Callable[..., Done]) -> None:
    folders = str(outputs / "bm25"), str(outputs / "popularity")
    done = script("compare", *folders, "measures=recall@10")
    assert done.code == 0, done.err
    head, line = done.out.splitlines()[2], done.out.splitlines()[4]
    assert head == "| measure | A | B | A - B | 95 % | p | p, Holm |" and line.startswith("| recall@10 | 0.")
    with pytest.raises(InputError, match="citerec compare: name two output folders, not 1"):
        CompareSettings(folders=("bm25",))
    with pytest.raises(InputError, match="measures: list at least one value"):
        CompareSettings(folders=folders, measures=())
    bad = script("compare", *folders, "measures=x")
    assert bad.code == 2 and bad.err.startswith("error: ") and bad.err.count("\n") == 1


# `evaluate(ranking, measures)`: the figures of evaluate.py's report from Python.


def test_the_numbers_are_those_of_a_report(demo_corpus: Corpus, tmp_path: Path) -> None:
    metrics = Prefetch(cutoffs=[1, 10, 100])(BM25(), demo_corpus, "train", tmp_path)
    ranking = BM25().index(demo_corpus).search(demo_corpus.split("train"), k=100)
    names = {"R@1": "recall@1", "R@10": "recall@10", "MRR": "mrr"}
    result = evaluate(ranking, list(names), intervals=True)
    for name, key in names.items():
        assert result[name] == (metrics[key], metrics[f"{key}/low"], metrics[f"{key}/high"])
    means = evaluate(ranking, ["MRR", "R@10", "nDCG@10"])
    assert list(means) == ["MRR", "R@10", "nDCG@10"] and means["MRR"] == metrics["mrr"]
    assert 0 < means["nDCG@10"] < means["R@10"] < 1


def test_measures_have_the_names_of_reports_too(tiny_corpus: Corpus) -> None:
    ranking = Popularity().index(tiny_corpus).search(tiny_corpus.split("test"), k=10)
    names = {"R@10": "recall@10", "P@5": "precision@5", "MRR": "mrr", "AP": "map"}
    item, other = evaluate(ranking, [*names]), evaluate(ranking, [*names.values()])
    assert {names[name]: value for name, value in item.items()} == other
    assert evaluate(ranking, [*names, *names.values()]) == item | other, "also both at once"


def test_a_query_may_be_drawn_more_than_once(demo_corpus: Corpus) -> None:
    split, bm25 = demo_corpus.split("test"), BM25().index(demo_corpus)
    drawn = np.random.default_rng(0).integers(len(split), size=len(split))
    each = measure(bm25.search(split, 10), ["R@10"]).values["R@10"]
    ranking = bm25.search(split.take(drawn), 10)
    np.testing.assert_array_equal(measure(ranking, ["R@10"]).values["R@10"], each[drawn])
    assert evaluate(pickle.loads(pickle.dumps(ranking)), ["R@10"]) == {"R@10": each[drawn].mean()}


def test_contexts_without_results_count_as_zero(tiny_corpus: Corpus) -> None:
    ranking = Popularity().index(tiny_corpus).search(tiny_corpus.split("test"), k=10)
    empty = Ranking(ranking.papers * 0 - 1, ranking.scores, ranking.queries)
    assert evaluate(empty, ["R@10", "AP"]) == {"R@10": 0, "AP": 0}


@pytest.mark.parametrize(
    "measure, line",
    [
        ("R@20", "R@20: the ranking has 10 papers per query; search with k=20"),
        ("recall", "recall: no such measure; give one such as R@10, MRR, nDCG@10, P@5 or AP"),
        ("R@0", "R@0: ranks and grades begin at 1"),
        ("AP(rel=0)", "AP(rel=0): ranks and grades begin at 1"),
        ("R@x", "R@x: no such measure; give one such as R@10, MRR, nDCG@10, P@5 or AP"),
        ("MRR@10", "MRR@10: trec_eval cannot compute it"),
        (None, "evaluate: rank the queries of a split, as in search(corpus.split('test'), k=100)"),
    ],
)
def test_errors_of_evaluate_are_one_line(tiny_corpus: Corpus, measure: str | None, line: str) -> None:
    retriever = Popularity().index(tiny_corpus)
    split = tiny_corpus.split("test")
    ranking = retriever.search(split if measure else split.contexts, k=10)
    with pytest.raises(InputError) as error:
        evaluate(ranking, [measure or "MRR"])
    assert str(error.value) == line
    for none in (
        (retriever.search(split.take(np.arange(0)), k=10), ["MRR"]),
        (retriever.search(split, k=10), []),
    ):
        with pytest.raises(InputError, match="evaluate: there must be a query and a measure"):
            evaluate(*none, intervals=True)
