"""Outputs of a network for papers, stored in a folder by a hash of its inputs.

A paper with unchanged text is never encoded again, whatever else changes. Every `append` writes a file of its
own, atomically: a killed process loses at most the papers of one file, and several may write at once.

    RANDOM.safetensors   keys [n]; vectors [n, D]; subwords, sentences [s, D], words of titles [w, D],
                         and how many of each paper [n]; checksums of them and of the header
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import xxhash
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from citerec.base.errors import DamagedFile, error_text
from citerec.base.files import atomic_write
from citerec.datasets.columns import concat_ranges, offsets_of
from citerec.retrieval.arrays import Floats, Mask

log = logging.getLogger(__name__)

Keys = NDArray[np.uint64]
SUFFIX, NETWORK, CHECKSUM, HEADER = ".safetensors", "network", "checksum", "header"
MANY = 16
"""Number of files from which on `keep` writes them as one."""
MOST = 20_000
"""Maximum papers in memory only: about 160 MB."""
RAGGED = {"subwords": "lengths", "sentences": "counts", "words": "titles"}
"""Arrays with several rows per paper, and the arrays with their numbers."""


@dataclass(frozen=True, eq=False)
class Encoded:
    """Papers [n], by their keys [n].

    vectors: [n, D] float16, of unit length. subwords: what was read, `lengths` [n] of each paper. sentences:
    [s, D] int8, in units of 1 / 127 of unit length, `counts` [n] of each paper. words: of titles, [w, D] in
    the same units, `titles` [n] of each paper.
    """

    keys: Keys
    vectors: NDArray[np.float16]
    subwords: NDArray[np.int32]
    lengths: NDArray[np.int32]
    sentences: NDArray[np.int8]
    counts: NDArray[np.int32]
    words: NDArray[np.int8]
    titles: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.keys)

    @classmethod
    def concat(cls, parts: Sequence[Self]) -> Self:
        names = cls.__dataclass_fields__
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    def take(self, rows: NDArray[np.int64]) -> Encoded:
        """Select papers."""
        return Encoded(
            **{name: getattr(self, name)[rows] for name in ("keys", "vectors", *RAGGED.values())},
            **{name: self.ragged(name, rows) for name in RAGGED},
        )

    def ragged(self, name: str, rows: NDArray[np.int64]) -> NDArray[Any]:
        """An array of RAGGED, for these papers only."""
        ends = self._ends[RAGGED[name]]
        values: NDArray[Any] = getattr(self, name)[concat_ranges(ends[rows], ends[rows + 1])[0]]
        return values

    @cached_property
    def _ends(self) -> dict[str, NDArray[np.int64]]:
        return {name: offsets_of(getattr(self, name)) for name in RAGGED.values()}

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays, by name."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


class VectorStore:
    """The papers in a folder that a network has encoded; those of other networks are not seen.

    Several threads may use one store; those that read wait for none. Without a folder, papers are kept in
    memory.
    """

    def __init__(self, folder: Path | None, network: str, dim: int) -> None:
        """network: names all that vectors depend on besides the papers' texts. dim: D"""
        self.folder, self.network, self.dim = folder, network, dim
        self._places: dict[int, tuple[Encoded, int]] = {}
        self._files, self._own = set[str](), set[str]()
        self._passing: list[Encoded] = []
        self._lock = threading.Lock()
        self.refresh()

    def __len__(self) -> int:
        return len(self._places)

    def refresh(self) -> bool:
        """Read the files that other processes have written; returns whether there are any."""
        with self._lock:
            new = [path for path in self._list() if path.name not in self._files]
            self._files |= {path.name for path in new}
            parts = [part for path in new if (part := self._read(path)) is not None]
            for part in parts:
                self._remember(part)
            return bool(parts)

    def append(self, part: Encoded, write: bool = True) -> None:
        """Keep further papers; their file is on the disk when this returns. write: False keeps them in memory
        only, which the oldest leave when there are more than MOST."""
        if not len(part):
            return
        with self._lock:
            if write and self.folder is not None:
                self._write(self.folder, part)
            else:
                self._passing.append(part)
            self._remember(part)
            while sum(map(len, self._passing)) > MOST:
                self._forget(self._passing.pop(0))

    def keep(self, keys: Iterable[int]) -> None:
        """Remove damaged and other networks' files, and papers with none of these keys; merge many files."""
        if self.folder is None:
            return
        self.refresh()
        with self._lock:
            wanted, files = set(keys), [path for path in self._list() if path.name in self._files]
            stale = any(key not in wanted for key in self._places)
            own = [path for path in files if path.name in self._own]
            if not stale and len(own) == len(files) < MANY:
                return
            rows: dict[Encoded, list[int]] = {}
            for key, (part, row) in self._places.items():
                if key in wanted:
                    rows.setdefault(part, []).append(row)
            parts = [part.take(np.array(kept, np.int64)) for part, kept in rows.items()]
            merged = Encoded.concat(parts) if parts else None
            self._places = (
                {key: (merged, row) for row, key in enumerate(merged.keys.tolist())} if merged else {}
            )
            self._passing = []
            if merged:
                self._write(self.folder, merged)
            for path in files:  # one that was written meanwhile has not been read, and stays
                with suppress(PermissionError):  # Windows: another process reads it; the next call removes it
                    path.unlink(missing_ok=True)
                self._files.discard(path.name)
                self._own.discard(path.name)

    def known(self, keys: Keys, written: bool = False) -> Mask:
        """Which keys [n] have been encoded; written: and are in a file, too."""
        places, passing = self._places, set(self._passing) if written else ()
        mask = ((place := places.get(key)) is not None and place[0] not in passing for key in keys.tolist())
        return np.fromiter(mask, np.bool_, len(keys))

    def vectors(self, keys: Keys) -> Floats:
        """Vectors [n, D] of papers, NaN for those that have not been encoded."""
        vectors = np.full((len(keys), self.dim), np.nan, np.float32)
        for part, rows, places in self._by_part(keys):
            vectors[rows] = part.vectors[places]
        return vectors

    def subwords(self, key: int) -> list[int]:
        """The subwords of a paper; KeyError if it has not been encoded."""
        subwords: list[int] = self._of("subwords", key).tolist()
        return subwords

    def sentences(self, key: int) -> Floats:
        """Vectors [s, D] of a paper's sentences; KeyError if it has not been encoded."""
        return self._of("sentences", key).astype(np.float32) / np.float32(127)

    def papers(self, keys: Keys) -> Iterator[tuple[NDArray[np.int64], Encoded]]:
        """Yield those of papers [n] that have been encoded, file by file: their places, and what is kept."""
        for part, rows, places in self._by_part(keys):
            yield rows, part.take(places)

    def _of(self, name: str, key: int) -> NDArray[Any]:
        part, row = self._places[key]
        return part.ragged(name, np.array([row]))

    def _by_part(self, keys: Keys) -> Iterator[tuple[Encoded, NDArray[np.int64], NDArray[np.int64]]]:
        """Yield parts, rows of `keys` that each has, and their places there."""
        by_part, places = dict[Encoded, list[tuple[int, int]]](), self._places
        for row, key in enumerate(keys.tolist()):
            if place := places.get(key):
                by_part.setdefault(place[0], []).append((row, place[1]))
        for part, pairs in by_part.items():
            rows, own = np.array(pairs, np.int64).T
            yield part, rows, own

    def _remember(self, part: Encoded) -> None:
        for row, key in enumerate(part.keys.tolist()):
            if self._places.get(key, (None,))[0] in (None, *self._passing):
                self._places[key] = part, row

    def _forget(self, part: Encoded) -> None:
        """Remove the papers of a part."""
        for key in part.keys.tolist():
            if self._places.get(key, (None,))[0] is part:
                del self._places[key]

    def _list(self) -> list[Path]:
        return [] if self.folder is None else sorted(self.folder.glob(f"*{SUFFIX}"))

    def _write(self, folder: Path, part: Encoded) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{secrets.token_hex(8)}{SUFFIX}"
        small = np.uint16 if part.subwords.max(initial=0) < 1 << 16 else np.int32
        arrays = {**part.arrays, "subwords": part.subwords.astype(small)}
        with atomic_write(path) as temporary:
            written = {NETWORK: self.network, CHECKSUM: _checksum(arrays)}
            temporary.write_bytes(save(arrays, written | {HEADER: _header(written)}))
        self._files.add(path.name)
        self._own.add(path.name)

    def _read(self, path: Path) -> Encoded | None:
        """Read a file; None if it is another network's, damaged, or gone."""
        try:
            part = read_encoded(path, self.network)
            if part is not None and part.vectors.shape[1] != self.dim:
                raise DamagedFile(f"{path}: damaged (its vectors have another length)")
        except DamagedFile as error:
            log.warning("%s; it is not read", error)
            return None
        if part is not None:
            self._own.add(path.name)
        return part


