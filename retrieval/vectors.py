"""Encoding many documents: vectors of unit length, with progress, in bounded memory."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from datasets.corpus import Corpus
from datasets.errors import InputError

log = logging.getLogger(__name__)

BATCH = 1024
"""Documents that are read, and sorted by length, together."""
SAY_EVERY = 20.0
"""Seconds between two lines on the progress of long work."""


class Reader(Protocol):
    """Makes of rows of a corpus what an encoder takes."""

    corpus: Corpus

    def papers(self, rows: NDArray[np.integer]) -> Any:
        """Papers, rows [B] -> B documents."""

    def queries(self, contexts: NDArray[np.integer]) -> Any:
        """Contexts with their citing papers, rows [B] -> B documents."""


class Pace:
    """Says in the log every SAY_EVERY seconds how far a long encoding is, and how long it will take."""

    def __init__(
        self, what: str, total: int, done: int = 0, bar: Callable[[int], None] | None = None
    ) -> None:
        """done: documents that need not be encoded. bar: is told how many more are (datasets.progress)."""
        self.what, self.total, self.done, self.found = what, total, float(done), done
        self._bar, self._shown = bar, 0
        self._start = self._said = time.monotonic()
        self.advance(0)

    def advance(self, more: float) -> None:
        """So many more documents are done, or parts of one."""
        self.done += more
        if self._bar is not None:
            self._bar(round(self.done) - self._shown)
            self._shown = round(self.done)
        if time.monotonic() - self._said > SAY_EVERY and self.done > self.found:
            self._said = time.monotonic()
            log.info(
                f"encoded {self.done:,.0f} of {self.total:,} {self.what}, {self.rate:,.0f}/s, "
                f"{(self.total - self.done) / self.rate:.0f} s left"
            )

    @property
    def seconds(self) -> float:
        """That it has taken until now."""
        return time.monotonic() - self._start

    @property
    def rate(self) -> float:
        """Documents a second."""
        return (self.done - self.found) / max(self.seconds, 1e-9)


def encode(
    forward: Callable[[Any], Tensor],
    read: Callable[[NDArray[np.int64]], Any],
    rows: NDArray[np.int64],
    dim: int,
    what: str = "documents",
    batch: int = BATCH,
) -> NDArray[np.float32]:
    """Rows of a corpus to vectors [len(rows), dim] of unit length (zeros for documents without a known word).

    read: `papers` or `queries` of a reader. forward: what it gives -> [B, dim]. batch: documents that are
    read together.
    """
    out = np.empty((len(rows), dim), np.float32)
    pace = Pace(what, len(rows))
    with torch.inference_mode():
        for first in range(0, len(rows), batch):
            part = rows[first : first + batch]
            vectors = F.normalize(forward(read(part)).float(), dim=1)
            out[first : first + batch] = vectors.cpu().numpy()
            pace.advance(len(part))
    return out


def encode_queries(
    forward: Callable[[Any], Tensor],
    reader: Reader,
    contexts: NDArray[np.int64],
    dim: int,
    what: str = "queries",
) -> NDArray[np.float32]:
    """Contexts [Q] to vectors [Q, dim]; those of one citing paper are read together."""
    order = np.argsort(reader.corpus.citing[contexts], kind="stable")
    out = np.empty((len(contexts), dim), np.float32)
    out[order] = encode(forward, reader.queries, contexts[order], dim, what)
    return out


class Remembered:
    """Vectors of queries that are asked more than once, as in one pool after the other."""

    def __init__(self) -> None:
        self._known: dict[int, NDArray[np.float32]] = {}

    def of(
        self,
        contexts: NDArray[np.int64],
        make: Callable[[NDArray[np.int64]], Iterable[NDArray[np.float32]]],
    ) -> list[NDArray[np.float32]]:
        """What `make` gives for each of the contexts, or gave before."""
        new = np.array([row for row in dict.fromkeys(contexts.tolist()) if row not in self._known], np.int64)
        if len(new):
            self._known.update(zip(new.tolist(), make(new), strict=True))
        return [self._known[row] for row in contexts.tolist()]


def rounded(length: int) -> int:
    """Padded length: few different shapes, because the matrix library sets up a kernel for each it meets."""
    return -(-length // 8) * 8


def chunks(lengths: NDArray[np.int64], tokens: int) -> Iterator[slice]:
    """Cut rows of falling lengths into runs of at most `tokens` tokens after padding (one row at least)."""
    start = 0
    while start < len(lengths):
        size = max(1, tokens // rounded(int(lengths[start])))
        yield slice(start, start + size)
        start += size


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Without dropout; afterwards the model is in the mode that it was in."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


def weights_hash(model: nn.Module) -> str:
    """A hash of the names, types and values of all weights."""
    digest = hashlib.blake2b(digest_size=16)
    for name, value in sorted(model.state_dict().items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def precision(name: str) -> torch.dtype:
    """float32, bfloat16, or `auto`: bfloat16 where the processor multiplies it faster than float32."""
    known = {"float32": torch.float32, "bfloat16": torch.bfloat16}
    if name in known:
        return known[name]
    if name != "auto":
        raise InputError(f"precision {name}: choose one of auto, {', '.join(known)}")
    if torch.cuda.is_available():
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float32
    return torch.bfloat16 if torch.cpu._is_avx512_bf16_supported() else torch.float32
