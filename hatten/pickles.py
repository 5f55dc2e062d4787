"""Read the two pickles of the published word vectors, a word list and an array, without executing them.

A pickle is a program that calls the functions it names. Only the names that NumPy 1 and 2 use for arrays
(protocols 0 to 5) are allowed here, and even those are not called: calls are recorded, and the array is built
from the validated record.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from citerec.datasets.errors import InputError

ALLOWED = {"numpy.ndarray", "numpy.dtype", "_codecs.encode"} | {
    f"numpy.{core}.{name}"
    for core in ("core", "_core")
    for name in ("multiarray._reconstruct", "numeric._frombuffer")
}


class UnsafePickle(pickle.UnpicklingError):
    """Raised for a pickle that holds anything but a list of words or an array of numbers."""


class _Call:
    """The record of a call: an allowed name, its arguments, and the state set on its result."""

    def __init__(self, name: str, args: tuple[Any, ...] = ()) -> None:
        self.name, self.args, self.state = name, args, None

    def __call__(self, *args: Any) -> _Call:
        return _Call(self.name, args)

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _RecordingUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> _Call:
        if f"{module}.{name}" not in ALLOWED:
            raise UnsafePickle(f"{module}.{name}, which is not allowed")
        return _Call(name)


def _to_array(found: object) -> NDArray[Any]:
    order: object
    match found:
        case _Call(name="_reconstruct", state=(_, shape, kind, fortran, data)):
            order = "F" if fortran else "C"
        case _Call(name="_frombuffer", args=(data, kind, shape, order)):
            pass
        case _:
            raise UnsafePickle("no array of numbers")
    match data:  # protocols 0 to 2 write bytes as text
        case _Call(name="encode", args=(str(text), "latin1"), state=None):
            data = text.encode("latin1")
    dtype = _to_dtype(kind)
    if not isinstance(data, bytes | bytearray) or order not in ("C", "F"):
        raise UnsafePickle("an array whose parts are not type, shape, order and bytes")
    if not isinstance(shape, tuple) or not all(type(n) is int and n >= 0 for n in shape):
        raise UnsafePickle("an array whose shape is not a tuple of sizes")
    if len(data) != math.prod(shape) * dtype.itemsize:
        raise UnsafePickle(f"an array of shape {shape} with {len(data)} bytes")
    return np.frombuffer(data, dtype).reshape(shape, order="F" if order == "F" else "C")


def _to_dtype(kind: object) -> np.dtype[Any]:
    match kind:
        case _Call(name="dtype", args=(str(code), *_), state=state):
            if code[:1] not in tuple("fiu") or code[1:] not in ("1", "2", "4", "8"):
                raise UnsafePickle(f"an array of type {code!r}, which is not a number type")
        case _:
            raise UnsafePickle("an array whose parts are not type, shape, order and bytes")
    match state:
        case None:
            return np.dtype(code)
        case (_, "<" | ">" | "|" | "=" as byte_order, None, None, None, *_):
            return np.dtype(code).newbyteorder(byte_order)
    raise UnsafePickle("an array of a structured type")  # with a sub-array or named fields


def _load(path: str | Path, wanted: str) -> Any:
    """Return the list of words or the array in a pickle; InputError if it holds anything else."""
    try:
        content = Path(path).read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; expected a pickle of {wanted}") from None
    try:
        argument: Any
        for instruction, argument, _ in pickletools.genops(content):
            if instruction.name in ("PUT", "LONG_BINPUT") and argument > len(content):
                # The unpickler would allocate the whole memo.
                raise UnsafePickle("a memo index larger than the file")
        found = _RecordingUnpickler(io.BytesIO(content)).load()
        return found if type(found) is list else _to_array(found)
    except UnsafePickle as error:
        raise InputError(f"{path}: refused: the pickle holds {error}; expected {wanted}") from None
    except Exception as error:  # a broken pickle can raise nearly anything
        reason = f"{type(error).__name__}: {error}"
        raise InputError(f"{path}: not a readable pickle of {wanted} ({reason})") from None


def load_word_list(path: str | Path) -> list[str]:
    """Read the list of str pickled at `path`; InputError if the file holds anything else."""
    words = _load(path, "a list of words")
    if type(words) is not list or not all(type(word) is str for word in words):
        raise InputError(f"{path}: the pickle does not hold a list of words")
    return words


def load_array(path: str | Path) -> NDArray[Any]:
    """Read the numeric array (read-only) pickled at `path`; InputError if the file holds anything else."""
    array = _load(path, "an array of numbers")
    if not isinstance(array, np.ndarray):
        raise InputError(f"{path}: the pickle does not hold an array of numbers")
    return array
