"""The rerankers that Gu et al. 2022 published: fine-tuned SciBERT, in files of the authors' own code."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from datasets.download import ensure_release
from datasets.errors import InputError, error_text
from datasets.files import cache_folder
from datasets.releases import RELEASES
from rerank.cross_encoder import CrossEncoder, add_tokens, check_finite
from rerank.settings import PairSettings
from retrieval.encoder import download_encoder, find_folder, max_positions
from retrieval.settings import ArticleConfig
from training.checkpoint import read_torch

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedTokenizerFast

PUBLISHED = "scibert-acl200"
"""The name of the published checkpoint (datasets/releases.py)."""

SCIBERT = ArticleConfig("scibert", hub="allenai/scibert_scivocab_uncased")

UNUSED = ("pooler.", "embeddings.position_ids")
"""Prefixes of weights that no score depends on."""


def open_reference(checkpoint: str | Path, encoder: str | Path | None = None) -> CrossEncoder:
    """The model of a file, or, by the name PUBLISHED, of the file that is downloaded once into the cache.

    encoder: as for `load_reference`. InputError if it cannot be had.
    """
    if str(checkpoint) == PUBLISHED and not Path(checkpoint).exists():
        (file,) = RELEASES[PUBLISHED].files
        checkpoint = ensure_release(PUBLISHED, cache_folder()) / file
    return load_reference(checkpoint, encoder)


def load_reference(checkpoint: str | Path, encoder: str | Path | None = None) -> CrossEncoder:
    """The model of {current_batch, scorer, optimizer}, a torch file; in evaluation mode in float32.

    scorer: a state dict of `bert_model.*` and `ln_score.*`. encoder: a folder with configuration and
    tokeniser of the transformer that was fine-tuned; None: SciBERT, from the cache or downloaded. Only
    tensors and plain values are unpickled. InputError if file and encoder are not what they should be.
    """
    from transformers import AutoModel

    scorer = read_torch(checkpoint).get("scorer")
    if not isinstance(scorer, dict) or not all(isinstance(value, Tensor) for value in scorer.values()):
        raise InputError(
            f"{checkpoint}: no weights under 'scorer'; expected a checkpoint of the published reranker"
        )
    # Trained on several GPUs, the net was the `module` of another one.
    state = {str(name).removeprefix("module."): value for name, value in scorer.items()}
    folder = Path(encoder) if encoder is not None else find_folder(SCIBERT) or download_encoder(SCIBERT)
    config, tokenizer = _configured(folder)
    add_tokens(tokenizer)
    table = state.get("bert_model.embeddings.word_embeddings.weight")
    if table is None or len(table) != len(tokenizer):
        known = "none" if table is None else len(table)
        raise InputError(
            f"{checkpoint}: has vectors of {known} subwords, the tokeniser of {folder} has {len(tokenizer)}; "
            "name the folder of the transformer that was fine-tuned: scoring.encoder=FOLDER"
        )
    config.vocab_size = len(tokenizer)
    model = AutoModel.from_config(config)
    if getattr(model, "pooler", None) is not None:
        model.pooler = None
    pairs = PairSettings.reference(min(512, max_positions(model) or 512))
    found = CrossEncoder(model, tokenizer, pairs, head="sigmoid")
    try:
        for prefix, net in (("bert_model.", model), ("ln_score.", found.score)):
            inner = {name.removeprefix(prefix): state[name] for name in state if name.startswith(prefix)}
            net.load_state_dict(
                {name: value.float() for name, value in inner.items() if not name.startswith(UNUSED)}
            )
    except RuntimeError as error:
        raise InputError(
            f"{checkpoint}: not weights of the transformer in {folder} ({error_text(error)})"
        ) from None
    check_finite(found, checkpoint)
    return found.eval()


def _configured(folder: Path) -> tuple[PretrainedConfig, PreTrainedTokenizerFast]:
    """Configuration and tokeniser of a model; its weights need not be there."""
    from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizerFast

    if not (folder / "config.json").is_file():
        raise InputError(
            f"{folder}: no config.json in it; a published reranker needs configuration and tokeniser of the "
            "transformer that was fine-tuned: scoring.encoder=FOLDER"
        )
    try:
        config: Any = AutoConfig.from_pretrained(folder, local_files_only=True)
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # damaged files raise nearly anything
        raise InputError(
            f"{folder}: configuration or tokeniser cannot be read ({error_text(error)})"
        ) from None
    if not isinstance(tokenizer, PreTrainedTokenizerFast) or not len(tokenizer):
        raise InputError(f"{folder}: there is no fast tokeniser in it (tokenizer.json or vocab.txt)")
    return config, tokenizer
