"""Find duplicates and near-duplicates among papers and contexts, within and across splits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from citerec.base.progress import count_progress
from citerec.datasets.columns import concat_ranges
from citerec.datasets.corpus import Corpus
from citerec.datasets.inspect.tables import (
    EXAMPLES,
    NO_SPLIT,
    CorpusView,
    Line,
    Mask,
    Rows,
    Table,
    count_line,
)
from citerec.datasets.near_duplicates import SHINGLE_WORDS, Pairs, SetIndex, exact_fraction, shingle_sets
from citerec.formats.letters import normalise_title, title_key

ALL = "all contexts"
TWIN_TITLE_WORDS = 3
"""Minimum title length of twins; two papers called "Introduction" are different papers."""
TITLES = 10_000
"""Titles per progress update."""

Keys = NDArray[np.uint64]


class EqualGroups:
    """Rows [N] grouped by key [N]; rows that are not `valid` [N] are in no group."""

    def __init__(self, keys: Keys, valid: Mask) -> None:
        self._size, self._rows = len(keys), np.flatnonzero(valid)
        _, self._group = np.unique(keys[self._rows], return_inverse=True)

    def partners(self) -> NDArray[np.int32]:
        """The next row of the same group [N], cyclically; -1 for single rows."""
        rows, first, last = self._sort(self._rows)
        other = np.where(rows == last, first, np.roll(rows, -1))
        return self._scatter(rows, other, rows != other)

    def differing_partners(self, values: Keys) -> NDArray[np.int32]:
        """A row of the same group with another value [N]; -1 if none."""
        rows, first, last = self._sort(values[self._rows])
        other = np.where(values[rows] == values[first], last, first)
        return self._scatter(rows, other, values[rows] != values[other])

    def has_marked_partner(self, marked: Mask) -> Mask:
        """True if another row of the same group is marked [N]."""
        marks = marked[self._rows]
        found = np.zeros(self._size, np.bool_)
        found[self._rows] = np.bincount(self._group, weights=marks)[self._group] > marks
        return found

    def _sort(self, values: NDArray[np.generic]) -> tuple[Rows, Rows, Rows]:
        """Sort rows by group and value; also returns the first and last row of each row's group."""
        order = np.lexsort((values, self._group))
        rows, group = self._rows[order], self._group[order]
        return rows, rows[np.searchsorted(group, group)], rows[np.searchsorted(group, group, "right") - 1]

    def _scatter(self, rows: Rows, others: Rows, wanted: Mask) -> NDArray[np.int32]:
        found = np.full(self._size, -1, np.int32)
        found[rows[wanted]] = others[wanted]
        return found


class ContextDuplicates:
    """Contexts with the same or nearly the same words as others, ignoring markers and punctuation.

    Rows of other contexts [C], or -1: `same` has the same words, `other_target` the same words but other
    targets. Masks of near-duplicates: `near_own` [C] of a context of the same citing paper; `near_in`
    [C, splits] of one of another citing paper in that split; `near_to` [C, splits] that also shares a target.
    """

    def __init__(self, view: CorpusView, counted: Mask, least: float) -> None:
        """counted [V]: True for tokens that are words; least: minimum Jaccard similarity."""
        self._view = view
        contexts = len(view.split)
        with count_progress("words of contexts", contexts) as done:
            sets, sequences = shingle_sets((view.corpus.context_tokens,), counted, done)
        self.same = EqualGroups(sequences, sets.sizes > 0).partners()
        order = np.lexsort((view.cited, view.context))
        self._cited = view.cited[order].astype(np.int64)
        self._starts = np.searchsorted(view.context[order], np.arange(contexts + 1))
        self._citations = view.context[order] * len(view.corpus.paper_ids) + self._cited
        # Contexts in no split have unknown targets.
        known = EqualGroups(sequences, (sets.sizes > 0) & (view.split >= 0))
        self.other_target = known.differing_partners(self._target_keys())
        self.near_own = np.zeros(contexts, np.bool_)
        self.near_in = np.zeros((contexts, len(view.contexts)), np.bool_)
        self.near_to = np.zeros_like(self.near_in)
        self.examples: dict[tuple[str, int, int], list[str]] = {}
        """Example pairs by kind, split and split of the other context (-1 if none)."""
        self.pairs = 0
        index = SetIndex(sets, exact_fraction(least), self_only=True)
        with count_progress("near-duplicates of contexts", contexts) as done:
            for pairs in index.self_pairs(done):
                self._add_pairs(pairs)
        self.cut = index.cut

    def _add_pairs(self, pairs: Pairs) -> None:
        self.pairs += len(pairs.rows)
        own = self._view.corpus.citing[pairs.rows] == self._view.corpus.citing[pairs.others]
        common = self._have_common_target(pairs.rows, pairs.others)
        for rows, others in ((pairs.rows, pairs.others), (pairs.others, pairs.rows)):
            self.near_own[rows[own]] = True
            self._add_examples("own", rows, others, pairs.jaccard, own)
            for number in range(self.near_in.shape[1]):
                there = ~own & (self._view.split[others] == number)
                self.near_in[rows[there], number] = True
                self.near_to[rows[there & common], number] = True
                self._add_examples("in", rows, others, pairs.jaccard, there)
                self._add_examples("to", rows, others, pairs.jaccard, there & common)

    def _add_examples(
        self, kind: str, rows: Rows, others: Rows, jaccard: NDArray[np.float32], marked: Mask
    ) -> None:
        """Keep the first pairs of each pair of splits as examples."""
        split, ids = self._view.split, self._view.corpus.context_ids
        for number in np.unique(split[rows[marked]]).tolist():
            for pair in np.flatnonzero(marked & (split[rows] == number))[:EXAMPLES]:
                kept = self.examples.setdefault((kind, number, int(split[others[pair]])), [])
                if len(kept) < EXAMPLES:
                    kept.append(f"{ids[rows[pair]]} = {ids[others[pair]]} ({jaccard[pair]:.2f})")

    def _target_keys(self) -> Keys:
        """Hash the set of targets of each context [C]."""
        mixed = (self._cited.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed)])
        return np.asarray(sums[self._starts[1:]] - sums[self._starts[:-1]])

    def _have_common_target(self, rows: Rows, others: Rows) -> Mask:
        """True for pairs [n] of contexts that share a target."""
        indices, offsets = concat_ranges(self._starts[rows], self._starts[rows + 1])
        pair = np.repeat(np.arange(len(rows)), np.diff(offsets))
        wanted = others[pair].astype(np.int64) * len(self._view.corpus.paper_ids) + self._cited[indices]
        found = np.zeros(len(rows), np.bool_)
        found[pair[np.isin(wanted, self._citations)]] = True
        return found


