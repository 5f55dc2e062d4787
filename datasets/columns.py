"""Columns of a store: rows of numbers or texts in two flat arrays, and writers for the store's files.

Files are written with plain writes, not through memory maps: a full disk is then an OSError, not a bus error.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from tokenize import TokenError
from typing import Any, BinaryIO, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from citerec.base.errors import DamagedFile, error_text

Ints = NDArray[np.integer]
Item = TypeVar("Item")


@dataclass(frozen=True)
class Ragged:
    """`values` [total] int32 and `offsets` [rows + 1] int64: row i is values[offsets[i]:offsets[i + 1]]."""

    values: NDArray[np.int32]
    offsets: NDArray[np.int64]

    @classmethod
    def from_rows(cls, rows: Sequence[Sequence[int] | Ints]) -> Ragged:
        """
        >>> Ragged.from_rows([[1, 2], [], [3]]).lengths.tolist()
        [2, 0, 1]
        """
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        if any(isinstance(row, np.ndarray) for row in rows):
            values = np.concatenate([np.asarray(row, np.int32) for row in rows])
        else:
            values = np.fromiter(chain.from_iterable(rows), np.int32, int(lengths.sum()))
        return cls(values, offsets_of(lengths))

    @classmethod
    def concat(cls, parts: Sequence[Ragged]) -> Ragged:
        """Concatenate the rows of one or more parts.

        >>> [row.tolist() for row in Ragged.concat([Ragged.from_rows([[1]]), Ragged.from_rows([[], [2]])])]
        [[1], [], [2]]
        """
        lengths = np.concatenate([part.lengths for part in parts])
        return cls(np.concatenate([part.values for part in parts]), offsets_of(lengths))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> NDArray[np.int32]:
        if row < 0:
            row += len(self)
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        return self.values[self.offsets[row] : self.offsets[row + 1]]

    def __iter__(self) -> Iterator[NDArray[np.int32]]:
        return (self.values[a:b] for a, b in zip(self.offsets[:-1], self.offsets[1:], strict=True))

    @property
    def lengths(self) -> NDArray[np.int64]:
        """[rows]"""
        return np.diff(self.offsets)

    def take(self, rows: Ints) -> Ragged:
        """Return the given rows (any order, repeats allowed) as a new Ragged."""
        rows = np.asarray(rows, np.int64)
        if len(rows) and not (rows.min() >= 0 and rows.max() < len(self)):
            raise IndexError(f"rows must be in 0..{len(self) - 1}")
        index, offsets = concat_ranges(self.offsets[rows], self.offsets[rows + 1])
        return Ragged(self.values[index], offsets)

    def padded(self, least: int = 0) -> NDArray[np.int32]:
        """Return the rows as an array [rows, most], with -1 after each; least: minimum number of columns.

        >>> Ragged.from_rows([[1, 2], [], [3]]).padded().tolist()
        [[1, 2], [-1, -1], [3, -1]]
        """
        lengths = self.lengths
        out = np.full((len(self), max(int(lengths.max(initial=0)), least)), -1, np.int32)
        out[np.arange(out.shape[1]) < lengths[:, None]] = self.values
        return out

    def rows_containing(self, values: Sequence[int]) -> NDArray[np.bool_]:
        """Return a mask [rows] of the rows that contain any of the values."""
        mask = np.zeros(len(self), np.bool_)
        mask[np.repeat(np.arange(len(self)), self.lengths)[np.isin(self.values, values)]] = True
        return mask


def offsets_of(lengths: Ints | Sequence[int]) -> NDArray[np.int64]:
    """Convert row lengths [rows] to offsets [rows + 1]."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def concat_ranges(
    starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Concatenate the integers of `n` ranges; also return their offsets [n + 1] in the result.

    >>> [part.tolist() for part in concat_ranges(np.array([5, 0, 2]), np.array([7, 0, 3]))]
    [[5, 6, 2], [0, 2, 2, 3]]
    """
    offsets = offsets_of(ends - starts)
    numbers = np.repeat(starts - offsets[:-1], np.diff(offsets))
    numbers += np.arange(len(numbers))
    return numbers, offsets


def sums_of_ranges(values: NDArray[Any], offsets: NDArray[np.int64]) -> NDArray[Any]:
    """Sum values [total, ...] over n ranges, given by their offsets [n + 1]: [n, ...]; 0 for empty ones.

    >>> sums_of_ranges(np.array([1, 2, 3]), np.array([0, 2, 2, 3])).tolist()
    [3, 0, 3]
    """
    sums = np.zeros((len(offsets) - 1, *values.shape[1:]), values.dtype)
    filled = offsets[:-1] < offsets[1:]
    if filled.any():
        sums[filled] = np.add.reduceat(values, offsets[:-1][filled])
    return sums


def padded_length(length: int) -> int:
    """Round up to a multiple of 8, because the matrix library sets up a kernel for each new shape."""
    return -(-length // 8) * 8


def chunks(lengths: NDArray[np.integer], tokens: int) -> Iterator[slice]:
    """Split rows of descending lengths into slices of at most `tokens` padded tokens (at least one row)."""
    start = 0
    while start < len(lengths):
        size = max(1, tokens // padded_length(int(lengths[start])))
        yield slice(start, start + size)
        start += size


BATCH_ROWS = 8192
CHUNK = 1 << 20
"""Bytes, characters or numbers processed at a time."""


def decode_text(encoded: memoryview) -> str:
    return str(encoded, "utf-8")


class Column(Sequence[Item]):
    """Memory-mapped rows written by `ColumnWriter`: row i is decoded from offsets[i] to offsets[i + 1]."""

    def __init__(self, folder: Path, stem: str, decode: Callable[[memoryview], Item]) -> None:
        """decode: raises ValueError for damage. Raises DamagedFile if lengths or offsets do not agree."""
        self._path, self._decode = folder / f"{stem}.values.npy", decode
        values, self._offsets = load_array(folder, f"{stem}.values"), load_array(folder, f"{stem}.offsets")
        if (
            values.dtype != np.uint8
            or self._offsets.dtype != np.int64
            or values.ndim * self._offsets.ndim != 1
        ):
            raise self._damaged("is of another type")
        ends = self._offsets[[0, -1]].tolist() if len(self._offsets) else []
        if ends != [0, len(values)] or (self._offsets[1:] < self._offsets[:-1]).any():
            raise self._damaged("its rows begin elsewhere")
        self._bytes = values.data

    def __reduce__(self) -> Any:
        """Pickled as its file, which other processes map as well."""
        return Column, (self._path.parent, self._path.name.removesuffix(".values.npy"), self._decode)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    @overload
    def __getitem__(self, row: int | np.integer[Any]) -> Item: ...
    @overload
    def __getitem__(self, row: slice) -> list[Item]: ...
    def __getitem__(self, row: int | np.integer[Any] | slice) -> Item | list[Item]:
        if isinstance(row, slice):
            return [self[i] for i in range(*row.indices(len(self)))]
        try:
            return self._decode(self.encoded(row))
        except ValueError as error:
            raise self._damaged(error_text(error)) from None

    def __iter__(self) -> Iterator[Item]:
        try:
            for first in range(0, len(self), BATCH_ROWS):
                for start, end in pairwise(self._offsets[first : first + BATCH_ROWS + 1].tolist()):
                    yield self._decode(self._bytes[start:end])
        except ValueError as error:
            raise self._damaged(error_text(error)) from None

    def encoded(self, row: int | np.integer[Any]) -> memoryview:
        """Return the bytes of a row."""
        if row < 0:
            row += len(self)
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        return self._bytes[self._offsets[row] : self._offsets[row + 1]]

    def _damaged(self, reason: str) -> DamagedFile:
        return DamagedFile(f"{self._path}: damaged ({reason})")


class ColumnWriter:
    """Writes a Column, row after row: STEM.values.npy [bytes] uint8 and STEM.offsets.npy [rows + 1] int64."""

    def __init__(self, folder: Path, stem: str) -> None:
        self._folder, self._stem, self._offsets = folder, stem, array("q", [0])
        self._file = (folder / f"{stem}.values.npy").open("wb", buffering=CHUNK)
        _write_header(self._file, np.dtype(np.uint8), 0)

    def append(self, row: str | bytes | memoryview) -> None:
        encoded = row.encode() if isinstance(row, str) else row
        self._file.write(encoded)
        self._offsets.append(self._offsets[-1] + len(encoded))

    def close(self) -> None:
        """Complete the files; further calls do nothing."""
        if self._file.closed:
            return
        with self._file:
            self._file.seek(0)
            _write_header(self._file, np.dtype(np.uint8), self._offsets[-1])  # as long as that for 0
        save_arrays(self._folder, **{f"{self._stem}.offsets": np.frombuffer(self._offsets, np.int64)})


def write_texts(folder: Path, stem: str, texts: Iterable[str]) -> None:
    with closing(ColumnWriter(folder, stem)) as writer:
        for text in texts:
            writer.append(text)


class NameWriter:
    """Writes rows of names from a small set: distinct ones to a Column STEM_names, codes to a Ragged STEM."""

    def __init__(self, folder: Path, stem: str) -> None:
        self._folder, self._stem = folder, stem
        self._codes: dict[str, int] = {}
        self._values, self._lengths = array("i"), array("i")

    def append(self, names: tuple[str, ...]) -> None:
        self._values.extend(self._codes.setdefault(name, len(self._codes)) for name in names)
        self._lengths.append(len(names))

    def __len__(self) -> int:
        """Number of distinct names."""
        return len(self._codes)

    def finish(self) -> None:
        write_texts(self._folder, f"{self._stem}_names", self._codes)
        offsets = offsets_of(np.frombuffer(self._lengths, np.int32))
        save_ragged(self._folder, self._stem, Ragged(np.frombuffer(self._values, np.int32), offsets))


class TokenWriter:
    """Tokenises texts and appends their word ids to a raw file, which `finish` turns into a Ragged."""

    def __init__(self, folder: Path, stem: str, tokenize: Callable[[list[str]], Ragged]) -> None:
        """tokenize: returns the ids of texts' words in a word table."""
        self._folder, self._stem, self._tokenize = folder, stem, tokenize
        self._raw = folder / f"{stem}.raw"
        self._file = self._raw.open("wb", buffering=CHUNK)
        self._lengths = array("i")
        self._texts: list[str] = []
        self._characters = 0

    def append(self, text: str) -> None:
        self._texts.append(text)
        self._characters += len(text)
        if self._characters >= CHUNK:
            self._flush()

    def _flush(self) -> None:
        """Tokenise and write the buffered texts."""
        if self._texts:
            tokens = self._tokenize(self._texts)
            self._file.write(np.ascontiguousarray(tokens.values, np.int32).data)
            self._lengths.frombytes(tokens.lengths.astype(np.int32).tobytes())
        self._texts, self._characters = [], 0

    def close(self) -> None:
        """Flush and close the file; further calls do nothing."""
        if self._file.closed:
            return
        with self._file:
            self._flush()

    def chunks(self, rows: NDArray[np.bool_] | None = None) -> Iterator[NDArray[np.int32]]:
        """Yield the ids in chunks, of all rows or of those that the mask `rows` [rows] selects."""
        offsets = self._offsets()
        first = 0
        with self._raw.open("rb") as file:
            while first < len(self._lengths):
                last = max(first + 1, int(np.searchsorted(offsets, offsets[first] + CHUNK, side="right")) - 1)
                ids = np.frombuffer(file.read(4 * int(offsets[last] - offsets[first])), np.int32)
                if rows is not None:
                    ids = ids[np.repeat(rows[first:last], np.diff(offsets[first : last + 1]))]
                yield ids
                first = last

    def _offsets(self) -> NDArray[np.int64]:
        return offsets_of(np.frombuffer(self._lengths, np.int32))

    def finish(self, final: NDArray[np.int32]) -> None:
        """Write values and offsets; `final` maps the ids of the word table to those of the store."""
        offsets = self._offsets()
        with (self._folder / f"{self._stem}.values.npy").open("wb") as file:
            _write_header(file, np.dtype("<i4"), int(offsets[-1]))
            for chunk in self.chunks():
                file.write(final[chunk].astype("<i4", copy=False).data)
        save_arrays(self._folder, **{f"{self._stem}.offsets": offsets})
        self._raw.unlink()


