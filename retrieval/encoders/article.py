"""Retrievers with an article encoder: one vector per paper, or one per sentence (Aspire).

Mysore et al. 2022, Multi-Vector Models with Textual Guidance for Fine-Grained Scientific Document Similarity:
the distance of two papers is the smallest Euclidean distance between two of their sentences (tsAspire).
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from citerec.base.errors import InputError
from citerec.datasets.columns import Ragged, offsets_of
from citerec.datasets.corpus import Corpus
from citerec.retrieval.arrays import Floats, Mask, Rows
from citerec.retrieval.base import Ranking, Retriever, empty_rankings, top_k
from citerec.retrieval.dense import DenseRetriever, ray_shards
from citerec.retrieval.encoders.article_text import ArticleReader, Texts
from citerec.retrieval.encoders.embeddings import (
    SHARD,
    Advance,
    EmbeddingJob,
    Embeddings,
    Vectors,
    load_or_encode,
)
from citerec.retrieval.encoders.encoder import ArticleEncoder
from citerec.retrieval.encoders.nets import as_numpy, precision
from citerec.retrieval.indexes.index import build_l2_index, load_index, search_l2
from citerec.retrieval.queries import Queries
from citerec.retrieval.settings import ArticleConfig, IndexConfig
from citerec.retrieval.vectors import QueryCache, VectorTable, encode_queries, to_unit_length

PAIRS = 1 << 22
"""Sentence pairs ranked at a time."""


def load_frozen(encoder: ArticleConfig | ArticleEncoder, arithmetic: str) -> ArticleEncoder:
    """Freeze an encoder for inference, after loading it if given its settings.

    Raises InputError if it cannot be loaded.
    """
    precision(arithmetic)  # checked before the model is loaded
    loaded = ArticleEncoder.pretrained(encoder) if isinstance(encoder, ArticleConfig) else encoder
    return loaded.freeze(arithmetic)


class ArticleRetriever(DenseRetriever):
    """Finds the nearest papers by the cosine or distance of an article encoder's vectors."""

    name = "article"
    has_vectors = True

    def __init__(
        self,
        encoder: ArticleConfig | ArticleEncoder,
        arithmetic: str = "auto",
        index: IndexConfig | None = None,
        embeddings_dir: str | Path | None = None,
        shard: int = SHARD,
    ) -> None:
        """arithmetic: auto, float32 or bfloat16. embeddings_dir: folder to store or reuse paper vectors, with
        `shard` papers per file (retrieval.encoders.embeddings). Raises InputError if the encoder cannot be
        loaded.
        """
        super().__init__(index)
        self.embeddings_dir, self.shard = embeddings_dir, shard
        self.encoder = load_frozen(encoder, arithmetic)
        self.similarity = self.encoder.config.similarity
        if self.similarity == "l2" and self.index_config.kind != "exact":
            raise InputError("encoder.similarity=l2 needs exact search: set index.kind=exact")

    def fingerprint(self) -> dict[str, Any]:
        return self.encoder.fingerprint()

    def prepare(self, corpus: Corpus) -> None:
        self._reader = ArticleReader(corpus, self.encoder.tokenizer, self.encoder.config)

    def encode_papers(self, rows: Rows, advance: Advance | None = None) -> Floats:
        """advance: progress callback."""
        vectors = self._encode_raw(rows, advance)
        return to_unit_length(vectors) if self._normalised else vectors

    def encode_queries(self, queries: Queries | Rows) -> Floats:
        forward, dim = as_numpy(self.encoder.encode), self.encoder.dim
        return encode_queries(forward, self._reader, queries, dim, normalise=self._normalised)

    @property
    def _normalised(self) -> bool:
        return self.similarity == "cosine"

    def embed(self, corpus: Corpus, rows: Rows) -> Embeddings:
        """Load or encode the vectors of papers, after `prepare`."""
        encode_shards = partial(ray_shards, self, rows) if self.encoding == "ray" else None

        def encode(rows: Rows, advance: Advance) -> Vectors:
            return self.encode_papers(rows, advance), None

        model = self.encoder.paper_fingerprint()
        job = EmbeddingJob(corpus, rows, model, self.encoder.dim, encode, encode_shards=encode_shards)
        return load_or_encode(job, self.embeddings_dir, self.shard)

    def paper_vectors(self, corpus: Corpus, rows: Rows) -> VectorTable:
        embeddings = self.embed(corpus, rows)
        self.reused = embeddings.encoded < len(rows)
        return embeddings.vectors

    def raw_vectors(self, corpus: Corpus, rows: Rows) -> VectorTable:
        def encode(rows: Rows, advance: Advance) -> Vectors:
            return self._encode_raw(rows, advance), None

        self.prepare(corpus)
        model = {**self.encoder.paper_fingerprint(), "normalisation": "none"}
        job = EmbeddingJob(corpus, rows, model, self.encoder.dim, encode, dtype="float32")
        return load_or_encode(job).vectors

    def _encode_raw(self, rows: Rows, advance: Advance | None) -> Floats:
        with torch.inference_mode():
            return self.encoder.encode(self._reader.papers(rows), advance).cpu().numpy()


