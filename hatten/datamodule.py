"""What the training loop reads: the batches of each round, made from the pool that was mined last."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader

from datasets.errors import InputError
from datasets.schema import TRAIN
from hatten.batches import Batch, BatchConfig, Batches, steps_per_round
from hatten.mining import Pool
from retrieval.encode import Reader


class TrainingData(pl.LightningDataModule):
    """Batches of the training split. The trainer asks for a new loader each round.

    about: what weights depend on beside the configuration, as plain values; a resumed run must have the same.
    """

    def __init__(
        self,
        reader: Reader,
        batch: BatchConfig,
        seed: int,
        workers: int = 0,
    ) -> None:
        """workers: processes that read ahead; a batch takes milliseconds, so 0 is right on few cores."""
        super().__init__()
        self.reader, self.batch, self.seed, self.workers = reader, batch, seed, workers
        self.corpus = corpus = reader.corpus
        self.split = corpus.split(TRAIN)
        if len(self.split) == 0:
            raise InputError(f"corpus {corpus.name}: its train split is empty, there is nothing to train on")
        if workers > (os.cpu_count() or 1):
            raise InputError(f"model.workers={workers}: this machine has {os.cpu_count()} cores")
        self.pool: Pool | None = None
        self.about: dict[str, Any] = {}

    def train_dataloader(self) -> DataLoader[Batch]:
        current = self.trainer.current_epoch if self.trainer is not None else 0
        batches = self._batches(current)
        # An iterator draws a seed for its workers, and Lightning makes that of a run's first round at another
        # time than later ones: drawn from torch's own numbers it would shift the dropout of a resumed round.
        own = torch.Generator().manual_seed(self.seed)
        return DataLoader(batches, batch_size=None, shuffle=False, num_workers=self.workers, generator=own)

    def queries_of(self, round: int) -> NDArray[np.int64]:
        """Rows of the split that a round may have as queries, ascending; all if it is a pass or more."""
        if steps_per_round(self.batch, len(self.split)) * self.batch.queries >= len(self.split):
            return np.arange(len(self.split))
        return np.unique(self._batches(round).order)

    def _batches(self, round: int) -> Batches:
        return Batches(self.reader, self.split, self.pool, self.batch, self.seed, round)

    def transfer_batch_to_device(self, batch: Batch, device: object, dataloader_idx: int) -> Batch:
        return batch  # the encoder moves what it needs
