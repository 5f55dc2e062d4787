"""Read the two pickles of the published word vectors, a word list and an array, without running other code.

A pickle is a program that calls the functions it names: this unpickler finds only those that NumPy 1 and 2
use for arrays.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from citerec.base.errors import InputError, error_text

ALLOWED = {
    "numpy.ndarray",
    "numpy.dtype",
    "_codecs.encode",
    "numpy._core.multiarray._reconstruct",
    "numpy._core.numeric._frombuffer",
}


class _Restricted(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        module = module.replace("numpy.core.", "numpy._core.")  # NumPy 1
        if f"{module}.{name}" not in ALLOWED:
            raise pickle.UnpicklingError(f"it calls {module}.{name}, which is not allowed")
        return super().find_class(module, name)


def _load(path: str | Path, wanted: str) -> Any:
    """Return what is pickled at `path`; InputError if it needs anything but lists, texts and arrays."""
    try:
        content = Path(path).read_bytes()
        for instruction, argument, _ in pickletools.genops(content):
            if instruction.name in ("PUT", "LONG_BINPUT") and int(str(argument)) > len(content):
                # The unpickler would allocate the whole memo.
                raise pickle.UnpicklingError("a memo index larger than the file")
        return _Restricted(io.BytesIO(content)).load()
    except Exception as error:  # a broken pickle can raise nearly anything
        raise InputError(f"{path}: refused: not a pickle of {wanted} ({error_text(error)})") from None


def load_word_list(path: str | Path) -> list[str]:
    """Read the list of str pickled at `path`; InputError if the file holds anything else."""
    words = _load(path, "a list of words")
    if type(words) is not list or not all(type(word) is str for word in words):
        raise InputError(f"{path}: the pickle does not hold a list of words")
    return words


def load_array(path: str | Path) -> NDArray[Any]:
    """Read the numeric array (read-only) pickled at `path`; InputError if the file holds anything else."""
    array = _load(path, "an array of numbers")
    if type(array) is not np.ndarray or array.dtype.kind not in "fiu":
        raise InputError(f"{path}: the pickle does not hold an array of numbers")
    return array
