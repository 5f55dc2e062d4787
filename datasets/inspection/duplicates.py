"""Papers that are in the collection twice, and what that does to the splits.

Groups of rows with equal keys.
Contexts with the same words, or nearly, and those of them that are in two splits.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from datasets.corpus import Corpus
from datasets.fulltext.bibliography import letters_of, title_key
from datasets.inspection.counts import (
    NO_SPLIT,
    Citations,
    context_columns,
    query_line,
    roles,
    splits_of_contexts,
)
from datasets.inspection.findings import EXAMPLES, Line, Section
from datasets.near_duplicates import WORDS, NearPairs, Pairs, shingle_sets
from datasets.progress import counting


class EqualGroups:
    """Rows [N] by equal keys [N]; those that are not `valid` [N] are in none.

    group [N] int64 is the number of a row's group, or -1; `count` of groups.
    """

    def __init__(self, keys: NDArray[np.uint64], valid: NDArray[np.bool_]) -> None:
        self._rows = np.flatnonzero(valid)
        found, numbers = np.unique(keys[self._rows], return_inverse=True)
        self.group = np.full(len(keys), -1, np.int64)
        self.group[self._rows] = numbers
        self.count = len(found)

    def partners(self) -> NDArray[np.int32]:
        """For each row [N] another one of its group, the next or, for the last, the first; -1 for none."""
        partner = np.full(len(self.group), -1, np.int32)
        if not self.count:
            return partner
        order = self._rows[np.argsort(self.group[self._rows], kind="stable")]
        starts = np.flatnonzero(np.diff(self.group[order], prepend=-1))
        partner[order[:-1]] = order[1:]
        ends = np.append(starts[1:], len(order)) - 1
        partner[order[ends]] = order[starts]
        partner[partner == np.arange(len(partner))] = -1  # alone in its group
        return partner

    def others(self, marked: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Whether another row than this one, of its group, is marked [N]."""
        rows = self._rows
        counts = np.bincount(self.group[rows], weights=marked[rows], minlength=self.count)
        found = np.zeros(len(self.group), np.bool_)
        found[rows] = counts[self.group[rows]] > marked[rows]
        return found

    def differing(self, values: NDArray[np.uint64]) -> NDArray[np.int32]:
        """For each row [N] another one of its group with another of the values [N]; -1 for none."""
        partner = np.full(len(self.group), -1, np.int32)
        if not self.count:
            return partner
        # Sorted by group and value, the first and the last of a group differ if any two of it do.
        order = self._rows[np.lexsort((values[self._rows], self.group[self._rows]))]
        starts = np.flatnonzero(np.diff(self.group[order], prepend=-1))
        first, last = order[starts], order[np.append(starts[1:], len(order)) - 1]
        group = self.group[self._rows]
        other = np.where(values[self._rows] == values[first[group]], last[group], first[group])
        differs = values[other] != values[self._rows]
        partner[self._rows[differs]] = other[differs]
        return partner


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


EVERY = 10_000
"""Titles between two reports of progress."""

TITLE_WORDS = 3
"""That a title has at least where two papers of it are taken for one: "Introduction" is the title of many."""


