"""The index of passages: N passages of P papers, by words (BM25).

about.json    version
papers.json   ids of the papers, in the order of their passages
hashes.npy    hashes of their texts (store.StoredPaper) [P]
offsets.npy   passages of each paper [P + 1]
terms.txt     terms by number; words/: their postings (retrieval.lexical.bm25_formula)
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from citerec.base.checksums import check_checksums, write_checksums
from citerec.base.errors import InputError
from citerec.base.files import atomic_folder
from citerec.datasets.columns import concat_ranges, load_array, offsets_of, save_arrays
from citerec.datasets.tokenize import WordTable, default_tokenize
from citerec.library.evidence.store import TextStore
from citerec.retrieval.arrays import Counts, Floats, Rows
from citerec.retrieval.lexical.bm25_formula import Formula, Postings
from citerec.retrieval.lexical.terms import Terms

VERSION = 5
CONTRIBUTIONS = np.dtype(np.uint16)
"""Type of the contributions: half of float32 on disk."""
FORMULA = Formula("lucene", 1.2, 0.75)
LANGUAGE = {"stemmer": "english", "stopwords": "en"}
ABOUT, PAPERS, TERMS = "about.json", "papers.json", "terms.txt"
_CONTENT = msgspec.json.encode({"version": VERSION})
"""Of ABOUT."""
CURRENT = "index"
"""State of a store: the name of the index of its texts."""
CHUNK = 1 << 12
"""Passages that are read at a time."""


@dataclass(frozen=True, eq=False)
class PassageIndex:
    """papers: [P]; hashes: [P]; offsets: [P + 1]."""

    papers: Sequence[str]
    hashes: NDArray[np.int64]
    offsets: NDArray[np.int64]
    terms: Terms
    postings: Postings

    def __len__(self) -> int:
        """Return the number of passages."""
        return int(self.offsets[-1])

    @classmethod
    def open(cls, folder: Path) -> PassageIndex:
        """Memory-map an index. Raises InputError if it is damaged or of another version."""
        check_checksums(folder)
        if not (folder / ABOUT).is_file() or (folder / ABOUT).read_bytes() != _CONTENT:
            raise InputError(f"{folder}: is not an index of passages of this version")
        names = (folder / TERMS).read_text("utf-8").split("\n")
        offsets = load_array(folder, "offsets")
        return cls(
            msgspec.json.decode((folder / PAPERS).read_bytes(), type=list[str]),
            load_array(folder, "hashes"),
            offsets,
            Terms.named(names, **LANGUAGE),
            Postings.load(folder / "words", int(offsets[-1])),
        )

    # Scores.

    def word_scores(self, words: Sequence[str], weights: Floats) -> Floats:
        """Return the BM25 of all passages [N] for weighted words; of a repeated term the largest counts."""
        return self.postings.scores(*self._weighted_terms(words, weights))

    def count(self, word: str) -> int:
        """Return the number of passages that have a word."""
        terms, _ = self._weighted_terms([word], np.ones(1, np.float32))
        return int(self.postings.frequency(terms).max(initial=0))

    def _weighted_terms(self, words: Sequence[str], weights: Floats) -> tuple[NDArray[np.int32], Floats]:
        terms = self.terms.lookup(words)
        each = np.repeat(weights.astype(np.float32), terms.lengths)
        unique, place = np.unique(terms.values, return_inverse=True)
        largest = np.zeros(len(unique), np.float32)
        np.maximum.at(largest, place, each)
        return unique.astype(np.int32), largest

    def best(self, scores: Floats, papers: Rows | None = None) -> Floats:
        """Return the best score of each paper (rows [n], by default all); scores: of all passages [N]."""
        papers = np.arange(len(self.papers)) if papers is None else papers
        if len(papers) == 0:
            return np.empty(0, np.float32)
        passages, offsets = self.passages_of(papers)
        return np.maximum.reduceat(scores[passages], offsets[:-1])

    def passages_of(self, papers: Rows) -> tuple[Rows, Rows]:
        """Return the passages of papers, one paper after the other, and the offsets of each [n + 1]."""
        return concat_ranges(self.offsets[papers], self.offsets[papers + 1])


# Writing.


def open_index(folder: Path, store: TextStore) -> PassageIndex | None:
    """Open the index of the texts in a store; None if there is none."""
    name = store.get(CURRENT)
    return PassageIndex.open(folder / name) if name else None


def check_texts(folder: Path) -> None:
    """Read all texts and their index. Raises InputError for damage."""
    with closing(TextStore(folder)) as store:
        store.check()
        if name := store.get(CURRENT):
            check_checksums(folder / name, "citerec update writes it anew", trust=False)


def update_index(
    folder: Path, store: TextStore, advance: Callable[[int], None] = lambda count: None
) -> PassageIndex | None:
    """Write an index of all texts in the store, and name it there, unless the current one is up to date.

    advance: is told of passages as they are read. Returns the index, None if there is no text.
    """
    papers, former = store.papers(), None
    with suppress(InputError, OSError):  # a damaged one, or of another version, is written anew
        former = open_index(folder, store)
    if former is not None:
        hashes = dict(zip(former.papers, former.hashes.tolist(), strict=True))
        if hashes == {paper.paper: paper.hash for paper in papers}:
            return former
    name = ""
    if papers:
        numbers = [int(path.name) for path in folder.iterdir() if path.name.isdecimal()]
        name = str(max(numbers, default=0) + 1)
        with atomic_folder(folder / name) as part:
            _write(part, store, advance)
    store.set(CURRENT, name)
    for path in folder.iterdir():
        if path.is_dir() and path.name != name:
            shutil.rmtree(path, ignore_errors=True)
    return open_index(folder, store)


def _write(folder: Path, store: TextStore, advance: Callable[[int], None]) -> None:
    """Write the index of all texts in a store."""
    table, terms, words = WordTable(default_tokenize), Terms.named([], **LANGUAGE), 0
    papers, hashes, lengths, texts = list[str](), list[int](), list[int](), list[str]()
    counts = list[Counts]()

    def read_chunk() -> None:
        nonlocal terms, words
        tokens = table.ids(texts)
        terms = terms.with_words(table.words(words), more_terms=True)
        words = len(table)
        part = terms.counts(np.arange(len(texts)), tokens, len(texts))
        counts.append(replace(part, data=part.data.astype(np.uint16)))  # half the memory
        advance(len(texts))
        texts.clear()

    for paper in store.papers():
        stored, passages = store.text(paper.paper)
        if passages:
            papers.append(paper.paper)
            hashes.append(stored.hash)
            lengths.append(len(passages))
            texts += [passage.text for passage in passages]
        if len(texts) >= CHUNK:
            read_chunk()
    if texts or not counts:
        read_chunk()
    counts = [replace(part, shape=(part.shape[0], terms.size)) for part in counts]
    (folder / "words").mkdir()
    Postings.from_counts(counts, FORMULA, dtype=CONTRIBUTIONS).save(folder / "words")
    (folder / PAPERS).write_bytes(msgspec.json.encode(papers))
    (folder / TERMS).write_text("\n".join(terms.names), "utf-8")
    offsets = offsets_of(np.array(lengths, np.int64))
    save_arrays(folder, hashes=np.array(hashes, np.int64), offsets=offsets)
    (folder / ABOUT).write_bytes(_CONTENT)
    write_checksums(folder)