def check_encoded(folder: Path) -> None:
    """Read all files in a folder, of any network. Raises DamagedFile for the first one that is damaged."""
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        read_encoded(path)


def read_encoded(path: Path, network: str | None = None) -> Encoded | None:
    """Read a file; None if it is gone, or another network's than this. DamagedFile if damaged."""
    try:
        with safe_open(path, "np") as file:
            metadata = file.metadata() or {}
            if metadata.get(HEADER) != _header(metadata):
                raise ValueError("its header has changed")
            if network not in (None, metadata.get(NETWORK)):
                return None
            part = Encoded(**{name: file.get_tensor(name) for name in Encoded.__dataclass_fields__})
        if _checksum(part.arrays) != metadata.get(CHECKSUM):
            raise ValueError("its content has changed")
    except FileNotFoundError:
        return None  # another process merged it
    except (SafetensorError, OSError, ValueError, TypeError) as error:
        raise DamagedFile(f"{path}: damaged ({error_text(error)})") from None
    return replace(part, subwords=part.subwords.astype(np.int32))


def _header(metadata: Mapping[str, str]) -> str:
    """Return the checksum of a header, without which a damaged file looks like another network's."""
    return xxhash.xxh3_64_hexdigest(f"{metadata.get(NETWORK)} {metadata.get(CHECKSUM)}".encode())


def _checksum(arrays: Mapping[str, NDArray[Any]]) -> str:
    state = xxhash.xxh3_64()
    for name in Encoded.__dataclass_fields__:
        array = np.ascontiguousarray(arrays[name])
        state.update(f"{array.dtype} {array.shape}".encode())
        state.update(array.data)
    return state.hexdigest()
