"""Maps the words of a corpus to terms for lexical search."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from weakref import WeakValueDictionary

import numpy as np
import Stemmer
from numpy.typing import NDArray

from citerec.base.errors import InputError
from citerec.datasets.columns import Ragged, load_ragged, save_ragged
from citerec.datasets.records import MARKER_WORDS, OTHER_MARKER, TARGET_MARKER
from citerec.formats.letters import SIGNS, cognate, with_pairs
from citerec.retrieval.arrays import Counts
from citerec.retrieval.queries import Queries

PAPERS_PER_BATCH = 1 << 16
"""Papers whose terms are counted at a time."""
KEPT_WORDS = 1 << 18
"""Words whose terms are kept for the next texts."""

BEGINNINGS, LETTERS = "beginnings", 5
"""The stemmer that keeps the first LETTERS letters of a word as `cognate` spells it: "спектры" is "spekt"."""


STOP_WORDS = {
    name: frozenset(words.split())
    for line in (Path(__file__).parent / "stop_words.txt").read_text("utf-8").splitlines()[1:]
    for name, _, words in [line.partition(" ")]
}
"""Stop words by language."""
ENGLISH = STOP_WORDS["english_plus"]
"""NLTK's English stop words."""
EUROPEAN = "european"
"""The stop words of English, French, German, Spanish and Portuguese together, and those of other languages
with letters beyond ASCII, which are no words of English."""
FUNCTION_WORDS = frozenset(
    word
    for language, listed in STOP_WORDS.items()
    for word in listed
    if language in ("english_plus", "fr", "de", "es", "pt") or not word.isascii()
) - {"ai", "also", "era", "han", "man", "mir", "nas", "sea", "soy", "ti", "war"}
"""The words of EUROPEAN, without those that mean something else in English titles."""


def strip_markers(text: str) -> str:
    """Remove the citation markers from a context."""
    return text.replace(TARGET_MARKER, " ").replace(OTHER_MARKER, " ")


_TOKEN = re.compile(rf"\b\w[\w{SIGNS}]+")


class Tokenizer:
    """Splits texts into runs of at least two letters or digits, without stop words, stemmed; scripts without
    spaces between words into pairs of letters.

    stemmer: a language of PyStemmer, or BEGINNINGS; stopwords: one of STOP_WORDS, "english" or EUROPEAN; None
    for neither. Raises InputError for unknown languages.
    """

    def __init__(self, stemmer: str | None, stopwords: str | None) -> None:
        if stemmer not in (None, BEGINNINGS, *Stemmer.algorithms()):
            languages = ", ".join(Stemmer.algorithms())
            raise InputError(f"retriever.stemmer: {stemmer!r} is not one of {languages}")
        lists = {**STOP_WORDS, "english": STOP_WORDS["en"], EUROPEAN: FUNCTION_WORDS, "": frozenset[str]()}
        if (stopwords or "") not in lists:
            raise InputError(f"retriever.stopwords: {stopwords!r} is not one of {', '.join(STOP_WORDS)}")
        self._ignored = lists[stopwords or ""]
        stem = str if stemmer in (None, BEGINNINGS) else Stemmer.Stemmer(stemmer).stemWord
        self._stem = (lambda word: cognate(word)[:LETTERS]) if stemmer == BEGINNINGS else stem
        self._kept: Callable[[str], list[str]] = lru_cache(KEPT_WORDS)(self._word)

    def terms(self, text: str) -> list[str]:
        """Return the terms of a text, in order."""
        return [
            self._stem(word) for word in _TOKEN.findall(with_pairs(text.lower())) if word not in self._ignored
        ]

    def lookup(self, words: Sequence[str]) -> tuple[Ragged, list[str]]:
        """Return the term ids of each word, and the name of each term, in order of first use.

        Terms of many words are not kept for the next texts.
        """
        ids, terms_of = dict[str, int](), self._word if len(words) > KEPT_WORDS // 4 else self._kept
        rows = [[ids.setdefault(term, len(ids)) for term in terms_of(word)] for word in words]
        return Ragged.from_rows(rows), list(ids)

    def _word(self, word: str) -> list[str]:
        for marker in MARKER_WORDS:
            word = word.replace(marker, " ")
        return self.terms(word)


