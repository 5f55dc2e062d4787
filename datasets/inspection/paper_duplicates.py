"""Papers that are in the collection twice, and what that does to the splits."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from datasets.fulltext.names import letters_of, title_key
from datasets.inspection.equal import EqualGroups
from datasets.inspection.findings import EXAMPLES, Line, Section
from datasets.inspection.near import NearPairs, Pairs
from datasets.inspection.queries import Citations, query_line, roles
from datasets.inspection.shingles import WORDS, shingle_sets
from datasets.progress import counting
from datasets.store import Corpus

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
