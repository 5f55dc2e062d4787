"""Vectors of papers, encoded in shards that stay in the cache and are memory-mapped for search.

Interrupted work goes on where it stopped, and a model never encodes the same papers of a corpus twice.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from citerec.base.checksums import check_checksums, write_checksums
from citerec.base.errors import InputError
from citerec.base.files import atomic_write, cache_folder, disk_errors
from citerec.base.progress import count_progress
from citerec.datasets.corpus import Corpus
from citerec.retrieval.arrays import Floats, Rows
from citerec.retrieval.vectors import VectorTable, as_dtype, first_not_finite

log = logging.getLogger(__name__)

SHARD = 4096
"""Papers per shard, which are encoded in order of length. With arXiv abstracts of at most 512 subwords, 2.9 %
of the tokens are padding (4.7 % with 1,024 papers, 2.1 % with 8,192), but an interruption loses a shard."""

Advance = Callable[[float], None]
"""Progress callback for shares of the work, which sum to 1."""
Encode = Callable[[Rows, Advance], Floats]
"""Encodes papers, rows [n], as vectors [n, D]."""


def load_or_encode(
    corpus: Corpus, rows: Rows, model: Mapping[str, Any], encode: Encode, dtype: str = "float16"
) -> tuple[VectorTable, int]:
    """Return the vectors of papers, rows [n], and how many had to be encoded.

    model: everything the vectors depend on besides the texts, as plain values: a hash of the weights,
    settings. The vectors of a shard or less are not kept.
    Raises InputError for vectors that are not finite, a full disk, and kept vectors that are damaged.
    """
    if len(rows) <= SHARD:
        return VectorTable([_to_stored(encode(rows, lambda share: None), dtype)]), len(rows)
    content = json.dumps([dict(model), corpus.fingerprint, SHARD, dtype], sort_keys=True)
    digest = hashlib.blake2b(content.encode(), digest_size=12)
    digest.update(np.ascontiguousarray(rows, np.int64).data)
    folder = cache_folder() / "vectors" / digest.hexdigest()
    shards = {folder / f"{start:09}.npy": rows[start : start + SHARD] for start in range(0, len(rows), SHARD)}
    missing = {path: part for path, part in shards.items() if not path.is_file()}
    encoded = sum(map(len, missing.values()))
    with disk_errors(folder, "the vectors of papers", "CITATION_CACHE"):
        if missing:
            folder.mkdir(parents=True, exist_ok=True)
            write_checksums(folder, keep=True)  # also forgets those of files that were removed
            start = time.monotonic()
            with count_progress("encoding papers", len(rows), len(rows) - encoded) as advance:
                for path, part in missing.items():
                    vectors = encode(part, lambda share: advance(share * len(part)))  # noqa: B023  (called at once)
                    _write(path, _to_stored(vectors, dtype))
            write_checksums(folder, keep=True)
            seconds = time.monotonic() - start
            log.info(f"encoded {encoded:,} papers in {seconds:,.1f} s, {encoded / seconds:,.1f} papers/s")
        check_checksums(folder, "remove this file and run again to encode its papers")
    # Copy-on-write, because torch warns about read-only arrays.
    return VectorTable([np.asarray(np.load(path, mmap_mode="c")) for path in shards]), encoded


def _to_stored(vectors: Floats, dtype: str) -> NDArray[np.floating]:
    """Convert vectors [n, D] to the stored precision; InputError if one is not finite in it."""
    stored = as_dtype(vectors, dtype)
    if (bad := first_not_finite(stored)) is not None:
        raise InputError(
            f"papers: vector {bad} is not finite as {dtype}; the encoder is damaged or its training diverged"
        )
    return stored


def _write(path: Path, array: NDArray[Any]) -> None:
    """Write a file atomically, even in case of a power failure."""
    with atomic_write(path) as part, part.open("wb") as stream:
        np.save(stream, array)
        stream.flush()
        os.fsync(stream.fileno())
