"""A trained cross-encoder that scores pairs, fast."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from datasets.corpus import Corpus
from rerank.backends import batches, open_backend, sample_pairs
from rerank.cross_encoder import SAVED, CrossEncoder
from rerank.fastest import fastest
from rerank.pairs import PairReader, TokenPairs
from rerank.published import PUBLISHED, open_reference
from rerank.settings import ScoringSettings
from retrieval.nets import weights_hash
from retrieval.queries import Queries
from training.checkpoint import find_saved


class Reranker:
    """Scores pairs of contexts and papers; higher is more relevant."""

    def __init__(
        self, model: CrossEncoder, scoring: ScoringSettings | None = None, name: str = "reranker"
    ) -> None:
        """model: is frozen, and may be converted to the precision that it computes in.

        InputError if it cannot be run as `scoring` says.
        """
        self.name = name
        self.model = model.eval().requires_grad_(False)
        identity = _hash(
            {
                "weights": weights_hash(model),
                "tokenizer": model.tokenizer.backend_tokenizer.to_str(),
                "pairs": model.config.plain(),
                "head": model.head,
            }
        )
        self.scoring = fastest(model, scoring or ScoringSettings(), identity)
        self.backend = open_backend(model, self.scoring, identity)
        self.fingerprint = _hash([identity, self.backend.arithmetic])
        """Of all that a score depends on beside the corpus: weights, tokeniser, pairs, arithmetic."""
        self._reader: PairReader | None = None

    @classmethod
    def open(cls, path: str | Path, scoring: ScoringSettings | None = None) -> Reranker:
        """What training saved, by its folder, the output folder of the training or its id on the hub, or the
        authors' own, by its file or name (rerank.published).

        InputError if it is anything else.
        """
        scoring, path = scoring or ScoringSettings(), find_saved(path, SAVED)
        if path.is_file() or (str(path) == PUBLISHED and not path.exists()):
            return cls(open_reference(path, scoring.encoder), scoring, path.name)
        model = CrossEncoder.from_pretrained(path)
        if scoring.query_tokens is not None:
            model.config = replace(model.config, query_tokens=scoring.query_tokens)
        return cls(model, scoring, path.name)

    def prepare(self, corpus: Corpus) -> PairReader:
        """Get ready for pairs of a corpus, as `score` does; for int8 it takes half a minute."""
        if self._reader is None or self._reader.corpus is not corpus:
            self._reader = PairReader(corpus, self.model.tokenizer, self.model.config)
            # A library has no contexts and changes often: the first calibrates for all.
            about = corpus.fingerprint if corpus.splits else "library"
            self.backend.prepare(partial(sample_pairs, self._reader), about)
        return self._reader

    def score(
        self,
        corpus: Corpus,
        contexts: NDArray[np.integer],
        papers: NDArray[np.integer],
        advance: Callable[[int], None] | None = None,
    ) -> NDArray[np.float32]:
        """Rows [N] of contexts and of papers -> scores [N].

        advance: is told how many more pairs are done. Batches are made of pairs of about equal length,
        whatever their order: pass many at a time.
        """
        return self._scores(self.prepare(corpus).pairs(contexts, papers), advance)

    def score_candidates(self, queries: Queries, papers: NDArray[np.int32]) -> NDArray[np.float32]:
        """Scores of papers, rows [Q, K], for the queries -> [Q, K]; -inf where there is none (-1)."""
        scores = np.full(papers.shape, -np.inf, np.float32)
        query, place = np.nonzero(papers >= 0)
        reader = self.prepare(queries.corpus).asking(queries)
        scores[query, place] = self._scores(reader.pairs(query, papers[query, place]))
        return scores

    def _scores(self, pairs: TokenPairs, advance: Callable[[int], None] | None = None) -> NDArray[np.float32]:
        out = np.empty(len(pairs), np.float32)
        tokens, streams = self.scoring.tokens, self.backend.streams
        if streams > 1:  # of few pairs, so many batches that none is idle
            tokens = min(tokens, -(-int(pairs.lengths.sum()) // (2 * streams)))
        for rows, scores in self.backend.scores(pairs, batches(pairs.lengths, tokens)):
            out[rows] = scores
            if advance is not None:
                advance(len(rows))
        return out


def _hash(value: object) -> str:
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=16).hexdigest()
