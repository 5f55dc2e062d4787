"""Ranks papers by their number of citations in training contexts, the same for every query."""

from __future__ import annotations

from typing import Any

import numpy as np

from citerec.datasets.corpus import Corpus
from citerec.datasets.records import TRAIN
from citerec.retrieval.arrays import Mask
from citerec.retrieval.base import Ranking, Retriever
from citerec.retrieval.queries import Queries


class Popularity(Retriever):
    """Scores papers by their citations in the training split; uncited papers are not ranked."""

    name = "popularity"
    arrays = ("papers", "counts")

    def settings(self) -> dict[str, Any]:
        return {}

    def _index(self, corpus: Corpus) -> None:
        """Raises InputError if the corpus has no training split."""
        counts = np.bincount(corpus.split(TRAIN).positives.values, minlength=len(corpus.paper_ids))
        cited = np.flatnonzero((counts > 0) & corpus.is_candidate)
        self._papers = cited[np.argsort(-counts[cited], kind="stable")].astype(np.int32)
        self._counts = counts[self._papers].astype(np.float32)

    def _search(self, queries: Queries, k: int, allowed: Mask | None) -> Ranking:
        papers, counts = self._papers, self._counts
        if allowed is not None:
            papers, counts = papers[allowed[papers]], counts[allowed[papers]]
        papers, counts = papers[:k], counts[:k]
        shape = (len(queries), len(papers))
        return Ranking(np.broadcast_to(papers, shape), np.broadcast_to(counts, shape))
