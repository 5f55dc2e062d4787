"""Engines for a library on disk, compared: words by tantivy or LanceDB, vectors by Faiss or LanceDB.

    pip install lancedb
    python -m citerec.speed.engines --papers 2000000 --folder DIR

generates papers, and prints for each engine: time and peak memory of building; size; time of a query, with
everything in the page cache and with nothing there; memory while asking (its own, and mapped files); time to
add 100 papers; recall of the vectors against exact search. Each engine runs in processes of its own. Vectors
are the built-in model's.
"""

from __future__ import annotations

import argparse
import shutil
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from citerec.datasets.generate import BLOCK, GenerationPlan, Generator
from citerec.datasets.some_papers import SomePapers
from citerec.datasets.word_statistics import WordStatistics
from citerec.library.disk.build import dense_part
from citerec.library.disk.candidates import entries, query_terms
from citerec.library.disk.shard import REFINED, TRAINING, Entry, Shard, train_codes
from citerec.library.models import install_model
from citerec.library.papers import LibraryPaper
from citerec.retrieval.arrays import Floats
from citerec.retrieval.indexes.cpu import faiss
from citerec.retrieval.indexes.index import search_exact
from citerec.retrieval.queries import Queries, Query
from citerec.speed._common import make_parser, memory_gb, run_in_processes, setup
from citerec.speed.large_library import evict

QUERIES, COLD, DEPTH, ADDED = 100, 5, 200, 100
LISTS_READ = 100
"""Of the lists of an inverted file, 4 times the root of the papers."""
Batch = tuple[list[Entry], Floats]
NOTHING_KNOWN = WordStatistics(1, 1, {}, np.empty(0, np.uint64), np.empty(0, np.int64))


