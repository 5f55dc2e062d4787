"""Fusion against plain dictionaries, tuning against individually fused rankings, and the retriever."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from citerec.base.errors import InputError
from citerec.datasets.columns import Ragged
from citerec.datasets.corpus import Corpus
from citerec.datasets.prepare import open_corpus
from citerec.rerank.cross_encoder.scores import reorder
from citerec.retrieval.base import Ranking, Retriever, top_k
from citerec.retrieval.citations import Citations
from citerec.retrieval.filters import Filters
from citerec.retrieval.fusion import (
    Fusion,
    fuse,
    fuse_scores,
    normalise_scores,
    reciprocal_ranks,
    simplex,
    tune_weight,
)
from citerec.retrieval.lexical.bm25 import BM25
from citerec.retrieval.popularity import Popularity
from citerec.tests.retrieval.made import assert_same
from citerec.tests.retrieval.test_errors import fusion

PAPERS = 9
SEEDS = st.integers(0, 2**32 - 1)
ALL = np.arange(12)


def drawn(seed: int, parts: int | None = None) -> tuple[list[Ranking], np.ndarray]:
    """Random rankings of one to four parts with ties, and weights per query, some 0."""
    rng = np.random.default_rng(seed)
    queries, parts = int(rng.integers(1, 5)), parts or int(rng.integers(1, 5))
    shape = (queries, PAPERS)
    rankings = []
    for _ in range(parts):
        papers = rng.permuted(np.tile(np.arange(PAPERS), (queries, 1)), axis=1)
        drop = rng.random(shape) < rng.choice([0, 0.5, 0.9])
        depth = int(rng.integers(1, PAPERS + 1))
        rankings.append(top_k(papers, rng.integers(-4, 5, shape) / 3, depth, drop))
    return rankings, rng.choice([0, 0, 0.25, 0.5, 1], (queries, parts))


def as_dictionary(ranking: Ranking, query: int) -> dict[int, float]:
    pairs = zip(ranking.papers[query].tolist(), ranking.scores[query].tolist(), strict=True)
    return {paper: score for paper, score in pairs if paper >= 0}


def z_scores(ranked: Mapping[int, float]) -> dict[int, float]:
    """z-scores minus that of the last paper, by the textbook formula."""
    scores = list(ranked.values())
    if len(set(scores)) <= 1:
        return dict.fromkeys(ranked, 1.0)
    mean, deviation = float(np.mean(scores)), float(np.std(scores))
    least = (min(scores) - mean) / deviation
    return {paper: (score - mean) / deviation - least for paper, score in ranked.items()}


def check(fused: Ranking, query: int, parts: list[dict[int, float]], weights: list[float], k: int) -> None:
    """Check that a row contains the k papers with the highest weighted sums of gains."""
    expected: dict[int, float] = {}
    for part, weight in zip(parts, weights, strict=True):
        for paper, gain in part.items() if weight > 0 else ():
            expected[paper] = expected.get(paper, 0) + weight * gain
    row = as_dictionary(fused, query)
    assert len(row) == min(k, len(expected)) and fused.papers.shape[1] == k
    assert (fused.papers[query, len(row) :] == -1).all()
    assert np.isneginf(fused.scores[query, len(row) :]).all()
    for paper, score in row.items():
        assert score == pytest.approx(expected[paper], abs=1e-5)
    assert list(row.values()) == pytest.approx(sorted(expected.values(), reverse=True)[:k], abs=1e-5)
    pairs = [(-score, paper) for paper, score in row.items()]
    assert pairs == sorted(pairs)  # ties by paper


def convex(rankings: list[Ranking], weights: NDArray[Any], k: int) -> Ranking:
    return fuse(rankings, [normalise_scores(ranking) for ranking in rankings], weights, k)


def reciprocal_rank(rankings: list[Ranking], weights: NDArray[Any], k: int) -> Ranking:
    return fuse(rankings, [reciprocal_ranks(ranking) for ranking in rankings], weights, k)


@pytest.mark.parametrize("method", ["convex", "rrf"])
@given(seed=SEEDS, k=st.integers(1, 20))
def test_a_fusion_is_the_weighted_sum_of_gains(method: str, seed: int, k: int) -> None:
    rankings, weights = drawn(seed)
    fused = (convex if method == "convex" else reciprocal_rank)(rankings, weights, k)
    for query in range(len(weights)):
        result = [as_dictionary(ranking, query) for ranking in rankings]
        ranks = [{p: 1 / (60 + rank) for rank, p in enumerate(papers, 1)} for papers in result]
        parts = [z_scores(papers) for papers in result] if method == "convex" else ranks
        check(fused, query, parts, weights[query].tolist(), k)


@given(seed=SEEDS)
def test_the_order_of_the_parts_does_not_matter_and_all_weight_on_one_gives_its_order(seed: int) -> None:
    rankings, weights = drawn(seed, parts=3)
    places = np.random.default_rng(seed).permutation(3)
    turned = convex([rankings[i] for i in places], weights[:, places], 12)
    assert_same(convex(rankings, weights, 12), turned)
    for part, ranking in enumerate(rankings):
        alone = np.eye(3)[[part]]
        widened = np.pad(ranking.papers, ((0, 0), (0, PAPERS - ranking.k)), constant_values=-1)
        np.testing.assert_array_equal(convex(rankings, alone, PAPERS).papers, widened)
        np.testing.assert_array_equal(reciprocal_rank(rankings, alone, PAPERS).papers, widened)


# Tuning.


@pytest.mark.parametrize("parts", [1, 2, 3, 4, 5])
def test_the_grid_contains_every_mixture_once(parts: int) -> None:
    grid = simplex(parts)
    assert np.allclose(grid.sum(axis=1), 1) and (grid >= 0).all() and grid.shape[1] == parts
    assert len(np.unique(grid, axis=0)) == len(grid) <= 250
    for corner in np.eye(parts):  # each part alone
        assert (grid == corner).all(axis=1).any()
    steps = round(1 / grid[grid > 0].min())
    np.testing.assert_allclose(grid * steps, (grid * steps).round(), atol=1e-9)


# A reranker and its prefetcher.

FOUND = np.array([[4, 3, 2, 1], [7, 6, -np.inf, -np.inf], [-np.inf] * 4], np.float32)
SCORES = np.array([[0.1, 0.9, 0.2, 0.9], [0.3, 0.4, -np.inf, -np.inf], [-np.inf] * 4], np.float32)
CANDIDATES = Ranking(np.array([[5, 3, 9, 1], [2, 8, -1, -1], [-1, -1, -1, -1]], np.int32), FOUND)


def test_other_weights_sum_z_scores() -> None:
    result = fuse_scores(CANDIDATES, SCORES, 0.3)
    first = (FOUND[0] - FOUND[0].min()) / FOUND[0].std()
    second = (SCORES[0] - SCORES[0].min()) / SCORES[0].std()
    assert np.allclose(result[0], 0.7 * first + 0.3 * second, atol=1e-5)
    assert np.isneginf(result[1, 2:]).all() and np.isneginf(result[2]).all()


def test_the_tuned_weight_is_the_best_of_all() -> None:
    rng, shape = np.random.default_rng(1), (60, 12)
    papers = np.stack([rng.permutation(40)[:12] for _ in range(60)])
    target = papers[np.arange(60), rng.integers(12, size=60)]
    candidates = top_k(papers, rng.normal(size=shape) + (papers == target[:, None]), 12)
    relevant = candidates.papers == target[:, None]
    scores = (rng.normal(size=shape) + 1.5 * relevant).astype(np.float32)

    def recall(weight: float) -> float:
        final = reorder(candidates, fuse_scores(candidates, scores, weight))
        return float((final.papers[:, :3] == target[:, None]).any(1).mean())

    weight = tune_weight(candidates, scores, Ragged.from_rows(list(target[:, None])), [3])
    values = {step / 20: recall(step / 20) for step in range(21)}
    assert recall(weight) == max(values.values()) > max(values[0], values[1]) and weight in values


def test_a_perfect_reranker_gets_enough_weight() -> None:
    wanted = Ragged.from_rows([[1], [8], [7]])
    assert tune_weight(CANDIDATES, SCORES, wanted, [1]) > 0.5
    assert tune_weight(CANDIDATES, -SCORES, wanted, [4]) == 0.5  # ties go to the most even


# The retriever: BM25 and popularity on the tiny corpus.


def joined(corpus: Corpus, **options: Any) -> Fusion:
    return fusion(**options).index(corpus)


@pytest.mark.parametrize(
    "filters", [None, Filters(exclude=["parsing"]), Filters(unseen=True), Filters(year="citing")]
)
def test_fuses_the_rankings_of_its_parts(tiny_corpus: Corpus, filters: Filters | None) -> None:
    fusion = joined(tiny_corpus, weights={"words": 3, "fame": 1})
    rankings = [part.search(ALL, 2000, filters) for part in fusion.parts.values()]
    weights = np.array([[0.75, 0.25]])
    result = fusion.search(ALL, 11, filters)
    assert_same(result, convex(rankings, weights, 11))
    assert not (result.papers == tiny_corpus.citing[ALL][:, None]).any()
    assert (result.papers[:, 0] >= 0).any()


def test_the_first_papers_do_not_depend_on_k_and_depth_bounds_them(tiny_corpus: Corpus) -> None:
    fusion = joined(tiny_corpus, depth=2, weights="equal")
    many = fusion.search(ALL, 11)
    for k in (1, 2, 3):
        assert_same(fusion.search(ALL, k), Ranking(many.papers[:, :k], many.scores[:, :k]))
    assert 2 <= (many.papers >= 0).sum(axis=1).max() <= 4


def test_weights_come_from_validation_and_never_from_test(
    tiny_source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("citerec.retrieval.fusion.CUTOFFS", (1,))

    def changed(split: str, context: str) -> Corpus:
        """The corpus with another target, the most popular paper, and another text in one context."""
        contexts = json.loads((tiny_source / "contexts.json").read_text())
        text = "Nothing that anyone else in the world would ever say TARGETCIT."
        contexts[context] |= {"masked_text": text, "refid": "parsing"}
        queries = json.loads((tiny_source / f"{split}.json").read_text())
        for query in queries:
            if query["context_id"] == context:
                query["positive_ids"] = ["parsing"]
        (tiny_source / "contexts.json").write_text(json.dumps(contexts))
        (tiny_source / f"{split}.json").write_text(json.dumps(queries))
        return open_corpus(tiny_source, cache_dir=tmp_path / "cache")

    corpus = open_corpus(tiny_source, cache_dir=tmp_path / "cache")
    before = joined(corpus).tuned
    assert joined(changed("test", "c9")).tuned == before
    changed("val", "c7")
    after = joined(changed("val", "c8")).tuned
    assert after["weights"]["fame"] > before["weights"]["fame"]


def test_weights_tuned_for_other_query_fields_are_refused(tiny_corpus: Corpus, tmp_path: Path) -> None:
    def made(weights: Any, query: list[str], kind: str) -> Retriever:
        text = BM25(query=query)
        if kind == "fusion":
            return Fusion({"text": text, "fame": Popularity()}, weights=weights)
        return Citations(text, weights=weights)

    fixed = {"fusion": "equal", "citations": {"text": 1, "cited": 1, "citing": 1}}
    for kind, weights in fixed.items():
        for folder, value in ((f"{kind}-fixed", weights), (f"{kind}-tuned", "tuned")):
            made(value, ["title"], kind).index(tiny_corpus).save(tmp_path / folder)
        made(weights, ["context"], kind).load(tmp_path / f"{kind}-fixed", tiny_corpus)
        with pytest.raises(InputError, match="was built with query="):
            made("tuned", ["context"], kind).load(tmp_path / f"{kind}-tuned", tiny_corpus)
