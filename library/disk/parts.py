"""Deduplicated papers of all sources, as numbered parts in a folder: prepared by tasks that share no process.

    1. read         each piece of a source becomes a part (library.disk.reading)
    2. deduplicate  records of the same paper are found and merged (library.disk.deduplicate)

A killed run goes on: a part whose piece has not changed is not read again. The parts depend on the sources
and the size of pieces alone, never on the number of workers.
"""

from __future__ import annotations

import glob
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import msgspec
import pyarrow as pa

from citerec.base.errors import InputError, error_text
from citerec.base.files import atomic_write, file_lock, is_url, open_bytes
from citerec.library.disk.deduplicate import deduplicate, kept_batches
from citerec.library.disk.reading import PART_FILES, Piece, ReadPiece, opened_parquet, part_path, read_piece
from citerec.library.disk.reading import SCHEMA as SCHEMA
from citerec.library.disk.tasks import TaskRunner
from citerec.library.sources.readers import FOLDER_SUFFIXES, find_sources, is_file_of_papers, recognise
from citerec.library.sources.zotero_places import is_zotero

SUFFIXES = (*FOLDER_SUFFIXES, ".parquet", ".gz")
"""Suffixes of the files to read when a source is a folder: dumps have names such as part_000.gz."""
MERGED = "merged.json"
"""Content: Merged; written last."""
T = TypeVar("T")
PIECE_BYTES = 64 << 20
MOST_PIECES = 1024
"""Merging looks from each part into each other one, so that their number must stay small."""
OnBad = Callable[[InputError], None]


