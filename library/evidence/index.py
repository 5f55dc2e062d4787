"""The index of passages: N passages of P papers, by words (BM25) and by vectors.

about.json    version, and the encoder of the vectors
papers.json   ids of the papers, in the order of their passages
hashes.npy    hashes of their texts (store.StoredPaper) [P]
offsets.npy   passages of each paper [P + 1]
terms.txt     terms by number; words/: their postings (retrieval.lexical.postings)
vectors.npy   8-bit integers [N, D], and their factors in scales.npy [N]
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_matrix

from citerec.base.checksums import check_checksums, write_checksums
from citerec.base.errors import InputError
from citerec.base.files import atomic_folder
from citerec.base.packages import compiled
from citerec.datasets.columns import concat_ranges, load_array, offsets_of, save_arrays
from citerec.datasets.tokenize import WordTable, default_tokenize
from citerec.library.evidence.store import TextStore
from citerec.retrieval.arrays import Floats, Rows
from citerec.retrieval.lexical.postings import Formula, Postings
from citerec.retrieval.lexical.terms import Terms

VERSION = 3
CONTRIBUTIONS = np.dtype(np.uint16)
"""Type of the contributions: half of float32 on disk."""
FORMULA = Formula("lucene", 1.2, 0.75)
LANGUAGE = {"stemmer": "english", "stopwords": "en"}
ABOUT, PAPERS, TERMS = "about.json", "papers.json", "terms.txt"
CURRENT = "index"
"""State of a store: the name of the index of its texts."""
CHUNK = 1 << 12
"""Passages that are read and encoded at a time."""


class TextEncoder(Protocol):
    """Encodes texts as vectors of unit length, [n] -> [n, dim]; zeros for those without a known word."""

    name: str
    """of the weights: vectors of another one are not compared"""
    dim: int

    def encode(self, texts: Sequence[str]) -> Floats:
        """Encode passages."""

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        """Encode contexts, with or without TARGET_MARKER."""


class _About(msgspec.Struct, frozen=True):
    version: int
    encoder: str


@dataclass(frozen=True, eq=False)
class PassageIndex:
    """papers: [P]; hashes: [P]; offsets: [P + 1]; vectors: int8 [N, D], scales: [N], None without encoder."""

    papers: Sequence[str]
    hashes: NDArray[np.int64]
    offsets: NDArray[np.int64]
    terms: Terms
    postings: Postings
    vectors: NDArray[np.int8] | None
    scales: Floats | None

    def __len__(self) -> int:
        """Number of passages."""
        return int(self.offsets[-1])

    @classmethod
    def open(cls, folder: Path, encoder: TextEncoder | None) -> PassageIndex:
        """Memory-map an index. Without the encoder of its vectors, these are left out.

        Raises InputError if it is damaged or of another version.
        """
        check_checksums(folder)
        try:
            about = msgspec.json.decode((folder / ABOUT).read_bytes(), type=_About)
        except (OSError, msgspec.DecodeError):
            about = _About(0, "")
        if about.version != VERSION:
            raise InputError(f"{folder}: is not an index of passages of this version")
        names = (folder / TERMS).read_text("utf-8").split("\n")
        offsets = load_array(folder, "offsets")
        known = encoder is not None and about.encoder == encoder.name
        return cls(
            msgspec.json.decode((folder / PAPERS).read_bytes(), type=list[str]),
            load_array(folder, "hashes"),
            offsets,
            Terms.named(names, **LANGUAGE),
            Postings.load(folder / "words", int(offsets[-1])),
            load_array(folder, "vectors") if known else None,
            load_array(folder, "scales") if known else None,
        )

    # Scores.

    def word_scores(self, words: Sequence[str], weights: Floats) -> Floats:
        """BM25 of all passages [N] for words, each with a weight; of a repeated term the largest counts."""
        return self.postings.scores(*self._weighted_terms(words, weights))

    def most_words(self, words: Sequence[str], weights: Floats) -> float:
        """Return what `word_scores` exceeds by rounding at most: the sum of the terms' weights times idf."""
        terms, largest = self._weighted_terms(words, weights)
        return float(FORMULA.idf(self.postings.frequency(terms), len(self)) @ largest)

    def count(self, word: str) -> int:
        """Return the number of passages that have a word."""
        terms, _ = self._weighted_terms([word], np.ones(1, np.float32))
        return int(self.postings.frequency(terms).max(initial=0))

    def _weighted_terms(self, words: Sequence[str], weights: Floats) -> tuple[NDArray[np.int32], Floats]:
        terms = self.terms.of(words)
        each = np.repeat(weights.astype(np.float32), terms.lengths)
        unique, place = np.unique(terms.values, return_inverse=True)
        largest = np.zeros(len(unique), np.float32)
        np.maximum.at(largest, place, each)
        return unique.astype(np.int32), largest

    def cosines(self, vector: Floats, passages: Rows | None = None) -> Floats:
        """Cosines of a vector [D] with passages [n], or with all [N]; NaN without vectors."""
        count = len(self) if passages is None else len(passages)
        if self.vectors is None or self.scales is None:
            return np.full(count, np.nan, np.float32)
        rows = np.arange(count) if passages is None else passages.astype(np.int64)
        found = np.empty(count, np.float32)
        _dot(self.vectors, self.scales, rows, vector.astype(np.float32), found)
        return found

    def best(self, scores: Floats, papers: Rows | None = None) -> tuple[Floats, Rows]:
        """Return the best score of each paper and the passage that has it; papers: rows [n], or all [P].

        scores: of all passages [N].
        """
        papers = np.arange(len(self.papers)) if papers is None else papers
        if len(papers) == 0:
            return np.empty(0, np.float32), np.empty(0, np.int64)
        passages, offsets = self.passages_of(papers)
        values = scores[passages]
        best = np.maximum.reduceat(values, offsets[:-1])
        first = np.flatnonzero(values == np.repeat(best, np.diff(offsets)))
        owner = np.searchsorted(offsets, first, side="right") - 1
        _, where = np.unique(owner, return_index=True)
        return best, passages[first[where]]

    def passages_of(self, papers: Rows) -> tuple[Rows, Rows]:
        """Return the passages of papers, one paper after the other, and the offsets of each [n + 1]."""
        return concat_ranges(self.offsets[papers], self.offsets[papers + 1])


