"""A shard of a library on disk: papers found by their words, their vectors and what names them.

    words/          tantivy's index: terms, names and identifiers of each paper, and its record
    codes.faiss     each vector in 4 bits per two dimensions (product quantisation), searched whole in memory
    vectors.int8    each vector in 8 bits per dimension, read for the best by codes
    shard.json      the number of rows, and what a build has done (disk.build)

Papers have rows in the order of their arrival, which stay. Records and vectors carry checksums, which are
compared whenever they are read; those of whole files are in the generation's checksums.json (disk.library).
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import msgspec
import numpy as np
import tantivy
import xxhash

from citerec.base.errors import DamagedFile
from citerec.base.files import real_path
from citerec.formats.bibliography.paper import LibraryPaper
from citerec.retrieval.arrays import Floats, Rows
from citerec.retrieval.indexes.cpu import faiss
from citerec.retrieval.vectors import to_unit_length

WORDS, CODES, VECTORS, ABOUT = "words", "codes.faiss", "vectors.int8", "shard.json"
ROW, YEAR, TERMS, NAMES, RECORD = "row", "year", "terms", "names", "record"
READERS = 8
"""Threads that read records, most of the time waiting for the disk."""
REFINED = 5
"""Papers by codes for each that is wanted, whose 8-bit vectors are then compared."""
MADV_RANDOM = 1
SUM, SUM_OF_RECORD = 4, 8
"""Bytes of the checksums that follow a vector, and that a record begins with."""
_DECODER = msgspec.msgpack.Decoder(LibraryPaper)


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


def advise(folder: Path, *advice: int) -> None:
    """Advise Linux (madvise) on all files of a folder that are mapped into this process."""
    maps, root = Path("/proc/self/maps"), f"{real_path(folder)}/"
    libc = ctypes.CDLL(None, use_errno=True)
    for line in maps.read_text("utf-8").splitlines() if maps.exists() else ():
        *fields, name = line.split(maxsplit=5)
        if name.startswith(root):
            start, end = (int(value, 16) for value in fields[0].split("-"))
            for one in advice:
                if libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), one):
                    raise OSError(ctypes.get_errno(), f"madvise: {name}")


@contextmanager
def engine_errors(folder: Path) -> Iterator[None]:
    """Turn what tantivy and Faiss raise for a damaged file into DamagedFile. Only call them inside."""
    try:
        yield
    except DamagedFile:
        raise
    except BaseException as error:
        # A panic of tantivy is no Exception, and has a class that cannot be imported.
        if not isinstance(error, ValueError | RuntimeError) and type(error).__name__ != "PanicException":
            raise
        text = " ".join(str(error).split())[:200]
        raise DamagedFile(f"{folder}: damaged ({text or type(error).__name__})") from None


def vector_sum(vector: bytes, row: int) -> bytes:
    """Return the checksum of the vector of a row."""
    return xxhash.xxh32_digest(vector, row & 0xFFFFFFFF)


def record_sum(record: bytes, row: int) -> bytes:
    """Return the checksum that a record begins with."""
    return xxhash.xxh3_64_digest(record, row)


@contextmanager
def links_to(folder: Path) -> Iterator[Path]:
    """A temporary folder of links to the files of tantivy's index, beside which it would write a lock file.

    Once opened, the index needs no names of files.
    """
    links = Path(mkdtemp(prefix="citerec-"))
    try:
        for file in folder.iterdir():
            if not file.name.startswith("."):
                (links / file.name).symlink_to(real_path(file))
        yield links
    finally:
        try:
            shutil.rmtree(links)
        except OSError:  # a thread of tantivy has just locked the index, as it does once after opening
            shutil.rmtree(links)


class Shard:
    """Papers in a folder, to search. Several threads may do so at once. Nothing is written to the folder."""

    def __init__(self, folder: Path) -> None:
        """Raises DamagedFile if a file is damaged, and FileNotFoundError if one is missing."""
        self.folder = folder
        try:
            self.rows = int(json.loads((folder / ABOUT).read_text("utf-8"))["rows"])
            """Number of rows; papers of some may have been removed."""
        except (KeyError, TypeError, ValueError):
            raise DamagedFile(f"{folder / ABOUT}: damaged (it has no number of rows)") from None
        stat = (folder / CODES).stat()
        self.codes_file = stat.st_dev, stat.st_ino
        self._vector_file = (folder / VECTORS).open("rb", buffering=0)
        with links_to(folder / WORDS) as links, engine_errors(folder):
            index = tantivy.Index.open(str(links))
            self._schema, self._searcher = index.schema, index.searcher()
        # By default, the kernel may read megabytes around each page, which a library larger than memory loses
        # again before the next query.
        advise(folder / WORDS, MADV_RANDOM)

    def __len__(self) -> int:
        return int(self._searcher.num_docs)

    @cached_property
    def codes(self) -> Any:
        """The index of the codes; it is large."""
        with engine_errors(self.folder):
            return faiss.read_index(str(self.folder / CODES))

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return int(self.codes.d)

    def ask(self, query: ShardQuery) -> ShardAnswer:
        """Return what is found for a query. Raises DamagedFile for a damaged file, as all methods do."""
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
        with engine_errors(self.folder):
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
        with engine_errors(self.folder):
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
        codes = self.codes
        near = []
        if codes.ntotal:
            with engine_errors(self.folder):
                near = codes.search(vector[None], min(REFINED * k, codes.ntotal))[1][0]
        rows = np.concatenate([np.asarray(near, np.int64), np.arange(codes.ntotal, self.rows)])
        rows = rows[rows >= 0]
        if not len(rows):
            return NOTHING
        scores = self.vectors(rows) @ vector
        best = np.argsort(-scores, kind="stable")[:k]
        return Found(rows[best], scores[best])

    def vectors(self, rows: Rows) -> Floats:
        """Return the vectors of rows, [n, D], of unit length."""
        dim, file, width = self.dim, self._vector_file.fileno(), self.dim + SUM
        if hasattr(os, "posix_fadvise"):  # on Linux: so that the disk reads many at once
            for row in rows.tolist():
                os.posix_fadvise(file, row * width, width, os.POSIX_FADV_WILLNEED)
        found = []
        for row in rows.tolist():
            content = os.pread(file, width, row * width)
            if len(content) < width or content[dim:] != vector_sum(content[:dim], row):
                raise DamagedFile(f"{self.folder / VECTORS}: damaged (the vector of row {row} has changed)")
            found.append(content[:dim])
        return to_unit_length(np.frombuffer(b"".join(found), np.int8).reshape(-1, dim).astype(np.float32))

    def read(self, rows: Iterable[int]) -> dict[int, LibraryPaper]:
        """Return the papers of rows; removed ones are missing."""
        wanted, searcher = np.unique(np.fromiter(rows, np.int64)), self._searcher

        def read_some(some: Rows) -> Iterator[tuple[int, LibraryPaper]]:
            with engine_errors(self.folder):
                query = tantivy.Query.term_set_query(self._schema, ROW, some.tolist())
                places = [place for _, place in searcher.search(query, limit=len(some), count=False).hits]
                found: Any = searcher.fast_field_values(ROW, places)
                records = [searcher.doc(place)[RECORD][0] for place in places]
            return zip(found, map(self._paper, records, found), strict=True)

        parts = [some for some in np.array_split(wanted, READERS) if len(some)]
        return dict(chain.from_iterable(self._readers.map(read_some, parts)))

    def _paper(self, content: bytes, row: int) -> LibraryPaper:
        """Return the paper of a record."""
        if content[:SUM_OF_RECORD] != record_sum(content[SUM_OF_RECORD:], row):
            raise DamagedFile(f"{self.folder / WORDS}: damaged (the record of row {row} has changed)")
        return _DECODER.decode(content[SUM_OF_RECORD:])

    @cached_property
    def _readers(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(READERS)

    def papers(self) -> Iterator[tuple[int, LibraryPaper]]:
        """Yield all rows and papers."""
        for start in range(0, self.rows, 1024):
            yield from sorted(self.read(range(start, min(start + 1024, self.rows))).items())
