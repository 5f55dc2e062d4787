"""Between two rounds of an encoder's training: the papers are encoded once, to validate the round and to mine
the pool of the next one.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
from numpy.typing import NDArray

from citerec.datasets.corpus import Corpus
from citerec.hatten.encoder import encode_documents
from citerec.hatten.settings import EncoderTraining, EncoderValidationSettings
from citerec.hatten.training.batches import Pool, TrainingData
from citerec.hatten.training.mining import Mining, MiningPlan, WordSets, build_mining
from citerec.hatten.training.module import EncoderModule
from citerec.retrieval.encoders.nets import as_numpy, eval_mode
from citerec.retrieval.indexes.index import search_exact
from citerec.retrieval.vectors import encode_queries
from citerec.training.hub import Pretrained
from citerec.training.processes import WHOLE, Share
from citerec.training.rounds import VALIDATION_SEED, Rounds, recall_and_mrr, validation_split

MINED = "mined"
"""Folder of the mined pools in the run folder."""


class Validation:
    """The validation queries of a run and the papers to search, fixed for all rounds."""

    def __init__(self, config: EncoderValidationSettings, corpus: Corpus, seed: int) -> None:
        self.config, self.corpus = config, corpus
        self.contexts: NDArray[np.int64] = np.empty(0, np.int64)
        """[Q] context rows; empty: no validation"""
        self.candidates: NDArray[np.bool_] = np.zeros_like(corpus.is_candidate)
        """[P] papers to search"""
        rng = np.random.default_rng((seed, VALIDATION_SEED))
        if (split := validation_split(corpus, config.split, config.queries, rng)) is None:
            return
        self.contexts, cited = split.contexts, split.positives
        self._positives = cited.padded()
        if not 0 < config.papers < np.count_nonzero(corpus.is_candidate):
            self.candidates = corpus.is_candidate
            return
        self.candidates[cited.values] = corpus.is_candidate[cited.values]
        others = np.flatnonzero(corpus.is_candidate & ~self.candidates)
        missing = max(0, config.papers - int(np.count_nonzero(self.candidates)))
        self.candidates[rng.choice(others, min(missing, len(others)), replace=False)] = True

    def measure(
        self, queries: NDArray[np.float32], papers: NDArray[np.float32], share: Share = WHOLE
    ) -> dict[str, float]:
        """Vectors of the share's contexts and of papers [P, D] -> measures, and size of a sampled pool."""
        citing = self.corpus.own_papers(self.contexts[share.part(len(self.contexts))])
        nearest = search_exact(queries, papers, self.config.depth, citing, self.candidates, share.device)
        measures = recall_and_mrr(share.collect(nearest.papers, len(self.contexts)), self._positives)
        if self.candidates is not self.corpus.is_candidate:
            measures["papers"] = float(np.count_nonzero(self.candidates))
        return measures


