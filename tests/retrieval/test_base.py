"""Rankings, the Retriever interface, saved indexes, popularity."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from citerec.base.checksums import write_checksums
from citerec.base.errors import InputError
from citerec.datasets.corpus import Corpus
from citerec.datasets.prepare import open_corpus
from citerec.retrieval.arrays import Mask
from citerec.retrieval.base import MANIFEST, Ranking, Retriever, new_index, read_index, top_k
from citerec.retrieval.filters import Filters
from citerec.retrieval.popularity import Popularity
from citerec.retrieval.queries import Queries

# Few distinct values, so that ties are common; both zeros and both signs.
SCORES = st.sampled_from([-np.inf, -3.5, -1e-30, -0.0, 0.0, 1e-30, 0.25, 1.0, 2e30])


@st.composite
def _places(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    n = draw(st.integers(0, 12))
    rows = draw(st.permutations(range(max(n, 1) * 3)))[:n]
    papers = [row if draw(st.booleans()) else -1 for row in rows]
    scores = draw(st.lists(SCORES, min_size=n, max_size=n))
    drop = draw(st.lists(st.booleans(), min_size=n, max_size=n))
    k = draw(st.integers(1, 15))
    return np.array([papers], np.int64), np.array([scores], np.float32), np.array([drop], bool), k


@given(_places())
def test_top_k_agrees_with_a_plain_sort(places: tuple[np.ndarray, np.ndarray, np.ndarray, int]) -> None:
    papers, scores, drop, k = places
    kept = [(-s, p) for p, s, d in zip(papers[0], scores[0], drop[0], strict=True) if p >= 0 and not d]
    expected = sorted(kept)[:k]
    ranking = top_k(papers, scores, k, drop)
    assert ranking.papers.dtype == np.int32 and ranking.scores.dtype == np.float32
    assert ranking.papers[0].tolist() == [p for _, p in expected] + [-1] * (k - len(expected))
    assert ranking.scores[0].tolist() == [-s for s, _ in expected] + [-np.inf] * (k - len(expected))


class Everything(Retriever):
    """Ranks all papers, candidates or not, by descending row, with ties of three."""

    name = "everything"
    arrays = ("papers",)

    def _index(self, corpus: Corpus) -> None:
        self._papers = np.arange(len(corpus.paper_ids), dtype=np.int32)

    def settings(self) -> dict[str, Any]:
        return {}

    def _search(self, queries: Queries, k: int, allowed: Mask | None) -> Ranking:
        shape = (len(queries), len(self._papers))
        scores = np.broadcast_to((self._papers // 3).astype(np.float32), shape)
        return Ranking(np.broadcast_to(self._papers, shape), scores)


def test_citing_papers_and_non_candidates_never_appear(tiny_corpus: Corpus) -> None:
    retriever = Everything().index(tiny_corpus)
    contexts = np.arange(len(tiny_corpus.context_ids))
    ranking = retriever.search(contexts, 20)
    assert ranking.papers.shape == (12, 20)
    for row, result in enumerate(ranking.papers):
        expected = set(np.flatnonzero(tiny_corpus.is_candidate).tolist()) - {int(tiny_corpus.citing[row])}
        result = result[result >= 0]
        assert len(result) == len(expected) and set(result.tolist()) == expected
        assert result.tolist() == sorted(result.tolist(), key=lambda p: (-(p // 3), p))
        assert (ranking.papers[row][len(result) :] == -1).all()
    assert (retriever.search(contexts, 10).papers >= 0).all()  # 11 candidates without the citing paper


def test_a_ranking_of_a_split_has_its_queries(tiny_corpus: Corpus) -> None:
    split = tiny_corpus.split("test")
    retriever = Popularity().index(tiny_corpus)
    ranking = retriever.search(split, 5)
    same = retriever.search(split.contexts, 5)
    np.testing.assert_array_equal(ranking.papers, same.papers)
    assert same.queries is not None and same.queries.positives is None
    assert ranking.queries is not None and ranking.queries.corpus is tiny_corpus
    np.testing.assert_array_equal(ranking.queries.contexts, split.contexts)
    assert ranking.queries.positives is split.positives
    filtered = retriever.search(ranking.queries[::-1], 5, Filters(unseen=True)).queries
    assert filtered is not None and filtered.positives is not None
    assert [row.tolist() for row in filtered.positives] == [row.tolist() for row in split.positives][::-1]


def test_search_before_index_says_so() -> None:
    with pytest.raises(RuntimeError, match="call index"):
        Everything().search(np.array([0]), 1)


def test_indexing_again_replaces_the_index(tiny_corpus: Corpus, tiny_source: Path, tmp_path: Path) -> None:
    retriever = Everything().index(tiny_corpus)
    everyone = open_corpus(tiny_source, cache_dir=tmp_path / "cache", candidates="all")
    retriever.index(everyone)
    bare = everyone.paper_row("bare")
    assert bare in retriever.search(np.array([0]), 20).papers


@pytest.fixture
def saved(tiny_corpus: Corpus, tmp_path: Path) -> Path:
    retriever = Popularity().index(tiny_corpus)
    retriever.save(tmp_path / "index")
    return tmp_path / "index"


def test_an_index_of_another_corpus_or_of_other_settings_is_refused(
    tiny_corpus: Corpus, tiny_source: Path, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = open_corpus(tiny_source, cache_dir=tmp_path / "cache", candidates="all")
    with pytest.raises(InputError, match=r"index: the index was built with corpus=\w+, not \w+;"):
        Popularity().load(saved, other)
    monkeypatch.setattr(Popularity, "settings", lambda _: {"k1": 0.9})
    with pytest.raises(InputError, match=r"the index was built with k1=None, not 0\.9;"):
        Popularity().load(saved, tiny_corpus)


def of_another_format(folder: Path) -> None:
    (folder / MANIFEST).write_text('{"format": 99}')
    write_checksums(folder)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / MANIFEST).unlink(), "index: not an index"),
        (lambda folder: (folder / "papers.npy").write_bytes(b"short"), "papers.npy: damaged .*; rebuild"),
        (of_another_format, "an index of format 99, this version reads 4; rebuild the index"),
    ],
)
def test_damage_raises_one_clear_line(
    tiny_corpus: Corpus, saved: Path, damage: Callable[[Path], None], message: str
) -> None:
    damage(saved)
    with pytest.raises(InputError, match=message):
        Popularity().load(saved, tiny_corpus)


def test_an_index_of_nothing_is_not_saved(tiny_corpus: Corpus, tmp_path: Path) -> None:
    class Forgetful(Everything):
        arrays = ()  # type: ignore[assignment]

    for save in (Forgetful().index(tiny_corpus).save, lambda place: Forgetful().open(tiny_corpus, place)):
        with pytest.raises(InputError, match=r"Forgetful neither lists `arrays` nor overrides `_save`"):
            save(tmp_path / "index")
    assert not (tmp_path / "index").exists()


def test_a_failed_write_leaves_the_earlier_index(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    with new_index(folder, {"a": 1}, {}) as part:
        (part / "file").write_text("first")
    with pytest.raises(OSError, match="full"), new_index(folder, {"a": 2}, {}) as part:
        (part / "file").write_text("second")
        raise OSError("full")
    assert (folder / "file").read_text() == "first" and read_index(folder, {"a": 1}) == {}
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


def test_other_folders_are_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("years of work")
    with (
        pytest.raises(InputError, match="something other than an index"),
        new_index(tmp_path / "thesis", {}, {}),
    ):
        pass
    assert (tmp_path / "thesis" / "chapter.tex").read_text() == "years of work"


def test_ranks_by_citations_in_training_contexts(tiny_corpus: Corpus) -> None:
    retriever = Popularity().index(tiny_corpus)
    ranking = retriever.search(tiny_corpus.split("test").contexts, 11)
    rows = [tiny_corpus.paper_row(p) for p in ("parsing", "graph", "speech", "vision")]
    for papers, scores in zip(ranking.papers.tolist(), ranking.scores.tolist(), strict=True):
        assert papers == rows + [-1] * 7
        assert scores[:4] == [3, 1, 1, 1]
