"""Retrievers by an article encoder (retrieval.encoder): one vector per paper, or one per sentence (Aspire).

Mysore et al. 2022, Multi-Vector Models with Textual Guidance for Fine-Grained Scientific Document Similarity:
papers are compared by the smallest Euclidean distance between two of their sentences (tsAspire).
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from datasets.columns import Ragged, offsets_of
from datasets.corpus import Corpus
from datasets.errors import InputError
from retrieval.arrays import Floats, Mask, Rows
from retrieval.article_text import ArticleReader, Texts
from retrieval.base import Ranking, Retriever, empty_rankings, top_k
from retrieval.dense import DenseRetriever, ray_shards
from retrieval.embeddings import SHARD, Advance, EmbeddingJob, Embeddings, Vectors, load_or_encode
from retrieval.encoder import ArticleEncoder
from retrieval.index import build_l2_index, load_index, search_l2
from retrieval.nets import as_numpy, precision
from retrieval.queries import Queries
from retrieval.settings import ArticleConfig, IndexConfig, ProfileConfig
from retrieval.vectors import QueryCache, VectorTable, encode_queries, to_unit_length

PAIRS = 1 << 22
"""Pairs of sentences that are ranked at a time."""


def frozen_encoder(encoder: ArticleConfig | ArticleEncoder, arithmetic: str) -> ArticleEncoder:
    """An encoder for encoding only: the one given, or one that settings name.

    Raises InputError if it cannot be had.
    """
    precision(arithmetic)  # before a model is loaded
    loaded = ArticleEncoder.pretrained(encoder) if isinstance(encoder, ArticleConfig) else encoder
    return loaded.frozen(arithmetic)


class ArticleRetriever(DenseRetriever):
    """Nearest papers to a context by the cosine of an article encoder's vectors, or by their distance."""

    name = "article"
    gives_vectors = True

    def __init__(
        self,
        encoder: ArticleConfig | ArticleEncoder,
        arithmetic: str = "auto",
        index: IndexConfig | None = None,
        profile: ProfileConfig | None = None,
        embeddings_dir: str | Path | None = None,
        shard: int = SHARD,
    ) -> None:
        """arithmetic: auto, float32 or bfloat16. embeddings_dir: where the papers' vectors are, or are to be
        kept, `shard` of them per file (retrieval.embeddings). InputError if the encoder cannot be had.
        """
        super().__init__(index, profile)
        self.embeddings_dir, self.shard = embeddings_dir, shard
        self.encoder = frozen_encoder(encoder, arithmetic)
        self.similarity = self.encoder.config.similarity
        if self.similarity == "l2" and (self.index_config.kind != "exact" or self.profile.weight != 0):
            raise InputError("encoder.similarity=l2 needs exact search: set index=exact profile=none")

    def fingerprint(self) -> dict[str, Any]:
        return self.encoder.fingerprint()

    def prepare(self, corpus: Corpus) -> None:
        self._reader = ArticleReader(corpus, self.encoder.tokenizer, self.encoder.config)

    def encode_papers(self, rows: Rows, advance: Advance | None = None) -> Floats:
        """advance: is told what shares of the work are done."""
        vectors = self._raw(rows, advance)
        return to_unit_length(vectors) if self._normalised else vectors

    def encode_queries(self, queries: Queries | Rows) -> Floats:
        read, dim = self._reader, self.encoder.dim
        return encode_queries(as_numpy(self.encoder.encode), read, queries, dim, normalise=self._normalised)

    @property
    def _normalised(self) -> bool:
        return self.similarity == "cosine"

    def embed(self, corpus: Corpus, rows: Rows) -> Embeddings:
        """Vectors of papers, read or made; the retriever is prepared for the corpus."""
        spread = partial(ray_shards, self, rows) if self.encoding == "ray" else None
        about, dim = self.encoder.paper_fingerprint(), self.encoder.dim
        job = EmbeddingJob(
            corpus, rows, about, dim, lambda *work: (self.encode_papers(*work), None), spread=spread
        )
        return load_or_encode(job, self.embeddings_dir, self.shard)

    def paper_vectors(self, corpus: Corpus, rows: Rows) -> VectorTable:
        found = self.embed(corpus, rows)
        self.reused = found.encoded < len(rows)
        return found.vectors

    def raw_vectors(self, corpus: Corpus, rows: Rows) -> VectorTable:
        self.prepare(corpus)
        about = {**self.encoder.paper_fingerprint(), "normalisation": "none"}
        job = EmbeddingJob(
            corpus, rows, about, self.encoder.dim, lambda *work: (self._raw(*work), None), dtype="float32"
        )
        return load_or_encode(job).vectors

    def _raw(self, rows: Rows, advance: Advance | None) -> Floats:
        with torch.inference_mode():
            return self.encoder.encode(self._reader.papers(rows), advance).cpu().numpy()


