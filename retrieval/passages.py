"""The citing passages of a paper being written, as evidence for a missing citation.

A paper that is cited in several places is often cited for the same reason, and close by.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from citerec.datasets.columns import Ragged
from citerec.datasets.corpus import Corpus, Split
from citerec.datasets.records import MARKER_WORDS, TARGET_WORD
from citerec.retrieval.arrays import Floats, Rows

OVERLAP = 5
"""Two passages overlap if they share this many consecutive words."""
BESIDE = 2
"""Passages that overlap and are at most so many places apart are beside each other. Further apart, they are
two copies of a text, which would tell what a masked citation was."""
SAME = 8
"""Passages with the same last words before the mark, so many, are copies of one text: an old version, a
shorter one, a summary."""
STEM = 6
"""Letters of a word that are compared."""
REACH = 8.0
"""A word d words from the mark weighs 1 / (1 + d / REACH)."""


class _Words(NamedTuple):
    """Hashes of the words of a context, without markers.

    sequences: of OVERLAP words, or of all if there are fewer. stems: distinct ones. nearness: their highest
    weight by distance from the mark. before: the last SAME words before it; fewer at the beginning of a text.
    """

    sequences: list[int]
    stems: list[int]
    nearness: list[float]
    before: tuple[str, ...]


def _read_words(context: str) -> _Words:
    from citerec.datasets.tokenize import default_tokenize

    tokens = default_tokenize(context)
    mark = tokens.index(TARGET_WORD) if TARGET_WORD in tokens else len(tokens)
    near: dict[int, float] = {}
    for place, word in enumerate(tokens):
        if word not in MARKER_WORDS:
            stem, weight = hash(word[:STEM]), 1 / (1 + abs(place - mark) / REACH)
            near[stem] = max(near.get(stem, 0), weight)
    words = [word for word in tokens if word not in MARKER_WORDS]
    size = max(min(OVERLAP, len(words)), 1)
    sequences = [hash(sequence) for sequence in zip(*(words[i:] for i in range(size)), strict=False)]
    before = tuple(word for word in tokens[:mark] if word not in MARKER_WORDS)[-SAME:]
    return _Words(sequences, list(near), list(near.values()), before)


class _Index(NamedTuple):
    """sequences: of all passages, and the passages that have them. vocabulary: ascending stems [V] with idf.

    rows, stems, weights: for each stem of each passage, the passage, the place in `vocabulary` and the weight
    in a vector of length 1.
    """

    sequences: NDArray[np.int64]
    sequence_rows: Rows
    vocabulary: NDArray[np.int64]
    idf: Floats
    rows: Rows
    stems: Rows
    weights: Floats

    @classmethod
    def build(cls, read: Sequence[_Words]) -> _Index:
        sequences, all_stems = (
            np.array([value for words in read for value in words[part]], np.int64) for part in (0, 1)
        )
        sequence_rows, rows = (
            np.repeat(np.arange(len(read)), [len(words[part]) for words in read]) for part in (0, 1)
        )
        vocabulary, stems, counts = np.unique(all_stems, return_inverse=True, return_counts=True)
        idf = np.log((len(read) + 1) / (counts + 0.5)).astype(np.float32)
        nearness = np.array([value for words in read for value in words.nearness], np.float32)
        weights = nearness * idf[stems]
        lengths = np.sqrt(np.bincount(rows, weights**2, minlength=len(read)))
        weights /= np.maximum(lengths, 1e-9)[rows].astype(np.float32)
        return cls(sequences, sequence_rows, vocabulary, idf, rows, stems, weights)


@dataclass(frozen=True, eq=False)
class CitingPassages:
    """M passages of a paper, in the order of its text.

    contexts: [M], with TARGET_MARKER. cited: [M], ids of the papers that each cites; none where a citation is
    missing.
    """

    contexts: Sequence[str]
    cited: Sequence[Sequence[str]]

    @cached_property
    def _words(self) -> list[_Words]:
        return [_read_words(context) for context in self.contexts]

    @cached_property
    def _index(self) -> _Index:
        return _Index.build(self._words)

    @cached_property
    def _copies(self) -> dict[int, set[int]]:
        """For each passage, those further away than BESIDE with the same last SAME words before the mark."""
        rows_with: dict[tuple[str, ...], list[int]] = {}
        for row, words in enumerate(self._words):
            if len(words.before) == SAME:
                rows_with.setdefault(words.before, []).append(row)
        return {
            row: others
            for rows in rows_with.values()
            for row in rows
            if (others := {other for other in rows if abs(other - row) > BESIDE})
        }

    def copied(self, place: int) -> set[str]:
        """Return the papers that only second copies of the text at a place cite, not counting that place."""
        copies = self._copies.get(place, set())
        others = (
            (row for row in range(len(self.cited)) if row != place and row not in copies) if copies else ()
        )
        elsewhere = {paper for row in others for paper in self.cited[row]}
        return {paper for row in copies for paper in self.cited[row]} - elsewhere

    def compare(self, context: str, place: int) -> tuple[NDArray[np.bool_], Floats]:
        """Compare a context, which is at `place` among the passages, with them.

        Returns which passages are elsewhere [M]: those that do not overlap with it, since a sentence may have
        several marks, and windows around neighbouring marks share text; and the cosines of its words with
        theirs [M], which weigh by idf and by nearness to the marks.
        """
        index, words = self._index, _read_words(context)
        count = len(self.contexts)
        shared = np.isin(index.sequences, np.array(words.sequences, np.int64))
        elsewhere = np.bincount(index.sequence_rows, shared, minlength=count) == 0
        elsewhere &= np.arange(count) != place
        own = np.zeros(len(index.vocabulary), np.float32)
        stems = np.array(words.stems, np.int64)
        places = np.searchsorted(index.vocabulary, stems).clip(max=max(len(own) - 1, 0))
        seen = index.vocabulary[places] == stems if len(own) else np.zeros(len(stems), np.bool_)
        # In the order of the text: that of the vocabulary is another one in each process.
        values = np.array(words.nearness, np.float32)[seen] * index.idf[places[seen]]
        own[places[seen]] = values / max(float(np.linalg.norm(values)), 1e-9)
        cosines = np.bincount(index.rows, own[index.stems] * index.weights, minlength=count)
        return elsewhere & bool(words.stems), cosines.astype(np.float32)


@dataclass(frozen=True)
class CitedElsewhere:
    """What the papers being written cite at other places, for Q queries.

    known: [Q], rows of the papers. passages: [Q], those of the query's paper, None if unknown. places: [Q],
    the query's place among them.
    """

    known: Ragged
    passages: Sequence[CitingPassages | None]
    places: Rows

    @classmethod
    def papers(cls, known: Ragged) -> CitedElsewhere:
        """Only the papers [Q] are known."""
        return cls(known, [None] * len(known), np.zeros(len(known), np.int64))

    def take(self, rows: Rows) -> CitedElsewhere:
        """Select queries."""
        passages = [self.passages[row] for row in rows.tolist()]
        return CitedElsewhere(self.known.take(rows), passages, self.places[rows])

    def cited(
        self, corpus: Corpus, query: int, context: str, beside: bool = False
    ) -> tuple[NDArray[np.int32], Floats, Floats]:
        """Return the papers that passages elsewhere cite [n], once for each passage; the cosines of the words
        of these passages with those of the query's context [n]; and their distances from it, in passages [n].
        beside: read passages beside the query's instead, which overlap with it."""
        passages, place = self.passages[query], int(self.places[query])
        if passages is None:
            return np.empty(0, np.int32), np.empty(0, np.float32), np.empty(0, np.float32)
        elsewhere, cosines = passages.compare(context, place)
        distance = np.abs(np.arange(len(elsewhere)) - place)
        wanted = ~elsewhere & (distance > 0) & (distance <= BESIDE) if beside else elsewhere
        cited = [
            (row, corpus.paper_row(paper))
            for row in np.flatnonzero(wanted).tolist()
            for paper in passages.cited[row]
            if corpus.has_paper(paper)
        ]
        rows, papers = np.array(cited, np.int64).reshape(-1, 2).T
        return papers.astype(np.int32), cosines[rows], np.maximum(distance[rows], 1).astype(np.float32)


