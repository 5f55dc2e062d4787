"""Benchmarks that come with a pool of candidates for each query: their files, texts, scores and measures."""

from __future__ import annotations

import hashlib
import json
import logging
import math
from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import ir_measures
import msgspec
import numpy as np
import orjson
from ir_measures import Measure

from datasets.corpus import Corpus
from datasets.errors import InputError
from datasets.files import content_hash, read_limited
from datasets.json_lines import Object, read_objects, validate
from datasets.prepare import open_records, store_folder
from datasets.progress import count_progress, read_progress
from datasets.records import TARGET_MARKER, ContextRecord, PaperRecord, QueryRecord, Source
from datasets.source_files import read_records
from evaluation.benchmark import Benchmark, Data, RetrieverMaker
from evaluation.measures import PerQuery, Values
from evaluation.report import PER_QUERY, Metrics, Provenance, print_table, write_results
from evaluation.settings import PoolSettings
from retrieval.base import Retriever

log = logging.getLogger(__name__)

LARGEST = 1 << 28
"""Bytes of a JSON file at most."""
SPLIT = "test"

ABOUT = """\
- A query is a paper, by its title and abstract; relevant are the papers that it cites, or that are like it.
  Percent, unless the text says otherwise; the best of a column is bold, ± is the standard deviation over
  samplings of pools.
- Figures "as published" are of other data, unless the text says otherwise: compare the distances between
  the models, not the numbers."""
"""What a page of results says of benchmarks whose queries are papers."""

Table = dict[str, dict[str, float]]
"""{group of queries: {measure: percent}}, measures by the names of the official script."""
JudgedPools = dict[str, dict[str, int]]
"""{query: {candidate: relevance}}"""
Scores = dict[str, dict[str, float]]
"""{query: {candidate: score}}, higher is better."""


@dataclass(frozen=True)
class Findings:
    """What a benchmark measured.

    metrics: metrics.json. sections: paragraphs of report.md. tables: {title: head and rows}, printed
    after `printed`. remarks: sentences about what was left out.
    """

    title: str
    metrics: Table
    per_query: PerQuery
    sections: Sequence[str]
    tables: Mapping[str, list[list[str]]]
    remarks: Sequence[str] = ()
    printed: str = ""


class PoolBenchmark(Benchmark):
    """A benchmark with its own queries and candidates, which scores from a file or a retriever rank."""

    settings: PoolSettings
    about = ABOUT

    @abstractmethod
    def measure(self, folder: Path, retriever: RetrieverMaker) -> Findings:
        """Measure the scores of a file, or those of the retriever, which are also written to `folder`.

        Raises InputError for files that do not fit each other.
        """

    def run(
        self, folder: Path, provenance: Provenance, retriever: RetrieverMaker, data: Data | None = None
    ) -> Metrics:
        found = self.measure(folder, retriever)
        for remark in found.remarks:
            log.warning("%s", remark)
        if found.printed:
            print(found.printed)
        for title, rows in found.tables.items():
            print_table(rows, title)
        found.per_query.write(folder / PER_QUERY)
        write_results(folder, found.metrics, [f"# {found.title}", *found.sections], provenance)
        return found.metrics


