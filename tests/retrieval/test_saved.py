"""Saved indexes: the same rankings, and a clear line for whatever is not what it should be."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from datasets.corpus import Corpus
from datasets.errors import InputError
from datasets.prepare import open_corpus
from retrieval.base import MANIFEST, folder_bytes, read_index, written_index
from retrieval.popularity import Popularity


@pytest.fixture
def saved(tiny_corpus: Corpus, tmp_path: Path) -> Path:
    retriever = Popularity()
    retriever.index(tiny_corpus)
    retriever.save(tmp_path / "index")
    return tmp_path / "index"


def test_a_loaded_index_ranks_as_the_one_that_was_saved(tiny_corpus: Corpus, saved: Path) -> None:
    made, loaded = Popularity(), Popularity()
    made.index(tiny_corpus)
    loaded.load(saved, tiny_corpus)
    contexts = np.arange(12)
    for k in (1, 20):
        assert loaded.search(contexts, k).papers.tolist() == made.search(contexts, k).papers.tolist()
        assert loaded.search(contexts, k).scores.tolist() == made.search(contexts, k).scores.tolist()


def test_open_saves_the_first_time_and_reads_the_second(
    tiny_corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Popularity().open(tiny_corpus, tmp_path / "index")
    monkeypatch.setattr(Popularity, "_index", lambda *_: pytest.fail("indexed again"))
    Popularity().open(tiny_corpus, tmp_path / "index")


def test_what_was_tuned_is_read_again(tmp_path: Path) -> None:
    with written_index(tmp_path / "index", {"a": 1}, {"weight": 0.25}) as part:
        (part / "file").write_text("x")
    assert read_index(tmp_path / "index", {"a": 1}) == {"weight": 0.25}


def test_an_index_of_another_corpus_is_refused(tiny_source: Path, saved: Path, tmp_path: Path) -> None:
    other = open_corpus(tiny_source, cache_dir=tmp_path / "cache", candidates="all")
    with pytest.raises(InputError, match=r"index: an index of another corpus: \w+ there, \w+ here"):
        Popularity().load(saved, other)


def test_an_index_of_other_settings_is_refused(
    tiny_corpus: Corpus, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Popularity, "settings", lambda _: {"k1": 0.9})
    with pytest.raises(InputError, match=r"an index of another k1: None there, 0\.9 here"):
        Popularity().load(saved, tiny_corpus)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / MANIFEST).unlink(), "there is no index"),
        (lambda folder: (folder / MANIFEST).write_text("{"), "damaged"),
        (lambda folder: (folder / MANIFEST).write_text("[]"), "damaged"),
        (lambda folder: (folder / "papers.npy").unlink(), "papers.npy: missing"),
        (lambda folder: (folder / "papers.npy").write_bytes(b"short"), "cut short or changed"),
        (
            lambda folder: (folder / MANIFEST).write_text(
                json.dumps({"format": 99, "about": {}, "tuned": {}, "files": {}})
            ),
            "an index of format 99",
        ),
    ],
)
def test_damage_is_one_clear_line(tiny_corpus: Corpus, saved: Path, damage: object, message: str) -> None:
    damage(saved)  # type: ignore[operator]
    with pytest.raises(InputError, match=message):
        Popularity().load(saved, tiny_corpus)


def test_a_failed_write_leaves_the_earlier_index(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    with written_index(folder, {"a": 1}, {}) as part:
        (part / "file").write_text("first")
    with pytest.raises(OSError, match="full"), written_index(folder, {"a": 2}, {}) as part:
        (part / "file").write_text("second")
        raise OSError("full")
    assert (folder / "file").read_text() == "first" and read_index(folder, {"a": 1}) == {}
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


def test_a_folder_that_is_no_index_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("years of work")
    with (
        pytest.raises(InputError, match="something else than an index"),
        written_index(tmp_path / "thesis", {}, {}),
    ):
        pass
    assert (tmp_path / "thesis" / "chapter.tex").read_text() == "years of work"


def test_size_counts_all_files(saved: Path) -> None:
    assert folder_bytes(saved) == sum(path.stat().st_size for path in saved.iterdir())
