"""Passages as evidence: for the ranker, for a question's answers, and for a claim about one paper."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from pathlib import Path
from shlex import quote
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from citerec.base.errors import InputError, error_text
from citerec.datasets.columns import Ragged
from citerec.datasets.corpus import Corpus
from citerec.datasets.records import MARKER_WORDS, OTHER_MARKER, TARGET_MARKER, TARGET_WORD
from citerec.datasets.tokenize import default_tokenize, sentence_starts
from citerec.library.evidence import DATABASE, FOLDER
from citerec.library.evidence.index import PassageIndex, open_index
from citerec.library.evidence.passages import Passage, TextPlace
from citerec.library.evidence.store import TextStore
from citerec.rerank.ranker.texts import NEAR, nearness
from citerec.retrieval.arrays import Floats, Mask, Rows
from citerec.retrieval.lexical.terms import FUNCTION_WORDS
from citerec.retrieval.queries import Queries, marked_sentence

REACH, AROUND = 40.0, 0.5
"""For the score of a passage: distance from the mark at which a word has half the weight; and weight of the
words around what the mark stands for."""

LITERAL, LEAST_SHARE, LEAST_WORDS, LOOKED_AT = 0.8, 0.5, 6, 5
"""For a sentence that a text has nearly word for word: least share of its words that are there, and of the
words there that it has; least number of its words; number of papers that are looked at."""
_WORD = re.compile(r"\w")


class FoundPassage(NamedTuple):
    """A passage of a paper's full text."""

    passage: Passage
    file: str

    def place_of(self, sentence: str = "") -> TextPlace:
        """Return where the passage, or a sentence of it, stands."""
        passage = self.passage
        page = passage.page(max(passage.text.find(sentence), 0))
        return TextPlace(self.file, page, passage.section, passage.text, passage.kind)


