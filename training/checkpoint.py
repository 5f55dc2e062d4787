"""Torch files of tensors and plain values: written whole or not at all, read without running any code."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

from datasets.errors import InputError, error_text
from datasets.files import atomic_write


def save_torch(content: dict[str, Any], path: Path) -> None:
    """`torch.save` to a file that is whole or not there at all; OSError when the device is full."""
    import torch  # here: who only looks for a file needs none of it

    # Given a path in place of an open file, torch reports a full device as a RuntimeError about positions.
    with atomic_write(path) as unfinished, unfinished.open("wb") as file:
        torch.save(content, file)


def read_torch(path: str | Path) -> dict[str, Any]:
    """A torch file of plain values and tensors; InputError when it is absent, damaged or anything else."""
    import torch

    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such checkpoint") from None
    except Exception as error:  # a damaged file can raise nearly anything, an OSError for a seek too
        if isinstance(error, OSError) and error.filename is not None:
            raise
        said = error_text(error)
        if isinstance(error, pickle.UnpicklingError):  # whose text tells people how to load it unsafely
            said = "it is damaged, or holds other things than tensors and plain values"
        raise InputError(f"{path}: not a torch checkpoint of plain weights ({said})") from None
    if not isinstance(content, dict):
        raise InputError(f"{path}: a checkpoint is a dictionary, this is a {type(content).__name__}")
    return content


def find_saved(path: str | Path, name: str) -> Path:
    """What a training saved as `name`, where the path is its output folder; else the path itself.

    InputError for a folder without it where `name` is that of a file.
    """
    path = Path(path)
    if (path / name).exists():
        return path / name
    if path.is_dir() and Path(name).suffix:
        there = sorted(one.name for one in [*path.glob("*.ckpt")] or path.iterdir())
        raise InputError(f"{path}: there is no {name} in it, but {', '.join(there[:5]) or 'nothing'}")
    return path
