"""Cross-encoders of sentence-transformers: ours are saved so that it opens them, and theirs are opened here.

Theirs are transformers with a classification head of one label, as on the hub. The package is not needed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from citerec.base.errors import InputError
from citerec.rerank.cross_encoder.network import SETTINGS, CrossEncoder, extend_vocabulary, subword_vectors
from citerec.rerank.settings import PairSettings
from citerec.retrieval.encoders.encoder import check_fast, load_transformer, max_positions
from citerec.retrieval.encoders.nets import computing_in
from citerec.retrieval.encoders.sentence_transformers import MODEL, read_limit, read_prompts
from citerec.training.hub import download_model, is_hub_id, read_json

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

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
        kinds = read_json(folder / CONFIG, dict).get("architectures") or []
        is_list = isinstance(kinds, list)
        if not is_list or not any(str(kind).endswith("ForSequenceClassification") for kind in kinds):
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
