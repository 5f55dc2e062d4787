"""The words of a corpus as terms of lexical search, in papers and queries; the key terms of citing papers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from weakref import WeakValueDictionary

import numpy as np
import Stemmer
from bm25s.tokenization import Tokenizer
from numpy.typing import NDArray
from scipy.sparse import csc_matrix, csr_matrix

from datasets.columns import Ragged, load_ragged, save_ragged
from datasets.corpus import Corpus
from datasets.errors import InputError
from datasets.records import MARKER_WORDS, OTHER_MARKER, TARGET_MARKER
from retrieval.arrays import Rows
from retrieval.queries import Queries

PAPERS_AT_ONCE = 1 << 16
"""Papers whose words are counted at a time."""


def strip_markers(text: str) -> str:
    """A context without its marks for citations."""
    return text.replace(TARGET_MARKER, " ").replace(OTHER_MARKER, " ")


def query_texts(corpus: Corpus, queries: Queries | Rows, fields: Sequence[str]) -> Iterator[str]:
    """The fields' texts of each query [Q], one after the other; a field that is named twice stands twice.

    queries: or rows of the corpus's contexts; fields: of QUERY_FIELDS.
    """
    asked = Queries.of(corpus, queries)
    return (" ".join(map(strip_markers, parts)) for parts in zip(*map(asked.texts, fields), strict=True))


def tokenizer(stemmer: str | None, stopwords: str | None) -> Tokenizer:
    """bm25s's tokeniser: runs of two letters, digits or more, less stop words, stemmed.

    stemmer: a language of PyStemmer; stopwords: a language of bm25s; None for neither.
    Raises InputError for one that they do not know.
    """
    if stemmer is not None and stemmer not in Stemmer.algorithms():
        known = ", ".join(Stemmer.algorithms())
        raise InputError(f"retriever.stemmer: {stemmer!r} is not one of {known}")
    try:
        return Tokenizer(stopwords=stopwords, stemmer=None if stemmer is None else Stemmer.Stemmer(stemmer))
    except ValueError as error:
        raise InputError(f"retriever.stopwords: {error}") from None


class Terms:
    """The terms that stand for each word of a corpus.

    of_word: rows [V] of terms, as `corpus.words`; empty for stop words, signs and citation markers, several
    where a word has parts. names: [T], what each term is; size: T.
    The tokens of a store are looked up here, so that no text is read and no word stemmed twice.
    """

    def __init__(self, of_word: Ragged, names: Sequence[str], tokenizer: Tokenizer) -> None:
        self.of_word, self.names, self.size, self._tokenizer = of_word, names, len(names), tokenizer
        self._words: Sequence[str] = ()

    @classmethod
    def of(cls, words: Sequence[str], stemmer: str | None, stopwords: str | None) -> Terms:
        """As for `tokenizer`; all that read one corpus's words alike share them."""
        key = (id(words), stemmer, stopwords)
        if (found := _MADE.get(key)) is None:
            rows, names = _terms_in(words, made := tokenizer(stemmer, stopwords))
            found = _MADE[key] = cls(Ragged.from_rows(rows), names, made)
            found._words = words  # live as long, so that no other words have their id
            made.reset_vocab()  # its dictionaries would outlive what they were for
        return found

    def with_words(self, words: Sequence[str], more_terms: bool = False) -> Terms:
        """These terms for further words too; what is none of them is left out or, more_terms, becomes one."""
        rows, names = _terms_in(words, self._tokenizer)
        of_all, places = self.names, self._places
        if more_terms:
            of_all = [*self.names, *(name for name in names if name not in places)]
            places = {name: term for term, name in enumerate(of_all)}
        place = [places.get(name) for name in names]
        known = [[found for term in row if (found := place[term]) is not None] for row in rows]
        more = Ragged.from_rows(known)
        values = np.concatenate([self.of_word.values, more.values])
        offsets = np.concatenate([self.of_word.offsets, self.of_word.offsets[-1] + more.offsets[1:]])
        return Terms(Ragged(values, offsets), of_all, self._tokenizer)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: term for term, name in enumerate(self.names)}

    def counts(self, rows: NDArray[np.integer], words: Ragged, texts: int) -> csc_matrix:
        """How often each term stands in each text: float32 [texts, T].

        words: rows of token ids; rows: the text that each row is of, ascending.
        """
        terms = self.of_word.take(words.values)
        text = np.repeat(rows, np.diff(terms.offsets[words.offsets]))
        ones = np.ones(len(text), np.float32)
        # Texts ascend, so that equal places of a column lie side by side and nothing is sorted.
        return csc_matrix((ones, (text, terms.values)), shape=(texts, self.size))

    def query_counts(self, queries: Queries, fields: Sequence[str]) -> csr_matrix:
        """The terms of queries, float32 [Q, T]; fields as for query_texts."""
        rows, summed = np.arange(len(queries)), csc_matrix((len(queries), self.size), dtype=np.float32)
        for field in queries.fields:
            if field in fields:
                counts = self.counts(rows, queries.words(field), len(queries))
                summed = summed + counts * np.float32(fields.count(field))
        return summed.tocsr()

    @property
    def nbytes(self) -> int:
        return self.of_word.values.nbytes + self.of_word.offsets.nbytes

    def save(self, folder: Path) -> None:
        save_ragged(folder, "terms", self.of_word)
        (folder / NAMES).write_text("\n".join(self.names), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path, stemmer: str | None, stopwords: str | None) -> Terms:
        """What `save` wrote, mapped."""
        names = (folder / NAMES).read_text("utf-8").split("\n")
        return cls(load_ragged(folder, "terms"), names, tokenizer(stemmer, stopwords))


