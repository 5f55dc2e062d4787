"""What computes the scores of padded pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from datasets.errors import InputError
from rerank.cross_encoder import CrossEncoder
from retrieval.encode import precision

if TYPE_CHECKING:
    from rerank.reranker import ScoringConfig

BACKENDS = ("torch",)


class Backend(Protocol):
    """Scores padded pairs."""

    arithmetic: str
    """All that its scores depend on beside the model."""

    def scores(
        self, input_ids: Tensor, token_type_ids: Tensor, attention_mask: Tensor
    ) -> NDArray[np.float32]:
        """[B, L] int64 each, on the CPU -> [B]."""


class TorchBackend:
    """The net as it is, with weights in the precision that it computes in."""

    def __init__(self, model: CrossEncoder, arithmetic: str, compile: bool = False) -> None:
        dtype = precision(arithmetic)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        model.precision = dtype
        model.to(device, dtype)
        self.arithmetic = f"torch {dtype}"
        self._model = model
        self._forward = torch.compile(model, dynamic=True) if compile else model

    def scores(
        self, input_ids: Tensor, token_type_ids: Tensor, attention_mask: Tensor
    ) -> NDArray[np.float32]:
        """[B, L] int64 each -> [B]."""
        with torch.inference_mode():
            logits = self._forward(input_ids, token_type_ids, attention_mask)
            return np.asarray(self._model.scores(logits).cpu().numpy())


def open_backend(model: CrossEncoder, scoring: ScoringConfig) -> Backend:
    """The back end that a configuration names; InputError if it cannot be had."""
    if scoring.precision == "int8":
        raise InputError("scoring.precision=int8: not with scoring.backend=torch")
    return TorchBackend(model, scoring.precision, scoring.compile)
