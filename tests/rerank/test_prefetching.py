"""What is prefetched for training: found once, kept, and found again only where it is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import rerank.data
from datasets.corpus import Corpus
from datasets.errors import InputError
from rerank.data import Prefetcher
from retrieval.bm25 import BM25
from retrieval.run import CachedRun, Run


class Watched(BM25):
    """BM25 that remembers what it was asked for."""

    def __init__(self, **options: float) -> None:
        super().__init__(**options)  # type: ignore[arg-type]
        self.asked: list[int] = []

    def _search(self, contexts: NDArray[np.int64], k: int, allowed: object) -> object:  # type: ignore[override]
        self.asked += contexts.tolist()
        return super()._search(contexts, k, allowed)  # type: ignore[arg-type]


@pytest.fixture
def contexts(demo_corpus: Corpus) -> NDArray[np.int64]:
    return demo_corpus.split("train").contexts[:23]


def test_it_is_what_the_retriever_finds_and_is_searched_for_once(
    demo_corpus: Corpus, contexts: NDArray[np.int64], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rerank.data, "PART", 5)
    retriever = Watched()
    found = Prefetcher(retriever, demo_corpus, tmp_path)(contexts, 9, "queries")
    expected = retriever.search(contexts, 9).papers
    np.testing.assert_array_equal(found.all(), expected)
    assert len(found) == 23
    np.testing.assert_array_equal(np.stack([found[row] for row in range(23)]), expected)

    for file in tmp_path.rglob("10.npy"):  # as after a kill: three of five parts are there
        file.unlink()
    (tmp_path / Prefetcher(retriever, demo_corpus, tmp_path).key(contexts, 9) / "20.npy").unlink()
    again = Watched()
    found = Prefetcher(again, demo_corpus, tmp_path)(contexts, 9, "queries")
    assert again.asked == [*contexts[10:15], *contexts[20:]]
    np.testing.assert_array_equal(found.all(), expected)

    third = Watched()
    monkeypatch.setattr(third, "index", None)  # is not even called
    np.testing.assert_array_equal(Prefetcher(third, demo_corpus, tmp_path)(contexts, 9, "").all(), expected)


def test_other_settings_contexts_depths_and_corpora_have_other_names(
    demo_corpus: Corpus, tiny_corpus: Corpus, contexts: NDArray[np.int64], tmp_path: Path
) -> None:
    def key(
        corpus: Corpus = demo_corpus, of: NDArray[np.int64] = contexts, depth: int = 9, **options: Any
    ) -> str:
        return Prefetcher(BM25(**options), corpus, tmp_path).key(of, depth)

    keys = [
        key(),
        key(k1=1.5),
        key(query=["title"]),
        key(depth=8),
        key(of=contexts[1:]),
        key(corpus=tiny_corpus),
    ]
    assert len(set(keys)) == len(keys) and key() == keys[0]


def test_more_than_there_is_is_refused(
    tiny_corpus: Corpus, contexts: NDArray[np.int64], tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="has 11 candidates: 12 of them cannot be prefetched"):
        Prefetcher(BM25(), tiny_corpus, tmp_path)(tiny_corpus.split("train").contexts, 12, "queries")


def test_of_a_run_only_its_queries_are_known(demo_corpus: Corpus, tmp_path: Path) -> None:
    split, bm25 = demo_corpus.split("train"), BM25()
    bm25.index(demo_corpus)
    asked = split.contexts[3:40:4]
    ids = [demo_corpus.context_ids[row] for row in asked]
    Run(ids, demo_corpus.paper_ids, bm25.search(asked, 20)).write(tmp_path / "run.trec")
    prefetcher = Prefetcher(CachedRun(tmp_path / "run.trec"), demo_corpus, tmp_path / "candidates")
    np.testing.assert_array_equal(prefetcher.knows(split.contexts), np.isin(split.contexts, asked))
    np.testing.assert_array_equal(prefetcher(asked, 10, "queries").all(), bm25.search(asked, 10).papers)
    assert Prefetcher(bm25, demo_corpus, tmp_path).knows(split.contexts).all()
