"""Shared parts of benchmarks with a candidate pool per query: files, texts, scores and measures."""

from __future__ import annotations

import hashlib
import json
import logging
from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from citerec.base.errors import InputError
from citerec.base.files import cache_folder, content_hash, read_limited
from citerec.base.progress import count_progress, read_progress
from citerec.datasets.corpus import Corpus
from citerec.datasets.files.source_files import read_paper_objects
from citerec.datasets.prepare import open_records, store_folder
from citerec.datasets.records import TARGET_MARKER, ContextRecord, PaperRecord, QueryRecord, Source
from citerec.evaluation.benchmark import Benchmark, Data, RetrieverFactory
from citerec.evaluation.measures import PerQuery
from citerec.evaluation.report import PER_QUERY, Provenance, Report, remove_results
from citerec.evaluation.settings import PoolSettings
from citerec.formats.json_lines import validate
from citerec.retrieval.base import Retriever

log = logging.getLogger(__name__)

MAX_JSON_BYTES = 1 << 28
"""Maximum size of a JSON file."""
SPLIT = "test"

Percent = dict[str, dict[str, float]]
"""{group of queries: {measure: percent}}, with the measure names of the official script."""
JudgedPools = dict[str, dict[str, int]]
"""{query: {candidate: relevance}}"""
Scores = dict[str, dict[str, float]]
"""{query: {candidate: score}}; higher is better."""


@dataclass(frozen=True)
class Findings:
    """Results of a benchmark.

    remarks: sentences about what was left out.
    """

    report: Report
    per_query: PerQuery
    remarks: Sequence[str] = ()


class PoolBenchmark(Benchmark):
    """A benchmark with its own queries and candidates, ranked by scores from a file or a retriever."""

    settings: PoolSettings

    @abstractmethod
    def measure(self, folder: Path, retriever: RetrieverFactory) -> Findings:
        """Measure the scores of a file, or those of the retriever, which are also written into `folder`.

        Raises InputError if files do not match.
        """

    def run(
        self, folder: Path, provenance: Provenance, retriever: RetrieverFactory, data: Data | None = None
    ) -> Report:
        report = self.measure(folder, retriever)
        for remark in report.remarks:
            log.warning("%s", remark)
        remove_results(folder)
        report.per_query.write(folder / PER_QUERY)
        report.report.write(folder, provenance)
        return report.report


