"""Papers of a citation graph as a corpus whose queries are papers, so that any retriever can rank them.

A query paper is a context: its abstract (its title where it has none), so that title and context, or title
and abstract, are the query. The papers that it cites are relevant.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from datasets.citations.graph import CitationGraph, PaperLine, open_graph, read_paper_lines
from datasets.columns import Ragged, offsets_of
from datasets.configuration import read_settings
from datasets.corpus import Corpus
from datasets.errors import InputError
from datasets.files import atomic_write, read_limited
from datasets.near_duplicates import TitleIndex
from datasets.prepare import open_records
from datasets.progress import read_progress
from datasets.records import (
    SPLITS,
    TARGET_MARKER,
    TRAIN,
    ContextRecord,
    PaperRecord,
    QueryRecord,
    Source,
    check_split_names,
    quoted,
)
from datasets.settings import Settings, setting
from datasets.splitting import Splitting, YearShares

log = logging.getLogger(__name__)

LARGEST = 1 << 28
"""Bytes of the largest file of query lists that is read."""
TITLES = 1 << 16
"""Titles that are compared together."""
VERSION = 1
"""Of the near-duplicates in the cache: raise it when they change."""

Files = str | Path | Sequence[str | Path]
Rows = NDArray[np.int64]


class QuerySet(NamedTuple):
    """Papers that are queries, rows of the graph ascending [Q], and the rows of the relevant papers of each
    [Q]."""

    papers: Rows
    relevant: Ragged


@dataclass(frozen=True)
class QueryRules(Settings):
    """Which papers are queries, and what is relevant to them.

    min_cited: relevant papers that a query needs. found: `all` cited papers are relevant, or those of `train`
    alone, as Citeomatic does with DBLP and PubMed. near_duplicates: a Jaccard index of the words of two
    titles; a training paper is no query if its title exceeds it with that of a query of another split or of a
    paper in `held_out`, files of papers of other collections. None: all are queries.
    """

    where: ClassVar[str] = "data"

    min_cited: int = setting(1, least=1)
    found: str = setting("all", choices=("all", TRAIN))
    near_duplicates: float | None = setting(None, below=1)
    held_out: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.held_out and self.near_duplicates is None:
            raise InputError("data.held_out: needs data.near_duplicates, e.g. 0.7")


@dataclass(frozen=True)
class GraphQueries:
    """The papers of a collection [P], rows of the graph ascending, and the queries of each split.

    eligible: all papers that meet the rules. queries: those used, perhaps a sample except in train.
    removed: rows of eligible training papers that are near-duplicates of held-out ones.
    """

    graph: CitationGraph
    papers: Rows
    eligible: dict[str, QuerySet]
    queries: dict[str, QuerySet]
    removed: Rows


def open_papers(
    *files: Any,
    tokenizer: str = "default",
    cache_dir: str | Path = ".cache",
    name: str | None = None,
    **given: Any,
) -> Corpus:
    """A corpus of all papers with a text, whose queries are the papers that cite others
    (conf/data/papers.yaml).

    files, given: see open_queries.
    """
    found = open_queries(*files, cache_dir=cache_dir, **given)
    splits = {split: some for split, some in found.queries.items() if len(some.papers)}
    title = name or Path(found.graph.files[0]).resolve().parent.name
    return corpus_of(found.graph, found.papers, splits, title, cache_dir, tokenizer)


def open_queries(
    papers: Files,
    splitting: Splitting,
    queries: str | Path | None = None,
    citations: str | Path | None = None,
    *,
    cache_dir: str | Path = ".cache",
    tokenizer: str = "default",
    name: str | None = None,
    **rules: Any,
) -> GraphQueries:
    """The papers of a collection that are queries.

    papers, citations: see open_graph. Cited papers of a later year than the query's are not relevant.
    queries: a file of the ids of each split (read_query_lists); None: `splitting` chooses. rules: see
    QueryRules. tokenizer, name: of the corpus, which is not made here.
    Raises InputError for files that cannot be used, and where no paper cites another.
    """
    query_rules = read_settings(QueryRules, rules)
    graph = open_graph(papers, citations, cache_dir=cache_dir)
    shares = splitting if isinstance(splitting, YearShares) and queries is None else None
    has_text = graph.titled | (graph.abstract_lengths > 0)
    if shares:
        has_text &= graph.years > 0
    texts = np.flatnonzero(has_text)
    if queries is not None:
        splits = _listed(read_query_lists(queries), graph, texts)
    elif shares:
        splits = shares.split(graph.years, texts)
    else:
        names = [splitting(graph.ids[row], int(graph.years[row])) or "" for row in texts.tolist()]
        splits = {split: texts[np.array(names, object) == split] for split in SPLITS}
    candidates = has_text
    if query_rules.found == TRAIN:
        candidates = np.zeros(len(graph), np.bool_)
        candidates[splits.get(TRAIN, [])] = True
        candidates &= has_text
    relevant = cited_earlier(graph, candidates)
    enough = relevant.lengths >= query_rules.min_cited
    if not enough[texts].any():
        several = query_rules.min_cited > 1
        least = f"{query_rules.min_cited} others that are" if several else "another that is"
        raise InputError(f"{graph.files[0]}: no paper cites {least} in it, with a text and not later")
    eligible = {split: rows[enough[rows]] for split, rows in splits.items()}
    chosen = shares.sampled(eligible) if shares else dict(eligible)
    removed = np.empty(0, np.int64)
    if query_rules.near_duplicates is not None and TRAIN in eligible:
        held_out = np.sort(np.concatenate([removed, *(chosen[split] for split in chosen if split != TRAIN)]))
        removed = _near_duplicates(
            graph, eligible[TRAIN], held_out, query_rules, Path(cache_dir).expanduser()
        )
        chosen[TRAIN] = np.setdiff1d(eligible[TRAIN], removed)
        counted = f"{len(removed):,} of {len(eligible[TRAIN]):,}"
        log.info("dropped %s training queries with nearly the title of a held-out paper", counted)
    all_queries, queries_used = (
        {split: QuerySet(rows, relevant.take(rows)) for split, rows in some.items()}
        for some in (eligible, chosen)
    )
    return GraphQueries(graph, texts, all_queries, queries_used, removed)


def cited_earlier(graph: CitationGraph, candidates: NDArray[np.bool_]) -> Ragged:
    """The candidates [P] that each paper cites and that are not later than itself; unknown years pass."""
    citing = np.repeat(np.arange(len(graph)), graph.cites.lengths)
    cited = graph.cites.values
    years = graph.years[citing]
    there = candidates[cited] & ((years == 0) | (graph.years[cited] <= years))
    counts = np.bincount(citing[there], minlength=len(graph))
    return Ragged(cited[there], offsets_of(counts))


def read_rows(graph: CitationGraph, rows: Rows) -> Iterator[tuple[int, PaperLine]]:
    """The papers in some rows of a graph, ascending, out of its files."""
    wanted = np.zeros(len(graph), np.bool_)
    wanted[rows] = True
    row = 0
    for path in graph.files:
        with read_progress(path, path.name) as on_bytes:
            for paper in read_paper_lines(path, on_bytes):
                if wanted[row]:
                    yield row, paper
                row += 1


# Lists of queries: {"val": {field: [ids]}, "test": {field: [ids]}}, or ids without fields.


@dataclass(frozen=True)
class QueryLists:
    """A file's ids by split."""

    path: Path
    splits: dict[str, list[str]]

    def rows(self, split: str, graph: CitationGraph) -> list[int]:
        """Rows of a split's papers; InputError for a split that is missing, and for ids that no paper has."""
        if split not in self.splits:
            raise InputError(f"{self.path}: no split {split!r}; choose from {', '.join(self.splits)}")
        ids = self.splits[split]
        if missing := [paper for paper in ids if paper not in graph.rows]:
            lacking = f"{len(missing):,} of {len(ids):,} ids are not in {graph.files[0]}"
            raise InputError(f"{self.path}, {split!r}: {lacking}: {', '.join(missing[:5])}")
        return [graph.rows[paper] for paper in ids]


