"""Torch files of tensors and plain values, written atomically and read without running any code."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

from citerec.base.errors import InputError, error_text
from citerec.base.files import atomic_write


def save_torch(content: dict[str, Any], path: Path) -> None:
    """`torch.save`, atomically; OSError when the device is full."""
    import torch

    # Given a path instead of an open file, torch reports a full device as a RuntimeError about positions.
    with atomic_write(path) as unfinished, unfinished.open("wb") as file:
        try:
            torch.save(content, file)
        except RuntimeError as error:  # raised while it ends a file whose writing has failed
            if isinstance(error.__context__, OSError):
                raise error.__context__ from None
            raise


def read_torch(path: str | Path) -> dict[str, Any]:
    """Read a torch file of tensors and plain values; InputError if it is missing, damaged or another kind."""
    import torch

    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise InputError(f"{path}: no such checkpoint") from None
    except Exception as error:  # damaged files raise nearly anything, including OSError for a seek
        if isinstance(error, OSError) and error.filename is not None:
            raise
        reason = error_text(error)
        if isinstance(error, pickle.UnpicklingError):  # its text explains how to load the file unsafely
            reason = "damaged, or contains something other than tensors and plain values"
        raise InputError(f"{path}: not a torch checkpoint of plain weights ({reason})") from None
    if not isinstance(content, dict):
        raise InputError(f"{path}: must contain a dictionary, not a {type(content).__name__}")
    return content
