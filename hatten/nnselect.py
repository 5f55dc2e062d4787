"""NNSelect: averaged word vectors with trained magnitudes (Bhagavatula et al. 2018, section 3.1).

As Gu et al. 2022 compare HAtten with it: by the batches, mining and loss of HAtten, `python train.py
model=nnselect`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from datasets.errors import InputError
from datasets.store import Corpus
from hatten.averages import AveragesEncoder, check_weighting, weighted
from hatten.checkpoint import UNFIT, read_torch, save_torch
from hatten.dense import WordsRetriever
from hatten.documents import DocumentReader
from hatten.options import at_least_1, own_options
from hatten.recipe import Encoder, Parts, Recipe
from hatten.start import WordsConfig, starting_words
from hatten.vocabulary import Vocabulary
from retrieval.indexes import IndexConfig
from retrieval.profiles import ProfileConfig

FORMAT = "nnselect-1"


@dataclass(frozen=True)
class NNSelectConfig:
    """What it starts from, and reads."""

    weighting: str
    """magnitudes to begin with: mean (the lengths of the vectors) or idf (those by idf)"""
    max_tokens: int
    """words that are read of a field"""

    def __post_init__(self) -> None:
        at_least_1(self, "model", "max_tokens")
        check_weighting(self.weighting, "model.weighting")


class NNSelect(Recipe):
    """Trains the magnitudes of words and the weights of fields."""

    file = "nnselect.ckpt"
    groups = ("embeddings",)

    def __init__(self, model: Mapping[str, Any]) -> None:
        self.words = own_options(WordsConfig, model)
        self.config = own_options(NNSelectConfig, model)

    def build(self, corpus: Corpus, config: DictConfig) -> Parts:
        name, vocabulary, table = starting_words(config.embeddings, corpus, self.words)
        encoder = AveragesEncoder(weighted(table, self.config.weighting, corpus, vocabulary))
        encoder.mean.dropout = self.words.word_dropout

        def save(trained: Encoder, about: dict[str, Any], path: Path) -> None:
            content = {
                "format": FORMAT,
                "words": vocabulary.words,
                "max_tokens": self.config.max_tokens,
                "weights": trained.state_dict(),
                "about": about,
            }
            save_torch(content, path)

        reader = DocumentReader(corpus, vocabulary, self.config.max_tokens)
        return Parts(encoder, reader, save, {"vectors": name})


class NNSelectRetriever(WordsRetriever):
    """Nearest papers by averages of word vectors with trained magnitudes."""

    name = "nnselect"

    def __init__(
        self,
        checkpoint: str | Path | None,
        index: IndexConfig | None = None,
        profile: ProfileConfig | None = None,
    ) -> None:
        """checkpoint: what train.py model=nnselect saved; InputError if it is missing or of another kind."""
        super().__init__(index, profile)
        if checkpoint is None:
            raise InputError(
                "retriever=nnselect needs checkpoint=FILE, the nnselect.ckpt of train.py model=nnselect"
            )
        content = read_torch(checkpoint)
        if content.get("format") != FORMAT:
            raise InputError(f"{checkpoint}: not a checkpoint that train.py model=nnselect saved")
        try:
            weights, words, self.max_tokens = content["weights"], content["words"], int(content["max_tokens"])
            self.vocabulary = Vocabulary(words)
            if not len(words) == len(self.vocabulary) == len(weights["directions"]):
                raise ValueError(f"{len(words)} words for {len(weights['directions'])} vectors")
            self.encoder = AveragesEncoder(weights["directions"].numpy())
            self.encoder.load_state_dict(weights)
        except (RuntimeError, *UNFIT) as error:
            reason = " ".join(str(error).split())[:200]
            raise InputError(
                f"{checkpoint}: a part of the checkpoint is missing or of another kind ({reason})"
            ) from None
        self.encoder.eval()
