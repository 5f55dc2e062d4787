"""Encoder inputs: queries and papers as documents of a few paragraphs of token ids, also as padded arrays.

A `Layout` prepares the arrays on the CPU, in a loader's process if there is one. Lengths, padding and masks
are then known before anything goes to a device: one transfer moves them, and no step waits for a result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from citerec.base.errors import InputError
from citerec.datasets.columns import Ragged, chunks, concat_ranges, offsets_of, padded_length
from citerec.datasets.records import TARGET_WORD
from citerec.retrieval.queries import Queries, context_fields

if TYPE_CHECKING:
    from citerec.datasets.corpus import Corpus

TITLE, ABSTRACT, CONTEXT = 0, 1, 3
"""Paragraph types, numbered as in the reference implementation."""
NEAR = 4
"""First type of the static model's extra paragraphs: windows of words around the citation marker."""
ABSENT_TYPE = 10
"""Type of an absent paragraph in the reference implementation."""


@dataclass(frozen=True)
class Documents:
    """B documents over n distinct paragraphs.

    paragraphs: token ids, one non-empty row per paragraph [n]
    index: [B, P] int64, row in `paragraphs`, -1 if absent
    types: [B, P] int64
    """

    paragraphs: Ragged
    index: NDArray[np.int64]
    types: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.index)

    @property
    def is_query(self) -> NDArray[np.bool_]:
        """[B], True for documents with a context."""
        return ((self.types == CONTEXT) & (self.index >= 0)).any(1)


