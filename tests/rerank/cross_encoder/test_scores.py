"""Pair scores: cached, resumed and shared between jobs; reordering of rankings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import ir_measures
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from citerec.base.errors import InputError
from citerec.datasets.corpus import Corpus
from citerec.rerank.cross_encoder.pairs import PairReader
from citerec.rerank.cross_encoder.reranker import Reranker
from citerec.rerank.cross_encoder.scores import PairScores, reorder
from citerec.retrieval.base import Ranking
from citerec.retrieval.run import Run


class Product(Reranker):
    """A reranker whose scores identify their pairs; records the pairs it scored."""

    def __init__(self, fingerprint: str = "a") -> None:
        self.name, self.fingerprint = "product", fingerprint
        self.asked: list[tuple[int, int]] = []

    def prepare(self, corpus: Corpus) -> PairReader:
        return PairReader.__new__(PairReader)

    def score(
        self,
        corpus: Corpus,
        contexts: NDArray[np.integer],
        papers: NDArray[np.integer],
        advance: Callable[[int], None] | None = None,
    ) -> NDArray[np.float32]:
        self.asked += zip(contexts.tolist(), papers.tolist(), strict=True)
        return (contexts * 100 + papers).astype(np.float32)


def grid(contexts: list[int], papers: list[int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return np.repeat(contexts, len(papers)), np.tile(papers, len(contexts))


def test_a_resumed_scoring_continues_with_the_same_chunks(tiny_corpus: Corpus, tmp_path: Path) -> None:
    class Chunks(Product):
        """Scores that depend on the chunk, like the last bits of real ones."""

        def __init__(self, until: int) -> None:
            super().__init__()
            self.left = until

        def score(self, corpus: Corpus, contexts: NDArray, papers: NDArray, advance=None) -> NDArray:  # type: ignore[no-untyped-def]
            if self.left == 0:
                raise KeyboardInterrupt
            self.left -= 1
            return super().score(corpus, contexts, papers, advance) + np.float32(papers.sum())

    pairs = grid([4, 0, 2], list(range(11)))
    whole = PairScores(tmp_path / "whole", Chunks(99), tiny_corpus, chunk=5).get(*pairs)
    for until in (2, 0, 3):  # each interrupted run keeps its scores
        with pytest.raises(KeyboardInterrupt):
            PairScores(tmp_path / "cut", Chunks(until), tiny_corpus, chunk=5, write_every=0).get(*pairs)
    rest = Chunks(99)
    found = PairScores(tmp_path / "cut", rest, tiny_corpus, chunk=5).get(*pairs)
    assert np.array_equal(found.scores, whole.scores) and found.new == len(rest.asked) == 33 - 25


def test_a_kill_loses_only_unwritten_scores(tiny_corpus: Corpus, tmp_path: Path) -> None:
    scores = PairScores(tmp_path, Product(), tiny_corpus, chunk=3, write_every=0)
    scores.get(*grid([1], list(range(9))))
    files = sorted(scores.folder.iterdir())
    assert len(files) == 3 and all(file.suffix == ".safetensors" for file in files)
    files[1].rename(scores.folder / f".{files[1].name}.123")  # as left by a killed write
    scorer = Product()
    found = PairScores(tmp_path, scorer, tiny_corpus).get(*grid([1], list(range(9))))
    assert found.scores.tolist() == list(range(100, 109)) and scorer.asked == [(1, 3), (1, 4), (1, 5)]


def test_scores_written_by_other_jobs_are_used(tiny_corpus: Corpus, tmp_path: Path) -> None:
    class Beside(Product):
        """Another job scores the same pairs, and others, at the same time."""

        def score(self, *given, **named):  # type: ignore[no-untyped-def]
            PairScores(tmp_path, Product(), tiny_corpus).get(*grid([1, 2], [3, 4]))
            return super().score(*given, **named)

    found = PairScores(tmp_path, Beside(), tiny_corpus).get(*grid([1], [3, 4]))
    assert found.scores.tolist() == [103, 104]
    scorer = Product()
    assert PairScores(tmp_path, scorer, tiny_corpus).get(*grid([2, 1], [4])).scores.tolist() == [204, 104]
    assert scorer.asked == []


def test_each_model_and_corpus_has_its_own_scores(
    tiny_corpus: Corpus, demo_corpus: Corpus, tmp_path: Path
) -> None:
    folders = {
        PairScores(tmp_path, Product(name), corpus).folder
        for name in "ab"
        for corpus in (tiny_corpus, demo_corpus)
    }
    assert len(folders) == 4


def test_nan_scores_raise_one_line(tiny_corpus: Corpus, tmp_path: Path) -> None:
    class Broken(Product):
        def score(self, *given, **named):  # type: ignore[no-untyped-def]
            scores = super().score(*given, **named)
            scores[1] = np.nan
            return scores

    contexts, papers = grid([0], [1, 2, 3])
    message = (
        f"product: .* query '{tiny_corpus.context_ids[0]}' and paper '{tiny_corpus.paper_ids[2]}' is nan"
    )
    with pytest.raises(InputError, match=message):
        PairScores(tmp_path, Broken(), tiny_corpus).get(contexts, papers)


@settings(max_examples=25)
@given(
    asked=st.lists(
        st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=12), min_size=1, max_size=4
    ),
    chunk=st.integers(1, 7),
)
def test_scores_do_not_depend_on_the_order_of_requests(
    asked: list[list[tuple[int, int]]], chunk: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    corpus = type("Small", (), {"fingerprint": "f", "paper_ids": range(12), "name": "small"})()
    folder, scorer = tmp_path_factory.mktemp("scores"), Product()
    for pairs in asked:
        contexts, papers = np.array(pairs, np.int64).reshape(-1, 2).T
        found = PairScores(folder, scorer, corpus, chunk=chunk, write_every=0).get(contexts, papers)
        assert found.scores.tolist() == (contexts * 100 + papers).tolist()
    assert len(scorer.asked) == len(set(scorer.asked)) == len({pair for pairs in asked for pair in pairs})


VALUES = np.array([0, 0.5, 1, 1.0000001, -3e8, 77], np.float32).tolist()


def ranking_of(rows: list[list[int]], width: int) -> Ranking:
    papers = np.array([row + [-1] * (width - len(row)) for row in rows], np.int32)
    places = np.where(papers >= 0, -np.arange(width, dtype=np.float32), -np.inf)
    return Ranking(papers, places.astype(np.float32))


@given(
    st.lists(st.integers(0, 8), min_size=1, max_size=5),  # number of papers per query
    st.integers(1, 10),
    arrays.arrays(np.float32, (5, 8), elements=st.sampled_from(VALUES)),
)
def test_reorder_sorts_the_first_k_and_keeps_the_rest(
    counts: list[int], k: int, values: NDArray[np.float32]
) -> None:
    rng = np.random.default_rng(len(counts) + k)
    rows = [rng.permutation(30)[:count].tolist() for count in counts]
    ranking = ranking_of(rows, 8)
    scores = np.where(ranking.papers >= 0, values[: len(rows)], -np.inf)[:, :k].astype(np.float32)
    found = reorder(ranking, scores)
    for papers, of, result, final in zip(rows, scores, found.papers, found.scores, strict=True):
        head = sorted(range(min(k, len(papers))), key=lambda place: (-float(of[place]), place))
        expected = [papers[place] for place in head] + papers[k:]
        assert result.tolist() == expected + [-1] * (8 - len(papers))
        assert (np.diff(final[: len(papers)]) < 0).all() and np.isneginf(final[len(papers) :]).all()


def test_trec_eval_sees_the_same_order(tmp_path: Path) -> None:
    """It would order ties in its own way."""
    ranking = ranking_of([[3, 1, 2, 0]], 4)
    run = Run(["q"], ["a", "b", "c", "d"], reorder(ranking, np.full((1, 3), 0.25)), "x")
    run.write(tmp_path / "run.trec")
    read = list(ir_measures.read_trec_run(str(tmp_path / "run.trec")))
    assert [line.doc_id for line in sorted(read, key=lambda line: -line.score)] == ["d", "b", "c", "a"]
    assert len({line.score for line in read}) == 4
