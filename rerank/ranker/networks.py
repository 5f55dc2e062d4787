"""What an encoder adds to the learned ranker (retrieval.networks).

Where it has read all papers, it is one of the retrievers, and its cosine one of the features. Where it has
not, in a large library or while one is being read, it reads the first papers of the ranking without it, and
their order changes. Papers beyond stay below.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from citerec.rerank.ranker.confidence import Confidence
from citerec.rerank.ranker.linear import LinearModel, Lists
from citerec.retrieval.arrays import Floats
from citerec.retrieval.networks.encoder import NetworkRetriever
from citerec.retrieval.queries import Queries

COSINE = "encoder"
"""Column of the encoder's cosine (rerank.ranker.features)."""
READ, FIRST = "read", "first"
"""Ways of ranking, each with a confidence of its own: all papers have been read, or the first ones."""


@dataclass(frozen=True)
class Rescoring:
    """What the encoder adds to the scores of the first `depth` papers: weight * (cosine - mean cosine)."""

    depth: int
    weight: float

    def first(self, lists: Lists, scores: Floats) -> list[NDArray[np.int64]]:
        """Places in [n] of the first candidates of each list, best first."""
        return [
            start + np.argsort(-scores[start:end], kind="stable")[: self.depth]
            for start, end in pairwise(lists.offsets.tolist())
        ]

    def scores(self, lists: Lists, scores: Floats) -> Floats:
        """Scores [n] of lists whose first papers have been read; the others stay below them."""
        found, cosines = scores.astype(np.float32), cosines_of(lists)
        ends = pairwise(lists.offsets.tolist())
        for (start, end), first in zip(ends, self.first(lists, scores), strict=True):
            values = np.nan_to_num(cosines[first])
            found[first] += self.weight * (values - values.mean())
            others = np.setdiff1d(np.arange(start, end), first)
            if len(others):
                found[others] -= max(float(found[others].max() - found[first].min()), 0)
        return found


def cosines_of(lists: Lists) -> Floats:
    """The column COSINE [n]."""
    found: Floats = lists.values[:, list(lists.columns).index(COSINE)].astype(np.float32)
    return found


@dataclass(frozen=True)
class NetworkModel:
    """The part of a ranker's model that reads networks.

    read: ranks the lists of papers that all have been read. confidences: by READ and FIRST.
    """

    read: LinearModel
    first: Rescoring
    confidences: Mapping[str, Confidence] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {
            "weights": dict(self.read.weights),
            "deviations": dict(self.read.deviations),
            FIRST: asdict(self.first),
            "confidences": {name: dict(one.parameters) for name, one in self.confidences.items()},
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Raises LookupError, TypeError or ValueError for what `as_json` does not return."""
        return cls(
            LinearModel(floats(content["weights"]), floats(content["deviations"])),
            Rescoring(int(content[FIRST]["depth"]), float(content[FIRST]["weight"])),
            {str(name): Confidence(floats(of)) for name, of in content["confidences"].items()},
        )

    def scores(
        self,
        without: LinearModel,
        encoder: NetworkRetriever,
        queries: Queries,
        papers: NDArray[np.int32],
        lists: Lists,
    ) -> tuple[Floats, Lists, Confidence]:
        """Scores [n] of the candidates of queries [Q], of which `papers` [n] are the rows.

        without: the model that ranks papers of which not all have been read.
        Also returns the lists, with the cosines of papers that are read for these queries, and how sure the
        scores are.
        """
        if encoder.complete:
            return self.read.scores(lists), lists, self.confidences.get(READ, Confidence())
        scores, values = without.scores(lists), lists.values.copy()
        first, column = self.first.first(lists, scores), list(lists.columns).index(COSINE)
        encoder.read(papers[np.concatenate(first)])
        for query, places in enumerate(first):
            own = slice(query, query + 1)
            values[places, column] = encoder.cosines(queries[own], papers[None, places])[0]
        lists = replace(lists, values=values)
        return self.first.scores(lists, scores), lists, self.confidences.get(FIRST, Confidence())


def floats(values: Mapping[Any, Any]) -> dict[str, float]:
    return {str(key): float(value) for key, value in values.items()}
