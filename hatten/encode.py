"""Encoding many documents: vectors of unit length, with progress, in bounded memory."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from datasets.errors import InputError
from hatten.documents import DocumentReader, Documents
from hatten.encoder import HAttenEncoder

log = logging.getLogger(__name__)

BATCH = 1024
"""Documents that are sorted by length together."""
SAY_EVERY = 20.0
"""Seconds between two lines on the progress of long work."""


def encode(
    encoder: HAttenEncoder,
    read: Callable[[NDArray[np.int64]], Documents],
    rows: NDArray[np.int64],
    what: str = "documents",
    hierarchical: NDArray[np.float32] | None = None,
) -> NDArray[np.float32]:
    """Rows of a corpus to vectors [len(rows), D] of unit length (zeros for documents without a known word).

    read: `DocumentReader.papers` or `.queries`. The encoder is left in the mode that it was in.
    hierarchical: where to put what the two levels gave, without the mean path [len(rows), D] (residual=mean).
    """
    out = np.empty((len(rows), encoder.config.dim), np.float32)
    training = encoder.training
    encoder.eval()
    start = said = time.monotonic()
    with torch.inference_mode():
        for first in range(0, len(rows), BATCH):
            part = slice(first, first + BATCH)
            documents = read(rows[part])
            if hierarchical is None:
                vectors = encoder.encode(documents)
            else:
                levels = encoder.hierarchical(documents)
                hierarchical[part] = levels.cpu().numpy()
                vectors = encoder.with_mean(documents, levels)
            out[part] = F.normalize(vectors, dim=1).cpu().numpy()
            now, done = time.monotonic(), min(first + BATCH, len(rows))
            if now - said > SAY_EVERY:
                said, left = now, (now - start) / done * (len(rows) - done)
                log.info(
                    f"encoded {done:,} of {len(rows):,} {what}, "
                    f"{done / (now - start):,.0f}/s, {left:.0f} s left"
                )
    encoder.train(training)
    return out


def encode_queries(
    encoder: HAttenEncoder, reader: DocumentReader, contexts: NDArray[np.int64], what: str = "queries"
) -> NDArray[np.float32]:
    """Contexts [Q] to vectors [Q, D]; those of one citing paper are put together, it is encoded once."""
    order = np.argsort(reader.corpus.citing[contexts], kind="stable")
    out = np.empty((len(contexts), encoder.config.dim), np.float32)
    out[order] = encode(encoder, reader.queries, contexts[order], what)
    return out


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
