"""Records of the same paper in all parts, merged: what `library.papers.merging` gives, by tasks.

    1. find   per range of hashed keys: rows that share a key             links-R.npy, ids-R.npy
    2. group  rows that are linked by keys: connected components          groups.npy
    3. lead   per batch of groups: the first record of each row's paper   leaders-B.npy
    4. merge  per part: rows to leave out, and merged papers              part-N.removed.npy, .changed.npy and
                                                                          .merged.arrow
Rows are numbered over all parts. Records of one paper are always of one group, so that groups need nothing of
each other. Step 2 cannot be shared: one process holds the links (some 60 bytes for each row that shares a
key, nothing for the others). It also numbers papers whose id is taken.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from citerec.base.files import atomic_write
from citerec.datasets.columns import BATCH_ROWS, TableWriter
from citerec.formats.bibliography.paper import LibraryPaper, merge_records
from citerec.library.disk.reading import SCHEMA, part_path, save_array, to_batch, to_papers
from citerec.library.disk.tasks import TaskRunner
from citerec.library.papers.identities import Identities

KEYS_OF_TASK = 1 << 22
"""Keys, with their rows, that a task compares."""
ROWS_OF_TASK = 1 << 16
"""Rows whose leaders a task finds."""

Rows = NDArray[np.int64]
_TEMPORARY = ("links-*.npy", "ids-*.npy", "leaders-*.npy", "groups.npy", "duplicates.npy", "members.npy")
_RENAMED = pa.schema([("row", pa.int64()), ("id", pa.string())])


def deduplicate(folder: Path, sizes: Sequence[int], run: TaskRunner) -> tuple[list[int], int]:
    """Find and merge records of the same paper. sizes: papers of each part; 0 leaves a part out.

    Returns how many papers of each part remain, and how many records were merged into others.
    """
    starts = np.cumsum([0, *sizes])
    _find(folder, starts, run)
    leaders = _lead(folder, _group(folder), starts, run)
    save_array(folder / "duplicates.npy", leaders)
    save_array(folder / "members.npy", leaders[np.lexsort((leaders[:, 0], leaders[:, 1]))])
    _rename(folder, starts, leaders[:, 0])
    parts = [part for part, size in enumerate(sizes) if size]
    tasks = [(str(folder), starts, part) for part in parts]
    removed = dict(run.map(_merge_part, tasks, "merging parts"))
    for pattern in _TEMPORARY:
        for path in folder.glob(pattern):
            path.unlink()
    (folder / "renamed.arrow").unlink()
    kept = [0] * len(sizes)
    for number, part in enumerate(parts):
        kept[part] = sizes[part] - removed[number]
    return kept, len(leaders)


def kept_batches(folder: Path, part: int) -> Iterator[pa.RecordBatch]:
    """Yield the papers of a part after `deduplicate`, as batches of SCHEMA."""
    removed, changed = (_load(part_path(folder, part, f"{name}.npy")) for name in ("removed", "changed"))
    merged = pa.Table.from_batches(read_batches(part_path(folder, part, "merged.arrow")), SCHEMA)
    first = 0
    for batch in read_batches(part_path(folder, part, "arrow")):
        rows = np.arange(len(batch))
        low, high = np.searchsorted(changed, (first, first + len(batch)))
        if low < high:
            rows[changed[low:high] - first] = len(batch) + np.arange(high - low)
        gone = removed[slice(*np.searchsorted(removed, (first, first + len(batch))))] - first
        first += len(batch)
        rows = np.delete(rows, gone)
        if low < high:
            [together] = (
                pa.Table.from_batches([batch, *merged.slice(low, high - low).to_batches()])
                .combine_chunks()
                .to_batches()
            )
            batch = together
        if not len(rows):
            continue
        yield batch if len(rows) == len(batch) else batch.take(pa.array(rows))


def read_batches(path: Path) -> list[pa.RecordBatch]:
    """Return the batches of an Arrow file, memory-mapped."""
    with pa.memory_map(str(path)) as file:
        reader = pa.ipc.open_file(file)
        return [reader.get_batch(number) for number in range(reader.num_record_batches)]


def _load(path: Path) -> Any:
    return np.load(path, mmap_mode="r")


def _find(folder: Path, starts: Rows, run: TaskRunner) -> None:
    """Write links and repeated ids, by ranges of their hashes."""
    keys = sum(_load(part_path(folder, part, "keys.npy")).size for part in _filled(starts))
    count = max(run.workers, -(-keys // KEYS_OF_TASK))
    bounds = [number * (1 << 64) // count for number in range(count + 1)]
    tasks = [(str(folder), starts, number, low, high) for number, (low, high) in enumerate(pairwise(bounds))]
    for _ in run.map(_find_in_range, tasks, "comparing keys"):
        pass


def _filled(starts: Rows) -> list[int]:
    """Return the numbers of the parts that have rows."""
    return np.flatnonzero(np.diff(starts)).tolist()


def _find_in_range(task: tuple[str, Rows, int, int, int]) -> None:
    """Write the pairs of rows [L, 2] that share a key in a range, and the rows with ids that may collide."""
    folder, starts, number, low, high = Path(task[0]), *task[1:]
    keys, rows = _slices(folder, "keys", starts, low, high)
    order = np.argsort(keys["key"], kind="stable")
    values, rows = keys["key"][order], rows[order]
    same = values[1:] == values[:-1]
    save_array(folder / f"links-{number}.npy", np.stack([rows[:-1][same], rows[1:][same]], axis=1))
    ids, rows = _slices(folder, "ids", starts, low, high)
    save_array(folder / f"ids-{number}.npy", _colliding(ids["stem"], ids["id"], rows))


def _slices(folder: Path, name: str, starts: Rows, low: int, high: int) -> tuple[NDArray[np.void], Rows]:
    """Return the entries of all parts whose first field is in a range, and their rows over all parts."""
    slices, rows = [], []
    for part in _filled(starts):
        entries = _load(part_path(folder, part, f"{name}.npy"))
        first = entries[entries.dtype.names[0]]
        found = np.array(entries[bisect_left(first, low) : bisect_left(first, high)])
        slices.append(found)
        rows.append(found["row"] + starts[part])
    return np.concatenate(slices), np.concatenate(rows)


def _colliding(stems: NDArray[np.uint64], ids: NDArray[np.uint64], rows: Rows) -> NDArray[np.uint64]:
    """Return stem, id and row [C, 3] of the rows whose stem is that of an id that occurs twice."""
    order = np.lexsort((ids, stems))
    stems, ids, rows = stems[order], ids[order], rows[order]
    again = (stems[1:] == stems[:-1]) & (ids[1:] == ids[:-1])
    kept = np.isin(stems, stems[1:][again])
    return np.stack([stems[kept], ids[kept], rows[kept].astype(np.uint64)], axis=1)


def _group(folder: Path) -> Rows:
    """Write the linked rows by group, ascending in each; return where batches of groups begin."""
    links = np.concatenate([np.load(path) for path in folder.glob("links-*.npy")])
    rows, places = np.unique(links, return_inverse=True)
    places = places.reshape(links.shape).astype(np.int32)
    del links
    ones = np.ones(len(places), np.bool_)
    graph = coo_array((ones, (places[:, 0], places[:, 1])), shape=(len(rows), len(rows)))
    _, groups = connected_components(graph, directed=False)
    order = np.argsort(groups, kind="stable")
    save_array(folder / "groups.npy", rows[order])
    ends = np.append(np.flatnonzero(np.diff(groups[order])) + 1, len(rows))
    wanted = np.arange(ROWS_OF_TASK, len(rows), ROWS_OF_TASK)
    return np.unique([0, *ends[np.searchsorted(ends, wanted)], len(rows)])


def _lead(folder: Path, bounds: Rows, starts: Rows, run: TaskRunner) -> Rows:
    """Return row and leader [D, 2] of the records that are merged into others, by row."""
    tasks = [(str(folder), starts, int(low), int(high)) for low, high in pairwise(bounds)]
    for _ in run.map(_lead_groups, tasks, "merging records"):
        pass
    found = [np.load(folder / f"leaders-{low}.npy") for _, _, low, _ in tasks]
    leaders = np.concatenate([np.empty((0, 2), np.int64), *found])
    return leaders[np.argsort(leaders[:, 0])]


def _lead_groups(task: tuple[str, Rows, int, int]) -> None:
    folder, starts, low, high = Path(task[0]), *task[1:]
    rows = np.sort(_load(folder / "groups.npy")[low:high])
    identities = Identities()
    for part, inside in _by_part(rows, starts):
        identities.extend(_load(part_path(folder, part, "identities.npy"))[inside])
    leaders = rows[identities.leaders()]
    others = leaders != rows
    save_array(folder / f"leaders-{low}.npy", np.stack([rows[others], leaders[others]], axis=1))


def _by_part(rows: Rows, starts: Rows) -> Iterator[tuple[int, Rows]]:
    """Yield the parts of ascending rows, with the rows in each."""
    parts = np.searchsorted(starts, rows, side="right") - 1
    for part in np.unique(parts).tolist():
        yield part, rows[slice(*np.searchsorted(parts, (part, part + 1)))] - starts[part]


def _rename(folder: Path, starts: Rows, merged: Rows) -> None:
    """Write the rows whose id an earlier paper has, with new ids: ID-2, ID-3 ... merged: rows left out."""
    found = np.concatenate([np.load(path) for path in folder.glob("ids-*.npy")])
    rows = found[:, 2].astype(np.int64)
    kept = ~_contains(merged, rows)
    colliding = _colliding(found[kept, 0], found[kept, 1], rows[kept])
    rows = np.sort(colliding[:, 2].astype(np.int64))
    seen: set[str] = set()
    with (
        atomic_write(folder / "renamed.arrow") as unfinished,
        closing(TableWriter(unfinished, _RENAMED)) as renamed,
    ):
        first = 0
        for part, inside in _by_part(rows, starts):
            for id in _take(folder, part, inside, ["id"])["id"].to_pylist():
                other, suffix = id, 2
                while other in seen:
                    other, suffix = f"{id}-{suffix}", suffix + 1
                seen.add(other)
                if other != id:
                    renamed.append(int(rows[first]), other)
                first += 1


def _contains(values: Rows, rows: Rows) -> NDArray[np.bool_]:
    """Return a mask of the rows that ascending values contain."""
    if not len(values):
        return np.zeros(len(rows), np.bool_)
    return cast(NDArray[np.bool_], values[np.searchsorted(values, rows).clip(max=len(values) - 1)] == rows)


def _take(folder: Path, part: int, rows: Rows, names: list[str] | None = None) -> pa.Table:
    """Return ascending rows of a part as they were read."""
    taken, first = [], 0
    for batch in read_batches(part_path(folder, part, "arrow")):
        inside = rows[slice(*np.searchsorted(rows, (first, first + len(batch))))] - first
        first += len(batch)
        chosen = batch.select(names) if names else batch
        taken.append(chosen.take(pa.array(inside)))
    return pa.Table.from_batches(taken)  # a part with rows has a batch


def _merge_part(task: tuple[str, Rows, int]) -> int:
    """Write the rows of a part to leave out, and its changed papers; return how many are left out."""
    folder, starts, part = Path(task[0]), *task[1:]
    low, high = int(starts[part]), int(starts[part + 1])
    duplicates, members = _load(folder / "duplicates.npy"), _load(folder / "members.npy")
    removed = _between(duplicates, 0, low, high)[:, 0]
    of_leaders = _between(members, 1, low, high)
    ids = dict[int, str]()
    for batch in read_batches(folder / "renamed.arrow"):
        first, last = np.searchsorted(batch["row"].to_numpy(), (low, high))
        own = batch.slice(first, last - first)
        ids |= dict(zip(own["row"].to_pylist(), own["id"].to_pylist(), strict=True))
    changed = np.union1d(of_leaders[:, 1], np.array([*ids], np.int64))
    with (
        atomic_write(part_path(folder, part, "merged.arrow")) as unfinished,
        pa.ipc.new_file(str(unfinished), SCHEMA) as writer,
    ):
        for first in range(0, len(changed), BATCH_ROWS):
            rows = changed[first : first + BATCH_ROWS]
            merged = _merged(folder, starts, rows, _between(of_leaders, 1, rows[0], rows[-1] + 1))
            named = (paper._replace(id=ids[row]) if row in ids else paper for row, paper in merged)
            writer.write_batch(to_batch([*named]))
    save_array(part_path(folder, part, "changed.npy"), changed - low)
    save_array(part_path(folder, part, "removed.npy"), removed - low)
    return len(removed)


def _merged(folder: Path, starts: Rows, leaders: Rows, members: Rows) -> Iterator[tuple[int, LibraryPaper]]:
    """Yield each leader with its completed paper. members: row and leader [M, 2], by leader."""
    papers = dict[int, LibraryPaper]()
    for part, inside in _by_part(np.union1d(leaders, members[:, 0]), starts):
        found = [paper for batch in _take(folder, part, inside).to_batches() for paper in to_papers(batch)]
        papers |= zip((inside + starts[part]).tolist(), found, strict=True)
    bounds = np.searchsorted(members[:, 1], [*leaders, leaders[-1] + 1]).tolist()
    for leader, (low, high) in zip(leaders.tolist(), pairwise(bounds), strict=True):
        others = map(papers.__getitem__, members[low:high, 0].tolist())
        yield leader, merge_records([papers[leader], *others])


def _between(pairs: Rows, column: int, low: int, high: int) -> Rows:
    """Return the pairs whose column, ascending, is in a range."""
    values = pairs[:, column]
    return np.array(pairs[bisect_left(values, low) : bisect_left(values, high)])
