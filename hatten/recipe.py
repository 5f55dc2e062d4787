"""What a kind of encoder brings to its training; hatten.train does the rest, the same for all."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig
from torch import Tensor, nn

from datasets.corpus import Corpus
from hatten.settings import MinedTraining
from retrieval.vectors import Reader


class Encoder(nn.Module):
    """Documents to vectors that are compared by cosine."""

    dim: int
    precision: torch.dtype
    """in which it computes; weights are float32"""
    fast: tuple[str, ...] = ()
    """how the names of the weights begin that learn at their own rate (model.schedule.vectors)"""

    def encode(self, documents: Any) -> Tensor:
        """B documents, as the reader gives them -> [B, dim] float32; zeros for one without a known word."""
        raise NotImplementedError


@dataclass(frozen=True)
class Parts:
    """An encoder over a corpus, ready to be trained."""

    encoder: Encoder
    reader: Reader
    save: Callable[[Encoder, dict[str, Any], Path], None]
    """(encoder, what is to be known of it, path): writes a file or folder, whole or not at all"""
    about: dict[str, Any]
    """what it starts from, as plain values; is saved with it"""


class Recipe(ABC):
    """A kind of encoder, as `model.recipe` names it."""

    schema: type[MinedTraining]
    """the settings that it is made from"""
    file: str
    """what is saved, in the folder of a run"""
    groups: tuple[str, ...]
    """parts of the configuration that it reads beside `model`"""
    mean_path = False
    """whether it has a mean path that can be trained without the rest (hatten.layers)"""

    @abstractmethod
    def build(self, corpus: Corpus, config: DictConfig) -> Parts:
        """config: all of the configuration."""
