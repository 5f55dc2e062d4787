"""Late interaction (ColBERT) and SPLADE, with models of sentence-transformers, which also reads PyLate's.

Khattab and Zaharia 2020, ColBERT: a text has a vector per token, and a paper's score is the sum, over the
tokens of the query, of their largest inner product with a token of the paper (MaxSim). Formal et al. 2021,
SPLADE: a text has weights of the words of a vocabulary, and a paper's score is their inner product.

Both search exactly, in memory: for up to some hundred thousand papers.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scipy import sparse

from citerec.base.errors import InputError, missing_extra
from citerec.datasets.columns import offsets_of
from citerec.datasets.corpus import Corpus
from citerec.datasets.records import OTHER_MARKER, TARGET_MARKER
from citerec.retrieval.arrays import Floats, Mask
from citerec.retrieval.base import Ranking, Retriever, empty_rankings, top_k
from citerec.retrieval.encoders.nets import weights_hash
from citerec.retrieval.queries import Queries
from citerec.retrieval.settings import check_fields

BLOCK = 1 << 16
"""Tokens of papers compared at a time."""
QUERIES = 64
"""Queries of SPLADE ranked at a time."""
PAPERS = 1 << 12
"""Papers encoded at a time."""


class _Encoded(Retriever):
    """What both share: a model, and the texts that it reads."""

    kind: str
    """class of sentence_transformers"""

    def __init__(
        self,
        model: str,
        query: Sequence[str] = ("context", "title"),
        batch: int = 32,
        device: str | None = None,
    ) -> None:
        """model: folder, or id on huggingface.co. query: fields of a query, in order. device: None takes a
        GPU if there is one. Raises InputError if the model cannot be read.
        """
        super().__init__()
        self.query, self.batch = check_fields(query), batch
        try:
            import sentence_transformers
        except ImportError:
            what = f"retriever={self.name}"
            raise InputError(missing_extra(what, "sentence-transformers")) from None
        make = getattr(sentence_transformers, self.kind)
        try:
            self._model = make(model, device=device, model_kwargs={"use_safetensors": True})
        except (OSError, ValueError, KeyError, TypeError) as error:
            reason = " ".join(str(error).split())
            raise InputError(f"retriever.model={model}: not a {self.kind}: {reason}") from None
        self._model_hash = weights_hash(self._model)

    @property
    def reads_contexts(self) -> bool:
        return False

    def settings(self) -> dict[str, Any]:
        return {"weights": self._model_hash, "prompts": self._model.prompts}

    def query_settings(self) -> dict[str, Any]:
        return {"query": list(self.query)}

    def _query_texts(self, queries: Queries) -> list[str]:
        fields = [queries.texts(name) for name in self.query]
        texts = map(_joined, zip(*fields, strict=True))
        return [text.replace(TARGET_MARKER, "").replace(OTHER_MARKER, "") for text in texts]

    def _encode_papers(self, corpus: Corpus) -> Iterator[Any]:
        """What the model makes of the candidates, some thousand at a time."""
        rows = np.flatnonzero(corpus.is_candidate)
        for part in np.array_split(rows, max(1, -(-len(rows) // PAPERS))):
            texts = [_joined((corpus.titles[row], corpus.abstracts[row])) for row in part.tolist()]
            yield self._encode(self._model.encode_document, texts)

    @abstractmethod
    def _encode(self, encode: Any, texts: list[str]) -> Any:
        """What the model makes of texts, by its function for papers or queries."""


class LateInteraction(_Encoded):
    """Scores papers by MaxSim of the vectors of tokens, kept in half precision."""

    name = "late_interaction"
    kind = "MultiVectorEncoder"
    arrays = ("papers", "offsets", "vectors")

    def _encode(self, encode: Any, texts: list[str]) -> list[Floats]:
        return list(encode(texts, batch_size=self.batch, show_progress_bar=False, convert_to_numpy=True))

    def _index(self, corpus: Corpus) -> None:
        found = [one.astype(np.float16) for block in self._encode_papers(corpus) for one in block]
        lengths = np.array([len(one) for one in found])
        self._papers = np.flatnonzero(corpus.is_candidate)[lengths > 0].astype(np.int32)
        self._offsets = offsets_of(lengths[lengths > 0])
        self._vectors = np.concatenate(found) if found else np.empty((0, 1), np.float16)

    def _search(self, queries: Queries, k: int, allowed: Mask | None) -> Ranking:
        papers, scores = empty_rankings(len(queries), k)
        drop = None if allowed is None else ~allowed[self._papers][None]
        for row, vectors in enumerate(self._encode(self._model.encode_query, self._query_texts(queries))):
            best = top_k(self._papers[None], self._max_sim(vectors)[None], k, drop)
            papers[row], scores[row] = best.papers[0], best.scores[0]
        return Ranking(papers, scores)

    def _max_sim(self, query: Floats) -> Floats:
        """Scores of all papers for the tokens of a query [t, D]."""
        scores = np.empty(len(self._papers), np.float32)
        start = 0
        while start < len(scores):
            first = self._offsets[start]
            end = max(start + 1, int(np.searchsorted(self._offsets, first + BLOCK, side="right")) - 1)
            tokens = self._vectors[first : self._offsets[end]].astype(np.float32)
            best = np.maximum.reduceat(tokens @ query.T, self._offsets[start:end] - first)
            scores[start:end] = best.sum(axis=1)
            start = end
        return scores


class Splade(_Encoded):
    """Scores papers by the inner product of the weights of words; papers that share none are not found."""

    name = "splade"
    kind = "SparseEncoder"
    arrays = ("papers", "offsets", "terms", "weights", "size")

    def _encode(self, encode: Any, texts: list[str]) -> sparse.csr_array:
        found = encode(texts, batch_size=self.batch, show_progress_bar=False, save_to_cpu=True).coalesce()
        return sparse.csr_array((found.values().float().numpy(), found.indices().numpy()), shape=found.shape)

    def _index(self, corpus: Corpus) -> None:
        found = sparse.csr_array(sparse.vstack(list(self._encode_papers(corpus))))
        self._papers = np.flatnonzero(corpus.is_candidate).astype(np.int32)
        self._offsets, self._terms, self._weights = found.indptr, found.indices, found.data
        self._size = np.array(found.shape)

    def _search(self, queries: Queries, k: int, allowed: Mask | None) -> Ranking:
        stored = self._weights, self._terms, self._offsets
        papers = sparse.csr_array(stored, shape=tuple(self._size.tolist()))
        asked = self._encode(self._model.encode_query, self._query_texts(queries))
        parts = []
        for start in range(0, len(queries), QUERIES):
            scores = (asked[start : start + QUERIES] @ papers.T).toarray()
            drop = scores <= 0
            if allowed is not None:
                drop |= ~allowed[self._papers]
            parts.append(top_k(np.broadcast_to(self._papers, scores.shape), scores, k, drop))
        return Ranking.concat(parts)


def _joined(fields: Sequence[str]) -> str:
    return ". ".join(field for field in fields if field)
