"""Save HAtten models, and load our own and the published checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from citerec.datasets.downloads import ensure_release
from citerec.datasets.errors import InputError
from citerec.datasets.releases import RELEASES
from citerec.hatten.documents import Vocabulary
from citerec.hatten.encoder import Encoder, HAttenEncoder, build_encoder
from citerec.hatten.pickles import load_word_list
from citerec.hatten.settings import EncoderConfig
from citerec.hatten.static import FILE
from citerec.retrieval.nets import weights_to_numpy, weights_to_torch
from citerec.training.checkpoint import find_saved, read_torch, save_torch
from citerec.training.hub import (
    WEIGHTS,
    Pretrained,
    check_consistent,
    is_hub_id,
    read_json,
    read_weights,
    write_json,
    write_weights,
)

FORMAT = "hatten-1"
"""Format name stored in each file."""

WORDS = "words.json"
"""Word list of a model saved as a folder."""

PUBLISHED = "hatten-acl200"
"""Name of the published checkpoint (datasets/releases.py)."""

REFERENCE_PAD_ID = 1
"""Id of `<pad>` in the released vocabulary."""


def open_model(
    checkpoint: str | Path, vocabulary: str | Path | None = None, cache_dir: str | Path = ".cache"
) -> Model:
    """Open a model from a file, a folder or the hub, or a published checkpoint.

    vocabulary: word list of a published checkpoint. checkpoint=PUBLISHED downloads both on first use.
    """
    if str(checkpoint) == PUBLISHED and not Path(checkpoint).exists():
        (weights,), (_, words) = RELEASES[PUBLISHED].files, RELEASES["reference-vectors"].files
        checkpoint = ensure_release(PUBLISHED, cache_dir) / weights
        vocabulary = vocabulary or ensure_release("reference-vectors", cache_dir) / words
    if vocabulary is None:
        folder = Path(checkpoint)
        if (folder / Model.settings_file).is_file() or (not folder.exists() and is_hub_id(checkpoint)):
            return Model.from_pretrained(checkpoint)
        return load_model(find_saved(checkpoint, FILE))
    return load_reference_model(checkpoint, vocabulary)


def load_reference_checkpoint(path: str | Path) -> HAttenEncoder:
    """Load a checkpoint written by the authors' code: {current_batch, document_encoder, optimizer}.

    Sizes are inferred from the weights' shapes. Returns a float32 encoder in evaluation mode on the CPU.
    """
    state = read_torch(path).get("document_encoder")
    if not isinstance(state, dict):
        raise InputError(
            f"{path}: no 'document_encoder' in it; expected a checkpoint of the published HAtten code"
        )
    words, documents = "single_paragraph_encoder.", "multiple_paragraph_encoder."
    with check_consistent(path):
        table = state[f"{words}pre_encoding.word_embedding"]
        types = state[f"{documents}type_embedding.weight"]
        word_positions = state[f"{words}pre_encoding.positional_encoding.pe"]
        paragraph_positions = state[f"{documents}positional_encoding.pe"]
        hidden, dim = state[f"{words}encoder_layer_list.0.feed_forward.ln1.weight"].shape
        config = EncoderConfig(
            dim=dim,
            heads=state[f"{words}mha_pool.ln_attention_score.weight"].shape[0],
            hidden=hidden,
            layers=len({key.split(".")[2] for key in state if key.startswith(f"{words}encoder_layer_list.")}),
            max_tokens=word_positions.shape[1],
            max_paragraphs=paragraph_positions.shape[1],
            paragraph_types=types.shape[0],
            trainable_vectors="none",
        )
        encoder = HAttenEncoder(config, table.numpy(), pad_id=REFERENCE_PAD_ID)
        encoder.type_vectors.load_state_dict({"weight": types})
        for level, prefix, positions in (
            (encoder.word_level, words, word_positions),
            (encoder.document_level, documents, paragraph_positions),
        ):
            level.load_state_dict(_convert_level(state, prefix, config.layers))
            level.positions.copy_(positions[0])
    return encoder.eval()


def load_reference_model(checkpoint: str | Path, vocabulary: str | Path) -> Model:
    """Load a published checkpoint with its word list, the pickle `vocabulary_200dim.pkl` of the release."""
    encoder = load_reference_checkpoint(checkpoint)
    words = Vocabulary(load_word_list(vocabulary))
    if len(words) != len(encoder.word_vectors):
        raise InputError(
            f"{vocabulary}: {len(words)} words for the {len(encoder.word_vectors)} vectors of {checkpoint}; "
            "use the word list that the checkpoint was trained with"
        )
    encoder.pad_id = words.pad_id
    return Model(encoder, words, {"checkpoint": str(checkpoint), "tokenizer": "reference"})


LAYER_NAMES = {
    "out": "mha.ln_out",
    "norm1": "norm1",
    "up": "feed_forward.ln1",
    "down": "feed_forward.ln2",
    "norm2": "norm2",
}
"""Names in our transformer layer -> names in the published one."""


def _convert_level(state: dict[str, Tensor], prefix: str, layers: int) -> dict[str, Tensor]:
    """Convert the published weights under `prefix` to the state dict of a Level."""
    out = {}
    for kind in ("weight", "bias"):
        for number in range(layers):
            theirs, ours = f"{prefix}encoder_layer_list.{number}.", f"layers.{number}."
            out[f"{ours}qkv.{kind}"] = torch.cat([state[f"{theirs}mha.ln_{part}.{kind}"] for part in "qkv"])
            for our_name, their_name in LAYER_NAMES.items():
                out[f"{ours}{our_name}.{kind}"] = state[f"{theirs}{their_name}.{kind}"]
        for our_name, their_name in (("score", "attention_score"), ("value", "value"), ("out", "out")):
            out[f"pool.{our_name}.{kind}"] = state[f"{prefix}mha_pool.ln_{their_name}.{kind}"]
    return out


@dataclass(frozen=True)
class Model(Pretrained):
    """An encoder with its vocabulary, which is all that encoding a corpus needs, and its training record."""

    settings_file = "hatten.json"
    title = "HAtten model"
    description = """\
