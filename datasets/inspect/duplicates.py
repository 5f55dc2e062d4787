"""Find duplicates and near-duplicates among papers and contexts, within and across splits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from citerec.datasets.columns import Ragged, concat_ranges
from citerec.datasets.inspect.tables import CorpusView, Line, Mask, Rows, Table, count_line
from citerec.datasets.near_duplicates import SHINGLE_WORDS, exact_fraction, near_pairs, shingle_sets
from citerec.formats.letters import normalise_title

ALL = "all contexts"


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


def paper_duplicate_table(view: CorpusView, counted: Mask, least: float) -> Table:
    """Count papers with the same or nearly the same title or text, by role; arguments as for contexts."""
    corpus, roles = view.corpus, view.papers_by_role()
    pairs = NearPairs((corpus.title_tokens, corpus.abstract_tokens), counted, least)
    titles, same_title = same_titles(corpus.titles)
    other_title = pairs.partners(titles[pairs.rows] != titles[pairs.others])
    lines = [
        _partner_line(key, what, partner, roles, corpus.paper_ids)
        for key, what, partner in (
            ("title", "papers with the same title as another", same_title),
            (
                "text",
                "papers with the same words as another, in title and abstract",
                pairs.partners(pairs.same),
            ),
            ("near", "papers near another", pairs.partners()),
            ("near_other_title", "of these, papers with another title", other_title),
        )
    ]
    note = (
        "Titles are compared by letters and digits. Near: the sets of shingles "
        f"({SHINGLE_WORDS} consecutive words) of title and abstract have a Jaccard similarity of at least "
        f"{least:g}. Finding a duplicate of a target counts as a miss."
    )
    lines += pairs.lines("papers", roles)
    return Table("paper_duplicates", "Duplicate papers", note, list(roles), lines)


def same_titles(titles: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Number titles [P] by letters and digits; also returns another paper with each title, -1 for none."""
    numbers, first = np.empty(len(titles), np.int64), dict[str, int]()
    partner = np.full(len(titles), -1, np.int64)
    for row, title in enumerate(map(normalise_title, titles)):
        numbers[row] = other = first.setdefault(title, row)
        if title and other != row:
            partner[row], partner[other] = other, row
    return numbers, partner


def _partner_line(
    key: str, what: str, partner: NDArray[np.integer], groups: Mapping[str, Rows], ids: Sequence[str]
) -> Line:
    """Count rows that have a partner, with both ids as examples."""
    return count_line(key, what, partner >= 0, groups, lambda row: f"{ids[row]} = {ids[partner[row]]}")
