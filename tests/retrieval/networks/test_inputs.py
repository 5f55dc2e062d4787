"""What networks read: lengths, special tokens, sentences."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from citerec.base.errors import InputError
from citerec.base.files import digest_file
from citerec.datasets.prepare import open_corpus
from citerec.retrieval.networks.inputs import PAIR_ABSTRACT, InputReader, Lengths, names_of
from citerec.retrieval.networks.networks import ENCODER, MEANS, TOKENIZER, Networks
from citerec.tests.datasets.conftest import write_corpus


@pytest.fixture(scope="module")
def reader(tiny_networks: Path) -> InputReader:
    return InputReader.open(tiny_networks / TOKENIZER, Lengths(before=4, after=3, citing_title=2, title=5))


def tokens(reader: InputReader, ids: list[int]) -> list[str]:
    return [str(reader.tokenizer.id_to_token(id)) for id in ids]


def test_a_query_has_what_is_nearest_to_the_citation(reader: InputReader) -> None:
    context = "we parse the graph of OTHERCIT trees as TARGETCIT and the speech of words"
    others = ["trees TARGETCIT", "trees", "a [SEP] in a text is text TARGETCIT"]
    read = reader.passages([context, *others], ["graph parsing of trees", "", "", ""])
    result, *short, literal = (tokens(reader, ids) for ids in read)
    assert " ".join(result) == "graph of trees as [MASK] and the speech [SEP] graph parsing"
    assert short == [["trees", "[MASK]"]] * 2 and "[SEP]" not in literal


def test_a_paper_has_title_names_and_the_beginning_of_its_abstract(reader: InputReader) -> None:
    long = "graph " * 9
    short = InputReader(reader.tokenizer, replace(reader.lengths, abstract=6))
    [result] = short.texts([long], ["lee et al 2003"], ["The graph. We parse trees and more"])
    texts = tokens(short, result.subwords)
    assert (
        texts[:6] == ["graph"] * 5 + ["."]
        and result.title == 5
        and "".join(texts[6:12]).startswith("l##e##e")
    )
    parts = [texts[a:b] for a, b in zip(result.bounds, result.bounds[1:], strict=False)]
    assert [part[0] for part in parts] == ["the", "we"] and sum(map(len, parts)) == 6
    assert texts[result.bounds[0] - 1] == "[SEP]"
    [bare] = reader.texts(["graph"], [""], [""])
    assert bare.title == 1 and bare.bounds == [] and short.texts(["graph"], [""], [""]) == [bare]
    assert InputReader(reader.tokenizer, Lengths(abstract=0)).texts(["graph"], [""], ["trees"]) == [bare]


@given(st.text(max_size=200), st.integers(1, 30))
def test_sentences_divide_the_abstract(reader: InputReader, abstract: str, most: int) -> None:
    own = InputReader(reader.tokenizer, Lengths(abstract=most))
    [result] = own.texts(["graph"], [""], [abstract])
    assert result.bounds == sorted(result.bounds)
    if abstract:
        assert result.bounds[-1] == len(result.subwords) and result.bounds[-1] - result.bounds[0] <= most


def test_pairs_have_two_segments(reader: InputReader) -> None:
    ids, types = reader.pair([7, 8], [9])
    assert tokens(reader, ids[:1] + ids[3:4] + ids[5:]) == ["[CLS]", "[SEP]", "[SEP]"]
    assert ids[1:3] == [7, 8] and types == [0, 0, 0, 0, 1, 1]


def test_pairs_have_the_beginning_of_an_abstract(reader: InputReader) -> None:
    for words in (0, PAIR_ABSTRACT, PAIR_ABSTRACT + 9):
        paper = reader.texts(["graph trees"], [""], ["graph " * words])[0].subwords
        assert reader.shortened(paper) == paper[: 4 + PAIR_ABSTRACT]


def test_names_are_those_of_authors(tmp_path: Path) -> None:
    papers = {"a": {"title": "Trees", "year": 2003, "authors": ["Blei", "Ng", "Jordan"]}, "b": {}}
    folder = write_corpus(tmp_path / "data", papers, {"c": ("test", "a", "b", "So it is TARGETCIT.")})
    corpus = open_corpus(folder, cache_dir=tmp_path / "cache", field="authors")
    assert [names_of(corpus, row) for row in (0, 1)] == ["Blei Ng et al 2003", ""]
    corpus.settings["field"] = "venue"
    assert names_of(corpus, 0) == "2003"


def test_damaged_tokenisers_are_named(tmp_path: Path, reader: InputReader) -> None:
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(InputError, match=r"a\.json: not a tokeniser"):
        InputReader.open(tmp_path / "a.json", Lengths())
    text = reader.tokenizer.to_str().replace("[MASK]", "[GAP]")
    (tmp_path / "b.json").write_text(text)
    with pytest.raises(InputError, match=r"b\.json: the tokeniser has no \[MASK\]"):
        InputReader.open(tmp_path / "b.json", Lengths())


def test_texts_of_a_kind_have_its_prefix_and_lose_the_nearest_mean(
    tiny_networks: Path, tmp_path: Path
) -> None:
    plain, random = Networks.open(tiny_networks), np.random.default_rng(0)
    for name in (ENCODER, TOKENIZER):
        (tmp_path / name).write_bytes((tiny_networks / name).read_bytes())
    reader = plain.reader
    text, prefix = reader.subwords(["trees of graphs", "we parse"])
    hidden = plain.encoder.run([reader.special["start"], *prefix, *text, reader.special["separator"]])
    near = hidden.mean(axis=0) + random.normal(size=plain.dim).astype(np.float32) / 10
    means = np.stack([near + 5, near, near - 5]).astype(np.float32)
    save_file({"query": means}, tmp_path / MEANS)
    manifest = json.loads((tiny_networks / "networks.json").read_text())
    manifest["files"] = {name: digest_file(tmp_path / name) for name in (ENCODER, TOKENIZER, MEANS)}
    manifest |= {"prefixes": {"query": "we parse"}, "scale": 1.5}
    (tmp_path / "networks.json").write_text(json.dumps(manifest))
    networks = Networks.open(tmp_path)
    [(vector, states)] = networks.read([text])
    expected = hidden - near
    mean = expected.mean(axis=0)
    np.testing.assert_allclose(vector, 1.5 * mean / np.linalg.norm(mean), atol=1e-5)
    assert len(states) == len(text)
    np.testing.assert_allclose(states[0], expected[3] / np.linalg.norm(expected[3]), atol=1e-5)
    papers = reader.texts(["trees of graphs"], [""], ["We parse."])
    changed, same = (own.encode(np.zeros(1, np.uint64), papers).vectors for own in (networks, plain))
    np.testing.assert_array_equal(changed, same)  # papers have neither
    assert networks.identity != plain.identity
