"""Reads rerankers of others: those that Gu et al. 2022 published (fine-tuned SciBERT, in their own format),
and cross-encoders of sentence-transformers, transformers with a classification head of one label, as on the
hub. Ours are saved so that it opens them; the package is not needed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from citerec.base.errors import InputError, error_text
from citerec.base.files import cache_folder
from citerec.datasets.published.downloads import ensure_release
from citerec.datasets.published.releases import RELEASES
from citerec.rerank.cross_encoder.network import (
    SETTINGS,
    CrossEncoder,
    add_tokens,
    extend_vocabulary,
    subword_vectors,
)
from citerec.rerank.settings import PairSettings
from citerec.retrieval.encoders.encoder import (
    check_fast,
    download_encoder,
    find_folder,
    load_transformer,
    max_positions,
)
from citerec.retrieval.encoders.nets import computing_in
from citerec.retrieval.encoders.sentence_transformers import MODEL, read_limit, read_prompts
from citerec.retrieval.settings import ArticleConfig
from citerec.training.hub import download_model, is_hub_id, read_torch

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedTokenizerFast

PUBLISHED = "scibert-acl200"
"""Name of the published checkpoint (datasets/published/releases.py)."""

SCIBERT = ArticleConfig("scibert", hub="allenai/scibert_scivocab_uncased")

UNUSED = ("pooler.", "embeddings.position_ids")
"""Prefixes of weights that no score depends on."""


def open_reference(checkpoint: str | Path, encoder: str | Path | None = None) -> CrossEncoder:
    """Load a published reranker from a file, or by the name PUBLISHED, which is downloaded once.

    encoder: as for `load_reference`. Raises InputError if a file is unavailable or invalid.
    """
    if str(checkpoint) == PUBLISHED and not Path(checkpoint).exists():
        (file,) = RELEASES[PUBLISHED].files
        checkpoint = ensure_release(PUBLISHED, cache_folder()) / file
    return load_reference(checkpoint, encoder)


def load_reference(checkpoint: str | Path, encoder: str | Path | None = None) -> CrossEncoder:
    """Load a torch file of {current_batch, scorer, optimizer}; in evaluation mode, in float32.

    The scorer is a state dict of `bert_model.*` and `ln_score.*`; only tensors and plain values are
    unpickled. encoder: folder with the configuration and tokeniser of the transformer that was fine-tuned;
    None means SciBERT, from the cache or downloaded. Raises InputError if they are invalid or do not match.
    """
    from transformers import AutoModel

    scorer = read_torch(checkpoint).get("scorer")
    if not isinstance(scorer, dict) or not all(isinstance(value, Tensor) for value in scorer.values()):
        raise InputError(
            f"{checkpoint}: no weights under 'scorer'; expected a checkpoint of the published reranker"
        )
    # Training on several GPUs wraps the network, which prefixes its weights.
    state = {str(name).removeprefix("module."): value for name, value in scorer.items()}
    folder = Path(encoder) if encoder is not None else find_folder(SCIBERT) or download_encoder(SCIBERT)
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


CONFIG = "config.json"
LONGEST = 512
"""Most tokens of a pair, whatever a model can read."""


class Classifier(CrossEncoder):
    """A transformer with a classification head of its own, whose one logit is the score."""

    settings_file = CONFIG
    title = "cross-encoder"

    def __init__(self, model: Any, tokenizer: PreTrainedTokenizerFast, config: PairSettings) -> None:
        super().__init__(model, tokenizer, config, head="linear")
        self.score: Any = nn.Identity()
        self._has_token_types &= "token_type_ids" in tokenizer.model_input_names

    def forward(self, input_ids: Tensor, token_type_ids: Tensor, attention_mask: Tensor) -> Tensor:
        weights = subword_vectors(self.model)
        ids, types, mask = (part.to(weights.device) for part in (input_ids, token_type_ids, attention_mask))
        more = {"token_type_ids": types} if self._has_token_types else {}
        with computing_in(self.precision, weights):
            logits: Tensor = self.model(input_ids=ids, attention_mask=mask, **more).logits
        return logits[:, 0].float()

    def write(self, folder: Path) -> None:
        self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)

    @classmethod
    def read(cls, folder: Path, about: dict[str, Any]) -> Classifier:
        """Load a model; InputError if it is damaged, or not a cross-encoder with one score."""
        kinds = _architectures(folder / CONFIG)
        if not any(kind.endswith("ForSequenceClassification") for kind in kinds):
            raise InputError(
                f"{folder}: neither a saved reranker (no {SETTINGS}) nor a cross-encoder of "
                f"sentence-transformers ({CONFIG}: architectures {kinds})"
            )
        model, tokenizer, _ = load_transformer(folder, "AutoModelForSequenceClassification")
        if model.config.num_labels != 1:
            raise InputError(
                f"{folder}: the model gives {model.config.num_labels} scores for a pair, not one"
            )
        check_fast(tokenizer, folder)
        if any(read_prompts(folder)):
            raise InputError(f"{folder / MODEL}: prompts of cross-encoders are not supported")
        limits = (LONGEST, max_positions(model.base_model) or LONGEST, read_limit(folder))
        extend_vocabulary(model, tokenizer)
        pairs = PairSettings(max_tokens=min(limits), other_citations="drop")
        made = cls(model, tokenizer, pairs)
        made.about = about
        return made.eval()


def open_cross_encoder(place: str | Path) -> CrossEncoder:
    """Open a saved reranker or a cross-encoder of sentence-transformers, by its folder or hub id.

    InputError in one line if it is missing, damaged or another kind of model.
    """
    folder = Path(place)
    if not folder.exists() and is_hub_id(place):
        folder = download_model(str(place), CONFIG, Classifier.title)
    if (folder / CONFIG).is_file() and not (folder / SETTINGS).is_file():
        return Classifier.open(folder)
    return CrossEncoder.open(place)


def _architectures(path: Path) -> list[str]:
    try:
        return [str(kind) for kind in json.loads(path.read_text("utf-8")).get("architectures") or []]
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise InputError(f"{path}: damaged ({error_text(error)})") from None
