"""Reads the rerankers published by Gu et al. 2022: fine-tuned SciBERT, in the authors' own format."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from citerec.base.errors import InputError, error_text
from citerec.base.files import cache_folder
from citerec.datasets.published.downloads import ensure_release
from citerec.datasets.published.releases import RELEASES
from citerec.rerank.cross_encoder.network import CrossEncoder, add_tokens
from citerec.rerank.settings import PairSettings
from citerec.retrieval.encoders.encoder import max_positions, model_folder
from citerec.retrieval.settings import ArticleConfig
from citerec.training.checkpoint import read_torch

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedTokenizerFast

PUBLISHED = "scibert-acl200"
"""Name of the published checkpoint (datasets/published/releases.py)."""

SCIBERT = ArticleConfig("scibert", hub="allenai/scibert_scivocab_uncased")

UNUSED = ("pooler.", "embeddings.position_ids")
"""Prefixes of weights that no score depends on."""


def load_reference(checkpoint: str | Path, encoder: str | Path | None = None) -> CrossEncoder:
    """Load a torch file of {current_batch, scorer, optimizer}, or the one named PUBLISHED, which is
    downloaded once; the model is in evaluation mode and in float32.

    The scorer is a state dict of `bert_model.*` and `ln_score.*`; only tensors and plain values are
    unpickled. encoder: folder with the configuration and tokeniser of the transformer that was fine-tuned;
    None means SciBERT, from the cache or downloaded. Raises InputError if a file is missing, invalid or does
    not match.
    """
    from transformers import AutoModel

    if str(checkpoint) == PUBLISHED and not Path(checkpoint).exists():
        (file,) = RELEASES[PUBLISHED].files
        checkpoint = ensure_release(PUBLISHED, cache_folder()) / file
    scorer = read_torch(checkpoint).get("scorer")
    if not isinstance(scorer, dict) or not all(isinstance(value, Tensor) for value in scorer.values()):
        raise InputError(
            f"{checkpoint}: no weights under 'scorer'; expected a checkpoint of the published reranker"
        )
    # Training on several GPUs wraps the network, which prefixes its weights.
    state = {str(name).removeprefix("module."): value for name, value in scorer.items()}
    folder = Path(encoder) if encoder is not None else model_folder(SCIBERT)
    config, tokenizer = _load_config(folder)
    add_tokens(tokenizer)
    table = state.get("bert_model.embeddings.word_embeddings.weight")
    if table is None or len(table) != len(tokenizer):
        count = "no" if table is None else len(table)
        raise InputError(
            f"{checkpoint}: has {count} subword vectors, but the tokeniser in {folder} has {len(tokenizer)} "
            "subwords; set scoring.encoder=FOLDER to the transformer that was fine-tuned"
        )
    config.vocab_size = len(tokenizer)
    model = AutoModel.from_config(config)
    if getattr(model, "pooler", None) is not None:
        model.pooler = None
    pairs = PairSettings.reference(min(512, max_positions(model) or 512))
    reranker = CrossEncoder(model, tokenizer, pairs, head="sigmoid")
    try:
        for prefix, module in (("bert_model.", model), ("ln_score.", reranker.score)):
            weights = {name.removeprefix(prefix): state[name] for name in state if name.startswith(prefix)}
            module.load_state_dict(
                {name: value.float() for name, value in weights.items() if not name.startswith(UNUSED)}
            )
    except RuntimeError as error:
        raise InputError(
            f"{checkpoint}: its weights do not fit the transformer in {folder} ({error_text(error)})"
        ) from None
    return reranker.eval()


def _load_config(folder: Path) -> tuple[PretrainedConfig, PreTrainedTokenizerFast]:
    """Load the configuration and tokeniser of a model; its weights are not needed."""
    from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizerFast

    try:
        config: Any = AutoConfig.from_pretrained(folder, local_files_only=True)
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        if not isinstance(tokenizer, PreTrainedTokenizerFast) or not len(tokenizer):
            raise ValueError("no fast tokeniser")
    except Exception as error:  # damaged files raise nearly anything
        raise InputError(
            f"{folder}: cannot read the configuration and fast tokeniser of a transformer "
            f"({error_text(error)}); set scoring.encoder=FOLDER to the one that was fine-tuned"
        ) from None
    return config, tokenizer
