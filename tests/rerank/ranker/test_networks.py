"""What an encoder adds: fitted weights follow its cosines, and papers that were not read stay below."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from citerec.rerank.ranker.linear import LinearModel, Lists, TrainingLists, ranking_sums
from citerec.rerank.ranker.networks import (
    COSINE,
    FIRST,
    PAIR,
    PAIRS,
    READ,
    NetworkModel,
    Rescoring,
    with_pairs,
)
from citerec.rerank.ranker.training import DEPTH, PAIRS_DEPTH, fit_networks, measure_ways
from citerec.rerank.settings import RankerSettings

SIZE = 50


def lists(count: int, seed: int = 0) -> TrainingLists:
    """Lists of SIZE papers whose cosine tells the cited one, and whose BM25 says little."""
    rng, n = np.random.default_rng(seed), count * SIZE
    cited = np.zeros(n, np.bool_)
    cited[np.arange(count) * SIZE + rng.integers(0, SIZE, count)] = True
    cosine, bm25 = rng.normal(0.3, 0.1, n) + 0.25 * cited, rng.normal(5, 1, n) + cited
    return TrainingLists(
        [COSINE, "bm25"],
        np.stack([cosine, bm25], axis=1).astype(np.float32),
        np.arange(count + 1) * SIZE,
        np.tile(np.arange(SIZE, dtype=np.int32), count),
        cited,
        np.arange(count, dtype=np.int32),
        np.ones(count, np.int64),
        np.full(count, "drafts"),
    )


BASE = LinearModel({"bm25": 1.0}, {"bm25": 1.0})


@pytest.fixture(scope="module")
def fitted() -> NetworkModel:
    settings = RankerSettings(folds=2, l2=1e-3)
    return fit_networks(settings, lists(80), np.ones(80, np.bool_), 0).networks


def test_both_ways_of_ranking_learn_from_cosines(fitted: NetworkModel) -> None:
    new = lists(200, 1)
    base = BASE.scores(new)
    assert fitted.first.depth == DEPTH and fitted.first.weight > 1
    assert fitted.read.weights[COSINE] > 0.5
    without, first, read = (
        ranking_sums(new, scores)["mrr"] / 200
        for scores in (base, fitted.first.scores(new, base), fitted.read.scores(new))
    )
    assert without < first - 0.1 and first < read
    for name in (READ, FIRST):
        sure = fitted.confidences[name]
        assert sure.parameters and (sure.log_probabilities(new, base) <= 0).all()


def with_scores_of_pairs(given: TrainingLists, read: int = DEPTH) -> TrainingLists:
    """The same with a cross-encoder's scores of the first papers by BM25; they alone tell the cited one."""
    scores = np.full(len(given.papers), np.nan)
    rng = np.random.default_rng(2)
    for start in given.offsets[:-1]:
        first = start + np.argsort(-given.values[start : start + SIZE, 1])[:read]
        scores[first] = rng.normal(-3, 1, len(first)) + 3 * given.cited[first]
    values = np.stack([np.zeros_like(scores), given.values[:, 1], scores], axis=1).astype(np.float32)
    return replace(given, columns=[COSINE, "bm25", PAIR], values=values)


def test_the_first_papers_learn_from_pairs() -> None:
    settings = RankerSettings(folds=2, l2=1e-3)
    fitted = fit_networks(settings, with_scores_of_pairs(lists(80)), np.ones(80, np.bool_), 0)
    model, measures = fitted.networks, fitted.measures
    new = with_scores_of_pairs(lists(100, 1))
    before = BASE.scores(new)
    assert model.pairs is not None and model.pairs.weight > 0.5 and model.pairs.depth == PAIRS_DEPTH
    assert measures[PAIRS]["drafts"]["mrr"] > measures[READ]["drafts"]["mrr"] + 0.1
    assert model.confidences[PAIRS].parameters
    after = model.pairs.scores(new, before, PAIR)
    assert ranking_sums(new, after)["mrr"] > ranking_sums(new, before)["mrr"] + 10
    assert NetworkModel.from_json(model.as_json()) == model
    of_model = measure_ways(fitted, new)
    assert set(of_model) == set(measures) and of_model[PAIRS]["drafts"]["mrr"] > 0.3


