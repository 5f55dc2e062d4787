"""Embeddings on disk: writing, resuming, reading, and refusing damaged or unrelated folders."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from citerec.base.errors import InputError
from citerec.datasets.corpus import Corpus
from citerec.datasets.prepare import open_corpus
from citerec.retrieval.encoders import embed as command
from citerec.retrieval.encoders.article import article_retriever
from citerec.retrieval.encoders.embeddings import (
    Advance,
    EmbeddingFolder,
    EmbeddingJob,
    Embeddings,
    Vectors,
    load_or_encode,
)
from citerec.retrieval.settings import ArticleConfig
from citerec.tests.conftest import Done
from citerec.tests.forked import exit_code

MODEL: dict[str, Any] = {"weights": "abc", "query": ("title",)}

embed = partial(command.embed, encoding="local", shard=4096, seed=0)


@pytest.fixture
def config(tiny_bert: Path) -> ArticleConfig:
    return ArticleConfig("tiny", path=str(tiny_bert), max_tokens=64)


class Encoder:
    """Random vectors seeded by the texts; with `sentences`, one per full stop. Records the calls."""

    def __init__(self, corpus: Corpus, sentences: bool = False) -> None:
        self.corpus, self.sentences = corpus, sentences
        self.asked: list[int] = []
        self.stop = -1

    def __call__(self, rows: NDArray[np.int64], advance: Advance) -> Vectors:
        if len(self.asked) == self.stop:
            raise KeyboardInterrupt
        self.asked.append(len(rows))
        counts = [self.corpus.abstracts[row].count(".") if self.sentences else 1 for row in rows.tolist()]
        drawn = [
            np.random.default_rng(list(self.corpus.titles[row].encode())).standard_normal((count, 6))
            for row, count in zip(rows.tolist(), counts, strict=True)
        ]
        advance(0.5)
        vectors = np.concatenate(drawn).astype(np.float32)
        return vectors, np.array(counts, np.int32) if self.sentences else None

    def work(self, rows: NDArray[np.int64] | None = None, **more: Any) -> EmbeddingJob:
        some = np.arange(len(self.corpus.paper_ids)) if rows is None else rows
        return EmbeddingJob(self.corpus, some, MODEL, 6, self, sentences=self.sentences, **more)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name[0] != "."}


def of(found: Embeddings) -> list[list[list[float]]]:
    """The vectors of each paper."""
    return [found.vectors[a:b].tolist() for a, b in zip(found.offsets[:-1], found.offsets[1:], strict=True)]


@pytest.mark.parametrize("sentences", [False, True])
def test_vectors_are_stored_in_half_precision(tiny_corpus: Corpus, tmp_path: Path, sentences: bool) -> None:
    encoder = Encoder(tiny_corpus, sentences)
    place = (tmp_path / "e", 5)
    found = load_or_encode(encoder.work(), *place)
    assert encoder.asked == [5, 5, 2] and found.encoded == 12
    expected = [encoder(np.array([row]), lambda share: None)[0] for row in range(12)]
    halves = np.concatenate(expected).astype(np.float16)
    np.testing.assert_array_equal(found.vectors[:], halves)
    assert np.diff(found.offsets).tolist() == [len(vectors) for vectors in expected]
    again = load_or_encode(Encoder(tiny_corpus, sentences).work(), *place)
    assert again.encoded == 0 and of(again) == of(found)
    assert of(load_or_encode(encoder.work())) == of(found)  # in memory
    manifest = json.loads((tmp_path / "e" / "embeddings.json").read_text())
    assert (
        manifest["model"]["weights"] == "abc" and manifest["papers"] == 12 and manifest["dtype"] == "float16"
    )
    for number in range(3):
        assert np.load(tmp_path / "e" / f"0000{number}.npy").dtype == np.float16


def test_an_interrupted_run_resumes_to_the_same_bytes(tiny_corpus: Corpus, tmp_path: Path) -> None:
    load_or_encode(Encoder(tiny_corpus).work(), tmp_path / "whole", 3)
    encoder = Encoder(tiny_corpus)
    for encoder.stop in (1, 3):
        with pytest.raises(KeyboardInterrupt):
            load_or_encode(encoder.work(), tmp_path / "e", 3)
    encoder.stop = -1
    found = load_or_encode(encoder.work(), tmp_path / "e", 100)  # keeps the folder's shard size
    assert encoder.asked == [3, 3, 3, 3] and found.encoded == 3
    assert files(tmp_path / "e") == files(tmp_path / "whole")


def test_without_a_folder_it_resumes_too_and_leaves_nothing_behind(
    tiny_corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CITATION_CACHE", str(tmp_path))
    encoder = Encoder(tiny_corpus)
    encoder.stop = 2
    with pytest.raises(KeyboardInterrupt):
        load_or_encode(encoder.work(), shard=3)
    (folder,) = (tmp_path / "encoding").iterdir()
    assert sorted(files(folder)) == ["00000.npy", "00001.npy", "checksums.json", "embeddings.json"]
    encoder.stop = -1
    found = load_or_encode(encoder.work(), shard=3)
    assert encoder.asked == [3, 3, 3, 3] and of(found) == of(load_or_encode(Encoder(tiny_corpus).work()))
    assert not list((tmp_path / "encoding").iterdir())


def test_shards_may_come_from_elsewhere_in_any_order(tiny_corpus: Corpus, tmp_path: Path) -> None:
    encoder = Encoder(tiny_corpus)
    load_or_encode(encoder.work(), tmp_path / "whole", 5)

    def encode_shards(shards: Any) -> Any:
        for number in reversed(list(shards)):
            yield number, encoder(np.arange(12)[shards[number]], lambda share: None)[0]

    load_or_encode(encoder.work(encode_shards=encode_shards), tmp_path / "e", 5)
    assert files(tmp_path / "e") == files(tmp_path / "whole")


@pytest.mark.parametrize("sentences", [False, True])
def test_vectors_serve_every_corpus_of_the_same_texts(
    tiny_corpus: Corpus, tiny_source: Path, tmp_path: Path, sentences: bool
) -> None:
    encoder = Encoder(tiny_corpus, sentences)
    whole = load_or_encode(encoder.work(), tmp_path / "e", 5)
    some = np.array([7, 2, 11])
    found = load_or_encode(encoder.work(some), tmp_path / "e")
    assert found.encoded == 0 and of(found) == [of(whole)[row] for row in some]
    # The same papers in another order under other ids.
    moved = tmp_path / "moved"
    shutil.copytree(tiny_source, moved)
    papers = json.loads((moved / "papers.json").read_text())
    for path in moved.iterdir():
        text = path.read_text()
        for paper in papers:
            text = text.replace(f'"{paper}"', f'"other-{paper}"')
        path.write_text(text)
    other = {f"other-{paper}": papers[paper] for paper in reversed(papers)}
    (moved / "papers.json").write_text(json.dumps(other))
    again = Encoder(open_corpus(moved, cache_dir=tmp_path / "cache"), sentences)
    found = load_or_encode(again.work(), tmp_path / "e")
    assert again.asked == [] and of(found) == of(whole)[::-1]
    other["other-graph"]["abstract"] = "Another text."
    (moved / "papers.json").write_text(json.dumps(other))
    again = Encoder(open_corpus(moved, cache_dir=tmp_path / "cache"), sentences)
    with pytest.raises(InputError, match=r"1 of 12 papers have no vector .* such as 'other-graph'"):
        load_or_encode(again.work(), tmp_path / "e")


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("file", "sentences"), [("00001.npy", False), ("00001.npy", True), ("00001.counts.npy", True)]
)
def test_damage_is_named_and_repaired(
    tiny_corpus: Corpus, tmp_path: Path, file: str, sentences: bool
) -> None:
    place, encoder = (tmp_path / "e", 5), Encoder(tiny_corpus, sentences)
    load_or_encode(encoder.work(), *place)
    good = files(tmp_path / "e")
    flip(tmp_path / "e" / file)
    flip(tmp_path / "e" / "00002.npy")
    for name in (file, "00002.npy"):
        with pytest.raises(InputError, match=rf"{name}: damaged .*; remove this file and rerun") as error:
            load_or_encode(encoder.work(), *place)
        assert "\n" not in str(error.value)
        (tmp_path / "e" / name).unlink()
    assert load_or_encode(encoder.work(), *place).encoded == 2
    assert files(tmp_path / "e") == good


def test_unrelated_embeddings_raise_one_clear_line(tiny_corpus: Corpus, tmp_path: Path) -> None:
    encoder = Encoder(tiny_corpus)
    place = (tmp_path / "e", 5)
    load_or_encode(encoder.work(), *place)
    with pytest.raises(InputError, match=r"the embeddings were made with weights=abc, not new"):
        load_or_encode(replace(encoder.work(), model=MODEL | {"weights": "new"}), *place)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("Dear reader")
    with pytest.raises(InputError, match="contains something other than embeddings; name another folder"):
        load_or_encode(encoder.work(), tmp_path / "full")
    (tmp_path / "e" / "00000.npy").unlink()
    with pytest.raises(InputError, match="1 of 3 shards are missing; complete these embeddings first"):
        load_or_encode(encoder.work(np.array([3, 4])), *place)
    with pytest.raises(InputError, match=r"shard=0: must be a whole number, at least 1"):
        load_or_encode(encoder.work(), tmp_path / "new", 0)
    path = tmp_path / "e" / "embeddings.json"
    path.write_text(path.read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(InputError, match="embeddings of format 2; this version reads 1"):
        load_or_encode(encoder.work(), *place)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e6])  # the last is infinite in 16 bits
def test_vectors_that_are_not_finite_are_not_kept(tiny_corpus: Corpus, tmp_path: Path, value: float) -> None:
    encoder = Encoder(tiny_corpus)

    def diverged(rows: NDArray[np.int64], advance: Advance) -> Vectors:
        vectors, counts = encoder(rows, advance)
        vectors[1, 2] = value
        return vectors, counts

    for place in ((tmp_path / "e", 5), ()):
        with pytest.raises(InputError, match=r"vector 1 .*is not finite as float16; the encoder is damaged"):
            load_or_encode(replace(encoder.work(), encode=diverged), *place)
    assert not list((tmp_path / "e").glob("0*"))


@pytest.mark.parametrize("pooling", ["cls", "aspire"])
def test_a_retriever_finds_the_same_with_stored_vectors(
    tiny_corpus: Corpus, config: ArticleConfig, tmp_path: Path, pooling: str
) -> None:
    given = replace(config, pooling=pooling)
    made = embed(lambda: tiny_corpus, given, tmp_path / "e", "float32", shard=4)
    papers = int(tiny_corpus.is_candidate.sum())
    assert made.encoded == papers and f"{papers} encoded" in made.summary(tmp_path / "e")
    again = embed(lambda: tiny_corpus, given, tmp_path / "e", "float32")
    assert again.encoded == 0 and "nothing to encode" in again.summary(tmp_path / "e")
    shards = {name: content for name, content in files(tmp_path / "e").items() if name.startswith("0")}
    plain = article_retriever(given, "float32")
    # The vectors of papers do not depend on the settings of queries.
    kept = article_retriever(replace(given, query=("context",)), "float32", embeddings_dir=tmp_path / "e")
    kept.index(tiny_corpus)
    kept = article_retriever(given, "float32", embeddings_dir=tmp_path / "e")
    for retriever in (plain, kept):
        retriever.index(tiny_corpus)
    assert kept.reused and not plain.reused
    first, second = (one.search(np.arange(12), 5) for one in (plain, kept))
    assert first.papers.tolist() == second.papers.tolist()
    np.testing.assert_allclose(first.scores, second.scores, atol=1e-3)
    kept.save(tmp_path / "index")
    shutil.rmtree(tmp_path / "e")
    loaded = article_retriever(given, "float32")
    loaded.load(tmp_path / "index", tiny_corpus)
    third = loaded.search(np.arange(12), 5)
    assert third.papers.tolist() == second.papers.tolist() and third.scores.tolist() == second.scores.tolist()
    embed(lambda: tiny_corpus, given, tmp_path / "e", "float32", shard=4)
    assert shards.items() <= files(tmp_path / "e").items()


def test_a_killed_run_resumes_to_the_same_bytes(
    tiny_corpus: Corpus, tiny_source: Path, tiny_bert: Path, tmp_path: Path, script: Callable[..., Done]
) -> None:
    config = ArticleConfig("local", path=str(tiny_bert), max_tokens=64, layout="sep")

    def encode(name: str) -> Embeddings:
        return embed(lambda: tiny_corpus, config, tmp_path / name, "float32", shard=1)

    def encode_and_die() -> None:
        torch.set_num_threads(1)  # the threads of this process are not copied
        write = EmbeddingFolder.write

        def write_five(folder: EmbeddingFolder, number: int, *arrays: Any) -> None:
            write(folder, number, *arrays)
            if number == 4:
                os.kill(os.getpid(), signal.SIGKILL)

        pytest.MonkeyPatch().setattr(EmbeddingFolder, "write", write_five)
        encode("e")

    assert exit_code(encode_and_die) == -signal.SIGKILL
    given = [f"encoder.path={tiny_bert}", "encoder.max_tokens=64", "arithmetic=float32", "shard=1"]
    given += ["data=custom", f"data.dir={tiny_source}", f"data.cache_dir={tmp_path / 'cache'}", "output=e"]
    done = script("data", "embed", "encoder=local", *given)
    assert done.code == 0 and "11 papers in 16 dimensions" in done.out and "6 encoded" in done.out, done
    encode("whole")
    there = {name: content for name, content in files(tmp_path / "e").items() if not name.startswith(".")}
    assert there == files(tmp_path / "whole")
