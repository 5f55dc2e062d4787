"""Scoring on several processes, as `torchrun --nproc-per-node N evaluate.py ...` starts them.

The first process evaluates; the others do nothing but score their share of the pairs that it announces.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

_DONE = -1
_PATIENCE = timedelta(days=30)
"""How long the others may wait for pairs: the first one may have to index and search millions of papers."""


class Processes:
    """The processes of one evaluation, of which this is number `rank` of `count`."""

    def __init__(self, rank: int = 0, count: int = 1) -> None:
        self.rank, self.count = rank, count
        self._failed = False

    @classmethod
    def of_torchrun(cls) -> Processes:
        """Those that torchrun has started together; this one alone where it was not torchrun."""
        found = cls(int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1")))
        if found.count > 1:
            if torch.cuda.is_available():
                torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
            if not dist.is_initialized():
                dist.init_process_group("gloo", timeout=_PATIENCE)  # carries keys of pairs, no weights
        return found

    def announce(self, keys: NDArray[np.int64] | None) -> None:
        """By the first, to all others: pairs to be scored [N]; None: there will be no more."""
        if self.count > 1 and not self._failed:
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

    @contextmanager
    def together(self) -> Iterator[None]:
        """Waits at the end until all are there; after an error nobody is waited for, nor told anything."""
        try:
            yield
        except BaseException:
            self._failed = True  # torchrun ends the others, which wait for this one
            raise
        if self.count > 1:
            dist.barrier()
