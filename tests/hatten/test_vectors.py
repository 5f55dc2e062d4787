"""Word vectors: what they must be, their coverage and their cache."""

from __future__ import annotations

import errno
import logging
import multiprocessing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from datasets.corpus import Corpus
from datasets.errors import InputError
from hatten.words import WordVectors, announced, cached, load_vectors


def some(words: list[str], dim: int = 3, seed: int = 0) -> WordVectors:
    return WordVectors(words, np.random.default_rng(seed).standard_normal((len(words), dim)), "some")


@pytest.mark.parametrize(
    ("words", "matrix", "message"),
    [
        ([], np.zeros((0, 3)), "no word vectors"),
        (["deep"], np.zeros((1, 0)), "no word vectors"),
        (["deep"], np.zeros((2, 3)), "1 words do not go"),
        (["deep"], np.zeros(3), "do not go"),
        (["deep", "deep"], np.zeros((2, 3)), "'deep' has two vectors"),
        (["deep", "nets"], np.array([[1, 2, 3], [1, np.nan, 3]]), "'nets' has a number"),
        (["deep", "nets"], np.array([[1, 2, 3], [1, 1e300, 3]]), "'nets' has a number"),
        (["deep"], np.zeros((1, 4)), r"4 dimensions, the configuration says 3.*embeddings\.dim=4"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow")
def test_what_cannot_be_used_is_one_clear_error(words: list[str], matrix: Any, message: str) -> None:
    with pytest.raises(InputError, match=f"source: .*{message}"):
        WordVectors(words, matrix, "source", dim=3)


def test_added_words_keep_the_others_and_are_the_same_each_time() -> None:
    before = some(["deep", "nets", "learn"], dim=50)
    after = before.with_words(["nets", "targetcit", "othercit", "targetcit"])
    assert after.words == ["deep", "nets", "learn", "targetcit", "othercit"]
    np.testing.assert_array_equal(after.matrix[:3], before.matrix)
    np.testing.assert_array_equal(after.matrix, before.with_words(["targetcit", "othercit"]).matrix)
    assert not np.allclose(after.matrix[3], after.matrix[4])
    assert before.with_words(["nets"]) is before


def test_a_models_matrix_goes_with_its_vocabulary() -> None:
    for words in (["deep", "nets"], ["deep", "<pad>", "nets"]):
        vectors = some(words)
        vocabulary, matrix = vectors.vocabulary()
        assert matrix.shape == (len(vocabulary), 3) and matrix.dtype == np.float32
        np.testing.assert_array_equal(matrix[vocabulary.lookup(["nets", "deep"])], vectors.matrix[[-1, 0]])
        assert matrix[vocabulary.pad_id].any() == ("<pad>" in words)


def test_the_log_says_which_vectors_and_what_they_cover(
    tiny_corpus: Corpus, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    everything = some(list(tiny_corpus.words))
    assert announced(everything, tiny_corpus) is everything
    assert caplog.messages[-1] == (
        f"word vectors: some, {len(everything)} words, 3 dimensions, cover 100.0 % of the running words"
    )
    counts = dict(zip(tiny_corpus.words, tiny_corpus.word_counts.tolist(), strict=True))
    announced(some(["the", "trees", "elsewhere"]), tiny_corpus)
    assert (
        f"cover {100 * (counts['the'] + counts['trees']) / sum(counts.values()):.1f} %" in caplog.messages[-2]
    )
    assert caplog.records[-1].levelno == logging.WARNING


def test_the_cache_makes_each_setting_once(tmp_path: Path) -> None:
    made: list[int] = []

    def make() -> WordVectors:
        made.append(1)
        return some(["deep", "naïve", " \t\r\0\u2028"], seed=len(made))

    first, again, other = (cached(tmp_path, "kind", {"dim": dim}, make) for dim in (3, 3, 4))
    assert (again.words, again.name) == (first.words, first.name)
    np.testing.assert_array_equal(first.matrix, again.matrix)
    assert not np.array_equal(first.matrix, other.matrix)
    assert len(made) == 2


@pytest.mark.parametrize("damage", ["cut", "empty", "text", "flipped", "pickled"])
def test_a_damaged_cache_file_is_made_again(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    whole = cached(tmp_path, "kind", {}, lambda: some(["deep", "nets"], dim=50))
    (path,) = tmp_path.glob("vectors/*.npz")
    data = path.read_bytes()
    if damage == "pickled":
        np.savez(path, matrix=np.array([{}], object), words=np.array(["deep"], object), name=np.array("x"))
    else:
        middle = len(data) // 2
        flipped = data[:middle] + bytes(255 - byte for byte in data[middle : middle + 4]) + data[middle + 4 :]
        path.write_bytes({"cut": data[:300], "empty": b"", "text": b"nonsense", "flipped": flipped}[damage])
    again = cached(tmp_path, "kind", {}, lambda: some(["deep", "nets"], dim=50))
    np.testing.assert_array_equal(again.matrix, whole.matrix)
    assert "damaged" in caplog.text
    kept = load_vectors(path)
    assert kept is not None and kept.words == whole.words


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: Any, **_: object) -> None:
        file.write(b"half of it")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("numpy.savez", full)
    with pytest.raises(OSError, match="No space") as error:
        cached(tmp_path, "kind", {}, lambda: some(["deep"]))
    assert str(error.value.filename).endswith(".npz")
    assert [path.suffix for path in (tmp_path / "vectors").iterdir()] == [".lock"]


def _make_in_a_process(folder: Path, ready: Any, count: Any) -> None:
    def make() -> WordVectors:
        with count.get_lock():
            count.value += 1
        return some(["deep"])

    ready.wait()
    cached(folder, "kind", {}, make)


def test_processes_do_not_make_the_same_vectors_twice(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    ready, count = context.Event(), context.Value("i", 0)
    processes = [context.Process(target=_make_in_a_process, args=(tmp_path, ready, count)) for _ in range(4)]
    for process in processes:
        process.start()
    ready.set()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    assert count.value == 1
