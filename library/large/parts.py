"""Deduplicated papers of all sources, as numbered parts in a folder: prepared by tasks that share no process.

    1. read         each piece of a source becomes a part (library.large.reading)
    2. deduplicate  records of the same paper are found and merged (library.large.deduplicate)

A killed run goes on: a part whose piece has not changed is not read again. The parts depend on the sources
and the size of pieces alone, never on the number of workers.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import msgspec
import pyarrow as pa

from citerec.datasets.errors import InputError
from citerec.datasets.files import GZIP_MAGIC, disk_errors
from citerec.library.large.deduplicate import deduplicate, kept_batches
from citerec.library.large.reading import SCHEMA as SCHEMA
from citerec.library.large.reading import Piece, ReadPiece, part_path, read_piece
from citerec.library.large.tasks import TaskRunner
from citerec.library.sources.readers import find_sources, recognise
from citerec.library.sources.zotero_places import is_zotero

PIECE_BYTES = 64 << 20
"""Bytes of JSON lines, or of columns of Parquet, that a task reads."""
OnBad = Callable[[InputError], None]


@dataclass(frozen=True)
class Parts:
    """Deduplicated papers of all sources, as numbered parts in a folder."""

    folder: Path
    count: int
    """Number of parts."""
    papers: int
    """Papers after deduplication."""
    duplicates: int
    """Records merged into others."""
    bad: dict[str, int]
    """Number of bad records by file, for files that have any; 0 for a file that was skipped."""
    skipped: dict[str, str]
    """Why a file was skipped, by file."""
    sizes: tuple[int, ...]
    """Papers of each part [count]."""

    def batches(self, part: int) -> Iterator[pa.RecordBatch]:
        """Yield the papers of a part in order, as batches of SCHEMA; merged records are one paper."""
        if self.sizes[part]:
            yield from kept_batches(self.folder, part)


def prepare_parts(
    files: Sequence[str],
    folder: Path,
    *,
    run: TaskRunner,
    bad_parts: str = "refuse",
    on_bad: OnBad = lambda _: None,
    piece_bytes: int = PIECE_BYTES,
) -> Parts:
    """Read sources and merge records of the same paper.

    files: as for `find_sources`. bad_parts: "refuse" raises InputError for a file that is damaged or holds no
    papers, "skip" leaves it out. on_bad: called for the first bad records of each piece, in order.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with disk_errors(folder, "the parts", "folder"):
        pieces = plan_pieces(find_sources(files), piece_bytes)
        found = _read(pieces, folder, run)
        bad, skipped = _judge(found, bad_parts, on_bad)
        kept = [read if read.piece.source not in skipped else ReadPiece(read.piece) for read in found]
        counts, duplicates = deduplicate(folder, [read.papers for read in kept], run)
        for path in folder.glob("part-*"):
            if int(path.name[5:10]) >= len(kept):
                path.unlink()
    return Parts(folder, len(kept), sum(counts), duplicates, bad, skipped, tuple(counts))


def plan_pieces(files: Sequence[str], piece_bytes: int) -> list[Piece]:
    """Return the pieces of files, in order."""
    return [piece for file in files for piece in _pieces_of(file, piece_bytes)]


def _pieces_of(file: str, piece_bytes: int) -> Iterator[Piece]:
    path = Path(file)
    if is_zotero(file):
        yield Piece(file, "whole", 0, -1, str(time.time_ns()))
        return
    stat = path.stat()
    size, version = stat.st_size, f"{stat.st_size} {stat.st_mtime_ns}"
    with path.open("rb") as start:
        is_gzip = start.read(2) == GZIP_MAGIC
    try:
        kind = "lines" if recognise(path) == "lines" else "whole"
    except InputError:
        kind = "whole"  # reading it raises the same
    if kind == "whole" or is_gzip:
        yield Piece(file, kind, 0, -1, version)
        return
    count = max(1, round(size / piece_bytes))
    bounds = [size * number // count for number in range(count + 1)]
    for first, end in pairwise(bounds):
        yield Piece(file, kind, first, end, version)


def _read(pieces: Sequence[Piece], folder: Path, run: TaskRunner) -> list[ReadPiece]:
    """Read the pieces whose part is missing; return what all of them gave."""
    found = [_known(part_path(folder, number, "json"), piece) for number, piece in enumerate(pieces)]
    missing = [number for number, known in enumerate(found) if known is None]
    tasks = [(str(folder), number, pieces[number]) for number in missing]
    for number, read in run.map(read_piece, tasks, "reading pieces"):
        found[missing[number]] = read
    return [read for read in found if read is not None]


def _known(path: Path, piece: Piece) -> ReadPiece | None:
    with suppress(OSError, msgspec.DecodeError):
        known = msgspec.json.decode(path.read_bytes(), type=ReadPiece)
        if known.piece == piece:
            return known
    return None


def _judge(
    found: Sequence[ReadPiece], bad_parts: str, on_bad: OnBad
) -> tuple[dict[str, int], dict[str, str]]:
    """Return the number of bad records by file, and why files are skipped."""
    bad, skipped = Counter[str](), dict[str, str]()
    usable, records = Counter[str](), Counter[str]()
    first: dict[str, str] = {}
    for read in found:
        file = read.piece.source
        unit = "row" if read.piece.kind == "parquet" else "line"
        if read.damage:
            skipped.setdefault(file, read.damage)
        for number, text in read.errors:
            line = text if number < 0 else f"{file}, {unit} {records[file] + number}{text}"
            first.setdefault(file, line)
            on_bad(InputError(line))
        bad[file] += read.bad
        usable[file] += read.usable
        records[file] += read.records
    for file in usable:
        if not usable[file]:
            reason = f": {first[file]}" if file in first else ""
            skipped.setdefault(file, f"{file}: has no usable paper{reason}")
    if skipped and bad_parts == "refuse":
        more = f" (and {len(skipped) - 1:,} more files)" if len(skipped) > 1 else ""
        raise InputError(f"{next(iter(skipped.values()))}{more}; leave such files out with bad_parts=skip")
    return {
        file: 0 if file in skipped else bad[file] for file in bad if file in skipped or bad[file]
    }, skipped
