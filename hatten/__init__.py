"""Stage 1: the hierarchical attention encoder (HAtten) that prefetches candidates, and other encoders."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from citerec.hatten.checkpoint import load_reference_checkpoint as load_reference_checkpoint

__all__ = ["load_reference_checkpoint"]


def __getattr__(name: str) -> object:
    if name == "load_reference_checkpoint":  # lazy: imports torch, which configuration does not need
        from citerec.hatten.checkpoint import load_reference_checkpoint

        return load_reference_checkpoint
    raise AttributeError(name)
