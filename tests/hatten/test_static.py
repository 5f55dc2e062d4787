"""The static model: encoding with and without torch, files, compression, training and retriever."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from citerec.base.arguments import read_arguments
from citerec.base.errors import InputError
from citerec.datasets.corpus import Corpus
from citerec.datasets.records import MARKER_WORDS, OTHER_WORD, TARGET_WORD
from citerec.hatten.documents import DocumentReader, Vocabulary
from citerec.hatten.static.compress import CompressSettings, compress
from citerec.hatten.static.model import (
    CONFIG,
    WORDS,
    OpenVocabulary,
    StaticModel,
    StaticRetriever,
)
from citerec.hatten.static.network import StaticEncoder
from citerec.retrieval.encoders.nets import weights_hash
from citerec.tests.hatten.made import documents, measured_recall
from citerec.tests.runs import history, train_twice
from citerec.train import train
from citerec.training.hub import WEIGHTS

pytestmark = pytest.mark.filterwarnings("ignore")


def random_static(words: list[str]) -> StaticModel:
    """Return a static model with random vectors and weights for these words."""
    vocabulary, random = Vocabulary(words), np.random.default_rng(0)
    table = random.standard_normal((len(vocabulary), 8)).astype(np.float32)
    encoder = StaticEncoder(table, vocabulary)
    with torch.no_grad():
        for weight in encoder.mean.parameters():
            noise = random.standard_normal(tuple(weight.shape)).astype(np.float32)
            weight.add_(torch.from_numpy(noise) * 0.2)
    return StaticModel(encoder.to_numpy(), vocabulary, 16, {"tokenizer": "default"})


def test_vectors_and_fingerprint_are_the_same_without_torch() -> None:
    vectors = np.random.default_rng(0).standard_normal((5, 6)).astype(np.float32)
    encoder = StaticEncoder(vectors, Vocabulary([TARGET_WORD, *"abc"])).eval()
    read = documents([[[2, 3], [4]], [[2], [], [3, 1, 4]]])
    with torch.inference_mode():
        np.testing.assert_array_equal(encoder.to_numpy().encode(read), encoder.encode(read).numpy())
    assert encoder.to_numpy().fingerprint == weights_hash(encoder)


@pytest.mark.parametrize(("kind", "error"), [("float32", 0.0), ("float16", 2e-3), ("int8", 0.03)])
def test_a_saved_model_loads_unchanged_up_to_rounding(
    tiny_corpus: Corpus, tmp_path: Path, kind: str, error: float
) -> None:
    model = replace(random_static(tiny_corpus.words), unknown_weight=0.5)
    replace(model, dtype=kind).save(tmp_path / "model")
    result = StaticModel.open(tmp_path / "model")
    assert result.unknown_weight == 0.5
    assert (result.vocabulary, result.max_tokens, result.about) == (model.vocabulary, 16, model.about)
    reader = DocumentReader(tiny_corpus, model.vocabulary, 16)
    ours, theirs = (each.encoder.encode(reader.papers(np.arange(12))) for each in (model, result))
    assert np.abs(ours - theirs).max() <= error
    assert (result.encoder.fingerprint == model.encoder.fingerprint) == (kind == "float32")
    # Saving a rounded model again loses nothing more.
    result.save(tmp_path / "again")
    assert StaticModel.open(tmp_path / "again").encoder.fingerprint == result.encoder.fingerprint


def test_a_model_can_keep_only_its_frequent_words_and_the_markers() -> None:
    model = random_static([*"abcdefg", TARGET_WORD, OTHER_WORD])
    cut = model.keep_frequent(4)  # <pad> is the first
    assert cut.vocabulary.words == ["<pad>", *"abc", TARGET_WORD, OTHER_WORD]
    whole = documents([[[1, 2], [3]], [[1], [2], [3, 8, 1, 9]]])
    own = documents([[[1, 2], [3]], [[1], [2], [3, 4, 1, 5]]])
    np.testing.assert_allclose(cut.encoder.encode(own), model.encoder.encode(whole), atol=1e-6)


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        (WEIGHTS, None, "is missing"),
        (WORDS, "[", "vocabulary.json: damaged"),
        (WORDS, '["a"]', "2 words for 3 vectors"),
        (CONFIG, '{"format": "other"}', "not a model of citerec train"),
        (CONFIG, '{"format": "static-1"}', "parts of the model are missing or inconsistent"),
        (CONFIG, None, "not a saved static model"),
    ],
)
def test_a_damaged_folder_is_a_clear_error(tmp_path: Path, file: str, content: str | None, said: str) -> None:
    folder = random_static(["a", "b"]).save(tmp_path / "model")
    (folder / file).unlink()
    if content is not None:
        (folder / file).write_text(content)
    with pytest.raises(InputError, match=said):
        StaticModel.open(folder)


def test_a_model_is_compressed_into_a_new_folder(tmp_path: Path) -> None:
    random_static([*"abcdefg"]).save(tmp_path / "static")
    folder = compress(tmp_path, tmp_path / "small", 4, "int8")  # the output folder of its training
    result = StaticModel.open(folder)
    assert (result.dtype, result.vocabulary.words) == ("int8", ["<pad>", *"abc"])
    assert result.about["compressed"] == "4 of 8 words, vectors in int8"
    with pytest.raises(InputError, match="already exists"):
        compress(tmp_path, folder, 4, "int8")
    for option, said in (("words=0", "words=0: must be"), ("vectors=int4", "vectors=int4: choose")):
        with pytest.raises(InputError, match=said):
            read_arguments(CompressSettings, [f"checkpoint={tmp_path}", "output=other", option])


def test_texts_that_share_unknown_words_are_closer(tiny_corpus: Corpus, tmp_path: Path) -> None:
    names = [word for word in tiny_corpus.words if word not in ("parsing", "trees", "graph")]
    model = replace(random_static(names), unknown_weight=1.5)
    encoder, vocabulary = model.with_unknown_words
    ids = vocabulary.lookup(["parsing", *names[:5], "trees", "graph", "parsing", "?!", ""])
    assert ids[1:6].tolist() == model.vocabulary.lookup(names[:5]).tolist()
    assert len({*ids[[0, 6, 7]]}) == 3 and ids[0] == ids[8] and ids[[0, 6, 7]].min() >= len(vocabulary)
    assert (ids[9:] == -1).all()
    assert (OpenVocabulary(["trees"]).lookup(MARKER_WORDS) == -1).all()
    rows = documents([[[1, 2, ids[0]]], [[3, ids[0]]], [[3]], [[1, 2]]])
    query, shares, lacks, plain = encoder.encode(rows)
    assert query @ shares > query @ lacks
    np.testing.assert_array_equal(plain, model.encoder.encode(documents([[[1, 2]]]))[0])
    model.save(tmp_path / "model")
    assert StaticRetriever(tmp_path / "model").vocabulary.lookup(["parsing"]) == ids[0]
    assert replace(model, unknown_weight=0).retriever().vocabulary.lookup(["parsing"]) == -1
    norms = np.linalg.norm(encoder.word_vectors[len(vocabulary) :], axis=1)
    np.testing.assert_allclose(norms, 1, atol=1e-5)


SMALL: dict[str, Any] = {
    "model": "static",
    "model.rounds": 3,
    "model.ema": 0.8,
    "model.max_tokens": 64,
    "model.batch.queries": 32,
    "model.batch.steps_per_round": 10,
    "model.mining.depth": 20,
    "model.schedule.warmup": 5,
    "model.optimizer.lr": 0.01,
}


def test_training_learns_and_resumes(demo: dict[str, Any], tmp_path: Path) -> None:
    saved, _ = train_twice(train, 23, tmp_path, demo, SMALL)
    model = StaticModel.open(saved.parent)
    assert (model.unknown_weight, model.near) == (1.5, (4, 12))  # by default
    assert saved.name == "static" and model.about["model"]["near"] == [4, 12]
    recall = [row["val/recall@10"] for row in history(saved.parent)]
    assert max(recall[1:]) > recall[0]
    # The retriever reads queries like the training did.
    known_only = replace(model, unknown_weight=0.0).retriever()
    assert measured_recall(known_only, demo) == pytest.approx(max(recall[1:]))
    assert json.loads((saved / CONFIG).read_text())["vectors"] == "float32"