class SentenceRetriever(Retriever):
    """Scores a paper by the negative smallest distance between its sentences and those of the query.

    The k best papers are exact: sentences are fetched until no other paper can be among the best.
    """

    name = "article"
    arrays = ("papers",)

    def __init__(
        self,
        encoder: ArticleConfig | ArticleEncoder,
        arithmetic: str = "auto",
        index: IndexConfig | None = None,
        embeddings_dir: str | Path | None = None,
        shard: int = SHARD,
    ) -> None:
        """Arguments as for ArticleRetriever, with aspire pooling. Raises InputError for an inexact index."""
        super().__init__()
        self.embeddings_dir, self.shard = embeddings_dir, shard
        self._cache: QueryCache | None = None
        self.index_config = index or IndexConfig()
        if self.index_config.kind != "exact":
            raise InputError("encoder.pooling=aspire needs exact search: set index.kind=exact")
        self.encoder = load_frozen(encoder, arithmetic)

    def settings(self) -> dict[str, Any]:
        return self.encoder.fingerprint()

    @property
    def index_bytes(self) -> int:
        return self._sentences.nbytes + int(self._papers.nbytes)

    def cache_queries(self) -> None:
        self._cache = QueryCache()

    def prepare(self, corpus: Corpus) -> None:
        """Prepare to read queries and papers of a corpus."""
        self._cache = None
        self._reader = ArticleReader(corpus, self.encoder.tokenizer, self.encoder.config)

    def embed(self, corpus: Corpus, rows: Rows) -> Embeddings:
        """Load or encode the sentence vectors of papers, after `prepare`."""

        def encode(rows: Rows, advance: Advance) -> Vectors:
            texts = self._reader.papers(rows)
            with torch.inference_mode():
                vectors = self.encoder.encode(texts, advance).cpu().numpy()
            return vectors, _sentences_by_text(texts).lengths.astype(np.int32)

        model = self.encoder.paper_fingerprint()
        job = EmbeddingJob(corpus, rows, model, self.encoder.dim, encode, sentences=True)
        return load_or_encode(job, self.embeddings_dir, self.shard)

    def _index(self, corpus: Corpus) -> None:
        self.prepare(corpus)
        rows = np.flatnonzero(corpus.is_candidate)
        embeddings = self.embed(corpus, rows)
        self.reused = embeddings.encoded < len(rows)
        self._papers = np.repeat(rows.astype(np.int32), np.diff(embeddings.offsets))
        self._sentences = build_l2_index(self.index_config, embeddings.vectors)

    def _save(self, folder: Path) -> None:
        super()._save(folder)
        self._sentences.save(folder)

    def _load(self, folder: Path, corpus: Corpus) -> None:
        super()._load(folder, corpus)
        self.prepare(corpus)
        self._sentences = load_index(self.index_config, folder)

    def _search(self, queries: Queries, k: int, allowed: Mask | None) -> Ranking:
        mask = None if allowed is None else allowed[self._papers]
        papers, scores = empty_rankings(len(queries), k)
        encode = self._encode_sentences
        per_query = encode(queries) if self._cache is None else self._cache.get(queries, encode)
        vectors = np.concatenate([*per_query, np.empty((0, self.encoder.dim), np.float32)])
        lengths = np.array([len(part) for part in per_query])
        sentences = Ragged(np.arange(len(vectors), dtype=np.int32), offsets_of(lengths))
        pending, depth = np.flatnonzero(sentences.lengths), 2 * k
        limit = len(self._papers) if mask is None else int(np.count_nonzero(mask))
        while len(pending) and limit:
            depth = min(depth, limit)
            undecided = []
            step = max(1, PAIRS // (depth * int(sentences.lengths.max())))
            for start in range(0, len(pending), step):
                batch = pending[start : start + step]
                best, final = self._best(vectors, sentences.take(batch), k, depth, mask)
                final |= depth == limit
                papers[batch[final]], scores[batch[final]] = best.papers[final], best.scores[final]
                undecided.append(batch[~final])
            pending, depth = np.concatenate(undecided), 2 * depth
        return Ranking(papers, scores)

    def _encode_sentences(self, queries: Queries) -> list[Floats]:
        """The sentence vectors of each query [s, D]."""
        texts = self._reader.queries(queries)
        with torch.inference_mode():
            vectors = self.encoder.encode(texts).cpu().numpy()
        return np.split(vectors, _sentences_by_text(texts).offsets[1:-1])

    def _best(
        self, vectors: Floats, sentences: Ragged, k: int, depth: int, allowed: Mask | None
    ) -> tuple[Ranking, Mask]:
        """The k best papers [q, k] among the `depth` nearest sentences to each sentence of the queries, and a
        mask [q] of final results: no other paper can be among them.
        """
        near = search_l2(self._sentences, vectors[sentences.values], depth, allowed)
        # One row per query, [q, maximum number of sentences, depth].
        shape = (len(sentences), int(sentences.lengths.max()), depth)
        papers, values = np.full(shape, -1, np.int64), np.full(shape, -np.inf, np.float32)
        query = np.repeat(np.arange(len(sentences)), sentences.lengths)
        number = np.arange(len(query)) - sentences.offsets[query]
        papers[query, number] = np.where(near.papers >= 0, self._papers[near.papers], -1)
        values[query, number] = near.scores
        # A paper that was not found is at most as near as the last sentence found for any query sentence.
        bound = values[:, :, -1].max(axis=1)
        flat = papers.reshape(len(sentences), -1)
        by_score = top_k(flat, values.reshape(len(sentences), -1), flat.shape[1])
        best = top_k(by_score.papers, by_score.scores, k, drop=_duplicates(by_score.papers))
        return best, best.scores[:, -1] > bound


def article_retriever(
    encoder: ArticleConfig, arithmetic: str = "auto", **options: Any
) -> ArticleRetriever | SentenceRetriever:
    """The retriever for an encoder's pooling, as described in conf/retriever/article.yaml.

    options: arguments of either class. Raises InputError if the encoder cannot be loaded, and for aspire
    pooling with an inexact index.
    """
    kind = SentenceRetriever if encoder.pooling == "aspire" else ArticleRetriever
    return kind(encoder, arithmetic, **options)


def _sentences_by_text(texts: Texts) -> Ragged:
    """The sentences of each text."""
    assert texts.owners is not None, "needs an encoder with aspire pooling"
    counts = np.bincount(texts.owners, minlength=len(texts))
    return Ragged(np.arange(len(texts.owners), dtype=np.int32), offsets_of(counts))


def _duplicates(papers: NDArray[np.int32]) -> Mask:
    """Mask [q, n] of papers that occur earlier in the same row."""
    order = np.argsort(papers, axis=1, kind="stable")
    in_order = np.take_along_axis(papers, order, axis=1)
    duplicate = np.zeros(papers.shape, np.bool_)
    np.put_along_axis(duplicate, order[:, 1:], in_order[:, 1:] == in_order[:, :-1], axis=1)
    return duplicate
