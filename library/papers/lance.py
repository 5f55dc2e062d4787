"""The papers of a library too large for memory: in LanceDB (storage=lance), indexed by words and vectors.

    generations/N/  checksums.json  model/  statistics/ (datasets.word_statistics)
                    lance/          a table (_batches), of which library.json names the version

A question finds some hundred papers by words, by the vector of the model and by names. They are ranked in
memory (`FoundPapers`) by the same code as those of a library in memory, with the word statistics of the whole
collection. A change writes a new version of the table, which others see once library.json names it.

Each record has a checksum, which is compared when it is read. Files have theirs in checksums.json: those that
were touched since the last comparison are compared when the library is opened.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import xxhash
from numpy.typing import NDArray

from citerec.base.checksums import check_checksums, write_checksums
from citerec.base.errors import DamagedFile, InputError, missing_extra
from citerec.base.progress import spinner
from citerec.datasets import word_statistics
from citerec.datasets.corpus import SomePapers
from citerec.datasets.word_statistics import WordStatistics
from citerec.formats.bibliography.paper import LibraryPaper
from citerec.formats.letters import fold, with_pairs
from citerec.formats.same_work import identity
from citerec.library.evidence.evidence import FullTexts
from citerec.library.papers.folder import damaged
from citerec.library.papers.merging import identities_of
from citerec.library.papers.models import ENCODED, install_model, open_model
from citerec.library.papers.search import IN_PART, SearchIndex, plain_words, query_words, spellings
from citerec.library.papers.storage import MODEL, Papers, Storage, record_of
from citerec.rerank.ranker.author_names import AUTHOR, hash_authors, longest_part, names_beside
from citerec.rerank.ranker.corpus_statistics import CorpusStatistics
from citerec.rerank.ranker.features import first_dense
from citerec.rerank.ranker.model import Ranker, encoder_of
from citerec.rerank.ranker.paper_names import hash_texts, initials
from citerec.retrieval.arrays import Floats, Rows
from citerec.retrieval.base import Retriever
from citerec.retrieval.dense import DenseRetriever
from citerec.retrieval.lexical.bm25 import BM25
from citerec.retrieval.lexical.terms import Terms, strip_markers
from citerec.retrieval.queries import Queries, Query

if TYPE_CHECKING:
    import pyarrow as pa

LANCE, STATISTICS, TABLE = "lance", "statistics", "papers"
BATCH = 1 << 13
"""Papers that are encoded and written at a time."""
SUM = 8
"""Bytes of the checksum that a record begins with."""
DEPTH = 200
"""Papers to find by words and by vectors, unless the ranker reads more."""
MORE_WORDS, MORE_VECTORS, BY_NAME = 1.5, 1.1, 100
"""Factors on these numbers, since Lance weighs and rounds in its own way; papers to find by names."""
LEAST_VECTORS = 10_000
"""Papers from which vectors get an index; fewer are compared one by one."""
PER_PARTITION, PER_PART = 4096, 4
"""Vectors of a partition of the index, and numbers of a vector that share one byte there."""
LEAST_PROBES, PROBED, REFINED = 20, 10, 3
"""A question searches LEAST_PROBES partitions, or one in PROBED if that is more, and compares the vectors of
REFINED papers for each that it wants."""
UNINDEXED = 50_000
"""Most papers that are not in the indexes yet, and are searched one by one."""
SAME = ("id", "doi", "arxiv", "title")
"""Hashed identifiers, of which two records of a paper share one (formats.same_work)."""
_DECODER = msgspec.msgpack.Decoder(LibraryPaper)


def lancedb() -> Any:
    """Import LanceDB. Raises InputError if it is not installed."""
    os.environ.setdefault("LANCEDB_LOG", "error")  # else it warns of what it will do in later versions
    try:
        import lancedb
        import lancedb.query
    except ImportError:
        raise InputError(missing_extra("storage=lance", "large")) from None
    return lancedb


@contextmanager
def lance_errors(folder: Path) -> Iterator[None]:
    """Turn what LanceDB raises for a damaged table into DamagedFile."""
    try:
        yield
    except InputError:
        raise
    except BaseException as error:
        # A panic of Rust is no Exception, and has a class that cannot be imported. Errors of the system have
        # a number.
        is_theirs = isinstance(error, ValueError | RuntimeError) or type(error).__name__ == "PanicException"
        if not (is_theirs or (isinstance(error, OSError) and error.errno is None)):
            raise
        reason = " ".join(str(error).split())[:160] or type(error).__name__
        raise DamagedFile(f"{folder / LANCE}: damaged ({reason})") from None


# Names: what finds a paper besides its words and vector, as hashes that LanceDB takes for words.


def _name(kind: str, text: object) -> str:
    """Hash a name.

    >>> _name("called", "kingma2015") == _name("called", "kingma2015") != _name("first", "kingma2015")
    True
    """
    return f"{xxhash.xxh3_64_intdigest(f'{kind}:{text}'.encode('utf-8', 'surrogatepass')):016x}"


def _folded(kind: str, text: str) -> str:
    return _name(kind, fold(text).casefold())


def called(names: Iterable[str]) -> list[str]:
    """Return ids, citation keys or aliases as names."""
    return [_name("called", name) for name in names if name]


def shared_names(paper: LibraryPaper) -> list[str]:
    """Return the identifiers that another record of the paper may share, as names."""
    return [_name(kind, value) for kind, value in zip(SAME, identity(paper), strict=False) if value]


def _own_names(paper: LibraryPaper) -> tuple[str, ...]:
    return paper.id, paper.key, *paper.aliases


def names_of(paper: LibraryPaper) -> str:
    """Return all names of a paper, with spaces between."""
    names = [*called(_own_names(paper)), *shared_names(paper)]
    if paper.authors:
        names.append(_folded("first", longest_part(paper.surname())))
    names += [_folded("initials", letters) for letters in initials(paper.title)]
    about = plain_words(f"{' '.join(paper.authors)} {paper.year or ''} {paper.venue}")
    names += [_folded("word", word) for word in about.split()]
    return " ".join(dict.fromkeys(names))


# Word statistics of the collection.


class Counting:
    """Counts what occurs in papers, batch by batch, for datasets.word_statistics."""

    def __init__(self) -> None:
        self.papers, self._counts, self._sums = 0, list[tuple[Any, Any]](), dict[str, Any]()

    def add(self, corpus: SomePapers) -> None:
        """Count the words, terms and names of papers, and add up lengths of texts."""
        self.papers += len(corpus.paper_ids)
        self._count(word_statistics.WORD, word_statistics.hash_names(corpus.words), corpus.word_counts)
        self._add_sum(word_statistics.WORD, float(np.sum(corpus.word_counts)), len(corpus.paper_ids))
        bm25, rows = BM25(), np.arange(len(corpus.paper_ids))
        terms = Terms.from_words(corpus.words, **bm25.tokenisation)
        columns = (corpus.title_tokens, corpus.abstract_tokens)
        of_titles, of_abstracts = (terms.counts(rows, words, len(rows)) for words in columns)
        texts, hashed = of_titles + of_abstracts, word_statistics.hash_names(terms.names)
        self._count(word_statistics.BM25_TERM, hashed, texts.frequency())
        self._add_sum(word_statistics.BM25_TERM, float(texts.data.sum()), len(rows))
        statistics = CorpusStatistics(corpus)
        title, abstract = (statistics.counts(words) for words in columns)
        beginnings = statistics.counts(corpus.title_tokens, statistics.beginnings)
        for kind, names, counts in (
            (word_statistics.TERM, statistics.terms, title + abstract),
            (word_statistics.BEGINNING, statistics.beginnings, beginnings),
        ):
            times = np.bincount(counts.indices, minlength=names.size)
            self._count(kind, word_statistics.hash_names(names.names), times)
        for kind, lengths in (
            ("title", title.lengths()),
            ("abstract", abstract.lengths()),
            ("title_beginnings", beginnings.lengths()),
        ):
            self._add_sum(kind, float(lengths.sum()), int(np.count_nonzero(lengths)))
        for kind, (find, some) in statistics.names_of(corpus).items():
            hashes = hash_texts(corpus, find, some)[1]
            self._count(kind, *np.unique(hashes[hashes != 0], return_counts=True))
        self._count(AUTHOR, *np.unique(hash_authors(corpus, rows)[1], return_counts=True))
        if len(self._counts) > 200:
            self._counts = [self._added_up()]

    def _count(self, kind: str, hashes: NDArray[np.uint64], times: NDArray[np.integer]) -> None:
        self._counts.append((hashes ^ word_statistics.salt(kind), times.astype(np.int64)))

    def _add_sum(self, kind: str, total: float, texts: int) -> None:
        self._sums[kind] = self._sums.get(kind, np.zeros(2)) + np.array([total, texts])

    def _added_up(self) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        hashes, times = (np.concatenate(column) for column in zip(*self._counts, strict=True))
        order = np.argsort(hashes, kind="stable")
        hashes, times = hashes[order], times[order]
        first = np.flatnonzero(np.append(True, hashes[1:] != hashes[:-1]))
        return hashes[first], np.add.reduceat(times, first)

    def write(self, folder: Path) -> None:
        """Write the statistics to a new folder: what occurs twice, and average lengths."""
        hashes, times = self._added_up()
        kept = times > 1
        words, papers = self._sums.pop(word_statistics.WORD).tolist()
        # 0, where no paper has such a text yet, stands for the average of those that a question finds.
        averages = {kind: total / max(texts, 1) for kind, (total, texts) in self._sums.items()}
        folder.mkdir()
        WordStatistics(int(papers), int(words), averages, hashes[kept], times[kept]).save(folder)


# Writing.


def _batches(
    papers: Iterable[LibraryPaper], dense: DenseRetriever, first: int, counting: Counting | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield papers as rows of the table, from row `first` on; counting: is given their words."""
    import pyarrow as pa  # LanceDB brings it

    papers = iter(papers)
    while batch := list(islice(papers, BATCH)):
        corpus = SomePapers([record_of(paper) for paper in batch], None, "papers")
        if counting is not None:
            counting.add(corpus)
        dense.prepare(corpus)
        vectors = np.asarray(dense.encode_papers(np.arange(len(batch))), np.float16)
        rows, records = range(first, first + len(batch)), list[bytes]()
        for row, paper in zip(rows, batch, strict=True):
            record = msgspec.msgpack.encode(paper)
            records.append(xxhash.xxh3_64_digest(record, row) + record)
        columns = {
            "row": pa.array(rows, pa.int64()),
            "year": pa.array([max(paper.year, 0) for paper in batch], pa.int32()),
            "venue": pa.array([paper.venue.casefold() for paper in batch]),
            "collections": pa.array([list(paper.collections) for paper in batch], pa.list_(pa.string())),
            "words": pa.array([with_pairs(f"{paper.title} {paper.abstract}") for paper in batch]),
            "names": pa.array([names_of(paper) for paper in batch]),
            "record": pa.array(records),
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1]),
        }
        yield pa.RecordBatch.from_pydict(columns)
        first += len(batch)


