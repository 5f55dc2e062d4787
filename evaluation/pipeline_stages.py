"""What came of the two stages in one protocol: prefetched, and reranked at several depths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from datasets.store import Corpus
from evaluation.benchmark import Metrics
from evaluation.outcome import Outcome
from evaluation.protocol import TRANSDUCTIVE, Protocol, key_of
from evaluation.significance import paired
from rerank.fusing import fused_scores
from rerank.pair_scores import Scored
from rerank.pipeline import head_of, reranked
from retrieval.ranking import Ranking

BASE, GAIN, DEPTH = "base/", "gain/", "depth/"
"""What keys of metrics.json begin with: the prefetcher, its distance to the reranker, fewer candidates."""

COMPARED = ("mrr", "recall@10")
"""Measures by which the two stages are compared."""


OF_DEPTH = ("recall@10", "mrr", "ceiling", "seconds_per_query")
"""What is reported of each number of candidates."""


def depths_of(metrics: Mapping[str, object], protocol: str = TRANSDUCTIVE) -> dict[int, dict[str, float]]:
    """{reranked candidates: {one of OF_DEPTH: value}} of the metrics of a pipeline."""
    prefix = key_of(DEPTH, protocol)
    found: dict[int, dict[str, float]] = {}
    for name, value in metrics.items():
        if name.startswith(prefix) and isinstance(value, float):
            depth, _, of_depth = name.removeprefix(prefix).partition("/")
            found.setdefault(int(depth), {})[of_depth] = value
    return dict(sorted(found.items()))


@dataclass(frozen=True)
class Candidates:
    """A prefetched ranking [Q, n], the reranker's scores of its first K papers [Q, K], and what both took."""

    ranking: Ranking
    scores: NDArray[np.float32]
    seconds: float
    scored: Scored

    def final(self, depth: int, method: str, weight: float) -> Ranking:
        """The ranking with its first `depth` papers in the order of the reranker, or of both."""
        scores = self.scores[:, :depth]
        return reranked(self.ranking, fused_scores(head_of(self.ranking, depth), scores, method, weight))

    def seconds_at(self, depth: int) -> float:
        """What it takes to prefetch, and to rerank so many."""
        pairs = np.count_nonzero(self.ranking.papers[:, :depth] >= 0)
        speed = self.scored.pairs_per_second
        return self.seconds + (pairs / speed if speed else 0.0)


@dataclass(frozen=True)
class Stages:
    """The prefetcher's outcome, and that of reranking by the number of reranked candidates."""

    base: Outcome
    by_depth: Mapping[int, Outcome]
    scored: Scored

    @classmethod
    def of(
        cls,
        protocol: Protocol,
        corpus: Corpus,
        found: Candidates,
        names: tuple[str, str],
        method: str,
        weights: Mapping[int, float],
        cutoffs: list[int],
        f1_at: Sequence[int] = (),
    ) -> Stages:
        """names: of the retriever and the reranker; weights: of the reranker, by depth."""
        base = Outcome.of(protocol, corpus, found.ranking, names[0], cutoffs, found.seconds, f1_at)
        by_depth = {
            depth: Outcome.of(
                protocol,
                corpus,
                found.final(depth, method, weight),
                f"{names[0]}+{names[1]}",
                cutoffs,
                found.seconds_at(depth),
                f1_at,
            )
            for depth, weight in weights.items()
        }
        return cls(base, by_depth, found.scored)

    @property
    def depth(self) -> int:
        """How many candidates are reranked."""
        return max(self.by_depth)

    @property
    def final(self) -> Outcome:
        """With all of them reranked."""
        return self.by_depth[self.depth]

    def metrics(self, seed: int) -> Metrics:
        """Of the reranked, of the prefetched (`base/...`), the difference, the ceiling; and by depth."""
        protocol = self.base.protocol.name
        found: Metrics = dict(self.final.metrics(seed))
        pool = {key_of(name, protocol) for name in ("citing_papers", "candidates")}
        for name, value in self.base.metrics(seed).items():
            if name not in pool and not name.endswith("queries"):
                found[BASE + name] = value
        for name in [*COMPARED, *(name for name in self.base.values.values if name.startswith("f1@"))]:
            final, base = (outcome.values.values[name] for outcome in (self.final, self.base))
            gain = paired(final, base, self.base.values.papers, seed=seed)
            key = GAIN + key_of(name, protocol)
            found |= {key: gain.difference, f"{key}/p": gain.p}
            if gain.papers > 1:
                found |= {f"{key}/low": gain.low, f"{key}/high": gain.high}
        # Not of the base: trec_eval puts its equals in another order, so that others would be the first.
        found[key_of("ceiling", protocol)] = self._mean(self.final, f"recall@{self.depth}")
        for depth, outcome in self.by_depth.items():
            of_depth = [
                self._mean(outcome, "recall@10"),
                self._mean(outcome, "mrr"),
                self._mean(outcome, f"recall@{depth}"),
                outcome.seconds / len(outcome.values),
            ]
            names = (key_of(f"{DEPTH}{depth}/{name}", protocol) for name in OF_DEPTH)
            found |= dict(zip(names, of_depth, strict=True))
        return found

    @staticmethod
    def _mean(outcome: Outcome, name: str) -> float:
        return float(outcome.values.values[name].mean())
