"""Inputs of the linear model: scales of features, gates, and lists of libraries that mix what is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from citerec.datasets.columns import offsets_of
from citerec.datasets.corpus import Corpus
from citerec.datasets.generate import word
from citerec.datasets.records import PaperRecord
from citerec.rerank.ranker.features import FEATURES, PASSAGES, RETRIEVERS, is_relative
from citerec.rerank.ranker.linear import (
    CITED,
    COVERED,
    FAMILIAR,
    FLOOR,
    GATED,
    SMALL,
    LinearModel,
    Lists,
    TrainingLists,
    fit_group,
    group_of,
    typical_deviations,
)
from citerec.rerank.ranker.linear import TEXTS as TEXTS_GATE
from citerec.rerank.ranker.model import RankingModel
from citerec.rerank.settings import RankerSettings
from citerec.retrieval.queries import Queries
from citerec.tests.rerank.made import linear, make_corpus, over_bm25, top
from citerec.tests.rerank.ranker.test_ranker import contexts, ranker

COLUMNS = ["bm25.score", "bm25.rank", "near_title", "name_near", "unseen", "listed", "length"]
"""Of fixed and of relative scale, inside and outside of GATED groups."""
TYPICAL = {"bm25.score": 2.0, "bm25.rank": 0.5, "near_title": 1.5, "name_near": 0.1, "unseen": 0.4}


def make_lists(lists: Sequence[np.ndarray], familiar: Sequence[np.ndarray] | None = None) -> Lists:
    """Make lists of values [n, F] of the first F of COLUMNS."""
    lengths = np.array([len(one) for one in lists])
    values = np.concatenate(lists).astype(np.float32)
    marked = np.zeros(len(values), np.bool_) if familiar is None else np.concatenate(familiar)
    return Lists(COLUMNS[: values.shape[1]], values, marked, offsets_of(lengths))


def inputs_of(lists: Lists) -> dict[str, np.ndarray]:
    names, values = LinearModel({}, TYPICAL).inputs(lists)
    return dict(zip(names, values.T, strict=True))


@st.composite
def any_lists(draw: st.DrawFn) -> tuple[list[np.ndarray], list[np.ndarray]]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    lengths = draw(st.lists(st.integers(1, 30), min_size=1, max_size=5))
    lists = []
    for length in lengths:
        values = rng.normal(size=(length, len(COLUMNS))) * rng.choice([0, 1, 1e3], len(COLUMNS))
        values[rng.random(values.shape) < draw(st.sampled_from([0, 0.3, 1]))] = np.nan
        values[:, COLUMNS.index("unseen")] = rng.random(length) < 0.5
        lists.append(values)
    return lists, [rng.random(length) < 0.5 for length in lengths]


@given(any_lists())
def test_inputs_of_lists_are_those_of_each_list(made: tuple[list[np.ndarray], list[np.ndarray]]) -> None:
    lists, familiar = made
    together = inputs_of(make_lists(lists, familiar))
    alone = [inputs_of(make_lists([one], [marked])) for one, marked in zip(lists, familiar, strict=True)]
    for name, values in together.items():
        wanted = np.concatenate([one[name] for one in alone])
        np.testing.assert_allclose(values, wanted, rtol=1e-4, atol=1e-4, err_msg=name)


@given(any_lists())
def test_inputs_match_plain_python(made: tuple[list[np.ndarray], list[np.ndarray]]) -> None:
    lists, familiar = made
    found = inputs_of(make_lists(lists, familiar))
    for name, typical in TYPICAL.items():
        wanted, shares = list[float](), list[float]()
        for values in lists:
            column = values[:, COLUMNS.index(name)].astype(np.float32).astype(np.float64)
            known = column[np.isfinite(column)]
            centred = column - (known.mean() if len(known) else 0)
            scale = (
                np.hypot(known.std() if len(known) else 0, FLOOR * typical) if is_relative(name) else typical
            )
            wanted += (np.where(np.isfinite(column), centred, 0) / scale).tolist()
            seen = float(np.mean(values[:, COLUMNS.index("unseen")] == 0))
            shares += [min((seen / COVERED) ** 0.5, 1)] * len(values)
        np.testing.assert_allclose(found[name], wanted, rtol=1e-3, atol=1e-3, err_msg=name)
        np.testing.assert_allclose(found[CITED + name], found[name] * shares, rtol=1e-4, atol=1e-4)
        if group_of(name) in GATED:
            marked = np.concatenate(familiar)
            np.testing.assert_array_equal(found[FAMILIAR + name], found[name] * marked)
            np.testing.assert_array_equal(found[CITED + FAMILIAR + name], found[CITED + name] * marked)
    assert not any(name.endswith("length") for name in found), "it has no typical deviation"


# Scales.


@given(papers=st.integers(2, 300), marked=st.integers(1, 299))
def test_binary_columns_stay_as_large_as_they_are(papers: int, marked: int) -> None:
    """Divided by their deviation in the list, one 1 among 300 zeros would be 17."""
    column = np.zeros((papers, len(COLUMNS)))
    column[: min(marked, papers - 1), COLUMNS.index("name_near")] = 1
    values = inputs_of(make_lists([column]))["name_near"]
    assert np.ptp(values) == pytest.approx(1 / TYPICAL["name_near"], rel=1e-4)


@pytest.mark.parametrize("name", ["bm25.score", "near_title"])
def test_nearly_constant_columns_are_not_blown_up(name: str) -> None:
    column = np.full((100, len(COLUMNS)), 20.0)
    column[0, COLUMNS.index(name)] += 1e-3
    values = inputs_of(make_lists([column]))[name]
    assert 0 < values[0] < 2e-3 / (FLOOR * TYPICAL[name])


def test_relative_columns_have_no_unit() -> None:
    """Scores ten times as high, as in a larger corpus, are the same inputs."""
    column = np.random.default_rng(0).normal(size=(200, len(COLUMNS))) * 50
    one, other = inputs_of(make_lists([column])), inputs_of(make_lists([column * 10]))
    np.testing.assert_allclose(one["bm25.score"], other["bm25.score"], rtol=2e-3)
    assert is_relative("bm25.score") and not is_relative("bm25.rank") and not is_relative("name_near")
    np.testing.assert_allclose(one["name_near"] * 10, other["name_near"], rtol=1e-4)


def test_typical_deviations_are_medians_over_lists_that_vary() -> None:
    lists = [np.full((4, len(COLUMNS)), 3.0) for _ in range(5)]
    for scale, values in zip((1, 2, 5), lists, strict=False):
        values[:2, 0] += 2 * scale
    lists[0][:, 2] = np.nan
    assert typical_deviations(make_lists(lists)) == {"bm25.score": pytest.approx(2.0)}


# Gates.


def test_familiar_papers_have_weights_of_their_own() -> None:
    weights = {"bm25.score": 1.0, FAMILIAR + "bm25.score": -1.0}
    values, marked = np.zeros((4, len(COLUMNS))), np.array([True, False, True, False])
    values[:2, 0] = 10
    scores = LinearModel(weights, TYPICAL).scores(make_lists([values], [marked]))
    assert scores[0] == scores[2] == 0 and scores[1] > 0 > scores[3]
    assert {group_of(name) for name in FEATURES} - set(GATED) and RETRIEVERS in GATED
    names, _ = LinearModel({}, TYPICAL).inputs(make_lists([values]))
    assert FAMILIAR + "name_near" not in names


@pytest.mark.parametrize(
    "seen, share",
    [(0, 0), (1, (0.1 / COVERED) ** 0.5), (5, (0.5 / COVERED) ** 0.5), (8, 1), (10, 1)],
)
def test_weights_of_cited_inputs_grow_with_the_candidates_that_contexts_cite(seen: int, share: float) -> None:
    values = np.zeros((10, len(COLUMNS)))
    values[:5, 0] = 10
    values[seen:, COLUMNS.index("unseen")] = 1
    lists = make_lists([values])
    found = inputs_of(lists)
    np.testing.assert_allclose(found[CITED + "bm25.score"], found["bm25.score"] * share, rtol=1e-5)
    unknown = values.copy()
    unknown[:, COLUMNS.index("unseen")] = np.nan  # a library without contexts
    assert not any(
        of.any() for name, of in inputs_of(make_lists([unknown])).items() if name.startswith(CITED)
    )
    without = replace(lists, columns=COLUMNS[:4], values=lists.values[:, :4])
    assert not any(of.any() for name, of in inputs_of(without).items() if name.startswith(CITED))


@pytest.mark.parametrize("listed", [0.001, 0.4, 1.0])
def test_small_libraries_have_weights_of_their_own(listed: float) -> None:
    values = np.zeros((4, len(COLUMNS)))
    values[:2, 0] = 10
    values[:, COLUMNS.index("listed")] = listed
    both = make_lists([values, np.where(np.array(COLUMNS) == "listed", 0, values)])
    scores = LinearModel({"bm25.score": 1.0, SMALL + "bm25.score": 2.0}, TYPICAL).scores(both)
    np.testing.assert_allclose(scores[:4], scores[4:] * (1 + 2 * listed), rtol=1e-5)
    unknown = replace(both, columns=COLUMNS[:5], values=both.values[:, :5])
    assert not any(of.any() for name, of in inputs_of(unknown).items() if name.startswith(SMALL))


def test_passages_are_fitted_beside_fixed_weights_and_count_where_there_are_texts() -> None:
    rng = np.random.default_rng(0)
    columns = ["bm25.score", "passage_words"]
    values = rng.normal(size=(400, 2)).astype(np.float32)
    values[::10, 1] += 3  # of the cited papers
    values[200:300, 1] = np.nan
    values[1:100:2, 1] = np.nan
    cited = np.arange(400) % 10 == 0
    lists = Lists(columns, values, np.zeros(400, np.bool_), np.arange(0, 401, 10))
    training = TrainingLists(
        columns,
        values,
        lists.familiar,
        lists.offsets,
        np.arange(400, dtype=np.int32),
        cited,
        np.zeros(40, np.int32),
        np.ones(40, np.int64),
        np.full(40, ""),
    )
    before = LinearModel({"bm25.score": 0.5}, {"bm25.score": 1.0})
    after = fit_group(RankerSettings(), training, before, PASSAGES)
    assert after.weights["bm25.score"] == 0.5
    assert after.weights["passage_words"] + after.weights[TEXTS_GATE + "passage_words"] > 0.5
    names, inputs = after.inputs(lists)
    gated, plain = (inputs[:, names.index(prefix + "passage_words")] for prefix in (TEXTS_GATE, ""))
    np.testing.assert_allclose(gated[:100], plain[:100] / 2, rtol=1e-5)
    np.testing.assert_allclose(gated[100:], plain[100:], rtol=1e-5)
    np.testing.assert_array_equal(after.scores(lists)[200:300], before.scores(lists)[200:300])


def test_listed_is_the_share_of_all_papers(demo_corpus: Corpus) -> None:
    made = ranker(demo_corpus, depth=5)
    queries = contexts(demo_corpus)[:3]
    papers = made.merge_candidates(made.prefetch(Queries.from_contexts(demo_corpus, queries), 5))
    found = made.explain(queries, papers)["listed"]
    share = np.count_nonzero(papers >= 0, axis=1) / len(demo_corpus.paper_ids)
    np.testing.assert_allclose(found, np.broadcast_to(share[:, None], papers.shape), rtol=1e-6)
    assert (found > 0).all() and (found < 0.5).all()


@given(any_lists())
def test_scores_are_the_weighted_inputs(made: tuple[list[np.ndarray], list[np.ndarray]]) -> None:
    lists = make_lists(*made)
    names, values = LinearModel({}, TYPICAL).inputs(lists)
    weights = np.random.default_rng(0).normal(size=len(names)).astype(np.float32)
    scores = LinearModel(dict(zip(names, weights.tolist(), strict=True)), TYPICAL).scores(lists)
    size = np.abs(values) @ np.abs(weights) + 1
    np.testing.assert_allclose(scores / size, values @ weights / size, atol=1e-5)


def test_familiar_papers_are_those_that_contexts_cite_unless_the_model_says(demo_corpus: Corpus) -> None:
    made = ranker(demo_corpus)
    found = made.search(contexts(demo_corpus)[:3], 15).papers
    queries = contexts(demo_corpus)[:3]
    gated = LinearModel({FAMILIAR + "bm25.score": 1.0}, {"bm25.score": 1.0})
    made.model = RankingModel(gated)
    scores = made.score(queries, found)
    assert (scores[~demo_corpus.seen[found]] == 0).all() and scores[demo_corpus.seen[found]].any()


def test_lists_are_concatenated_with_unknown_columns() -> None:
    of_queries = np.array([7], np.int32), np.array([1]), np.array(["papers"])
    parts = [
        TrainingLists(
            columns, np.full((2, len(columns)), number, np.float16), np.array([True, False]),
            np.array([0, 2]), np.array([4, number], np.int32), np.array([False, True]), *of_queries,
        )
        for number, columns in enumerate((["a", "bm25.score"], ["bm25.score", "b"]), 1)
    ]  # fmt: skip
    found = TrainingLists.concat(parts)
    assert found.columns == ["a", "bm25.score", "b"] and found.offsets.tolist() == [0, 2, 4]
    assert np.array_equal(found.values, [[1, 1, np.nan]] * 2 + [[np.nan, 2, 2]] * 2, equal_nan=True)
    assert found.papers.tolist() == [4, 1, 4, 2] and found.citing.tolist() == [7, 7]
    second = found.take(np.array([1]))
    assert second.papers.tolist() == [4, 2] and second.offsets.tolist() == [0, 2]
    assert second.drop_group(RETRIEVERS).columns == []


# Libraries that mix papers with and without abstracts.

ABSTRACT = ("context_abstract", "near_abstract", "citing_title_abstract", "citing_abstract_abstract")
TEXTS = dict.fromkeys(("context_title", "near_title", "title_share", "bm25.score", *ABSTRACT), 1.0)


@pytest.mark.parametrize("abstracts", [0, 1, 5, 45, 90, 91])
def test_an_abstract_is_no_reason_to_come_first(abstracts: int, tmp_path: Path) -> None:
    """The papers named by their titles do, whether they have abstracts or not."""
    rng = np.random.default_rng(0)

    def text(words: int, most: int) -> str:
        return " ".join(word(int(rank)) for rank in rng.integers(300, most, words))

    titles = [text(6, 3000) for _ in range(91)]
    papers = [
        PaperRecord(f"p{row}", title, text(80, 6000) if row < abstracts else "")
        for row, title in enumerate(titles)
    ]
    made = over_bm25(make_corpus(tmp_path / "store", papers), TEXTS)
    for sign in (1, -1):  # a model may have learned either
        weights = TEXTS | dict.fromkeys(ABSTRACT, sign * 3.0)
        made.model = RankingModel(linear(weights | {"context_title": 5.0, "title_share": 5.0}))
        for row in (0, 3, 44, 90):
            words = titles[row].split()
            question = f"{text(2, 6000)} {' '.join(words[1:5])} {text(3, 6000)} TARGETCIT"
            assert top(made, question) == [f"p{row}"]


def test_the_only_abstract_is_the_mean_of_its_column(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    titles = [" ".join(word(int(rank)) for rank in rng.integers(100, 900, 8)) for _ in range(91)]
    papers = [PaperRecord(f"p{row}", title, "") for row, title in enumerate(titles)]
    papers[0] = papers[0]._replace(abstract=" ".join(map(word, rng.integers(100, 900, 80).tolist())))
    weights = {"context_abstract": 9.0, "near_abstract": 9.0, "context_title": 0.1}
    made = over_bm25(make_corpus(tmp_path / "store", papers), weights)
    for row in range(5, 35):
        assert top(made, f"{titles[row]} TARGETCIT")[0] == f"p{row}"
