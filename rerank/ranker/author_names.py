"""Surnames and years beside the mark: "Blei et al. 2003 [CITE]"."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from citerec.datasets.columns import Ragged, offsets_of
from citerec.datasets.corpus import Corpus
from citerec.datasets.fulltext.catalogue import surname
from citerec.datasets.records import TARGET_MARKER
from citerec.rerank.ranker.paper_names import (
    Names,
    SortedNames,
    count_names,
    ngram_hashes,
    word_hash,
    word_hashes,
)
from citerec.retrieval.arrays import Rows

REACH = 40
"""Words on each side of the mark that are read."""
NAMED, MAX_NAMED = 10, 20
"""Words on each side of the mark that make a paper a candidate, and maximum number of these."""
AUTHOR = "author"
"""Kind of surnames in the statistics of a collection (datasets.word_statistics)."""
_NONE = np.empty(0, np.uint64)
_WORD = re.compile(r"[^\W_]+")
_YEAR = re.compile(r"(?:1[6-9]|20)\d\d[a-z]?")


def has_authors(corpus: Corpus) -> bool:
    """True if the corpus keeps the authors of papers (data.field=authors)."""
    return "author" in str(corpus.settings.get("field")).lower()


def author_names(corpus: Corpus, rows: Rows, others: NDArray[np.uint64] = _NONE) -> dict[str, Names]:
    """Surnames of the papers `rows` as names: of the `first_authors` and of `other_authors`.

    others: names of further papers, for the counts. The weight of a surname that n authors of the P papers
    have is log(P / n) / log P.
    """
    if not has_authors(corpus):
        empty = Names(np.zeros(len(rows) + 1, np.int64), _NONE, np.empty(0, np.float32))
        return {"first_authors": empty, "other_authors": empty}
    authors, hashes = hash_authors(corpus, rows)
    different, place = np.unique(hashes, return_inverse=True)
    times = count_names(different, hashes) + count_names(different, others)
    if corpus.whole is not None:
        times = corpus.whole.count_hashes(AUTHOR, different)
    papers = max(corpus.total_papers, 2)
    rarity = (1 - np.log(times.clip(max=papers)) / np.log(papers)).astype(np.float32)[place]
    position = np.arange(len(authors.values)) - np.repeat(authors.offsets[:-1], authors.lengths)
    owner = np.repeat(np.arange(len(rows)), authors.lengths)
    made = {}
    for name, of in (("first_authors", position == 0), ("other_authors", position > 0)):
        offsets = offsets_of(np.bincount(owner[of], minlength=len(rows)))
        made[name] = Names(offsets, hashes[of], rarity[of])
    return made


def hash_authors(corpus: Corpus, rows: Rows) -> tuple[Ragged, NDArray[np.uint64]]:
    """Return the authors of papers [n], as codes of `field_names`, and the hashes of their surnames."""
    authors = corpus.fields.take(rows)
    codes, place = np.unique(authors.values, return_inverse=True)
    hashes = np.fromiter(
        (word_hash(longest_part(corpus.field_names[code])) for code in codes.tolist()), np.uint64
    )
    return authors, hashes[place]


def longest_part(author: str) -> str:
    """Return the longest part of an author's surname.

    Contexts are split at hyphens and apostrophes: "Bar-Hillel" is found as "Hillel".
    """
    return max(_WORD.findall(surname(author)), key=len, default="")


def capitalised_words(
    contexts: Sequence[str],
) -> tuple[NDArray[np.int64], NDArray[np.uint64], NDArray[np.int64]]:
    """Words with a capital near the mark: offsets [Q + 1], ascending hashes, and distances from the mark."""
    found = [
        sorted((word_hash(word), distance) for word, distance in _words_near(context) if word[0].isupper())
        for context in contexts
    ]
    pairs = [pair for of in found for pair in of]
    hashes = np.array([hash for hash, _ in pairs], np.uint64)
    distances = np.array([distance for _, distance in pairs], np.int64)
    return offsets_of(np.array([len(of) for of in found], np.int64)), hashes, distances


def named_papers(
    contexts: Sequence[str], first_authors: SortedNames, initials: SortedNames, years: NDArray[np.integer]
) -> Ragged:
    """Papers [Q] whose first author or initials (of two capitals) are within NAMED words of the mark.

    At most MAX_NAMED, best first: by rarity and nearness, above all those of a year that is there too.
    years: [P].
    """
    found = []
    for context in contexts:
        names, short, dates = names_beside(context)
        hashes = ngram_hashes(word_hashes(short), np.arange(len(short)), 1)
        acronyms = dict(zip(hashes.tolist(), short.values(), strict=True))
        near_names = {word_hash(name): distance for name, distance in names.items()}
        scores = dict[int, float]()
        for by_hash, near in ((first_authors, near_names), (initials, acronyms)):
            texts, rows = by_hash.names, by_hash.rows(np.array(list(near), np.uint64))
            papers = np.searchsorted(texts.offsets, rows, side="right") - 1
            for row, paper in zip(rows.tolist(), papers.tolist(), strict=True):
                nearness = 3 / (3 + near[int(texts.hashes[row])])
                score = float(texts.weights[row]) * nearness + (int(years[paper]) in dates)
                scores[paper] = max(scores.get(paper, 0.0), score)
        found.append(sorted(scores, key=lambda paper: (-scores[paper], paper))[:MAX_NAMED])
    return Ragged.from_rows(found)


def names_beside(context: str) -> tuple[dict[str, int], dict[str, int], set[int]]:
    """Return the words within NAMED words of the mark that may be surnames (a capital), and those that may be
    initials (two), each with its distance; and the years."""
    words = [(word, distance) for word, distance in _words_near(context) if distance <= NAMED]
    names = {word: distance for word, distance in words if word[0].isupper()}
    short = {word: distance for word, distance in words if sum(map(str.isupper, word)) > 1}
    return names, short, {int(word[:4]) for word, _ in words if _YEAR.fullmatch(word)}


def years_near(contexts: Sequence[str]) -> list[dict[int, int]]:
    """Years near the mark of each context [Q], and the distance of the nearest mention."""
    return [
        {int(word[:4]): distance for word, distance in _words_near(context) if _YEAR.fullmatch(word)}
        for context in contexts
    ]


@lru_cache(256)
def _words_near(context: str) -> Sequence[tuple[str, int]]:
    """Words of a context within REACH of the mark, and their distance, nearest last; none without a mark."""
    before, mark, after = context.partition(TARGET_MARKER)
    if not mark:
        return []
    sides = _WORD.findall(before)[: -REACH - 1 : -1], _WORD.findall(after)[:REACH]
    words = [(word, distance) for side in sides for distance, word in enumerate(side, 1)]
    return sorted(words, key=lambda pair: -pair[1])
