"""Checkpoints: round trips, rejection of damaged or inconsistent files, the published checkpoint."""

from __future__ import annotations

import errno
import os
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from citerec.base.errors import InputError
from citerec.datasets.published.releases import RELEASES
from citerec.hatten.encoder import HAttenEncoder
from citerec.hatten.model import HAtten, HAttenRetriever
from citerec.hatten.published.checkpoint import load_reference_checkpoint, load_reference_model
from citerec.tests.datasets.conftest import archive_of
from citerec.tests.hatten.made import Evil, documents, random_model

WORDS = ["deep", "nets", "targetcit", "learn", "othercit"]


def model(**options: Any) -> HAtten:
    return random_model(WORDS, {"round": 3, "val/mrr": 0.5}, **options)


def vectors(encoder: HAttenEncoder) -> torch.Tensor:
    with torch.no_grad():
        return encoder.encode(documents([[[1, 2], [2], [4, 3, 5, 1]], [[2]]]))


@pytest.mark.parametrize(
    "options",
    [{}, {"trainable_vectors": "all", "initial": "mean"}, {"layers": 2}],
    ids=["paper", "from a mean", "two layers"],
)
def test_a_saved_model_loads_unchanged(tmp_path: Path, options: dict[str, Any]) -> None:
    before = model(**options)
    after = HAtten.open(before.save(tmp_path / "new" / "hatten"))
    assert torch.equal(vectors(after.encoder), vectors(before.encoder))
    assert (after.vocabulary, after.about) == (before.vocabulary, before.about)
    assert after.encoder.config == before.encoder.config
    assert not after.encoder.training
    assert os.listdir(tmp_path / "new") == ["hatten"]
    assert HAtten.open(tmp_path / "new").about == before.about


def test_a_vocabulary_with_padding_at_another_index_loads_unchanged(tmp_path: Path) -> None:
    random_model(["<eos>", "<pad>", "deep", "targetcit"]).save(tmp_path / "hatten")
    after = HAtten.open(tmp_path / "hatten")
    assert after.vocabulary.pad_id == 1


def test_saving_over_a_model_keeps_it_when_the_device_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "hatten"
    model().save(place)
    before = {path.name: path.read_bytes() for path in place.iterdir()}

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "no space", str(place))

    with monkeypatch.context() as patch, pytest.raises(OSError):
        patch.setattr("citerec.training.hub.write_weights", full)
        random_model(WORDS).save(place)
    assert {path.name: path.read_bytes() for path in place.iterdir()} == before
    assert os.listdir(tmp_path) == ["hatten"]


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_a_missing_file_and_a_file_of_another_kind_are_clear_errors(tmp_path: Path) -> None:
    path = tmp_path / "other.pt"
    with pytest.raises(InputError, match="no such HAtten model folder"):
        HAtten.open(path)
    for content in (b"", b"text\n", b"PK\x03\x04", pickle.dumps({"format": "hatten-2"}), os.urandom(1000)):
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"other\.pt: not a torch checkpoint"):
            load_reference_checkpoint(path)
        with pytest.raises(InputError, match=r"other\.pt: a file, not a HAtten model folder"):
            HAtten.open(path)
    torch.save([1, 2], path)
    with pytest.raises(InputError, match=r"other\.pt: must contain a dictionary, not a list"):
        load_reference_checkpoint(path)


@pytest.mark.parametrize("legacy", [False, True])
def test_a_checkpoint_cannot_run_code(tmp_path: Path, legacy: bool) -> None:
    path, made = tmp_path / "evil.ckpt", tmp_path / "made"
    torch.save(
        {"document_encoder": Evil(os.mkdir, str(made))}, path, _use_new_zipfile_serialization=not legacy
    )
    with pytest.raises(InputError, match=r"evil\.ckpt: not a torch checkpoint of plain weights"):
        load_reference_checkpoint(path)
    assert not made.exists()
    torch.load(path, weights_only=False)  # what it would have done
    assert made.exists()


