"""Validation of encoders: a fixed sample of queries, searched among fixed papers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from citerec.datasets.corpus import Corpus
from citerec.hatten.settings import EncoderValidationSettings
from citerec.hatten.training.mining import pad_positives
from citerec.retrieval.indexes.index import search_exact
from citerec.training.processes import WHOLE, Share
from citerec.training.rounds import VALIDATION_SEED, recall_and_mrr, validation_sample


class Validation:
    """The validation queries of a run and the papers to search, fixed for all rounds."""

    def __init__(self, config: EncoderValidationSettings, corpus: Corpus, seed: int) -> None:
        self.config, self.corpus = config, corpus
        self.contexts: NDArray[np.int64] = np.empty(0, np.int64)
        """[Q] context rows; empty: no validation"""
        self.candidates: NDArray[np.bool_] = np.zeros_like(corpus.is_candidate)
        """[P] papers to search"""
        if config.split.partition("/")[0] not in corpus.splits or config.queries == 0:
            return
        split = corpus.split(config.split)
        if len(split) == 0:
            return
        rng = np.random.default_rng((seed, VALIDATION_SEED))
        rows = validation_sample(split, config.queries, rng)
        self.contexts, cited = split.contexts[rows], split.positives.take(rows)
        self._positives = pad_positives(cited, corpus.citing[self.contexts])[:, :-1]
        if not 0 < config.papers < np.count_nonzero(corpus.is_candidate):
            self.candidates = corpus.is_candidate
            return
        self.candidates[cited.values] = corpus.is_candidate[cited.values]
        others = np.flatnonzero(corpus.is_candidate & ~self.candidates)
        missing = max(0, config.papers - int(np.count_nonzero(self.candidates)))
        self.candidates[rng.choice(others, min(missing, len(others)), replace=False)] = True

    def measure(
        self, queries: NDArray[np.float32], papers: NDArray[np.float32], share: Share = WHOLE
    ) -> dict[str, float]:
        """Vectors of the share's contexts and of papers [P, D] -> measures, and size of a sampled pool."""
        citing = self.corpus.citing[self.contexts[share.part(len(self.contexts))]]
        found = search_exact(queries, papers, self.config.depth, citing, self.candidates, share.device)
        measures = recall_and_mrr(share.collect(found.papers, len(self.contexts)), self._positives)
        if self.candidates is not self.corpus.is_candidate:
            measures["papers"] = float(np.count_nonzero(self.candidates))
        return measures
