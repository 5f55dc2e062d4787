"""Preparing a corpus over Ray Data: the same store as by one process, byte for byte.

Files are cut between records (datasets.json_stream). Tasks read the pieces, check the records and cut texts
into words, which they number as they come (datasets.prepare). This process takes the pieces in their
order, checks what is between records, gives words their numbers and writes: words are sorted at the end, so
who numbered them first leaves no trace.

The Ray that work is spread over: the cluster that RAY_ADDRESS names, or one on this machine.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from datasets.bad_records import Dropped
from datasets.errors import InputError
from datasets.files import GZIP_MAGIC
from datasets.json_stream import OnBytes, Piece, cut
from datasets.prepare import TEXTS, Read, StoreBuilder, Work
from datasets.records import Context, Paper

ROOT = Path(__file__).parents[1]
"""The checkout; it must be at the same place on all machines."""


@contextmanager
def connected(processes: int | None = None) -> Iterator[None]:
    """Inside, Ray can be used: the one that is connected already, else one that is left at the end.

    processes: of a Ray that is started on this machine; None: as many as there are cores.
    Raises InputError if Ray is not installed or the cluster cannot be reached.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise InputError(
            f"Ray is not installed ({error}): make install EXTRAS='dev ray', or choose local"
        ) from None
    quiet(ray.data.DataContext.get_current())
    if ray.is_initialized():
        yield
        return
    # Workers find our packages, and our `datasets` before any other, as this process does.
    options: dict[str, Any] = {"runtime_env": {"env_vars": {"PYTHONPATH": str(ROOT)}}}
    if not os.environ.get("RAY_ADDRESS"):
        # Ray's own default, 15, starves workers on a machine on which anything else runs.
        options |= {
            "include_dashboard": False,
            "_system_config": {"worker_niceness": 0},
            "num_cpus": processes,
        }
    try:
        ray.init(logging_level=logging.WARNING, **options)
    except Exception as error:  # where one cannot be started, Ray raises nothing more special
        where, reason = os.environ.get("RAY_ADDRESS", ""), " ".join(str(error).split())[:300]
        raise InputError(
            f"RAY_ADDRESS={where}: Ray cannot be {'joined' if where else 'started'}: {reason}"
        ) from None
    try:
        yield
    finally:
        ray.shutdown()


def quiet(context: Any) -> None:
    """Ray Data without bars and reports of its own; results come in the order of what they are made of."""
    context.execution_options.preserve_order = True
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    logging.getLogger("ray.data").setLevel(logging.WARNING)


def each(items: list[dict[str, Any]], work: Callable[..., Any], **options: Any) -> Iterator[Any]:
    """What `work` makes of each item, an Arrow table of a row, in their order; few are held at a time.

    work: takes a batch of one item {key: [value]}. options: of `ray.data.Dataset.map_batches`. Inside
    `connected`.
    """
    import ray.data

    given = ray.data.from_items(items, override_num_blocks=len(items))
    made = given.map_batches(work, batch_size=1, **options)
    table: Any
    for table in made.iter_batches(batch_size=None, batch_format="pyarrow"):
        for row in range(len(table)):
            yield {name: table.column(name)[row] for name in table.column_names}


log = logging.getLogger(__name__)

PIECE = 1 << 24
"""Bytes of a file that a task reads, at least."""


class OneProcess(Exception):
    """The files are to be read by one process; the message is why."""


class RayStoreBuilder(StoreBuilder):
    """A StoreBuilder whose papers and contexts Ray's tasks read. Use it inside `connected`.

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
        for row in each(pieces, partial(_read, work)):
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
