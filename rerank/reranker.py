"""A trained cross-encoder as what scores pairs, fast."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from datasets.errors import InputError
from datasets.store import Corpus
from rerank.backends import BACKENDS, Backend, open_backend
from rerank.batching import batches
from rerank.cross_encoder import CrossEncoder
from rerank.pairs import PairReader

PRECISIONS = ("auto", "float32", "bfloat16", "int8")


@dataclass(frozen=True)
class ScoringConfig:
    """How pairs are scored (conf/evaluate.yaml, scoring)."""

    backend: str = "auto"
    """torch | auto (torch)"""
    precision: str = "auto"
    """float32 | bfloat16 | auto: bfloat16 where the processor multiplies it faster"""
    tokens: int = 4096
    """of a batch, after padding"""
    compile: bool = False
    """let torch.compile make the net faster; it takes a minute to begin with"""

    def __post_init__(self) -> None:
        """Raises InputError for a value that is not one of those above."""
        if self.backend not in ("auto", *BACKENDS):
            raise InputError(f"scoring.backend={self.backend}: choose one of auto, {', '.join(BACKENDS)}")
        if self.precision not in PRECISIONS:
            raise InputError(f"scoring.precision={self.precision}: choose one of {', '.join(PRECISIONS)}")
        if type(self.tokens) is not int or self.tokens < 1:
            raise InputError(f"scoring.tokens={self.tokens}: must be a whole number from 1 on")


class Reranker:
    """Scores pairs of contexts and papers; higher is more relevant."""

    def __init__(
        self, model: CrossEncoder, scoring: ScoringConfig | None = None, name: str = "reranker"
    ) -> None:
        """model: is frozen, and may be changed to the precision that it computes in."""
        self.name, self.scoring = name, scoring or ScoringConfig()
        self.model = model.eval().requires_grad_(False)
        known = self._identity()
        self._backend: Backend = open_backend(self.model, self.scoring)
        known["arithmetic"] = self._backend.arithmetic
        self.fingerprint = hashlib.blake2b(
            json.dumps(known, sort_keys=True).encode(), digest_size=16
        ).hexdigest()
        """Of all that a score depends on beside the texts: weights, tokeniser, pairs, arithmetic."""
        self._reader: PairReader | None = None

    @classmethod
    def open(cls, path: str | Path, scoring: ScoringConfig | None = None) -> Reranker:
        """A folder that training saved; InputError if it is anything else."""
        return cls(CrossEncoder.load(path), scoring, Path(path).name)

    def score(
        self,
        corpus: Corpus,
        contexts: NDArray[np.integer],
        papers: NDArray[np.integer],
        advance: Callable[[int], None] | None = None,
    ) -> NDArray[np.float32]:
        """Rows [N] of contexts and of papers -> scores [N].

        advance: told how many pairs are done, batch by batch. Batches are made of pairs of about equal
        length, whatever their order: hand over many at a time.
        """
        if self._reader is None or self._reader.corpus is not corpus:
            self._reader = PairReader(corpus, self.model.tokenizer, self.model.config)
        pairs = self._reader.pairs(contexts, papers)
        out = np.empty(len(pairs), np.float32)
        for rows in batches(pairs.lengths, self.scoring.tokens):
            out[rows] = self._backend.scores(*pairs.padded(rows))
            if advance is not None:
                advance(len(rows))
        return out

    def _identity(self) -> dict[str, object]:
        from retrieval.encode import weights_hash

        return {
            "weights": weights_hash(self.model),
            "tokenizer": hashlib.blake2b(
                self.model.tokenizer.backend_tokenizer.to_str().encode()
            ).hexdigest(),
            "pairs": asdict(self.model.config),
            "head": self.model.head,
        }
