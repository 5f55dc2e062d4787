"""Indexes of slightly changed corpora: kept papers keep their scores, and a copy scores like its original."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from citerec.datasets.corpus import Corpus
from citerec.datasets.prepare import prepare_store
from citerec.datasets.records import PaperRecord, Source
from citerec.formats.bibliography.paper import LibraryPaper
from citerec.library.papers.library import Library
from citerec.rerank.ranker.corpus_statistics import CorpusStatistics
from citerec.rerank.ranker.model import Ranker, RankingModel
from citerec.rerank.ranker.paper_names import word_hash
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
    model = RankingModel(linear({"context_title": 1.0}))
    old, new = (Ranker(model, {"bm25": BM25()}) for _ in range(2))
    old.index(demo_corpus)
    reindex(new, old, corpus, kept, tmp_path / "index")
    found = new.search(Queries.from_list(corpus, [Query("The zyzzyva TARGETCIT eats.")]), 1)
    assert corpus.paper_ids[found.papers[0, 0]] == "copy"


def test_a_reindexed_ranker_keeps_its_features(
    demo_corpus: Corpus, changed: Corpus, kept: np.ndarray, tmp_path: Path
) -> None:
    old, new = ranker(demo_corpus), ranker(demo_corpus)
    reindex(new, old, changed, kept, tmp_path / "index")
    assert new.statistics.drift.tolist() == [2]
    asked, place = contexts(demo_corpus), int(np.searchsorted(kept, ORIGINAL))
    rows = np.tile(kept.astype(np.int32), (len(asked), 1))
    before = old.columns(Queries.from_contexts(demo_corpus, asked), rows)
    papers = np.tile(np.arange(len(kept) + 1, dtype=np.int32), (len(asked), 1))
    after = new.columns(Queries.from_contexts(changed, asked), papers)
    assert list(before) == list(after)
    for name in before:
        # The random dense retriever depends on all papers, and ranks and shares depend on their number.
        if not name.startswith(("dense", "vectors", "papers", "listed")) and not name.endswith(".rank"):
            np.testing.assert_allclose(after[name][:, :-1], before[name], rtol=1e-4, atol=1e-5, err_msg=name)
    for name in ("context_title", "context_abstract", "pairs_title", "citing_title_title", "length"):
        if name in after:
            np.testing.assert_allclose(after[name][:, -1], after[name][:, place], rtol=1e-4, err_msg=name)
    new.save(tmp_path / "again")
    found = new.search(asked, 10)
    new.load(tmp_path / "again", changed)
    np.testing.assert_array_equal(new.search(asked, 10).papers, found.papers)
    assert new.statistics.drift.tolist() == [2]


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


def statistics_arrays(folder: Path, corpus: Corpus) -> dict[str, np.ndarray]:
    return CorpusStatistics.load(folder, corpus)._arrays()


@pytest.mark.slow
def test_added_papers_get_the_names_and_beginnings_of_one_go(tmp_path: Path) -> None:
    """100 of 5,100 papers: extended, updated and computed in one go."""
    authors = ("Ann Lee", "Bo Müller", "Cy de Ba")
    papers = [
        LibraryPaper(
            f"key:{row}", f"key{row}", f"Xy{row % 7}: Frobnication of Quux{row % 50} Zoos {row}",
            f"We introduce the Foo{row % 90} (FB{row}).", (f"Di Wu{row % 400}", *authors[: row % 4]), 2000,
        )
        for row in range(5100)
    ]  # fmt: skip
    old = Library.create(tmp_path / "old", papers[:5000]).corpus
    whole = Library.create(tmp_path / "whole", papers).corpus
    CorpusStatistics.build(old, None).save(made(tmp_path / "before"))
    CorpusStatistics.build(whole, None).save(made(tmp_path / "one go"))
    shutil.copytree(tmp_path / "old", tmp_path / "grown")
    with Library.edit(tmp_path / "grown") as library:
        corpus = library.write(np.arange(5000), papers[5000:]).corpus
    assert corpus.continues == old.fingerprint
    assert CorpusStatistics.can_extend(tmp_path / "before", old, corpus)
    CorpusStatistics.extend_saved(tmp_path / "before", tmp_path / "extended", old, corpus)
    extended = statistics_arrays(tmp_path / "extended", corpus)
    updated = CorpusStatistics.update_saved(tmp_path / "before", old, corpus, np.arange(5000))
    wanted = statistics_arrays(tmp_path / "one go", whole)
    assert updated is not None
    for name, array in updated._arrays().items():
        if name not in CorpusStatistics.ORDERS:
            np.testing.assert_array_equal(extended[name], array, err_msg=name)
    # Names that were there before, in both, and only in the 100 papers added.
    asked = [word_hash("Lee"), word_hash("Wu250"), *wanted["initials.hashes"][-50:].tolist()]
    for one in (updated, CorpusStatistics.load(tmp_path / "extended", corpus)):
        for name in CorpusStatistics.SORTED:
            scan = np.isin(wanted[f"{name}.hashes"], np.array(asked, np.uint64))
            found = one.sorted_names(name).rows(np.array(asked, np.uint64))
            np.testing.assert_array_equal(np.sort(found), np.flatnonzero(scan), err_msg=name)
            assert len(found) > 10 and found.max() > len(extended[f"{name}_order"])
    names = ("title_names", "initials", "abstract_names", "first_authors", "other_authors")
    for name in names:
        for column in ("offsets", "hashes"):
            np.testing.assert_array_equal(extended[f"{name}.{column}"], wanted[f"{name}.{column}"])
        weights, exact = extended[f"{name}.weights"], wanted[f"{name}.weights"]
        assert len(weights) > 5000
        np.testing.assert_allclose(weights, exact, atol=0.1, err_msg=name)  # rarity by the papers so far
        np.testing.assert_allclose(weights[-100:], exact[-100:], atol=2e-3, err_msg=name)
    found, exact = extended["title_beginnings.offsets"], wanted["title_beginnings.offsets"]
    np.testing.assert_array_equal(found, exact)
    terms = CorpusStatistics.load(tmp_path / "extended", corpus).beginnings
    others = CorpusStatistics.load(tmp_path / "one go", whole).beginnings
    assert terms.size == others.size == len(extended["beginning_rarity"])
    weights = extended["title_beginnings.weights"]
    exact_weights = wanted["title_beginnings.weights"]
    sums = [np.add.reduceat(of, exact[:-1]) for of in (weights, exact_weights)]
    np.testing.assert_allclose(sums[0], sums[1], rtol=0.05)


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder
