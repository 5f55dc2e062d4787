"""Learning rates over the steps of a run."""

from __future__ import annotations

from dataclasses import dataclass

from datasets.errors import InputError


@dataclass(frozen=True)
class RateConfig:
    """How the learning rate rises and falls."""

    warmup: int = 0
    """steps in which the rate rises from 0"""
    decay: str = "none"
    """none, or linear: down to 0 at the last step"""

    def __post_init__(self) -> None:
        if self.decay not in ("none", "linear"):
            raise InputError(f"model.schedule.decay={self.decay}: choose none or linear")

    def rate(self, step: int, total: int) -> float:
        """The rate at a step (from 0) of `total`, as a multiple of the optimiser's.

        >>> [RateConfig(2, "linear").rate(step, 4) for step in range(4)]
        [0.5, 0.75, 0.5, 0.25]
        """
        rising = min(1.0, (step + 1) / self.warmup) if self.warmup else 1.0
        if self.decay == "none":
            return rising
        return rising * max(0.0, 1.0 - step / total)