def _write_header(file: BinaryIO, kind: np.dtype[Any], *shape: int) -> None:
    header = {"descr": np.lib.format.dtype_to_descr(kind), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)


def save_arrays(folder: Path, **arrays: NDArray[Any]) -> None:
    """Write each array to NAME.npy."""
    for name, values in arrays.items():
        with (folder / f"{name}.npy").open("wb") as file:
            _write_header(file, values.dtype, *values.shape)
            # ndarray.tofile hides why a write failed.
            file.write(np.ascontiguousarray(values).data)


def load_array(folder: Path, stem: str) -> NDArray[Any]:
    """Memory-map an array written by `save_arrays`. Raises ValueError for damage."""
    path = folder / f"{stem}.npy"
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (EOFError, TokenError) as error:  # NumPy's, for some damaged headers; ValueError for the others
        raise ValueError(f"{path}: {error.args[0]}") from None
    return np.asarray(array)  # slicing an np.memmap is slow


def save_ragged(folder: Path, stem: str, rows: Ragged) -> None:
    """Write STEM.values.npy and STEM.offsets.npy."""
    parts: dict[str, NDArray[Any]] = {f"{stem}.values": rows.values, f"{stem}.offsets": rows.offsets}
    save_arrays(folder, **parts)


def load_ragged(folder: Path, stem: str) -> Ragged:
    """Memory-map a Ragged written by `save_ragged`."""
    return Ragged(load_array(folder, f"{stem}.values"), load_array(folder, f"{stem}.offsets"))


def write_words(
    folder: Path,
    words: Sequence[str],
    tokens: Sequence[tuple[TokenWriter, NDArray[np.bool_] | None]],
) -> None:
    """Write the words and their counts, and finish the token writers with the final word ids.

    words: by id. tokens: each writer with a mask [rows] of the rows to count, None for all. Words are sorted
    by descending count.
    """
    counts = np.zeros(len(words), np.int64)
    for writer, counted in tokens:
        for ids in writer.chunks(counted):
            counts += np.bincount(ids, minlength=len(words))
    order = np.array(sorted(range(len(words)), key=words.__getitem__), np.int64)
    order = order[np.argsort(-counts[order], kind="stable")]
    final = np.empty(len(words), np.int32)
    final[order] = np.arange(len(words), dtype=np.int32)
    for writer, _ in tokens:
        writer.finish(final)
    write_texts(folder, "words", map(words.__getitem__, order.tolist()))
    save_arrays(folder, word_counts=counts[order])
