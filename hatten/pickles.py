"""A reader for the two pickles of the reference implementation that runs nothing of what they say.

The published word vectors are a pickled list of words and a pickled NumPy array. A pickle is a program: plain
`pickle.load` calls whatever it names. Here the program is walked through by an interpreter that knows text,
numbers, bytes, lists and tuples, and the few names by which NumPy 1 and 2 write an array (protocols 0 to 5).
Those are looked up and not called: the array is made from type, shape and bytes once they have been checked.
Every other name or instruction ends the reading. Memory stays within a small multiple of the file.
"""

from __future__ import annotations

import math
import pickletools
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from datasets.errors import InputError

ORDERS = ("<", ">", "|", "=")
MOST_CALLS = 8
"""An array takes four; copies made by more calls could fill the memory."""

PLAIN = {  # instructions that push their argument
    *("UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"),
    *("SHORT_BINBYTES", "BINBYTES", "BINBYTES8", "BYTEARRAY8"),
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4"),
}
CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
NAMES = {
    "numpy ndarray": "array type",
    "numpy dtype": "number type",
    "_codecs encode": "bytes",  # protocols 0 to 2 write bytes as text and a call of this
    "numpy.core.multiarray _reconstruct": "array",  # NumPy 1
    "numpy._core.multiarray _reconstruct": "array",  # NumPy 2
    "numpy.core.numeric _frombuffer": "array from bytes",
    "numpy._core.numeric _frombuffer": "array from bytes",
}


class Refused(Exception):
    """What the pickle holds besides a list of words or an array of numbers."""


class _Name:
    """An admitted name, as something that can only be looked at."""

    def __init__(self, name: str) -> None:
        if name not in NAMES:
            raise Refused(f"{name.replace(' ', '.')}, which is not admitted")
        self.means = NAMES[name]


class _Type:
    """The type of an array's numbers: code from the call, byte order from the state."""

    def __init__(self, code: object) -> None:
        if not isinstance(code, str) or code[:1] not in tuple("fiu") or code[1:] not in ("1", "2", "4", "8"):
            raise Refused(f"an array of type {code!r}, only numbers are admitted")
        self.dtype: np.dtype[Any] = np.dtype(code)

    def set(self, state: object) -> None:
        # Beyond the byte order there are sub-arrays and named fields: not a plain array of numbers.
        if (
            not isinstance(state, tuple)
            or state[1] not in ORDERS
            or any(part is not None for part in state[2:5])
        ):
            raise Refused("an array of a structured type")
        self.dtype = self.dtype.newbyteorder(state[1])


class _Array:
    """An array, empty until its state is set (protocols 0 to 4) or made from bytes at once (protocol 5)."""

    value: NDArray[Any] | None = None

    def set(self, state: object) -> None:
        if not isinstance(state, tuple) or len(state) != 5:
            raise Refused("an array whose state is not understood")
        _, shape, kind, fortran, data = state
        self.fill(data, kind, shape, "F" if fortran else "C")

    def fill(self, data: object, kind: object, shape: object, order: object) -> None:
        """Take `data`, after checking that it is exactly the bytes that `shape` needs."""
        if not isinstance(kind, _Type) or not isinstance(data, bytes | bytearray) or order not in ("C", "F"):
            raise Refused("an array whose parts are not type, shape, order and bytes")
        if not isinstance(shape, tuple) or not all(type(n) is int and n >= 0 for n in shape):
            raise Refused("an array whose shape is not a tuple of sizes")
        if len(data) != math.prod(shape) * kind.dtype.itemsize:
            raise Refused(f"an array of shape {shape} with {len(data)} bytes")
        self.value = np.frombuffer(data, kind.dtype).reshape(shape, order="F" if order == "F" else "C")


def _call(name: object, arguments: object) -> object:
    """What a call of an admitted name with these arguments stands for."""
    if not isinstance(name, _Name) or not isinstance(arguments, tuple):
        raise Refused("a call of something that is no admitted name")
    if name.means == "number type":
        return _Type(arguments[0])
    if name.means == "array":
        return _Array()
    if name.means == "array from bytes":
        array = _Array()
        array.fill(*arguments)
        return array
    if name.means == "bytes" and isinstance(arguments[0], str) and arguments[1:] == ("latin1",):
        return arguments[0].encode("latin1")
    raise Refused(f"a call that makes {name.means} in an unknown way")


def _interpret(file: BinaryIO) -> object:
    """The value that the pickle in `file` describes."""
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[int, Any] = {}
    calls = 0

    def since_mark() -> list[Any]:
        place = marks.pop()
        items = stack[place:]
        del stack[place:]
        return items

    name: str
    argument: Any
    for instruction, argument, _ in pickletools.genops(file):
        name = instruction.name
        if name in PLAIN:
            stack.append(argument)
        elif name == "MEMOIZE":
            memo[len(memo)] = stack[-1]
        elif name in ("BINPUT", "LONG_BINPUT", "PUT"):
            memo[argument] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET", "GET"):
            stack.append(memo[argument])
        elif name in ("APPEND", "APPENDS"):
            items = [stack.pop()] if name == "APPEND" else since_mark()
            if type(stack[-1]) is not list:
                raise Refused("something appended to what is no list")
            stack[-1] += items
        elif name == "MARK":
            marks.append(len(stack))
        elif name in CONSTANTS:
            stack.append(CONSTANTS[name])
        elif name in TUPLES:
            stack[-TUPLES[name] :] = [tuple(stack[-TUPLES[name] :])]
        elif name == "TUPLE":
            stack.append(tuple(since_mark()))
        elif name in ("EMPTY_LIST", "LIST"):
            stack.append([] if name == "EMPTY_LIST" else since_mark())
        elif name == "GLOBAL":
            stack.append(_Name(argument))
        elif name == "STACK_GLOBAL":
            attribute, module = stack.pop(), stack.pop()
            stack.append(_Name(f"{module} {attribute}"))
        elif name == "REDUCE":
            calls += 1
            if calls > MOST_CALLS:
                raise Refused("more calls than an array takes")
            arguments = stack.pop()
            stack.append(_call(stack.pop(), arguments))
        elif name == "BUILD":
            state = stack.pop()
            if not isinstance(stack[-1], _Type | _Array):
                raise Refused("a state for what is no array")
            stack[-1].set(state)
        elif name == "STOP":
            (value,) = stack
            return value
        elif name not in ("PROTO", "FRAME"):
            raise Refused(f"the instruction {name}")
    raise Refused("no end")


def _load(path: str | Path, wanted: str) -> object:
    path = Path(path)
    try:
        with path.open("rb") as file:
            return _interpret(file)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file, a pickle of {wanted} is wanted") from None
    except Refused as refused:
        raise InputError(f"{path}: refused, the pickle holds {refused}; wanted is {wanted}") from None
    except OSError:
        raise
    except Exception as error:  # a broken pickle can raise nearly anything
        raise InputError(
            f"{path}: no readable pickle of {wanted} ({type(error).__name__}: {error})"
        ) from None


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