class SentenceRetriever(Retriever):
    """Scores a paper by minus the smallest distance of one of its sentences to one of the query's.

    The k best papers are exact: ever more sentences are fetched until no other paper can be among them.
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
        """As for ArticleRetriever; the encoder has aspire pooling. Raises InputError for an inexact index."""
        super().__init__()
        self.embeddings_dir, self.shard = embeddings_dir, shard
        self._cache: QueryCache | None = None
        self.index_config = index or IndexConfig()
        if self.index_config.kind != "exact":
            raise InputError("sentences (encoder.pooling=aspire) are searched exactly: set index=exact")
        self.encoder = frozen_encoder(encoder, arithmetic)

    def settings(self) -> dict[str, Any]:
        return self.encoder.fingerprint()

    @property
    def index_bytes(self) -> int:
        return self._sentences.nbytes + int(self._papers.nbytes)

    def remember_queries(self) -> None:
        self._cache = QueryCache()

    def prepare(self, corpus: Corpus) -> None:
        """Get ready to read queries and papers of a corpus."""
        self._cache = None
        self._reader = ArticleReader(corpus, self.encoder.tokenizer, self.encoder.config)

    def embed(self, corpus: Corpus, rows: Rows) -> Embeddings:
        """Sentence vectors of papers, read or made; the retriever is prepared for the corpus."""

        def encoded(rows: Rows, advance: Advance) -> Vectors:
            texts = self._reader.papers(rows)
            with torch.inference_mode():
                vectors = self.encoder.encode(texts, advance).cpu().numpy()
            return vectors, _by_text(texts).lengths.astype(np.int32)

        about = self.encoder.paper_fingerprint()
        job = EmbeddingJob(corpus, rows, about, self.encoder.dim, encoded, sentences=True)
        return load_or_encode(job, self.embeddings_dir, self.shard)

    def _index(self, corpus: Corpus) -> None:
        self.prepare(corpus)
        rows = np.flatnonzero(corpus.is_candidate)
        found = self.embed(corpus, rows)
        self.reused = found.encoded < len(rows)
        self._papers = np.repeat(rows.astype(np.int32), np.diff(found.offsets))
        self._sentences = build_l2_index(self.index_config, found.vectors)

    def _save(self, folder: Path) -> None:
        super()._save(folder)
        self._sentences.save(folder)

    def _load(self, folder: Path, corpus: Corpus) -> None:
        super()._load(folder, corpus)
        self.prepare(corpus)
        self._sentences = load_index(self.index_config, folder)

    def _search(self, queries: Queries, k: int, allowed: Mask | None) -> Ranking:
        may = None if allowed is None else allowed[self._papers]
        papers, scores = empty_rankings(len(queries), k)
        of = self._queries(queries) if self._cache is None else self._cache.get(queries, self._queries)
        vectors = np.concatenate([*of, np.empty((0, self.encoder.dim), np.float32)])
        sentences = Ragged(
            np.arange(len(vectors), dtype=np.int32), offsets_of(np.array([len(part) for part in of]))
        )
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

    def _queries(self, queries: Queries) -> list[Floats]:
        """The sentences of each query [s, D]."""
        texts = self._reader.queries(queries)
        with torch.inference_mode():
            vectors = self.encoder.encode(texts).cpu().numpy()
        return np.split(vectors, _by_text(texts).offsets[1:-1])

    def _best(
        self, vectors: Floats, sentences: Ragged, k: int, depth: int, may: Mask | None
    ) -> tuple[Ranking, Mask]:
        """The k best papers by the `depth` nearest sentences to each of the queries' [q, k], and whether no
        other paper can be among them [q].
        """
        asked = vectors[sentences.values]
        near = search_l2(self._sentences, asked, depth, may)
        # All sentences of a query side by side, [q, the most sentences of one, depth].
        shape = (len(sentences), int(sentences.lengths.max()), depth)
        papers, values = np.full(shape, -1, np.int64), np.full(shape, -np.inf, np.float32)
        query = np.repeat(np.arange(len(sentences)), sentences.lengths)
        place = np.arange(len(query)) - sentences.offsets[query]
        papers[query, place] = np.where(near.papers >= 0, self._papers[near.papers], -1)
        values[query, place] = near.scores
        # A paper that was not found is at most as near as the last sentence found for any of the query's.
        bound = values[:, :, -1].max(axis=1)
        flat = papers.reshape(len(sentences), -1)
        by_score = top_k(flat, values.reshape(len(sentences), -1), flat.shape[1])
        best = top_k(by_score.papers, by_score.scores, k, drop=_repeated(by_score.papers))
        return best, best.scores[:, -1] > bound


def article_retriever(
    encoder: ArticleConfig, arithmetic: str = "auto", profile: ProfileConfig | None = None, **options: Any
) -> ArticleRetriever | SentenceRetriever:
    """The retriever for an encoder's pooling, as conf/retriever/article.yaml describes it.

    options: of either. Raises InputError if the encoder cannot be had, and for aspire pooling with an index
    that is not exact or with context profiles, which are for papers of one vector.
    """
    if encoder.pooling != "aspire":
        return ArticleRetriever(encoder, arithmetic, profile=profile, **options)
    if profile is not None and profile.weight != 0:
        raise InputError("profile: none for sentences (encoder.pooling=aspire); set profile=none")
    return SentenceRetriever(encoder, arithmetic, **options)


def _by_text(texts: Texts) -> Ragged:
    """The sentences of each text."""
    assert texts.owners is not None, "an encoder without aspire pooling"
    counts = np.bincount(texts.owners, minlength=len(texts))
    return Ragged(np.arange(len(texts.owners), dtype=np.int32), offsets_of(counts))


def _repeated(papers: NDArray[np.int32]) -> Mask:
    """Places [q, n] of papers that stand further left in the same row."""
    order = np.argsort(papers, axis=1, kind="stable")
    in_order = np.take_along_axis(papers, order, axis=1)
    again = np.zeros(papers.shape, np.bool_)
    np.put_along_axis(again, order[:, 1:], in_order[:, 1:] == in_order[:, :-1], axis=1)
    return again
