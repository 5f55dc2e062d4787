"""Array types for signatures, hashes of arrays, and array files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from citerec.datasets.columns import load_array

Rows = NDArray[np.int64]
"""Rows of a corpus's papers or contexts."""
Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]


def array_hash(parts: Mapping[str, NDArray[Any]]) -> str:
    """Hash of arrays and their labels, such as name and type."""
    digest = hashlib.blake2b(digest_size=16)
    for label, array in sorted(parts.items()):
        digest.update(label.encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def load_arrays(folder: Path, *names: str) -> list[NDArray[Any]]:
    """Memory-map arrays written by `save_arrays` (datasets.columns)."""
    return [load_array(folder, name) for name in names]
