"""The queries of a training: their splits, each data set's share, what their citing papers cite elsewhere."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from citerec.base.errors import InputError
from citerec.datasets.columns import Ragged, offsets_of
from citerec.datasets.corpus import Corpus, Split
from citerec.datasets.records import TRAIN
from citerec.retrieval.arrays import Mask, Rows

Shuffle = Callable[[Rows, np.random.Generator], Rows]


def training_split(corpus: Corpus, names: Sequence[str] = (TRAIN,)) -> Split:
    """The queries of those splits that a corpus has, as one split. InputError if there are none.

    Papers with the same text as a cited one count as cited, too: as negatives they would teach the opposite.
    """
    splits = [corpus.splits[name] for name in names if name in corpus.splits and len(corpus.splits[name])]
    if not splits:
        what = " and ".join(names)
        raise InputError(f"corpus {corpus.name}: its {what} split is empty, there is nothing to train on")
    contexts = np.concatenate([split.contexts for split in splits])
    positives = (
        splits[0].positives if len(splits) == 1 else Ragged.concat([part.positives for part in splits])
    )
    return Split("+".join(split.name for split in splits), contexts, _with_twins(corpus, positives))


def _with_twins(corpus: Corpus, positives: Ragged) -> Ragged:
    """Add to each list of papers those with the same title and abstract, word by word."""
    words = zip(corpus.title_tokens, corpus.abstract_tokens, strict=True)
    texts = np.array([hash((title.tobytes(), abstract.tobytes())) for title, abstract in words], np.int64)
    _, group, counts = np.unique(texts, return_inverse=True, return_counts=True)
    has_words = corpus.title_tokens.lengths + corpus.abstract_tokens.lengths > 0
    is_twin = (counts[group] > 1) & has_words
    if not is_twin[positives.values].any():
        return positives
    twins: dict[int, list[int]] = {}
    for paper in np.flatnonzero(is_twin).tolist():
        twins.setdefault(int(group[paper]), []).append(paper)
    rows = []
    for row in positives:
        more = [twin for paper in row[is_twin[row]].tolist() for twin in twins[int(group[paper])]]
        rows.append(np.concatenate([row, np.setdiff1d(np.array(more, row.dtype), row)]) if more else row)
    return Ragged.from_rows(rows)


def permuted(rows: Rows, rng: np.random.Generator) -> Rows:
    """The rows in random order."""
    return rng.permutation(rows)


@dataclass(frozen=True)
class DataSets:
    """The data sets of a training's queries: for each, its rows of the split and its share of what is drawn.

    papers: the number of the data set of each paper of the corpus [P]; None if there is one data set.
    """

    rows: tuple[Rows, ...]
    shares: tuple[float, ...] = (1.0,)
    papers: Rows | None = None

    @classmethod
    def read(cls, corpus: Corpus, split: Split, shares: Mapping[str, float]) -> DataSets:
        """shares: relative numbers by the names of the folders of data=several; none: one data set.

        InputError for a folder without queries, and for one without a share.
        """
        if not shares:
            return cls((np.arange(len(split)),))
        number: dict[str, int] = {}
        folders = (_folder(corpus.context_ids[row]) for row in split.contexts.tolist())
        of_queries = np.fromiter((number.setdefault(name, len(number)) for name in folders), np.int64)
        if different := sorted(set(shares) ^ set(number)):
            what = "has no share" if different[0] in number else "is no folder with training queries"
            raise InputError(
                f"model.batch.shares: {different[0]} {what}; give one to each of {', '.join(number)}"
            )
        papers = np.fromiter((number.get(_folder(id), -1) for id in corpus.paper_ids), np.int64)
        rows = tuple(np.flatnonzero(of_queries == own) for own in range(len(number)))
        return cls(rows, tuple(shares[name] for name in number), papers)

    def numbers(self, queries: Rows) -> Rows:
        """The number of the data set of each query; queries: rows [n] of the split."""
        numbers = np.zeros(len(queries), np.int64)
        for number, rows in enumerate(self.rows):
            numbers[np.isin(queries, rows)] = number
        return numbers

    def own(self, queries: Rows, allowed: Mask) -> Iterator[tuple[Rows, Mask]]:
        """Group queries, rows [n] of the split, by their data set: for each, their places in `queries`, and
        which of the `allowed` papers [P] belong to the same data set."""
        if self.papers is None:
            yield np.arange(len(queries)), allowed
            return
        numbers = self.numbers(queries)
        for number in np.unique(numbers):
            yield np.flatnonzero(numbers == number), allowed & (self.papers == number)

    def draw(
        self, among: Rows, size: int, round: int, key: tuple[int, ...], shuffle: Shuffle = permuted
    ) -> Rows:
        """Draw the queries of a round, rows [size] of the split, from the rows in `among`.

        The rounds continue one sequence of shuffled passes over each data set; each batch contains the share
        of each data set. key: seeds of the sequence.
        """
        several = len(self.rows) > 1
        parts = [np.intersect1d(rows, among) if several else among for rows in self.rows]
        shares = [share if len(rows) else 0.0 for share, rows in zip(self.shares, parts, strict=True)]
        counts = divide(size, shares)
        drawn = [
            _passes(rows, count, round * count, (*key, number) if several else key, shuffle)
            for number, (rows, count) in enumerate(zip(parts, counts, strict=True))
            if count
        ]
        places = np.concatenate([(np.arange(len(rows)) + 0.5) / len(rows) for rows in drawn])
        return np.concatenate(drawn)[np.argsort(places, kind="stable")]


def divide(size: int, shares: Sequence[float]) -> list[int]:
    """Divide a number by shares, as evenly as whole numbers allow.

    >>> divide(10, [0.2, 0.2, 0.4])
    [3, 2, 5]
    """
    exact = size * np.array(shares) / sum(shares)
    counts = np.floor(exact).astype(np.int64)
    counts[np.argsort(counts - exact, kind="stable")[: size - counts.sum()]] += 1
    return [int(count) for count in counts]


def _passes(rows: Rows, size: int, first: int, key: tuple[int, ...], shuffle: Shuffle) -> Rows:
    """Rows [size], from place `first` of a sequence of shuffled passes."""
    numbers = range(first // len(rows), -(-(first + size) // len(rows)))
    parts = [shuffle(rows, np.random.default_rng((*key, number))) for number in numbers]
    return np.concatenate(parts)[first % len(rows) :][:size]


def _folder(id: str) -> str:
    """The folder that an id of data=several begins with."""
    return id.partition("/")[0]


class Siblings:
    """What the citing papers of a split's queries cite in other passages."""

    def __init__(self, corpus: Corpus, split: Split) -> None:
        self._positives = split.positives
        _, self._paper = np.unique(corpus.citing[split.contexts], return_inverse=True)
        self._cited = _group(self._paper, split.positives)
        # A passage that cites several papers may be a query for each of them.
        texts = (corpus.context_texts[row].encode() for row in split.contexts.tolist())
        passages = [hashlib.blake2b(text, digest_size=16).digest() for text in texts]
        _, self._passage = np.unique(np.array(passages, "V16"), return_inverse=True)
        self._beside = _group(self._passage, split.positives)

    def __getitem__(self, row: int) -> NDArray[np.int32]:
        """The papers that a query's citing paper cites elsewhere, ascending."""
        return np.setdiff1d(self._cited[int(self._paper[row])], self._beside[int(self._passage[row])])

    def draw(self, row: int, size: int, rng: np.random.Generator) -> NDArray[np.int32]:
        """Draw `size` of these papers of a query, or all that there are."""
        return rng.permutation(self[row])[:size]


def _group(groups: NDArray[np.integer], papers: Ragged) -> Ragged:
    """The distinct papers of each group, ascending."""
    most = int(papers.values.max(initial=0)) + 1
    pairs = np.unique(np.repeat(groups.astype(np.int64), papers.lengths) * most + papers.values)
    group, paper = np.divmod(pairs, most)
    lengths = np.bincount(group, minlength=int(groups.max(initial=-1)) + 1)
    return Ragged(paper.astype(np.int32), offsets_of(lengths))