@dataclass(frozen=True, eq=False)
class FullTexts:
    """The full texts of a library's papers. Several threads may ask.

    rows: of the index's papers in the corpus, -1 for one that is not in it [P]; place: of the corpus's papers
    in the index, -1 without a text.
    """

    store: TextStore
    index: PassageIndex
    rows: NDArray[np.int64]
    place: NDArray[np.int64]

    @classmethod
    def open(cls, library: Path, corpus: Corpus) -> Self | None:
        """Open the full texts of a library; None if it has none. Raises InputError if they are damaged."""
        folder = library / FOLDER
        if not (folder / DATABASE).is_file():
            return None
        try:
            store = TextStore(folder)
            index = open_index(folder, store)
        except (InputError, OSError) as error:
            reason = error_text(error).replace(f"{folder}/", "")
            again = f"citerec update library={quote(str(library))}"
            raise InputError(f"{folder}: damaged full texts ({reason}); write them anew: {again}") from None
        if index is None:
            return None
        none = np.empty(0, np.int64)
        return cls(store, index, none, none).among(corpus)

    def among(self, corpus: Corpus) -> Self:
        """Return the same texts for a corpus that may have other papers."""
        corpus_rows = [
            corpus.paper_row(paper) if corpus.has_paper(paper) else -1 for paper in self.index.papers
        ]
        rows, place = np.array(corpus_rows, np.int64), np.full(len(corpus.paper_ids), -1, np.int64)
        place[rows[rows >= 0]] = np.flatnonzero(rows >= 0)
        return replace(self, rows=rows, place=place)

    def papers(self, context: str, depth: int) -> list[str]:
        """Return the ids of the papers, `depth` at most, whose passages have most of a context's words."""
        best = self.index.best(self._word_scores(context))
        return [self.index.papers[place] for place in _first(best, depth).tolist()]

    # For the ranker.

    def find(self, queries: Queries, depth: int, eligible: Mask) -> Ragged:
        """See rerank.ranker.features.PassageScores."""
        rows = []
        for text, own in zip(queries.texts("context"), queries.citing.tolist(), strict=True):
            best = self.index.best(self._word_scores(text))
            best[(self.rows < 0) | ~eligible[self.rows] | (self.rows == own)] = 0
            rows.append(self.rows[_first(best, depth)])
        return Ragged.from_rows(rows)

    def literal(self, context: str) -> list[int]:
        """Return the rows of the papers whose text has the sentence at the mark nearly word for word, best
        first: LITERAL of its words, in a sentence that has not many more."""
        wanted = _content_words(marked_sentence(context))
        if len(wanted) < LEAST_WORDS:
            return []
        best = self.index.best(self.index.word_scores(sorted(wanted), np.ones(len(wanted), np.float32)))
        best[self.rows < 0] = 0
        shares = dict[int, float]()
        for row, passages in self.passages(context, self.rows[_first(best, LOOKED_AT)].tolist(), 3).items():
            for sentence in chain.from_iterable(_sentences(found.passage.text) for found in passages):
                words = _content_words(sentence)
                share = len(wanted & words) / len(wanted)
                if share >= LITERAL and len(wanted & words) >= LEAST_SHARE * len(words):
                    shares[row] = max(share, shares.get(row, 0.0))
        return sorted(shares, key=lambda row: -shares[row])

    def best(self, queries: Queries, papers: NDArray[np.int32]) -> Floats:
        """See rerank.ranker.features.PassageScores."""
        scores = np.full(papers.shape, np.nan, np.float32)
        for query, text in enumerate(queries.texts("context")):
            with_text = (papers[query] >= 0) & (self.place[papers[query]] >= 0)
            if len(places := self.place[papers[query, with_text]]):
                scores[query, with_text] = self.index.best(self._word_scores(text), places)
        return scores

    def _word_scores(self, text: str) -> Floats:
        return self.index.word_scores(*query_words(text, NEAR, 1))

    # For people.

    def has_text(self, row: int) -> bool:
        """True if a paper of the corpus has a full text."""
        return bool(self.place[row] >= 0)

    def file(self, row: int) -> str:
        """Return the file of a paper's full text."""
        return self.store.text(self.index.papers[self.place[row]])[0].file

    def passages(self, text: str, papers: Iterable[int], k: int) -> dict[int, list[FoundPassage]]:
        """Return the k passages of each paper (row of the corpus) that fit a text best, best first.

        text: may have TARGET_MARKER, near which words count more. Papers without a full text are left out.
        """
        places = {row: int(self.place[row]) for row in papers if self.place[row] >= 0}
        if not places:
            return {}
        numbers, offsets = self.index.passages_of(np.array([*places.values()], np.int64))
        scores = self.index.word_scores(*query_words(text, REACH, AROUND))[numbers]
        best = {}
        for number, (row, place) in enumerate(places.items()):
            stored, passages = self.store.text(self.index.papers[place])
            own = scores[offsets[number] : offsets[number + 1]]
            if stored.hash != self.index.hashes[place]:  # has changed since this index was opened
                continue
            best[row] = [FoundPassage(passages[i], stored.file) for i in _first(own, k).tolist()]
        return best


def _first(scores: Floats, most: int) -> Rows:
    """Return the places of the highest scores above 0, `most` at most, highest first."""
    order = np.argsort(-scores, kind="stable")[:most]
    return order[scores[order] > 0]


def _sentences(text: str) -> list[str]:
    return [text[start:end] for start, end in pairwise([0, *sentence_starts(text), len(text)])]


def _content_words(text: str) -> set[str]:
    """Return the words of a text that are no stop words, marks or short."""
    ignored = FUNCTION_WORDS | {*MARKER_WORDS}
    return {word for word in default_tokenize(text) if len(word) > 2 and word.isalpha()} - ignored


def query_words(text: str, reach: float, around: float) -> tuple[list[str], Floats]:
    """Return the words of a context without marks, and their weights by nearness to the mark [n].

    around: weight of the words outside what the mark stands for: its sentence, or the part after the previous
    mark if there are words between the two.
    """
    words = default_tokenize(text)
    mark = words.index(TARGET_WORD) if TARGET_WORD in words else None
    distance = np.zeros(len(words), np.int64) if mark is None else np.arange(len(words)) - mark
    weights = nearness(distance, reach=reach)
    if mark is not None and around != 1:
        sentence = marked_sentence(text)
        left = sentence.partition(TARGET_MARKER)[0]
        parts = left.split(OTHER_MARKER)[::-1]
        begin = text.find(sentence)
        places = begin + left.rfind(next(filter(_WORD.search, parts), left)), begin + len(sentence)
        first, last = (len(default_tokenize(text[:place])) for place in places)
        weights[:first] *= around
        weights[last:] *= around
    kept = [i for i, word in enumerate(words) if word not in MARKER_WORDS]
    return [words[i] for i in kept], weights[kept]
