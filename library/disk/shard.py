"""A shard of a library on disk: papers found by their words, their vectors and what names them.

    words/          tantivy's index: terms, names and identifiers of each paper, and its record
    codes.faiss     each vector in 4 bits per two dimensions (product quantisation), searched whole in memory
    vectors.int8    each vector in 8 bits per dimension, read for the best by codes

Papers have rows in the order of their arrival, which stay. tantivy's commit makes a change visible, all at
once; vectors of rows that no commit knows are overwritten by the next change.
"""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import tantivy

from citerec.base.errors import InputError
from citerec.library.papers import LibraryPaper
from citerec.retrieval.arrays import Floats, Rows
from citerec.retrieval.indexes.cpu import faiss
from citerec.retrieval.vectors import to_unit_length

WORDS, CODES, VECTORS = "words", "codes.faiss", "vectors.int8"
ROW, YEAR, TERMS, NAMES, RECORD = "row", "year", "terms", "names", "record"
READERS = 8
"""Threads that read records, most of the time waiting for the disk."""
REFINED = 5
"""Papers by codes for each that is wanted, whose 8-bit vectors are then compared."""
UNCODED = 50_000
"""Most vectors that no code stands for yet; they are compared one by one."""
TRAINING = 65_536
"""Vectors that the codes are learned from."""
LEAST = 16
"""Fewest of them; if there are fewer, they are repeated."""
MADV_RANDOM = 1
WRITER_MEMORY = 300_000_000
"""Bytes of tantivy's writer."""
_DECODER = msgspec.msgpack.Decoder(LibraryPaper)


def _schema() -> tantivy.Schema:
    builder = tantivy.SchemaBuilder()
    builder.add_unsigned_field(ROW, indexed=True, fast=True)
    builder.add_unsigned_field(YEAR, indexed=True, fast=True)
    builder.add_text_field(TERMS, tokenizer_name="whitespace", index_option="freq")
    builder.add_text_field(NAMES, tokenizer_name="raw", index_option="basic")
    builder.add_bytes_field(RECORD, stored=True, indexed=False)
    return builder.build()


@dataclass(frozen=True)
class Entry:
    """A paper as a shard keeps it.

    terms: BM25's terms of title and abstract, with repeats. names: what finds it, see candidates.names_of.
    """

    paper: LibraryPaper
    terms: str
    names: Sequence[str]


@dataclass(frozen=True)
class Found:
    """Rows [n] of a shard and their scores, best first."""

    rows: Rows
    scores: Floats


NOTHING = Found(np.empty(0, np.int64), np.empty(0, np.float32))


@dataclass(frozen=True)
class ShardQuery:
    """What a shard is asked.

    terms: of BM25, and their counts times their idf in the whole collection. vector: [D], or None. names,
    years: near the mark. called: ids and keys. by_words, by_vector, by_name: number of papers. between: first
    and last year that may be found.
    """

    terms: dict[str, float]
    vector: Floats | None
    names: list[str]
    years: list[int]
    called: list[str]
    by_words: int = 0
    by_vector: int = 0
    by_name: int = 100
    between: tuple[int, int] | None = None


@dataclass(frozen=True)
class ShardAnswer:
    """What it finds by words, by the vector, by names near the mark and by what papers are called."""

    words: Found
    near: Found
    named: Found
    called: Found


def train_codes(vectors: Floats) -> Any:
    """Return empty codes of unit vectors [n, D], to be given to each shard."""
    dim = vectors.shape[1]
    codes = faiss.IndexPQFastScan(dim, dim // 2 if dim % 2 == 0 else dim, 4, faiss.METRIC_INNER_PRODUCT)
    codes.pq.cp.min_points_per_centroid = 1  # silences a warning
    codes.train(np.resize(vectors, (max(len(vectors), LEAST), dim)))
    return codes


def advise(folder: Path, *advice: int) -> None:
    """Advise Linux (madvise) on all files of a folder that are mapped into this process."""
    maps, root = Path("/proc/self/maps"), f"{folder.resolve()}/"
    libc = ctypes.CDLL(None, use_errno=True)
    for line in maps.read_text("utf-8").splitlines() if maps.exists() else ():
        *fields, name = line.split(maxsplit=5)
        if name.startswith(root):
            start, end = (int(value, 16) for value in fields[0].split("-"))
            for one in advice:
                if libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), one):
                    raise OSError(ctypes.get_errno(), f"madvise: {name}")