HAtten finds candidates for a missing citation. It embeds the passage, together with the title and abstract of
the citing paper, and every paper that may be cited, and recommends the nearest papers by cosine similarity
(Gu, Gao and Hahnloser, [ECIR 2022](https://arxiv.org/abs/2112.01206)).

```sh
citerec evaluate benchmark=prefetch retriever=hatten checkpoint={place} data=custom data.dir=DIR
```"""
    tags = ("hatten", "sentence-similarity")

    encoder: HAttenEncoder
    vocabulary: Vocabulary
    about: dict[str, Any]

    def write(self, folder: Path) -> None:
        write_json(folder / self.settings_file, {"format": FORMAT, "config": asdict(self.encoder.config)})
        write_json(folder / WORDS, self.vocabulary.words)
        write_weights(folder / WEIGHTS, weights_to_numpy(self.encoder))

    @classmethod
    def read(cls, folder: Path, about: dict[str, Any]) -> Model:
        settings = read_json(folder / cls.settings_file, dict)
        if settings.get("format") != FORMAT:
            raise InputError(f"{folder / cls.settings_file}: not a {cls.title} in the format {FORMAT}")
        words, weights = read_json(folder / WORDS, list), weights_to_torch(read_weights(folder / WEIGHTS))
        return _build_model({**settings, "words": words, "weights": weights, "about": about}, folder)


def save_model(model: Model, path: Path) -> None:
    """Write a model atomically to a single torch file of plain values."""
    encoder = model.encoder
    content = {
        "format": FORMAT,
        "config": asdict(encoder.config),
        "words": model.vocabulary.words,
        "weights": encoder.state_dict(),
        "about": model.about,
    }
    save_torch(content, path)


def make_saver(vocabulary: Vocabulary) -> Callable[[Encoder, dict[str, Any], Path], None]:
    """Return the `save` function of hatten.recipe.Parts for a HAtten encoder with this vocabulary."""

    def save(trained: Encoder, about: dict[str, Any], path: Path) -> None:
        assert isinstance(trained, HAttenEncoder)
        save_model(Model(trained, vocabulary, about), path)

    return save


def load_model(path: str | Path) -> Model:
    """Load a file written by `save_model`, in evaluation mode on the CPU; InputError for any other file."""
    content = read_torch(path)
    if content.get("format") != FORMAT:
        hint = (
            "; a published checkpoint needs its word list: retriever.vocabulary=FILE"
            if "document_encoder" in content
            else ""
        )
        raise InputError(f"{path}: not a checkpoint of train.py model=hatten{hint}")
    return _build_model(content, path)


def _build_model(content: dict[str, Any], path: str | Path) -> Model:
    """Build a model from the content of a file or folder; InputError if its parts are inconsistent."""
    with check_consistent(path):
        # Files from before `input_dropout` existed were trained with the same rate everywhere.
        config = EncoderConfig(**{"input_dropout": content["config"]["dropout"], **content["config"]})
        weights, about = content["weights"], dict(content["about"])
        vocabulary = Vocabulary.from_saved(content["words"], len(weights["word_vectors"]))
        encoder = build_encoder(config, weights["word_vectors"].numpy(), vocabulary)
        encoder.load_state_dict(weights)
        encoder.mean_only = encoder.levels_are_zero  # skip levels that contribute nothing
    return Model(encoder.eval(), vocabulary, about)