def reference_content(words: int = 6, dim: int = 8, layers: int = 1) -> dict[str, Any]:
    """Return a small checkpoint in the layout of the authors' code."""
    random = torch.Generator().manual_seed(0)
    state: dict[str, torch.Tensor] = {}

    def linear(name: str, out: int, inputs: int = dim) -> None:
        state[f"{name}.weight"] = torch.randn(out, inputs, generator=random)
        state[f"{name}.bias"] = torch.randn(out, generator=random)

    for part, positions in (("single_paragraph_encoder.", 16), ("multiple_paragraph_encoder.", 3)):
        place = "pre_encoding.positional_encoding.pe" if positions == 16 else "positional_encoding.pe"
        state[f"{part}{place}"] = torch.randn(1, positions, dim, generator=random)
        state[f"{part}type_embedding.weight"] = torch.randn(20, dim, generator=random)
        for number in range(layers):
            layer = f"{part}encoder_layer_list.{number}."
            for name in ("mha.ln_q", "mha.ln_k", "mha.ln_v", "mha.ln_out"):
                linear(layer + name, dim)
            linear(f"{layer}feed_forward.ln1", 6)
            linear(f"{layer}feed_forward.ln2", dim, 6)
            for name in ("norm1", "norm2"):
                linear(layer + name, dim)
                state[f"{layer}{name}.weight"] = torch.ones(dim)
        for name, out in (("attention_score", 2), ("value", dim), ("out", dim)):
            linear(f"{part}mha_pool.ln_{name}", out)
    state["single_paragraph_encoder.pre_encoding.word_embedding"] = torch.randn(words, dim, generator=random)
    return {"current_batch": 1, "document_encoder": state, "optimizer": {}}


def reference(folder: Path, content: dict[str, Any]) -> Path:
    torch.save(content, folder / "published.pt")
    return folder / "published.pt"


@pytest.mark.parametrize("layers", [1, 2])
def test_the_sizes_of_a_published_checkpoint_are_inferred(tmp_path: Path, layers: int) -> None:
    content = reference_content(layers=layers)
    encoder = load_reference_checkpoint(reference(tmp_path, content))
    config = encoder.config
    assert (config.dim, config.heads, config.hidden, config.layers) == (8, 2, 6, layers)
    assert (config.max_tokens, config.max_paragraphs, config.paragraph_types) == (16, 3, 20)
    assert vectors(encoder).isfinite().all()
    given_words = content["document_encoder"]["single_paragraph_encoder.pre_encoding.word_embedding"]
    assert torch.equal(encoder.word_vectors, given_words)


def test_an_inconsistent_published_checkpoint_is_a_clear_error(tmp_path: Path) -> None:
    words, documents = "single_paragraph_encoder.", "multiple_paragraph_encoder."
    table, heads = f"{words}pre_encoding.word_embedding", f"{words}mha_pool.ln_attention_score.weight"
    for name, value in (  # None: missing
        (table, None),
        (f"{documents}encoder_layer_list.0.mha.ln_k.bias", None),
        (f"{words}encoder_layer_list.0.feed_forward.ln1.weight", None),
        (table, torch.zeros(6, 4)),
        (table, torch.zeros(6)),
        (table, "words"),
        (heads, torch.zeros(3, 8)),
        (heads, torch.zeros(0, 8)),
        (f"{documents}positional_encoding.pe", torch.zeros(3)),
        (f"{documents}type_embedding.weight", torch.zeros(20, 9)),
        (1, 2),
    ):
        content = reference_content()
        content["document_encoder"].pop(name, None)
        content["document_encoder"] |= {} if value is None else {name: value}
        with pytest.raises(InputError, match=r"published\.pt: "):
            load_reference_checkpoint(reference(tmp_path, content))


def test_a_published_checkpoint_needs_its_own_word_list(tmp_path: Path) -> None:
    path, words = reference(tmp_path, reference_content()), tmp_path / "words.pkl"
    words.write_bytes(pickle.dumps(["<eos>", "deep", "<pad>", "nets", "learn", "<unk>"]))
    _, vocabulary = load_reference_model(path, words)
    assert vocabulary.pad_id == 2 and vocabulary.lookup(["nets"]).tolist() == [3]
    assert HAttenRetriever(path, words).about["tokenizer"] == "reference"
    words.write_bytes(pickle.dumps(["<pad>", "deep"]))
    with pytest.raises(InputError, match=r"words\.pkl: 2 words for the 6 vectors of .*published\.pt"):
        load_reference_model(path, words)
    with pytest.raises(InputError, match=r"\.pt: a file, .* its word list: retriever\.vocabulary=FILE"):
        HAtten.open(path)
    torch.save({"weights": {}}, path)
    with pytest.raises(InputError, match=r"published\.pt: no 'document_encoder' in it"):
        load_reference_model(path, words)


def test_the_published_checkpoint_is_downloaded_by_name(
    tmp_path: Path, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = ["<eos>", "deep", "<pad>", "nets", "learn", "<unk>"]
    files = {"unigram_embeddings_200dim.pkl": b"", "vocabulary_200dim.pkl": pickle.dumps(listed)}
    words = archive_of(files)
    weights = reference(tmp_path, reference_content()).read_bytes()
    for name, data in (("hatten-acl200", weights), ("reference-vectors", words)):
        address = server.put(name, data)
        monkeypatch.setitem(RELEASES, name, replace(RELEASES[name], addresses=(address,)))
    for _ in range(2):
        result = HAttenRetriever("hatten-acl200", cache_dir=tmp_path / "cache")
        assert result.vocabulary.words == listed
    assert len(server.requests) == 2
