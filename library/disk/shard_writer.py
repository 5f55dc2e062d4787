"""Writes shards: an empty one, papers added and removed, codes of vectors. By one process at a time.

Nothing that a reader of another generation reads changes: segments of tantivy are never changed, and vectors
are only added behind the rows that there are, so that generations may share these files by hard links.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import tantivy

from citerec.base.files import write_text
from citerec.formats.bibliography.paper import LibraryPaper
from citerec.library.disk.shard import (
    ABOUT,
    CODES,
    NAMES,
    RECORD,
    ROW,
    SUM,
    TERMS,
    VECTORS,
    WORDS,
    YEAR,
    Shard,
    engine_errors,
    record_sum,
    vector_sum,
)
from citerec.retrieval.arrays import Floats
from citerec.retrieval.indexes.cpu import faiss

TRAINING = 65_536
"""Vectors that the codes are learned from."""
LEAST = 16
"""Fewest of them; if there are fewer, they are repeated."""
UNCODED = 50_000
"""Most vectors that no code stands for yet; they are compared one by one."""
WRITER_MEMORY = 300_000_000
"""Bytes of tantivy's writer."""
MANAGED = ".managed.json"
"""tantivy's list of its files, of which it removes those that are no longer needed."""


@dataclass(frozen=True)
class Entry:
    """A paper as a shard keeps it.

    terms: BM25's terms of title and abstract, with repeats. names: what finds it, see candidates.names_of.
    """

    paper: LibraryPaper
    terms: str
    names: list[str]


def train_codes(vectors: Floats) -> Any:
    """Return empty codes of unit vectors [n, D], to be given to each shard."""
    dim = vectors.shape[1]
    codes = faiss.IndexPQFastScan(dim, dim // 2 if dim % 2 == 0 else dim, 4, faiss.METRIC_INNER_PRODUCT)
    codes.pq.cp.min_points_per_centroid = 1  # silences a warning
    codes.train(np.resize(vectors, (max(len(vectors), LEAST), dim)))
    return codes


def _schema() -> tantivy.Schema:
    builder = tantivy.SchemaBuilder()
    builder.add_unsigned_field(ROW, indexed=True, fast=True)
    builder.add_unsigned_field(YEAR, indexed=True, fast=True)
    builder.add_text_field(TERMS, tokenizer_name="whitespace", index_option="freq")
    builder.add_text_field(NAMES, tokenizer_name="raw", index_option="basic")
    builder.add_bytes_field(RECORD, stored=True, indexed=False)
    return builder.build()


class ShardWriter:
    """Adds papers to a shard and removes some. `commit` makes it visible, `close` ends it."""

    def __init__(self, folder: Path) -> None:
        """Raises DamagedFile if a file is damaged."""
        self.folder = folder
        self.about: dict[str, Any] = json.loads((folder / ABOUT).read_text("utf-8"))
        """What is in shard.json: the number of `rows`, of those with codes, and what a build has done."""
        words = folder / WORDS
        names = [file.name for file in words.iterdir() if not file.name.startswith(".")]
        write_text(words / MANAGED, json.dumps(names))
        with engine_errors(folder):
            self._index = tantivy.Index.open(str(words))
            self._schema = self._index.schema
            self._writer = self._index.writer(WRITER_MEMORY, 1)
        self._vectors = (folder / VECTORS).open("r+b")

    @classmethod
    def create(cls, folder: Path, codes: Any, **about: Any) -> ShardWriter:
        """Create an empty shard in a new folder. codes: of `train_codes`. about: for shard.json."""
        (folder / WORDS).mkdir(parents=True)
        tantivy.Index(_schema(), path=str(folder / WORDS))
        faiss.write_index(codes, str(folder / CODES))
        (folder / VECTORS).touch()
        write_text(folder / ABOUT, json.dumps({"rows": 0, "coded": 0, **about}))
        return cls(folder)

    def append(self, entries: Sequence[Entry], vectors: Floats) -> None:
        """Add papers with vectors [n, D]."""
        row = first = int(self.about["rows"])
        scale = 127 / np.maximum(np.abs(vectors).max(axis=1, keepdims=True, initial=0), 1e-12)
        rounded = (vectors * scale).round().astype(np.int8)
        lines = []
        for entry, vector in zip(entries, rounded, strict=True):
            document = tantivy.Document()
            document.add_unsigned(ROW, row)
            document.add_unsigned(YEAR, max(entry.paper.year, 0))
            document.add_text(TERMS, entry.terms)
            for name in entry.names:
                document.add_text(NAMES, name)
            record, line = msgspec.msgpack.encode(entry.paper), vector.tobytes()
            document.add_bytes(RECORD, record_sum(record, row) + record)
            self._writer.add_document(document)
            lines.append(line + vector_sum(line, row))
            row += 1
        self._write_vectors(b"".join(lines), first * (vectors.shape[1] + SUM))
        self.about["rows"] = row

    def _write_vectors(self, content: bytes, start: int) -> None:
        """Write vectors behind the others, where a killed change or a copy of the library may have some."""
        path = self.folder / VECTORS
        if self._vectors.seek(0, os.SEEK_END) != start:
            own = path.with_name(f"{VECTORS}.tmp")
            shutil.copyfile(path, own)
            os.truncate(own, start)
            own.replace(path)
            self._vectors.close()
            self._vectors = path.open("r+b")
        self._vectors.seek(start)
        self._vectors.write(content)

    def delete(self, rows: Iterable[int]) -> None:
        """Remove rows."""
        if wanted := list(rows):
            query = tantivy.Query.term_set_query(self._schema, ROW, wanted)
            self._writer.delete_documents_by_query(query)

    def commit(self, **about: Any) -> None:
        """Write what has been added and removed. about: for shard.json."""
        self._vectors.flush()
        self._writer.commit()
        self.about |= about
        write_text(self.folder / ABOUT, json.dumps(self.about))

    def close(self) -> None:
        """Wait for tantivy to merge segments, and end."""
        self._writer.wait_merging_threads()
        self._vectors.close()
        (self.folder / WORDS / "meta.json").chmod(0o644)  # tantivy lets nobody else read it

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self._vectors.close()


def next_row(folder: Path) -> int:
    """Return the first row of a shard that no paper has had, in commits that shard.json may not know."""
    searcher = tantivy.Index.open(str(folder / WORDS)).searcher()
    best = searcher.search(tantivy.Query.all_query(), limit=1, count=False, order_by_field=ROW).hits
    return int(best[0][0]) + 1 if best else 0


def encode_rows(folder: Path) -> None:
    """Write codes of all vectors in place of the codes of some."""
    shard = Shard(folder)
    codes = shard.codes
    for start in range(codes.ntotal, shard.rows, TRAINING):
        codes.add(shard.vectors(np.arange(start, min(start + TRAINING, shard.rows))))
    temporary = folder / f"{CODES}.tmp"
    faiss.write_index(codes, str(temporary))
    temporary.replace(folder / CODES)
    about = json.loads((folder / ABOUT).read_text("utf-8"))
    write_text(folder / ABOUT, json.dumps(about | {"coded": shard.rows}))


def change_shard(folder: Path, entries: Sequence[Entry], vectors: Floats, removed: Iterable[int]) -> None:
    """Add papers with vectors [n, D], and remove rows. The folder may have hard links to another's files."""
    with ShardWriter(folder) as writer:
        writer.delete(removed)
        writer.append(entries, vectors)
        writer.commit()
    if writer.about["rows"] - writer.about["coded"] > UNCODED:
        encode_rows(folder)
