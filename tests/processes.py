"""The processes of a training, as threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from torch import Tensor

from citerec.training.processes import Share

T = TypeVar("T")


@dataclass(frozen=True)
class ThreadShare(Share):
    """A share whose sums are over threads."""

    barrier: threading.Barrier = field(default_factory=lambda: threading.Barrier(1))
    values: dict[int, Tensor] = field(default_factory=dict)

    def sum(self, values: Tensor) -> Tensor:
        self.values[self.rank] = values
        self.barrier.wait(120)
        total = sum((self.values[rank] for rank in range(1, self.processes)), self.values[0].clone())
        self.barrier.wait(120)
        return total


def in_processes(count: int, work: Callable[[Share], T]) -> list[T]:
    """Return what `work` returns in each of `count` processes."""
    barrier, values = threading.Barrier(count), dict[int, Tensor]()
    shares = [ThreadShare(rank, count, barrier=barrier, values=values) for rank in range(count)]
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(work, shares))
