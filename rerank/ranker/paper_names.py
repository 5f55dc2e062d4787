"""Names of papers: acronyms, titles up to a colon, words with inner capitals or digits."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice, pairwise

import numpy as np
import xxhash
from numpy.typing import NDArray

from citerec.datasets.columns import Ragged, concat_ranges, offsets_of
from citerec.datasets.corpus import Corpus
from citerec.datasets.tokenize import TOKENIZERS, WordTable
from citerec.formats.letters import fold
from citerec.retrieval.arrays import Floats
from citerec.retrieval.lexical.terms import PAPERS_PER_BATCH

_INNER = re.compile(r"(?<![\w\-])[^\W\d_][\w+\-]*?(?:(?<=[^\W_])[A-Z]|\d)[\w+\-]*")
"""A word with an inner capital or a digit."""
_HAS_INNER = re.compile(r"\d|(?<=[\w+\-])[A-Z]")
"""Found in any text with such a word; much faster to look for."""
_WORD = re.compile(r"[^\W_]+")
_FUNCTION_WORDS = frozenset(
    "a an and as at by for from in into of on or the to toward towards using via with without".split()  # noqa: SIM905
)
MAX_NAME_WORDS = 4
"""Maximum words of a name: longer ones are matched as titles are, by their terms."""
_MIX = np.uint64(0x9E3779B97F4A7C15)


def title_names(title: str) -> list[str]:
    """Find names in a title: up to three words before a colon, and words with inner capitals or digits.

    >>> title_names("LoRA: Low-Rank Adaptation of GPT-3")
    ['LoRA', 'GPT-3']
    """
    head, colon, _ = title.partition(":")
    names = [head.strip()] if colon and 0 < len(head.split()) <= 3 else []
    inner = _INNER.findall(title) if _HAS_INNER.search(title) else []
    return list(dict.fromkeys(names if title.isupper() else [*names, *inner]))


def initials(title: str) -> list[str]:
    """Form acronyms from the parts of a title (three to six letters) and from their first three words.

    >>> initials("Denoising Diffusion Probabilistic Models: a Survey")
    ['ddpm', 'ddp']
    """
    acronyms = []
    for part in title.lower().split(":"):
        letters = "".join(word[0] for word in _WORD.findall(part) if word not in _FUNCTION_WORDS)
        acronyms += [letters] if 3 <= len(letters) <= 6 else []
        acronyms += [letters[:3]] if len(letters) > 3 else []
    return list(dict.fromkeys(acronyms))


def word_hash(word: str) -> int:
    """Hash a word, without accents and in lower case."""
    return xxhash.xxh3_64_intdigest(fold(word).casefold().encode("utf-8", "surrogatepass"))


def word_hashes(words: Iterable[str]) -> NDArray[np.uint64]:
    """Hash words [n]."""
    return np.fromiter(map(word_hash, words), np.uint64)


def ngram_hashes(words: NDArray[np.uint64], starts: NDArray[np.integer], length: int) -> NDArray[np.uint64]:
    """Hash the n-grams of `length` words, given by their hashes, that start at the given positions."""
    total = np.full(len(starts), np.uint64(length), np.uint64)
    for i in range(length):
        total = (total ^ words[starts + i]) * _MIX
        total ^= total >> np.uint64(29)
    return total


@dataclass(frozen=True)
class Names:
    """Names of papers [P]: hashes of their words, and how distinctive each is (0 to 1).

    Row i is offsets[i]:offsets[i + 1] of both columns.
    """

    offsets: NDArray[np.int64]
    hashes: NDArray[np.uint64]
    weights: Floats

    @classmethod
    def from_texts(
        cls,
        corpus: Corpus,
        find: Callable[[str], list[str]],
        texts: Iterable[str],
        kind: str,
    ) -> Names:
        """Find names in the texts of papers.

        find: returns the names in a text. kind: of names, in the statistics of the whole collection. The
        weight of a name in n of N papers is log(N / n) / log N, but at most the rarity of its rarest word in
        all texts.
        """
        lengths, hashes, read, words = hash_texts(corpus, find, texts)
        counts = [
            max(int(corpus.word_counts[corpus.word_ids[word]]), 1) if word in corpus.word_ids else 1
            for word in words
        ]
        rarity = 1 - np.log(np.array(counts)) / np.log(max(corpus.total_words, 2))
        rarest = np.zeros(len(read))
        for length in range(1, MAX_NAME_WORDS + 1):
            rows = np.flatnonzero(read.lengths == length)
            rarest[rows] = rarity[read.values[read.offsets[rows, None] + np.arange(length)]].max(axis=1)
        occurs = rarest > 0
        paper = np.repeat(np.arange(len(lengths)), lengths)[occurs]
        hashes, rarest = hashes[occurs], rarest[occurs]
        different, place, times = np.unique(hashes, return_inverse=True, return_counts=True)
        if corpus.whole is not None:
            times = corpus.whole.count_hashes(kind, different)
        papers = corpus.total_papers
        own = np.log(papers / np.minimum(times, papers)) / np.log(max(papers, 2))
        weights = np.minimum(own[place], rarest).astype(np.float32)
        return cls(offsets_of(np.bincount(paper, minlength=len(lengths))), hashes, weights)


def hash_texts(
    corpus: Corpus, find: Callable[[str], list[str]], texts: Iterable[str]
) -> tuple[list[int], NDArray[np.uint64], Ragged, list[str]]:
    """Find names in texts and hash them.

    Returns the number of names in each text; their hashes, 0 for a name of no word or of more than
    MAX_NAME_WORDS; the words of each, and these words.
    """
    table, rest = WordTable(TOKENIZERS[corpus.settings["tokenizer"]]), map(find, texts)
    numbers, parts = list[int](), [Ragged.from_rows([])]
    while batch := list(islice(rest, PAPERS_PER_BATCH)):
        numbers += [len(names) for names in batch]
        parts.append(table.ids([name for names in batch for name in names]))
    read, words = Ragged.concat(parts), table.words()
    of_words = word_hashes(words)[read.values] if len(words) else np.empty(0, np.uint64)
    hashes = np.zeros(len(read), np.uint64)
    for length in range(1, MAX_NAME_WORDS + 1):
        rows = np.flatnonzero(read.lengths == length)
        hashes[rows] = ngram_hashes(of_words, read.offsets[rows], length)
    return numbers, hashes, read, words


@dataclass(frozen=True)
class SortedNames:
    """Names that are looked up by their hash. order: their rows, ascending by hash."""

    names: Names
    order: NDArray[np.int64]

    def rows(self, wanted: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return the rows of all names with one of these hashes."""
        wanted, hashes = np.unique(wanted), self.names.hashes
        starts = np.searchsorted(hashes, wanted, sorter=self.order)
        ends = np.searchsorted(hashes, wanted, side="right", sorter=self.order)
        return np.asarray(self.order[concat_ranges(starts, ends)[0]])


def nearest_names(
    queries: NDArray[np.int64],
    hashes: NDArray[np.uint64],
    distances: NDArray[np.integer],
    names: Names,
    papers: NDArray[np.integer],
    reach: float,
) -> Floats:
    """Highest weight * reach / (reach + distance) of the names of papers [Q, K] in a query; 0 without any.

    queries, hashes, distances: n-grams of each query, sorted by hash, then distance.
    """
    out = np.zeros(papers.shape, np.float32)
    for q, (start, end) in enumerate(pairwise(queries.tolist())):
        if start < end:
            row, asked = papers[q], hashes[start:end]
            ends = names.offsets[np.where(row < 0, row, row + 1)]
            at, offsets = concat_ranges(names.offsets[row], ends)
            low = np.searchsorted(asked, names.hashes[at])
            low[low == len(asked)] = 0
            there = np.flatnonzero(asked[low] == names.hashes[at])
            scores = names.weights[at[there]] * reach / (reach + distances[start:end][low[there]])
            np.maximum.at(out[q], np.searchsorted(offsets, there, side="right") - 1, scores)
    return out
