"""What users get wrong, and the line that says so."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from citerec.base.errors import InputError
from citerec.datasets.corpus import Corpus
from citerec.datasets.prepare import open_corpus
from citerec.retrieval.base import Retriever
from citerec.retrieval.citations import Citations
from citerec.retrieval.filters import Filters
from citerec.retrieval.fusion import Fusion
from citerec.retrieval.lexical.bm25 import BM25
from citerec.retrieval.popularity import Popularity
from citerec.retrieval.run import CachedRun, Run
from citerec.retrieval.settings import ArticleConfig, IndexConfig, recall_measures

citations = partial(Citations, BM25())
encoder = partial(ArticleConfig, "tiny")
measure = partial(recall_measures, option="benchmark.measure")


def fusion(**options: Any) -> Fusion:
    return Fusion(**{"parts": {"words": BM25(), "fame": Popularity()}, **options})


QUOTE = """quote numbers, as in '["1901.10430"]'; ids may be in a file"""
OPTIONS: list[tuple[Callable[..., object], dict[str, Any], str]] = [
    (BM25, {"query": "contexts"}, "retriever.query: 'contexts' is not one of"),
    (BM25, {"query": []}, "retriever.query: '' is not one of"),
    (BM25, {"stemmer": "klingon"}, "retriever.stemmer: 'klingon' is not one of"),
    (BM25, {"method": "bm42"}, "retriever.method: 'bm42' is not one of"),
    (BM25, {"backend": "numba"}, "retriever.backend: 'numba' is not one of numpy, rank_bm25"),
    (BM25, {"stopwords": "tlh"}, "retriever.stopwords: 'tlh' is not one of en, "),
    (BM25, {"k1": -1}, "retriever.k1: -1 is not a number from 0"),
    (BM25, {"b": 1.5}, "retriever.b: 1.5 is not a number from 0 to 1"),
    (BM25, {"k1": float("inf")}, "retriever.k1: inf is not a number"),
    (BM25, {"contexts": -1}, "retriever.contexts=-1"),
    (BM25, {"contexts": 0.5}, "retriever.contexts=0.5"),
    (BM25, {"threads": 0}, "retriever.threads=0"),
    (BM25, {"backend": "rank_bm25", "k1": 0}, "divides by 0"),
    (citations, {"similar": 0}, "retriever.similar=0: must be a whole number"),
    (citations, {"depth": "many"}, "retriever.depth=many"),
    (citations, {"weights": {"text": 1}}, "one weight for each of text, cited, citing"),
    (fusion, {"parts": {}}, "retriever.parts: name at least one retriever"),
    (fusion, {"depth": 0}, "retriever.depth=0: must be a whole number, at least 1"),
    (measure, {"measure": ["recall@10", "mrr"]}, "benchmark.measure=mrr: choose recall@K"),
    (measure, {"measure": []}, "benchmark.measure=: choose recall@K"),
    (fusion, {"weights": "best"}, "neither tuned nor equal nor one weight for each of words, fame"),
    (fusion, {"weights": {"words": 1}}, "one weight for each of words, fame"),
    (fusion, {"weights": {"words": 1, "fame": -1}}, "retriever.weights.fame: -1 is not a non-negative"),
    (fusion, {"weights": {"words": 0, "fame": 0}}, "at least one weight must be positive"),
    (measure, {"measure": "recall@0"}, "benchmark.measure=recall@0: choose recall@K, e.g. recall@10"),
    (measure, {"measure": "recall@-1"}, "benchmark.measure=recall@-1: choose"),
    (measure, {"measure": "recall@ten"}, "benchmark.measure=recall@ten: choose"),
    (Filters, {"year": "soon"}, "filters.year: 'soon' is neither a year nor 'citing'"),
    (Filters, {"year": 2001.0}, "filters.year: 2001.0 is neither a year"),
    (Filters, {"year": True}, "filters.year: True is neither a year"),
    (Filters, {"exclude": "p1"}, "filters.exclude: p1: No such file or directory; name a file"),
    (Filters, {"exclude": 12345}, f"exclude: 12345 is no list of names; {QUOTE}"),
    (Filters, {"exclude": [1901.10430]}, f"exclude: [1901.1043] is no list of names; {QUOTE}"),
    (Filters, {"field": 1.5}, f"filters.field: 1.5 is no list of names; {QUOTE}"),
    (IndexConfig, {"kind": "annoy"}, "index.kind=annoy: choose exact, half or ivf"),
    (IndexConfig, {"kind": "half", "probes": 3}, "index.probes=3: index.kind=half has no such setting"),
    (IndexConfig, {"kind": "ivf", "device": "gpu"}, "index.device=gpu: index.kind=ivf has no such setting"),
    (encoder, {"query": ["year"]}, "'year' is not one of context, title, abstract"),
    (CachedRun, {"files": []}, "retriever=run needs retriever.files"),
    (Run.read, {"path": "none.trec"}, "none.trec: No such file"),
]


@pytest.mark.parametrize(("make", "options", "line"), OPTIONS)
def test_invalid_options(make: Callable[..., object], options: dict[str, Any], line: str) -> None:
    with pytest.raises(InputError, match=re.escape(line)):
        make(**options)


@pytest.mark.parametrize(
    ("make", "splits", "line"),
    [
        (Popularity, ["test"], "corpus tiny: no split 'train'"),
        (partial(BM25, contexts=1), ["test"], "corpus tiny: no split 'train'"),
        (fusion, ["train", "test"], "which corpus tiny lacks; set retriever.weights to equal"),
        (citations, ["train", "test"], "which corpus tiny lacks; set retriever.weights to equal"),
    ],
)
def test_missing_splits(
    tiny_source: Path, tmp_path: Path, make: Callable[[], Retriever], splits: list[str], line: str
) -> None:
    corpus = open_corpus(tiny_source, cache_dir=tmp_path / "cache", splits=splits)
    with pytest.raises(InputError, match=re.escape(line)):
        make().index(corpus)


@pytest.mark.parametrize(
    ("saved", "other", "line"),
    [
        (BM25, partial(BM25, k1=1.0), "k1=1.2, not 1.0"),
        (BM25, partial(BM25, b=0.5), "b=0.75, not 0.5"),
        (BM25, partial(BM25, method="okapi"), "method=lucene, not okapi"),
        (BM25, partial(BM25, stemmer=None), "stemmer=english, not None"),
        (BM25, partial(BM25, stopwords=None), "stopwords=en, not None"),
        (BM25, partial(BM25, contexts=1), "retriever=bm25, not bm25-contexts"),
        (BM25, partial(BM25, backend="rank_bm25"), "library=bm25s, not rank_bm25"),
        (fusion, partial(fusion, depth=7), "depth=2000, not 7"),
        (fusion, partial(fusion, weights="equal"), "weights=tuned, not {'words': 0.5"),
        (fusion, partial(fusion, seed=1), "seed=0, not 1"),
        (fusion, partial(fusion, parts={"words": BM25(k1=0.5), "fame": Popularity()}), "parts="),
        (citations, partial(citations, similar=6), "similar=100, not 6"),
    ],
)
def test_an_index_of_other_settings(
    tiny_corpus: Corpus,
    tmp_path: Path,
    saved: Callable[[], Retriever],
    other: Callable[[], Retriever],
    line: str,
) -> None:
    saved().index(tiny_corpus).save(tmp_path / "index")
    with pytest.raises(InputError, match=re.escape(f"the index was built with {line}")):
        other().load(tmp_path / "index", tiny_corpus)
