"""Files of papers and citations to the columns of a graph, in bounded memory.

References are spooled to a file while the papers are read, and found among the ids when all are known: memory
holds the ids, and a number for each citation.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from numpy.typing import NDArray

from datasets.citations.paper_lines import read_paper_lines
from datasets.errors import InputError
from datasets.progress import reading
from datasets.ragged import offsets_of
from datasets.writing import NameWriter, TextWriter, save_array

COUNTS = "graph.json"
"""Written last: where it stands, the graph is whole."""
BATCHES = 128
"""Batches of references (8,192 each) that are looked up together."""


def build(folder: Path, files: Sequence[Path], distractors: Sequence[Path], citations: Path | None) -> None:
    """Write the columns of datasets.citations.graph.CitationGraph into an empty folder."""
    years, abstracts, references = array("i"), array("i"), array("i")
    titled, distracting = bytearray(), bytearray()
    fields = NameWriter(folder, "fields")
    ids, spool = TextWriter(folder / "ids.arrow", ("id",)), TextWriter(folder / "spool.arrow", ("id",))
    try:
        for path in [*files, *distractors]:
            with reading(path, path.name) as on_bytes:
                for paper in read_paper_lines(path, on_bytes):
                    ids.append(paper.id)
                    years.append(paper.year)
                    titled.append(bool(paper.title))
                    abstracts.append(len(paper.abstract))
                    fields.append(paper.fields)
                    distracting.append(path not in files)
                    references.append(len(paper.references))
                    for reference in paper.references:
                        spool.append(reference)
    finally:
        ids.close()
        spool.close()
    if not years:
        raise InputError(f"{files[0]}: no papers")
    known = _column(folder / "ids.arrow")
    _check_twice(known, [*files, *distractors])
    citing = np.repeat(np.arange(len(years), dtype=np.int64), np.frombuffer(references, np.int32))
    cited = np.concatenate([np.empty(0, np.int64), *_found(_batches(folder / "spool.arrow"), known)])
    if citations is not None:
        more = list(_pairs(citations, known))
        citing, cited = (
            np.concatenate([whole, *(pair[side] for pair in more)])
            for side, whole in enumerate((citing, cited))
        )
    there = (citing >= 0) & (cited >= 0)
    unknown = int(np.count_nonzero(~there))
    keys = np.unique((citing[there] << 32 | cited[there])[citing[there] != cited[there]])
    save_array(folder, "cites.values", (keys & 0xFFFF_FFFF).astype(np.int32))
    save_array(folder, "cites.offsets", offsets_of(np.bincount(keys >> 32, minlength=len(years))))
    save_array(folder, "years", np.frombuffer(years, np.int32))
    save_array(folder, "abstract_lengths", np.frombuffer(abstracts, np.int32))
    save_array(folder, "titled", np.frombuffer(titled, np.bool_))
    save_array(folder, "is_distractor", np.frombuffer(distracting, np.bool_))
    fields.finish()
    (folder / "spool.arrow").unlink()
    (folder / COUNTS).write_text(json.dumps({"papers": len(years), "unknown": unknown}) + "\n", "utf-8")


def _column(path: Path) -> pa.Array:
    with pa.memory_map(str(path)) as file:
        return pa.ipc.open_file(file).read_all().column(0).combine_chunks()


def _batches(path: Path) -> Iterator[pa.Array]:
    """The ids of a spool, many at a time."""
    with pa.memory_map(str(path)) as file:
        reader = pa.ipc.open_file(file)
        for first in range(0, reader.num_record_batches, BATCHES):
            last = min(first + BATCHES, reader.num_record_batches)
            yield pa.chunked_array(
                [reader.get_batch(i).column(0) for i in range(first, last)]
            ).combine_chunks()


def _found(columns: Iterator[pa.Array], known: pa.Array) -> Iterator[NDArray[np.int64]]:
    """The rows of ids; -1 for those that are not known."""
    for column in columns:
        rows = pc.index_in(column, value_set=known)
        yield pc.fill_null(rows, -1).to_numpy(zero_copy_only=False).astype(np.int64)


def _check_twice(known: pa.Array, files: Sequence[Path]) -> None:
    first = pc.index_in(known, value_set=known).to_numpy(zero_copy_only=False)
    again = np.flatnonzero(first != np.arange(len(known)))
    if len(again):
        names = ", ".join(map(str, files))
        more = f" (and {len(again) - 1:,} more)" if len(again) > 1 else ""
        raise InputError(f"{names}: the paper {known[int(again[0])].as_py()!r} is there twice{more}")


def _pairs(path: Path, known: pa.Array) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Rows of citing and cited papers in a table of two columns, -1 where they are not known."""
    names = ["citing", "cited"]
    try:
        table = pyarrow.csv.open_csv(
            path,
            read_options=pyarrow.csv.ReadOptions(column_names=names, block_size=1 << 26),
            parse_options=pyarrow.csv.ParseOptions(delimiter="\t", quote_char=False),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False
            ),
        )
        for number, batch in enumerate(table):
            if number == 0 and [column[0].as_py() for column in batch.columns] == names:
                batch = batch.slice(1)
            citing, cited = (_found(iter([column]), known) for column in batch.columns)
            yield next(citing), next(cited)
    except (pa.ArrowInvalid, pa.ArrowKeyError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        reason = str(error).split("\n", 1)[0]
        raise InputError(f"{path}: not lines of CITING<tab>CITED: {reason}") from None
