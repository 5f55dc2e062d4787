"""How the processes of a training (trainer.devices times trainer.num_nodes) divide their work.

Each process works on a contiguous part of the rows and gets the results of the others by a sum over all
processes, to which the others contribute zeros.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from numpy.typing import NDArray
from torch import Tensor, distributed

from citerec.retrieval.vectors import blocks


@dataclass(frozen=True)
class Share:
    """One process's share of the work, by default all of it."""

    rank: int = 0
    processes: int = 1
    device: torch.device | str = "cpu"
    """device of the tensors that the processes exchange"""

    @classmethod
    def of(cls, trainer: pl.Trainer) -> Share:
        """The share of the current process of a trainer."""
        return cls(trainer.global_rank, trainer.world_size, trainer.strategy.root_device)

    def part(self, rows: int) -> slice:
        """This process's rows of `rows`; sizes differ by at most one.

        >>> [Share(rank, 3).part(8) for rank in range(3)]
        [slice(0, 2, None), slice(2, 5, None), slice(5, 8, None)]
        """
        return slice(rows * self.rank // self.processes, rows * (self.rank + 1) // self.processes)

    def deal(self, rows: NDArray[np.int64], sizes: NDArray[np.integer]) -> NDArray[np.int64]:
        """Order rows so that the parts of all processes have about the same size, and none waits for another.

        >>> Share(0, 2).deal(np.arange(5), np.array([1, 9, 8, 2, 3]))
        array([2, 3, 1, 4, 0])
        """
        if self.processes == 1:
            return rows
        dealt = rows[np.argsort(-sizes, kind="stable")]
        return np.concatenate([dealt[first :: self.processes] for first in reversed(range(self.processes))])

    def sum(self, values: Tensor) -> Tensor:
        """Sum over all processes; may overwrite `values`."""
        if self.processes == 1:
            return values
        total = values.to(self.device)
        distributed.all_reduce(total)
        return total.to(values.device)

    def gather(self, own: Tensor, rows: int) -> Tensor:
        """The parts of all processes, [rows, D], given this one's.

        If all compute the same loss from them, its gradient is the mean of the processes' gradients, which
        DDP applies.
        """
        if self.processes == 1:
            return own
        gathered = own.new_zeros(rows, *own.shape[1:])
        gathered[self.part(rows)] = own.detach()
        gathered = self.sum(gathered)
        if own.requires_grad:
            own.register_hook(lambda gradient: gradient * self.processes)
            gathered[self.part(rows)] = own
        return gathered

    def merge(self, array: NDArray[Any], rows: NDArray[np.int64]) -> None:
        """Sum these rows of an array [n, D] over all processes in place, in blocks to bound memory.

        Each process has filled `rows[part(len(rows))]`; the other rows are zeros.
        """
        if self.processes > 1:
            for part in blocks(len(rows), array.shape[1]):
                array[rows[part]] = self.sum(torch.from_numpy(array[rows[part]])).numpy()

    def collect(self, own: NDArray[Any], rows: int) -> NDArray[Any]:
        """The parts of all processes, [rows, D], given this one's; for whole numbers or bool."""
        if self.processes == 1:
            return own
        whole = np.zeros((rows, own.shape[1]), np.int32)
        whole[self.part(rows)] = own
        self.merge(whole, np.arange(rows))
        return whole.astype(own.dtype)


WHOLE = Share()
"""The share of a single process."""
