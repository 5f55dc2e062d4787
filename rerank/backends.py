"""What computes the scores of pairs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from datasets.errors import InputError
from rerank.cross_encoder import CrossEncoder
from rerank.pairs import PairReader, Pairs
from retrieval.encode import precision

if TYPE_CHECKING:
    from rerank.reranker import ScoringConfig

BACKENDS = ("torch", "openvino")

Rows = NDArray[np.int64]
Scores = NDArray[np.float32]


class Backend(Protocol):
    """Scores pairs with one model."""

    arithmetic: str
    """All that its scores depend on beside the model."""

    def prepare(self, reader: PairReader) -> None:
        """Get ready for the pairs of a reader, which may take a minute."""

    def scores(self, pairs: Pairs, parts: Iterable[Rows]) -> Iterator[tuple[Rows, Scores]]:
        """The scores [B] of each part, rows [B] of the pairs that make a batch; they come in any order."""


class TorchBackend:
    """The net as it is, with weights in the precision that it computes in."""

    def __init__(self, model: CrossEncoder, arithmetic: str, compile: bool = False, threads: int = 0) -> None:
        """arithmetic: auto, float32 or bfloat16. threads: 0 leaves them as they are."""
        dtype = precision(arithmetic)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        if threads:
            torch.set_num_threads(threads)
        model.precision = dtype
        model.to(device, dtype)
        self.arithmetic = f"torch {device} {dtype}{' compiled' if compile else ''}"
        self._model = model
        # Frozen weights are laid out for the processor's matrix products once, not at each call.
        self._forward = (
            torch.compile(model, dynamic=True, options={"freezing": device == "cpu"}) if compile else model
        )

    def prepare(self, reader: PairReader) -> None:
        """Nothing to do."""

    def scores(self, pairs: Pairs, parts: Iterable[Rows]) -> Iterator[tuple[Rows, Scores]]:
        """One part after the other, with all threads."""
        for rows in parts:
            with torch.inference_mode():
                found = self._model.scores(self._forward(*pairs.padded(rows)))
            yield rows, found.cpu().numpy()


def open_backend(model: CrossEncoder, scoring: ScoringConfig, identity: str) -> Backend:
    """The back end that a configuration names; InputError if it cannot be had.

    identity: a hash of the model, for what a back end keeps in the cache.
    """
    int8 = scoring.precision == "int8"
    if scoring.backend == "openvino" or (scoring.backend == "auto" and int8):
        from rerank.backends_openvino import OpenVinoBackend

        return OpenVinoBackend(model, scoring.precision, scoring.threads, identity)
    if int8:
        raise InputError("scoring.precision=int8 needs scoring.backend=openvino")
    return TorchBackend(model, scoring.precision, scoring.compile, scoring.threads)
