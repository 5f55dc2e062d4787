"""Scoring on several processes, as `torchrun --nproc-per-node N evaluate.py ...` starts them.

The first process evaluates; the others do nothing but score their share of the pairs that it announces.
"""

from __future__ import annotations

import os
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

_DONE = -1
_PATIENCE = timedelta(days=30)
"""How long the others may wait for pairs: the first one may have to index and search millions of papers."""


class Processes:
    """The processes of one evaluation, of which this is number `rank` of `count`; alone without torchrun."""

    def __init__(self) -> None:
        self.rank = int(os.environ.get("RANK", "0"))
        self.count = int(os.environ.get("WORLD_SIZE", "1"))
        if self.count == 1:
            return
        if torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
        if not dist.is_initialized():
            dist.init_process_group(
                "gloo", timeout=_PATIENCE
            )  # it carries keys of pairs, no tensors of models

    def announce(self, keys: NDArray[np.int64] | None) -> None:
        """By the first, to all others: pairs to be scored [N]; None: there will be no more."""
        if self.count > 1:
            dist.broadcast(torch.tensor([_DONE if keys is None else len(keys)]), 0)
            if keys is not None:
                dist.broadcast(torch.from_numpy(keys.copy()), 0)

    def announced(self) -> NDArray[np.int64] | None:
        """By the others: waits for what the first one announces."""
        size = torch.empty(1, dtype=torch.int64)
        dist.broadcast(size, 0)
        if int(size) == _DONE:
            return None
        keys = torch.empty(int(size), dtype=torch.int64)
        dist.broadcast(keys, 0)
        return keys.numpy()

    def wait(self) -> None:
        """Until all are here."""
        if self.count > 1:
            dist.barrier()
