"""What happens between rounds (validate, mine, save) and the lines that say how far a run is."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
from numpy.typing import NDArray
from torch import Tensor

from datasets.errors import InputError
from hatten.checkpoint import Model, save_model
from hatten.datamodule import TrainingData
from hatten.documents import Documents
from hatten.history import History
from hatten.mining import MiningConfig, Pool, WordSets, mine, padded, sample
from hatten.module import HAttenModule
from hatten.options import at_least_1
from retrieval.encode import encode, encode_queries, evaluating
from retrieval.exact import search_exact

log = logging.getLogger(__name__)

BEST = "hatten.ckpt"
"""The weights of the best round, in the folder of a run."""

MINED = "mined"
"""Where the pools are, beside it."""


RECALLS = (1, 10, 50, 100, 500, 1000, 2000)


@dataclass(frozen=True)
class ValidationConfig:
    """What is measured after each round, with the averaged weights, against all candidates."""

    split: str = "val"
    queries: int = 2000
    """a sample where there are more; 0: no validation"""
    depth: int = 2000
    monitor: str = "recall@10"
    """the round that is best in this is the one saved"""

    def __post_init__(self) -> None:
        at_least_1(self, "model.validation", "depth")
        measures = ["mrr", *(f"recall@{k}" for k in RECALLS if k <= self.depth)]
        if self.monitor not in measures:
            raise InputError(f"model.validation.monitor={self.monitor}: choose one of {', '.join(measures)}")


class Rounds(pl.Callback):
    """Mines before the first round and after each but the last; validates after each; keeps the best weights.

    What it needs to go on is in its state: the pool's file and hash, the history. The arrays are in the file.
    """

    def __init__(
        self,
        folder: Path,
        mining: MiningConfig,
        validation: ValidationConfig,
        seed: int,
        about: dict[str, Any],
    ) -> None:
        self.folder, self.mining, self.validation, self.seed, self.about = (
            folder,
            mining,
            validation,
            seed,
            about,
        )
        self.history = History(folder)
        self._pool: dict[str, str] | None = None
        self._resumed = False
        self._words: WordSets | None = None
        self._losses: list[float] = []

    @property
    def best_file(self) -> Path:
        return self.folder / BEST

    def state_dict(self) -> dict[str, Any]:
        return {"pool": self._pool, "history": self.history.rows}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._pool, self.history.rows = state_dict["pool"], list(state_dict["history"])
        self._resumed = True

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        self._data: TrainingData = trainer.datamodule  # type: ignore[attr-defined]

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        assert isinstance(pl_module, HAttenModule)
        if self._pool is not None:
            self._data.pool = Pool.load(self.folder / self._pool["file"], self._pool["sha256"])
        if self._resumed and self._data.batch.stale:
            # Lightning restores its count of epochs only after this hook.
            self._encode_papers(pl_module, int(self.history.rows[-1]["round"]))
        elif not self._resumed and self._data.batch.mined:
            self._between(pl_module, 0, more=True)

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._start, self._losses = time.monotonic(), []

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._losses.append(float(outputs["loss"]))

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        assert isinstance(pl_module, HAttenModule)
        done = trainer.current_epoch + 1
        seconds = time.monotonic() - self._start
        trained = {
            "train/loss": float(np.mean(self._losses)),
            "train/seconds": seconds,
            "train/steps_per_second": len(self._losses) / seconds,
        }
        self._between(pl_module, done, more=done < (trainer.max_epochs or 0), trained=trained)

    def _between(
        self,
        module: HAttenModule,
        done: int,
        more: bool,
        trained: dict[str, float] | None = None,
    ) -> None:
        """Encode the candidates once; measure on validation and mine for the next round with them."""
        data, start, row = self._data, time.monotonic(), dict(trained or {})
        split = data.corpus.splits.get(self.validation.split)
        measured = split is not None and len(split) > 0 and self.validation.queries > 0
        mining = more and data.batch.mined > 0
        if not measured and not mining and not data.batch.stale:
            self._finish(module, done, row)
            return
        encoder, vectors = module.best_encoder, self._encode_papers(module, done)
        dim = encoder.config.dim
        if measured and split is not None:
            rng = np.random.default_rng((self.seed, 2))
            rows = np.sort(rng.permutation(len(split))[: self.validation.queries])
            contexts, cited = split.contexts[rows], split.positives.take(rows)
            with evaluating(encoder):
                encoded = encode_queries(encoder.encode, data.reader, contexts, dim, "validation queries")
            found = search_exact(
                encoded,
                vectors,
                self.validation.depth,
                exclude=data.corpus.citing[contexts],
                candidates=data.corpus.is_candidate,
            )
            positives = padded(cited, data.corpus.citing[contexts])[:, :-1]
            row |= {f"val/{name}": value for name, value in recalls(found.papers, positives).items()}
        row["val/seconds"] = time.monotonic() - start
        if mining:
            start = time.monotonic()
            self._mine(module, done, vectors)
            row["mining/seconds"] = time.monotonic() - start
        self._finish(module, done, row)

    def _encode_papers(self, module: HAttenModule, done: int) -> NDArray[np.float32]:
        """Vectors of all candidates [P, D], averaged weights after `done` rounds; zeros for the rest."""
        encoder, data = module.best_encoder, self._data
        encoder.mean_only = encoder.mean is not None and done <= module.schedule.mean_only_rounds
        candidates = np.flatnonzero(data.corpus.is_candidate)
        dim, levels = encoder.config.dim, []
        vectors = np.zeros((len(data.corpus.paper_ids), dim), np.float32)

        def forward(documents: Documents) -> Tensor:
            if not data.batch.stale or encoder.mean_only:
                return encoder.encode(documents)
            hierarchical = encoder.hierarchical(documents)
            levels.append(hierarchical.cpu().numpy())
            return encoder.with_mean(documents, hierarchical)

        with evaluating(encoder):
            vectors[candidates] = encode(forward, data.reader.papers, candidates, dim, "papers")
        if data.batch.stale:
            module.stale = np.zeros_like(vectors)  # what the levels give while only the mean path is trained
            if levels:
                module.stale[candidates] = np.concatenate(levels)
        return vectors

    def _mine(self, module: HAttenModule, done: int, vectors: NDArray[Any]) -> None:
        data, config, rng = self._data, self.mining, np.random.default_rng((self.seed, 3, done))
        queries = sample(data.split, config, rng)
        candidates = data.corpus.is_candidate
        if 0 < config.papers < candidates.sum():
            chosen = rng.choice(np.flatnonzero(candidates), config.papers, replace=False)
            candidates = np.zeros_like(candidates)
            candidates[chosen] = True
        if config.positives and self._words is None:
            self._words = WordSets(data.corpus)
        encoder, contexts = module.best_encoder, data.split.contexts[queries]
        with evaluating(encoder):
            encoded = encode_queries(
                encoder.encode, data.reader, contexts, encoder.config.dim, "training queries"
            )
        data.pool = mine(
            data.corpus, data.split, queries, encoded, vectors, config.depth, self._words, candidates
        )
        file = f"{MINED}/round-{done:03d}.npz"
        previous = self._pool["file"] if self._pool is not None else None
        self._pool = {"file": file, "sha256": data.pool.save(self.folder / file)}
        # The last checkpoint still names the pool before this one; those before that are done with.
        for old in (self.folder / MINED).glob("round-*.npz"):
            if str(old.relative_to(self.folder)) not in (file, previous):
                old.unlink()

    def _finish(self, module: HAttenModule, done: int, row: dict[str, float]) -> None:
        """Log, keep the history, and save the weights when they are the best so far."""
        if done:
            module.log_dict(row)
        best = self.history.add(done, row, f"val/{self.validation.monitor}")
        if done and best:
            data = self._data
            # No times: the same run gives the same file.
            measured = {name: value for name, value in row.items() if name.startswith("val/")}
            measured.pop("val/seconds", None)
            about = {**self.about, "round": done, **measured}
            save_model(Model(module.best_encoder, data.vocabulary, about), self.best_file)


def recalls(papers: NDArray[Any], positives: NDArray[Any]) -> dict[str, float]:
    """Ranked papers [Q, k], cited ones [Q, most] (-1: none): MRR and share of the cited in the first k."""
    hits = (papers[:, None, :] == positives[:, :, None]) & (positives[:, :, None] >= 0)  # [Q, most, k]
    cited = (positives >= 0).sum(1)
    any_hit = hits.any(1)
    first = np.where(any_hit.any(1), any_hit.argmax(1), np.iinfo(np.int64).max - 1)
    out = {"mrr": float((1.0 / (first + 1.0)).mean())}
    for k in RECALLS:
        if k <= papers.shape[1]:
            out[f"recall@{k}"] = float((hits[:, :, :k].any(2).sum(1) / cited).mean())
    return out
