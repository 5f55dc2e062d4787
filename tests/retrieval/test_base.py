from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from datasets.corpus import Corpus
from datasets.prepare import open_corpus
from retrieval.base import Ranking, Retriever


class Everything(Retriever):
    """Ranks all papers, candidates or not, the last row best; two of each three have the same score."""

    name = "everything"

    def _index(self, corpus: Corpus) -> None:
        self.papers = np.arange(len(corpus.paper_ids), dtype=np.int32)

    def settings(self) -> dict[str, Any]:
        return {}

    def _save(self, folder: Path) -> None:
        np.save(folder / "papers.npy", self.papers)

    def _load(self, folder: Path, corpus: Corpus) -> None:
        self.papers = np.load(folder / "papers.npy")

    def _search(
        self, contexts: npt.NDArray[np.int64], k: int, allowed: npt.NDArray[np.bool_] | None
    ) -> Ranking:
        shape = (len(contexts), len(self.papers))
        scores = np.broadcast_to((self.papers // 3).astype(np.float32), shape)
        return Ranking(np.broadcast_to(self.papers, shape), scores)


def test_citing_paper_and_papers_that_are_no_candidates_never_appear(tiny_corpus: Corpus) -> None:
    retriever = Everything()
    retriever.index(tiny_corpus)
    contexts = np.arange(len(tiny_corpus.context_ids))
    ranking = retriever.search(contexts, 20)
    assert ranking.papers.shape == (12, 20)
    for row, found in enumerate(ranking.papers):
        expected = set(np.flatnonzero(tiny_corpus.is_candidate).tolist()) - {int(tiny_corpus.citing[row])}
        found = found[found >= 0]
        assert len(found) == len(expected) and set(found.tolist()) == expected
        assert found.tolist() == sorted(found.tolist(), key=lambda p: (-(p // 3), p))
        assert (ranking.papers[row][len(found) :] == -1).all()


def test_k_counts_the_papers_that_are_left(tiny_corpus: Corpus) -> None:
    retriever = Everything()
    retriever.index(tiny_corpus)
    assert (retriever.search(np.arange(12), 10).papers >= 0).all()  # 11 candidates less the citing paper


def test_no_queries_give_an_empty_ranking(tiny_corpus: Corpus) -> None:
    retriever = Everything()
    retriever.index(tiny_corpus)
    assert retriever.search(np.empty(0, np.int64), 3).papers.shape == (0, 3)


def test_search_before_index_says_so() -> None:
    with pytest.raises(RuntimeError, match="call index"):
        Everything().search(np.array([0]), 1)


def test_indexing_again_takes_the_place_of_the_first(
    tiny_corpus: Corpus, tiny_source: Path, tmp_path: Path
) -> None:
    retriever = Everything()
    retriever.index(tiny_corpus)
    everyone = open_corpus(tiny_source, cache_dir=tmp_path / "cache", candidates="all")
    retriever.index(everyone)
    bare = everyone.paper_row("bare")
    assert bare in retriever.search(np.array([0]), 20).papers
