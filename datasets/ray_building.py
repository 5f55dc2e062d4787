"""Preparing a corpus over Ray Data: the same store as by one process, byte for byte.

Files are cut between records (datasets.json_cuts). Tasks read the pieces, check the records and cut texts
into words, which they number as they come (datasets.read_pieces). This process takes the pieces in their
order, checks what is between records, gives words their numbers and writes: words are sorted at the end, so
who numbered them first leaves no trace.
"""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from datasets import ray_cluster
from datasets.bad_records import Dropped
from datasets.byte_files import GZIP_MAGIC
from datasets.errors import InputError
from datasets.json_cuts import Piece, cut
from datasets.json_text import OnBytes
from datasets.read_pieces import TEXTS, Read, Work
from datasets.source import Context, Paper
from datasets.store_building import StoreBuilder

log = logging.getLogger(__name__)

PIECE = 1 << 24
"""Bytes of a file that a task reads, at least."""


class OneProcess(Exception):
    """The files are to be read by one process; the message is why."""


class RayStoreBuilder(StoreBuilder):
    """A StoreBuilder whose papers and contexts Ray's tasks read. Use it inside `ray_cluster.connected`.

    Raises OneProcess for a record that cannot be used: one process says what is wrong with it, and where, or
    drops it. Compressed files cannot be cut, and are read by this process.
    """

    def _take_papers(self, path: Path, on_bytes: OnBytes, bad: Dropped) -> None:
        if compressed(path):
            super()._take_papers(path, on_bytes, bad)
            return
        writers = {"title": self._titles, "abstract": self._abstracts}
        self._take_pieces(path, Work(Paper, self._tokenizer, self._field), on_bytes, bad, writers)

    def _take_contexts(self, path: Path, on_bytes: OnBytes, bad: Dropped) -> None:
        if compressed(path):
            super()._take_contexts(path, on_bytes, bad)
            return
        self._take_pieces(path, Work(Context, self._tokenizer), on_bytes, bad, {"text": self._context_tokens})

    def _take_pieces(
        self, path: Path, work: Work, on_bytes: OnBytes, bad: Dropped, writers: dict[str, Any]
    ) -> None:
        take = self._take_paper if work.kind is Paper else self._take_context
        pieces = [vars(piece) for piece in cut(path, PIECE)]
        for row in ray_cluster.each(pieces, partial(_read, work)):
            try:
                piece = Read(work.kind, row)
            except InputError as error:
                raise OneProcess(str(error)) from None
            for record in piece.records():
                if not take(path, record, bad):
                    raise OneProcess(f"{path}, record {record.id!r}: cannot be used")
            numbers = self._words.of_words(piece.words)
            for column in TEXTS[work.kind]:
                values, lengths = piece.tokens(column)
                writers[column].extend(numbers[values], lengths)
            on_bytes(piece.stop)


def compressed(path: Path) -> bool:
    """Whether a file is gzipped."""
    with path.open("rb") as file:
        return file.read(len(GZIP_MAGIC)) == GZIP_MAGIC


def _read(work: Work, batch: dict[str, Any]) -> pa.Table:
    (path,), (start,), (stop,), (last,) = (batch[key] for key in ("path", "start", "stop", "last"))
    return work.of(Piece(str(path), int(start), int(stop), bool(last)))
