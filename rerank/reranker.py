"""A trained cross-encoder as what scores pairs, fast."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from datasets.corpus import Corpus
from datasets.errors import InputError
from rerank.backends import BACKENDS, Backend, batches, open_backend
from rerank.cross_encoder import CrossEncoder
from rerank.pairs import PairReader
from rerank.published import PUBLISHED, open_reference
from retrieval.vectors import weights_hash

PRECISIONS = ("auto", "float32", "bfloat16", "int8")


@dataclass(frozen=True)
class ScoringConfig:
    """How pairs are scored (conf/evaluate.yaml, scoring)."""

    backend: str = "auto"
    """torch | openvino (CPUs; the extra int8) | auto: openvino for int8, else torch"""
    precision: str = "auto"
    """float32 | bfloat16 | int8 | auto: bfloat16 where the processor multiplies it faster, else float32"""
    tokens: int = 4096
    """of a batch, after padding"""
    compile: bool = False
    """let torch.compile make the net faster; it takes a minute or two to begin with"""
    threads: int = 0
    """processor cores to work with; 0: as many as torch takes"""
    encoder: str | None = None
    """folder with configuration and tokeniser for a published checkpoint (rerank.published); null: SciBERT"""
    query_tokens: int | None = None
    """in place of those that a reranker was trained with (rerank.pairs); null: as it was trained"""

    def __post_init__(self) -> None:
        """Raises InputError for a value that is not one of those above."""
        if self.backend not in ("auto", *BACKENDS):
            raise InputError(f"scoring.backend={self.backend}: choose one of auto, {', '.join(BACKENDS)}")
        if self.precision not in PRECISIONS:
            raise InputError(f"scoring.precision={self.precision}: choose one of {', '.join(PRECISIONS)}")
        if type(self.tokens) is not int or self.tokens < 1:
            raise InputError(f"scoring.tokens={self.tokens}: must be a whole number from 1 on")
        if type(self.threads) is not int or self.threads < 0:
            raise InputError(f"scoring.threads={self.threads}: must be a whole number, 0 or more")
        if self.compile and (self.backend == "openvino" or self.precision == "int8"):
            raise InputError("scoring.compile=true: only with scoring.backend=torch, and not for int8")


class Reranker:
    """Scores pairs of contexts and papers; higher is more relevant."""

    def __init__(
        self, model: CrossEncoder, scoring: ScoringConfig | None = None, name: str = "reranker"
    ) -> None:
        """model: is frozen, and may be changed to the precision that it computes in.

        Raises InputError if it cannot be run as `scoring` says.
        """
        self.name, self.scoring = name, scoring or ScoringConfig()
        self.model = model.eval().requires_grad_(False)
        identity = _hash(
            {
                "weights": weights_hash(model),
                "tokenizer": model.tokenizer.backend_tokenizer.to_str(),
                "pairs": model.config.asdict(),
                "head": model.head,
            }
        )
        self._backend: Backend = open_backend(model, self.scoring, identity)
        self.fingerprint = _hash([identity, self._backend.arithmetic])
        """Of all that a score depends on beside the corpus: weights, tokeniser, pairs, arithmetic."""
        self._reader: PairReader | None = None

    @classmethod
    def open(cls, path: str | Path, scoring: ScoringConfig | None = None) -> Reranker:
        """A folder that training saved, or a published checkpoint, by its file or name (rerank.published).

        Raises InputError if it is anything else.
        """
        if Path(path).is_file() or (str(path) == PUBLISHED and not Path(path).exists()):
            encoder = None if scoring is None else scoring.encoder
            return cls(open_reference(path, encoder), scoring, Path(path).name)
        model = CrossEncoder.load(path)
        if scoring is not None and scoring.query_tokens is not None:
            model.config = replace(model.config, query_tokens=scoring.query_tokens)
        return cls(model, scoring, Path(path).name)

    def prepare(self, corpus: Corpus) -> PairReader:
        """Get ready for pairs of a corpus, as `score` does; for int8 it takes half a minute."""
        if self._reader is None or self._reader.corpus is not corpus:
            self._reader = PairReader(corpus, self.model.tokenizer, self.model.config)
            self._backend.prepare(self._reader)
        return self._reader

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
        pairs = self.prepare(corpus).pairs(contexts, papers)
        out = np.empty(len(pairs), np.float32)
        for rows, scores in self._backend.scores(pairs, batches(pairs.lengths, self.scoring.tokens)):
            out[rows] = scores
            if advance is not None:
                advance(len(rows))
        return out


def _hash(value: object) -> str:
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=16).hexdigest()