NAMES = "terms.txt"
_MADE: WeakValueDictionary[tuple[int, str | None, str | None], Terms] = WeakValueDictionary()


def _terms_in(words: Sequence[str], tokenizer: Tokenizer) -> tuple[list[list[int]], list[str]]:
    """The terms of each word, and what each term is."""
    tokenizer.reset_vocab()
    rows = list(tokenizer.streaming_tokenize(map(_without_markers, words), allow_empty=False))
    return rows, list(tokenizer.get_vocab_dict())


def _without_markers(word: str) -> str:
    for marker in MARKER_WORDS:
        word = word.replace(marker, " ")
    return word


KEY_TERMS = "key_terms"
"""Their name among the fields of a query."""
OF_TITLE, OF_ABSTRACT = 3, 5
"""Key terms of each."""


class KeyTerms:
    """Finds the key terms of citing papers: the few words of title and abstract that tell most about them.

    papers: the rows whose titles and abstracts are counted. A term that none of them has is no key term.
    """

    def __init__(self, terms: Terms, corpus: Corpus, papers: NDArray[np.int32]) -> None:
        self._terms = terms
        columns = (
            ("title", corpus.title_tokens, OF_TITLE),
            ("abstract", corpus.abstract_tokens, OF_ABSTRACT),
        )
        self._fields = [(field, self._shares(words, papers), most) for field, words, most in columns]

    def counts(self, queries: Queries, terms: Terms | None = None) -> csr_matrix:
        """Of each query [Q] its key terms, each once: float32 [Q, T]; terms: with its new words."""
        of, found = terms or self._terms, [np.empty(0, np.int32)] * len(queries)
        for field, shares, most in self._fields:
            times = of.counts(np.arange(len(queries)), queries.words(field), len(queries)).tocsr()
            times.sum_duplicates()
            for query in range(len(queries)):
                part = slice(times.indptr[query], times.indptr[query + 1])
                there, often = times.indices[part], times.data[part]
                known = shares[there] > 0
                there, often = there[known], often[known]
                order = np.lexsort((there, -bo1(often, shares[there])))
                found[query] = np.union1d(found[query], there[order[:most]])
        rows = Ragged.from_rows(found)
        ones = np.ones(len(rows.values), np.float32)
        return csr_matrix((ones, rows.values, rows.offsets), shape=(len(queries), self._terms.size))

    def _shares(self, words: Ragged, papers: NDArray[np.int32]) -> NDArray[np.float64]:
        """How often each term [T] stands in a field of the papers, divided by their number."""
        total = np.zeros(self._terms.size, np.int64)
        for start in range(0, len(papers), PAPERS_AT_ONCE):
            block = words.take(papers[start : start + PAPERS_AT_ONCE])
            total += np.bincount(self._terms.of_word.take(block.values).values, minlength=len(total))
        return total / max(len(papers), 1)


def bo1(times: NDArray[np.floating], shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """The weights of terms [n] by how often they stand in a text and, on average, in a paper."""
    return np.asarray(times * np.log2((1 + shares) / shares) + np.log2(1 + shares))