class Merged(msgspec.Struct):
    """Result of deduplicating the parts with a digest."""

    digest: str
    sizes: list[int]
    duplicates: int


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
    piece_bytes: int = 0,
    separate: Sequence[str] = (),
) -> Parts:
    """Read sources and merge records of the same paper; another process that does so is waited for.

    files: as for `find_sources`, also URLs of files, folders and patterns. bad_parts: "refuse" raises
    InputError for a file that is damaged or holds no papers, "skip" leaves it out. on_bad: called for the
    first bad records of each piece, in order. piece_bytes: as for `plan_pieces`. separate: ids and keys of
    records that are not merged with others.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with file_lock(folder / "parts.lock", "prepares the same parts"):
        _remove_unfinished(folder)
        pieces = plan_pieces(files, piece_bytes)
        if separate:
            pieces = [msgspec.structs.replace(piece, separate=tuple(separate)) for piece in pieces]
        found = _read(pieces, folder, run)
        bad, skipped = _judge(found, bad_parts, on_bad)
        sizes = [0 if read.piece.source in skipped else read.papers for read in found]
        digest = blake2b(msgspec.json.encode([found, sizes]), digest_size=8).hexdigest()
        merged = _known(folder / MERGED, Merged)
        if merged is None or merged.digest != digest:
            (folder / MERGED).unlink(missing_ok=True)
            merged = Merged(digest, *deduplicate(folder, sizes, run))
            with atomic_write(folder / MERGED) as unfinished:
                unfinished.write_bytes(msgspec.json.encode(merged))
        for path in folder.glob("part-*"):
            if int(path.name.removeprefix("part-").partition(".")[0]) >= len(found):
                path.unlink()
        _remove_unfinished(folder)
    kept = tuple(merged.sizes)
    return Parts(folder, len(kept), sum(kept), merged.duplicates, bad, skipped, kept)


def _remove_unfinished(folder: Path) -> None:
    """Remove the temporary files of killed workers (`atomic_write`)."""
    for path in folder.glob(".*.*"):
        path.unlink(missing_ok=True)


def plan_pieces(names: Sequence[str], piece_bytes: int = 0) -> list[Piece]:
    """Return the pieces of sources, in order. Raises InputError for a name without files.

    piece_bytes: of JSON lines or of columns of Parquet; 0 chooses PIECE_BYTES, or twice, four times ... as
    many if there would be more than MOST_PIECES.
    """
    files = dict[str, None]()
    for name in names:
        is_remote = is_url(name) and not is_zotero(name)
        found = _remote_files(name) if is_remote else find_sources([name], suffixes=SUFFIXES)
        files |= dict.fromkeys(found)
    described = {file: _describe(file) for file in files}
    total = sum(size for size, _ in described.values())
    piece_bytes = piece_bytes or PIECE_BYTES << (total // (PIECE_BYTES * MOST_PIECES)).bit_length()
    return [piece for file, known in described.items() for piece in _pieces_of(file, *known, piece_bytes)]


def _remote_files(url: str) -> list[str]:
    """Return the URLs of the files of papers at a URL, which may be a folder or a pattern."""
    from fsspec.core import url_to_fs

    try:
        system, root = url_to_fs(url)
        if glob.has_magic(root):
            found = sorted(system.glob(root))
        elif system.isdir(root):
            found = [path for path in sorted(system.find(root)) if is_file_of_papers(path, SUFFIXES)]
        else:
            found = [root] if system.exists(root) else []
        files = [str(system.unstrip_protocol(path)) for path in found]
    except Exception as error:  # each file system raises its own exceptions
        raise InputError(f"{url}: cannot be read: {error_text(error)}") from None
    if not files:
        raise InputError(f"{url}: no such file, or no files of papers in it")
    return files


def _pieces_of(file: str, size: int, version: str, piece_bytes: int) -> Iterator[Piece]:
    is_parquet = file.endswith(".parquet")
    whole = Piece(file, "file", version=version)
    if size < 2 * piece_bytes or (not is_parquet and not _is_splittable(file)):
        yield whole
        return
    kind = "row groups" if is_parquet else "lines"
    try:
        bounds = _row_groups(file, piece_bytes) if is_parquet else _byte_ranges(size, piece_bytes)
    except InputError:  # which reading it raises again
        yield whole
        return
    for start, end in pairwise(bounds):
        yield Piece(file, kind, start, end, version)


def _describe(file: str) -> tuple[int, str]:
    """Return the size and version of a source."""
    if is_zotero(file):
        return 0, str(time.time_ns())  # its papers change without the file
    if not is_url(file):
        stat = Path(file).stat()
        return stat.st_size, f"{stat.st_size} {stat.st_mtime_ns}"
    from fsspec.core import url_to_fs

    system, path = url_to_fs(file)
    return system.size(path) or 0, str(system.ukey(path))


def _is_splittable(file: str) -> bool:
    """True for JSON lines that are not gzipped."""
    with open_bytes(file) as (content, raw):
        if content is not raw:
            return False
    try:
        return recognise(file) == "lines"
    except InputError:
        return False


def _byte_ranges(size: int, piece_bytes: int) -> list[int]:
    count = size // piece_bytes
    return [size * number // count for number in range(count + 1)]


def _row_groups(file: str, piece_bytes: int) -> list[int]:
    """Return the first row group of each piece of a Parquet file, and the number of all."""
    bounds, size = [0], 0
    with opened_parquet(file) as parquet:
        metadata = parquet.metadata
        for number in range(metadata.num_row_groups):
            size += metadata.row_group(number).total_byte_size
            if size >= piece_bytes or number == metadata.num_row_groups - 1:
                bounds.append(number + 1)
                size = 0
    return bounds


def _read(pieces: Sequence[Piece], folder: Path, run: TaskRunner) -> list[ReadPiece]:
    """Read the pieces whose part is missing; return what all of them gave."""
    found = [_known_part(folder, number, piece) for number, piece in enumerate(pieces)]
    missing = [number for number, known in enumerate(found) if known is None]
    tasks = [(str(folder), number, pieces[number]) for number in missing]
    for number, read in run.map(read_piece, tasks, "reading pieces"):
        found[missing[number]] = read
    return [read for read in found if read is not None]


def _known_part(folder: Path, number: int, piece: Piece) -> ReadPiece | None:
    known = _known(part_path(folder, number, "json"), ReadPiece)
    is_whole = all(part_path(folder, number, suffix).exists() for suffix in PART_FILES)
    return known if known is not None and known.piece == piece and is_whole else None


def _known(path: Path, kind: type[T]) -> T | None:
    """Return what a file of a former run describes; None if it is missing or damaged."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError):
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
        unit = "row" if file.endswith(".parquet") else "line"
        if read.damage:
            skipped.setdefault(file, read.damage)
        for number, text in read.errors:
            line = text if number < 0 else f"{file}, {unit} {records[file] + number}{text}"
            first.setdefault(file, line)
            on_bad(InputError(line))
        bad[file] += read.bad
        usable[file] += read.usable or read.papers
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
