"""Turn a citation graph into a corpus whose queries are papers, so that any retriever can rank them.

The context of a query paper is its abstract, or its title if it has none; the query is then title and
context, or title and abstract. The papers that it cites are relevant.
"""

from __future__ import annotations

import hashlib
import logging
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from citerec.base.configuration import read_settings
from citerec.base.errors import InputError, quoted
from citerec.base.files import atomic_write, cache_folder, expand_user, read_limited
from citerec.base.progress import read_progress
from citerec.base.settings import Settings, setting
from citerec.datasets.citations.graph import CitationGraph, PaperLine, open_graph, read_paper_lines
from citerec.datasets.columns import Ragged, offsets_of
from citerec.datasets.corpus import Corpus
from citerec.datasets.prepare import open_records
from citerec.datasets.records import (
    SPLITS,
    TARGET_MARKER,
    TRAIN,
    ContextRecord,
    PaperRecord,
    QueryRecord,
    Source,
    check_split_names,
)
from citerec.datasets.splitting import Splitting, YearShares
from citerec.formats.identifiers import arxiv_month
from citerec.formats.json_lines import decode_json

log = logging.getLogger(__name__)

MAX_BYTES = 1 << 28
"""Maximum size of a file of query lists."""
MAX_COMPARED = 1000
"""Titles compared for each rare word, the first ones; bounds the time when thousands share a few words."""
VERSION = 1
"""Version of the cached near-duplicates: increment it when they change."""

_NOT_IN_WORDS = re.compile(r"[\W_]+")

Files = str | Path | Sequence[str | Path]
Rows = NDArray[np.int64]


class QuerySet(NamedTuple):
    """Query papers as ascending graph rows [Q], and the rows of each query's relevant papers [Q]."""

    papers: Rows
    relevant: Ragged


@dataclass(frozen=True)
class QueryRules(Settings):
    """Which papers are queries, and which papers are relevant to them.

    min_cited: minimum number of relevant papers of a query. found: `all` cited papers are relevant, or only
    those in `train`, as in Citeomatic for DBLP and PubMed. near_duplicates: drop training queries whose
    title words have a higher Jaccard index than this with a query of another split; None drops none.
    """

    where: ClassVar[str] = "data"

    min_cited: int = setting(1, least=1)
    found: str = setting("all", choices=("all", TRAIN))
    near_duplicates: float | None = setting(None, below=1)


@dataclass(frozen=True)
class GraphQueries:
    """The papers of a collection as ascending graph rows [P], and the queries of each split."""

    graph: CitationGraph
    papers: Rows
    queries: dict[str, QuerySet]


def open_papers(
    *files: Any,
    tokenizer: str = "default",
    cache_dir: str | Path | None = None,
    name: str | None = None,
    **options: Any,
) -> Corpus:
    """Open a corpus of all papers with a text; its queries are the citing papers (conf/data/papers.yaml).

    files, options: see open_queries.
    """
    opened = open_queries(*files, cache_dir=cache_dir, **options)
    splits = {split: queries for split, queries in opened.queries.items() if len(queries.papers)}
    title = name or Path(opened.graph.files[0]).resolve().parent.name
    return graph_corpus(opened.graph, opened.papers, splits, title, cache_folder(cache_dir), tokenizer)


def open_queries(
    papers: Files,
    splitting: Splitting,
    queries: str | Path | None = None,
    *,
    cache_dir: str | Path | None = None,
    **rules: Any,
) -> GraphQueries:
    """Open a citation graph and choose its query papers.

    papers: see open_graph. Cited papers with a later year than the query are not relevant.
    queries: a file with the ids of each split (read_query_lists); None splits by `splitting`. rules: see
    QueryRules.
    Raises InputError for invalid files, and if no paper cites another.
    """
    query_rules = read_settings(QueryRules, rules)
    graph = open_graph(papers, cache_dir=cache_dir)
    shares = splitting if isinstance(splitting, YearShares) and queries is None else None
    has_text = graph.titled | (graph.abstract_lengths > 0)
    if shares:
        has_text &= graph.years > 0
    texts = np.flatnonzero(has_text)
    if queries is not None:
        splits = _listed_splits(read_query_lists(queries), graph, texts)
    elif shares:
        splits = shares.split(graph.years, texts)
    else:
        dated = ((graph.ids[row], int(graph.years[row])) for row in texts.tolist())
        names = [splitting(paper, year, arxiv_month(paper, year)) or "" for paper, year in dated]
        splits = {split: texts[np.array(names, object) == split] for split in SPLITS}
    candidates = has_text
    if query_rules.found == TRAIN:
        candidates = np.zeros(len(graph), np.bool_)
        candidates[splits.get(TRAIN, [])] = True
        candidates &= has_text
    relevant = citable_references(graph, candidates)
    enough = relevant.lengths >= query_rules.min_cited
    if not enough[texts].any():
        least = query_rules.min_cited
        raise InputError(
            f"{graph.files[0]}: no paper cites {least} or more papers of the collection that have a text and "
            "are not later"
        )
    chosen = {split: rows[enough[rows]] for split, rows in splits.items()}
    if shares:
        chosen = shares.sample(chosen)
    if query_rules.near_duplicates is not None and TRAIN in chosen:
        train = chosen[TRAIN]
        held_out = np.sort(
            np.concatenate([train[:0], *(chosen[split] for split in chosen if split != TRAIN)])
        )
        removed = _near_duplicates(
            graph, train, held_out, query_rules.near_duplicates, cache_folder(cache_dir)
        )
        chosen[TRAIN] = np.setdiff1d(train, removed)
        counts = f"{len(removed):,} of {len(train):,}"
        log.info("dropped %s training queries whose title is a near-duplicate of a held-out one", counts)
    used = {split: QuerySet(rows, relevant.take(rows)) for split, rows in chosen.items()}
    return GraphQueries(graph, texts, used)


