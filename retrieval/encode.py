"""Encoding many documents: vectors of unit length, with progress, in bounded memory."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from datasets.atomic import written_whole
from datasets.errors import InputError
from datasets.store import Corpus

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


def encode(
    forward: Callable[[Any], Tensor],
    read: Callable[[NDArray[np.int64]], Any],
    rows: NDArray[np.int64],
    dim: int,
    what: str = "documents",
    parts: Path | None = None,
) -> NDArray[np.float32]:
    """Rows of a corpus to vectors [len(rows), dim] of unit length (zeros for documents without a known word).

    read: `papers` or `queries` of a reader. forward: what it gives -> [B, dim]. parts: as for `encoded`.
    """
    out = np.empty((len(rows), dim), np.float32)
    for part, vectors in encoded(lambda x: F.normalize(forward(x).float(), dim=1), read, rows, what, parts):
        out[part] = vectors
    return out


def encoded(
    forward: Callable[[Any], Tensor],
    read: Callable[[NDArray[np.int64]], Any],
    rows: NDArray[np.int64],
    what: str,
    parts: Path | None = None,
) -> Iterator[tuple[slice, NDArray[np.float32]]]:
    """What `forward` gives for BATCH rows after the other, and which they are.

    parts: a folder for what is done: a run that is cut off and started again goes on from there. It must
    belong to the very same rows and model (see `parts_folder`), and is removed at the end.
    """
    start = said = time.monotonic()
    found = 0
    for first in range(0, len(rows), BATCH):
        part = slice(first, first + BATCH)
        file = parts / f"{first}.npy" if parts is not None else None
        vectors = read_part(file)
        if vectors is None:
            with torch.inference_mode():
                vectors = forward(read(rows[part])).cpu().numpy()
            if file is not None:
                with written_whole(file) as unfinished, unfinished.open("wb") as stream:
                    np.save(stream, vectors)
        else:
            found += len(rows[part])
        yield part, vectors
        now, done = time.monotonic(), min(first + BATCH, len(rows))
        if now - said > SAY_EVERY and done > found:
            said, rate = now, (done - found) / (now - start)
            log.info(
                f"encoded {done:,} of {len(rows):,} {what}, {rate:,.0f}/s, "
                f"{(len(rows) - done) / rate:.0f} s left"
            )
    if parts is not None:
        shutil.rmtree(parts, ignore_errors=True)


def parts_folder(corpus: Corpus, rows: NDArray[np.int64], about: Mapping[str, Any]) -> Path | None:
    """Where to keep what is done of a long encoding: a folder of the cache for these rows and this encoder.

    about: all that vectors depend on beside the corpus. None for rows that are encoded at one go.
    """
    if len(rows) <= BATCH:
        return None
    key = json.dumps([corpus.fingerprint, dict(about)], sort_keys=True).encode()
    digest = hashlib.blake2b(key + np.ascontiguousarray(rows).tobytes(), digest_size=12).hexdigest()
    return Path(os.environ.get("CITATION_CACHE", ".cache")) / "encoding" / digest


def read_part(file: Path | None) -> NDArray[np.float32] | None:
    """What was written to a folder of parts; None if it is not there."""
    try:
        return None if file is None else np.asarray(np.load(file, allow_pickle=False))
    except (OSError, ValueError, EOFError):  # not there, or cut short when the machine went down
        return None


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
