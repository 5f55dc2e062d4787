"""A large library: its shards, its word statistics and its model; and a recommender over it.

    library.json        as a small library's, with the number of `shards`
    generations/N/      model/  statistics/  shards/0 ...  codes.faiss (empty: new shards begin with it)

A query goes to all shards. The papers that they find make a small library (candidates), which a `Recommender`
ranks. Papers are added to the last shard and removed from any, each time by one commit.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from citerec.base.errors import InputError
from citerec.base.files import full_disk_as_os_error
from citerec.datasets.records import quoted
from citerec.datasets.some_papers import SomePapers
from citerec.datasets.word_statistics import BM25_TERM, WordStatistics
from citerec.library.disk.build import MODEL, SHARDS, STATISTICS, find_dense
from citerec.library.disk.candidates import (
    CALLED,
    FIRST,
    CandidateLibrary,
    entries,
    folded,
    names_in,
    query_terms,
    shared_names,
)
from citerec.library.disk.shard import NOTHING, Found, Shard
from citerec.library.duplicates import Deduplicator
from citerec.library.explanation import Explainer, Recommendation, Recommendations
from citerec.library.filters import Filters, year_range
from citerec.library.identities import MAX_SAME_KEY
from citerec.library.library import (
    GENERATIONS,
    Manifest,
    damaged,
    lock_folder,
    now,
    read_manifest,
    write_manifest,
)
from citerec.library.models import open_model
from citerec.library.papers import LibraryPaper
from citerec.library.recommender import Generation, Ranked, Recommender, Request, mark_query
from citerec.library.search import IN_PART, named_key, query_words
from citerec.rerank.ranker.model import Ranker
from citerec.rerank.ranker.texts import idf
from citerec.retrieval.arrays import Floats
from citerec.retrieval.base import Ranking, Retriever
from citerec.retrieval.lexical.bm25 import BM25
from citerec.retrieval.queries import Queries, Query

if TYPE_CHECKING:
    from citerec.rerank.cross_encoder.reranker import Reranker

DEPTH = 200
"""Papers by words and by vectors, unless the ranker reads more."""
MORE_WORDS, MORE_VECTORS = 1.5, 1.1
"""Times as many papers are read: shards round lengths and vectors, and weight terms by their own papers."""
FILTERED = 5
"""Times as many if only some may be recommended."""


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


def ask_shard(shard: Shard, query: ShardQuery) -> ShardAnswer:
    """Ask a shard."""
    return ShardAnswer(
        shard.search_terms(query.terms, query.by_words, query.between),
        NOTHING if query.vector is None else shard.search_vector(query.vector, query.by_vector),
        shard.search_names(query.names, query.by_name, query.years),
        shard.search_names(query.called, query.by_name),
    )


class Shards(Protocol):
    """The shards of a library, in this process or in others."""

    def ask(self, query: ShardQuery) -> list[ShardAnswer | None]:
        """Ask all shards; None for one that does not answer in time."""
        ...

    def read(self, rows: Sequence[Sequence[int]]) -> list[dict[int, LibraryPaper] | None]:
        """Read papers of each shard; None likewise."""
        ...

    def refresh(self) -> None:
        """See the latest changes."""
        ...


class LocalShards:
    """Shards in this process, searched by threads."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.shards = [Shard(folder) for folder in folders]
        self._pool = ThreadPoolExecutor(len(self.shards))

    def ask(self, query: ShardQuery) -> list[ShardAnswer | None]:
        return list(self._pool.map(lambda shard: ask_shard(shard, query), self.shards))

    def read(self, rows: Sequence[Sequence[int]]) -> list[dict[int, LibraryPaper] | None]:
        return list(self._pool.map(Shard.read, self.shards, rows))

    def refresh(self) -> None:
        for shard in self.shards:
            shard.reload()


