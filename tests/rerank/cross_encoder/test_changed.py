"""Indexes of slightly changed corpora: kept papers keep their scores, and a copy scores like its original."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from citerec.datasets.corpus import Corpus
from citerec.datasets.prepare import prepare_store
from citerec.datasets.records import PaperRecord, Source
from citerec.rerank.ranker.model import Ranker, RankingModel
from citerec.retrieval.base import Retriever, small_change
from citerec.retrieval.lexical.bm25 import BM25
from citerec.retrieval.queries import Queries, Query
from citerec.tests.rerank.made import linear
from citerec.tests.rerank.ranker.test_ranker import contexts, ranker

ORIGINAL = 7


@pytest.fixture(scope="module")
def kept(demo_corpus: Corpus) -> np.ndarray:
    """All papers except one that neither cites nor is cited."""
    used = {*demo_corpus.citing.tolist(), ORIGINAL}
    for split in demo_corpus.splits.values():
        used |= set(split.positives.values.tolist())
    return np.delete(
        np.arange(len(demo_corpus.paper_ids)), min(set(range(len(demo_corpus.paper_ids))) - used)
    )


def change_corpus(old: Corpus, kept: np.ndarray, folder: Path, title: str = "") -> Corpus:
    """Make a corpus of the kept papers and a copy of one of them, by default with the same title."""
    copy = PaperRecord("copy", title or old.titles[ORIGINAL], old.abstracts[ORIGINAL])
    source = Source("changed", {}, papers=lambda: [copy], contexts=tuple, splits={})
    settings = {name: old.settings[name] for name in ("tokenizer", "candidates")}
    prepare_store(source, folder, settings, initialise=lambda builder: builder.copy_from(old, kept))
    return Corpus(folder)


@pytest.fixture(scope="module")
def changed(demo_corpus: Corpus, kept: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return change_corpus(demo_corpus, kept, tmp_path_factory.mktemp("changed") / "store")


def reindex(new: Retriever, old: Retriever, corpus: Corpus, kept: np.ndarray, folder: Path) -> None:
    old.save(folder)
    new.reindex(old.corpus, corpus, kept, folder)


@pytest.mark.parametrize("options", [{}, {"contexts": 5}, {"method": "okapi", "k1": 0.9}])
def test_a_reindexed_bm25_keeps_its_scores(
    demo_corpus: Corpus, changed: Corpus, kept: np.ndarray, tmp_path: Path, options: dict
) -> None:
    old, new = BM25(**options), BM25(**options)
    old.index(demo_corpus)
    reindex(new, old, changed, kept, tmp_path / "index")
    asked = contexts(demo_corpus)
    before = old.score(asked, np.tile(kept.astype(np.int32), (len(asked), 1)))
    papers = np.tile(np.arange(len(kept) + 1, dtype=np.int32), (len(asked), 1))
    after = new.score(asked, papers)
    np.testing.assert_allclose(after[:, :-1], before, rtol=1e-5)
    if "contexts" not in options:
        other = after[:, np.searchsorted(kept, ORIGINAL)]
        own = changed.citing[asked] == np.searchsorted(kept, ORIGINAL)  # never recommended
        np.testing.assert_allclose(after[~own, -1], other[~own], rtol=1e-5)
    new.save(tmp_path / "again")
    loaded = BM25(**options)
    loaded.load(tmp_path / "again", changed)
    np.testing.assert_array_equal(loaded.score(asked, papers), after)
    assert loaded._engine.changed == 2  # type: ignore[union-attr]


def test_new_words_become_terms(demo_corpus: Corpus, kept: np.ndarray, tmp_path: Path) -> None:
    corpus = change_corpus(demo_corpus, kept, tmp_path / "store", "Zyzzyva beetles")
    model = RankingModel(linear({"title_share": 1.0}))
    old, new = (Ranker(model, {"bm25": BM25()}) for _ in range(2))
    old.index(demo_corpus)
    reindex(new, old, corpus, kept, tmp_path / "index")
    found = new.search(Queries.from_list(corpus, [Query("The zyzzyva TARGETCIT eats.")]), 1)
    assert corpus.paper_ids[found.papers[0, 0]] == "copy"


def test_large_changes_rebuild_the_index(demo_corpus: Corpus, kept: np.ndarray, tmp_path: Path) -> None:
    few = kept[:60]
    corpus = change_corpus(demo_corpus, few, tmp_path / "store")
    assert small_change(demo_corpus, corpus, few) is None
    assert (
        small_change(demo_corpus, change_corpus(demo_corpus, kept, tmp_path / "more"), kept, before=2) is None
    )
    old, new, scratch = ranker(demo_corpus), ranker(demo_corpus), ranker(corpus)
    reindex(new, old, corpus, few, tmp_path / "index")
    queries = contexts(corpus)
    np.testing.assert_array_equal(new.search(queries, 10).papers, scratch.search(queries, 10).papers)


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder
