"""Batches of texts for the small networks: several data sets with a share each, negatives that the same paper
cites in other passages, texts that are left out."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from citerec.hatten.settings import BiEncoderBatchSettings
from citerec.hatten.training.batches import Batches, TrainingData
from citerec.hatten.training.losses import OTHER
from citerec.retrieval.encoders.article_text import ArticleReader
from citerec.training.queries import DataSets, Siblings

TEXTS = 6
"""Seed of the draws of texts to leave out."""


class TextBatches(Batches):
    """Batches with siblings as further negatives, in which abstracts and citing titles may be left out."""

    config: BiEncoderBatchSettings
    siblings: Siblings | None = None
    """of the split; needed to draw any"""

    def _draw(
        self, queries: NDArray[np.int64], rng: np.random.Generator
    ) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
        drawn, levels = super()._draw(queries, rng)
        if not self.config.siblings:
            return drawn, levels
        assert self.siblings is not None
        papers = np.full((len(queries), self.config.siblings), -1, np.int32)
        for row, query in zip(papers, queries.tolist(), strict=True):
            own = self.siblings.draw(query, len(row), rng)
            row[: len(own)] = own
        return np.concatenate([drawn, papers], 1), np.concatenate([levels, np.full(papers.shape, OTHER)], 1)

    def _read(
        self, contexts: NDArray[np.int64], cited: NDArray[np.int64], others: NDArray[np.int64], step: int
    ) -> list[Any]:
        if not self.config.varies_texts:
            return super()._read(contexts, cited, others, step)
        reader = self.reader
        assert isinstance(reader, ArticleReader)
        rng = np.random.default_rng((self.seed, TEXTS, self.round, step))
        titles = rng.random(len(contexts)) < self.config.titles
        share = rng.choice(self.config.abstracts)
        kept = [titles, rng.random(len(cited)) < share, rng.random(len(others)) < share]
        own = [self.share.part(len(mask)) for mask in kept]
        rows = [rows[part] for rows, part in zip((contexts, cited, others), own, strict=True)]
        kept = [mask[part] for mask, part in zip(kept, own, strict=True)]
        read = reader.queries, reader.papers, reader.papers
        return [function(*parts) for function, *parts in zip(read, rows, kept, strict=True)]


class TextData(TrainingData):
    """Batches of texts of the training split."""

    batch: BiEncoderBatchSettings
    kind = TextBatches

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        if self.batch.shares:
            self.sets = DataSets.read(self.corpus, self.split, self.batch.shares)
        self.siblings = Siblings(self.corpus, self.split) if self.batch.siblings else None

    def batches(self, round: int, pool: Any, layout: Any = None) -> TextBatches:
        batches = super().batches(round, pool, layout)
        assert isinstance(batches, TextBatches)
        batches.siblings = self.siblings
        return batches
