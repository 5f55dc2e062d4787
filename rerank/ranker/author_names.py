"""Surnames and years beside the mark: "Blei et al. 2003 [CITE]"."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence, Set
from functools import cache, lru_cache
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from citerec.datasets.columns import Ragged, offsets_of
from citerec.datasets.corpus import Corpus
from citerec.datasets.records import OTHER_MARKER, TARGET_MARKER
from citerec.datasets.tokenize import sentence_starts
from citerec.formats.letters import latin_names
from citerec.formats.names import ET_AL, surname
from citerec.rerank.ranker.paper_names import (
    Names,
    SortedNames,
    ngram_hashes,
    word_hash,
    word_hashes,
)
from citerec.retrieval.arrays import Mask, Rows
from citerec.retrieval.queries import marked_sentence

REACH = 40
"""Words on each side of the mark that are read."""
HALF = 3.0
"""Distance from the mark, in words, at which a surname or a year has half of the weight beside it."""
NAMED, MAX_NAMED = 10, 20
"""Words on each side of the mark where a name makes its paper a candidate, and maximum number of these."""
AUTHOR = "author"
"""Kind of surnames in the statistics of a collection (datasets.word_statistics)."""
WORDS_AS_SURNAMES = Path(__file__).with_name("words_as_surnames.txt")
_NONE = np.empty(0, np.uint64)
LEAST_TITLE, TITLE_CASE = 3, 0.6
"""A sentence in title case has at least so many long words, at least this share of them with a capital."""
_WORD = re.compile(r"[^\W_]+")
_LINE_END = re.compile(r"\n\s*")
_AT_MARK = rf"\s*[\[(]*(?:{TARGET_MARKER}|{OTHER_MARKER})"
_CITED = rf"{_AT_MARK}|,?\s*[\[(]?(?:1[6-9]|20)\d\d[a-z]?\b|,?\s+{ET_AL}"
_NAMED_AFTER = re.compile(
    rf"(?:{_CITED}|,\s*(?:[A-Z]\.\s*-?)+|\s+and\s+(?:colleagues|co-?workers|collaborators|others)\b"
    rf"|(?:,\s*[A-Z][\w'’-]+){{0,3}},?\s+(?:and|&|\\&)\s+[A-Z][\w'’-]+(?:{_CITED}))"
)
_BEFORE_NAME = re.compile(rf" (?!{TARGET_MARKER}|{OTHER_MARKER})[A-Z]")
_INITIALS = re.compile(r"(?:\b[A-Z]\.\s*-?)+$")
_YEAR = re.compile(r"(?:1[6-9]|20)\d\d[a-z]?")


def has_authors(corpus: Corpus) -> bool:
    """True if the corpus keeps the authors of papers (data.field=authors)."""
    return "author" in str(corpus.settings.get("field")).lower()


def author_names(corpus: Corpus) -> dict[str, Names]:
    """Return surnames as names of papers: of the `first_authors` and of `other_authors`.

    The weight of a surname that n authors of the P papers have is log(P / n) / log P.
    """
    rows = np.arange(len(corpus.paper_ids))
    if not has_authors(corpus):
        empty = Names(np.zeros(len(rows) + 1, np.int64), _NONE, np.empty(0, np.float32))
        return {"first_authors": empty, "other_authors": empty}
    authors, hashes = hash_authors(corpus, rows)
    different, place, times = np.unique(hashes, return_inverse=True, return_counts=True)
    if corpus.whole is not None:
        times = corpus.whole.count_hashes(AUTHOR, different)
    papers = max(corpus.total_papers, 2)
    rarity = (1 - np.log(times.clip(max=papers)) / np.log(papers)).astype(np.float32)[place]
    position = np.arange(len(authors.values)) - np.repeat(authors.offsets[:-1], authors.lengths)
    owner = np.repeat(np.arange(len(rows)), authors.lengths)
    made = {}
    for name, chosen in (("first_authors", position == 0), ("other_authors", position > 0)):
        offsets = offsets_of(np.bincount(owner[chosen], minlength=len(rows)))
        made[name] = Names(offsets, hashes[chosen], rarity[chosen])
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
    contexts: Sequence[str], usual: Sequence[Set[int]] = ()
) -> tuple[NDArray[np.int64], NDArray[np.uint64], NDArray[np.int64]]:
    """Words near the mark that may be surnames: offsets [Q + 1], ascending hashes, distances from the mark.

    usual: for each context, hashes of words that texts of the collection often have. With a capital that any
    word would have there, such as at the start of a sentence, they and common words of English are no names
    without more evidence.
    """
    known_words = usual or [frozenset[int]()] * len(contexts)
    named = (surnames_near(context, words) for context, words in zip(contexts, known_words, strict=True))
    near = [sorted((hashed, distance) for hashed, distance, _ in names) for names in named]
    pairs = [pair for names in near for pair in names]
    hashes = np.array([hash for hash, _ in pairs], np.uint64)
    distances = np.array([distance for _, distance in pairs], np.int64)
    return offsets_of(np.array([len(names) for names in near], np.int64)), hashes, distances


def surnames_near(context: str, usual: Set[int] = frozenset()) -> list[tuple[int, int, str]]:
    """The words of one context for `capitalised_words`: hash, distance, and the word; nearest last. They are
    of the sentence that cites: who is named in another one is seldom meant.

    Words in Cyrillic or Greek letters are also given as they may be spelt in Latin ones."""
    words = (
        (word_hash(spelt), distance, word, sure)
        for word, distance, sure in _capitals_near(marked_sentence(context))
        for spelt in (word, *latin_names(word))
    )
    common = _words_as_surnames()
    return [
        (hashed, distance, word)
        for hashed, distance, word, sure in words
        if sure or (hashed not in usual and hashed not in common)
    ]


@cache
def _words_as_surnames() -> Set[int]:
    """Hashes of surnames that are words of English: a small library may have no title with such a word.

    The file lists surnames of authors of 210,000 papers that 10 or more of 413,000 abstracts and citation
    contexts have inside a sentence, at least half of them without a capital.
    """
    return frozenset(word_hashes(WORDS_AS_SURNAMES.read_text("utf-8").split()).tolist())


def named_papers(
    contexts: Sequence[str],
    first_authors: SortedNames,
    initials: SortedNames,
    years: NDArray[np.integer],
    eligible: Mask,
    citing: NDArray[np.integer],
) -> Ragged:
    """Eligible papers [Q] whose first author or initials (of two capitals) are within NAMED words of the
    mark, in its sentence.

    At most MAX_NAMED, best first: by rarity and nearness; those whose year is there, too, before all others.
    years, eligible: [P]. citing: [Q], papers to leave out.
    """
    ranked = []
    for context, own in zip(contexts, citing.tolist(), strict=True):
        names, short, dates = names_beside(marked_sentence(context))
        hashes = ngram_hashes(word_hashes(short), np.arange(len(short)), 1)
        acronyms = dict(zip(hashes.tolist(), short.values(), strict=True))
        near_names = {
            word_hash(spelt): distance
            for name, distance in names.items()
            for spelt in (name, *latin_names(name))
        }
        scores = dict[int, float]()
        for by_hash, near in ((first_authors, near_names), (initials, acronyms)):
            texts, rows = by_hash.names, by_hash.rows(np.array(list(near), np.uint64))
            papers = np.searchsorted(texts.offsets, rows, side="right") - 1
            keep = eligible[papers] & (papers != own)
            for row, paper in zip(rows[keep].tolist(), papers[keep].tolist(), strict=True):
                nearness = HALF / (HALF + near[int(texts.hashes[row])])
                score = float(texts.weights[row]) * nearness + (int(years[paper]) in dates)
                scores[paper] = max(scores.get(paper, 0.0), score)
        ranked.append(sorted(scores, key=lambda paper: (-scores[paper], paper))[:MAX_NAMED])
    return Ragged.from_rows(ranked)


def names_beside(context: str) -> tuple[dict[str, int], dict[str, int], set[int]]:
    """Return the words within NAMED words of the mark that may be surnames (a capital), and those that may be
    initials (two), each with its distance; and the years."""
    words = [(word[0], distance) for word, distance in _words_near(context) if distance <= NAMED]
    names = {word: distance for word, distance in words if word[0].isupper()}
    short = {word: distance for word, distance in words if sum(map(str.isupper, word)) > 1}
    return names, short, {int(word[:4]) for word, _ in words if _YEAR.fullmatch(word)}


def years_near(contexts: Sequence[str]) -> list[dict[int, int]]:
    """Years near the mark of each context [Q], and the distance of the nearest mention."""
    return [
        {int(word[0][:4]): distance for word, distance in _words_near(context) if _YEAR.fullmatch(word[0])}
        for context in contexts
    ]


@lru_cache(256)
def _capitals_near(context: str) -> Sequence[tuple[str, int, bool]]:
    """Words of a context with a capital within REACH of the mark, their distance, and whether the capital or
    what stands beside them tells that they are names; nearest last."""
    capitalised = [(word, distance) for word, distance in _words_near(context) if word[0][0].isupper()]
    if not capitalised:
        return []
    starts = sorted({0, *sentence_starts(context), *(match.end() for match in _LINE_END.finditer(context))})
    titles = dict[int, bool]()
    marked = []
    for word, distance in capitalised:
        number = bisect_right(starts, word.start()) - 1
        start = starts[number]
        if number not in titles:
            stop = starts[number + 1] if number + 1 < len(starts) else len(context)
            titles[number] = _is_title_case(context[start:stop])
        if titles[number]:  # where a mark may follow any word
            sure = re.match(_AT_MARK, context[word.end() :]) is None and _is_named(context, *word.span())
        else:
            inside = _WORD.search(context, start, word.start()) and not _begins_name(context, word)
            sure = bool(inside) or _is_named(context, *word.span())
        marked.append((word[0], distance, sure))
    return marked


def _begins_name(context: str, word: re.Match[str]) -> bool:
    """True for a word of English that another one with a capital follows: Lake Michigan."""
    is_followed = not word[0].isupper() and _BEFORE_NAME.match(context, word.end())
    return bool(is_followed) and word_hash(word[0]) in _words_as_surnames()


def _is_title_case(sentence: str) -> bool:
    """True for a heading, a list or a sentence in capitals, where any word may have one."""
    words = [word for word in _WORD.findall(sentence) if len(word) > 3 and not word.endswith("CIT")]
    capitals = sum(word[0].isupper() for word in words)
    return len(words) >= LEAST_TITLE and capitals >= TITLE_CASE * len(words)


def _is_named(context: str, start: int, end: int) -> bool:
    """True if a word is a surname by what stands beside it: initials, et al., a year, a second author and one
    of these, or a citation.

    >>> text = "Field trials. Price (2003) and White et al. grow. Green and Black [TARGETCIT] too."
    >>> names = [text.index(word) for word in ("Field", "Price", "White", "Green")]
    >>> [_is_named(text, start, start + 5) for start in names]
    [False, True, True, True]
    """
    before = _INITIALS.search(context, max(start - 12, 0), start)
    return before is not None or _NAMED_AFTER.match(context, end) is not None


@lru_cache(256)
def _words_near(context: str) -> Sequence[tuple[re.Match[str], int]]:
    """Words of a context within REACH of the mark, and their distance, nearest last; none without a mark."""
    mark = context.find(TARGET_MARKER)
    if mark < 0:
        return []
    left = [*_WORD.finditer(context, 0, mark)][: -REACH - 1 : -1]
    right = islice(_WORD.finditer(context, mark + len(TARGET_MARKER)), REACH)
    words = [(word, distance) for side in (left, right) for distance, word in enumerate(side, 1)]
    return sorted(words, key=lambda pair: -pair[1])
