"""The splits of a corpus as arrays that the findings are counted from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from datasets.inspection.findings import EXAMPLES, Line
from datasets.store import Corpus, Split

NO_SPLIT = "no split"
"""The column of contexts that no split has. No split has such a name: there is a space in it."""


@dataclass(frozen=True)
class Citations:
    """The cited papers of a split, one after the other: query [n], citing [n] and cited [n] papers (rows)."""

    split: Split
    query: NDArray[np.int64]
    citing: NDArray[np.int32]
    cited: NDArray[np.int32]

    @classmethod
    def of(cls, corpus: Corpus, split: Split) -> Citations:
        query = np.repeat(np.arange(len(split)), split.positives.lengths)
        return cls(split, query, corpus.citing[split.contexts][query], split.positives.values)

    @cached_property
    def citing_papers(self) -> NDArray[np.int32]:
        """Each once, in order."""
        return np.unique(self.citing)

    @cached_property
    def cited_papers(self) -> NDArray[np.int32]:
        """Each once, in order."""
        return np.unique(self.cited)

    @property
    def targets(self) -> NDArray[np.int64]:
        """How many each query has [Q]."""
        return self.split.positives.lengths

    def any(self, marked: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Queries [Q] of which some target [n] is marked."""
        found = np.zeros(len(self.split), np.bool_)
        found[self.query[marked]] = True
        return found


def citations(corpus: Corpus) -> dict[str, Citations]:
    """By the name of the split."""
    return {name: Citations.of(corpus, split) for name, split in corpus.splits.items()}


def splits_of_contexts(corpus: Corpus) -> NDArray[np.int32]:
    """For each context [C] the number of its split, in the order of corpus.splits, or -1."""
    found = np.full(len(corpus.context_ids), -1, np.int32)
    for number, split in enumerate(corpus.splits.values()):
        found[split.contexts] = number
    return found


def context_columns(corpus: Corpus) -> list[str]:
    """The names of the splits, and NO_SPLIT where contexts are in none."""
    some = sum(map(len, corpus.splits.values())) < len(corpus.context_ids)
    return [*corpus.splits, *([NO_SPLIT] if some else [])]


def query_line(
    corpus: Corpus,
    splits: Mapping[str, Citations],
    key: str,
    what: str,
    marked: Mapping[str, NDArray[np.bool_]],
    of: Mapping[str, int] | None = None,
) -> Line:
    """How many of the queries are marked [Q] in each split, of all or of so many, and which come first.

    of: None for all of a split. Of 0 queries there is no number.
    """
    of = of or {name: len(split.split) for name, split in splits.items()}
    rows = {name: splits[name].split.contexts[found] for name, found in marked.items()}
    return Line(
        key,
        what,
        {name: len(found) if of[name] else None for name, found in rows.items()},
        of,
        {name: [corpus.context_ids[row] for row in found[:EXAMPLES]] for name, found in rows.items()},
    )


def paper_examples(corpus: Corpus, rows: NDArray[np.integer]) -> list[str]:
    """Ids of the first few of these papers."""
    return [corpus.paper_ids[row] for row in rows[:EXAMPLES]]


def roles(corpus: Corpus) -> dict[str, NDArray[np.bool_]]:
    """Papers [P] by what they are in the corpus: all, candidates, citing, cited, neither of the two."""
    every = np.ones(len(corpus.paper_ids), np.bool_)
    citing, cited = ~every, ~every
    citing[corpus.citing] = True
    for split in corpus.splits.values():
        cited[split.positives.values] = True
    return {
        "all": every,
        "candidates": corpus.is_candidate,
        "citing": citing,
        "cited": cited,
        "neither": ~(citing | cited),
    }
