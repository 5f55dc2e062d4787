"""What happens between rounds: validate, mine, save."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
from numpy.typing import NDArray
from torch import Tensor

from hatten.datamodule import TrainingData
from hatten.documents import Documents
from hatten.encoder import HAttenEncoder
from hatten.history import History
from hatten.mining import MiningConfig, Pool, WordSets, mine, sample
from hatten.module import EncoderModule
from hatten.recipe import Encoder
from hatten.validation import Validation, ValidationConfig
from retrieval.encode import encode, encode_queries, evaluating

MINED = "mined"
"""Where the pools are, in the folder of a run."""


class Rounds(pl.Callback):
    """Mines before the first round and after each but the last; validates after each; keeps the best weights.

    What it needs to go on is in its state: the pool's file and hash, the history. The arrays are in the file.
    """

    def __init__(
        self,
        best: Path,
        save: Callable[[Encoder, dict[str, Any], Path], None],
        mining: MiningConfig | None,
        validation: ValidationConfig,
        seed: int,
        about: dict[str, Any],
    ) -> None:
        """best: where `save` puts the encoder of the best round, with what is known `about` it.

        mining: None where the data come with a pool of their own, or without.
        """
        self.folder, self.best, self.save, self.about = best.parent, best, save, about
        self.mining, self.validation, self.seed = mining, validation, seed
        self.history = History(self.folder)
        self._pool: dict[str, str] | None = None
        self._resumed = False
        self._words: WordSets | None = None
        self._losses: list[float] = []

    def state_dict(self) -> dict[str, Any]:
        return {"pool": self._pool, "history": self.history.rows}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._pool, self.history.rows = state_dict["pool"], list(state_dict["history"])
        self._resumed = True

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        self._data: TrainingData = trainer.datamodule  # type: ignore[attr-defined]
        self._validation = Validation(self.validation, self._data.corpus, self.seed)

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        assert isinstance(pl_module, EncoderModule)
        if self._pool is not None:
            self._data.pool = Pool.load(self.folder / self._pool["file"], self._pool["sha256"])
        if self._resumed and self._data.batch.stale:
            # Lightning restores its count of epochs only after this hook.
            candidates = self._data.corpus.is_candidate
            self._encode_papers(pl_module, int(self.history.rows[-1]["round"]), candidates)
        elif not self._resumed and self._data.batch.mined:
            self._between(pl_module, 0, more=True)

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._start, self._losses = time.monotonic(), []

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._losses.append(float(outputs["loss"]))

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        assert isinstance(pl_module, EncoderModule)
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
        module: EncoderModule,
        done: int,
        more: bool,
        trained: dict[str, float] | None = None,
    ) -> None:
        """Encode the candidates once; measure on validation and mine for the next round with them."""
        data, start, row = self._data, time.monotonic(), dict(trained or {})
        contexts = self._validation.contexts
        wanted = self._validation.candidates.copy()
        mining = self.mining if more and data.batch.mined > 0 else None
        if mining is not None:
            rng = np.random.default_rng((self.seed, 3, done))
            queries = sample(data.queries_of(done), mining.queries, rng)
            searched = self._searched(mining, rng)
            wanted |= searched
        if data.batch.stale:
            wanted = data.corpus.is_candidate
        if not wanted.any():
            self._finish(module, done, row)
            return
        papers = self._encode_papers(module, done, wanted)
        if len(contexts):
            encoded = self._encode_queries(module, contexts, "validation queries")
            measured = self._validation.measure(encoded, papers)
            row |= {f"val/{name}": value for name, value in measured.items()}
        row["val/seconds"] = time.monotonic() - start
        if mining is not None:
            start = time.monotonic()
            self._mine(module, mining, done, queries, papers, searched)
            row["mining/seconds"] = time.monotonic() - start
        self._finish(module, done, row)

    def _searched(self, mining: MiningConfig, rng: np.random.Generator) -> NDArray[np.bool_]:
        """The papers to mine among [P]."""
        candidates = self._data.corpus.is_candidate
        if not 0 < mining.papers < candidates.sum():
            return candidates
        chosen = rng.choice(np.flatnonzero(candidates), mining.papers, replace=False)
        candidates = np.zeros_like(candidates)
        candidates[chosen] = True
        return candidates

    def _encode_papers(
        self, module: EncoderModule, done: int, wanted: NDArray[np.bool_]
    ) -> NDArray[np.float32]:
        """Vectors of the wanted papers [P, D], averaged weights after `done` rounds; zeros for the rest."""
        encoder, data, levels = module.best_encoder, self._data, []
        rows = np.flatnonzero(wanted)
        vectors = np.zeros((len(wanted), encoder.dim), np.float32)
        if isinstance(encoder, HAttenEncoder):
            encoder.mean_only = encoder.mean is not None and done <= module.schedule.mean_only_rounds

        def forward(documents: Documents) -> Tensor:
            if not data.batch.stale:
                return encoder.encode(documents)
            assert isinstance(encoder, HAttenEncoder)
            if encoder.mean_only:
                return encoder.encode(documents)
            hierarchical = encoder.hierarchical(documents)
            levels.append(hierarchical.cpu().numpy())
            return encoder.with_mean(documents, hierarchical)

        with evaluating(encoder):
            vectors[rows] = encode(forward, data.reader.papers, rows, encoder.dim, "papers")
        if data.batch.stale:
            module.stale = np.zeros_like(vectors)  # what the levels give while only the mean path is trained
            if levels:
                module.stale[rows] = np.concatenate(levels)
        return vectors

    def _encode_queries(
        self, module: EncoderModule, contexts: NDArray[np.int64], what: str
    ) -> NDArray[np.float32]:
        encoder = module.best_encoder
        with evaluating(encoder):
            return encode_queries(encoder.encode, self._data.reader, contexts, encoder.dim, what)

    def _mine(
        self,
        module: EncoderModule,
        mining: MiningConfig,
        done: int,
        queries: NDArray[np.int64],
        papers: NDArray[np.float32],
        searched: NDArray[np.bool_],
    ) -> None:
        data, depth = self._data, mining.depth
        if mining.positives and self._words is None:
            self._words = WordSets(data.corpus)
        encoded = self._encode_queries(module, data.split.contexts[queries], "training queries")
        data.pool = mine(data.corpus, data.split, queries, encoded, papers, depth, self._words, searched)
        file = f"{MINED}/round-{done:03d}.npz"
        previous = self._pool["file"] if self._pool is not None else None
        self._pool = {"file": file, "sha256": data.pool.save(self.folder / file)}
        # The last checkpoint still names the pool before this one; those before that are done with.
        for old in (self.folder / MINED).glob("round-*.npz"):
            if str(old.relative_to(self.folder)) not in (file, previous):
                old.unlink()

    def _finish(self, module: EncoderModule, done: int, row: dict[str, float]) -> None:
        """Log, keep the history, and save the weights when they are the best so far."""
        if done:
            module.log_dict(row)
        best = self.history.add(done, row, f"val/{self.validation.monitor}")
        if done and best:
            # No times: the same run gives the same file.
            measured = {name: value for name, value in row.items() if name.startswith("val/")}
            measured.pop("val/seconds", None)
            self.save(module.best_encoder, {**self.about, "round": done, **measured}, self.best)