class LargeLibrary:
    """A large library. A row stands for a row of a shard: row * number of shards + shard."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path, self.manifest = path, manifest
        self.folder = path / GENERATIONS / str(manifest.generation)
        try:
            self.whole = WordStatistics.open(self.folder / STATISTICS)
            self.retriever = _without_contexts(open_model(self.folder / MODEL))
            self.shards: Shards = LocalShards(self.shard_folders)
        except (InputError, OSError, ValueError) as error:
            raise damaged(path, error) from None
        self.dense = find_dense(self.retriever)

    @classmethod
    def open(cls, path: str | Path) -> LargeLibrary:
        """Open a library. Raises InputError if there is none, or if it is in memory."""
        path = Path(path).expanduser()
        manifest = read_manifest(path)
        if not manifest.shards:
            raise InputError(f"{path}: is kept in memory; build it again with storage=disk")
        return cls(path, manifest)

    @classmethod
    @contextmanager
    def edit(cls, path: str | Path, wait: bool = True) -> Iterator[LargeLibrary]:
        """Open a library and lock it against changes by other processes."""
        folder = Path(path).expanduser()
        with lock_folder(folder, wait), full_disk_as_os_error(folder):
            yield cls.open(folder)

    def __len__(self) -> int:
        return self.manifest.counts["papers"]

    @property
    def shard_folders(self) -> list[Path]:
        """The folders of the shards."""
        return [self.folder / SHARDS / str(number) for number in range(self.manifest.shards)]

    @property
    def corpus(self) -> Any:
        raise InputError(f"{self.path}: is kept on disk (storage=disk), which this command cannot use")

    metadata = corpus
    collections: Sequence[str] = ()
    """of a library in memory"""

    def row(self, name: str) -> int | None:
        """Return the row of the paper with this id, citation key or alias; None if there is none."""
        found = self.find([name])
        return found[0][0] if found else None

    def rows(self, names: Iterable[str], option: str = "id") -> list[int]:
        """Return the rows of papers, ascending and unique. Raises InputError for an unknown one."""
        rows = []
        for name in names:
            if (row := self.row(name)) is None:
                raise InputError(f"{option}={quoted(name)[1:-1]}: no paper of {self.path} has this id or key")
            rows.append(row)
        return sorted(set(rows))

    def paper(self, row: int) -> LibraryPaper:
        """Return the paper of a row. Raises IndexError if there is none."""
        inside, shard = divmod(row, self.manifest.shards)
        wanted = [[inside] if number == shard else [] for number in range(self.manifest.shards)]
        if not (found := self.shards.read(wanted)[shard] or {}):
            raise IndexError(f"row {row}")
        return found[inside]

    def find(self, called: Sequence[str], names: Sequence[str] = ()) -> list[tuple[int, LibraryPaper]]:
        """Return the rows and papers of these ids, keys and aliases, and those with any of the names."""
        most = MAX_SAME_KEY * (len(names) + len(called))
        asked = ShardQuery({}, None, list(names), [], [CALLED + name for name in called], by_name=most)
        answers = self.shards.ask(asked)
        wanted = [
            [] if one is None else np.unique(np.concatenate([one.named.rows, one.called.rows])).tolist()
            for one in answers
        ]
        return [
            (row * self.manifest.shards + number, paper)
            for number, found in enumerate(self.shards.read(wanted))
            for row, paper in sorted((found or {}).items())
        ]

    def encode(self, query: Query) -> Floats:
        """Encode a query, [D]."""
        corpus = SomePapers([], self.whole, self.path.name)
        dense = copy(self.dense)
        dense.prepare(corpus)
        vectors = dense.encode_queries(Queries.from_list(corpus, [replace(query, known=(), own=None)]))
        return np.asarray(vectors[0], np.float32)

    def candidates(self, papers: Sequence[LibraryPaper]) -> CandidateLibrary:
        """Return the small library of papers that the shards found."""
        return CandidateLibrary(self.path, self.manifest, papers, self.whole)

    def change(self, added: Sequence[tuple[int, LibraryPaper]], removed: Iterable[int], **fields: Any) -> int:
        """Add papers to shards and remove rows. Call it inside `edit`. Returns the number of papers.

        added: the shard of each paper; one that replaces a removed paper belongs to the same shard, whose
        commit then does both. fields: of the manifest.
        """
        shards = self.manifest.shards
        new: dict[int, list[LibraryPaper]] = {}
        gone: dict[int, list[int]] = {}
        for number, paper in added:
            new.setdefault(number, []).append(paper)
        for row in removed:
            gone.setdefault(row % shards, []).append(row // shards)
        assert isinstance(self.shards, LocalShards)
        for number in sorted({*gone, *new}):
            found, vectors, _ = entries(new.get(number, []), self.dense, self.whole)
            self.shards.shards[number].change(found, vectors, gone.get(number, ()))
        papers = sum(map(len, self.shards.shards))
        changed = msgspec.structs.replace(
            self.manifest, counts=self.manifest.counts | {"papers": papers}, changed=now(), **fields
        )
        write_manifest(self.path, changed)
        return papers


def _without_contexts(retriever: Retriever) -> Retriever:
    """Leave out the parts that need contexts, which a large library has not."""
    if not isinstance(retriever, Ranker):
        return retriever
    parts = {name: part for name, part in retriever.all_parts.items() if not part.reads_contexts}
    return Ranker(retriever.model, parts, retriever.depth, retriever.features)


class LargeRecommender(Recommender):
    """Recommends papers of a large library. Several threads may query it at once."""

    def __init__(self, library: LargeLibrary, reranker: Reranker | None = None) -> None:
        self.reranker, self._large = reranker, library
        self._search_lock, self._reranker_lock = threading.Lock(), threading.Lock()

    @property
    def library(self) -> Any:
        return self._large

    @property
    def calibrated(self) -> bool:
        return self._large.retriever.log_probabilities

    def recommend_batch(
        self, requests: Sequence[Request], k: int = 10, *, rerank: bool | None = None, explain: bool = False
    ) -> list[list[Recommendation]]:
        self.refresh()
        answers: list[list[Recommendation]] = []
        for request in requests:
            small = self.small(request, k)
            options: dict[str, Any] = {"rerank": rerank, "explain": explain}
            found = small.recommend_batch([request], k, **options)[0] if len(small.library) else ()
            answers.append(Recommendations(found, small.missing))
        return answers

    def ranked(self, request: Request, depth: int) -> Ranked:
        return self.small(request, depth).ranked(request, depth)

    def rank(self, requests: Sequence[Request], k: int, rerank: bool | None = None) -> list[Ranking]:
        raise NotImplementedError("rows of a large library mean nothing outside it; use recommend_batch")

    def small(self, request: Request, k: int) -> CandidateRecommender:
        """Return the recommender of what the shards find for a request."""
        large, query = self._large, mark_query(request.query)
        filters = request.filters
        depth = max(k, getattr(large.retriever, "depth", DEPTH)) + 1
        depth *= FILTERED if filters != Filters() else 1
        names, years = names_in(query.context)
        called = [*request.query.known, *filters.only, named_key(query.context)]
        asked = ShardQuery(
            self._weights(query),
            large.encode(query),
            names,
            sorted(years),
            [CALLED + name for name in called if name],
            round(MORE_WORDS * depth),
            round(MORE_VECTORS * depth),
            between=year_range(filters.years) if filters.years else None,
        )
        papers, missing = self._read(asked)
        return CandidateRecommender(large.candidates(papers), large.retriever, self, missing)

    def _weights(self, query: Query) -> dict[str, float]:
        """Return BM25's terms of a query, and their counts times their idf in the whole collection."""
        counts, whole = Counter(query_terms(query)), self._large.whole
        rarity = idf(whole.count(BM25_TERM, list(counts)), whole.papers)
        return {term: times * float(rarity[n]) for n, (term, times) in enumerate(counts.items())}

    def _read(self, query: ShardQuery) -> tuple[list[LibraryPaper], int]:
        """Ask all shards, and read the best papers that they find; also returns how many did not answer."""
        answers = self._large.shards.ask(query)
        wanted: list[list[NDArray[np.int64]]] = [[] for _ in answers]
        for kind, most in (
            ("words", query.by_words),
            ("near", query.by_vector),
            ("named", query.by_name),
            ("called", query.by_name),
        ):
            found = [NOTHING if answer is None else getattr(answer, kind) for answer in answers]
            scores = np.concatenate([part.scores for part in found])
            shard = np.repeat(np.arange(len(found)), [len(part.rows) for part in found])
            rows = np.concatenate([part.rows for part in found])
            best = np.lexsort((rows, shard, -scores))[:most]
            for number, own in enumerate(wanted):
                own.append(rows[best[shard[best] == number]])
        parts = self._large.shards.read([np.unique(np.concatenate(own)).tolist() for own in wanted])
        papers = [paper for part in parts if part is not None for _, paper in sorted(part.items())]
        missing = sum(part is None or answer is None for part, answer in zip(parts, answers, strict=True))
        return papers, missing

    def search(self, query: str, k: int = 10) -> list[LibraryPaper]:
        words = query_words(query)
        names = [FIRST + folded(word) for word in words]
        called = [CALLED + word for word in query.split()]
        papers, _ = self._read(ShardQuery(self._weights(Query(query)), None, names, [], called, IN_PART))
        small = CandidateRecommender(self._large.candidates(papers), BM25(query=("context",)))
        return small.search(query, k) if papers else []

    def add(self, papers: Sequence[LibraryPaper]) -> None:
        with LargeLibrary.edit(self._large.path) as library:
            add_records(library, papers)
        self.refresh()

    def remove(self, names: Sequence[str]) -> None:
        with LargeLibrary.edit(self._large.path) as library:
            library.change([], library.rows(names))
        self.refresh()

    def refresh(self) -> Any:
        """Reload the library if it has changed on disk."""
        try:
            manifest = read_manifest(self._large.path)
        except InputError:
            return self._large  # it was deleted
        if manifest.generation != self._large.manifest.generation:
            self._large = LargeLibrary(self._large.path, manifest)
        elif manifest != self._large.manifest:
            self._large.manifest = manifest
            self._large.shards.refresh()
        return self._large