def read_query_lists(path: str | Path) -> QueryLists:
    """Read a file; InputError that names the part which is not of this form, or an id in two splits."""
    path = Path(path).expanduser()
    try:
        found = orjson.loads(read_limited(path, LARGEST))
    except orjson.JSONDecodeError as error:
        raise InputError(f"{path}: malformed JSON: {error}") from None
    if not isinstance(found, dict) or not found:
        raise InputError(f"{path}: must be an object of splits, such as val and test")
    try:
        check_split_names(list(found))
    except InputError as error:
        raise InputError(f"{path}: {str(error).removeprefix('data.splits: ')}") from None
    splits: dict[str, list[str]] = {}
    split_of: dict[str, str] = {}
    for split, value in found.items():
        ids: dict[str, None] = {}
        for part in value.values() if isinstance(value, dict) else [value]:
            if not isinstance(part, list) or not all(isinstance(paper, str) for paper in part):
                wanted = "a list of ids, or an object of such lists by field"
                raise InputError(f"{path}, {split!r}: must be {wanted}")
            ids |= dict.fromkeys(part)
        splits[split] = list(ids)
        for paper in ids:
            if (other := split_of.setdefault(paper, split)) != split:
                twice = f"{quoted(paper)} is in {other!r} and in {split!r}"
                raise InputError(f"{path}: {twice}; a query has one split")
    return QueryLists(path, splits)


