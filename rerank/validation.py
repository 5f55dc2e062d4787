"""What is measured of a reranker in training: recall, MRR and F1 of its order of a retriever's candidates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from datasets.errors import InputError
from datasets.progress import counting
from datasets.store import Corpus, Split
from hatten.mining import padded
from hatten.options import at_least_1
from hatten.validation import RECALLS, recalls
from rerank.batching import batches
from rerank.cross_encoder import CrossEncoder
from rerank.pairs import PairReader
from retrieval.encode import evaluating
from retrieval.ranking import ordered

F1 = 20
"""The rank of F1: that of Nogueira et al. 2020."""

SAMPLE = 2
"""The random numbers of the sample: those of hatten.validation, so that both measure the same queries."""


@dataclass(frozen=True)
class ValidationConfig:
    """What is measured, how often, and what follows from it."""

    split: str = "val"
    queries: int = 500
    """a sample where there are more; 0: no validation"""
    candidates: int = 100
    """papers that are prefetched and reranked for a query; a cited paper that is not among them is missed"""
    every: int = 1000
    """steps between two validations"""
    monitor: str = "recall@10"
    """the weights that are best in this are saved"""
    patience: int = 3
    """validations in a row without a better one after which training ends; 0: it never ends early"""

    def __post_init__(self) -> None:
        at_least_1(self, "model.validation", "candidates", "every")
        measures = ["mrr", *(f"recall@{k}" for k in RECALLS if k <= self.candidates)]
        measures += [f"f1@{F1}"] if self.candidates >= F1 else []
        if self.monitor not in measures:
            raise InputError(f"model.validation.monitor={self.monitor}: choose one of {', '.join(measures)}")


def f1(papers: NDArray[np.integer], positives: NDArray[np.integer]) -> dict[str, float]:
    """Ranked papers [Q, k], cited ones [Q, most] (-1: none): the mean F1 of the first 20, nothing of fewer.

    Precision is of 20 papers, F1 of one query (as evaluation.measures has it).
    """
    if papers.shape[1] < F1:
        return {}
    cited = positives >= 0
    hits = ((papers[:, None, :F1] == positives[:, :, None]) & cited[:, :, None]).sum((1, 2))
    return {f"f1@{F1}": float((2 * hits / (F1 + cited.sum(1))).mean())}


def sampled(split: Split, size: int, seed: int) -> NDArray[np.int64]:
    """Rows of a split, ascending: so many, or all where there are fewer."""
    return np.sort(np.random.default_rng((seed, SAMPLE)).permutation(len(split))[:size])


class Validation:
    """Queries and their candidates: the same at each validation."""

    def __init__(
        self, corpus: Corpus, split: Split, rows: NDArray[np.int64], papers: NDArray[np.int32]
    ) -> None:
        """rows [Q] of the split; papers [Q, k], prefetched for them, best first, -1: none."""
        self.contexts, self.papers = split.contexts[rows], papers
        self._positives = padded(split.positives.take(rows), corpus.citing[self.contexts])[:, :-1]
        cited = self._positives >= 0
        hits = (papers[:, None, :] == self._positives[:, :, None]) & cited[:, :, None]
        found = hits.any(2)
        self.asked = np.flatnonzero(found.any(1))
        """Queries with a cited paper among the candidates: the order of the others' makes no difference."""
        base = recalls(papers, self._positives) | f1(papers, self._positives)
        self.base = {f"base/{name}": value for name, value in base.items()}
        self.base["ceiling"] = float((found.sum(1) / cited.sum(1)).mean())

    def measure(
        self,
        encoder: CrossEncoder,
        reader: PairReader,
        tokens: int,
        rank: int = 0,
        processes: int = 1,
        summed: Callable[[Tensor], Tensor] = lambda own: own,
    ) -> dict[str, float]:
        """Recall, MRR and F1 over all queries, those of the prefetched order (`base/...`), and the best
        possible recall (`ceiling`), all within the candidates.

        tokens: of a batch. Of several processes each scores its own queries; summed: adds up tensors of all.
        """
        there = np.zeros(self.papers.shape, np.bool_)
        there[self.asked] = self.papers[self.asked] >= 0
        own = np.zeros_like(there)
        own[self.asked[rank::processes]] = there[self.asked[rank::processes]]
        query, place = np.nonzero(own)
        logits = torch.zeros(2, *there.shape)  # and how often each pair was scored
        logits[0, query, place] = self._scored(encoder, reader, tokens, query, place)
        logits[1, query, place] = 1
        grid, times = summed(logits).numpy()
        assert (times == there).all(), "every pair is scored by one process"
        if not np.isfinite(grid).all():
            raise InputError("the reranker's scores are no numbers any more: lower model.optimizer.lr")
        ranked = ordered(self.papers, grid, self.papers.shape[1]).papers
        return recalls(ranked, self._positives) | f1(ranked, self._positives) | self.base

    def _scored(
        self,
        encoder: CrossEncoder,
        reader: PairReader,
        tokens: int,
        query: NDArray[np.int64],
        place: NDArray[np.int64],
    ) -> Tensor:
        pairs = reader.pairs(self.contexts[query], self.papers[query, place])
        out = torch.zeros(len(pairs))
        with evaluating(encoder), torch.inference_mode(), counting("validating", len(pairs)) as advance:
            for rows in batches(pairs.lengths, tokens):
                out[torch.from_numpy(rows)] = encoder(*pairs.padded(rows)).cpu()
                advance(len(rows))
        return out
