"""Aspire: papers are as near as their nearest sentences (Mysore et al. 2022, tsAspire).

A sentence's vector is the mean of its tokens. The distance of two papers is the smallest Euclidean distance
between a sentence of one and a sentence of the other. All sentences are compared, so results are exact, and
their vectors are in memory: some 12 KB a paper in float16.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from citerec.base.errors import InputError
from citerec.base.progress import count_progress
from citerec.datasets.columns import Ragged, offsets_of
from citerec.datasets.corpus import Corpus
from citerec.datasets.tokenize import sentence_starts
from citerec.retrieval.arrays import Floats, Mask
from citerec.retrieval.base import Ranking, Retriever, empty_rankings, top_k
from citerec.retrieval.encoders.article_text import ArticleReader
from citerec.retrieval.encoders.encoder import ArticleEncoder
from citerec.retrieval.queries import Queries
from citerec.retrieval.settings import ArticleConfig, IndexConfig

PAPERS = 1024
"""Papers that are encoded at a time."""
PAIRS = 1 << 22
"""Pairs of sentences that are compared at a time."""
SENTENCE = 20
"""Bits of a subword's id; those above are the number of its sentence in the text, 0 for none."""
FIRST = {"title": 1, "context": 2, "abstract": 1024}
"""Number of a field's first sentence."""


class SentenceReader(ArticleReader):
    """Texts whose subwords say which sentence they are in, see SENTENCE."""

    def _encode(self, texts: list[str]) -> list[Any]:
        return list(self._backend.encode_batch(texts, add_special_tokens=False))  # with places in the text

    def _subwords(self, name: str, text: str, encoding: Any) -> list[int]:
        breaks = [] if name == "title" else sentence_starts(text)
        numbers = (FIRST[name] + min(bisect_right(breaks, start), 1000) for start, _ in encoding.offsets)
        return [number << SENTENCE | token for number, token in zip(numbers, encoding.ids, strict=True)]


class SentenceRetriever(Retriever):
    """Scores a paper by the negative distance of its nearest sentence to one of the query's."""

    name = "article"
    arrays = ("vectors", "papers")

    def __init__(
        self,
        encoder: ArticleConfig | ArticleEncoder,
        arithmetic: str = "auto",
        index: IndexConfig | None = None,
    ) -> None:
        """Arguments as for ArticleRetriever. Raises InputError for an index that is not exact."""
        super().__init__()
        if index is not None and index.kind != "exact":
            raise InputError("encoder.pooling=aspire needs exact search: set index.kind=exact")
        self.encoder = ArticleEncoder.frozen(encoder, arithmetic)

    def settings(self) -> dict[str, Any]:
        return self.encoder.fingerprint()

    def _index(self, corpus: Corpus) -> None:
        rows = np.flatnonzero(corpus.is_candidate)
        parts, lengths = [np.empty((0, self.encoder.dim), np.float16)], [np.empty(0, np.int64)]
        with count_progress("encoding papers", len(rows)) as advance:
            for start in range(0, len(rows), PAPERS):
                part = rows[start : start + PAPERS]
                vectors, counts = self._sentences(self._reader.papers(part))
                parts.append(vectors.astype(np.float16))
                lengths.append(counts)
                advance(len(part))
        self._vectors = np.concatenate(parts)
        self._papers = np.repeat(rows.astype(np.int32), np.concatenate(lengths))

    def _prepare(self, corpus: Corpus) -> None:
        self._reader = SentenceReader(corpus, self.encoder.tokenizer, self.encoder.config)

    def _sentences(self, texts: Ragged) -> tuple[Floats, NDArray[np.int64]]:
        """The vectors of all sentences of B texts [S, D], and how many each text has [B]."""
        ids, numbers = texts.values & ((1 << SENTENCE) - 1), texts.values >> SENTENCE
        text = np.repeat(np.arange(len(texts)), texts.lengths)
        # Titles are context for the sentences of a text, not sentences themselves (Mysore et al. 2022).
        with_sentences = np.zeros(len(texts), np.bool_)
        with_sentences[text[numbers > FIRST["title"]]] = True
        numbers[(numbers == FIRST["title"]) & with_sentences[text]] = 0
        inside = numbers > 0
        unique, rank = np.unique(text[inside].astype(np.int64) << 11 | numbers[inside], return_inverse=True)
        sentence = np.full(len(ids), -1, np.int32)
        sentence[inside] = rank
        with torch.inference_mode():
            vectors = self.encoder.encode_parts(
                Ragged(ids, texts.offsets), Ragged(sentence, texts.offsets), len(unique)
            )
        return vectors.cpu().numpy(), np.bincount(unique >> 11, minlength=len(texts))

    def _search(self, queries: Queries, k: int, allowed: Mask | None) -> Ranking:
        papers, scores = empty_rankings(len(queries), k)
        vectors, lengths = self._sentences(self._reader.queries(queries))
        non_empty = np.flatnonzero(lengths)
        rows = np.arange(len(self._papers))
        if allowed is not None:
            rows = np.flatnonzero(allowed[self._papers])
        if len(non_empty) and len(rows):
            starts = offsets_of(lengths[non_empty])[:-1]
            best = Ranking(papers[non_empty], scores[non_empty])
            for block in self._blocks(rows, max(1, PAIRS // len(vectors))):
                near, negative = self._nearest(vectors, starts, block)
                papers_too = np.concatenate((best.papers, near), axis=1)
                best = top_k(papers_too, np.concatenate((best.scores, negative), axis=1), k)
            papers[non_empty], scores[non_empty] = best.papers, best.scores
        return Ranking(papers, scores)

    def _blocks(self, rows: NDArray[np.int64], size: int) -> Iterator[NDArray[np.int64]]:
        """Rows of sentences, some `size` at a time, those of a paper together."""
        papers = self._papers[rows]
        ends = np.flatnonzero(np.diff(papers, append=-1)) + 1
        wanted = np.arange(size, len(rows) + size, size).clip(max=len(rows))
        cuts = np.unique(ends[np.searchsorted(ends, wanted)])
        for start, end in pairwise([0, *cuts.tolist()]):
            yield rows[start:end]

    def _nearest(
        self, vectors: Floats, starts: NDArray[np.int64], rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.int32], Floats]:
        """The papers of sentences [n], and their negative distances, both [q, p].

        vectors: of the sentences of q queries [s, D]; starts: int64 [q], the first of each.
        """
        theirs = self._vectors[rows].astype(np.float32)
        squares = (vectors**2).sum(1)[:, None] + (theirs**2).sum(1) - 2 * (vectors @ theirs.T)
        papers, firsts = np.unique(self._papers[rows], return_index=True)
        least = np.minimum.reduceat(np.minimum.reduceat(squares, starts, axis=0), firsts, axis=1)
        return np.broadcast_to(papers, least.shape), -np.sqrt(least.clip(min=0))
