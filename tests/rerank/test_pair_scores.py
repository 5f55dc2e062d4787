"""Pairs are scored once, by whomever, and the same scores come of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from datasets.corpus import Corpus
from datasets.errors import InputError
from rerank.scores import PairScores


class Product:
    """Scores that say which pair they are of; counts what it is asked for."""

    name = "product"

    def __init__(self, fingerprint: str = "a") -> None:
        self.fingerprint = fingerprint
        self.asked: list[tuple[int, int]] = []

    def prepare(self, corpus: Corpus) -> None:
        pass

    def score(
        self,
        corpus: Corpus,
        contexts: NDArray[np.int64],
        papers: NDArray[np.int64],
        advance: Callable[[int], None] | None = None,
    ) -> NDArray[np.float32]:
        self.asked += zip(contexts.tolist(), papers.tolist(), strict=True)
        return (contexts * 100 + papers).astype(np.float32)


def grid(contexts: list[int], papers: list[int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return np.repeat(contexts, len(papers)), np.tile(papers, len(contexts))


def test_each_pair_is_scored_once(tiny_corpus: Corpus, tmp_path: Path) -> None:
    scorer = Product()
    scores = PairScores(tmp_path, scorer, tiny_corpus, chunk=4)
    first = scores.of(*grid([3, 1], [2, 5, 0]))
    assert first.scores.tolist() == [302, 305, 300, 102, 105, 100] and first.new == 6
    second = scores.of(*grid([1, 2, 3], [5, 7]))
    assert second.scores.tolist() == [105, 107, 205, 207, 305, 307] and second.new == 4
    # Another job, and a pair that is asked twice.
    again = PairScores(tmp_path, scorer, tiny_corpus).of(np.array([1, 1, 2]), np.array([5, 5, 7]))
    assert again.scores.tolist() == [105, 105, 207] and again.new == 0
    assert len(scorer.asked) == len(set(scorer.asked)) == 10
    assert first.pairs_per_second > 0 and again.pairs_per_second > 0


def test_speed_is_that_of_the_scoring_whenever_it_was(
    tiny_corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter(range(0, 1000, 5))  # each chunk takes 5 s
    monkeypatch.setattr("rerank.scores.time.perf_counter", lambda: float(next(now)))
    scores = PairScores(tmp_path, Product(), tiny_corpus, chunk=10)
    assert scores.of(*grid([1, 2], list(range(10)))).pairs_per_second == 2
    assert scores.of(*grid([1], [4])).pairs_per_second == 2
    assert scores.of(*grid([], [])).pairs_per_second == 0


def test_a_resumed_scoring_goes_on_and_asks_for_the_same_chunks(tiny_corpus: Corpus, tmp_path: Path) -> None:
    class Chunks(Product):
        """Scores depend on the pairs beside them, as the last bits of real ones do."""

        def __init__(self, until: int) -> None:
            super().__init__()
            self.left = until

        def score(self, corpus: Corpus, contexts: NDArray, papers: NDArray, advance=None) -> NDArray:  # type: ignore[no-untyped-def]
            if self.left == 0:
                raise KeyboardInterrupt
            self.left -= 1
            return super().score(corpus, contexts, papers, advance) + np.float32(papers.sum())

    pairs = grid([4, 0, 2], list(range(11)))
    whole = PairScores(tmp_path / "whole", Chunks(99), tiny_corpus, chunk=5).of(*pairs)
    for until in (2, 0, 3):  # what was done in an interrupted run is kept, of the last one too
        with pytest.raises(KeyboardInterrupt):
            PairScores(tmp_path / "cut", Chunks(until), tiny_corpus, chunk=5, write_every=0).of(*pairs)
    rest = Chunks(99)
    found = PairScores(tmp_path / "cut", rest, tiny_corpus, chunk=5).of(*pairs)
    assert np.array_equal(found.scores, whole.scores) and found.new == len(rest.asked) == 33 - 25


def test_a_kill_loses_no_more_than_what_is_not_yet_written(tiny_corpus: Corpus, tmp_path: Path) -> None:
    scores = PairScores(tmp_path, Product(), tiny_corpus, chunk=3, write_every=0)
    scores.of(*grid([1], list(range(9))))
    files = sorted(scores.folder.iterdir())
    assert len(files) == 3 and all(file.suffix == ".safetensors" for file in files)
    files[1].rename(scores.folder / f".{files[1].name}.123")  # as a write that was killed leaves it
    scorer = Product()
    found = PairScores(tmp_path, scorer, tiny_corpus).of(*grid([1], list(range(9))))
    assert found.scores.tolist() == list(range(100, 109)) and scorer.asked == [(1, 3), (1, 4), (1, 5)]


def test_what_others_wrote_meanwhile_is_used(tiny_corpus: Corpus, tmp_path: Path) -> None:
    class Beside(Product):
        """While it scores, another job scores the same pairs, and others."""

        def score(self, *given, **named):  # type: ignore[no-untyped-def]
            PairScores(tmp_path, Product(), tiny_corpus).of(*grid([1, 2], [3, 4]))
            return super().score(*given, **named)

    found = PairScores(tmp_path, Beside(), tiny_corpus).of(*grid([1], [3, 4]))
    assert found.scores.tolist() == [103, 104]
    scorer = Product()
    assert PairScores(tmp_path, scorer, tiny_corpus).of(*grid([2, 1], [4])).scores.tolist() == [204, 104]
    assert scorer.asked == []


def test_another_model_or_corpus_has_scores_of_its_own(
    tiny_corpus: Corpus, demo_corpus: Corpus, tmp_path: Path
) -> None:
    folders = {
        PairScores(tmp_path, Product(name), corpus).folder
        for name in "ab"
        for corpus in (tiny_corpus, demo_corpus)
    }
    assert len(folders) == 4


def test_a_score_that_is_no_number_and_a_damaged_shard_are_one_line(
    tiny_corpus: Corpus, tmp_path: Path
) -> None:
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
        PairScores(tmp_path, Broken(), tiny_corpus).of(contexts, papers)
    scores = PairScores(tmp_path, Product(), tiny_corpus)
    assert not scores.folder.exists()
    scores.of(contexts, papers)
    (shard,) = scores.folder.iterdir()
    shard.write_bytes(shard.read_bytes()[:-5])
    with pytest.raises(InputError, match=f"{shard.name}: damaged"):
        scores.of(contexts, papers)


@settings(max_examples=25, deadline=None)
@given(
    asked=st.lists(
        st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=12), min_size=1, max_size=4
    ),
    chunk=st.integers(1, 7),
)
def test_whatever_is_asked_in_whatever_order(
    asked: list[list[tuple[int, int]]], chunk: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    corpus = type("Small", (), {"fingerprint": "f", "paper_ids": range(12), "name": "small"})()
    folder, scorer = tmp_path_factory.mktemp("scores"), Product()
    for pairs in asked:
        contexts, papers = np.array(pairs, np.int64).reshape(-1, 2).T
        found = PairScores(folder, scorer, corpus, chunk=chunk, write_every=0).of(contexts, papers)
        assert found.scores.tolist() == (contexts * 100 + papers).tolist()
    assert len(scorer.asked) == len(set(scorer.asked)) == len({pair for pairs in asked for pair in pairs})
