"""Engines for a library on disk, compared: LanceDB for words and vectors; tantivy's words, Faiss's codes.

    pip install lancedb
    python -m citerec.benchmarks.engines --papers 500000 --folder DIR

generates papers, and prints time to build, size, time of a query, and recall of the vectors against exact
search. Vectors are the built-in model's.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from citerec.benchmarks._common import memory_gb
from citerec.datasets.generate import BLOCK, GenerationPlan, Generator
from citerec.datasets.some_papers import SomePapers
from citerec.datasets.word_statistics import WordStatistics
from citerec.library.large.build import dense_part
from citerec.library.large.candidates import entries, query_terms
from citerec.library.large.shard import Entry, Shard, train_codes
from citerec.library.models import install_model
from citerec.library.papers import LibraryPaper
from citerec.retrieval.arrays import Floats
from citerec.retrieval.index import search_exact
from citerec.retrieval.queries import Queries, Query

QUERIES, DEPTH = 100, 200
Batches = Iterator[tuple[list[Entry], Floats]]
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

    def batches(self) -> Batches:
        for number in range(-(-self.plan.papers // BLOCK)):
            papers = [
                LibraryPaper(one["id"], title=one["title"], abstract=one["abstract"], year=one["year"])
                for one in self.records("papers", number)
            ]
            found, vectors, _ = entries(papers, self.dense, NOTHING_KNOWN)
            yield found, vectors

    def queries(self) -> tuple[list[list[str]], Floats]:
        """Terms and vectors of QUERIES contexts."""
        asked = [Query(one["masked_text"]) for one in self.records("contexts", 0)[:QUERIES]]
        corpus = SomePapers([], NOTHING_KNOWN, "queries")
        self.dense.prepare(corpus)
        return [*map(query_terms, asked)], self.dense.encode_queries(Queries.from_list(corpus, asked))


def build_shard(collection: Collection, folder: Path) -> None:
    first, batches = [], collection.batches()
    for batch in batches:
        first.append(batch)
        if len(first) * BLOCK >= 65_536:
            break
    codes = train_codes(np.concatenate([vectors for _, vectors in first]))
    shard = Shard.create(folder, codes)
    writer, row = shard.writer(2), 0
    for part in (first, batches):
        for found, vectors in part:
            row = shard.append(found, vectors, row, writer)
    writer.commit()
    writer.wait_merging_threads()
    shard.reload()
    shard.encode_rows(codes)


def build_lance(collection: Collection, folder: Path) -> None:
    import lancedb

    def tables() -> Iterator[pa.RecordBatch]:
        for found, vectors in collection.batches():
            flat = pa.array(vectors.astype(np.float16).ravel())
            columns = {
                "id": [entry.paper.id for entry in found],
                "title": [entry.paper.title for entry in found],
                "abstract": [entry.paper.abstract for entry in found],
                "terms": [entry.terms for entry in found],
                "vector": pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1]),
            }
            yield pa.RecordBatch.from_pydict(columns)

    batches = tables()
    first = next(batches)
    rest = pa.RecordBatchReader.from_batches(first.schema, batches)
    table = lancedb.connect(folder).create_table("papers", pa.Table.from_batches([first]))
    table.add(rest)
    lists = int(4 * collection.plan.papers**0.5)
    table.create_index("cosine", num_partitions=lists, num_sub_vectors=50, sample_rate=64)
    table.create_fts_index(
        "terms", base_tokenizer="whitespace", lower_case=False, stem=False, remove_stop_words=False,
        ascii_folding=False, with_position=False,
    )  # fmt: skip


def timed(run: Callable[[int], Any]) -> tuple[list[Any], str]:
    """Run a search for each query; returns what was found, and the p50 and p95 in milliseconds."""
    found, seconds = [], []
    for number in range(QUERIES):
        start = time.perf_counter()
        found.append(run(number))
        seconds.append(time.perf_counter() - start)
    p50, p95 = np.percentile(seconds, (50, 95)) * 1000
    return found, f"{p50:.1f} | {p95:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--papers", type=int, default=500_000)
    parser.add_argument("--folder", type=Path, default=Path("outputs/engines"))
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    collection = Collection(args.papers, args.folder)
    terms, vectors = collection.queries()
    started = time.perf_counter()
    whole = np.concatenate([vectors for _, vectors in collection.batches()])
    print(f"preparing alone: {time.perf_counter() - started:.0f} s")
    exact = search_exact(vectors, whole, DEPTH).papers
    del whole

    print("\n| engine | build, s | MB | words: p50, ms | p95 | vectors: p50, ms | p95 | recall@200 |")
    print("| --- |" + " ---: |" * 7)
    for name, build in (("tantivy and Faiss", build_shard), ("LanceDB", build_lance)):
        folder = args.folder / name.split()[0]
        shutil.rmtree(folder, ignore_errors=True)
        started = time.perf_counter()
        build(collection, folder)
        seconds = time.perf_counter() - started
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6
        if build is build_shard:
            shard = Shard(folder)
            weights = [
                {term: times * shard.own_idf(term) for term, times in Counter(some).items()} for some in terms
            ]
            _, by_words = timed(lambda n, shard=shard, weights=weights: shard.search_terms(weights[n], DEPTH))  # type: ignore[misc]
            found, by_vectors = timed(lambda n, shard=shard: shard.search_vector(vectors[n], DEPTH).rows)  # type: ignore[misc]
        else:
            found, by_words, by_vectors = ask_lance(folder, terms, vectors)
        recall = np.mean([np.isin(best, rows).mean() for best, rows in zip(exact, found, strict=True)])
        print(
            f"| {name} | {seconds:.0f} | {size:,.0f} | {by_words} | {by_vectors} | {recall:.3f} |", flush=True
        )
    print(f"peak resident memory: {memory_gb():.2f} GB")


def ask_lance(folder: Path, terms: list[list[str]], vectors: Floats) -> tuple[list[Any], str, str]:
    import lancedb
    from lancedb.query import MatchQuery

    table = lancedb.connect(folder).open_table("papers")

    def words(number: int) -> Any:
        query = MatchQuery(" ".join(terms[number]), "terms")
        return table.search(query, query_type="fts").select(["id", "_score"]).limit(DEPTH).to_arrow()

    def near(number: int) -> Any:
        search = table.search(vectors[number], vector_column_name="vector").distance_type("cosine")
        found = search.nprobes(100).refine_factor(5).select(["id", "_distance"]).limit(DEPTH).to_arrow()
        return np.array([int(id[1:]) for id in found["id"].to_pylist()])

    by_words, (found, by_vectors) = timed(words)[1], timed(near)
    return found, by_words, by_vectors


if __name__ == "__main__":
    main()
