"""Arrays: types that signatures name, and files of arrays."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datasets.columns import Ragged

Rows = NDArray[np.int64]
"""Rows of a corpus's papers or contexts."""
Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]


def hash_of(parts: Mapping[str, NDArray[Any]]) -> str:
    """A hash of arrays and of what is said of each, such as its name and type."""
    digest = hashlib.blake2b(digest_size=16)
    for said, array in sorted(parts.items()):
        digest.update(said.encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def save_arrays(folder: Path, **arrays: NDArray[Any]) -> None:
    """Write each array to NAME.npy."""
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)


def load_arrays(folder: Path, *names: str) -> list[NDArray[Any]]:
    """What `save_arrays` wrote, mapped."""
    return [np.asarray(np.load(folder / f"{n}.npy", mmap_mode="r", allow_pickle=False)) for n in names]


def save_ragged(folder: Path, name: str, rows: Ragged) -> None:
    """Write NAME.values.npy and NAME.offsets.npy."""
    parts: dict[str, NDArray[Any]] = {f"{name}.values": rows.values, f"{name}.offsets": rows.offsets}
    save_arrays(folder, **parts)


def load_ragged(folder: Path, name: str) -> Ragged:
    """What `save_ragged` wrote, mapped."""
    return Ragged(*load_arrays(folder, f"{name}.values", f"{name}.offsets"))
