"""Retrievers with an article encoder: one vector per paper, or one per sentence (Aspire)."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from citerec.base.checksums import check_checksums, write_checksums
from citerec.base.errors import InputError
from citerec.base.files import atomic_write, cache_folder, disk_errors
from citerec.base.progress import count_progress
from citerec.datasets.columns import Ragged, offsets_of
from citerec.datasets.corpus import Corpus
from citerec.datasets.tokenize import sentence_starts
from citerec.retrieval.arrays import Floats, Mask, Rows, to_unit_length
from citerec.retrieval.base import Ranking, Retriever, empty_rankings, top_k
from citerec.retrieval.dense import DenseRetriever
from citerec.retrieval.encoders.article_text import ArticleReader
from citerec.retrieval.encoders.encoder import Advance, ArticleEncoder
from citerec.retrieval.encoders.nets import as_numpy
from citerec.retrieval.queries import Queries
from citerec.retrieval.settings import ArticleConfig, IndexConfig
from citerec.retrieval.vectors import LoggedProgress, VectorTable, as_dtype, encode_queries, first_not_finite

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
        self._prepare(corpus)
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

    def _load(self, folder: Path, corpus: Corpus) -> None:
        super()._load(folder, corpus)
        self._prepare(corpus)

    def _sentences(self, texts: Ragged) -> tuple[Floats, NDArray[np.int64]]:
        """The vectors of all sentences of B texts [S, D], and how many each text has [B]."""
        ids, numbers = texts.values & ((1 << SENTENCE) - 1), texts.values >> SENTENCE
        text = np.repeat(np.arange(len(texts)), texts.lengths)
        # Titles are context for the sentences of a text, and no sentences themselves (Mysore et al. 2022).
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


class ArticleRetriever(DenseRetriever):
    """Finds the nearest papers by the cosine or distance of an article encoder's vectors."""

    name = "article"

    def __init__(
        self,
        encoder: ArticleConfig | ArticleEncoder,
        arithmetic: str = "auto",
        index: IndexConfig | None = None,
    ) -> None:
        """arithmetic: auto, float32 or bfloat16. Raises InputError if the encoder cannot be loaded."""
        super().__init__(index)
        self.encoder = ArticleEncoder.frozen(encoder, arithmetic)
        self.similarity = self.encoder.config.similarity
        if self.similarity == "l2" and self.index_config.kind != "exact":
            raise InputError("encoder.similarity=l2 needs exact search: set index.kind=exact")

    def fingerprint(self) -> dict[str, Any]:
        return self.encoder.fingerprint()

    def prepare(self, corpus: Corpus) -> None:
        self._reader = ArticleReader(corpus, self.encoder.tokenizer, self.encoder.config)

    def encode_papers(self, rows: Rows, advance: Advance | None = None) -> Floats:
        """advance: progress callback."""
        with torch.inference_mode():
            vectors = self.encoder.encode(self._reader.papers(rows), advance).cpu().numpy()
        if self.similarity == "l2":
            return np.column_stack([vectors, np.square(vectors).sum(axis=1) / -2])
        return to_unit_length(vectors) if self.similarity == "cosine" else vectors

    def encode_queries(self, queries: Queries | Rows) -> Floats:
        forward, dim, unit = as_numpy(self.encoder.encode), self.encoder.dim, self.similarity == "cosine"
        vectors = encode_queries(forward, self._reader, queries, dim, normalise=unit)
        if self.similarity == "l2":  # queries without a word stay zeros
            return np.column_stack([vectors, vectors.any(axis=1).astype(np.float32)])
        return vectors

    def paper_vectors(self, corpus: Corpus, rows: Rows) -> VectorTable:
        of_queries = ("query", "markers", "query_prompt")
        model = {key: value for key, value in self.encoder.fingerprint().items() if key not in of_queries}
        dtype = "float32" if self.similarity == "l2" else "float16"  # squares need the digits
        vectors, encoded = load_or_encode(corpus, rows, model, self.encode_papers, dtype)
        self.reused = encoded < len(rows)
        return vectors