def context_duplicate_table(view: CorpusView, found: ContextDuplicates, least: float) -> Table:
    """Count contexts with the same or nearly the same words, by split."""
    ids = view.corpus.context_ids
    columns: dict[str, Rows] = {ALL: np.arange(len(view.split))}
    columns |= {name: np.sort(rows) for name, rows in view.contexts.items()} | view.in_no_split()
    numbers = {name: number for number, name in enumerate(view.contexts)} | {NO_SPLIT: -1}

    def near(key: str, what: str, marked: Mask, kind: str, other: str | None = None) -> Line:
        line = count_line(key, what, marked, columns, ids.__getitem__)
        examples = {
            column: found.examples.get((kind, numbers[column], numbers[other or column]), [])
            for column in columns
            if column != ALL
        }
        return Line(key, what, line.values, line.of, examples)

    lines = [
        _partner_line("same", "contexts with the same words as another", found.same, columns, ids),
        _partner_line(
            "same_other_target",
            "contexts with the same words as one with other targets",
            found.other_target,
            columns,
            ids,
        ),
        near("near_own", "contexts near another of the same citing paper", found.near_own, "own"),
    ]
    for number, other in enumerate(view.contexts):
        key, what = f"near_in_{other}", f"contexts near one of another citing paper in {other}"
        lines.append(near(key, what, found.near_in[:, number], "in", other))
        what = "of these, contexts that share a target with it"
        lines.append(near(f"{key}_same_target", what, found.near_to[:, number], "to", other))
    lines += _pair_lines("contexts", found.pairs, found.cut, columns)
    note = (
        f"Punctuation and markers are ignored. Near: the sets of shingles ({SHINGLE_WORDS} consecutive "
        f"words) have a Jaccard similarity of at least {least:g}; this includes contexts with the same "
        "words. A model can memorise the answer to a context near one in train with the same target."
    )
    return Table("context_duplicates", "Duplicate contexts", note, list(columns), lines)


