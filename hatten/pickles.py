"""The two pickles of the published word vectors, a word list and an array, read without running them.

A pickle is a program that may call whatever it names. Here the few names by which NumPy 1 and 2 write an
array (protocols 0 to 5) are replaced by stand-ins that check what they are given; all others are refused.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datasets.errors import InputError

MOST_CALLS = 8
"""An array takes four; copies made by more could fill the memory."""


class Refused(pickle.UnpicklingError):
    """What a pickle holds besides a list of words or an array of numbers."""


class _Type:
    """The type of an array's numbers: code from the call, byte order from the state."""

    def __init__(self, code: object, *_: object) -> None:
        if not isinstance(code, str) or code[:1] not in tuple("fiu") or code[1:] not in ("1", "2", "4", "8"):
            raise Refused(f"an array of type {code!r}, only numbers are admitted")
        self.dtype: np.dtype[Any] = np.dtype(code)

    def __setstate__(self, state: Any) -> None:
        # Beyond the byte order there are sub-arrays and named fields: not a plain array of numbers.
        if not isinstance(state, tuple) or state[1] not in tuple("<>|=") or any(state[2:5]):
            raise Refused("an array of a structured type")
        self.dtype = self.dtype.newbyteorder(state[1])


class _Array:
    """An array, empty until its state is set (protocols 0 to 4) or made from bytes at once (protocol 5)."""

    def __init__(self, *_: object) -> None:
        self.value: NDArray[Any] | None = None

    def __setstate__(self, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) != 5:
            raise Refused("an array whose state is not understood")
        _, shape, kind, fortran, data = state
        self.fill(data, kind, shape, "F" if fortran else "C")

    def fill(self, data: object, kind: object, shape: object, order: object) -> _Array:
        """Take `data`, after checking that it is exactly the bytes that `shape` needs."""
        if not isinstance(kind, _Type) or not isinstance(data, bytes | bytearray) or order not in ("C", "F"):
            raise Refused("an array whose parts are not type, shape, order and bytes")
        if not isinstance(shape, tuple) or not all(type(n) is int and n >= 0 for n in shape):
            raise Refused("an array whose shape is not a tuple of sizes")
        if len(data) != math.prod(shape) * kind.dtype.itemsize:
            raise Refused(f"an array of shape {shape} with {len(data)} bytes")
        self.value = np.frombuffer(data, kind.dtype).reshape(shape, order="F" if order == "F" else "C")
        return self


def _as_bytes(text: object, codec: object) -> bytes:
    """Protocols 0 to 2 write bytes as text."""
    if not isinstance(text, str) or codec != "latin1":
        raise Refused("bytes in an unknown encoding")
    return text.encode("latin1")


def _array_of_bytes(*given: Any) -> _Array:
    return _Array().fill(*given)


def _refuse(*_: object) -> None:
    raise Refused("an array made in an unknown way")


ADMITTED: dict[str, Callable[..., object]] = {
    "numpy.ndarray": _refuse,  # only named, as the type to make
    "numpy.dtype": _Type,
    "_codecs.encode": _as_bytes,
    **{f"numpy.{core}.multiarray._reconstruct": _Array for core in ("core", "_core")},
    **{
        f"numpy.{core}.numeric._frombuffer": lambda *given: _Array().fill(*given)
        for core in ("core", "_core")
    },
}


class _StandIn:
    """What an admitted name is while a pickle is read: it can be called, and nothing else."""

    def __init__(self, make: Callable[..., object], reader: _Reader) -> None:
        self._make, self._reader = make, reader

    def __call__(self, *given: object) -> object:
        self._reader.calls += 1
        if self._reader.calls > MOST_CALLS:
            raise Refused("more calls than an array takes")
        return self._make(*given)

    def __setstate__(self, state: object) -> None:
        raise Refused("a state for what is no array")


class _Reader(pickle.Unpickler):
    calls = 0

    def find_class(self, module: str, name: str) -> _StandIn:
        if f"{module}.{name}" not in ADMITTED:
            raise Refused(f"{module}.{name}, which is not admitted")
        return _StandIn(ADMITTED[f"{module}.{name}"], self)


def _load(path: str | Path, wanted: str) -> object:
    try:
        content = Path(path).read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path}: no such file, a pickle of {wanted} is wanted") from None
    try:
        argument: Any
        for instruction, argument, _ in pickletools.genops(content):
            if instruction.name in ("PUT", "LONG_BINPUT") and argument > len(content):
                raise Refused("a place in its memo that is larger than the file")  # it would be reserved
        return _Reader(io.BytesIO(content)).load()
    except Refused as refused:
        raise InputError(f"{path}: refused, the pickle holds {refused}; wanted is {wanted}") from None
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
    if not isinstance(array, _Array) or array.value is None:
        raise InputError(f"{path}: the pickle does not hold an array of numbers")
    return array.value