class Shard:
    """Papers in a folder. Several threads may search at once; changes are made by one process at a time."""

    def __init__(self, folder: Path) -> None:
        """Raises InputError if the folder is not a shard."""
        self.folder = folder
        try:
            self._index = tantivy.Index.open(str(folder / WORDS))
        except ValueError as error:
            raise InputError(f"{folder}: not a part of a library on disk ({error})") from None
        self._schema = self._index.schema
        self._searcher, self._codes_time = self._index.searcher(), 0
        self._read_pages()

    @classmethod
    def create(cls, folder: Path, codes: Any) -> Shard:
        """Create an empty shard in a new folder. codes: of `train_codes`."""
        (folder / WORDS).mkdir(parents=True)
        tantivy.Index(_schema(), path=str(folder / WORDS))
        faiss.write_index(codes, str(folder / CODES))
        (folder / VECTORS).touch()
        return cls(folder)

    def _read_pages(self) -> None:
        # By default, the kernel may read megabytes around each page, which a library larger than memory loses
        # again before the next query.
        advise(self.folder / WORDS, MADV_RANDOM)

    def __len__(self) -> int:
        return int(self._searcher.num_docs)

    def reload(self) -> None:
        """See the latest commit."""
        self._index.reload()
        self._searcher = self._index.searcher()
        self._read_pages()
        if self._codes_time != (self.folder / CODES).stat().st_mtime_ns:
            self.__dict__.pop("_codes", None)

    @cached_property
    def _codes(self) -> Any:
        self._codes_time = (self.folder / CODES).stat().st_mtime_ns
        return faiss.read_index(str(self.folder / CODES))

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return int(self._codes.d)

    @cached_property
    def _vector_file(self) -> int:
        return os.open(self.folder / VECTORS, os.O_RDONLY)

    # Searching.

    def ask(self, query: ShardQuery) -> ShardAnswer:
        """Return what is found for a query."""
        return ShardAnswer(
            self.search_terms(query.terms, query.by_words, query.between),
            NOTHING if query.vector is None else self.search_vector(query.vector, query.by_vector),
            self.search_names(query.names, query.by_name, query.years),
            self.search_names(query.called, query.by_name),
        )

    def search_terms(self, terms: Mapping[str, float], k: int, years: tuple[int, int] | None = None) -> Found:
        """Return the k best papers by BM25. terms: with their counts times their idf in the whole collection.

        years: first and last.
        """
        query, wanted = tantivy.Query, []
        for term, weight in terms.items():
            if own := self.own_idf(term):
                one = query.term_query(self._schema, TERMS, term, "freq")
                wanted.append((tantivy.Occur.Should, query.boost_query(one, weight / own)))
        return self._search(query.boolean_query(wanted), k, years) if wanted else NOTHING

    def own_idf(self, term: str) -> float:
        """Return the idf of a term in this shard; 0 for one that no paper has."""
        frequency, papers = self._searcher.doc_freq(TERMS, term), self._searcher.num_docs
        return math.log(1 + max(papers - frequency + 0.5, 0.5) / (frequency + 0.5)) if frequency else 0.0

    def search_names(self, names: Sequence[str], k: int, years: Sequence[int] = ()) -> Found:
        """Return k papers that have any of the names, first those of one of the years."""
        if not names:
            return NOTHING
        query, occur = tantivy.Query, tantivy.Occur
        any_name = query.const_score_query(query.term_set_query(self._schema, NAMES, list(names)), 1.0)
        wanted = [(occur.Must, any_name)]
        if years:
            dated = query.term_set_query(self._schema, YEAR, [int(year) for year in years])
            wanted.append((occur.Should, query.const_score_query(dated, 1.0)))
        return self._search(query.boolean_query(wanted), k, None)

    def _search(self, query: Any, k: int, years: tuple[int, int] | None) -> Found:
        if years is not None:
            limits = tantivy.Query.range_query(self._schema, YEAR, tantivy.FieldType.Unsigned, *years)
            parts = [
                (tantivy.Occur.Must, query),
                (tantivy.Occur.Must, tantivy.Query.const_score_query(limits, 0.0)),
            ]
            query = tantivy.Query.boolean_query(parts)
        searcher = self._searcher
        hits = searcher.search(query, limit=k, count=False).hits
        rows: Any = searcher.fast_field_values(ROW, [place for _, place in hits])
        return Found(np.array(rows, np.int64), np.array([score for score, _ in hits], np.float32))

    def search_vector(self, vector: Floats, k: int) -> Found:
        """Return the k papers with the highest cosine with a vector of unit length [D]; nearly all of them.

        Removed papers may be among them; `read` leaves them out.
        """
        codes = self._codes
        near = codes.search(vector[None], min(REFINED * k, codes.ntotal))[1][0] if codes.ntotal else []
        last = os.fstat(self._vector_file).st_size // len(vector)
        rows = np.concatenate([np.asarray(near, np.int64), np.arange(codes.ntotal, last)])
        rows = rows[rows >= 0]
        if not len(rows):
            return NOTHING
        scores = self.vectors(rows) @ vector
        best = np.argsort(-scores, kind="stable")[:k]
        return Found(rows[best], scores[best])

    def vectors(self, rows: Rows) -> Floats:
        """Return the vectors of rows, [n, D], of unit length."""
        dim = self.dim
        if hasattr(os, "posix_fadvise"):  # on Linux: so that the disk reads many at once
            for row in rows.tolist():
                os.posix_fadvise(self._vector_file, row * dim, dim, os.POSIX_FADV_WILLNEED)
        raw = b"".join(os.pread(self._vector_file, dim, row * dim) for row in rows.tolist())
        return to_unit_length(np.frombuffer(raw, np.int8).reshape(-1, dim).astype(np.float32))

    def read(self, rows: Iterable[int]) -> dict[int, LibraryPaper]:
        """Return the papers of rows; removed ones are missing."""
        wanted, searcher = np.unique(np.fromiter(rows, np.int64)), self._searcher

        def read_some(some: Rows) -> Iterator[tuple[int, LibraryPaper]]:
            query = tantivy.Query.term_set_query(self._schema, ROW, some.tolist())
            places = [place for _, place in searcher.search(query, limit=len(some), count=False).hits]
            found: Any = searcher.fast_field_values(ROW, places)
            return zip(found, [_paper(searcher.doc(place)) for place in places], strict=True)

        parts = [some for some in np.array_split(wanted, READERS) if len(some)]
        return dict(chain.from_iterable(self._readers.map(read_some, parts)))

    @cached_property
    def _readers(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(READERS)

    # Changes.

    def append(self, entries: Sequence[Entry], vectors: Floats, first: int, writer: Any) -> int:
        """Add papers with vectors [n, D] from row `first` on, through a writer; returns the next row."""
        row = first
        if not entries:
            return first
        for entry in entries:
            document = tantivy.Document()
            document.add_unsigned(ROW, row)
            document.add_unsigned(YEAR, max(entry.paper.year, 0))
            document.add_text(TERMS, entry.terms)
            for name in entry.names:
                document.add_text(NAMES, name)
            document.add_bytes(RECORD, msgspec.msgpack.encode(entry.paper))
            writer.add_document(document)
            row += 1
        scale = 127 / np.maximum(np.abs(vectors).max(axis=1, keepdims=True, initial=0), 1e-12)
        with (self.folder / VECTORS).open("r+b") as file:
            file.seek(first * vectors.shape[1])
            file.write((vectors * scale).round().astype(np.int8).data)
        return row

    def writer(self, threads: int = 1) -> Any:
        """Return tantivy's writer; `append` and `delete` through it become visible by its `commit`."""
        return self._index.writer(WRITER_MEMORY, threads)

    def delete(self, writer: Any, rows: Iterable[int]) -> None:
        """Remove rows through a writer."""
        if wanted := list(rows):
            writer.delete_documents_by_query(tantivy.Query.term_set_query(self._schema, ROW, wanted))

    @property
    def next_row(self) -> int:
        """The first row that no paper has had."""
        best = self._searcher.search(tantivy.Query.all_query(), limit=1, count=False, order_by_field=ROW).hits
        return int(best[0][0]) + 1 if best else 0

    def encode_rows(self, codes: Any) -> None:
        """Add codes of the vectors that have none, and write them in place of the former ones."""
        last = max(self.next_row, codes.ntotal)
        for start in range(codes.ntotal, last, TRAINING):
            codes.add(self.vectors(np.arange(start, min(start + TRAINING, last))))
        temporary = self.folder / f"{CODES}.tmp"
        faiss.write_index(codes, str(temporary))
        temporary.replace(self.folder / CODES)

    def change(self, entries: Sequence[Entry], vectors: Floats, removed: Iterable[int] = ()) -> None:
        """Add papers and remove rows, atomically. Call it from one process at a time."""
        writer = self.writer()
        first = max(self.next_row, self._codes.ntotal)
        self.delete(writer, removed)
        with (self.folder / VECTORS).open("r+b") as file:
            file.truncate(first * self.dim)  # what a killed process left
        last = self.append(entries, vectors, first, writer)
        writer.commit()
        writer.wait_merging_threads()
        self.reload()
        if last - self._codes.ntotal > UNCODED:
            self.encode_rows(self._codes)

    def papers(self) -> Iterator[tuple[int, LibraryPaper]]:
        """Yield all rows and papers."""
        last = self.next_row
        for start in range(0, last, 1024):
            yield from sorted(self.read(range(start, min(start + 1024, last))).items())


def _paper(document: Any) -> LibraryPaper:
    return _DECODER.decode(document[RECORD][0])
