"""Queries: a passage with a missing citation, and title and abstract of the paper being written.

`Queries` are built from a corpus's contexts (evaluation, training) or from a user's `Query` values;
retrievers treat both alike.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from citerec.datasets.columns import Ragged
from citerec.datasets.corpus import Corpus, Split
from citerec.datasets.records import SECTION, TARGET_MARKER, TARGET_WORD
from citerec.datasets.tokenize import cut_window
from citerec.retrieval.arrays import Mask, Rows
from citerec.retrieval.passages import CitedElsewhere, CitingPassages
from citerec.retrieval.settings import QUERY_FIELDS


@dataclass(frozen=True)
class Query:
    """A user's query: what to cite at TARGET_MARKER (datasets.records) in `context`."""

    context: str
    title: str = ""
    """title of the paper being written"""
    abstract: str = ""
    """abstract of the paper being written"""
    year: int = 0
    """year of the paper being written, 0 if unknown"""
    known: tuple[str, ...] = ()
    """ids of papers cited elsewhere in the paper being written"""
    own: str | None = None
    """id of the paper being written if it is in the corpus; never recommended"""
    passages: CitingPassages | None = None
    """passages of the paper being written that cite, if known"""
    place: int = 0
    """place of the context among them: how many come before"""
    surroundings: str = ""
    """longer text that the context is cut from, if known"""


@dataclass(frozen=True)
class QueryField:
    """A field of Q queries: rows [Q] of columns of texts and of their word ids."""

    texts: Sequence[str]
    words: Ragged
    rows: Rows

    def take(self, indices: Rows) -> QueryField:
        return QueryField(self.texts, self.words, self.rows[indices])

    def strings(self) -> list[str]:
        """The texts [Q]."""
        return [self.texts[row] for row in self.rows.tolist()]


@dataclass(frozen=True)
class Queries:
    """Q queries over a corpus. Texts and words are looked up on access.

    fields: `context`, and `title` and `abstract` of the citing paper; `section`, which is the context itself
    if no more is known. Word ids are rows of `corpus.words`, followed by those of `new_words`.
    contexts: int64 [Q], rows of the corpus's contexts, -1 for `Query` values. citing: int32 [Q], rows of the
    citing papers, which are never found, negative if not in the corpus (of a collection in BEIR's layout also
    the document with the query's id). years: int32 [Q] of the citing papers, 0 if unknown.
    elsewhere: what the citing papers are known to cite elsewhere.
    positives: [Q], rows of the papers to retrieve; None unless these are the queries of a split.
    """

    corpus: Corpus
    fields: Mapping[str, QueryField]
    contexts: NDArray[np.int64]
    citing: NDArray[np.int32]
    years: NDArray[np.int32]
    elsewhere: CitedElsewhere
    new_words: Sequence[str] = ()
    positives: Ragged | None = None

    @classmethod
    def from_contexts(
        cls,
        corpus: Corpus,
        contexts: NDArray[np.integer] | Split | Queries,
        elsewhere: CitedElsewhere | None = None,
    ) -> Queries:
        """Queries from rows [Q] of the corpus's contexts or a split; `Queries` are returned unchanged."""
        if isinstance(contexts, Queries):
            return contexts
        split = contexts if isinstance(contexts, Split) else None
        rows = np.asarray(contexts if split is None else split.contexts, np.int64)
        citing, fields = corpus.citing[rows], context_fields(corpus, rows)
        years = np.where(citing < 0, np.int32(0), corpus.years[citing.clip(min=0)])
        elsewhere = elsewhere or CitedElsewhere.papers(Ragged.from_rows([[]] * len(rows)))
        positives = None if split is None else split.positives
        return cls(corpus, fields, rows, corpus.own_papers(rows), years, elsewhere, positives=positives)

    @classmethod
    def from_list(cls, corpus: Corpus, queries: Sequence[Query]) -> Queries:
        """Queries from `Query` values; KeyError for an unknown id in `known` or `own`."""
        from citerec.datasets.tokenize import TOKENIZERS

        tokenize, ids = TOKENIZERS[corpus.settings["tokenizer"]], corpus.word_ids
        new = {} if TARGET_WORD in ids else {TARGET_WORD: len(ids)}  # as in `target_marker_id`

        def field(texts: list[str]) -> QueryField:
            rows = [
                [ids[word] if word in ids else new.setdefault(word, len(ids) + len(new)) for word in words]
                for words in map(tokenize, texts)
            ]
            return QueryField(texts, Ragged.from_rows(rows), np.arange(len(texts)))

        fields = {name: field([getattr(query, name) for query in queries]) for name in QUERY_FIELDS}
        fields["section"] = fields["context"]
        if any(query.surroundings for query in queries):
            fields["section"] = field(
                [
                    cut_around_mark(query.surroundings, SECTION) if query.surroundings else query.context
                    for query in queries
                ]
            )
        own = [-1 if query.own is None else corpus.paper_row(query.own) for query in queries]
        return cls(
            corpus,
            fields,
            np.full(len(queries), -1, np.int64),
            np.array(own, np.int32),
            np.array([query.year for query in queries], np.int32),
            CitedElsewhere(
                Ragged.from_rows([[corpus.paper_row(paper) for paper in query.known] for query in queries]),
                [query.passages for query in queries],
                np.array([query.place for query in queries], np.int64),
            ),
            list(new),
        )

    def __len__(self) -> int:
        return len(self.contexts)

    @property
    def known(self) -> Ragged:
        """Rows [Q] of papers that the citing paper is known to cite elsewhere."""
        return self.elsewhere.known

    def __getitem__(self, indices: Rows | slice) -> Queries:
        """Select queries, in the given order."""
        rows = np.arange(len(self))[indices]
        fields = {name: field.take(rows) for name, field in self.fields.items()}
        columns = (self.contexts[rows], self.citing[rows], self.years[rows], self.elsewhere.take(rows))
        positives = None if self.positives is None else self.positives.take(rows)
        return Queries(self.corpus, fields, *columns, self.new_words, positives)

    def with_context(self, context: QueryField) -> Queries:
        """Return the queries with other contexts, without what surrounds them."""
        return replace(self, fields={**self.fields, "context": context, "section": context})

    def sentences(self) -> Queries:
        """Return queries of the sentences around the marks alone."""
        sentences = [marked_sentence(text) for text in self.texts("context")]
        return Queries.from_list(self.corpus, [Query(text) for text in sentences])

    def is_own(self, papers: NDArray[np.integer]) -> Mask:
        """[Q, K]: which of the papers [Q, K] is the citing paper itself, which no retriever returns."""
        own: Mask = papers == self.citing[:, None]
        return own

    def words(self, name: str) -> Ragged:
        """Word ids of a field [Q]."""
        field = self.fields[name]
        return field.words.take(field.rows)

    def word(self, word_id: int) -> str:
        """Return a word by its id."""
        count = len(self.corpus.words)
        return self.corpus.words[word_id] if word_id < count else self.new_words[word_id - count]

    def texts(self, name: str) -> list[str]:
        """Texts of a field [Q]."""
        return self.fields[name].strings()

    def names(self) -> list[str]:
        """Names of the queries for messages: context ids, or the first characters of the context."""
        return [
            self.corpus.context_ids[row] if row >= 0 else repr(text[:40])
            for row, text in zip(self.contexts.tolist(), self.texts("context"), strict=True)
        ]


