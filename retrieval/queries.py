"""A query is a value: a passage with a missing citation, and title and abstract of the paper being written.

`Queries` are made of a corpus's contexts by evaluation and training, or of a person's questions (`Query`);
what searches with them cannot tell which.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from datasets.columns import Ragged
from datasets.corpus import Corpus, Split
from datasets.records import MARKER_WORDS, TARGET_WORD
from retrieval.arrays import Rows
from retrieval.settings import QUERY_FIELDS


@dataclass(frozen=True)
class Query:
    """A question: what is to be cited at TARGET_MARKER (datasets.records) in `context`?"""

    context: str
    title: str = ""
    """of the paper being written, as is `abstract`"""
    abstract: str = ""
    year: int = 0
    """of the paper being written; 0: unknown"""
    known: tuple[str, ...] = ()
    """ids of papers that it cites elsewhere"""
    own: str | None = None
    """its id if the corpus has it: it is never recommended to itself"""


@dataclass(frozen=True)
class QueryField:
    """A field of Q queries: rows [Q] of columns of texts and of their word ids."""

    texts: Sequence[str]
    words: Ragged
    rows: Rows

    def take(self, places: Rows) -> QueryField:
        return QueryField(self.texts, self.words, self.rows[places])


@dataclass(frozen=True)
class Queries:
    """Q queries over a corpus. What they read is looked up when it is asked for.

    fields: `context`, and `title` and `abstract` of the citing paper. Word ids are rows of `corpus.words`,
    and of `new_words` from `len(corpus.words)` on.
    contexts: int64 [Q], rows of the corpus's contexts, -1 for questions. citing: int32 [Q], rows of the
    citing papers, below 0 where the corpus lacks them. years: int32 [Q] of the citing papers, 0: unknown.
    known: [Q], rows of papers that the citing paper is known to cite elsewhere.
    """

    corpus: Corpus
    fields: Mapping[str, QueryField]
    contexts: NDArray[np.int64]
    citing: NDArray[np.int32]
    years: NDArray[np.int32]
    known: Ragged
    new_words: Sequence[str] = ()

    @classmethod
    def of(
        cls, corpus: Corpus, contexts: NDArray[np.integer] | Queries, known: Ragged | None = None
    ) -> Queries:
        """Of rows [Q] of the corpus's contexts; what are Queries already stay as they are."""
        if isinstance(contexts, Queries):
            return contexts
        rows = np.asarray(contexts, np.int64)
        citing = corpus.citing[rows]
        papers = citing.astype(np.int64)
        fields = {
            "context": QueryField(corpus.context_texts, corpus.context_tokens, rows),
            "title": _of_papers(corpus.titles, corpus.title_tokens, papers),
            "abstract": _of_papers(corpus.abstracts, corpus.abstract_tokens, papers),
        }
        years = np.where(citing < 0, np.int32(0), corpus.years[citing.clip(min=0)])
        return cls(corpus, fields, rows, citing, years, known or _none(len(rows)))

    @classmethod
    def asked(cls, corpus: Corpus, queries: Sequence[Query]) -> Queries:
        """Of questions; KeyError for an unknown id in `known` or `own`."""
        from datasets.tokenize import TOKENIZERS  # imports numba, which takes a second

        tokenize, ids = TOKENIZERS[corpus.settings["tokenizer"]], corpus.word_ids
        new = {} if TARGET_WORD in ids else {TARGET_WORD: len(ids)}  # as `target_marker_id` says

        def field(texts: list[str]) -> QueryField:
            rows = [
                [ids[word] if word in ids else new.setdefault(word, len(ids) + len(new)) for word in words]
                for words in map(tokenize, texts)
            ]
            return QueryField(texts, Ragged.from_rows(rows), np.arange(len(texts)))

        fields = {name: field([getattr(query, name) for query in queries]) for name in QUERY_FIELDS}
        own = [-1 if query.own is None else corpus.paper_row(query.own) for query in queries]
        return cls(
            corpus,
            fields,
            np.full(len(queries), -1, np.int64),
            np.array(own, np.int32),
            np.array([query.year for query in queries], np.int32),
            Ragged.from_rows([[corpus.paper_row(paper) for paper in query.known] for query in queries]),
            list(new),
        )

    def __len__(self) -> int:
        return len(self.contexts)

    def __getitem__(self, places: Rows | slice) -> Queries:
        """Some of the queries, in the given order."""
        rows = np.arange(len(self))[places]
        fields = {name: field.take(rows) for name, field in self.fields.items()}
        taken = (self.contexts[rows], self.citing[rows], self.years[rows], self.known.take(rows))
        return Queries(self.corpus, fields, *taken, self.new_words)

    def words(self, name: str) -> Ragged:
        """Word ids of a field [Q]."""
        field = self.fields[name]
        return field.words.take(field.rows)

    def texts(self, name: str) -> list[str]:
        """A field [Q]."""
        field = self.fields[name]
        return [field.texts[row] for row in field.rows.tolist()]

    def names(self) -> list[str]:
        """What messages call the queries: ids of contexts, or the beginnings of questions."""
        return [
            self.corpus.context_ids[row] if row >= 0 else repr(text[:40])
            for row, text in zip(self.contexts.tolist(), self.texts("context"), strict=True)
        ]


