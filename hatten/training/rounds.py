"""Between two rounds of an encoder's training: the papers are encoded once, to validate the round and to mine
the pool of the next one.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from citerec.hatten.documents import Documents
from citerec.hatten.encoder import HAttenEncoder, encode_documents
from citerec.hatten.inputs import Inputs
from citerec.hatten.settings import EncoderTraining
from citerec.hatten.training.batches import TrainingData
from citerec.hatten.training.mining import Miner, Mining, MiningPlan, Pool
from citerec.hatten.training.module import EncoderModule
from citerec.hatten.training.validation import Validation
from citerec.retrieval.encoders.nets import as_numpy, eval_mode
from citerec.retrieval.vectors import encode_queries
from citerec.training.hub import Pretrained
from citerec.training.rounds import Rounds

MINED = "mined"
"""Folder of the mined pools in the run folder."""


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
        self.mining, self.validation, self.seed = settings.mining, settings.validation, seed
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
        self._miner = Miner(self.mining, self._data.corpus, self.seed)

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        assert isinstance(pl_module, EncoderModule)
        if self._pool is not None:
            self._data.pool = Pool.load(self.folder / self._pool["file"], self._pool["sha256"])
        if pl_module.cached_vectors is not None:
            pl_module.cached_vectors, self._data.cached = pl_module.cached_vectors.to(pl_module.device), True
        if not self._resumed and self._data.batch.mined:
            self.record(trainer, pl_module, 0, self.measure(trainer, pl_module, 0))

    def measure(self, trainer: pl.Trainer, module: EncoderModule, done: int) -> dict[str, float]:
        """Encode the papers, validate, and mine the pool of the next round, if there is one."""
        plan = self._plan(done) if done < (trainer.max_epochs or 0) else None
        wanted = self._wanted_papers(plan)
        if not wanted.any() and plan is None:
            return {}
        start = time.monotonic()
        papers = self._encode_papers(module, done, wanted)
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
        if not self._data.batch.mined or self._miner.source(done) == "none":
            return None
        return self._miner.plan(done, self._data.round_queries(done))

    def _wanted_papers(self, plan: MiningPlan | None) -> NDArray[np.bool_]:
        """Return the papers to encode [P]: those that validation, mining and cached negatives need."""
        if self._data.batch.cached_negatives:
            return self._data.corpus.is_candidate
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
        data, depth, words = self._data, self._miner.settings.depth, self._miner.words
        queries, share = plan.queries, module.share
        mining = Mining(data.corpus, data.split, queries, depth, words, plan.candidates, share, data.sets)
        if plan.source == "bm25":
            return mining.by_bm25()
        encoded = self._encode_queries(module, data.split.contexts[queries], "training queries")
        return mining.by_vectors(encoded, papers)

    def _encode_papers(
        self, module: EncoderModule, done: int, wanted: NDArray[np.bool_]
    ) -> NDArray[np.float32]:
        """Encode the wanted papers with the averaged weights after `done` rounds: [P, D], zeros elsewhere.

        Each process encodes its share, and gets the others'.
        """
        encoder, data, levels = module.best_encoder, self._data, list[Tensor]()
        rows = np.flatnonzero(wanted)
        own = rows[module.share.part(len(rows))]
        vectors = np.zeros((len(wanted), encoder.dim), np.float32)
        if isinstance(encoder, HAttenEncoder):
            encoder.mean_only = encoder.mean is not None and done <= module.schedule.mean_only_rounds

        def forward(documents: Documents | Inputs) -> Tensor:
            if not data.batch.cached_negatives:
                return encoder.encode(documents)
            assert isinstance(encoder, HAttenEncoder)
            if encoder.mean_only:
                return encoder.encode(documents)
            levels.append(encoder.encode_levels(documents))
            return encoder.add_mean_path(documents, levels[-1])

        with eval_mode(encoder):
            vectors[own] = encode_documents(encoder, data.reader.papers, own, "papers", forward)
        module.share.merge(vectors, rows)
        if data.batch.cached_negatives:
            cached = np.zeros_like(vectors)
            if levels:  # empty while only the mean path is trained
                cached[own] = torch.cat(levels).cpu().numpy()
            module.share.merge(cached, rows)
            module.cached_vectors, data.cached = torch.from_numpy(cached).to(module.device), True
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
            if str(old.relative_to(self.folder)) not in (file, previous):
                old.unlink()