def dense_part(retriever: Retriever) -> DenseRetriever:
    """Return the part of a model that makes vectors. Raises InputError for one that has none."""
    dense = first_dense(retriever.all_parts) if isinstance(retriever, Ranker) else retriever
    if not isinstance(dense, DenseRetriever):
        raise InputError(f"model={retriever.name}: storage=lance needs a model with vectors")
    return dense


def write_generation(folder: Path, papers: Iterable[LibraryPaper], model: str) -> tuple[int, dict[str, int]]:
    """Write a generation to a new folder. Returns the version of its table, and counts for the manifest.

    model: as for `install_model`. Raises InputError for a model without vectors.
    """
    engine = lancedb()
    folder.mkdir()
    install_model(model, folder / MODEL)
    dense, counting = dense_part(open_model(folder / MODEL)), Counting()
    with lance_errors(folder):
        database = engine.connect(str(folder / LANCE))
        rows = _batches(papers, dense, 0, counting)
        if (first := next(rows, None)) is None:
            raise InputError("source: has no papers")
        table = database.create_table(TABLE, chain([first], rows), schema=first.schema)
        counting.write(folder / STATISTICS)
        with spinner("indexing"):
            _index(table, counting.papers, first.schema.field("vector").type.list_size)
    _write_checksums(folder)
    return table.version, {"papers": counting.papers, "rows": counting.papers}


