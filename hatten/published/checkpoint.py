"""The checkpoints that the authors of HAtten published, converted to our encoder."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from citerec.base.errors import InputError
from citerec.datasets.published.downloads import ensure_release
from citerec.datasets.published.releases import RELEASES
from citerec.hatten.documents import Vocabulary
from citerec.hatten.encoder import HAttenEncoder
from citerec.hatten.published.pickles import load_word_list
from citerec.hatten.settings import EncoderConfig
from citerec.training.checkpoint import read_torch
from citerec.training.hub import check_consistent

PUBLISHED = "hatten-acl200"
"""Name of the published checkpoint (datasets/published/releases.py)."""


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
        encoder = HAttenEncoder(config, table.numpy())
        encoder.type_vectors.load_state_dict({"weight": types})
        for level, prefix, positions in (
            (encoder.word_level, words, word_positions),
            (encoder.document_level, documents, paragraph_positions),
        ):
            level.load_state_dict(_convert_level(state, prefix, config.layers))
            level.positions.copy_(positions[0])
    return encoder.eval()


def load_reference_model(
    checkpoint: str | Path, vocabulary: str | Path | None = None, cache_dir: str | Path | None = None
) -> tuple[HAttenEncoder, Vocabulary]:
    """Load a published checkpoint with its word list, the pickle `vocabulary_200dim.pkl` of the release.

    checkpoint=PUBLISHED is downloaded on first use, with its word list.
    """
    if str(checkpoint) == PUBLISHED and not Path(checkpoint).exists():
        (weights,), (_, listed) = RELEASES[PUBLISHED].files, RELEASES["reference-vectors"].files
        checkpoint = ensure_release(PUBLISHED, cache_dir) / weights
        vocabulary = vocabulary or ensure_release("reference-vectors", cache_dir) / listed
    if vocabulary is None:
        raise InputError(
            f"{checkpoint}: a published checkpoint needs its word list: retriever.vocabulary=FILE"
        )
    encoder = load_reference_checkpoint(checkpoint)
    words = Vocabulary(load_word_list(vocabulary))
    if len(words) != len(encoder.word_vectors):
        raise InputError(
            f"{vocabulary}: {len(words)} words for the {len(encoder.word_vectors)} vectors of {checkpoint}; "
            "use the word list that the checkpoint was trained with"
        )
    return encoder, words


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
