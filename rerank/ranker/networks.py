"""What networks add to the learned ranker (retrieval.networks).

Where the encoder has read all papers, it is one of the retrievers, and its cosine one of the features. The
cross-encoder, if any, then reads the first papers with the query, unless some have full texts. Where it has
not, in a large library or one still being read, the encoder reads the first papers of the ranking without it.
What is read last changes the order of the first papers; those beyond stay below.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Any, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from citerec.rerank.ranker.confidence import Confidence, has_texts
from citerec.rerank.ranker.linear import LinearModel, Lists
from citerec.retrieval.arrays import Floats
from citerec.retrieval.networks.encoder import NetworkRetriever
from citerec.retrieval.queries import Queries

COSINE, PAIR = "encoder", "cross_encoder"
"""Columns: the encoder's cosine (rerank.ranker.features); the cross-encoder's score of the first papers."""
BARE, READ, FIRST, PAIRS = "bare", "read", "first", "pairs"
"""Ways of ranking: without networks; where the encoder has read all papers; where it has read the first ones;
as READ, where the first papers have then been read with the query."""


@dataclass(frozen=True)
class Rescoring:
    """What a network adds to the scores of the first `depth` papers: weight * (value - mean value)."""

    depth: int
    weight: float

    def first(self, lists: Lists, scores: Floats) -> list[NDArray[np.int64]]:
        """Places in [n] of the first candidates of each list, best first."""
        return [
            start + np.argsort(-scores[start:end], kind="stable")[: self.depth]
            for start, end in pairwise(lists.offsets.tolist())
        ]

    def scores(self, lists: Lists, scores: Floats, column: str = COSINE) -> Floats:
        """Scores [n] of lists whose first papers have been read; the others stay below them."""
        combined, second = scores.astype(np.float32), lists.column(column)
        ends = pairwise(lists.offsets.tolist())
        for (start, end), first in zip(ends, self.first(lists, scores), strict=True):
            first = first[np.isfinite(second[first])]
            if not len(first):
                continue
            combined[first] += self.weight * (second[first] - second[first].mean())
            others = np.setdiff1d(np.arange(start, end), first)
            if len(others):
                combined[others] -= max(float(combined[others].max() - combined[first].min()), 0)
        return combined


@dataclass(frozen=True)
class NetworkModel:
    """The part of a ranker's model that uses networks.

    read: ranks lists whose papers have all been read. first: rescores where they have not. pairs: rescores by
    the cross-encoder; None without one. confidences: by READ, FIRST and PAIRS.
    """

    read: LinearModel
    first: Rescoring
    pairs: Rescoring | None = None
    confidences: Mapping[str, Confidence] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {
            "weights": dict(self.read.weights),
            "deviations": dict(self.read.deviations),
            FIRST: asdict(self.first),
            **({PAIRS: asdict(self.pairs)} if self.pairs else {}),
            "confidences": {
                name: dict(confidence.parameters) for name, confidence in self.confidences.items()
            },
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Raises LookupError, TypeError or ValueError for what `as_json` does not return."""
        return cls(
            LinearModel(floats(content["weights"]), floats(content["deviations"])),
            msgspec.convert(content[FIRST], Rescoring),
            msgspec.convert(content.get(PAIRS), Rescoring | None),
            {str(name): Confidence(floats(values)) for name, values in content["confidences"].items()},
        )

    def log_probabilities(
        self,
        without: LinearModel,
        encoder: NetworkRetriever,
        queries: Queries,
        papers: NDArray[np.int32],
        lists: Lists,
    ) -> Floats:
        """Logarithms of the probabilities [n] of the candidates of queries [Q], whose rows are `papers` [n];
        without a confidence, their scores.

        without: the model that ranks papers of which not all have been read.
        """
        if not encoder.complete:
            scores = without.scores(lists)
            lists = self._read_first(encoder, queries, papers, lists, scores)
            return self._sure(FIRST, lists, self.first.scores(lists, scores))
        scores = self.read.scores(lists)
        sure = self._sure(READ, lists, scores)
        if self.pairs is None or not encoder.networks.scores_pairs:
            return sure
        lists = with_pairs(encoder, queries, papers, lists, self.pairs.first(lists, scores))
        of_pairs = self._sure(PAIRS, lists, self.pairs.scores(lists, scores, PAIR))
        return np.where(has_texts(lists)[lists.query], sure, of_pairs)

    def _read_first(
        self,
        encoder: NetworkRetriever,
        queries: Queries,
        papers: NDArray[np.int32],
        lists: Lists,
        scores: Floats,
    ) -> Lists:
        """Add the encoder's cosines of the first papers of each list by scores [n]; it reads them now."""
        values, column = lists.values.copy(), list(lists.columns).index(COSINE)
        first = self.first.first(lists, scores)
        encoder.read(papers[np.concatenate(first)])
        for query, places in enumerate(first):
            own = slice(query, query + 1)
            values[places, column] = encoder.cosines(queries[own], papers[None, places])[0]
        return replace(lists, values=values)

    def _sure(self, way: str, lists: Lists, scores: Floats) -> Floats:
        return self.confidences.get(way, Confidence()).log_probabilities(lists, scores)


def with_pairs(
    encoder: NetworkRetriever,
    queries: Queries,
    papers: NDArray[np.int32],
    lists: Lists,
    first: Sequence[NDArray[np.int64]],
) -> Lists:
    """Add the column PAIR, of the papers at places `first` of each list, to lists in which no paper has a
    full text: the cross-encoder reads abstracts, which tell less."""
    scores, with_texts = np.full(len(papers), np.nan, np.float32), has_texts(lists)
    asked = encoder.networks.reader.queries(queries)
    for query, places, has_text in zip(asked, first, with_texts.tolist(), strict=True):
        if not has_text:
            candidates = places[papers[places] >= 0]
            scores[candidates] = encoder.pair_scores(query, papers[candidates])
    values = np.concatenate([lists.values, scores[:, None]], axis=1)
    return replace(lists, columns=[*lists.columns, PAIR], values=values)


def floats(values: Mapping[Any, Any]) -> dict[str, float]:
    return {str(key): float(value) for key, value in values.items()}
