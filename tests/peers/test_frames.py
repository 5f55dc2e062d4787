"""Comparisons as frames of pandas and polars, with the real packages: make test-peers."""

from __future__ import annotations

import pytest

from citerec.datasets.corpus import Corpus
from citerec.evaluation import compare
from citerec.retrieval.lexical.bm25 import BM25
from citerec.retrieval.popularity import Popularity

pytest.importorskip("pandas")
pytest.importorskip("polars")


def test_frames_have_the_rows_of_the_comparison(demo_corpus: Corpus) -> None:
    systems = [BM25().index(demo_corpus), Popularity().index(demo_corpus)]
    found = compare(systems, demo_corpus.split("test"), ["R@10", "MRR"])
    pandas, polars = found.to_pandas(), found.to_polars()
    assert list(pandas.columns) == polars.columns == list(found.rows[0])
    assert polars.to_dicts() == found.rows
    tested = pandas[pandas["system"] == "popularity"]
    assert tested["p_holm"].tolist() == [row["p_holm"] for row in found.rows[2:]]
    assert pandas["p_holm"].isna().tolist() == [True, True, False, False]
