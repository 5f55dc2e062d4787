"""Whether and how the two stages are fused, as options and as a weight that is tuned on validation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from datasets.errors import InputError
from datasets.store import Corpus, Split
from evaluation.pipeline_stages import Candidates
from rerank.fusing import METHODS, tuned_weight
from rerank.pipeline import head_of
from retrieval.tuning import VALIDATION, recall_cutoff, sampled

TUNED = "tuned"


@dataclass(frozen=True)
class Fuse:
    """method: of rerank.fusing.METHODS. weight: of the reranker, or `tuned`: what is best for `measure`
    (recall@k, or the mean of several) on `queries` of the validation split, drawn by `seed`."""

    method: str
    weight: float | str
    measure: str | Sequence[str]
    queries: int
    seed: int

    def __post_init__(self) -> None:
        """Raises InputError for a value that is not one of those above."""
        if self.method not in METHODS:
            raise InputError(f"benchmark.fuse={self.method}: choose one of {', '.join(METHODS)}")
        number = type(self.weight) in (int, float)
        if self.weight != TUNED and not (number and 0 <= float(self.weight) <= 1):
            raise InputError(f"benchmark.weight={self.weight}: choose {TUNED}, or a number from 0 to 1")
        if type(self.queries) is not int or self.queries < 1:
            raise InputError(f"benchmark.validation_queries={self.queries}: must be a whole number from 1 on")
        assert self.cutoffs

    @property
    def cutoffs(self) -> list[int]:
        """The k of the recalls that are tuned for."""
        measures = [self.measure] if isinstance(self.measure, str) else list(self.measure)
        return [recall_cutoff(one, "benchmark.measure") for one in measures or [""]]

    def check(self, corpus: Corpus) -> None:
        """Raises InputError if a weight is to be tuned and there is nothing to tune with."""
        if self.method != "none" and self.weight == TUNED and VALIDATION not in corpus.splits:
            raise InputError(
                f"benchmark.fuse={self.method} tunes a weight on split {VALIDATION!r}, which corpus "
                f"{corpus.name} lacks; give benchmark.weight, from 0 to 1"
            )

    def weigher(self, corpus: Corpus, found: Callable[[Split], Candidates]) -> Callable[[int], float]:
        """The weight of the reranker by how many candidates are reranked.

        found: gives the candidates of validation queries with their scores, where they are needed.
        """
        if self.method == "none":
            return lambda depth: 1.0
        if self.weight != TUNED:
            return lambda depth: float(self.weight)
        contexts, wanted = sampled(corpus, VALIDATION, self.queries, self.seed)
        candidates = found(Split(VALIDATION, contexts, wanted))

        @cache
        def tuned(depth: int) -> float:
            head, scores = head_of(candidates.ranking, depth), candidates.scores[:, :depth]
            return tuned_weight(head, scores, wanted, self.method, self.cutoffs)

        return tuned