class Pairs:
    """An encoder whose cross-encoder's scores are given, and which notes what is read."""

    def __init__(self, scores: np.ndarray, queries: int = 1) -> None:
        self.values, self.scored, self.complete, self.count = scores, list[int](), True, queries
        self.networks = SimpleNamespace(scores_pairs=True, reader=self)

    def __getitem__(self, rows: slice) -> Pairs:
        return self

    def queries(self, queries: object) -> list[list[int]]:
        return [[0]] * self.count

    def pair_scores(self, query: list[int], papers: np.ndarray) -> np.ndarray:
        self.scored += papers.tolist()
        return self.values[papers]


def test_only_the_first_papers_are_read_with_the_query() -> None:
    size, depth = 9, 4
    bm25, scores = np.arange(size)[::-1].astype(np.float32), np.arange(size, dtype=np.float32) * 2
    given = Lists(["bm25"], bm25[:, None], np.array([0, size]))
    encoder = Pairs(scores)
    model = NetworkModel(BASE, Rescoring(1, 0.0), Rescoring(depth, 5.0))
    papers = np.array([*range(size - 1), -1], np.int32)
    queries: Any = encoder
    ranked = model.log_probabilities(BASE, queries, queries, papers, given)
    assert encoder.scored == [0, 1, 2, 3]
    assert np.argsort(-ranked, kind="stable").tolist() == [3, 2, 1, 0, 4, 5, 6, 7, 8]
    lists = with_pairs(queries, queries, papers, given, [np.arange(depth)])
    assert lists.columns[-1] == PAIR and np.isfinite(lists.values[:, -1]).tolist() == [True] * 4 + [False] * 5
    encoder.networks.scores_pairs = False
    plain = model.log_probabilities(BASE, queries, queries, papers, given)
    assert np.argsort(-plain).tolist() == [*range(9)]


def test_where_the_encoder_reads_the_first_papers_the_cross_encoder_reads_none() -> None:
    bm25, read = np.arange(6, dtype=np.float32)[::-1], list[int]()
    values = np.stack([bm25, np.full(6, np.nan, np.float32)], axis=1)
    given = Lists(["bm25", COSINE], values, np.array([0, 6]))
    encoder: Any = Pairs(np.zeros(6, np.float32))
    encoder.complete, encoder.read = False, lambda papers: read.extend(papers.tolist())
    encoder.cosines = lambda _, papers: np.array([0, 0.1, 0.2, 0.9, 1, 1], np.float32)[papers]
    model = NetworkModel(BASE, Rescoring(4, 9.0), Rescoring(6, 5.0))
    ranked = model.log_probabilities(BASE, encoder, encoder, np.arange(6, dtype=np.int32), given)
    assert read == [0, 1, 2, 3] and not encoder.scored
    assert np.argsort(-ranked, kind="stable").tolist() == [3, 2, 1, 0, 4, 5]


def test_a_list_with_full_texts_is_ranked_as_it_is_and_its_neighbours_are_not_changed() -> None:
    bm25 = np.tile(np.arange(3, dtype=np.float32)[::-1], 2)
    words = np.array([0.5, *[np.nan] * 5], np.float32)
    values = np.stack([bm25, words], axis=1)
    given = Lists(["bm25", "passage_near"], values, np.array([0, 3, 6]))
    encoder: Any = Pairs(np.array([0, 9, 0, 0, 9, 0], np.float32), queries=2)
    model = NetworkModel(BASE, Rescoring(1, 0.0), Rescoring(3, 5.0))
    ranked = model.log_probabilities(BASE, encoder, encoder, np.arange(6, dtype=np.int32), given)
    assert encoder.scored == [3, 4, 5]
    assert [np.argmax(ranked[:3]), np.argmax(ranked[3:])] == [0, 1]
