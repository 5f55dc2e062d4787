"""Contexts with the same words, or nearly, and those of them that are in two splits."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from datasets.inspection.equal import EqualGroups
from datasets.inspection.findings import EXAMPLES, Line, Section
from datasets.inspection.near import NearPairs, Pairs
from datasets.inspection.queries import (
    NO_SPLIT,
    Citations,
    context_columns,
    splits_of_contexts,
)
from datasets.inspection.shingles import WORDS, shingle_sets
from datasets.progress import counting
from datasets.store import Corpus

ALL = "all contexts"
"""The column of all of them."""

Examples = dict[tuple[str, str], list[str]]


class ContextDuplicates:
    """Contexts whose words, but for marks and signs, are those of others.

    Of each context [C] the row of another one, or -1: `same` has the same words, `other_target` these and
    other targets. Whether another one is nearly the same: near_own [C]: one of its citing paper; near_in
    [C, splits]: one of another citing paper, in that split; near_to [C, splits]: and that has a target in
    common with it.
    """

    def __init__(
        self, corpus: Corpus, splits: Mapping[str, Citations], counted: NDArray[np.bool_], least: float
    ) -> None:
        """counted [V]: which tokens are words; least: Jaccard similarity."""
        contexts = len(corpus.context_ids)
        self._corpus = corpus
        self._names = [*splits, NO_SPLIT]
        self.split = splits_of_contexts(corpus)
        self._targets = _Targets(corpus, splits)
        with counting("words of contexts", contexts) as done:
            sets = shingle_sets((corpus.context_tokens,), counted, done)
        self.same = EqualGroups(sets.sequences, sets.sizes > 0).partners()
        # Of contexts in no split the targets are not known.
        known = EqualGroups(sets.sequences, (sets.sizes > 0) & (self.split >= 0))
        self.other_target = known.differing(self._targets.keys())
        self.near_own = np.zeros(contexts, np.bool_)
        self.near_in = np.zeros((contexts, len(splits)), np.bool_)
        self.near_to = np.zeros((contexts, len(splits)), np.bool_)
        self.pairs = 0
        self.examples: dict[str, Examples] = {"own": {}, "in": {}, "to": {}}
        with counting("near-duplicates of contexts", contexts) as done:
            found = NearPairs(sets, least, done)
            for part in found:
                self._add(part)
        self.cut = found.cut

    def _add(self, found: Pairs) -> None:
        self.pairs += len(found.rows)
        own = self._corpus.citing[found.rows] == self._corpus.citing[found.others]
        common = self._targets.common(found.rows, found.others)
        for rows, others in ((found.rows, found.others), (found.others, found.rows)):
            self.near_own[rows[own]] = True
            self._note("own", rows, others, found.jaccard, own)
            for number in range(self.near_in.shape[1]):
                there = ~own & (self.split[others] == number)
                self.near_in[rows[there], number] = True
                self.near_to[rows[there & common], number] = True
                self._note("in", rows, others, found.jaccard, there)
                self._note("to", rows, others, found.jaccard, there & common)

    def _note(
        self,
        kind: str,
        rows: NDArray[np.int32],
        others: NDArray[np.int32],
        jaccard: NDArray[np.float32],
        marked: NDArray[np.bool_],
    ) -> None:
        """Keep the first pairs of each two splits as examples."""
        ids = self._corpus.context_ids
        for number in np.unique(self.split[rows[marked]]):
            of_split = np.flatnonzero(marked & (self.split[rows] == number))
            for pair in of_split[:EXAMPLES]:
                splits = self._names[number], self._names[self.split[others[pair]]]
                kept = self.examples[kind].setdefault(splits, [])
                if len(kept) < EXAMPLES:
                    kept.append(f"{ids[rows[pair]]} = {ids[others[pair]]} ({jaccard[pair]:.2f})")


class _Targets:
    """The targets of the contexts; those in no split have none."""

    def __init__(self, corpus: Corpus, splits: Mapping[str, Citations]) -> None:
        self._papers = len(corpus.paper_ids)
        self._contexts = len(corpus.context_ids)
        context = [split.split.contexts[split.query] for split in splits.values()]
        self._context = np.concatenate(context)
        self._cited = np.concatenate([split.cited for split in splits.values()]).astype(np.int64)
        order = np.lexsort((self._cited, self._context))
        self._context, self._cited = self._context[order], self._cited[order]
        self._starts = np.searchsorted(self._context, np.arange(self._contexts + 1))
        self._codes = self._context * self._papers + self._cited

    def keys(self) -> NDArray[np.uint64]:
        """A number for the set of targets of each context [C]."""
        mixed = (self._cited.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed)])
        return np.asarray(sums[self._starts[1:]] - sums[self._starts[:-1]])

    def common(self, rows: NDArray[np.int32], others: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Whether two contexts [n] have a target in common."""
        starts, counts = self._starts[rows], np.diff(self._starts)[rows]
        pair = np.repeat(np.arange(len(rows)), counts)
        place = np.arange(len(pair)) - np.repeat(np.cumsum(counts) - counts, counts)
        wanted = others[pair].astype(np.int64) * self._papers + self._cited[np.repeat(starts, counts) + place]
        at = np.minimum(np.searchsorted(self._codes, wanted), len(self._codes) - 1)
        found = np.zeros(len(rows), np.bool_)
        found[pair[self._codes[at] == wanted]] = True
        return found


