"""BM25 over titles and abstracts (Robertson and Zaragoza 2009), by bm25s (Lù 2024)."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import bm25s
import numpy as np
import numpy.typing as npt
import Stemmer
from bm25s.tokenization import Tokenizer

from datasets.errors import InputError
from datasets.store import Corpus
from retrieval.base import Retriever
from retrieval.query_text import check_fields, query_texts
from retrieval.ranking import Ranking

METHODS = ("lucene", "robertson", "atire")
BACKENDS = ("numpy", "numba")


class BM25(Retriever):
    """A word that occurs twice in a query counts twice; papers without a word of the query are not ranked.

    method: the variant's name in bm25s (`lucene`, `robertson`, `atire`).
    stemmer: a language of PyStemmer; stopwords: a language of bm25s; None for neither.
    query: of `context` (without its citation markers), `title` and `abstract` of the citing paper.
    backend: `numpy`, or `numba`, which compiles for some seconds and then searches a little faster (pays off
    from about 25,000 queries on). threads: that search at the same time.
    """

    name = "bm25"

    def __init__(
        self,
        method: str = "lucene",
        k1: float = 1.2,
        b: float = 0.75,
        stemmer: str | None = "english",
        stopwords: str | None = "en",
        query: Sequence[str] = ("context", "title"),
        backend: str = "numpy",
        threads: int = 1,
    ) -> None:
        """Raises InputError for a value that is not one of those above."""
        super().__init__()
        _check("method", method, METHODS)
        _check("backend", backend, BACKENDS)
        if stemmer is not None:
            _check("stemmer", stemmer, Stemmer.algorithms())
        for key, value, most in (("k1", k1, math.inf), ("b", b, 1.0)):
            if not isinstance(value, int | float) or not 0 <= value <= most:
                raise InputError(f"retriever.{key}: {value!r} is no number from 0 to {most}")
        try:
            self._tokenizer = Tokenizer(
                stopwords=stopwords, stemmer=Stemmer.Stemmer(stemmer) if stemmer is not None else None
            )
        except ValueError as error:
            raise InputError(f"retriever.stopwords: {error}") from None
        self.query, self.threads = check_fields(query), threads
        self._settings = {"method": method, "k1": k1, "b": b, "backend": backend}
        logging.getLogger("bm25s").setLevel(
            logging.WARNING
        )  # it reports every step at the level of debugging

    def settings(self) -> dict[str, Any]:
        return {**self._settings}

    def _save(self, folder: Path) -> None:
        raise NotImplementedError

    def _load(self, folder: Path, corpus: Corpus) -> None:
        raise NotImplementedError

    def _index(self, corpus: Corpus) -> None:
        self._tokenizer.reset_vocab()
        self._rows = np.flatnonzero(corpus.is_candidate).astype(np.int32)
        tokens = list(self._tokenizer.streaming_tokenize(_documents(corpus), allow_empty=False))
        vocabulary = self._tokenizer.get_vocab_dict()
        if not vocabulary:
            raise InputError(f"corpus {corpus.name}: no candidate has a word that BM25 could index")
        self._bm25 = bm25s.BM25(**self._settings)
        self._bm25.index((tokens, vocabulary), create_empty_token=False, show_progress=False)
        self._retrieve([[0]], 1)  # compiles, so that the first search is not measured with it

    def _search(
        self, contexts: npt.NDArray[np.int64], k: int, allowed: npt.NDArray[np.bool_] | None
    ) -> Ranking:
        texts = query_texts(self.corpus, contexts, self.query)
        tokens = list(self._tokenizer.streaming_tokenize(texts, update_vocab=False, allow_empty=False))
        papers = np.full((len(contexts), k), -1, np.int32)
        scores = np.full((len(contexts), k), -np.inf, np.float32)
        known = np.flatnonzero([len(query) > 0 for query in tokens])
        if len(known):
            mask = None if allowed is None else allowed[self._rows].astype(np.float32)
            found, values = self._retrieve([tokens[i] for i in known], k, mask)
            papers[known] = np.where(values > 0, self._rows[found], -1)
            scores[known] = values
        return Ranking(papers, scores)

    def _retrieve(
        self, tokens: list[list[int]], k: int, mask: npt.NDArray[np.float32] | None = None
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
        return self._bm25.retrieve(
            tokens, k=k, sorted=False, show_progress=False, n_threads=self.threads, weight_mask=mask
        )


def _documents(corpus: Corpus) -> Iterator[str]:
    for title, abstract, candidate in zip(
        corpus.titles, corpus.abstracts, corpus.is_candidate.tolist(), strict=True
    ):
        if candidate:
            yield f"{title} {abstract}"


def _check(key: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise InputError(f"retriever.{key}: {value!r} is not one of {', '.join(known)}")