def cited_elsewhere(corpus: Corpus, split: Split, contexts: NDArray[np.int64]) -> CitedElsewhere:
    """Return what the citing papers of contexts [Q] cite in other contexts of the split.

    The contexts of a paper are taken to be in the order of its text, as `citerec data build` writes them.
    """
    citing = corpus.citing[split.contexts]
    order = np.lexsort((split.contexts, citing))
    unique, starts = np.unique(citing[order], return_index=True)
    rows_of = dict(zip(unique.tolist(), np.split(order, starts[1:]), strict=True))
    read: dict[int, CitingPassages] = {}
    known_papers, places = list[list[int]](), np.zeros(len(contexts), np.int64)
    papers = corpus.citing[contexts].tolist()
    for query, (context, paper) in enumerate(zip(contexts.tolist(), papers, strict=True)):
        rows = rows_of[paper]
        cited = [split.positives[row].tolist() for row in rows.tolist()]
        if paper not in read:
            texts = [corpus.context_texts[row] for row in split.contexts[rows].tolist()]
            ids = [[corpus.paper_ids[other] for other in others] for others in cited]
            read[paper] = CitingPassages(texts, ids)
        places[query] = np.searchsorted(split.contexts[rows], context)
        elsewhere, _ = read[paper].compare(corpus.context_texts[context], int(places[query]))
        known_papers.append(
            sorted({cited_paper for row in np.flatnonzero(elsewhere).tolist() for cited_paper in cited[row]})
        )
    return CitedElsewhere(Ragged.from_rows(known_papers), [read[paper] for paper in papers], places)
