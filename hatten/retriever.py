"""HAtten as a retriever: the nearest papers to a context by cosine (Gu et al. 2022, section 4.1.3)."""

from __future__ import annotations

from pathlib import Path

from datasets.errors import InputError
from hatten.checkpoint import PUBLISHED, open_model
from hatten.dense import WordsRetriever
from retrieval.encode import precision
from retrieval.indexes import IndexConfig
from retrieval.profiles import ProfileConfig


class HAttenRetriever(WordsRetriever):
    """Nearest papers by an encoder of words, paragraphs and documents."""

    name = "hatten"

    def __init__(
        self,
        checkpoint: str | Path | None,
        vocabulary: str | Path | None = None,
        arithmetic: str = "auto",
        index: IndexConfig | None = None,
        profile: ProfileConfig | None = None,
        cache_dir: str | Path = ".cache",
    ) -> None:
        """checkpoint: what train.py model=hatten saved, a published one with its word list, `vocabulary`, or
        hatten-acl200, which is downloaded with its word list to `cache_dir`.

        arithmetic: auto, float32 or bfloat16. Raises InputError when a file is missing or of another kind.
        """
        super().__init__(index, profile)
        if checkpoint is None:
            raise InputError(
                "retriever=hatten needs checkpoint=FILE, the hatten.ckpt that train.py model=hatten saved, "
                f"or checkpoint={PUBLISHED}, which is downloaded"
            )
        self.model = open_model(checkpoint, vocabulary, cache_dir)
        self.encoder, self.vocabulary = self.model.encoder, self.model.vocabulary
        self.max_tokens = self.model.encoder.config.max_tokens
        self.encoder.precision = precision(arithmetic)
