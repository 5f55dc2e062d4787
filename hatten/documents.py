"""Queries and papers as an encoder takes them: documents of a few paragraphs in the ids of its vocabulary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from datasets.columns import Ragged, offsets_of, ranges
from datasets.errors import InputError
from datasets.records import TARGET_WORD
from retrieval.queries import Queries

if TYPE_CHECKING:
    from datasets.corpus import Corpus

TITLE, ABSTRACT, BODY, CONTEXT = 0, 1, 2, 3
"""Paragraph types, as the reference numbers them."""
NEAR = 4
"""First type of the paragraphs of words near the citation mark, which the static model reads once more."""
ABSENT_TYPE = 10
"""The type that the reference gives to a slot without a paragraph."""


@dataclass(frozen=True)
class Documents:
    """B documents over n distinct paragraphs.

    paragraphs: token ids, one row a paragraph [n]; none is empty
    index: [B, P] int64, the paragraph in each slot, -1 where it is absent
    types: [B, P] int64
    """

    paragraphs: Ragged
    index: NDArray[np.int64]
    types: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.index)

    @property
    def is_query(self) -> NDArray[np.bool_]:
        """[B]: a document with a context is a query."""
        return ((self.types == CONTEXT) & (self.index >= 0)).any(1)


class DocumentReader:
    """Makes documents of a corpus's rows, in the words of one vocabulary."""

    def __init__(
        self, corpus: Corpus, vocabulary: Vocabulary, max_tokens: int, near: Sequence[int] = ()
    ) -> None:
        """near: for each more paragraph of a query, how many known words on each side of the mark it has."""
        self.corpus, self.max_tokens, self.near = corpus, max_tokens, near
        self._vocabulary: Vocabulary | None = vocabulary
        self.ids = vocabulary.lookup(corpus.words)
        target = vocabulary.lookup([TARGET_WORD])[0]
        self.target = int(target) if target >= 0 else None

    def __getstate__(self) -> dict[str, Any]:
        """Without the words: worker processes read contexts, which have no new ones."""
        return {**self.__dict__, "_vocabulary": None}

    def papers(self, rows: NDArray[np.integer]) -> Documents:
        """(title, abstract) of papers, rows [B]."""
        columns = (TITLE, self.corpus.title_tokens), (ABSTRACT, self.corpus.abstract_tokens)
        return _assemble([(kind, self._read(column, rows), None) for kind, column in columns])

    def queries(self, queries: Queries | NDArray[np.integer]) -> Documents:
        """(citing title, citing abstract, context, words near the mark) of queries, or rows of contexts, [B].

        A citing paper is encoded once.
        """
        asked = Queries.of(self.corpus, queries)
        new = None
        if asked.new_words:
            assert self._vocabulary is not None, "a reader in a worker process"
            new = self._vocabulary.lookup(asked.new_words)
        title, abstract, context = (asked.fields[name] for name in ("title", "abstract", "context"))
        citing, place = np.unique(title.rows, return_inverse=True)
        titles, abstracts = self._read(title.words, citing, new), self._read(abstract.words, citing, new)
        texts = self._read(context.words, context.rows, new, around=self.target)
        slots = [(TITLE, titles, place), (ABSTRACT, abstracts, place), (CONTEXT, texts, None)]
        near = self._near(texts) if self.near else []
        return _assemble([*slots, *((NEAR + i, words, None) for i, words in enumerate(near))])

    def _read(
        self,
        column: Ragged,
        rows: NDArray[np.integer],
        new: NDArray[np.int32] | None = None,
        around: int | None = None,
    ) -> Ragged:
        """Rows in the vocabulary's ids, unknown words dropped, at most `max_tokens` of each.

        new: ids of words that the corpus lacks. A row that is too long keeps its beginning, or what stands
        `around` the first token of that id.
        """
        taken = column.take(rows)
        ids = self.ids[taken.values] if new is None else self._with_new(taken.values, new)
        known = ids >= 0
        before = np.concatenate([[0], np.cumsum(known)])
        tokens, offsets = ids[known], before[taken.offsets]
        lengths = np.diff(offsets)
        if len(lengths) == 0 or lengths.max() <= self.max_tokens:
            return Ragged(tokens, offsets)
        starts = offsets[:-1].copy()
        if around is not None:
            rows, places = first_marks(Ragged(tokens, offsets), around)
            last = np.maximum(offsets[rows + 1] - self.max_tokens, starts[rows])
            starts[rows] = np.clip(places - self.max_tokens // 2, starts[rows], last)
        index, kept = ranges(starts, starts + np.minimum(lengths, self.max_tokens))
        return Ragged(tokens[index], kept)

    def _near(self, contexts: Ragged) -> list[Ragged]:
        """Of each context, its first mark with the words of each of `near`; nothing of one without a mark."""
        rows, marks = first_marks(contexts, self.target)
        found = []
        for words in self.near:
            starts, ends = np.zeros((2, len(contexts)), np.int64)
            starts[rows] = np.maximum(marks - words, contexts.offsets[rows])
            ends[rows] = np.minimum(marks + words + 1, contexts.offsets[rows + 1])
            index, offsets = ranges(starts, ends)
            found.append(Ragged(contexts.values[index], offsets))
        return found

    def _with_new(self, words: NDArray[np.int32], new: NDArray[np.int32]) -> NDArray[np.int32]:
        """Ids of words of the corpus, and of new ones, which count on from them; as many as are asked for."""
        old = words < len(self.ids)
        ids = np.empty_like(words)
        ids[old], ids[~old] = self.ids[words[old]], new[words[~old] - len(self.ids)]
        return ids


def first_marks(texts: Ragged, mark: int | None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The rows that have the mark, a token's id, and the places of the first among the values."""
    places = np.flatnonzero(texts.values == mark) if mark is not None else np.empty(0, np.int64)
    rows, first = np.unique(np.searchsorted(texts.offsets, places, side="right") - 1, return_index=True)
    return rows, places[first]


def _assemble(slots: list[tuple[int, Ragged, NDArray[np.intp] | None]]) -> Documents:
    """Slots of (type, paragraphs, which paragraph each document takes; None: its own) to documents."""
    columns, values, lengths, base = [], [], [], 0
    for _, paragraphs, place in slots:
        present = paragraphs.lengths > 0
        number = np.where(present, base + np.cumsum(present) - 1, -1)
        columns.append(number if place is None else number[place])
        values.append(paragraphs.values)
        lengths.append(paragraphs.lengths[present])
        base += int(present.sum())
    index = np.stack(columns, 1)
    types = np.where(index >= 0, np.array([kind for kind, _, _ in slots]), ABSENT_TYPE)
    return Documents(Ragged(np.concatenate(values), offsets_of(np.concatenate(lengths))), index, types)


def from_padded(
    token_ids: NDArray[np.integer], types: NDArray[np.integer], absent: NDArray[np.bool_], pad_id: int
) -> Documents:
    """Documents of padded arrays: token_ids [B, P, L], types [B, P], absent [B, P] (True: no paragraph).

    `pad_id` ends a paragraph; one without a token is absent too.
    """
    real = (token_ids != pad_id) & ~absent[:, :, None]
    lengths = real.sum(2)
    present = lengths > 0
    index = np.where(present, np.cumsum(present).reshape(present.shape) - 1, -1)
    paragraphs = Ragged(token_ids[real].astype(np.int32), offsets_of(lengths[present]))
    return Documents(paragraphs, index, np.where(present, types, ABSENT_TYPE).astype(np.int64))


PAD_WORD = "<pad>"


class Vocabulary:
    """The words of a model; the id of a word is its place in `words`.

    `<pad>` is put first unless the words have it: the reference release carries it at a place of its own, and
    its checkpoints count rows by that. A text that happens to have `<pad>` as a word does not get its id.
    """

    def __init__(self, words: Sequence[str]) -> None:
        """Raises InputError when a word appears twice."""
        self.words: list[str] = list(words) if PAD_WORD in words else [PAD_WORD, *words]
        self._ids = {word: row for row, word in enumerate(self.words)}
        if len(self._ids) != len(self.words):
            raise InputError(f"vocabulary: the word {find_repeated(self.words)!r} appears twice")
        self.pad_id: int = self._ids.pop(PAD_WORD)

    @classmethod
    def saved(cls, words: Sequence[str], vectors: int) -> Vocabulary:
        """The words of a saved model; TypeError or ValueError unless they are one for each of its vectors."""
        if not all(type(word) is str for word in words):
            raise TypeError("its words are not a list of strings")
        vocabulary = cls(words)
        if not len(words) == len(vocabulary) == vectors:
            raise ValueError(f"{len(words)} words for {vectors} vectors")
        return vocabulary

    def __len__(self) -> int:
        return len(self.words)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self.words == other.words

    def lookup(self, store_words: Iterable[str]) -> NDArray[np.int32]:
        """Ids of a corpus's words [V_store] -> own ids, -1 where the word is unknown.

        >>> Vocabulary(["deep", "nets"]).lookup(["nets", "unknown", "deep"]).tolist()
        [2, -1, 1]
        """
        return np.fromiter((self._ids.get(word, -1) for word in store_words), np.int32)


def check_tokenizer(corpus: Corpus, wanted: str, what: str) -> None:
    """InputError unless the corpus was tokenised as `what`, which has words of its own, needs it."""
    given = corpus.settings.get("tokenizer")
    if given != wanted:
        raise InputError(f"{what}: needs data.tokenizer={wanted}; {corpus.name} has data.tokenizer={given}")


def find_repeated(words: Iterable[str]) -> str:
    """The first of the words that are there twice."""
    return next(word for word, times in Counter(words).items() if times > 1)