def context_fields(corpus: Corpus, contexts: Rows) -> dict[str, QueryField]:
    """The fields of queries (Queries.fields) from rows [Q] of the corpus's contexts."""
    papers = corpus.citing[contexts].astype(np.int64)
    context = QueryField(corpus.context_texts, corpus.context_tokens, contexts)
    title = _paper_field(corpus.titles, corpus.title_tokens, papers)
    abstract = _paper_field(corpus.abstracts, corpus.abstract_tokens, papers)
    return {"context": context, "title": title, "abstract": abstract, "section": context}


def cut_around_mark(text: str, size: int) -> str:
    """Return at most `size` characters on each side of TARGET_MARKER, whole words.

    >>> cut_around_mark("Graphs are parsed as TARGETCIT trees are.", 12)
    'parsed as TARGETCIT trees are.'
    """
    left, _, right = text.partition(TARGET_MARKER)
    return cut_window(left, right, size, "whole")


def marked_sentence(context: str) -> str:
    """Return the sentence that cites at TARGET_MARKER; a mark after the full stop belongs before it.

    >>> marked_sentence("Trees are parsed. Graphs are not. TARGETCIT We ask why.")
    'Graphs are not. TARGETCIT '
    """
    from citerec.datasets.tokenize import sentence_starts

    bounds = [0, *sentence_starts(context), len(context)]
    mark = max(context.find(TARGET_MARKER), 0)
    number = bisect_right(bounds, mark, hi=len(bounds) - 1) - 1
    start, end = bounds[number : number + 2]
    if number and not context[start:mark].strip():
        start, end = bounds[number - 1], mark + len(TARGET_MARKER) + 1
    return context[start:end]


def _paper_field(texts: Sequence[str], words: Ragged, papers: Rows) -> QueryField:
    """A field of papers [Q], rows of a corpus; empty for negative rows."""
    if papers.min(initial=0) >= 0:
        return QueryField(texts, words, papers)
    different, rows = np.unique(np.append(-1, papers.clip(min=-1)), return_inverse=True)
    known_words = words.take(different[1:])
    known_texts = ["", *(texts[row] for row in different[1:].tolist())]
    return QueryField(known_texts, Ragged(known_words.values, np.append(0, known_words.offsets)), rows[1:])


def target_marker_id(corpus: Corpus) -> int:
    """The word id of the target marker in queries: the first new word if the corpus does not contain it."""
    return corpus.word_ids.get(TARGET_WORD, len(corpus.word_ids))