class EncoderRounds(Rounds):
    """Mines before every round and validates after every round.

    The state holds only the file name and hash of the pool.
    """

    def __init__(
        self,
        best: Path,
        model: Pretrained,
        about: dict[str, Any],
        settings: EncoderTraining,
        seed: int,
    ) -> None:
        """Arguments: see Rounds."""
        super().__init__(best, model, about, settings.validation.monitor)
        self.mining = build_mining(settings.mining)
        self.validation, self.seed = settings.validation, seed
        self._pool: dict[str, str] | None = None
        self._resumed = False

    def state_dict(self) -> dict[str, Any]:
        return {"pool": self._pool, **super().state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._pool, self._resumed = state_dict["pool"], True

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        self._data: TrainingData = trainer.datamodule  # type: ignore[attr-defined]
        self._validation = Validation(self.validation, self._data.corpus, self.seed)
        # Positives are mined by word overlap.
        self._words = WordSets(self._data.corpus) if self.mining.positives else None

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        assert isinstance(pl_module, EncoderModule)
        if self._pool is not None:
            self._data.pool = Pool.load(self.folder / self._pool["file"], self._pool["sha256"])
        if not self._resumed and self._data.batch.mined:
            self.record(trainer, pl_module, 0, self.measure(trainer, pl_module, 0))

    def measure(self, trainer: pl.Trainer, module: EncoderModule, done: int) -> dict[str, float]:
        """Encode the papers, validate, and mine the pool of the next round, if there is one."""
        plan = self._plan(done) if done < (trainer.max_epochs or 0) else None
        wanted = self._wanted_papers(plan)
        if not wanted.any() and plan is None:
            return {}
        start = time.monotonic()
        papers = self._encode_papers(module, wanted)
        row = self._validate(module, papers)
        row["val/seconds"] = time.monotonic() - start
        if plan is not None:
            start = time.monotonic()
            self._data.pool = self._mine(module, plan, papers)
            if trainer.is_global_zero:
                self._write_pool(self._data.pool, done)
            row["mining/seconds"] = time.monotonic() - start
        return row

    def _plan(self, done: int) -> MiningPlan | None:
        """Return what to mine after `done` rounds, if anything."""
        if not self._data.batch.mined:
            return None
        return self.mining.plan(done, self._data.round_queries(done), self._data.corpus, self.seed)

    def _wanted_papers(self, plan: MiningPlan | None) -> NDArray[np.bool_]:
        """Return the papers to encode [P]: those that validation and mining need."""
        wanted = self._validation.candidates
        return wanted | plan.candidates if plan is not None and plan.source == "encoder" else wanted

    def _validate(self, module: EncoderModule, papers: NDArray[np.float32]) -> dict[str, float]:
        """Measure the validation queries; papers: vectors [P, D]."""
        if not len(contexts := self._validation.contexts):
            return {}
        encoded = self._encode_queries(module, contexts, "validation queries")
        measures = self._validation.measure(encoded, papers, module.share)
        return {f"val/{name}": value for name, value in measures.items()}

    def _mine(self, module: EncoderModule, plan: MiningPlan, papers: NDArray[np.float32]) -> Pool:
        """Mine by BM25, or with vectors of the papers [P, D] and of the training queries."""
        data, queries = self._data, plan.queries
        mining = Mining(
            data.corpus, data.split, queries, self._words, plan.candidates, module.share, data.sets
        )
        if plan.source == "bm25":
            return self.mining.mine(mining, None)
        encoded = self._encode_queries(module, data.split.contexts[queries], "training queries")
        return self.mining.mine(mining, (encoded, papers))

    def _encode_papers(self, module: EncoderModule, wanted: NDArray[np.bool_]) -> NDArray[np.float32]:
        """Encode the wanted papers with the averaged weights: [P, D], zeros elsewhere.

        Each process encodes its share, and gets the others'.
        """
        encoder, rows = module.best_encoder, np.flatnonzero(wanted)
        own = rows[module.share.part(len(rows))]
        vectors = np.zeros((len(wanted), encoder.dim), np.float32)
        with eval_mode(encoder):
            vectors[own] = encode_documents(encoder, self._data.reader.papers, own)
        module.share.merge(vectors, rows)
        return vectors

    def _encode_queries(
        self, module: EncoderModule, contexts: NDArray[np.int64], what: str
    ) -> NDArray[np.float32]:
        """Encode this process's share of the contexts."""
        encoder, own = module.best_encoder, contexts[module.share.part(len(contexts))]
        with eval_mode(encoder):
            return encode_queries(as_numpy(encoder.encode), self._data.reader, own, encoder.dim, what)

    def _write_pool(self, pool: Pool, done: int) -> None:
        file = f"{MINED}/round-{done:03d}.npz"
        previous = self._pool["file"] if self._pool is not None else None
        self._pool = {"file": file, "sha256": pool.save(self.folder / file)}
        # The last checkpoint still refers to the previous pool; older pools are not needed.
        for old in (self.folder / MINED).glob("round-*.npz"):
            if old.relative_to(self.folder).as_posix() not in (file, previous):
                old.unlink()
