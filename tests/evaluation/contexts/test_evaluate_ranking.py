"""`evaluate(ranking, measures)`: the figures of evaluate.py's report from Python."""

from pathlib import Path

import pytest

from citerec.base.errors import InputError
from citerec.datasets.corpus import Corpus
from citerec.evaluation import evaluate
from citerec.evaluation.benchmarks.contexts.prefetch import Prefetch
from citerec.retrieval.base import Ranking
from citerec.retrieval.lexical.bm25 import BM25
from citerec.retrieval.popularity import Popularity


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
def test_errors_are_one_line(tiny_corpus: Corpus, measure: str | None, line: str) -> None:
    retriever = Popularity().index(tiny_corpus)
    split = tiny_corpus.split("test")
    ranking = retriever.search(split if measure else split.contexts, k=10)
    with pytest.raises(InputError) as error:
        evaluate(ranking, [measure or "MRR"])
    assert str(error.value) == line