def _write_checksums(folder: Path) -> None:
    """Write checksums of the files that have none; Lance changes no file except the hint."""
    for hint in folder.glob(f"{LANCE}/*/_versions/*hint*"):
        hint.unlink()
    write_checksums(folder, keep=True)


def _index(table: Any, papers: int, dim: int) -> None:
    from lancedb.index import FTS, BTree, IvfPq

    names = FTS(
        base_tokenizer="whitespace",
        stem=False,
        remove_stop_words=False,
        lower_case=False,
        ascii_folding=False,
    )
    table.create_index("words", config=FTS())
    table.create_index("names", config=names)
    table.create_index("row", config=BTree())
    table.create_index("year", config=BTree())
    if papers >= LEAST_VECTORS:
        partitions, parts = max(papers // PER_PARTITION, 1), max(dim // PER_PART, 1)
        config = IvfPq(
            distance_type="cosine",
            num_partitions=partitions,
            num_sub_vectors=parts,
            max_iterations=20,
            sample_rate=64,
        )
        table.create_index("vector", config=config)


# Asking.


class FoundPapers(Storage):
    """Papers that a question has found, in memory: a library of some hundred."""

    def __init__(self, storage: LanceStorage, papers_by_row: Mapping[int, LibraryPaper]) -> None:
        """papers_by_row: rows of the library."""
        self.library, self.folder, self._whole = storage.library, storage.folder, storage
        self.places = np.array(sorted(papers_by_row), np.int64)
        papers = [papers_by_row[row] for row in self.places.tolist()]
        self.corpus = SomePapers([record_of(paper) for paper in papers], storage.words, self.library.name)
        self.corpus.places = self.places  # the order of the sources, which tells equal scores apart
        self.records = papers
        self.identities = identities_of(papers)
        self.lock, self.search_lock = threading.Lock(), threading.Lock()

    def has_id(self, id: str) -> bool:
        return self._whole.id_of(id) == id

    @cached_property
    def retriever(self) -> Retriever:
        """A copy of the model, indexed while others search."""
        model = copy(self._whole.retriever)
        if isinstance(model, Ranker):
            model.all_parts = {name: copy(part) for name, part in model.all_parts.items()}
        model.index(self.corpus)
        if isinstance(model, Ranker):
            model.passages = self.full_texts
        return model

    @cached_property
    def full_texts(self) -> FullTexts | None:
        texts = self._whole.full_texts
        return None if texts is None else texts.among(self.corpus)

    @cached_property
    def search_index(self) -> SearchIndex:
        return SearchIndex.make(self.records)


class LanceStorage(Papers):
    """The papers of a generation in LanceDB. A paper's row is a number that it keeps; some are not used."""

    def __init__(self, library: Path, folder: Path, version: int, counts: Mapping[str, int]) -> None:
        """version: of the table. counts: of the manifest. Raises InputError or OSError for damage."""
        self.library, self.folder, self.counts = library, folder, counts
        self.check()
        with lance_errors(folder):
            self.table = lancedb().connect(str(folder / LANCE)).open_table(TABLE)
            self.table.checkout(version)
        self.words = WordStatistics.open(folder / STATISTICS)

    def check(self, trust: bool = True) -> None:
        """Raise InputError if a file differs from its checksum. trust: as for `check_checksums`."""
        check_checksums(self.folder, trust=trust)

    @cached_property
    def retriever(self) -> Retriever:
        """The ranking model, not indexed, without parts that need contexts: it ranks what is found."""
        try:
            retriever = open_model(self.folder / MODEL, self.library / ENCODED)
        except (InputError, OSError) as error:
            raise damaged(self.library, error) from None
        if isinstance(retriever, Ranker):
            parts = retriever.all_parts.items()
            retriever.all_parts = {name: part for name, part in parts if not part.reads_contexts}
        if (encoder := encoder_of(retriever)) is not None:
            encoder.reads_all = False
        return retriever

    @cached_property
    def dense(self) -> DenseRetriever:
        """The part of the model that makes vectors."""
        return dense_part(self.retriever)

    @cached_property
    def full_texts(self) -> FullTexts | None:
        """The full texts of the papers, if there are any."""
        empty = SomePapers([], self.words, self.library.name)
        return FullTexts.open(self.library, empty)

    # Papers.

    def __len__(self) -> int:
        return self.counts["papers"]

    def _read(self, search: Callable[[Any], Any]) -> dict[int, LibraryPaper]:
        """Return the papers that a search of the table finds, by row; their checksums are compared."""
        with lance_errors(self.folder):
            batch = search(self.table).select(["row", "record"]).to_arrow()
        return dict(self._decoded(batch))

    def _decoded(self, batch: pa.Table | pa.RecordBatch) -> Iterator[tuple[int, LibraryPaper]]:
        for row, record in zip(batch["row"].to_pylist(), batch["record"].to_pylist(), strict=True):
            if record[:SUM] != xxhash.xxh3_64_digest(record[SUM:], row):
                raise DamagedFile(f"{self.folder / LANCE}: damaged (the record of row {row} has changed)")
            yield row, _DECODER.decode(record[SUM:])

    def _named(self, names: Sequence[str], most: int) -> dict[int, LibraryPaper]:
        """Return at most `most` papers that have any of the names, those with rare ones first."""
        if not names:
            return {}
        match = lancedb().query.MatchQuery(" ".join(dict.fromkeys(names)), "names")
        return self._read(lambda table: table.search(match, query_type="fts").limit(most))

    def paper(self, row: int) -> LibraryPaper:
        papers = self._read(lambda table: table.search().where(f"row = {int(row)}").limit(1))
        if not papers:
            raise IndexError(f"row {row}")
        return papers[row]

    def papers(self) -> Iterator[tuple[int, LibraryPaper]]:
        """Yield all rows and papers, in the order of the table."""
        with lance_errors(self.folder):
            reader = self.table.search().select(["row", "record"]).to_batches(BATCH)
            for batch in reader:
                yield from self._decoded(batch)

    def rows_of(self, name: str) -> list[int]:
        papers = self._named(called([name]), BY_NAME).items()
        named = sorted(
            ((paper.id != name, paper.key != name), row) for row, paper in papers if name in _own_names(paper)
        )
        return [row for how, row in named if how == named[0][0]]

    @cached_property
    def collections(self) -> list[str]:
        """Names of all collections, sorted."""
        with lance_errors(self.folder):
            batches = self.table.search().select(["collections"]).to_batches()
            parts = (set(batch["collections"].flatten().unique().to_pylist()) for batch in batches)
            return sorted(set().union(*parts))

    def named(self, names: Sequence[str]) -> FoundPapers:
        """Return the papers of ids, citation keys or aliases."""
        return FoundPapers(self, self._named(called(names), BY_NAME * len(names)))

    def related(self, records: Sequence[LibraryPaper]) -> FoundPapers:
        """Return the papers that share an identifier or a key with any of the records."""
        papers: dict[int, LibraryPaper] = {}
        for start in range(0, len(records), 20):
            some = records[start : start + 20]
            names = [name for paper in some for name in (*shared_names(paper), *called([paper.id]))]
            papers |= self._named(names, BY_NAME * len(some))
        return FoundPapers(self, papers)

    def candidates(self, query: Query, depth: int, where: str = "", named: Sequence[str] = ()) -> FoundPapers:
        """Return papers to rank for a query with a mark, including nearly all of the `depth` best.

        where: a condition on the table's columns. named: ids and keys that are looked up, too.
        """
        depth = max(depth, getattr(self.retriever, "depth", DEPTH)) + 1
        fields = (strip_markers(getattr(query, name)) for name in BM25().query)
        papers = self._by_words(" ".join(fields), round(MORE_WORDS * depth), where)
        corpus, dense = SomePapers([], self.words, self.library.name), copy(self.dense)
        dense.prepare(corpus)
        plain = Queries.from_list(corpus, [replace(query, known=(), own=None)])
        vector = np.asarray(dense.encode_queries(plain)[0], np.float32)
        papers |= self._by_vector(vector, round(MORE_VECTORS * depth), where)
        near, short, _ = names_beside(query.context)
        beside = [*(_folded("first", name) for name in near), *(_folded("initials", name) for name in short)]
        papers |= self._named(beside, BY_NAME)
        if self.full_texts is not None:
            named = [*named, *self.full_texts.papers(query.context, depth)]
        papers |= self._named(called(named), 2 * len(named))
        return FoundPapers(self, papers)

    def _by_words(self, text: str, most: int, where: str = "") -> dict[int, LibraryPaper]:
        match = lancedb().query.MatchQuery(with_pairs(text), "words")
        return self._read(lambda table: _only(table.search(match, query_type="fts"), where).limit(most))

    def _by_vector(self, vector: Floats, most: int, where: str) -> dict[int, LibraryPaper]:
        if not vector.any():
            return {}
        probes = max(LEAST_PROBES, len(self) // PER_PARTITION // PROBED)

        def search(table: Any) -> Any:
            nearest = table.search(vector, vector_column_name="vector").distance_type("cosine")
            return _only(nearest.nprobes(probes).refine_factor(REFINED), where).limit(most)

        return self._read(search)

    def search_candidates(self, query: str) -> FoundPapers:
        """Return papers to search for words of their title, authors, year, venue and key."""
        words = {spelling for word in query_words(query) for spelling in spellings(word)}
        names = [_folded(kind, word) for kind in ("first", "word") for word in sorted(words)]
        papers = self._by_words(query, IN_PART) | self._named([*names, *called(query.split())], IN_PART)
        return FoundPapers(self, papers)

    # Changes.

    def write(self, removed: Rows, papers: Iterable[LibraryPaper]) -> tuple[int, dict[str, int]]:
        """Write a version without some rows and with more papers; returns what `write_generation` does."""
        rows = self.counts["rows"]
        with lance_errors(self.folder):
            table = lancedb().connect(str(self.folder / LANCE)).open_table(TABLE)
            if table.version != self.table.version:  # what a killed change has written is removed
                table.checkout(self.table.version)
                table.restore()
            for start in range(0, len(removed), 1000):
                listed = ", ".join(map(str, removed[start : start + 1000].tolist()))
                table.delete(f"row IN ({listed})")
            for batch in _batches(papers, self.dense, rows):
                table.add(batch)
                rows += len(batch)
            unindexed = table.index_stats("words_idx").num_unindexed_rows
            if unindexed > UNINDEXED:
                table.optimize()
            counts = {"papers": table.count_rows(), "rows": rows}
        _write_checksums(self.folder)
        return table.version, counts


def _only(search: Any, where: str) -> Any:
    return search.where(where, prefilter=True) if where else search
