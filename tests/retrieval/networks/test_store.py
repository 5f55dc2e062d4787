"""What is kept: found again by other processes, merged, and never lost but for the work of a kill."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from citerec.base.errors import DamagedFile, InputError
from citerec.datasets.corpus import Corpus
from citerec.retrieval.networks import encoder as module
from citerec.retrieval.networks.encoder import NetworkRetriever
from citerec.retrieval.networks.networks import Networks
from citerec.retrieval.networks.store import MANY, Encoded, VectorStore, check_encoded
from citerec.tests.forked import exit_code
from citerec.tests.retrieval.made import assert_same

DIM = 4


def encoded(keys: Sequence[int]) -> Encoded:
    """Papers whose every part is made from their key."""
    numbers = np.array(keys, np.int64)
    return Encoded(
        numbers.astype(np.uint64),
        np.repeat(numbers[:, None], DIM, axis=1).astype(np.float16),
        np.repeat(numbers, numbers % 3).astype(np.int32),
        (numbers % 3).astype(np.int32),
        np.repeat((numbers % 100)[:, None], DIM, axis=1).astype(np.int8).repeat(numbers % 2, axis=0),
        (numbers % 2).astype(np.int32),
        np.repeat((numbers % 100)[:, None], DIM, axis=1).astype(np.int8).repeat(numbers % 4, axis=0),
        (numbers % 4).astype(np.int32),
    )


def assert_has(store: VectorStore, keys: Sequence[int]) -> None:
    assert len(store) == len(set(keys))
    wanted = np.array([*keys, 10**9], np.uint64)
    assert store.known(wanted).tolist() == [True] * len(keys) + [False]
    vectors = store.vectors(wanted)
    assert np.isnan(vectors[-1]).all()
    np.testing.assert_array_equal(vectors[:-1, 0], np.array(keys, np.float32))
    for key in keys:
        assert store.subwords(key) == [key] * (key % 3)
        assert (store.sentences(key) * 127).round().tolist() == [[key % 100] * DIM] * (key % 2)
    result = sorted(
        (place, key)
        for places, part in store.papers(wanted)
        for place, key in zip(places, part.keys, strict=True)
    )
    assert result == list(enumerate(keys))
    for _, part in store.papers(wanted):
        assert part.words[:, 0].tolist() == [key % 100 for key in part.keys.tolist() for _ in range(key % 4)]


KEYS = st.integers(0, 60)


@given(st.lists(st.lists(KEYS, unique=True, max_size=8), max_size=6), st.sets(KEYS))
def test_a_store_has_what_was_appended_and_kept(
    tmp_path_factory: pytest.TempPathFactory, parts: list[list[int]], wanted: set[int]
) -> None:
    folder = tmp_path_factory.mktemp("store") / "encoded"
    store, memory = VectorStore(folder, "a", DIM), VectorStore(None, "a", DIM)
    for part in parts:
        store.append(encoded(part))
        memory.append(encoded(part))
    keys = sorted({key for part in parts for key in part})
    for item in (store, memory, VectorStore(folder, "a", DIM)):
        assert_has(item, keys)
    store.keep(wanted)
    kept = [key for key in keys if key in wanted]
    assert_has(store, kept)
    assert_has(VectorStore(folder, "a", DIM), kept)
    assert_has(memory, keys)


def test_many_files_become_one_and_other_networks_leave(tmp_path: Path) -> None:
    store, other = VectorStore(tmp_path, "a", DIM), VectorStore(tmp_path, "b", DIM)
    for key in range(MANY):
        store.append(encoded([key]))
    assert len(list(tmp_path.iterdir())) == MANY
    store.keep(range(MANY))
    assert len(list(tmp_path.iterdir())) == 1
    assert_has(VectorStore(tmp_path, "a", DIM), range(MANY))
    other.append(encoded([1]))
    assert_has(VectorStore(tmp_path, "b", DIM), [1])
    before = {path.name for path in tmp_path.iterdir()}
    store.keep(range(MANY))  # a network that was replaced
    assert len(before) == 2 and len(list(tmp_path.iterdir())) == 1
    assert len(VectorStore(tmp_path, "b", DIM)) == 0


def test_papers_are_found_while_files_become_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, concat = VectorStore(tmp_path, "a", DIM), Encoded.concat
    for key in range(MANY):
        store.append(encoded([key]))

    def reading(parts: Sequence[Encoded]) -> Encoded:
        assert_has(store, range(MANY))
        return concat(parts)

    monkeypatch.setattr(Encoded, "concat", reading)
    found = store.papers(np.arange(MANY, dtype=np.uint64))
    first = next(found)
    store.keep(range(MANY))
    assert [part.keys.tolist() for _, part in (first, *found)] == [[key] for key in range(MANY)]


def test_several_processes_see_each_others_papers(tmp_path: Path) -> None:
    item, other = VectorStore(tmp_path, "a", DIM), VectorStore(tmp_path, "a", DIM)
    item.append(encoded([1, 2]))
    other.append(encoded([2, 3]))
    for store in (item, other):
        store.refresh()
        assert_has(store, [1, 2, 3])
    item.keep([1, 3])
    other.refresh()  # the files that it has read are gone
    assert_has(other, [1, 2, 3])
    other.append(encoded([4]))
    assert_has(VectorStore(tmp_path, "a", DIM), [1, 3, 4])


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-3],
        lambda content: content + b"0",
        lambda content: content[:-3] + bytes([content[-3] ^ 1]) + content[-2:],
        lambda content: content.replace(b'"network":"a"', b'"network":"c"'),
        lambda content: content.replace(b'"network"', b'"netwosk"'),
        lambda content: content.replace(b'"U64"', b'"I64"'),
    ],
    ids=["cut", "longer", "a bit flipped", "of the network", "of its name", "of the keys' kind"],
)
def test_damaged_files_are_named_and_their_papers_are_encoded_again(
    damage: Callable[[bytes], bytes], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = VectorStore(tmp_path, "a", DIM)
    store.append(encoded([1]))
    (file,) = tmp_path.iterdir()
    check_encoded(tmp_path)
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(DamagedFile, match=f"{file}: damaged"):
        check_encoded(tmp_path)
    store.append(encoded([2]))
    again = VectorStore(tmp_path, "a", DIM)
    assert_has(again, [2])
    assert f"{file}: damaged" in caplog.text
    assert len(VectorStore(tmp_path, "a", DIM + 1)) == 0 and "have another length" in caplog.text
    again.keep([1, 2])
    check_encoded(tmp_path)
    assert not file.exists()


def network(folder: Path, networks: Path) -> NetworkRetriever:
    opened = Networks.open(networks)
    return NetworkRetriever(opened, VectorStore(folder, opened.identity, opened.dim))


def test_a_killed_encoding_goes_on_where_it_was(
    tiny_corpus: Corpus, tiny_networks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PART", 3)
    whole = network(tmp_path / "whole", tiny_networks).index(tiny_corpus)
    encode, calls = Networks.encode, list[int]()

    def counted(self: Networks, keys: np.ndarray, *options: object) -> Encoded:
        if len(calls) == 2 and dying:
            os.kill(os.getpid(), signal.SIGKILL)
        calls.append(len(keys))
        return encode(self, keys, *options)  # type: ignore[arg-type]

    monkeypatch.setattr(Networks, "encode", counted)
    dying = True
    killed = exit_code(lambda: network(tmp_path / "killed", tiny_networks).index(tiny_corpus))
    assert killed == -signal.SIGKILL and len(list((tmp_path / "killed").glob("*.safetensors"))) == 2
    dying = False
    resumed = network(tmp_path / "killed", tiny_networks).index(tiny_corpus)
    assert calls == [3, 2] and resumed.complete  # 11 papers, of which 6 were kept
    queries = np.arange(12)
    assert_same(resumed.search(queries, 12), whole.search(queries, 12))


def test_papers_without_a_vector_are_not_found_and_encoding_them_on_demand_finds_them(
    tiny_corpus: Corpus, tiny_networks: Path, tmp_path: Path
) -> None:
    whole = network(tmp_path / "whole", tiny_networks).index(tiny_corpus)
    few = network(tmp_path / "few", tiny_networks)
    few.whole = False
    few.index(tiny_corpus)
    queries, papers = np.arange(3), np.tile(np.arange(12, dtype=np.int32), (3, 1))
    assert (few.search(queries, 5).papers == -1).all() and not few.complete
    assert (few.score(queries, papers) == -np.inf).all() and len(few.missing()) == 11
    few.encode(np.array([2, 5, 7]))
    few.refresh()
    result = few.search(queries, 5)
    assert set(np.unique(result.papers)) <= {-1, 2, 5, 7}
    expected = whole.score(queries, papers)
    np.testing.assert_allclose(few.score(queries, papers)[:, [2, 5, 7]], expected[:, [2, 5, 7]], atol=1e-6)
    assert few.encode_missing() == 8 and few.complete
    assert_same(few.search(queries, 12), whole.search(queries, 12))


def test_pairs_are_scored_once(
    tiny_corpus: Corpus, tiny_networks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    retriever, scores, pairs = network(tmp_path, tiny_networks).index(tiny_corpus), Networks.scores, []

    def counted(self: Networks, texts: list[Any]) -> np.ndarray:
        pairs.extend(texts)
        return scores(self, texts)

    monkeypatch.setattr(Networks, "scores", counted)
    query, reader = [5, 6, 7], retriever.networks.reader
    rows = [np.array([1, 4]), np.array([4, 2]), np.array([4, 1, 2])]
    result = [retriever.pair_scores(query, papers).tolist() for papers in rows]
    assert len(pairs) == 3 and result[2] == [result[0][1], result[0][0], result[1][1]]
    texts = reader.papers(tiny_corpus, rows[2])
    expected = scores(retriever.networks, [reader.pair(query, text.subwords) for text in texts])
    np.testing.assert_allclose(result[2], expected, atol=1e-6)
    retriever.pair_scores([5, 6], rows[0])
    assert len(pairs) == 5


@pytest.mark.parametrize(
    ("name", "before", "after", "why"),
    [
        ("tokenizer.json", b'"model"', b'"model" ', "is not the file that"),
        ("encoder.onnx", b"bert", b"berd", "is not the file that"),
        ("networks.json", b'"dim": ', b'"dim": 1000000', "dim is 1000000"),
    ],
)
def test_networks_are_those_that_were_written(
    name: str, before: bytes, after: bytes, why: str, tmp_path: Path, tiny_networks: Path
) -> None:
    shutil.copytree(tiny_networks, tmp_path / "copy")
    Networks.open(tmp_path / "copy").check()
    content = (tmp_path / "copy" / name).read_bytes()
    (tmp_path / "copy" / name).unlink()
    (tmp_path / "copy" / name).write_bytes(content.replace(before, after, 1))
    assert before in content
    with pytest.raises(InputError, match=why):
        Networks.open(tmp_path / "copy").check()
