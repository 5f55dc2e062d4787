"""Batches of texts for the small networks: several data sets with a share each, texts that are left out."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from citerec.hatten.settings import BiEncoderBatchSettings
from citerec.hatten.training.batches import Batches, TrainingData
from citerec.retrieval.encoders.article_text import ArticleReader
from citerec.training.queries import DataSets

TEXTS = 6
"""Seed of the draws of texts to leave out."""


class TextBatches(Batches):
    """Batches in which abstracts may be left out."""

    config: BiEncoderBatchSettings

    def _read(
        self, contexts: NDArray[np.int64], cited: NDArray[np.int64], others: NDArray[np.int64], step: int
    ) -> list[Any]:
        if not self.config.varies_texts:
            return super()._read(contexts, cited, others, step)
        reader = self.reader
        assert isinstance(reader, ArticleReader)
        rng = np.random.default_rng((self.seed, TEXTS, self.round, step))
        share = rng.choice(self.config.abstracts)
        read = [reader.queries(contexts[self.share.part(len(contexts))])]
        for rows in (cited, others):
            own, kept = self.share.part(len(rows)), rng.random(len(rows)) < share
            read.append(reader.papers(rows[own], kept[own]))
        return read


class TextData(TrainingData):
    """Batches of texts of the training split."""

    batch: BiEncoderBatchSettings
    kind = TextBatches

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        if self.batch.shares:
            self.sets = DataSets.read(self.corpus, self.split, self.batch.shares)