def context_duplicate_section(corpus: Corpus, found: ContextDuplicates, least: float) -> Section:
    """Contexts of the same words, or nearly, by split; those of two splits apart."""
    columns = context_columns(corpus)
    numbers = {name: number for number, name in enumerate(corpus.splits)}
    members = {ALL: np.ones(len(found.split), np.bool_)}
    members |= {column: found.split == numbers.get(column, -1) for column in columns}
    wholes = {column: int(those.sum()) for column, those in members.items()}
    ids = corpus.context_ids

    def line(key: str, what: str, marked: NDArray[np.bool_], examples: Mapping[str, list[str]]) -> Line:
        counts = {column: int((marked & those).sum()) for column, those in members.items()}
        return Line(key, what, counts, wholes, examples)

    def equal(key: str, what: str, partner: NDArray[np.int32]) -> Line:
        marked = partner >= 0
        rows = {column: np.flatnonzero(marked & those)[:EXAMPLES] for column, those in members.items()}
        examples = {
            column: [f"{ids[row]} = {ids[partner[row]]}" for row in those] for column, those in rows.items()
        }
        return line(key, what, marked, examples)

    def near(key: str, what: str, marked: NDArray[np.bool_], kind: str, other: str | None = None) -> Line:
        examples = {column: found.examples[kind].get((column, other or column), []) for column in columns}
        return line(key, what, marked, examples)

    lines = [
        equal("same", "contexts with the words of another", found.same),
        equal("same_other_target", "contexts with the words of one with other targets", found.other_target),
        near("near_own", "contexts nearly the same as another of their citing paper", found.near_own, "own"),
    ]
    for other, number in numbers.items():
        key, what = f"near_in_{other}", f"contexts nearly the same as one of another citing paper in {other}"
        lines.append(near(key, what, found.near_in[:, number], "in", other))
        key, what = f"{key}_same_target", f"of these, with a target in common with that one in {other}"
        lines.append(near(key, what, found.near_to[:, number], "to", other))
    lines.append(Line("pairs", "pairs of contexts that are nearly the same", {ALL: found.pairs}))
    lines.append(Line("cut", "contexts not compared with all that are similar", {ALL: found.cut}, wholes))
    note = (
        f"Marks and signs are left aside. Nearly the same: they share {100 * least:g} % or more of all "
        f"shingles of {WORDS} words that they have (Jaccard similarity), as contexts with the same words do. "
        "The answer to one that is nearly the same as one in train, with its target, can be learnt by heart."
    )
    return Section("context_duplicates", "Contexts that are there twice", note, [ALL, *columns], lines)
