"""Linear models by their weights alone, and rankers of a few papers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from citerec.datasets.corpus import Corpus
from citerec.datasets.prepare import prepare_store
from citerec.datasets.records import PaperRecord, Source
from citerec.rerank.ranker.linear import LinearModel
from citerec.rerank.ranker.model import Ranker, RankingModel
from citerec.retrieval.lexical.bm25 import BM25
from citerec.retrieval.queries import Queries, Query


def linear(weights: Mapping[str, float]) -> LinearModel:
    """A linear model of features whose typical deviation is 1."""
    return LinearModel(weights, dict.fromkeys(weights, 1.0))


def make_corpus(folder: Path, papers: list[PaperRecord], **more: Any) -> Corpus:
    source = Source("made", {}, papers=lambda: papers, contexts=tuple, splits={})
    prepare_store(source, folder, {"tokenizer": "default", "candidates": "all", **more})
    return Corpus(folder)


def over_bm25(corpus: Corpus, weights: dict[str, float]) -> Ranker:
    return Ranker(RankingModel(linear(weights)), {"bm25": BM25()}).index(corpus)


def top(made: Ranker, text: str, k: int = 1) -> list[str]:
    found = made.search(Queries.from_list(made.corpus, [Query(text)]), k).papers[0]
    return [made.corpus.paper_ids[paper] for paper in found.tolist() if paper >= 0]