class PaperDuplicates:
    """Papers that may be the same as others.

    Of each paper [P] the row of another one, or -1: `title` has the same title, by letters and digits; `text`
    has the same words in title and abstract, `near` nearly the same, `other_title` these and not that title.
    twin_is_candidate [P], twin_cites [P, splits]: a twin, of nearly the same text or of the same title of
    three words or more, is a candidate, or has contexts in that split.
    """

    def __init__(
        self,
        corpus: Corpus,
        splits: Mapping[str, Citations],
        counted: NDArray[np.bool_],
        title_lengths: NDArray[np.int64],
        least: float,
    ) -> None:
        """counted [V]: which tokens are words; title_lengths [P] in words; least: Jaccard similarity."""
        papers = len(corpus.paper_ids)
        self._candidates = corpus.is_candidate
        self._cites = np.zeros((papers, len(splits)), np.bool_)
        for number, split in enumerate(splits.values()):
            self._cites[split.citing_papers, number] = True
        self._titles = _title_keys(corpus)
        titled = EqualGroups(self._titles, self._titles != 0)
        self.title = titled.partners()
        self.near, self.other_title = np.full(papers, -1, np.int32), np.full(papers, -1, np.int32)
        long = EqualGroups(self._titles, (self._titles != 0) & (title_lengths >= TITLE_WORDS))
        self.twin_is_candidate = long.others(self._candidates)
        self.twin_cites = np.stack([long.others(cites) for cites in self._cites.T], axis=1)
        with counting("words of papers", papers) as done:
            sets = shingle_sets((corpus.title_tokens, corpus.abstract_tokens), counted, done)
        self.text = EqualGroups(sets.sequences, sets.sizes > 0).partners()
        self.pairs = 0
        with counting("near-duplicates of papers", papers) as done:
            found = NearPairs(sets, least, done)
            for part in found:
                self._add(part)
        self.cut = found.cut

    def _add(self, found: Pairs) -> None:
        self.pairs += len(found.rows)
        for rows, others in ((found.rows, found.others), (found.others, found.rows)):
            self.near[rows] = others
            differs = self._titles[rows] != self._titles[others]
            self.other_title[rows[differs]] = others[differs]
            self.twin_is_candidate[rows[self._candidates[others]]] = True
            for number, cites in enumerate(self._cites.T):
                self.twin_cites[rows[cites[others]], number] = True


def paper_duplicate_section(corpus: Corpus, found: PaperDuplicates, least: float) -> Section:
    """Papers with equal titles or texts, by role."""
    columns = roles(corpus)
    wholes = {column: int(members.sum()) for column, members in columns.items()}
    lines = []
    for key, what, partner in (
        ("title", "papers with the title of another", found.title),
        ("text", "papers with the words of another, in title and abstract", found.text),
        ("near", "papers nearly the same as another", found.near),
        ("near_other_title", "of these, with another title", found.other_title),
    ):
        rows = {column: np.flatnonzero((partner >= 0) & members) for column, members in columns.items()}
        examples = {
            column: [
                f"{corpus.paper_ids[row]} = {corpus.paper_ids[partner[row]]}" for row in those[:EXAMPLES]
            ]
            for column, those in rows.items()
        }
        counts = {column: len(those) for column, those in rows.items()}
        lines.append(Line(key, what, counts, wholes, examples))
    lines.append(Line("pairs", "pairs of papers that are nearly the same", {"all": found.pairs}))
    lines.append(Line("cut", "papers not compared with all that are similar", {"all": found.cut}, wholes))
    note = (
        "Titles are compared by letters and digits. Nearly the same: title and abstract share "
        f"{100 * least:g} % or more of all shingles of {WORDS} words that they have (Jaccard similarity)."
    )
    return Section("paper_duplicates", "Papers that are there twice", note, list(columns), lines)


def twin_section(corpus: Corpus, splits: Mapping[str, Citations], found: PaperDuplicates) -> Section:
    """What papers that are there twice do to the splits."""
    lines = [
        query_line(
            corpus,
            splits,
            "candidate",
            "contexts with a target that has a twin among the candidates",
            {name: split.any(found.twin_is_candidate[split.cited]) for name, split in splits.items()},
        )
    ]
    for number, other in enumerate(splits):
        cites = found.twin_cites[:, number]
        marked = {
            name: cites[corpus.citing[split.split.contexts]]
            for name, split in splits.items()
            if name != other
        }
        if marked:
            what = f"contexts whose citing paper has a twin with contexts in {other}"
            lines.append(query_line(corpus, splits, f"citing_in_{other}", what, marked))
    note = (
        "Twins have nearly the same text, or the same title of three words or more. To find the twin of a "
        "target counts as a miss; citing papers with twins in another split may have the same contexts there."
    )
    return Section("twins", "Twins of targets and of citing papers", note, list(splits), lines)


def _title_keys(corpus: Corpus) -> NDArray[np.uint64]:
    """A number for each title [P], by its letters and digits; 0 for none."""
    keys = np.zeros(len(corpus.titles), np.uint64)
    with counting("titles", len(keys)) as done:
        for row, title in enumerate(corpus.titles):
            if letters := letters_of(title):
                keys[row] = title_key(letters) or 1
            if (row + 1) % EVERY == 0:
                done(EVERY)
    return keys
