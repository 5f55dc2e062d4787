"""Helpers for tests of retrievers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

from citerec.datasets.corpus import Corpus
from citerec.retrieval.arrays import Counts
from citerec.retrieval.base import Ranking, Retriever
from citerec.retrieval.run import Run

DEPTH = 20


def assert_same(ranking: Ranking, expected: Ranking) -> None:
    """Assert identical papers and scores, bit for bit."""
    np.testing.assert_array_equal(ranking.papers, expected.papers)
    np.testing.assert_array_equal(ranking.scores, expected.scores)


def write_runs(
    retriever: Retriever, corpus: Corpus, folder: Path, splits: Sequence[str] = ("val", "test")
) -> list[Path]:
    """Write runs of an indexed retriever, one per split, with queries in reverse order."""
    files = []
    for split in splits:
        contexts = corpus.split(split).contexts[::-1]
        ids = [corpus.context_ids[row] for row in contexts.tolist()]
        files.append(folder / f"{retriever.name}-{split}.trec")
        Run(ids, corpus.paper_ids, retriever.search(contexts, DEPTH), retriever.name).write(files[-1])
    return files


def matrix(counts: Counts) -> csr_matrix:
    return csr_matrix((counts.data, counts.indices, counts.indptr), counts.shape)


def counts_of(dense: np.ndarray) -> Counts:
    sparse = csr_matrix(dense.astype(np.float32))
    return Counts(sparse.indptr.astype(np.int64), sparse.indices, sparse.data, sparse.shape)


def plain_bm25(
    documents: list[list[str]], query: Mapping[str, float] | list[str], k1: float, b: float
) -> np.ndarray:
    """Lucene's formula, word by word. query: words, or their weights."""
    mean = sum(map(len, documents)) / len(documents)
    scores = np.zeros(len(documents))
    for word in query:
        n = sum(word in document for document in documents)
        weight = query[word] if isinstance(query, Mapping) else 1
        idf = weight * math.log(1 + (len(documents) - n + 0.5) / (n + 0.5))
        for i, document in enumerate(documents):
            tf = document.count(word)
            scores[i] += idf * tf / (tf + k1 * (1 - b + b * len(document) / mean))
    return scores