class DocumentReader:
    """Turns rows of a corpus into documents over a vocabulary."""

    def __init__(
        self, corpus: Corpus, vocabulary: Vocabulary, max_tokens: int, near: Sequence[int] = ()
    ) -> None:
        """near: word counts; each adds a query paragraph, so many known words on each side of the marker."""
        self.corpus, self.max_tokens, self.near = corpus, max_tokens, near
        self._vocabulary: Vocabulary | None = vocabulary
        self.ids = vocabulary.lookup(corpus.words)
        target = vocabulary.lookup([TARGET_WORD])[0]
        self.target = int(target) if target >= 0 else None

    def __getstate__(self) -> dict[str, Any]:
        """Drop the vocabulary: worker processes read contexts of the corpus, which have no new words."""
        return {**self.__dict__, "_vocabulary": None}

    def papers(self, rows: NDArray[np.integer]) -> Documents:
        """Read (title, abstract) of papers, rows [B]."""
        columns = (TITLE, self.corpus.title_tokens), (ABSTRACT, self.corpus.abstract_tokens)
        return _assemble([(kind, self._read(column, rows), None) for kind, column in columns])

    def queries(self, queries: Queries | NDArray[np.integer]) -> Documents:
        """Read (citing title, citing abstract, context, words near the marker) of queries or contexts [B].

        Queries with the same citing paper share its paragraphs.
        """
        new = None
        if isinstance(queries, Queries):
            fields = queries.fields
            if queries.new_words:
                assert self._vocabulary is not None, "a reader in a worker process"
                new = self._vocabulary.lookup(queries.new_words)
        else:
            fields = context_fields(self.corpus, np.asarray(queries, np.int64))
        columns: list[tuple[int, Ragged, NDArray[np.int64] | None]] = []
        for kind, name in ((TITLE, "title"), (ABSTRACT, "abstract")):
            rows, inverse = np.unique(fields[name].rows, return_inverse=True)
            columns.append((kind, self._read(fields[name].words, rows, new), inverse))
        context = fields["context"]
        texts = self._read(context.words, context.rows, new, around=self.target)
        columns.append((CONTEXT, texts, None))
        near = self._near_marker(texts) if self.near else []
        return _assemble([*columns, *((NEAR + i, words, None) for i, words in enumerate(near))])

    def _read(
        self,
        column: Ragged,
        rows: NDArray[np.integer],
        new: NDArray[np.int32] | None = None,
        around: int | None = None,
    ) -> Ragged:
        """Map rows to ids of the vocabulary, drop unknown words and truncate to `max_tokens`.

        new: ids of words that are not in the corpus. around: a token id; rows that have it are truncated to a
        window around its first occurrence, all others to their beginning.
        """
        texts = column.take(rows)
        ids = self.ids[texts.values] if new is None else self._map_ids(texts.values, new)
        is_known = ids >= 0
        known_before = np.concatenate([[0], np.cumsum(is_known)])
        tokens, offsets = ids[is_known], known_before[texts.offsets]
        lengths = np.diff(offsets)
        if len(lengths) == 0 or lengths.max() <= self.max_tokens:
            return Ragged(tokens, offsets)
        starts = offsets[:-1].copy()
        if around is not None:
            rows, positions = first_markers(Ragged(tokens, offsets), around)
            last = np.maximum(offsets[rows + 1] - self.max_tokens, starts[rows])
            starts[rows] = np.clip(positions - self.max_tokens // 2, starts[rows], last)
        index, truncated = concat_ranges(starts, starts + np.minimum(lengths, self.max_tokens))
        return Ragged(tokens[index], truncated)

    def _near_marker(self, contexts: Ragged) -> list[Ragged]:
        """Return, per entry of `near`, the window around each context's first marker; empty without one."""
        rows, markers = first_markers(contexts, self.target)
        windows = []
        for words in self.near:
            starts, ends = np.zeros((2, len(contexts)), np.int64)
            starts[rows] = np.maximum(markers - words, contexts.offsets[rows])
            ends[rows] = np.minimum(markers + words + 1, contexts.offsets[rows + 1])
            index, offsets = concat_ranges(starts, ends)
            windows.append(Ragged(contexts.values[index], offsets))
        return windows

    def _map_ids(self, words: NDArray[np.int32], new: NDArray[np.int32]) -> NDArray[np.int32]:
        """Map word ids of the corpus, followed by those of new words, to ids of the vocabulary."""
        old = words < len(self.ids)
        ids = np.empty_like(words)
        ids[old], ids[~old] = self.ids[words[old]], new[words[~old] - len(self.ids)]
        return ids


def first_markers(texts: Ragged, marker: int | None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows that contain the token `marker`, and the index of its first occurrence in `values`."""
    positions = np.flatnonzero(texts.values == marker) if marker is not None else np.empty(0, np.int64)
    rows, first = np.unique(np.searchsorted(texts.offsets, positions, side="right") - 1, return_index=True)
    return rows, positions[first]


def _assemble(columns: list[tuple[int, Ragged, NDArray[np.intp] | None]]) -> Documents:
    """Build documents from columns (type, paragraphs, row of each document's paragraph; None: one each)."""
    index_columns, values, lengths, base = [], [], [], 0
    for _, paragraphs, inverse in columns:
        present = paragraphs.lengths > 0
        number = np.where(present, base + np.cumsum(present) - 1, -1)
        index_columns.append(number if inverse is None else number[inverse])
        values.append(paragraphs.values)
        lengths.append(paragraphs.lengths[present])
        base += int(present.sum())
    index = np.stack(index_columns, 1)
    types = np.where(index >= 0, np.array([kind for kind, _, _ in columns]), ABSENT_TYPE)
    return Documents(Ragged(np.concatenate(values), offsets_of(np.concatenate(lengths))), index, types)


def drop_words(documents: Documents, share: float, rng: np.random.Generator) -> Documents:
    """Drop each word with a probability of `share`; a paragraph that would lose all keeps its first."""
    texts = documents.paragraphs
    kept = rng.random(len(texts.values)) >= share
    rows = np.repeat(np.arange(len(texts)), texts.lengths)
    kept[texts.offsets[:-1][np.bincount(rows[kept], minlength=len(texts)) == 0]] = True
    return replace(
        documents,
        paragraphs=Ragged(texts.values[kept], offsets_of(np.bincount(rows[kept], minlength=len(texts)))),
    )


Array = Any
"""A NumPy array, or a tensor once it has been moved to a device (retrieval.encoders.nets.to_device)."""


@dataclass(frozen=True)
class Chunk:
    """Paragraphs of similar length.

    ids: [n, L]; absent: [n, L], padding (None: none).
    """

    ids: Array
    absent: Array | None


@dataclass(frozen=True)
class LevelInputs:
    """B documents for the two levels.

    chunks: their n distinct paragraphs, longest first; back: [n], the position of each among the chunks.
    index: [B, P], paragraphs of the documents, 0 where there is none; missing: [B, P]; types: [B, P].
    absent: [B, P], paragraphs that the attention ignores: the missing ones, except in documents that have
    no paragraph at all (None: none). empty: [B], documents without paragraphs (None: none).
    """

    chunks: list[Chunk]
    back: Array
    index: Array
    missing: Array
    types: Array
    absent: Array | None
    empty: Array | None


@dataclass(frozen=True)
class Layout:
    """Lays out documents for HAtten's two levels. It holds no weights, so that other processes can have it.

    chunk_tokens: maximum padded tokens of a chunk.
    """

    chunk_tokens: int = 2048
    max_tokens: int = 512

    def prepare(self, documents: Documents) -> LevelInputs:
        """The inputs of documents."""
        paragraphs, missing = documents.paragraphs, documents.index < 0
        order = np.argsort(-paragraphs.lengths, kind="stable")
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        empty: Array = missing.all(1)
        absent = missing & ~empty[:, None]  # rows without keys would become NaN
        return LevelInputs(
            [
                self._chunk(paragraphs.take(order[rows]))
                for rows in chunks(paragraphs.lengths[order], self.chunk_tokens)
            ],
            back,
            np.maximum(documents.index, 0),
            missing,
            documents.types,
            absent if absent.any() else None,
            empty if empty.any() else None,
        )

    def _chunk(self, paragraphs: Ragged) -> Chunk:
        lengths = paragraphs.lengths
        position = np.arange(min(padded_length(int(lengths.max())), self.max_tokens))
        absent: NDArray[np.bool_] = position >= lengths[:, None]
        ids = np.zeros(absent.shape, np.int64)
        ids[~absent] = paragraphs.values
        return Chunk(ids, absent if absent.any() else None)


PAD_WORD = "<pad>"


class Vocabulary:
    """The words of a model; the id of a word is its index in `words`.

    `<pad>` is inserted first unless the list has it: in the reference release it has an id of its own, which
    the checkpoints rely on. `lookup` never returns its id, even for a text that contains the word `<pad>`.
    """

    def __init__(self, words: Sequence[str]) -> None:
        """Raises InputError when a word appears twice."""
        self.words: list[str] = list(words) if PAD_WORD in words else [PAD_WORD, *words]
        self._ids = {word: row for row, word in enumerate(self.words)}
        if len(self._ids) != len(self.words):
            raise InputError(f"vocabulary: the word {find_repeated(self.words)!r} appears twice")
        self.pad_id: int = self._ids.pop(PAD_WORD)

    def __len__(self) -> int:
        return len(self.words)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self.words == other.words

    def lookup(self, store_words: Iterable[str]) -> NDArray[np.int32]:
        """Words of a corpus [V_store] -> their ids, -1 for unknown words.

        >>> Vocabulary(["deep", "nets"]).lookup(["nets", "unknown", "deep"]).tolist()
        [2, -1, 1]
        """
        return np.fromiter((self._ids.get(word, -1) for word in store_words), np.int32)


def check_tokenizer(corpus: Corpus, wanted: str, what: str) -> None:
    """Raise InputError unless the corpus was tokenised as `what`, which has its own vocabulary, expects."""
    own = corpus.settings.get("tokenizer")
    if own != wanted:
        raise InputError(f"{what}: needs data.tokenizer={wanted}; {corpus.name} has data.tokenizer={own}")


def find_repeated(words: Iterable[str]) -> str:
    """Return the first word that occurs more than once."""
    return next(word for word, times in Counter(words).items() if times > 1)
