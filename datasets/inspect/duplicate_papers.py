"""Find duplicates and near-duplicates among papers and contexts, within and across splits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from citerec.datasets.columns import Ragged, concat_ranges
from citerec.datasets.inspect.tables import CorpusView, Line, Mask, Rows, Table, count_line
from citerec.datasets.near_duplicates import SHINGLE_WORDS, exact_fraction, near_pairs, shingle_sets
from citerec.formats.letters import normalise_title, title_key

ALL = "all contexts"
TWIN_TITLE_WORDS = 3
"""Minimum title length of twins; two papers called "Introduction" are different papers."""


class NearPairs:
    """Pairs of nearly the same texts [N], each in both directions: `rows` [n], `others` [n].

    same: mask [n] of pairs with the same words. count: of the pairs, each once. cut: texts not compared with
    all similar ones.
    """

    def __init__(self, parts: Sequence[Ragged], counted: Mask, least: float) -> None:
        """parts: tokens of the texts; counted [V]: True for words; least: minimum Jaccard similarity."""
        sets, words = shingle_sets(parts, counted)
        pairs = near_pairs(sets, sets, exact_fraction(least), before=True)
        self.rows = np.concatenate([pairs.rows, pairs.others])
        self.others = np.concatenate([pairs.others, pairs.rows])
        self.same = words[self.rows] == words[self.others]
        self.count, self.cut, self._texts = len(pairs.rows), pairs.cut, len(sets)

    def partners(self, wanted: Mask | bool = True) -> NDArray[np.int64]:
        """Return the first partner of each text among the wanted pairs [N]; -1 if there is none."""
        pairs = np.flatnonzero(np.broadcast_to(wanted, len(self.rows)))[::-1]
        partner = np.full(self._texts, -1, np.int64)
        partner[self.rows[pairs]] = self.others[pairs]
        return partner

    def lines(self, what: str, groups: Mapping[str, Rows]) -> list[Line]:
        """Count the pairs and the texts whose search was cut, in the first column."""
        totals = {column: len(rows) for column, rows in groups.items()}
        first = next(iter(groups))
        return [
            Line("pairs", f"pairs of near-duplicate {what}", {first: self.count}),
            Line("cut", f"{what} not compared with all similar ones", {first: self.cut}, totals),
        ]


def context_duplicate_table(view: CorpusView, counted: Mask, least: float) -> Table:
    """Count contexts with the same or nearly the same words, by split.

    Markers and punctuation do not count. counted [V]: True for words; least: minimum Jaccard similarity.
    """
    pairs = NearPairs((view.corpus.context_tokens,), counted, least)
    rows, others = pairs.rows, pairs.others
    groups: dict[str, Rows] = {ALL: np.arange(len(view.split)), **view.contexts}
    ids = view.corpus.context_ids
    order = np.lexsort((view.cited, view.context))
    cited = view.cited[order].astype(np.int64)
    starts = np.searchsorted(view.context[order], np.arange(len(view.split) + 1))
    shared = _share_targets(rows, others, starts, cited)
    size = starts[1:] - starts[:-1]
    # Contexts in no split have unknown targets.
    in_splits = (view.split[rows] >= 0) & (view.split[others] >= 0)
    other_target = in_splits & ((shared < size[rows]) | (shared < size[others]))
    own = view.corpus.citing[rows] == view.corpus.citing[others]
    wanted = {
        "same": ("contexts with the same words as another", pairs.same),
        "same_other_target": (
            "contexts with the same words as one with other targets", pairs.same & other_target
        ),
        "near_own": ("contexts near another of the same citing paper", own),
    }  # fmt: skip
    for number, other in enumerate(view.contexts):
        there = ~own & (view.split[others] == number)
        wanted |= {
            f"near_in_{other}": (f"contexts near one of another citing paper in {other}", there),
            f"near_in_{other}_same_target": (
                "of these, contexts that share a target with it", there & (shared > 0)
            ),
        }  # fmt: skip
    lines = [
        _partner_line(key, what, pairs.partners(mask), groups, ids) for key, (what, mask) in wanted.items()
    ]
    note = (
        f"Punctuation and markers are ignored. Near: the sets of shingles ({SHINGLE_WORDS} consecutive "
        f"words) have a Jaccard similarity of at least {least:g}; this includes contexts with the same "
        "words. A model can memorise the answer to a context near one in train with the same target."
    )
    lines += pairs.lines("contexts", groups)
    return Table("context_duplicates", "Duplicate contexts", note, list(groups), lines)


def _share_targets(
    rows: NDArray[np.int64], others: NDArray[np.int64], starts: NDArray[np.int64], cited: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Count the targets that both contexts of each pair [n] have.

    cited[starts[i]:starts[i + 1]]: the targets of context i.
    """
    papers = int(cited.max(initial=0)) + 1

    def keys(contexts: NDArray[np.int64]) -> NDArray[np.int64]:
        numbers, offsets = concat_ranges(starts[contexts], starts[contexts + 1])
        return np.repeat(np.arange(len(contexts)), np.diff(offsets)) * papers + cited[numbers]

    return np.bincount(np.intersect1d(keys(rows), keys(others)) // papers, minlength=len(rows))


class PaperDuplicates:
    """Papers [P] that may be duplicates of others.

    Rows of other papers, or -1: `title` has the same title by letters and digits, `near` nearly the same
    text, `text` the same words in title and abstract, `other_title` nearly the same text with another title.
    A twin has nearly the same text, or the same title of three or more words. Masks: `twin_is_candidate` [P];
    `twin_cites` [P, splits] if it has contexts in that split.
    """

    def __init__(
        self, view: CorpusView, counted: Mask, title_lengths: NDArray[np.int64], least: float
    ) -> None:
        """counted [V]: True for words; title_lengths [P]: in words; least: minimum Jaccard similarity."""
        corpus = view.corpus
        letters = [normalise_title(title) for title in corpus.titles]
        titles = np.array([title_key(title) if title else 0 for title in letters], np.uint64)
        has_title = np.array([title != "" for title in letters], np.bool_)
        self.pairs = NearPairs((corpus.title_tokens, corpus.abstract_tokens), counted, least)
        differ = titles[self.pairs.rows] != titles[self.pairs.others]
        self.title = _equal_partners(_groups(titles, has_title))
        self.text, self.near = self.pairs.partners(self.pairs.same), self.pairs.partners()
        self.other_title = self.pairs.partners(differ)
        twins = _groups(titles, has_title & (title_lengths >= TWIN_TITLE_WORDS))

        def twin_is(marked: Mask) -> Mask:
            counts = np.bincount(twins, weights=marked)
            has_twin: Mask = counts[twins] > marked
            has_twin[self.pairs.rows[marked[self.pairs.others]]] = True
            return has_twin

        self.twin_is_candidate = twin_is(np.asarray(corpus.is_candidate))
        citing = [np.isin(np.arange(len(titles)), papers) for papers in view.citing_papers.values()]
        self.twin_cites = np.stack([twin_is(marked) for marked in citing], axis=1)


def _groups(keys: NDArray[np.uint64], valid: Mask) -> NDArray[np.int64]:
    """Number rows [N] by their keys [N]; rows that are not valid [N] have a number of their own."""
    _, group = np.unique(keys, return_inverse=True)
    return np.where(valid, group, len(keys) + np.arange(len(keys)))


def _equal_partners(groups: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the next row of the same group [N], cyclically; -1 for single rows."""
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    following = np.roll(order, -1)
    last = ordered != np.roll(ordered, -1)
    following[last] = order[np.searchsorted(ordered, ordered[last])]
    partner = np.empty(len(groups), np.int64)
    partner[order] = np.where(following == order, -1, following)
    return partner


def paper_duplicate_table(view: CorpusView, duplicates: PaperDuplicates, least: float) -> Table:
    """Count papers with the same or nearly the same title or text, by role."""
    roles, ids = view.papers_by_role(), view.corpus.paper_ids
    lines = [
        _partner_line(key, what, partner, roles, ids)
        for key, what, partner in (
            ("title", "papers with the same title as another", duplicates.title),
            ("text", "papers with the same words as another, in title and abstract", duplicates.text),
            ("near", "papers near another", duplicates.near),
            ("near_other_title", "of these, papers with another title", duplicates.other_title),
        )
    ]
    lines += duplicates.pairs.lines("papers", roles)
    note = (
        "Titles are compared by letters and digits. Near: the sets of shingles "
        f"({SHINGLE_WORDS} consecutive words) of title and abstract have a Jaccard similarity of at least "
        f"{least:g}."
    )
    return Table("paper_duplicates", "Duplicate papers", note, list(roles), lines)


def twin_table(view: CorpusView, duplicates: PaperDuplicates) -> Table:
    """Count contexts whose target or citing paper has a twin."""
    candidate = view.contexts_with_target(duplicates.twin_is_candidate[view.cited])
    lines = [view.line("candidate", "contexts with a target that has a twin among the candidates", candidate)]
    for number, other in enumerate(view.contexts):
        marked = duplicates.twin_cites[view.corpus.citing, number]
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
    key: str, what: str, partner: NDArray[np.integer], groups: Mapping[str, Rows], ids: Sequence[str]
) -> Line:
    """Count rows that have a partner, with both ids as examples."""
    return count_line(key, what, partner >= 0, groups, lambda row: f"{ids[row]} = {ids[partner[row]]}")