def _listed(lists: QueryLists, graph: CitationGraph, papers: Rows) -> dict[str, Rows]:
    """The rows of the lists that are among the papers; all others are for training if no list is."""
    rows = {split: np.array(sorted(lists.rows(split, graph)), np.int64) for split in lists.splits}
    if TRAIN not in rows:
        rows = {TRAIN: np.setdiff1d(papers, np.concatenate(list(rows.values())))} | rows
    order = [split for split in dict.fromkeys((*SPLITS, *rows)) if split in rows]
    return {split: np.intersect1d(rows[split], papers) for split in order}


def _near_duplicates(
    graph: CitationGraph, train: Rows, held_out: Rows, rules: QueryRules, cache_dir: Path
) -> Rows:
    """The training papers whose titles are near a held-out one; found once, then kept in the cache."""
    assert rules.near_duplicates is not None
    others = open_graph(rules.held_out, cache_dir=cache_dir) if rules.held_out else None
    settings = f"{VERSION} {rules.near_duplicates} {graph.fingerprint} {others and others.fingerprint}"
    path = cache_dir / "near_duplicates" / f"{_digest(settings, train, held_out)}.npy"
    if not path.is_file():
        titles = [paper.title for _, paper in read_rows(graph, held_out)]
        if others is not None:
            titles += [paper.title for _, paper in read_rows(others, np.arange(len(others)))]
        index = TitleIndex(titles, rules.near_duplicates)
        papers = read_rows(graph, train)
        found = [np.empty(0, np.int64)]
        for first in range(0, len(train), TITLES):
            some = train[first : first + TITLES]
            found.append(some[index.near([paper.title for _, paper in islice(papers, len(some))])])
        with atomic_write(path) as unfinished, unfinished.open("wb") as file:
            np.save(file, np.concatenate(found))
    return np.asarray(np.load(path, allow_pickle=False))


def _digest(text: str, *arrays: NDArray[Any]) -> str:
    digest = hashlib.blake2b(text.encode(), digest_size=8)
    for array in arrays:
        digest.update(len(array).to_bytes(8, "little"))
        digest.update(np.ascontiguousarray(array, np.int64).data)
    return digest.hexdigest()


def corpus_of(
    graph: CitationGraph,
    papers: Rows,
    queries: Mapping[str, QuerySet],
    name: str,
    cache_dir: str | Path,
    tokenizer: str = "default",
) -> Corpus:
    """Some papers of a graph, all of them candidates, with the queries of some splits.

    papers: rows, ascending, each with a text; row i of the corpus is papers[i]. Queries and relevant papers
    are among them. A context has the id of its paper.
    """
    arrays: list[NDArray[Any]] = [papers]
    for split in queries.values():
        arrays += (split.papers, split.relevant.values, split.relevant.offsets)
    of_queries = np.unique(
        np.concatenate([np.empty(0, np.int64), *(split.papers for split in queries.values())])
    )

    def records() -> Iterator[PaperRecord]:
        for _, paper in read_rows(graph, papers):
            yield PaperRecord(paper.id, paper.title, paper.abstract, paper.year, paper.fields)

    def contexts() -> Iterator[ContextRecord]:
        for _, paper in read_rows(graph, of_queries):
            yield ContextRecord(paper.id, f"{TARGET_MARKER} {paper.abstract or paper.title}", paper.id)

    def split_records(split: QuerySet) -> Iterator[QueryRecord]:
        for row, relevant in zip(split.papers.tolist(), split.relevant, strict=True):
            yield QueryRecord(graph.ids[row], [graph.ids[one] for one in relevant.tolist()])

    source = Source(
        name,
        {"graph": graph.fingerprint, "queries": _digest(f"{list(queries)}", *arrays)},
        records,
        contexts,
        {name: partial(split_records, split) for name, split in queries.items()},
        field="fields" if graph.fields.lengths[papers].any() else None,
    )
    return open_records(source, cache_dir, tokenizer=tokenizer, candidates="all")
