"""What is measured on the validation split between rounds: recall and MRR."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datasets.errors import InputError
from datasets.store import Corpus
from hatten.mining import padded
from hatten.options import at_least_1
from retrieval.exact import search_exact

RECALLS = (1, 10, 50, 100, 500, 1000, 2000)


@dataclass(frozen=True)
class ValidationConfig:
    """What is measured after each round, with the averaged weights."""

    split: str = "val"
    queries: int = 2000
    """a sample where there are more; 0: no validation"""
    papers: int = 0
    """candidates to search among: those that the queries cite, and a sample of others up to this number;
    0: all of them. Recall among fewer is higher, and not to be compared with recall among all"""
    depth: int = 2000
    monitor: str = "recall@10"
    """the round that is best in this is the one saved"""

    def __post_init__(self) -> None:
        at_least_1(self, "model.validation", "depth")
        measures = ["mrr", *(f"recall@{k}" for k in RECALLS if k <= self.depth)]
        if self.monitor not in measures:
            raise InputError(f"model.validation.monitor={self.monitor}: choose one of {', '.join(measures)}")


class Validation:
    """The validation queries of a run and the papers that they are searched in: the same after each round."""

    def __init__(self, config: ValidationConfig, corpus: Corpus, seed: int) -> None:
        self.config, self.corpus = config, corpus
        split = corpus.splits.get(config.split)
        size = 0 if split is None else min(len(split), config.queries)
        self.contexts: NDArray[np.int64] = np.empty(0, np.int64)
        """[Q] rows of the contexts; none: nothing is measured"""
        self.candidates: NDArray[np.bool_] = np.zeros_like(corpus.is_candidate)
        """[P] papers that are searched"""
        if split is None or size == 0:
            return
        rng = np.random.default_rng((seed, 2))
        rows = np.sort(rng.permutation(len(split))[:size])
        self.contexts, cited = split.contexts[rows], split.positives.take(rows)
        self._positives = padded(cited, corpus.citing[self.contexts])[:, :-1]
        if not 0 < config.papers < np.count_nonzero(corpus.is_candidate):
            self.candidates = corpus.is_candidate
            return
        self.candidates[cited.values] = corpus.is_candidate[cited.values]
        others = np.flatnonzero(corpus.is_candidate & ~self.candidates)
        more = max(0, config.papers - int(np.count_nonzero(self.candidates)))
        self.candidates[rng.choice(others, min(more, len(others)), replace=False)] = True

    def measure(self, queries: NDArray[np.float32], papers: NDArray[np.float32]) -> dict[str, float]:
        """Vectors of the contexts [Q, D] and of all papers [P, D]; the number of papers only for a sample."""
        found = search_exact(
            queries,
            papers,
            self.config.depth,
            exclude=self.corpus.citing[self.contexts],
            candidates=self.candidates,
        )
        measured = recalls(found.papers, self._positives)
        if self.candidates is not self.corpus.is_candidate:
            measured["papers"] = float(np.count_nonzero(self.candidates))
        return measured


def recalls(papers: NDArray[Any], positives: NDArray[Any]) -> dict[str, float]:
    """Ranked papers [Q, k], cited ones [Q, most] (-1: none): MRR and share of the cited in the first k."""
    hits = (papers[:, None, :] == positives[:, :, None]) & (positives[:, :, None] >= 0)  # [Q, most, k]
    cited = (positives >= 0).sum(1)
    any_hit = hits.any(1)
    first = np.where(any_hit.any(1), any_hit.argmax(1), np.iinfo(np.int64).max - 1)
    out = {"mrr": float((1.0 / (first + 1.0)).mean())}
    for k in RECALLS:
        if k <= papers.shape[1]:
            out[f"recall@{k}"] = float((hits[:, :, :k].any(2).sum(1) / cited).mean())
    return out
