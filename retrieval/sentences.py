"""Aspire: papers and queries as several sentence vectors each, compared by their best pair.

Mysore et al. 2022, Multi-Vector Models with Textual Guidance for Fine-Grained Scientific Document Similarity:
contextual sentence vectors, and the smallest Euclidean distance between two of them (tsAspire).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from datasets.errors import InputError
from datasets.ragged import Ragged, offsets_of
from datasets.store import Corpus
from retrieval.article import ArticleEncoder, ArticleRetriever
from retrieval.article_text import ArticleReader, Texts
from retrieval.base import Retriever
from retrieval.encode import encoded, parts_folder, precision
from retrieval.indexes import IndexConfig, PaperIndex, build_index, load_index
from retrieval.models import ArticleConfig
from retrieval.profiles import ProfileConfig
from retrieval.ranking import Ranking, nothing, ordered

PAIRS = 1 << 22
"""Pairs of sentences that are ranked at a time."""


class SentenceRetriever(Retriever):
    """Scores a paper by minus the smallest distance of one of its sentences to one of the query's.

    The k best papers are exact: ever more sentences are fetched, until no other paper can be among them.
    """

    name = "article"

    def __init__(
        self,
        encoder: ArticleConfig | ArticleEncoder,
        arithmetic: str = "auto",
        index: IndexConfig | None = None,
    ) -> None:
        """As for ArticleRetriever; the encoder has aspire pooling. Raises InputError for an inexact index."""
        super().__init__()
        self.index_config = index or IndexConfig()
        if self.index_config.kind != "exact":
            raise InputError("sentences (encoder.pooling=aspire) are searched exactly: set index=exact")
        precision(arithmetic)  # before a model is loaded
        if isinstance(encoder, ArticleConfig):
            encoder = ArticleEncoder.pretrained(encoder)
        self.encoder = encoder.frozen(arithmetic)

    def settings(self) -> dict[str, Any]:
        return self.encoder.fingerprint()

    @property
    def index_bytes(self) -> int:
        return self._sentences.nbytes + int(self._papers.nbytes)

    def _index(self, corpus: Corpus) -> None:
        self._reader = ArticleReader(corpus, self.encoder.tokenizer, self.encoder.config)
        rows = np.flatnonzero(corpus.is_candidate)
        parts = parts_folder(corpus, rows, self.settings())
        vectors, papers = [], []
        for part, found in encoded(self.encoder.encode, self._reader.papers, rows, "papers", parts):
            vectors.append(_with_norm(found))
            counts = _by_text(self._reader.papers(rows[part])).lengths
            papers.append(np.repeat(rows[part], counts))
        self._papers: NDArray[np.int64] = np.concatenate(papers)
        self._sentences: PaperIndex = build_index(self.index_config, np.concatenate(vectors))

    def _save(self, folder: Path) -> None:
        self._sentences.save(folder)
        np.save(folder / "papers.npy", self._papers)

    def _load(self, folder: Path, corpus: Corpus) -> None:
        self._reader = ArticleReader(corpus, self.encoder.tokenizer, self.encoder.config)
        self._sentences = load_index(self.index_config, folder)
        self._papers = np.load(folder / "papers.npy", allow_pickle=False)

    def _search(self, contexts: NDArray[np.int64], k: int, allowed: NDArray[np.bool_] | None) -> Ranking:
        may = None if allowed is None else allowed[self._papers]
        papers, scores = nothing(len(contexts), k)
        texts = self._reader.queries(contexts)
        with torch.inference_mode():
            vectors = self.encoder.encode(texts).cpu().numpy()
        sentences = _by_text(texts)
        open_queries, depth = np.flatnonzero(sentences.lengths), 2 * k
        most = len(self._papers) if may is None else int(np.count_nonzero(may))
        while len(open_queries) and most:
            depth = min(depth, most)
            unsure = []
            step = max(1, PAIRS // (depth * int(sentences.lengths.max())))
            for start in range(0, len(open_queries), step):
                some = open_queries[start : start + step]
                found, sure = self._best(vectors, sentences.take(some), k, depth, may)
                sure |= depth == most
                papers[some[sure]], scores[some[sure]] = found.papers[sure], found.scores[sure]
                unsure.append(some[~sure])
            open_queries, depth = np.concatenate(unsure), 2 * depth
        return Ranking(papers, scores)

    def _best(
        self,
        vectors: NDArray[np.float32],
        sentences: Ragged,
        k: int,
        depth: int,
        may: NDArray[np.bool_] | None,
    ) -> tuple[Ranking, NDArray[np.bool_]]:
        """The k best papers by the `depth` nearest sentences to each of the queries' [q, k], and whether no
        other paper can be among them [q].
        """
        asked = vectors[sentences.values]
        ones = np.ones((len(asked), 1), np.float32)
        near = self._sentences.search(np.concatenate([asked, ones], axis=1), depth, may)
        squares = np.square(asked).sum(axis=1, keepdims=True) - 2 * near.scores
        scores = -np.sqrt(np.maximum(squares, 0))
        # All sentences of a query side by side, [q, the most sentences of one, depth].
        shape = (len(sentences), int(sentences.lengths.max()), depth)
        papers, values = np.full(shape, -1, np.int64), np.full(shape, -np.inf, np.float32)
        query = np.repeat(np.arange(len(sentences)), sentences.lengths)
        place = np.arange(len(query)) - sentences.offsets[query]
        papers[query, place] = np.where(near.papers >= 0, self._papers[near.papers], -1)
        values[query, place] = scores
        # A paper that was not found is at most as near as the last sentence found for any of the query's.
        bound = values[:, :, -1].max(axis=1)
        flat = papers.reshape(len(sentences), -1)
        by_score = ordered(flat, values.reshape(len(sentences), -1), flat.shape[1])
        best = ordered(by_score.papers, by_score.scores, k, drop=_again(by_score.papers))
        return best, best.scores[:, -1] > bound


def article_retriever(
    encoder: ArticleConfig,
    arithmetic: str = "auto",
    index: IndexConfig | None = None,
    profile: ProfileConfig | None = None,
) -> Retriever:
    """The retriever for an encoder's pooling, as conf/retriever/article.yaml describes it.

    Raises InputError if the encoder cannot be had, and for aspire pooling with an index that is not exact or
    with context profiles, which are for papers of one vector.
    """
    if encoder.pooling != "aspire":
        return ArticleRetriever(encoder, arithmetic, index, profile)
    if profile is not None and profile.weight != 0:
        raise InputError("profile: none for sentences (encoder.pooling=aspire); set profile=none")
    return SentenceRetriever(encoder, arithmetic, index)


def _with_norm(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """[n, D] -> [n, D + 1], whose product with (q, 1) falls with the distance to q: q.v - |v|^2 / 2."""
    return np.concatenate([vectors, -np.square(vectors).sum(axis=1, keepdims=True) / 2], axis=1)


def _by_text(texts: Texts) -> Ragged:
    """The sentences of each text."""
    assert texts.owners is not None, "an encoder without aspire pooling"
    counts = np.bincount(texts.owners, minlength=len(texts))
    return Ragged(np.arange(len(texts.owners), dtype=np.int32), offsets_of(counts))


def _again(papers: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Places [q, n] of papers that stand further left in the same row."""
    order = np.argsort(papers, axis=1, kind="stable")
    in_order = np.take_along_axis(papers, order, axis=1)
    again = np.zeros(papers.shape, np.bool_)
    np.put_along_axis(again, order[:, 1:], in_order[:, 1:] == in_order[:, :-1], axis=1)
    return again