class Terms:
    """The terms of each word of a corpus.

    word_terms: rows [V] of terms, parallel to `corpus.words`: none for stop words, punctuation and citation
    markers, several for compounds. names: [T], the stems; size: T.
    Tokens of a prepared corpus are mapped to terms, so that no text is read and no word is stemmed twice.
    """

    def __init__(self, word_terms: Ragged, names: Sequence[str], tokenizer: Tokenizer) -> None:
        self.word_terms, self.names, self.size, self._tokenizer = word_terms, names, len(names), tokenizer
        self._words: Sequence[str] = ()

    @classmethod
    def from_words(cls, words: Sequence[str], stemmer: str | None, stopwords: str | None) -> Terms:
        """The terms of words, cached per corpus; arguments as for `Tokenizer`."""
        key = (id(words), stemmer, stopwords)
        if (terms := _CACHE.get(key)) is None:
            tokenizer = _tokenizer(stemmer, stopwords)
            terms = _CACHE[key] = cls(*tokenizer.lookup(words), tokenizer)
            terms._words = words  # kept alive, so that no other object gets this id
        return terms

    @classmethod
    def named(cls, names: Sequence[str], stemmer: str | None, stopwords: str | None) -> Terms:
        """Terms by their names, without words."""
        return cls(Ragged.from_rows([]), names, _tokenizer(stemmer, stopwords))

    def with_words(self, words: Sequence[str], more_terms: bool = False) -> Terms:
        """Add words. Unknown terms are dropped, or added with more_terms."""
        if more_terms:
            names = [name for name in self._tokenizer.lookup(words)[1] if name not in self._ids]
            return Terms(self.word_terms, [*self.names, *names], self._tokenizer).with_words(words)
        more, all_names = self.lookup(words), self.names
        values = np.concatenate([self.word_terms.values, more.values])
        offsets = np.concatenate([self.word_terms.offsets, self.word_terms.offsets[-1] + more.offsets[1:]])
        return Terms(Ragged(values, offsets), all_names, self._tokenizer)

    def lookup(self, words: Sequence[str]) -> Ragged:
        """Return the known terms of any words [rows]."""
        rows, names = self._tokenizer.lookup(words)
        ids = [self._ids.get(name) for name in names]
        return Ragged.from_rows(
            [[term for i in row.tolist() if (term := ids[i]) is not None] for row in rows]
        )

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {name: term for term, name in enumerate(self.names)}

    def counts(self, rows: NDArray[np.integer], words: Ragged, texts: int) -> Counts:
        """Term counts of texts: float32 [texts, T].

        words: rows of token ids; rows: the text that each row belongs to, ascending.
        """
        terms = self.word_terms.take(words.values)
        text = np.repeat(rows, np.diff(terms.offsets[words.offsets]))
        return Counts.add_up(text, terms.values, (texts, self.size))

    def query_counts(self, queries: Queries, fields: Sequence[str]) -> Counts:
        """Term counts of queries, float32 [Q, T]; fields: of QUERY_FIELDS, repeated ones count repeatedly."""
        rows, none = np.arange(len(queries)), np.empty(0, np.int64)
        total = Counts.add_up(none, none, (len(queries), self.size))
        for field in queries.fields:
            if field in fields:
                total += self.counts(rows, queries.words(field), len(queries)) * fields.count(field)
        return total

    @property
    def nbytes(self) -> int:
        return self.word_terms.values.nbytes + self.word_terms.offsets.nbytes

    def save(self, folder: Path) -> None:
        save_ragged(folder, "terms", self.word_terms)
        (folder / NAMES).write_text("\n".join(self.names), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path, stemmer: str | None, stopwords: str | None) -> Terms:
        """Memory-map terms written by `save`."""
        names = (folder / NAMES).read_text("utf-8").split("\n")
        return cls(load_ragged(folder, "terms"), names, _tokenizer(stemmer, stopwords))


NAMES = "terms.txt"
_CACHE: WeakValueDictionary[tuple[int, str | None, str | None], Terms] = WeakValueDictionary()


@lru_cache
def _tokenizer(stemmer: str | None, stopwords: str | None) -> Tokenizer:
    return Tokenizer(stemmer, stopwords)