class Collection:
    """Generated papers, as shards get them, and queries for them."""

    def __init__(self, papers: int, folder: Path) -> None:
        self.plan = GenerationPlan(papers, max(QUERIES, papers // 100))
        if not (folder / "model").exists():
            install_model("", "", folder / "model")
        self.dense = dense_part(folder / "model")

    def records(self, kind: str, number: int) -> list[dict[str, Any]]:
        """The records of a block."""
        text = Generator(self.plan).block(kind, number)[kind].decode().strip().strip("{,").rstrip(",")
        return [{"id": id, **record} for id, record in orjson.loads(f"{{{text}}}").items()]

    def batches(self) -> Iterator[Batch]:
        for number in range(-(-self.plan.papers // BLOCK)):
            papers = [
                LibraryPaper(one["id"], title=one["title"], abstract=one["abstract"], year=one["year"])
                for one in self.records("papers", number)
            ]
            found, vectors, _ = entries(papers, self.dense, NOTHING_KNOWN)
            yield found, vectors

    def sample(self) -> Floats:
        """Vectors to learn codes from."""
        return np.concatenate([vectors for _, vectors in islice(self.batches(), -(-TRAINING // BLOCK))])

    def queries(self) -> tuple[list[list[str]], Floats]:
        """Terms and vectors of QUERIES contexts."""
        asked = [Query(one["masked_text"]) for one in self.records("contexts", 0)[:QUERIES]]
        corpus = SomePapers([], NOTHING_KNOWN, "queries")
        self.dense.prepare(corpus)
        return [*map(query_terms, asked)], self.dense.encode_queries(Queries.from_list(corpus, asked))


class Engine(ABC):
    """Papers in a folder, found by words and by vectors."""

    name = ""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / type(self).__name__

    def build(self, collection: Collection) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        self.fill(collection)

    @abstractmethod
    def fill(self, collection: Collection) -> None: ...

    @abstractmethod
    def words(self, terms: list[str]) -> object: ...

    @abstractmethod
    def near(self, vector: Floats) -> Any:
        """Numbers of papers."""

    @abstractmethod
    def add(self, batch: Batch) -> None: ...


class Chosen(Engine):
    name = "tantivy; Faiss, all 4-bit codes, 8-bit vectors"

    def fill(self, collection: Collection) -> None:
        codes = train_codes(collection.sample())
        shard = Shard.create(self.folder / "shard", codes)
        writer, row = shard.writer(2), 0
        for found, vectors in collection.batches():
            row = shard.append(found, vectors, row, writer)
        writer.commit()
        writer.wait_merging_threads()
        shard.reload()
        shard.encode_rows(codes)

    @cached_property
    def shard(self) -> Shard:
        return Shard(self.folder / "shard")

    def words(self, terms: list[str]) -> object:
        weights = {term: times * self.shard.own_idf(term) for term, times in Counter(terms).items()}
        return self.shard.search_terms(weights, DEPTH)

    def near(self, vector: Floats) -> Any:
        return self.shard.search_vector(vector, DEPTH).rows

    def add(self, batch: Batch) -> None:
        self.shard.change(*batch)


class InvertedFile(Chosen):
    """Reads the shard of Chosen, with an inverted file in place of its codes."""

    name = "...; Faiss IVF-PQ, memory-mapped, 8-bit vectors"

    def fill(self, collection: Collection) -> None:
        sample, lists = collection.sample(), int(4 * collection.plan.papers**0.5)
        index = faiss.index_factory(sample.shape[1], f"IVF{lists},PQ50x8", faiss.METRIC_INNER_PRODUCT)
        index.train(sample)
        for _, vectors in collection.batches():
            index.add(vectors)
        faiss.write_index(index, str(self.folder / "ivf.faiss"))

    @cached_property
    def shard(self) -> Shard:
        return Shard(self.folder.with_name("Chosen") / "shard")

    @cached_property
    def index(self) -> Any:
        index = faiss.read_index(str(self.folder / "ivf.faiss"), faiss.IO_FLAG_MMAP)
        index.nprobe = LISTS_READ
        return index

    def near(self, vector: Floats) -> Any:
        rows = self.index.search(vector[None], REFINED * DEPTH)[1][0]
        rows = rows[rows >= 0]
        return rows[np.argsort(-(self.shard.vectors(rows) @ vector), kind="stable")[:DEPTH]]

    def add(self, batch: Batch) -> None:
        index = faiss.read_index(str(self.folder / "ivf.faiss"))  # a mapped one is read-only
        index.add(batch[1])
        faiss.write_index(index, str(self.folder / "ivf.tmp"))


class Lance(Engine):
    name = "LanceDB: full-text index, IVF-PQ"

    def fill(self, collection: Collection) -> None:
        import lancedb

        batches = map(self.rows, collection.batches())
        first = next(batches)
        rows = pa.RecordBatchReader.from_batches(first.schema, chain([first], batches))
        table = lancedb.connect(self.folder).create_table("papers", rows)
        lists = int(4 * collection.plan.papers**0.5)
        table.create_index("cosine", num_partitions=lists, num_sub_vectors=50, sample_rate=64)
        table.create_fts_index(
            "terms", base_tokenizer="whitespace", lower_case=False, stem=False, remove_stop_words=False,
            ascii_folding=False, with_position=False,
        )  # fmt: skip

    @staticmethod
    def rows(batch: Batch) -> pa.RecordBatch:
        found, vectors = batch
        flat = pa.array(vectors.astype(np.float16).ravel())
        columns = {
            "id": [entry.paper.id for entry in found],
            "title": [entry.paper.title for entry in found],
            "abstract": [entry.paper.abstract for entry in found],
            "terms": [entry.terms for entry in found],
            "vector": pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1]),
        }
        return pa.RecordBatch.from_pydict(columns)

    @cached_property
    def table(self) -> Any:
        import lancedb

        return lancedb.connect(self.folder).open_table("papers")

    def words(self, terms: list[str]) -> object:
        from lancedb.query import MatchQuery

        query = MatchQuery(" ".join(terms), "terms")
        return self.table.search(query, query_type="fts").select(["id", "_score"]).limit(DEPTH).to_arrow()

    def near(self, vector: Floats) -> Any:
        search = self.table.search(vector, vector_column_name="vector").distance_type("cosine")
        search = search.nprobes(LISTS_READ).refine_factor(REFINED).select(["id", "_distance"])
        return np.array([int(id[1:]) for id in search.limit(DEPTH).to_arrow()["id"].to_pylist()])

    def add(self, batch: Batch) -> None:
        self.table.add(pa.Table.from_batches([self.rows(batch)]))
        self.table.optimize()  # without which new rows are searched one by one


ENGINES: tuple[type[Engine], ...] = (Chosen, InvertedFile, Lance)


def prepare(args: argparse.Namespace) -> None:
    """Write queries and their exact neighbours."""
    collection = Collection(args.papers, args.folder)
    terms, vectors = collection.queries()
    started = time.perf_counter()
    whole = np.empty((args.papers, vectors.shape[1]), np.float32)
    row = 0
    for _, some in collection.batches():
        whole[row : row + len(some)] = some
        row += len(some)
    print(f"{args.papers:,} papers, made in {time.perf_counter() - started:.0f} s of each build")
    exact = search_exact(vectors, whole, DEPTH).papers
    np.savez(args.folder / "queries.npz", vectors=vectors, exact=exact)
    (args.folder / "terms.json").write_bytes(orjson.dumps(terms))


def build(args: argparse.Namespace) -> None:
    collection = Collection(args.papers, args.folder)
    started = time.perf_counter()
    engine: Engine = args.engine(args.folder)
    engine.build(collection)
    size = sum(file.stat().st_size for file in engine.folder.rglob("*") if file.is_file()) / 1e6
    seconds = time.perf_counter() - started
    print(f"\n{engine.name}\n  built in {seconds:.0f} s, {memory_gb():.1f} GB at the peak; {size:,.0f} MB")


def ask(args: argparse.Namespace) -> None:
    engine: Engine = args.engine(args.folder)
    terms = orjson.loads((args.folder / "terms.json").read_bytes())
    with np.load(args.folder / "queries.npz") as saved:
        vectors, exact = saved["vectors"], saved["exact"]
    for what, search in (
        ("words", lambda n: engine.words(terms[n])),
        ("vectors", lambda n: engine.near(vectors[n])),
    ):
        timed(search, QUERIES)  # fills the page cache
        found, warm = timed(search, QUERIES)
        cold = timed(search, COLD, lambda: evict(args.folder))[1]
        print(
            f"  {what}: warm p50 {warm[0]:.1f}, p95 {warm[1]:.1f}, p99 {warm[2]:.1f} ms; "
            f"cold p50 {cold[0]:.0f} ms"
        )
    recall = np.mean([np.isin(best, rows).mean() for best, rows in zip(exact, found, strict=True)])
    own, mapped = memory_gb("RssAnon"), memory_gb("RssFile")
    print(f"  recall@{DEPTH} of vectors {recall:.3f}; resident {own:.2f} GB, and {mapped:.2f} GB of files")


def add(args: argparse.Namespace) -> None:
    engine: Engine = args.engine(args.folder)
    found, vectors = next(Collection(args.papers, args.folder).batches())
    started = time.perf_counter()
    engine.add((found[:ADDED], vectors[:ADDED]))
    print(f"  {ADDED} papers added in {time.perf_counter() - started:.1f} s")


def timed(
    run: Callable[[int], Any], queries: int, before: Callable[[], None] = lambda: None
) -> tuple[list[Any], list[float]]:
    """Run a search for each query; returns what was found, and p50, p95 and p99 in milliseconds."""
    found, seconds = [], []
    for number in range(queries):
        before()
        start = time.perf_counter()
        found.append(run(number))
        seconds.append(time.perf_counter() - start)
    return found, (np.percentile(seconds, (50, 95, 99)) * 1000).tolist()


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--papers", type=int, default=500_000)
    parser.add_argument("--folder", type=Path, default=Path("outputs/engines"))
    parser.add_argument("--engines", nargs="+", default=[one.__name__ for one in ENGINES])
    args = parser.parse_args()
    setup(args)
    args.folder.mkdir(parents=True, exist_ok=True)
    run_in_processes([prepare], args)
    for args.engine in ENGINES:
        if args.engine.__name__ in args.engines:
            run_in_processes([build, ask, add], args)


if __name__ == "__main__":
    main()