def citable_references(graph: CitationGraph, candidates: NDArray[np.bool_]) -> Ragged:
    """Candidates [P] that each paper cites and that are not later than itself; unknown years are kept."""
    citing = np.repeat(np.arange(len(graph)), graph.cites.lengths)
    cited = graph.cites.values
    years = graph.years[citing]
    is_citable = candidates[cited] & ((years == 0) | (graph.years[cited] <= years))
    counts = np.bincount(citing[is_citable], minlength=len(graph))
    return Ragged(cited[is_citable], offsets_of(counts))


def read_rows(graph: CitationGraph, rows: Rows) -> Iterator[tuple[int, PaperLine]]:
    """Read the papers in some rows of a graph from its files, in ascending order."""
    wanted = np.zeros(len(graph), np.bool_)
    wanted[rows] = True
    row = 0
    for path in graph.files:
        with read_progress(path, path.name) as on_bytes:
            for paper in read_paper_lines(path, on_bytes):
                if wanted[row]:
                    yield row, paper
                row += 1


# Query lists: {"val": {field: [ids]}, "test": {field: [ids]}}, or {"val": [ids], "test": [ids]}.


@dataclass(frozen=True)
class QueryLists:
    """The query ids of a file by split."""

    path: Path
    splits: dict[str, list[str]]

    def rows(self, split: str, graph: CitationGraph) -> list[int]:
        """Rows of the papers of a split. Raises InputError for a missing split and for unknown ids."""
        if split not in self.splits:
            raise InputError(f"{self.path}: no split {split!r}; choose from {', '.join(self.splits)}")
        ids = self.splits[split]
        if missing := [paper for paper in ids if paper not in graph.rows]:
            counts = f"{len(missing):,} of {len(ids):,} ids are not in {graph.files[0]}"
            raise InputError(f"{self.path}, {split!r}: {counts}: {', '.join(missing[:5])}")
        return [graph.rows[paper] for paper in ids]


def read_query_lists(path: str | Path) -> QueryLists:
    """Read query lists. Raises InputError for a part in another form, or for an id in two splits."""
    path = expand_user(path)
    content = decode_json(read_limited(path, MAX_BYTES), str(path))
    if not isinstance(content, dict) or not content:
        raise InputError(f"{path}: must be an object of splits, such as val and test")
    try:
        check_split_names(list(content))
    except InputError as error:
        raise InputError(f"{path}: {str(error).removeprefix('data.splits: ')}") from None
    splits: dict[str, list[str]] = {}
    split_of: dict[str, str] = {}
    for split, value in content.items():
        ids: dict[str, None] = {}
        for part in value.values() if isinstance(value, dict) else [value]:
            if not isinstance(part, list) or not all(type(paper) in (str, int) for paper in part):
                wanted = "a list of ids, or an object of such lists by field"
                raise InputError(f"{path}, {split!r}: must be {wanted}")
            ids |= dict.fromkeys(map(str, part))
        splits[split] = list(ids)
        for paper in ids:
            if (other := split_of.setdefault(paper, split)) != split:
                conflict = f"{quoted(paper)} is in {other!r} and in {split!r}"
                raise InputError(f"{path}: {conflict}; a query must be in one split only")
    return QueryLists(path, splits)


def _listed_splits(lists: QueryLists, graph: CitationGraph, papers: Rows) -> dict[str, Rows]:
    """Split the papers by the lists; without a list for train, all other papers are training papers."""
    rows = {split: np.array(sorted(lists.rows(split, graph)), np.int64) for split in lists.splits}
    if TRAIN not in rows:
        rows = {TRAIN: np.setdiff1d(papers, np.concatenate(list(rows.values())))} | rows
    order = [split for split in dict.fromkeys((*SPLITS, *rows)) if split in rows]
    return {split: np.intersect1d(rows[split], papers) for split in order}