@compiled(nogil=True, fastmath=True)
def _dot(vectors: Any, scales: Any, rows: Any, vector: Any, found: Any) -> None:
    """Write the products of a vector [D] with 8-bit vectors, rows [n], to found [n]."""
    for i in range(len(rows)):
        row, total = vectors[rows[i]], np.float32(0)
        for d in range(len(vector)):
            total += row[d] * vector[d]
        found[i] = total * scales[rows[i]]


# Writing.


class _NewTexts(NamedTuple):
    """Passages that were read for an index: of P papers, by their ids, hashes and numbers of passages.

    counts: of their terms, in parts; vectors: [n, D] and their factors [n].
    """

    papers: list[str]
    hashes: list[int]
    lengths: list[int]
    terms: Terms
    counts: list[csc_matrix]
    vectors: NDArray[np.int8]
    scales: Floats


def open_index(folder: Path, store: TextStore, encoder: TextEncoder | None) -> PassageIndex | None:
    """Open the index of the texts in a store; None if there is none."""
    name = store.get(CURRENT)
    return PassageIndex.open(folder / name, encoder) if name else None


def check_texts(folder: Path) -> None:
    """Read all texts and their index. Raises InputError for damage."""
    with closing(TextStore(folder)) as store:
        store.check()
        if name := store.get(CURRENT):
            check_checksums(folder / name, "citerec update writes it anew", trust=False)


