"""The words of a corpus as terms of lexical search: stemmed, without stop words, counted in texts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import Stemmer
from bm25s.tokenization import Tokenizer
from scipy.sparse import csc_matrix, csr_matrix

from datasets.errors import InputError
from datasets.ragged import Ragged
from datasets.schema import MARKER_WORDS
from datasets.store import Corpus


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
    where a word has parts. size: number of terms T.
    The tokens of a store are looked up here, so that no text is read and no word stemmed twice.
    """

    def __init__(self, of_word: Ragged) -> None:
        self.of_word = of_word
        self.size = int(of_word.values.max(initial=-1)) + 1

    @classmethod
    def of(cls, words: Sequence[str], tokenizer: Tokenizer) -> Terms:
        tokenizer.reset_vocab()
        rows = list(tokenizer.streaming_tokenize(map(_without_markers, words), allow_empty=False))
        return cls(Ragged.from_rows(rows))

    def counts(self, rows: npt.NDArray[np.integer], words: Ragged, texts: int) -> csc_matrix:
        """How often each term stands in each text: float32 [texts, T].

        words: rows of token ids; rows: the text that each row is of, ascending.
        """
        terms = self.of_word.take(words.values)
        text = np.repeat(rows, np.diff(terms.offsets[words.offsets]))
        ones = np.ones(len(text), np.float32)
        # Texts ascend, so that equal places of a column lie side by side and nothing is sorted.
        return csc_matrix((ones, (text, terms.values)), shape=(texts, self.size))

    def query_counts(
        self, corpus: Corpus, contexts: npt.NDArray[np.int64], fields: Sequence[str]
    ) -> csr_matrix:
        """The terms of queries, float32 [Q, T]; fields as for retrieval.query_text.query_texts."""
        citing = corpus.citing[contexts]
        rows, summed = np.arange(len(contexts)), csc_matrix((len(contexts), self.size), dtype=np.float32)
        for field, words, taken in (
            ("context", corpus.context_tokens, contexts),
            ("title", corpus.title_tokens, citing),
            ("abstract", corpus.abstract_tokens, citing),
        ):
            if field in fields:
                counts = self.counts(rows, words.take(taken), len(contexts))
                summed = summed + counts * np.float32(fields.count(field))
        return summed.tocsr()

    @property
    def nbytes(self) -> int:
        return self.of_word.values.nbytes + self.of_word.offsets.nbytes

    def save(self, folder: Path) -> None:
        np.save(folder / "terms.values.npy", self.of_word.values)
        np.save(folder / "terms.offsets.npy", self.of_word.offsets)

    @classmethod
    def load(cls, folder: Path) -> Terms:
        """What `save` wrote, mapped."""
        values, offsets = (
            np.asarray(np.load(folder / f"terms.{part}.npy", mmap_mode="r", allow_pickle=False))
            for part in ("values", "offsets")
        )
        return cls(Ragged(values, offsets))


def _without_markers(word: str) -> str:
    for marker in MARKER_WORDS:
        word = word.replace(marker, " ")
    return word
