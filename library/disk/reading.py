"""One piece of a source becomes one part: papers as an Arrow file, and the numbers to find duplicates by.

    part-00007.arrow           papers in the order of the source: batches of SCHEMA, at most BATCH_ROWS each
    part-00007.identities.npy  formats.same_work.Identity of each paper [n, F]
    part-00007.keys.npy        KEYS: hashed ids, DOIs, arXiv ids and titles with their rows, sorted by key
    part-00007.ids.npy         IDS: hashed ids without and with a number at the end, sorted by the first
    part-00007.json            ReadPiece: what was read; written last, it marks a part as complete

Most records of our own lines take a fast path, which gives what `readers.parse_line` gives.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash
from numpy.typing import NDArray

from citerec.base.errors import InputError, error_text
from citerec.base.files import BYTE_ORDER_MARK, atomic_write, cache_folder, fetch_file, is_url, open_bytes
from citerec.datasets.columns import BATCH_CHARACTERS, BATCH_ROWS
from citerec.formats.bibliography.paper import (
    LibraryPaper,
    clean_text,
    make_paper,
    merge_records,
    usable_paper,
)
from citerec.formats.bibliography.reading.fields import Fields
from citerec.formats.bibliography.reading.own import OwnRecord
from citerec.formats.json_lines import LONGEST, Object, parse_object
from citerec.formats.same_work import is_apart
from citerec.library.papers.identities import Identities
from citerec.library.sources.readers import is_own, parse_line, parse_openalex, read_source, recognise
from citerec.library.sources.zotero_places import is_zotero

SHOWN = 10
"""Maximum number of bad records of a piece to describe."""
_LISTS = ("authors", "collections", "tags", "aliases", "names")
_NOT_STORED = ("source", "filled", "files")
_COLUMNS = tuple(name for name in LibraryPaper._fields if name not in _NOT_STORED)
ParseRecord = Callable[[Fields], LibraryPaper | None]
SCHEMA = pa.schema(
    [
        pa.field(
            name,
            pa.int32() if name == "year" else pa.list_(pa.string()) if name in _LISTS else pa.string(),
            nullable=False,
        )
        for name in _COLUMNS
    ]
)
"""Columns of parts: the fields of LibraryPaper, without those that sources do not give."""
PART_FILES = ("arrow", "identities.npy", "keys.npy", "ids.npy")
KEYS = np.dtype([("key", "<u8"), ("row", "<u4")])
IDS = np.dtype([("stem", "<u8"), ("id", "<u8"), ("row", "<u4")])
_NUMBERED = re.compile(r"(?:-\d+)+$")
"""What a repeated id gets (library.papers.merging), and ids may have of their own."""


class Piece(msgspec.Struct, frozen=True):
    """A file, a range of bytes of JSON lines, or a range of row groups of Parquet."""

    source: str
    kind: str
    """of what: "lines" or "row groups"; else "file", for a whole one of any format"""
    start: int = 0
    end: int = -1
    """exclusive; -1 for the end of the file"""
    version: str = ""
    """of the file: its size and time, or the tag that its store gives it"""
    separate: tuple[str, ...] = ()
    """ids and keys of records that are not merged with others"""


class ReadPiece(msgspec.Struct):
    """What a piece gave."""

    piece: Piece
    papers: int = 0
    records: int = 0
    """Lines or rows read, with the empty ones."""
    usable: int = 0
    """Records of the right form, also of no paper."""
    bad: int = 0
    errors: list[tuple[int, str]] = []
    """Number in the piece (-1 if the text tells where) and text of the first SHOWN bad records."""
    damage: str = ""
    """Why the file cannot be read; then nothing else is known, and nothing is written."""


def part_path(folder: Path, number: int, suffix: str) -> Path:
    """Return the path of a file of a part.

    >>> part_path(Path("parts"), 7, "arrow").name
    'part-00007.arrow'
    """
    return folder / f"part-{number:05d}.{suffix}"


def read_piece(task: tuple[str, int, Piece]) -> ReadPiece:
    """Write a part and describe it. task: folder of the parts, number of the part, its piece."""
    folder, number, piece = Path(task[0]), task[1], task[2]
    found = ReadPiece(piece)
    part_path(folder, number, "json").unlink(missing_ok=True)
    try:
        with atomic_write(part_path(folder, number, "arrow")) as unfinished:
            with _rare_collections(), PartWriter(unfinished, found) as writer:
                _read(piece, writer)
            numbers, ids = writer.numbers(), writer.ids()
    except InputError as error:
        return ReadPiece(piece, damage=str(error))
    save_array(part_path(folder, number, "identities.npy"), numbers)
    save_array(part_path(folder, number, "keys.npy"), _sorted_keys(numbers))
    save_array(part_path(folder, number, "ids.npy"), ids)
    with atomic_write(part_path(folder, number, "json")) as unfinished:
        unfinished.write_bytes(msgspec.json.encode(found))
    return found


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Let Python look for cycles rarely: records have none, and looking takes a fifth of the time."""
    thresholds = gc.get_threshold()
    gc.set_threshold(1 << 17, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


def save_array(path: Path, values: NDArray[Any]) -> None:
    """Write an array atomically."""
    with atomic_write(path) as unfinished, unfinished.open("wb") as file:
        np.save(file, values)


def _sorted_keys(numbers: NDArray[np.uint64]) -> NDArray[np.void]:
    """Return the keys of identities [n, F] as KEYS, sorted."""
    row, kind = np.nonzero(numbers[:, :4])
    keys = np.empty(len(row), KEYS)
    keys["key"], keys["row"] = numbers[row, kind], row
    return keys[np.argsort(keys["key"], kind="stable")]


class PartWriter:
    """Writes the papers of a piece in batches. Use it as a context manager; it then has numbers and ids."""

    def __init__(self, path: Path, found: ReadPiece) -> None:
        self._found = found
        self._file = path.open("wb")
        self._writer = pa.ipc.new_file(self._file, SCHEMA)
        self._identities, self._ids = Identities(), bytearray()
        self._papers: list[LibraryPaper] = []
        self._raw: list[int] = []
        """Records [papers] whose title and abstract are not cleaned yet; -1 if they are."""
        self._errors: list[tuple[int, str]] = []
        self._characters = 0

    def __enter__(self) -> PartWriter:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._flush()
            self._writer.close()
        self._file.close()

    def add(self, paper: LibraryPaper, raw: int = -1) -> None:
        """Add a paper. raw: number of its record, if its title and abstract are as in the record."""
        self._papers.append(paper)
        self._raw.append(raw)
        self._characters += len(paper.abstract) + len(paper.bibtex)
        if len(self._papers) == BATCH_ROWS or self._characters > 4 * BATCH_CHARACTERS:
            self._flush()

    def add_record(self, record: Object, number: int, parse: ParseRecord = parse_line) -> None:
        """Add the paper of a record, if it has one."""
        self._found.usable += 1
        if (own := _own_paper(record)) is not None:
            self.add(own, number)
            return
        for paper in usable_paper(
            partial(parse, Fields(record, "")), "", lambda error: self.add_error(error, number)
        ):
            self.add(paper)

    def end(self, records: int) -> None:
        """Tell how many records, usable or not, the piece has."""
        self._found.records = records

    def add_error(self, error: InputError, number: int = -1) -> None:
        """Count a bad record; `number` -1 if the error tells where it is."""
        self._found.bad += 1
        self._errors.append((number, str(error)))
        if len(self._errors) > BATCH_ROWS:
            self._sort_errors()

    def _sort_errors(self) -> None:
        self._errors.sort(key=lambda error: error[0])
        del self._errors[SHOWN:]

    def numbers(self) -> NDArray[np.uint64]:
        """Return the identities of all papers [n, F]."""
        return self._identities.numbers()

    def ids(self) -> NDArray[np.void]:
        """Return the hashed ids of all papers as IDS, sorted."""
        both = np.frombuffer(self._ids, ">u8").reshape(-1, 2)
        ids = np.empty(len(both), IDS)
        ids["stem"], ids["id"], ids["row"] = both[:, 0], both[:, 1], np.arange(len(both))
        return ids[np.argsort(ids["stem"], kind="stable")]

    def _flush(self) -> None:
        self._clean()
        for paper in self._papers:
            self._identities.add(paper, is_apart(paper, self._found.piece.separate))
            whole = stem = xxhash.xxh3_64_digest(paper.id.encode())
            if "-" in paper.id and paper.id[-1].isdecimal():
                stem = xxhash.xxh3_64_digest(_NUMBERED.sub("", paper.id).encode())
            self._ids += stem + whole
        if self._papers:
            self._writer.write_batch(to_batch(self._papers))
        self._found.papers += len(self._papers)
        self._sort_errors()
        self._found.errors = [*self._found.errors, *self._errors][:SHOWN]
        self._papers, self._raw, self._errors, self._characters = [], [], [], 0

    def _clean(self) -> None:
        """Clean titles and abstracts, and drop papers that have neither."""
        papers, raw = self._papers, self._raw
        for row in unclean_rows([paper.title for paper in papers]):
            if raw[row] >= 0:
                papers[row] = papers[row]._replace(title=clean_text(papers[row].title))
        for row in unclean_rows([paper.abstract for paper in papers]):
            if raw[row] >= 0:
                papers[row] = papers[row]._replace(abstract=clean_text(papers[row].abstract))
        empty = [row for row, paper in enumerate(papers) if not (paper.title or paper.abstract)]
        for row in reversed(empty):
            self.add_error(InputError(": has neither title nor abstract"), raw[row])
            del papers[row], raw[row]


def to_batch(papers: list[LibraryPaper]) -> pa.RecordBatch:
    """Return papers as a batch of SCHEMA."""
    columns = list(zip(*papers, strict=True))
    places = [LibraryPaper._fields.index(name) for name in _COLUMNS]
    arrays = [pa.array(columns[place], field.type) for place, field in zip(places, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def to_papers(batch: pa.RecordBatch) -> list[LibraryPaper]:
    """Return the papers of a batch of SCHEMA."""
    columns = [column.to_pylist() for column in batch.columns]
    for place, name in enumerate(_COLUMNS):
        if name in _LISTS:
            columns[place] = [*map(tuple, columns[place])]
    return [LibraryPaper(**dict(zip(_COLUMNS, row, strict=True))) for row in zip(*columns, strict=True)]


_SPACE, _OTHER = 1, 2
_KINDS = bytearray(256)
"""Kinds of bytes: 0 for those that `clean_text` keeps wherever they are."""
_KINDS[ord(" ")] = _SPACE
for _byte in (
    *range(32),
    127,
    ord("<"),
    ord("&"),
    0xC2,
    0xE1,
    0xE2,
    0xE3,
):  # white space begins with the last in UTF-8
    _KINDS[_byte] = _OTHER


def unclean_rows(texts: list[str]) -> list[int]:
    """Return the rows of texts that `clean_text` may change: no others have mark-up or white space to remove.

    >>> unclean_rows(["clean text", "two  spaces", "", "a < b", "end ", "caf\\u00e9", "no\\u00a0break"])
    [1, 3, 4, 6]
    """
    column = pa.array(texts, pa.large_string())
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int64, len(texts) + 1)
    if not texts or ends[-1] == 0:
        return []
    kinds = np.frombuffer(data.to_pybytes().translate(_KINDS), np.uint8, int(ends[-1]))
    starts, filled = ends[:-1], np.flatnonzero(np.diff(ends))
    found = kinds == _OTHER
    spaces = kinds == _SPACE
    found[1:] |= spaces[1:] & spaces[:-1]
    found[starts[filled]] |= spaces[starts[filled]]
    last = ends[1:][filled] - 1
    found[last] |= spaces[last]
    rows = np.searchsorted(ends, np.flatnonzero(found), side="right") - 1
    return cast(list[int], np.unique(rows).tolist())


def _own_paper(record: Object) -> LibraryPaper | None:
    """Return the paper of one of our own records, title and abstract not cleaned; None if it is unusual."""
    id = record.get("id") or record.get("paper_id")
    is_plain = type(id) is str and id.isascii() and id.isprintable() and " " not in id
    if not is_plain or not is_own(record):
        return None
    try:
        return OwnRecord.read(record, "").paper("", clean=str)
    except InputError:  # is told by reading it in the usual way
        return None


def _read(piece: Piece, writer: PartWriter) -> None:
    """Add the records of a piece to a part. Raises InputError if the file cannot be read."""
    if piece.kind == "row groups" or piece.source.endswith(".parquet"):
        for number, record in enumerate(_rows_of(piece), start=1):
            writer.add_record(record, number, _parse_row)
            writer.end(number)
    elif piece.kind == "lines" or (not is_zotero(piece.source) and recognise(piece.source) == "lines"):
        _read_lines(piece, writer)
    else:
        source = piece.source
        path = fetch_file(source, cache_folder()) if is_url(source) else source
        for number, paper in enumerate(read_source(path, writer.add_error), start=1):
            writer.add(paper)
            writer.end(number)


def _read_lines(piece: Piece, writer: PartWriter) -> None:
    for number, line in enumerate(_lines_of(piece), start=1):
        if number == 1 and piece.start == 0:
            line = line.removeprefix(BYTE_ORDER_MARK)
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError:
            record = None
        if type(record) is dict:
            writer.add_record(record, number)
        elif line.strip():
            try:
                parse_object(line, "")
            except InputError as error:
                writer.add_error(error, number)
        writer.end(number)


def _lines_of(piece: Piece) -> Iterator[bytes]:
    """Yield the lines that begin in a piece."""
    with open_bytes(piece.source) as (raw, _):
        file = BufferedReader(cast(Any, raw), 1 << 20)
        place = piece.start
        if place:
            file.seek(place - 1)
            place += len(file.readline(LONGEST)) - 1
        for line in iter(partial(file.readline, LONGEST), b""):
            if 0 <= piece.end <= place:
                return
            place += len(line)
            if len(line) == LONGEST:
                reason = f"a line is longer than {LONGEST >> 20} MB; a record is one line"
                raise InputError(f"{piece.source}: {reason}")
            yield line


_COLUMNS_READ = {
    *("id", "paper_id", "key", "title", "abstract", "year", "authors", "venue", "journal", "doi", "arxiv"),
    *("url", "bibtex", "collections", "collection", "tags", "keywords", "fields", "field"),
    *("display_name", "abstract_inverted_index", "publication_year", "authorships", "primary_location"),
    *("host_venue", "topics"),
}
_FLAT_OPENALEX = {"display_name", "abstract_inverted_index", "publication_year", "authorships"}


def _rows_of(piece: Piece) -> Iterator[Object]:
    """Yield the rows of a piece of Parquet without their nulls."""
    with opened_parquet(piece.source) as parquet:
        columns = [name for name in parquet.schema_arrow.names if name in _COLUMNS_READ]
        if not {"title", "display_name", "abstract", "abstract_inverted_index"} & {*columns}:
            raise InputError(f"{piece.source}: has no column title, display_name or abstract")
        groups = list(range(piece.start, parquet.num_row_groups if piece.end < 0 else piece.end))
        for batch in parquet.iter_batches(BATCH_ROWS // 8, groups, columns):
            for row in batch.to_pylist():
                yield {name: value for name, value in row.items() if value is not None and value == value}


@contextmanager
def opened_parquet(source: str) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file or URL. Raises InputError if it is none or damaged, also for errors inside."""
    try:
        with open_bytes(source) as (file, _), pq.ParquetFile(file) as parquet:
            yield parquet
    except pa.ArrowException as error:
        raise InputError(f"{source}: damaged Parquet file: {error_text(error)}") from None


def _parse_row(fields: Fields) -> LibraryPaper | None:
    """Parse a row of Parquet: as the same JSON line, or OpenAlex's works with authors and venue as texts."""
    if _FLAT_OPENALEX.isdisjoint(fields.record):
        return parse_line(fields)
    index = fields.record.get("abstract_inverted_index")
    if isinstance(index, str | list):
        try:
            words = orjson.loads(index) if isinstance(index, str) else dict(index)
        except (orjson.JSONDecodeError, TypeError, ValueError):
            raise fields.error("abstract_inverted_index", "must be an object or its JSON") from None
        fields = Fields(fields.record | {"abstract_inverted_index": words}, fields.where)
    paper = parse_openalex(fields)
    flat = make_paper(
        paper.id,
        abstract=fields.text("abstract"),
        authors=fields.texts("authors"),
        year=fields.year(),
        venue=fields.text("venue"),
        arxiv=fields.text("arxiv"),
    )
    return merge_records([paper, flat])
