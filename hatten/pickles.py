"""The two pickles of the published word vectors, a word list and an array, read without running them.

A pickle is a program that calls what it names. Here it may name only what NumPy 1 and 2 write an array by
(protocols 0 to 5), and nothing is called: calls are recorded, and the array is made of the checked record.
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

from datasets.errors import InputError

ADMITTED = {"numpy.ndarray", "numpy.dtype", "_codecs.encode"} | {
    f"numpy.{core}.{name}"
    for core in ("core", "_core")
    for name in ("multiarray._reconstruct", "numeric._frombuffer")
}


class UnsafePickle(pickle.UnpicklingError):
    """What a pickle holds besides a list of words or an array of numbers."""


class _Call:
    """An admitted name, what it would have been called with, and the state that the result would have got."""

    def __init__(self, name: str, args: tuple[Any, ...] = ()) -> None:
        self.name, self.args, self.state = name, args, None

    def __call__(self, *args: Any) -> _Call:
        return _Call(self.name, args)

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> _Call:
        if f"{module}.{name}" not in ADMITTED:
            raise UnsafePickle(f"{module}.{name}, which is not admitted")
        return _Call(name)


def _array(found: object) -> NDArray[Any]:
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
    dtype = _dtype(kind)
    if not isinstance(data, bytes | bytearray) or order not in ("C", "F"):
        raise UnsafePickle("an array whose parts are not type, shape, order and bytes")
    if not isinstance(shape, tuple) or not all(type(n) is int and n >= 0 for n in shape):
        raise UnsafePickle("an array whose shape is not a tuple of sizes")
    if len(data) != math.prod(shape) * dtype.itemsize:
        raise UnsafePickle(f"an array of shape {shape} with {len(data)} bytes")
    return np.frombuffer(data, dtype).reshape(shape, order="F" if order == "F" else "C")


def _dtype(kind: object) -> np.dtype[Any]:
    match kind:
        case _Call(name="dtype", args=(str(code), *_), state=state):
            if code[:1] not in tuple("fiu") or code[1:] not in ("1", "2", "4", "8"):
                raise UnsafePickle(f"an array of type {code!r}, only numbers are admitted")
        case _:
            raise UnsafePickle("an array whose parts are not type, shape, order and bytes")
    match state:
        case None:
            return np.dtype(code)
        case (_, "<" | ">" | "|" | "=" as byte_order, None, None, None, *_):
            return np.dtype(code).newbyteorder(byte_order)
    raise UnsafePickle("an array of a structured type")  # with a sub-array or named fields


def _load(path: str | Path, wanted: str) -> Any:
    """The list of words or the array in a pickle; InputError when it holds anything else."""
    try:
        content = Path(path).read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; expected a pickle of {wanted}") from None
    try:
        argument: Any
        for instruction, argument, _ in pickletools.genops(content):
            if instruction.name in ("PUT", "LONG_BINPUT") and argument > len(content):
                raise UnsafePickle("a place in its memo that is larger than the file")  # it would be reserved
        found = _Reader(io.BytesIO(content)).load()
        return found if type(found) is list else _array(found)
    except UnsafePickle as refused:
        raise InputError(f"{path}: refused: the pickle holds {refused}; expected {wanted}") from None
    except Exception as error:  # a broken pickle can raise nearly anything
        reason = f"{type(error).__name__}: {error}"
        raise InputError(f"{path}: no readable pickle of {wanted} ({reason})") from None


def load_word_list(path: str | Path) -> list[str]:
    """The list of str in the pickle at `path`; InputError when it holds anything else."""
    words = _load(path, "a list of words")
    if type(words) is not list or not all(type(word) is str for word in words):
        raise InputError(f"{path}: the pickle does not hold a list of words")
    return words


def load_array(path: str | Path) -> NDArray[Any]:
    """The numeric array (read-only) in the pickle at `path`; InputError when it holds anything else."""
    array = _load(path, "an array of numbers")
    if not isinstance(array, np.ndarray):
        raise InputError(f"{path}: the pickle does not hold an array of numbers")
    return array