def _near_duplicates(
    graph: CitationGraph, train: Rows, held_out: Rows, threshold: float, cache_dir: Path
) -> Rows:
    """Find the training papers whose titles are near-duplicates of held-out titles; cached."""
    settings = f"{VERSION} {threshold} {graph.fingerprint}"
    path = cache_dir / "near_duplicates" / f"{_digest(settings, train, held_out)}.npy"
    if not path.is_file():
        index = TitleIndex((paper.title for _, paper in read_rows(graph, held_out)), threshold)
        matching = [row for row, paper in read_rows(graph, train) if index.has_near(paper.title)]
        with atomic_write(path) as unfinished, unfinished.open("wb") as file:
            np.save(file, np.array(matching, np.int64))
    return np.asarray(np.load(path, allow_pickle=False))


class TitleIndex:
    """An index of titles for finding near-duplicates: Jaccard similarity of words above the threshold.

    Nogueira et al. 2020, section 4.1, remove training papers whose titles are that similar to the title of a
    test paper. Case and special characters are ignored. Titles that are similar enough share one of the
    rarest words of each (the prefix filter of Chaudhuri, Ganti and Kaushik 2006).
    """

    def __init__(self, titles: Iterable[str], threshold: float) -> None:
        self._above = Fraction(round(threshold * 1_000_000), 1_000_000)  # what the decimal stands for
        self._titles = [*map(_title_words, titles)]
        self._counts = Counter(chain.from_iterable(self._titles))
        self._having = defaultdict[str, list[int]](list)
        for row, words in enumerate(self._titles):
            for word in self._rarest(words):
                self._having[word].append(row)

    def has_near(self, title: str) -> bool:
        """Whether the index has a near-duplicate of a title."""
        words, n, d = _title_words(title), self._above.numerator, self._above.denominator
        rows = {row for word in self._rarest(words) for row in self._having.get(word, ())[:MAX_COMPARED]}
        # s / (a + b - s) > n / d if and only if s (n + d) > n (a + b)
        return any(
            len(words & other) * (n + d) > n * (len(words) + len(other))
            for other in map(self._titles.__getitem__, rows)
        )

    def _rarest(self, words: set[str]) -> list[str]:
        """Words of a title, at least one of which every near-duplicate has."""
        ordered = sorted(words, key=lambda word: (self._counts[word], word))
        return ordered[: len(words) - int(len(words) * self._above)]


def _title_words(title: str) -> set[str]:
    return set(_NOT_IN_WORDS.sub(" ", unicodedata.normalize("NFKC", title).lower()).split())


def _digest(text: str, *arrays: NDArray[Any]) -> str:
    digest = hashlib.blake2b(text.encode(), digest_size=8)
    for array in arrays:
        digest.update(len(array).to_bytes(8, "little"))
        digest.update(np.ascontiguousarray(array, np.int64).data)
    return digest.hexdigest()


def graph_corpus(
    graph: CitationGraph,
    papers: Rows,
    queries: Mapping[str, QuerySet],
    name: str,
    cache_dir: str | Path,
    tokenizer: str = "default",
) -> Corpus:
    """Open some papers of a graph, all of them candidates, as a corpus with the queries of some splits.

    papers: ascending rows of papers with a text, including all queries and relevant papers; row i of the
    corpus is papers[i]. A context has the id of its paper.
    """
    arrays: list[NDArray[Any]] = [papers]
    for split in queries.values():
        arrays += (split.papers, split.relevant.values, split.relevant.offsets)
    query_papers = np.unique(
        np.concatenate([np.empty(0, np.int64), *(split.papers for split in queries.values())])
    )

    def records() -> Iterator[PaperRecord]:
        for _, paper in read_rows(graph, papers):
            yield PaperRecord(paper.id, paper.title, paper.abstract, paper.year, paper.fields)

    def contexts() -> Iterator[ContextRecord]:
        for _, paper in read_rows(graph, query_papers):
            yield ContextRecord(paper.id, f"{TARGET_MARKER} {paper.abstract or paper.title}", paper.id)

    def split_records(split: QuerySet) -> Iterator[QueryRecord]:
        for row, relevant in zip(split.papers.tolist(), split.relevant, strict=True):
            yield QueryRecord(graph.ids[row], [graph.ids[cited] for cited in relevant.tolist()])

    source = Source(
        name,
        {"graph": graph.fingerprint, "queries": _digest(f"{list(queries)}", *arrays)},
        records,
        contexts,
        {name: partial(split_records, split) for name, split in queries.items()},
        field="fields" if graph.fields.lengths[papers].any() else None,
    )
    return open_records(source, cache_dir, tokenizer=tokenizer, candidates="all")