def update_index(
    folder: Path,
    store: TextStore,
    encoder: TextEncoder | None,
    advance: Callable[[int], None] = lambda count: None,
) -> PassageIndex | None:
    """Write an index of all texts in the store, and name it there, unless the current one is that.

    advance: is told of passages as they are read. Returns the index, None if there is no text.
    """
    name, wanted = store.get(CURRENT), store.papers()
    old = None
    if name:
        with suppress(InputError, OSError):  # a damaged one, or of another version, is written anew
            old = PassageIndex.open(folder / name, encoder)
    if old is not None and encoder is not None and old.vectors is None:
        old = None
    known = {} if old is None else dict(zip(old.papers, old.hashes.tolist(), strict=True))
    current = {one.paper: one.hash for one in wanted}
    if old is not None and known == current:
        return old
    if not wanted:
        store.set(CURRENT, "")
        remove_others(folder, store)
        return None
    number = str(max([int(one.name) for one in folder.iterdir() if one.name.isdecimal()], default=0) + 1)
    with atomic_folder(folder / number) as part:
        _write_all(part, store, encoder, advance)
        about = _About(VERSION, "" if encoder is None else encoder.name)
        (part / ABOUT).write_bytes(msgspec.json.encode(about))
        write_checksums(part)
    store.set(CURRENT, number)
    remove_others(folder, store)
    return PassageIndex.open(folder / number, encoder)


def remove_others(folder: Path, store: TextStore) -> None:
    """Remove all indexes but the current one."""
    for other in folder.iterdir():
        if other.is_dir() and other.name != store.get(CURRENT):
            shutil.rmtree(other, ignore_errors=True)


def _write_all(
    folder: Path, store: TextStore, encoder: TextEncoder | None, advance: Callable[[int], None]
) -> None:
    found = _read_texts(store, [one.paper for one in store.papers()], encoder, advance)
    words = folder / "words"
    words.mkdir()
    Postings.from_counts(found.counts, FORMULA, dtype=CONTRIBUTIONS).save(words)
    (folder / PAPERS).write_bytes(msgspec.json.encode(found.papers))
    (folder / TERMS).write_text("\n".join(found.terms.names), "utf-8")
    offsets = offsets_of(np.array(found.lengths, np.int64))
    save_arrays(folder, hashes=np.array(found.hashes, np.int64), offsets=offsets)
    if encoder is not None:
        save_arrays(folder, vectors=found.vectors, scales=found.scales)


def _read_texts(
    store: TextStore,
    papers: Sequence[str],
    encoder: TextEncoder | None,
    advance: Callable[[int], None],
) -> _NewTexts:
    """Read the passages of papers."""
    table, known, words = WordTable(default_tokenize), Terms.named([], **LANGUAGE), 0
    ids: list[str] = []
    hashes: list[int] = []
    lengths: list[int] = []
    counts: list[csc_matrix] = []
    vectors: list[NDArray[np.int8]] = []
    scales: list[Floats] = []
    texts: list[str] = []

    def read_chunk() -> None:
        nonlocal known, words
        tokens = table.ids(texts)
        known = known.with_words(table.words()[words:].to_pylist(), more_terms=True)
        words = len(table)
        part = known.counts(np.arange(len(texts)), tokens, len(texts))
        part.data = part.data.astype(np.uint16)  # half the memory
        counts.append(part)
        if encoder is not None:
            found, factors = quantise(encoder.encode(texts))
            vectors.append(found)
            scales.append(factors)
        advance(len(texts))
        texts.clear()

    for paper in papers:
        stored, passages = store.text(paper)
        if not passages:
            continue
        ids.append(paper)
        hashes.append(stored.hash)
        lengths.append(len(passages))
        texts += [passage.text for passage in passages]
        if len(texts) >= CHUNK:
            read_chunk()
    if texts or not counts:
        read_chunk()
    for part in counts:
        part.sum_duplicates()
        part.resize(part.shape[0], known.size)
    dim = 0 if encoder is None else encoder.dim
    none = np.empty((0, dim), np.int8), np.empty(0, np.float32)
    together = np.concatenate([none[0], *vectors]), np.concatenate([none[1], *scales])
    return _NewTexts(ids, hashes, lengths, known, counts, *together)


def quantise(vectors: Floats) -> tuple[NDArray[np.int8], Floats]:
    """Round vectors [n, D] to 8-bit integers times a factor each [n]."""
    scales = np.maximum(np.abs(vectors).max(axis=1, initial=0), np.float32(1e-12)) / np.float32(127)
    return np.round(vectors / scales[:, None]).astype(np.int8), scales.astype(np.float32)
