"""The ranker: ranking, saving and loading, training, evaluation, and invalid options."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from citerec.base.errors import InputError
from citerec.datasets.columns import Ragged
from citerec.datasets.corpus import Corpus, Split
from citerec.datasets.records import IN_TEXTS
from citerec.rerank.ranker.citing_contexts import CitingContexts
from citerec.rerank.ranker.confidence import Confidence
from citerec.rerank.ranker.features import DRAFT, group_of
from citerec.rerank.ranker.linear import (
    LinearModel,
    TrainingLists,
    certainty,
    cross_fit,
    fit_ranker,
    measure,
    ranking_sums,
)
from citerec.rerank.ranker.model import MODEL, Ranker, RankingModel
from citerec.rerank.ranker.training import read_lists, training_split
from citerec.rerank.settings import RankerSettings
from citerec.retrieval.base import Ranking, Retriever
from citerec.retrieval.fusion import normalise_scores
from citerec.retrieval.lexical.bm25 import BM25
from citerec.retrieval.passages import CitedElsewhere, CitingPassages
from citerec.retrieval.popularity import Popularity
from citerec.retrieval.queries import Queries, Query
from citerec.tests.composing import compose_config
from citerec.tests.hatten.made import random_model
from citerec.tests.rerank.made import linear
from citerec.tests.rerank.ranker.test_features import average
from citerec.train import train
from citerec.training.hub import ABOUT
from citerec.training.loop import TrainingRun
from citerec.training.rounds import METRICS

WHOLE = '{"format": "ranker-7", %s}'
MIXED = {"bm25": 1.0, "title_share": 0.5, "citing_words": 0.7, "name_near": 1.0}
DEVIATIONS = {"bm25": 3.5, "title_share": 1.5, "citing_words": 2.0, "name_near": 0.1}


def ranker(corpus: Corpus, weights: dict[str, float] = MIXED, depth: int = 15, **options: Any) -> Ranker:
    parts = {"bm25": BM25(), "bm25_contexts": BM25(contexts=100), "dense": average()}
    return Ranker(RankingModel(linear(weights)), parts, depth, **options).index(corpus)


def contexts(corpus: Corpus, split: str = "test") -> np.ndarray:
    return corpus.split(split).contexts


def same(one: Ranking, other: Ranking) -> None:
    np.testing.assert_array_equal(one.papers, other.papers)
    np.testing.assert_allclose(one.scores, other.scores, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", [BM25, Popularity])
def test_a_model_of_one_score_ranks_like_its_retriever(
    demo_corpus: Corpus, kind: Callable[[], Retriever]
) -> None:
    made = Ranker(RankingModel(linear({"it": 1.0})), {"it": kind()}, depth=10)
    alone, rows = kind(), contexts(demo_corpus)
    for one in (made, alone):
        one.index(demo_corpus)
    np.testing.assert_array_equal(made.search(rows, 10).papers, alone.search(rows, 10).papers)


def test_top_papers_do_not_depend_on_k_and_no_found_paper_is_lost(
    demo_corpus: Corpus,
) -> None:
    made, rows = ranker(demo_corpus, depth=8), contexts(demo_corpus)
    few, many = made.search(rows, 5), made.search(rows, 120)
    np.testing.assert_array_equal(few.papers, many.papers[:, :5])
    queries = Queries.from_contexts(demo_corpus, rows)
    for part in made.parts.values():
        for q, papers in enumerate(part.search(queries, 20).papers):
            assert set(papers[papers >= 0].tolist()) <= set(many.papers[q].tolist())
    for q, papers in enumerate(many.papers):
        there = papers[papers >= 0]
        assert len(set(there.tolist())) == len(there) and queries.citing[q] not in there
    assert (np.diff(many.scores, axis=1)[many.papers[:, 1:] >= 0] <= 0).all()


def test_papers_with_contexts_change_places_and_the_others_keep_theirs_but_for_sure_ones(
    demo_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, queries = ranker(demo_corpus), Queries.from_contexts(demo_corpus, contexts(demo_corpus))
    papers = made.merge_candidates(made.prefetch(queries, 15))
    before = made.score_candidates(queries, papers)
    monkeypatch.setitem(demo_corpus.splits, IN_TEXTS, demo_corpus.split("train"))
    after = made.score_candidates(queries, papers)
    shares = CitingContexts(demo_corpus, made.statistics).shares(queries, papers)
    few = ~np.isfinite(shares)
    np.testing.assert_array_equal(after[few], before[few])
    np.testing.assert_array_equal(np.sort(after), np.sort(before))
    assert few.any() and (after != before).any()
    for score, own, former in zip(after, shares, before, strict=True):
        best = np.argmax(own)
        assert (score[best] >= score[(former <= former[best]) & np.isfinite(own)]).all()
    monkeypatch.setattr("citerec.rerank.ranker.model.CITED_SURE", 0.0)
    monkeypatch.setattr("citerec.rerank.ranker.model.CITED_FIRST", 1e6)
    first = made.score_candidates(queries, papers)
    np.testing.assert_array_equal(np.sort(first), np.sort(before))
    cited = shares.max(axis=1) > 0
    np.testing.assert_array_equal(first[cited].argmax(axis=1), shares[cited].argmax(axis=1))


def test_papers_of_similar_passages_are_candidates(
    demo_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("citerec.rerank.ranker.model.CITED", 2)
    made = ranker(demo_corpus, depth=3)
    texts = ["Trees are parsed TARGETCIT.", "Graphs grow TARGETCIT.", "Words mean TARGETCIT."]
    alone = made.prefetch(Queries.from_list(demo_corpus, [Query(texts[0])]), 3)
    there = {int(paper) for part in alone for paper in part.papers.ravel()}
    others = [row for row in np.flatnonzero(demo_corpus.is_candidate).tolist() if row not in there][:3]
    cited = [[demo_corpus.paper_ids[row]] for row in others]
    passages = CitingPassages([*texts, "Here trees grow TARGETCIT."], [[], *cited])
    asked = Queries.from_list(demo_corpus, [Query(texts[0], passages=passages)])
    added = made.prefetch(asked, 3)[-1].papers[0].tolist()
    assert len(added) == 2 and added[0] == others[2] and set(added) < set(others)
    allowed = np.isin(np.arange(len(demo_corpus.paper_ids)), others[:2])
    assert set(made.prefetch(asked, 3, allowed)[-1].papers[0].tolist()) == set(others[:2])


def test_retrievers_without_their_training_contexts_are_skipped(tiny_corpus: Corpus) -> None:
    del tiny_corpus.splits["train"]
    made = ranker(tiny_corpus)
    assert list(made.parts) == ["bm25", "dense"]
    found = made.search(contexts(tiny_corpus), 5)
    assert (found.papers[:, 0] >= 0).all()
    with pytest.raises(InputError, match="all need training contexts, which corpus tiny lacks"):
        Ranker(None, {"bm25": BM25(contexts=9)}).index(tiny_corpus)


# Models and their training.


def test_a_part_that_a_model_was_trained_with_is_missed(caplog: pytest.LogCaptureFixture) -> None:
    model = RankingModel(linear({"bm25": 1.0}), about={"parts": {"bm25": "bm25", "fame": "popularity"}})
    Ranker(model, {"bm25": BM25(), "fame": Popularity()})
    assert not caplog.messages
    Ranker(model, {"bm25": BM25()})
    assert caplog.messages == ["ranker: trained with fame, which retriever.parts lacks"]


def test_the_dense_model_is_saved_inside(demo_corpus: Corpus, tmp_path: Path) -> None:
    dense = random_model(demo_corpus.words)
    weights = linear({"dense": 1.0, "bm25": 0.5})
    model = RankingModel(weights, dense=dense)
    folder = model.save(tmp_path / "ranker")
    assert folder.stat().st_mode == (folder / "dense").stat().st_mode
    rankings = [
        one.retriever().index(demo_corpus).search(contexts(demo_corpus), 10)
        for one in (model, RankingModel.open(tmp_path))
    ]
    same(*rankings)
    with pytest.raises(InputError, match=r"without its dense model: use Ranker.over\(retriever, ranker\)"):
        RankingModel(weights).retriever()


@pytest.mark.parametrize(
    "content, line",
    [
        (None, "not a saved ranker"),
        ("{", "damaged"),
        ("[]", "must contain a dict, not a list"),
        ('{"format": "ranker-9"}', "a ranker of another version; train it again"),
        ('{"format": "ranker-5", "weights": {}}', "a ranker of another version; train it again"),
        (WHOLE % '"weights": {"a": 1}, "confidence": {}', "missing or inconsistent"),
        (
            WHOLE % '"weights": {"a": "b"}, "deviations": {"a": 1}, "confidence": {}',
            "missing or inconsistent",
        ),
        (WHOLE % '"weights": {"a": 1}, "deviations": {"a": 1}', "missing or inconsistent"),
    ],
)
def test_a_damaged_model_is_refused_in_one_line(tmp_path: Path, content: str | None, line: str) -> None:
    if content is not None:
        (tmp_path / MODEL).write_text(content)
    with pytest.raises(InputError, match=line):
        RankingModel.open(tmp_path)


def test_missing_options_are_named(demo_corpus: Corpus) -> None:
    with pytest.raises(InputError, match=r"retriever.parts: must name at least one"):
        Ranker(None, {})
    with pytest.raises(InputError, match=r"retriever.depth=0: must be a whole number"):
        Ranker(None, {"bm25": BM25()}, 0)
    untrained = Ranker(None, {"bm25": BM25()}).index(demo_corpus)
    with pytest.raises(InputError, match="needs ranker=FOLDER"):
        untrained.search(contexts(demo_corpus), 3)


@pytest.fixture(scope="module")
def lists(demo_corpus: Corpus) -> TrainingLists:
    queries = Queries.from_contexts(demo_corpus, demo_corpus.split("train"))
    return read_lists(ranker(demo_corpus), queries, "train")


def test_a_linear_model_minimises_the_loss(lists: TrainingLists) -> None:
    model = fit_ranker(RankerSettings(l2=0.01), lists)
    names, values = model.inputs(lists)
    assert not {name for name in names if group_of(name) == DRAFT}

    def loss(weights: np.ndarray) -> float:
        scores = [
            (values[start:end] @ weights, lists.cited[start:end])
            for start, end in pairwise(lists.offsets.tolist())
        ]
        entropies = [np.log(np.exp(of).sum()) - of[cited].mean() for of, cited in scores if cited.any()]
        return float(np.mean(entropies) + 0.01 * weights @ weights)

    weights = np.array([model.weights[name] for name in names])
    rng, least = np.random.default_rng(0), loss(weights)
    assert least < loss(np.zeros(len(names)))
    for _ in range(5):
        assert least <= loss(weights + rng.normal(size=len(weights)) * 0.02)


def test_measures_of_lists_match_a_plain_ranking(lists: TrainingLists, demo_corpus: Corpus) -> None:
    model, split = LinearModel(MIXED, DEVIATIONS), demo_corpus.split("train")
    recalls, reciprocals, scores = [], [], model.scores(lists)
    for (start, end), wanted in zip(pairwise(lists.offsets.tolist()), split.positives, strict=True):
        papers = lists.papers[start:end]
        order = [paper for _, paper in sorted(zip(-scores[start:end], papers, strict=True))]
        ranks = [order.index(paper) + 1 for paper in wanted if paper in order]
        recalls.append(sum(rank <= 10 for rank in ranks) / len(wanted))
        reciprocals.append(1 / min(ranks) if ranks else 0)
    found = ranking_sums(lists, scores)
    assert found["recall@10"] == pytest.approx(sum(recalls)) and 0 < sum(recalls) < len(split)
    assert found["mrr"] == pytest.approx(sum(reciprocals))


def test_cross_fitting_holds_out_citing_papers(lists: TrainingLists, monkeypatch: pytest.MonkeyPatch) -> None:
    def fit(settings: RankerSettings, part: TrainingLists) -> Any:
        seen = set(part.citing.tolist())

        def score(others: TrainingLists) -> np.ndarray:
            assert not seen & set(others.citing.tolist())
            return others.papers.astype(np.float32)

        return SimpleNamespace(scores=score)

    monkeypatch.setattr("citerec.rerank.ranker.linear.fit_ranker", fit)
    np.testing.assert_array_equal(cross_fit(RankerSettings(), lists, 0), lists.papers)


def test_sources_are_measured_apart(lists: TrainingLists) -> None:
    scores, odd = lists.papers.astype(np.float32), np.arange(len(lists)) % 3 == 0
    measures = measure(replace(lists, source=np.where(odd, "titles", "corpus")), scores)
    assert list(measures) == ["titles", "corpus"]
    for name, of in (("titles", odd), ("corpus", ~odd)):
        sums = ranking_sums(lists.take(of), scores[of[lists.query]])
        assert measures[name] == {key: value / of.sum() for key, value in sums.items()}
        assert all(type(value) is float for value in measures[name].values())  # for the model card


def test_how_sure_answers_are() -> None:
    found = certainty(np.array([0.05, 0.1, 0.5, 0.7, 1.0]), np.array([False, True, False, True, True]))
    assert found["ece"] == pytest.approx((0.05 + 0.9 + 0.5 + 0.3 + 0) / 5)
    assert found["sure"] == pytest.approx(0.6) and found["right"] == pytest.approx(2 / 3)


def test_too_little_to_learn_from_is_refused(tiny_corpus: Corpus) -> None:
    queries = Queries.from_contexts(tiny_corpus, tiny_corpus.split("val"))
    lists = read_lists(ranker(tiny_corpus), queries, "val")
    with pytest.raises(InputError, match="fewer than 20 queries have a cited paper"):
        fit_ranker(RankerSettings(), lists)
    tiny_corpus.splits["none"] = Split("none", np.empty(0, np.int64), Ragged.from_rows([]))
    with pytest.raises(InputError, match=r"split=none: corpus tiny has no contexts in this split"):
        training_split(tiny_corpus, "none", None, 0)
    with pytest.raises(InputError, match=r"model.folds=3: the contexts have only 1 citing papers"):
        cross_fit(RankerSettings(), lists, 0)


def test_figures_of_lists_with_what_drafts_tell_are_called_so(demo_corpus: Corpus, tmp_path: Path) -> None:
    over = Ranker(None, {"bm25": BM25()}, depth=10)
    run = TrainingRun(tmp_path)
    model = RankingModel.train(demo_corpus, run=run, retriever=over, split="train")
    figures = json.loads((tmp_path / METRICS).read_text())
    assert list(figures) == [f"val/draft/{name}" for name in ("recall@10", "recall@100", "mrr")]
    assert figures == {f"val/{name}": value for name, value in model.about["cross_fitted"].items()}


@pytest.mark.slow
def test_train_and_evaluate(tmp_path: Path, demo_corpus: Corpus, tiny_bert: Path) -> None:
    from hydra.utils import instantiate

    options = [
        "data.papers=120",
        "data.contexts=300",
        f"data.cache_dir={demo_corpus.path.parent.parent}",
        "~retriever@retriever.parts.dense",
        "+retriever@retriever.parts.encoder=article",  # has options of its own
        *("encoder=local", f"encoder.path={tiny_bert}", "encoder.max_tokens=64"),
        "retriever.depth=20",
    ]
    out = tmp_path / "out"
    config = compose_config("train", ["model=ranker", *options, f"output_dir={out}", "model.split=train"])
    assert train(config) == out / "ranker"
    about = json.loads((out / "ranker" / ABOUT).read_text())
    assert about["parts"]["encoder"] == "article"
    measures = about["cross_fitted"]
    assert about["data"] == demo_corpus.name and measures["draft/recall@10"] > 0
    given = compose_config("evaluate", ["retriever=ranker", f"ranker={out}", *options])
    made = instantiate(given.retriever).index(demo_corpus)
    found = made.search(contexts(demo_corpus), 10).papers
    bm25 = BM25().index(demo_corpus)
    split = demo_corpus.split("test")

    def hits(papers: np.ndarray) -> int:
        return sum(
            bool(np.isin(row, wanted).any()) for row, wanted in zip(papers, split.positives, strict=True)
        )

    assert hits(found) >= hits(bm25.search(split.contexts, 10).papers)


def test_papers_beyond_the_candidates_leave_the_fusion_to_these(demo_corpus: Corpus) -> None:
    """At the depth of a fusion, all papers follow the candidates; steps of 1 would make these all alike."""
    made, rows = ranker(demo_corpus, depth=8), contexts(demo_corpus)
    few, many = made.search(rows, 8), made.search(rows, 110)
    assert (many.papers >= 0).sum(axis=1).min() > 100
    np.testing.assert_array_equal(many.papers[:, :8], few.papers)
    queries, z = Queries.from_contexts(demo_corpus, rows), normalise_scores(many)
    candidates = (made.merge_candidates(made.prefetch(queries, 8)) >= 0).sum(axis=1)
    assert (z[np.arange(len(rows)), candidates - 1] < 0.03 * z[:, 0]).all()
    below = np.diff(many.scores, axis=1)[:, -50:]
    assert (below < 0).all() and (below > -0.01).all()


def test_known_citations_keep_the_order_in_both_groups(demo_corpus: Corpus) -> None:
    made = ranker(demo_corpus)
    assert made.model is not None
    rows = contexts(demo_corpus)[:6]
    plain = made.search(rows, 15).papers
    parameters = {"scale": 1.0, "none": 0.0, "known": 2.0, "known, others": 0.1}
    made.model = replace(made.model, confidence=Confidence(parameters))
    known = Ragged.from_rows([row[[2, 9, 11]] for row in plain])
    found = made.search(Queries.from_contexts(demo_corpus, rows, CitedElsewhere.papers(known)), 15)
    assert (np.exp(found.scores).sum(axis=1) < 1).all()
    moved = 0
    for q in range(6):
        before, after = plain[q].tolist(), found.papers[q].tolist()
        cited = set(known[q].tolist())
        assert [paper for paper in after if paper in cited] == before[2:3] + before[9:10] + before[11:12]
        others = [paper for paper in before if paper not in cited]
        assert [paper for paper in after if paper not in cited] == others
        moved += before != after
    assert moved
