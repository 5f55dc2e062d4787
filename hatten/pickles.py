"""A reader for the two pickles of the reference implementation that runs nothing of what they say.

The published word vectors are a pickled list of words and a pickled NumPy array. Plain `pickle.load` would
call whatever the file names. Here every name in the file is looked up in a table of inert stand-ins: enough
to rebuild a list of str or one numeric array, as NumPy 1 and 2 write them under pickle protocols 0 to 5, and
nothing else. NumPy's own reconstruction is not called either; the array is made from shape, type and bytes
once these have been checked.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NoReturn

import numpy as np

from datasets.errors import InputError

_Order = Literal["<", ">", "|", "="]
_ORDERS: dict[object, _Order] = {"<": "<", ">": ">", "|": "|", "=": "="}


class _Type:
    """A numeric dtype in the making: code from the constructor, byte order from the state."""

    def __init__(self, code: object, *_: object) -> None:
        if not isinstance(code, str):
            raise pickle.UnpicklingError("an array type that is no string")
        dtype = np.dtype(code) if code[:1] in "fiu" and code[1:] in ("1", "2", "4", "8") else None
        if dtype is None:
            raise pickle.UnpicklingError(f"an array of type {code!r}, only numbers are admitted")
        self.dtype: np.dtype[Any] = dtype

    def __setstate__(self, state: object) -> None:
        order = state[1] if isinstance(state, tuple) and len(state) > 1 else None
        # Anything beyond the byte order (sub-arrays, named fields) is not a plain array of numbers.
        if order not in _ORDERS or any(part is not None for part in state[2:5]):  # type: ignore[index]
            raise pickle.UnpicklingError("an array of a structured type")
        self.dtype = self.dtype.newbyteorder(_ORDERS[order])


class _Array:
    """An array in the making: filled by the state (protocols 0 to 4) or from a buffer (protocol 5)."""

    value: np.ndarray[Any, Any] | None = None

    def __setstate__(self, state: object) -> None:
        if not isinstance(state, tuple) or len(state) != 5:
            raise pickle.UnpicklingError("an array whose state is not understood")
        _, shape, kind, fortran, data = state
        self.value = _build(data, kind, shape, "F" if fortran else "C")


def _build(data: object, kind: object, shape: object, order: object) -> np.ndarray[Any, Any]:
    """The array of `shape` in `data`, after checking that the bytes are exactly those it needs."""
    if not isinstance(kind, _Type) or not isinstance(data, bytes | bytearray) or order not in ("C", "F"):
        raise pickle.UnpicklingError("an array whose parts are not type, shape, order and bytes")
    if not isinstance(shape, tuple) or not all(type(n) is int and n >= 0 for n in shape):
        raise pickle.UnpicklingError("an array whose shape is not a tuple of sizes")
    if len(data) != math.prod(shape) * kind.dtype.itemsize:
        raise pickle.UnpicklingError(f"an array of shape {shape} with {len(data)} bytes")
    return np.frombuffer(data, kind.dtype).reshape(shape, order="F" if order == "F" else "C")


class _StandIn:
    """What a name in the file stands for: can be called, takes no state, is no class."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[..., object]) -> None:
        self._call = call

    def __call__(self, *args: object) -> object:
        return self._call(*args)

    def __setstate__(self, state: object) -> NoReturn:
        raise pickle.UnpicklingError("an attempt to change a function")


def _from_buffer(data: object, kind: object, shape: object, order: object, *_: object) -> _Array:
    array = _Array()
    array.value = _build(data, kind, shape, order)
    return array


def _to_bytes(text: object, encoding: object) -> bytes:
    # Protocols 0 to 2 have no bytes: Python writes them as latin-1 text with a call of this.
    if not isinstance(text, str) or encoding != "latin1":
        raise pickle.UnpicklingError("bytes in an unknown encoding")
    return text.encode("latin1")


def _refuse(*_: object) -> NoReturn:
    raise pickle.UnpicklingError("an array made by a direct call")


def _stand_ins() -> dict[tuple[str, str], _StandIn]:
    """The names that a pickled array may mention, fresh for every load."""
    array = _StandIn(_refuse)
    table = {("numpy", "ndarray"): array, ("numpy", "dtype"): _StandIn(_Type)}
    table["_codecs", "encode"] = _StandIn(_to_bytes)
    for core in ("numpy.core", "numpy._core"):  # NumPy 1 and 2
        table[f"{core}.multiarray", "_reconstruct"] = _StandIn(lambda *_: _Array())
        table[f"{core}.numeric", "_frombuffer"] = _StandIn(_from_buffer)
    return table


class _Unpickler(pickle.Unpickler):
    """An unpickler that knows a table of inert names and no other."""

    def __init__(self, file: Any, table: dict[tuple[str, str], _StandIn]) -> None:
        super().__init__(file)
        self._table = table

    def find_class(self, module: str, name: str) -> object:
        try:
            return self._table[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"{module}.{name}, which is not admitted") from None


def _load(path: str | Path, table: dict[tuple[str, str], _StandIn], wanted: str) -> object:
    path = Path(path)
    try:
        with path.open("rb") as file:
            return _Unpickler(file, table).load()
    except FileNotFoundError:
        raise InputError(f"{path}: no such file, a pickle of {wanted} is wanted") from None
    except pickle.UnpicklingError as error:
        raise InputError(f"{path}: refused, the pickle holds {error}; wanted is {wanted}") from None
    except OSError:
        raise
    except Exception as error:  # a broken pickle can raise nearly anything
        raise InputError(
            f"{path}: no readable pickle of {wanted} ({type(error).__name__}: {error})"
        ) from None


def load_word_list(path: str | Path) -> list[str]:
    """The list of str in the pickle at `path`; InputError when it holds anything else."""
    words = _load(path, {}, "a list of words")
    if type(words) is not list or not all(type(word) is str for word in words):
        raise InputError(f"{path}: the pickle does not hold a list of words")
    return words


def load_array(path: str | Path) -> np.ndarray[Any, Any]:
    """The numeric array (read-only) in the pickle at `path`; InputError when it holds anything else."""
    array = _load(path, _stand_ins(), "an array of numbers")
    if not isinstance(array, _Array) or array.value is None:
        raise InputError(f"{path}: the pickle does not hold an array of numbers")
    return array.value