def add_records(
    library: LargeLibrary, records: Iterable[LibraryPaper], **fields: Any
) -> tuple[int, int, int]:
    """Add records to a library; those of papers that it has complete these (library.duplicates).

    Call it inside `LargeLibrary.edit`. fields: of the manifest. Returns the numbers of added and completed
    papers, and of all papers.
    """
    new = list(records)
    shared = sorted({name for paper in new for name in shared_names(paper)})
    found = library.find([paper.id for paper in new], shared)
    rows, known = [row for row, _ in found], library.candidates([paper for _, paper in found])
    with Deduplicator(library.path, known) as merged:
        for paper in new:
            merged.add(paper)
        merged.finish()
        papers, shards = list(merged.papers()), library.manifest.shards
        replaced = [rows[row] for row in merged.replaced.tolist()]
    numbers = [row % shards for row in replaced] + [shards - 1] * (len(papers) - len(replaced))
    total = library.change(list(zip(numbers, papers, strict=True)), replaced, **fields)
    return len(papers) - len(replaced), len(replaced), total


class CandidateRecommender(Recommender):
    """Recommends papers of the small library that one query has."""

    def __init__(
        self,
        library: CandidateLibrary,
        retriever: Retriever,
        asked: LargeRecommender | None = None,
        missing: int = 0,
    ) -> None:
        """asked: whose cross-encoder reranks. missing: shards that did not answer."""
        self.missing, self._search_lock = missing, threading.Lock()
        self.reranker = None if asked is None else asked.reranker
        self._reranker_lock = threading.Lock() if asked is None else asked._reranker_lock
        retriever = fresh(retriever)
        if len(library):
            retriever.index(library.corpus)
        statistics = retriever.statistics if isinstance(retriever, Ranker) and len(library) else None
        self._current = Generation(library, retriever, Explainer(library.corpus, statistics))

    def refresh(self) -> Generation:
        return self._current


def fresh(retriever: Retriever) -> Retriever:
    """Return a copy of a retriever that can be indexed while others search."""
    made = copy(retriever)
    if isinstance(made, Ranker):
        made.all_parts = {name: copy(part) for name, part in made.all_parts.items()}
    return made
