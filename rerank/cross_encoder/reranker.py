"""Scores pairs with a trained cross-encoder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from citerec.base.files import digest_json
from citerec.datasets.corpus import Corpus
from citerec.rerank.cross_encoder.backends import batches, open_backend
from citerec.rerank.cross_encoder.network import CrossEncoder
from citerec.rerank.cross_encoder.pairs import PairReader, TokenPairs, pair_reader
from citerec.rerank.cross_encoder.published import PUBLISHED, load_reference
from citerec.rerank.cross_encoder.sentence_transformers import open_cross_encoder
from citerec.rerank.settings import RerankerSettings, ScoringSettings
from citerec.retrieval.base import Retriever
from citerec.retrieval.encoders.nets import weights_hash
from citerec.retrieval.queries import Queries
from citerec.retrieval.settings import ArticleConfig
from citerec.training.hub import find_saved

if TYPE_CHECKING:
    from citerec.training.loop import TrainingRun


class Reranker:
    """Scores pairs of contexts and papers; higher is more relevant."""

    def __init__(
        self, model: CrossEncoder, scoring: ScoringSettings | None = None, name: str = "reranker"
    ) -> None:
        """model: frozen in place, and possibly converted to the precision that it computes in.

        Raises InputError if `scoring` is not supported here.
        """
        self.name = name
        self.model = model.eval().requires_grad_(False)
        identity = digest_json(
            {
                "weights": weights_hash(model),
                "tokenizer": model.tokenizer.backend_tokenizer.to_str(),
                "pairs": asdict(model.config),
                "head": model.head,
            },
            16,
        )
        self.scoring = scoring or ScoringSettings()
        self.backend = open_backend(model, self.scoring, identity)
        self.fingerprint = digest_json([identity, self.backend.arithmetic], 16)
        """hash of all that scores depend on besides the corpus: weights, tokeniser, pairs, arithmetic"""
        self._reader: PairReader | None = None

    folder = CrossEncoder.folder
    """name of the model's folder in the output of its training"""

    @classmethod
    def train(
        cls,
        corpus: Corpus,
        settings: RerankerSettings | None = None,
        run: TrainingRun | None = None,
        *,
        pretrained: ArticleConfig,
        retriever: Retriever,
        index_dir: str | Path | None = None,
        candidates_dir: str | Path | None = None,
        **changes: Any,
    ) -> Reranker:
        """Fine-tune a transformer on lists of prefetched papers (Gu et al. 2022, section 4.2).

        pretrained: settings of the transformer. retriever: finds the candidates. index_dir, candidates_dir:
        folders of its index and of its candidates, which several runs may share. changes: fields of the
        settings, such as epochs=2.
        """
        from citerec.rerank.cross_encoder.data import CANDIDATES, Prefetcher  # Lightning
        from citerec.rerank.cross_encoder.train import train_reranker
        from citerec.training.loop import TrainingRun

        settings, run = replace(settings or RerankerSettings(), **changes), run or TrainingRun()
        settings.batch.check_divisible(run.trainer.processes)
        run.start(corpus, settings, {"encoder": asdict(pretrained)})
        model = CrossEncoder.pretrained(
            pretrained, settings.pairs, settings.head, run.seed, settings.new_tokens
        )
        folder = Path(candidates_dir or run.path / CANDIDATES)
        prefetcher = Prefetcher(retriever, corpus, folder, index_dir)
        return cls.open(train_reranker(model, pretrained, corpus, prefetcher, settings, run))

    @classmethod
    def open(cls, path: str | Path, scoring: ScoringSettings | None = None) -> Reranker:
        """Open a trained reranker, the authors' own (rerank.cross_encoder.published), or a cross-encoder of
        sentence-transformers.

        path: folder of a reranker, output folder of its training, hub id, or file or name of the published
        checkpoint. Raises InputError for anything else.
        """
        scoring, path = scoring or ScoringSettings(), find_saved(path, CrossEncoder.folder)
        if path.is_file() or (str(path) == PUBLISHED and not path.exists()):
            return cls(load_reference(path, scoring.encoder), scoring, path.name)
        return cls(open_cross_encoder(path), scoring, path.name)

    def save(self, folder: str | Path) -> Path:
        """Save the cross-encoder as a folder."""
        return self.model.save(folder)

    def prepare(self, corpus: Corpus) -> PairReader:
        """Prepare for pairs of a corpus; `score` calls this."""
        if self._reader is None or self._reader.corpus is not corpus:
            self._reader = pair_reader(corpus, self.model.tokenizer, self.model.config)
        return self._reader

    def score(
        self,
        corpus: Corpus,
        contexts: NDArray[np.integer],
        papers: NDArray[np.integer],
        advance: Callable[[int], None] | None = None,
    ) -> NDArray[np.float32]:
        """Score pairs: rows [N] of contexts and papers -> [N].

        advance: called with the number of pairs in each finished batch. Pairs are batched by length, whatever
        their order, so pass many at a time.
        """
        return self._scores(self.prepare(corpus).pairs(contexts, papers), advance)

    def score_candidates(self, queries: Queries, papers: NDArray[np.int32]) -> NDArray[np.float32]:
        """Score candidates of queries: rows of papers [Q, K], -1 for none -> [Q, K], -inf for none."""
        scores = np.full(papers.shape, -np.inf, np.float32)
        query, column = np.nonzero(papers >= 0)
        reader = self.prepare(queries.corpus).for_queries(queries)
        scores[query, column] = self._scores(reader.pairs(query, papers[query, column]))
        return scores

    def _scores(self, pairs: TokenPairs, advance: Callable[[int], None] | None = None) -> NDArray[np.float32]:
        out = np.empty(len(pairs), np.float32)
        parts = batches(pairs.lengths, self.scoring.tokens or self.backend.tokens)
        for rows, scores in self.backend.scores(pairs, parts):
            out[rows] = scores
            if advance is not None:
                advance(len(rows))
        return out