def article_retriever(encoder: ArticleConfig, **options: Any) -> ArticleRetriever | SentenceRetriever:
    """The retriever for an encoder's pooling; options: arguments of either class."""
    kind = SentenceRetriever if encoder.pooling == "aspire" else ArticleRetriever
    return kind(encoder, **options)


log = logging.getLogger(__name__)

SHARD = 4096
"""Papers per shard, which are encoded in order of length. With arXiv abstracts of at most 512 subwords, 2.9 %
of the tokens are padding (4.7 % with 1,024 papers, 2.1 % with 8,192), but an interruption loses a shard."""

Encode = Callable[[Rows, Advance], Floats]
"""Encodes papers, rows [n], as vectors [n, D]."""


def load_or_encode(
    corpus: Corpus, rows: Rows, model: Mapping[str, Any], encode: Encode, dtype: str = "float16"
) -> tuple[VectorTable, int]:
    """Return the vectors of papers, rows [n], and how many had to be encoded.

    model: everything the vectors depend on besides the texts, as plain values: a hash of the weights,
    settings. The vectors of a shard or less are not kept.
    Raises InputError for vectors that are not finite, a full disk, and kept vectors that are damaged.
    """
    if len(rows) <= SHARD:
        return VectorTable([_to_stored(encode(rows, lambda share: None), dtype)]), len(rows)
    content = json.dumps([dict(model), corpus.fingerprint, SHARD, dtype], sort_keys=True)
    digest = hashlib.blake2b(content.encode(), digest_size=12)
    digest.update(np.ascontiguousarray(rows, np.int64).data)
    folder = cache_folder() / "vectors" / digest.hexdigest()
    shards = {folder / f"{start:09}.npy": rows[start : start + SHARD] for start in range(0, len(rows), SHARD)}
    missing = {path: part for path, part in shards.items() if not path.is_file()}
    encoded = sum(map(len, missing.values()))
    with disk_errors(folder, "the vectors of papers", "CITATION_CACHE"):
        if missing:
            folder.mkdir(parents=True, exist_ok=True)
            write_checksums(folder, keep=True)  # also forgets those of files that were removed
            with count_progress("encoding papers", len(rows)) as bar:
                progress = LoggedProgress("papers", len(rows), len(rows) - encoded, bar)
                for path, vectors in _encode_each(missing, encode, progress):
                    _write(path, _to_stored(vectors, dtype))
            write_checksums(folder, keep=True)
            log.info(
                f"encoded {encoded:,} papers in {progress.seconds:,.1f} s, {progress.rate:,.1f} papers/s"
            )
        check_checksums(folder, "remove this file and run again to encode its papers")
    # Copy-on-write, because torch warns about read-only arrays.
    return VectorTable([np.asarray(np.load(path, mmap_mode="c")) for path in shards]), encoded


def _encode_each(
    shards: Mapping[Path, Rows], encode: Encode, progress: LoggedProgress
) -> Iterable[tuple[Path, Floats]]:
    """Yield the vectors of each shard."""
    for path, rows in shards.items():
        before = progress.done

        def advance(share: float, papers: int = len(rows)) -> None:
            progress.advance(share * papers)

        yield path, encode(rows, advance)
        progress.advance(before + len(rows) - progress.done)  # papers without a text, and rounding errors


def _to_stored(vectors: Floats, dtype: str) -> NDArray[np.floating]:
    """Convert vectors [n, D] to the stored precision; InputError if one is not finite in it."""
    stored = as_dtype(vectors, dtype)
    if (bad := first_not_finite(stored)) is not None:
        raise InputError(
            f"papers: vector {bad} is not finite as {dtype}; the encoder is damaged or its training diverged"
        )
    return stored


def _write(path: Path, array: NDArray[Any]) -> None:
    """Write a file atomically, even in case of a power failure."""
    with atomic_write(path) as part, part.open("wb") as stream:
        np.save(stream, array)
        stream.flush()
        os.fsync(stream.fileno())