def _of_papers(texts: Sequence[str], words: Ragged, papers: Rows) -> QueryField:
    """A field of papers [Q], rows of a corpus; empty for those that it lacks, below 0."""
    if papers.min(initial=0) >= 0:
        return QueryField(texts, words, papers)
    known, rows = np.unique(np.append(-1, papers.clip(min=-1)), return_inverse=True)
    taken = words.take(known[1:])
    listed = ["", *(texts[row] for row in known[1:].tolist())]
    return QueryField(listed, Ragged(taken.values, np.append(0, taken.offsets)), rows[1:])


def target_marker_id(corpus: Corpus) -> int:
    """The word id of the mark in queries; where no text of the corpus has it, it is the first new word."""
    return corpus.word_ids.get(TARGET_WORD, len(corpus.word_ids))


def _none(queries: int) -> Ragged:
    return Ragged(np.empty(0, np.int32), np.zeros(queries + 1, np.int64))


RUN_WORDS = 5
"""Two contexts overlap if they share so many words that follow each other."""


def cited_elsewhere(corpus: Corpus, split: Split, contexts: NDArray[np.int64]) -> Ragged:
    """Papers that the citing papers of contexts [Q] cite at other places of the split, by row, each once.

    A place is left out if it is the one asked for, or if its text overlaps with it: one sentence may have
    several marks, and windows around neighbouring marks share their middle.
    """
    citing = corpus.citing[split.contexts]
    order = np.argsort(citing, kind="stable")
    own, starts = np.unique(citing[order], return_index=True)
    papers = dict(zip(own.tolist(), np.split(order, starts[1:]), strict=True))
    marks = {corpus.word_ids[word] for word in MARKER_WORDS if word in corpus.word_ids}
    runs: dict[int, set[tuple[int, ...]]] = {}

    def runs_of(context: int) -> set[tuple[int, ...]]:
        if context not in runs:
            words = [word for word in corpus.context_tokens[context].tolist() if word not in marks]
            runs[context] = set(zip(*(words[i:] for i in range(RUN_WORDS)), strict=False))
        return runs[context]

    known: list[list[int]] = []
    for context in contexts.tolist():
        apart = [
            place
            for place in papers[int(corpus.citing[context])].tolist()
            if (other := int(split.contexts[place])) != context
            and runs_of(other).isdisjoint(runs_of(context))
        ]
        known.append(sorted({int(paper) for place in apart for paper in split.positives[place]}))
    return Ragged.from_rows(known)