class PaperDuplicates:
    """Papers that may be duplicates of others.

    Rows of other papers [P], or -1: `title` has the same title by letters and digits, `text` the same words
    in title and abstract, `near` nearly the same text, `other_title` the same but with another title. A twin
    has nearly the same text, or the same title of three or more words. Masks: `twin_is_candidate` [P];
    `twin_cites` [P, splits] if it has contexts in that split.
    """

    def __init__(
        self, view: CorpusView, counted: Mask, title_lengths: NDArray[np.int64], least: float
    ) -> None:
        """counted [V]: True for words; title_lengths [P]: in words; least: minimum Jaccard similarity."""
        corpus = view.corpus
        papers = len(corpus.paper_ids)
        cites = np.zeros((papers, len(view.contexts)), np.bool_)
        for number, rows in enumerate(view.citing_papers.values()):
            cites[rows, number] = True
        titles = _title_keys(corpus)
        self.title = EqualGroups(titles, titles != 0).partners()
        long = EqualGroups(titles, (titles != 0) & (title_lengths >= TWIN_TITLE_WORDS))
        self.twin_is_candidate = long.has_marked_partner(corpus.is_candidate)
        self.twin_cites = np.stack([long.has_marked_partner(there) for there in cites.T], axis=1)
        with count_progress("words of papers", papers) as done:
            sets, sequences = shingle_sets((corpus.title_tokens, corpus.abstract_tokens), counted, done)
        self.text = EqualGroups(sequences, sets.sizes > 0).partners()
        self.near, self.other_title = np.full(papers, -1, np.int32), np.full(papers, -1, np.int32)
        self.pairs = 0
        index = SetIndex(sets, exact_fraction(least), self_only=True)
        with count_progress("near-duplicates of papers", papers) as done:
            for pairs in index.self_pairs(done):
                self.pairs += len(pairs.rows)
                for rows, others in ((pairs.rows, pairs.others), (pairs.others, pairs.rows)):
                    self.near[rows] = others
                    differs = titles[rows] != titles[others]
                    self.other_title[rows[differs]] = others[differs]
                    self.twin_is_candidate[rows[corpus.is_candidate[others]]] = True
                    for number, there in enumerate(cites.T):
                        self.twin_cites[rows[there[others]], number] = True
        self.cut = index.cut


def _title_keys(corpus: Corpus) -> Keys:
    """Hash the letters and digits of each title [P]; 0 for empty titles."""
    keys = np.zeros(len(corpus.titles), np.uint64)
    with count_progress("titles", len(keys)) as done:
        for row, title in enumerate(corpus.titles):
            if letters := normalise_title(title):
                keys[row] = title_key(letters) or 1
            if (row + 1) % TITLES == 0:
                done(TITLES)
    return keys


def paper_duplicate_table(view: CorpusView, found: PaperDuplicates, least: float) -> Table:
    """Count papers with the same or nearly the same title or text, by role."""
    roles, ids = view.papers_by_role(), view.corpus.paper_ids
    lines = [
        _partner_line(key, what, partner, roles, ids)
        for key, what, partner in (
            ("title", "papers with the same title as another", found.title),
            ("text", "papers with the same words as another, in title and abstract", found.text),
            ("near", "papers near another", found.near),
            ("near_other_title", "of these, papers with another title", found.other_title),
        )
    ]
    lines += _pair_lines("papers", found.pairs, found.cut, roles)
    note = (
        "Titles are compared by letters and digits. Near: the sets of shingles "
        f"({SHINGLE_WORDS} consecutive words) of title and abstract have a Jaccard similarity of at least "
        f"{least:g}."
    )
    return Table("paper_duplicates", "Duplicate papers", note, list(roles), lines)


def twin_table(view: CorpusView, found: PaperDuplicates) -> Table:
    """Count contexts whose target or citing paper has a twin."""
    candidate = view.contexts_with_target(found.twin_is_candidate[view.cited])
    lines = [view.line("candidate", "contexts with a target that has a twin among the candidates", candidate)]
    for number, other in enumerate(view.contexts):
        marked = found.twin_cites[view.corpus.citing, number]
        groups = {name: rows for name, rows in view.contexts.items() if name != other}
        if groups:
            what = f"contexts whose citing paper has a twin with contexts in {other}"
            name = view.corpus.context_ids.__getitem__
            lines.append(count_line(f"citing_in_{other}", what, marked, groups, name))
    note = (
        "Twins have nearly the same text, or the same title of three or more words. Finding the twin of a "
        "target counts as a miss; citing papers with twins in another split may have the same contexts there."
    )
    return Table("twins", "Twins of targets and citing papers", note, list(view.contexts), lines)


def _partner_line(
    key: str, what: str, partner: NDArray[np.int32], groups: Mapping[str, Rows], ids: Sequence[str]
) -> Line:
    """Count rows that have a partner, with both ids as examples."""
    return count_line(key, what, partner >= 0, groups, lambda row: f"{ids[row]} = {ids[partner[row]]}")


def _pair_lines(what: str, pairs: int, cut: int, groups: Mapping[str, Rows]) -> list[Line]:
    totals = {column: len(rows) for column, rows in groups.items()}
    first = next(iter(groups))
    return [
        Line("pairs", f"pairs of near-duplicate {what}", {first: pairs}),
        Line("cut", f"{what} not compared with all similar ones", {first: cut}, totals),
    ]