def measure_pools(pools: JudgedPools, scores: Scores, measures: Mapping[str, Measure]) -> Values:
    """The measures of each query [Q] by trec_eval, which orders candidates of equal score by id."""
    rows = {query: row for row, query in enumerate(pools)}
    names = {measure: name for name, measure in measures.items()}
    values = {name: np.zeros(len(pools)) for name in measures}
    for found in ir_measures.pytrec_eval.iter_calc(list(names), pools, scores):
        values[names[found.measure]][rows[found.query_id]] = found.value
    return values


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file, plain or gzipped; NaN and Infinity are read as Python writes them.

    Raises InputError for a file that is missing or holds something else.
    """
    try:
        found = json.loads(read_limited(path, LARGEST).decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: malformed JSON: {error}") from None
    return validate(found, dict[str, Any], str(path))


def is_number(value: object) -> bool:
    """Whether it is a number that compares with others and that a float can hold."""
    if type(value) is int:
        return abs(value) < 1e308
    return isinstance(value, float) and not math.isnan(value)


def first_few(names: Collection[str], most: int = 5) -> str:
    """The first names, and how many more there are.

    >>> first_few(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    shown = ", ".join(list(names)[:most])
    return f"{shown} and {len(names) - most:,} more" if len(names) > most else shown


@dataclass(frozen=True)
class Text:
    """A paper of a file of texts; sentences: of its abstract, or all as one; labels: of each, or none."""

    id: str
    title: str
    sentences: list[str]
    labels: list[str]

    @property
    def abstract(self) -> str:
        return " ".join(self.sentences)

    def __bool__(self) -> bool:
        """Whether there is anything to read."""
        return bool(self.title.strip() or self.abstract.strip())


def read_texts(path: Path) -> Iterator[Text]:
    """Papers of a file of JSON lines, plain or gzipped: `paper_id`, `title`, `abstract` (text or sentences).

    A file called .json is one object, {paper_id: {"title", "abstract"}}. Raises InputError that names file,
    line (or paper) and field.
    """
    with read_progress(path, path.name) as advance:
        if path.name.removesuffix(".gz").endswith(".json"):
            for paper, found in read_records(path, frozenset(), dict, advance):
                yield _text(found | {"paper_id": paper}, f"{path}, paper {paper!r}")
            return
        for where, record in read_objects(path, advance):
            yield _text(record, where)


class _Record(msgspec.Struct):
    paper_id: str | int
    title: str | None = None
    abstract: str | list[str] | None = None
    pred_labels: list[str] | None = None


def _text(record: Object, where: str) -> Text:
    found = validate(record, _Record, where)
    abstract, labels = found.abstract or "", found.pred_labels or []
    sentences = [abstract] if isinstance(abstract, str) else abstract
    if labels and len(labels) != len(sentences):
        raise InputError(f"{where}: {len(sentences)} sentences and {len(labels)} labels")
    return Text(str(found.paper_id), found.title or "", sentences, labels)


@dataclass(frozen=True)
class QueryPaper:
    """A paper that is the query, by its abstract or the given text, and the papers it should find."""

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
    """The query papers and candidates of a file of texts as a corpus, with a context for each query.

    Candidates with neither title nor abstract are left out. Raises InputError that names papers which the
    file lacks, and query papers without a text.
    """
    query_papers = {query.paper for query in queries.values()}
    wanted, query_texts, readable = query_papers | set(candidates), dict[str, Text](), set[str]()

    def papers() -> Iterator[PaperRecord]:
        found = set[str]()
        for text in read_texts(path):
            if text.id not in wanted or text.id in found:
                continue
            found.add(text.id)
            if text:
                readable.add(text.id)
                if text.id in query_papers:
                    query_texts[text.id] = text
                yield PaperRecord(text.id, text.title, text.abstract)
        no_hit = [key for key, query in queries.items() if readable.isdisjoint(query.relevant)]
        for ids, wrong in (
            (sorted(wanted - found), "papers of the benchmark are not in it"),
            (sorted(query_papers - readable), "queries have neither title nor abstract"),
            (no_hit, "queries whose relevant papers have no text"),
        ):
            if ids:
                raise InputError(f"{path}: {len(ids):,} {wrong}: {first_few(ids)}")

    def contexts() -> Iterator[ContextRecord]:
        for key, query in queries.items():
            text = query_texts[query.paper]
            body = text.abstract if query.text is None else query.text
            body = body if body.strip() else text.title  # the title is the query then
            yield ContextRecord(key, f"{TARGET_MARKER} {body}", query.paper)

    def split() -> Iterator[QueryRecord]:
        for key, query in queries.items():
            yield QueryRecord(key, [paper for paper in query.relevant if paper in readable])

    described = orjson.dumps([{key: asdict(query) for key, query in queries.items()}, sorted(candidates)])
    with store_folder(Path(cache_dir).expanduser()) as stores:
        identity = {"texts": content_hash(path, stores)}
    identity["queries"] = hashlib.blake2b(described, digest_size=8).hexdigest()
    source = Source(name, identity, papers, contexts, {SPLIT: split})
    return open_records(source, cache_dir=cache_dir, candidates="all")


def open_judged(name: str, texts: Path, pools: JudgedPools, cache_dir: str | Path) -> Corpus:
    """As `open_texts`: each query of the pools is asked by its own text, and finds what is relevant to it."""
    queries = {
        query: QueryPaper(query, tuple(paper for paper, relevance in pool.items() if relevance > 0))
        for query, pool in pools.items()
    }
    return open_texts(name, texts, queries, {paper for pool in pools.values() for paper in pool}, cache_dir)


def merge_pools(parts: Iterable[JudgedPools]) -> JudgedPools:
    """One pool for each query: the candidates of all its pools, with their highest relevance."""
    together: JudgedPools = {}
    for pools in parts:
        for query, pool in pools.items():
            own = together.setdefault(query, {})
            own |= {paper: max(relevance, own.get(paper, 0)) for paper, relevance in pool.items()}
    return together


def pool_scores(retriever: Retriever, corpus: Corpus, pools: Mapping[str, Collection[str]]) -> Scores:
    """The retriever's scores of pools {query: candidates}.

    The retriever has indexed the corpus, whose contexts are the queries. What it does not find for a query
    (BM25: papers that share no word with it; papers without a text) scores below everything else.
    """
    textless = sorted({paper for pool in pools.values() for paper in pool if not corpus.has_paper(paper)})
    if textless:
        log.warning(
            "%s candidates without title and abstract are ranked last: %s", len(textless), first_few(textless)
        )
    contexts = {query: row for row, query in enumerate(corpus.context_ids)}
    found: Scores = {}
    with count_progress(f"{retriever.name}: scoring pools", len(pools)) as advance:
        for query, pool in pools.items():
            allowed = np.zeros(len(corpus.paper_ids), np.bool_)
            allowed[[corpus.paper_row(paper) for paper in pool if corpus.has_paper(paper)]] = True
            ranking = retriever.search_allowed(np.array([contexts[query]]), max(1, len(pool)), allowed)
            there = ranking.papers[0] >= 0
            names = [corpus.paper_ids[paper] for paper in ranking.papers[0][there].tolist()]
            found[query] = dict(zip(names, ranking.scores[0][there].tolist(), strict=True))
            advance(1)
    lowest = min((score for scored in found.values() for score in scored.values()), default=0.0) - 1
    return {
        query: {paper: found[query].get(paper, lowest) for paper in pool} for query, pool in pools.items()
    }