def read_json(path: Path) -> dict[str, Any]:
    """Read the object in a JSON file, plain or gzipped; accepts NaN and Infinity as Python writes them.

    Raises InputError if the file is missing or holds anything else.
    """
    try:
        content = json.loads(read_limited(path, MAX_JSON_BYTES).decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: malformed JSON: {error}") from None
    return validate(content, dict[str, Any], str(path))


def first_few(names: Collection[str], most: int = 5) -> str:
    """List the first names, plus a count of the rest.

    >>> first_few(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    shown = ", ".join(list(names)[:most])
    return f"{shown} and {len(names) - most:,} more" if len(names) > most else shown


class Text(msgspec.Struct):
    """Title and abstract of a paper: a text, or sentences with a label each."""

    paper_id: str | int
    title: str | None = None
    abstract: str | list[str] | None = None
    pred_labels: list[str] | None = None

    @property
    def id(self) -> str:
        return str(self.paper_id)

    @property
    def body(self) -> str:
        """The abstract as one text."""
        return " ".join(self.abstract) if isinstance(self.abstract, list) else self.abstract or ""

    def __bool__(self) -> bool:
        """True if title or abstract is not blank."""
        return bool((self.title or "").strip() or self.body.strip())


def read_texts(path: Path) -> Iterator[Text]:
    """Yield the papers (`paper_id`, `title`, `abstract` as text or sentences) of JSON lines or a papers.json.

    InputError names file, record and field.
    """
    with read_progress(path, path.name) as advance:
        for where, record in read_paper_objects(path, advance):
            yield validate(record, Text, where)


@dataclass(frozen=True)
class QueryPaper:
    """A query paper, searched by its abstract or the given text, and its relevant papers."""

    paper: str
    relevant: tuple[str, ...]
    text: str | None = None


def open_texts(
    name: str,
    path: Path,
    queries: Mapping[str, QueryPaper],
    candidates: Collection[str],
    cache_dir: str | Path,
) -> Corpus:
    """Open query papers and candidates from a file of texts as a corpus, with one context per query.

    Candidates with neither title nor abstract are left out. InputError names papers missing from the file,
    and query papers without a text.
    """
    query_papers = {query.paper for query in queries.values()}
    wanted, query_texts, readable = query_papers | set(candidates), dict[str, Text](), set[str]()

    def papers() -> Iterator[PaperRecord]:
        seen = set[str]()
        for text in read_texts(path):
            if text.id not in wanted or text.id in seen:
                continue
            seen.add(text.id)
            if text:
                readable.add(text.id)
                if text.id in query_papers:
                    query_texts[text.id] = text
                yield PaperRecord(text.id, text.title or "", text.body)
        no_hit = [key for key, query in queries.items() if readable.isdisjoint(query.relevant)]
        for ids, wrong in (
            (sorted(wanted - seen), "papers of the benchmark are missing"),
            (sorted(query_papers - readable), "queries have neither title nor abstract"),
            (no_hit, "queries have no relevant paper with a text"),
        ):
            if ids:
                raise InputError(f"{path}: {len(ids):,} {wrong}: {first_few(ids)}")

    def contexts() -> Iterator[ContextRecord]:
        for key, query in queries.items():
            text = query_texts[query.paper]
            body = text.body if query.text is None else query.text
            body = body if body.strip() else text.title or ""
            yield ContextRecord(key, f"{TARGET_MARKER} {body}", query.paper)

    def split() -> Iterator[QueryRecord]:
        for key, query in queries.items():
            yield QueryRecord(key, [paper for paper in query.relevant if paper in readable])

    described = msgspec.json.encode(
        [{key: asdict(query) for key, query in queries.items()}, sorted(candidates)]
    )
    with store_folder(cache_folder(cache_dir)) as stores:
        identity = {"texts": content_hash(path, stores)}
    identity["queries"] = hashlib.blake2b(described, digest_size=8).hexdigest()
    source = Source(name, identity, papers, contexts, {SPLIT: split})
    return open_records(source, cache_dir=cache_dir, candidates="all")


def merge_pools(parts: Iterable[JudgedPools]) -> JudgedPools:
    """Merge the pools of each query, keeping the highest relevance of a candidate."""
    merged: JudgedPools = {}
    for pools in parts:
        for query, pool in pools.items():
            own = merged.setdefault(query, {})
            own |= {paper: max(relevance, own.get(paper, 0)) for paper, relevance in pool.items()}
    return merged


def open_judged(name: str, texts: Path, pools: JudgedPools, cache_dir: str | Path) -> Corpus:
    """Open judged pools as a corpus (see `open_texts`), with each query's own text and relevant papers."""
    queries = {
        query: QueryPaper(query, tuple(paper for paper, relevance in pool.items() if relevance > 0))
        for query, pool in pools.items()
    }
    return open_texts(name, texts, queries, {paper for pool in pools.values() for paper in pool}, cache_dir)


def pool_scores(retriever: Retriever, corpus: Corpus, pools: Mapping[str, Collection[str]]) -> Scores:
    """Score pools {query: candidates} with a retriever.

    The retriever has indexed the corpus, whose contexts are the queries. Candidates that it does not find
    (papers without a text; for BM25, papers that share no word with the query) score below all others.
    """
    textless = sorted({paper for pool in pools.values() for paper in pool if not corpus.has_paper(paper)})
    if textless:
        log.warning(
            "%s candidates without title and abstract are ranked last: %s", len(textless), first_few(textless)
        )
    contexts = {query: row for row, query in enumerate(corpus.context_ids)}
    scores: Scores = {}
    with count_progress(f"{retriever.name}: scoring pools", len(pools)) as advance:
        for query, pool in pools.items():
            allowed = np.zeros(len(corpus.paper_ids), np.bool_)
            allowed[[corpus.paper_row(paper) for paper in pool if corpus.has_paper(paper)]] = True
            ranking = retriever.search_allowed(np.array([contexts[query]]), max(1, len(pool)), allowed)
            valid = ranking.papers[0] >= 0
            names = [corpus.paper_ids[paper] for paper in ranking.papers[0][valid].tolist()]
            scores[query] = dict(zip(names, ranking.scores[0][valid].tolist(), strict=True))
            advance(1)
    lowest = min((score for scored in scores.values() for score in scored.values()), default=0.0) - 1
    return {
        query: {paper: scores[query].get(paper, lowest) for paper in pool} for query, pool in pools.items()
    }
