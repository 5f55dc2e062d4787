"""A library on disk: its shards, its word statistics and its model.

    generations/N/  checksums.json  model/  statistics/  shards/0 ...
                    codes.faiss (of no vector: a shard begins with it)

A query goes to all shards. The papers that they find are ranked in memory, by the same code as those of a
library in memory and with the word statistics of the whole collection (`Corpus.whole`). A change writes a new
generation, which shares files with the old one: papers are added to the last shard and removed from any.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar, Self, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from citerec.base.checksums import check_checksums, compare_files, touched_files, write_checksums
from citerec.base.errors import InputError
from citerec.base.files import full_disk_as_os_error, link_or_copy
from citerec.datasets.some_papers import SomePapers
from citerec.datasets.word_statistics import BM25_TERM, ENTRIES, WordStatistics
from citerec.formats.bibliography.paper import LibraryPaper
from citerec.formats.same_work import Identity, identity
from citerec.library.ask.candidates import SCHEMA, Candidates, record_of
from citerec.library.ask.question import Filters, Request, mark_query, year_range
from citerec.library.ask.search import IN_PART, SearchIndex, named_key, query_words, spellings
from citerec.library.disk.build import MODEL, SHARDS, STATISTICS, find_dense
from citerec.library.disk.entries import (
    CALLED,
    FIRST,
    encoded_names,
    entries,
    folded,
    names_in,
    query_terms,
    shared_names,
)
from citerec.library.disk.shard import CODES, NOTHING, VECTORS, Shard, ShardAnswer, ShardQuery
from citerec.library.disk.shard_writer import change_shard
from citerec.library.papers.folder import (
    Manifest,
    damage_told,
    damaged,
    new_generation,
    now,
    write_manifest,
)
from citerec.library.papers.identities import MAX_SAME_KEY
from citerec.library.papers.library import Added, Library
from citerec.library.papers.merging import Deduplicator
from citerec.library.papers.models import ENCODED, MOST_ENCODED, open_model
from citerec.rerank.ranker.model import Ranker, encoder_of
from citerec.rerank.ranker.texts import idf
from citerec.retrieval.arrays import Floats
from citerec.retrieval.base import Retriever
from citerec.retrieval.dense import DenseRetriever
from citerec.retrieval.lexical.bm25 import BM25
from citerec.retrieval.networks.encoder import NetworkRetriever
from citerec.retrieval.queries import Queries, Query

DEPTH = 200
"""Papers by words and by vectors, unless the ranker reads more."""
MORE_WORDS, MORE_VECTORS = 1.5, 1.1
"""Times as many papers are read: shards round lengths and vectors, and weight terms by their own papers."""
FILTERED = 5
"""Times as many if only some may be recommended."""
OF_WORDS = (".idx", ".pos", ".term", ".fieldnorm", ".fast")
"""Suffixes of tantivy's files, of which a question reads parts that it cannot check."""
BY_BLOCK = (VECTORS, ".store", f"{ENTRIES}.npy", CODES)
"""Ends of names of files whose parts are checked whenever they are read; codes when they are loaded."""
LARGE = 1 << 29
"""Bytes that are compared at once when a library is opened; more, in the background."""
UNCHECKED = "the library's files were touched and are still being compared with their checksums"
T = TypeVar("T")


class FoundPapers(Candidates):
    """The papers that shards found for a query."""

    def __init__(
        self,
        path: Path,
        papers: Sequence[LibraryPaper],
        whole: WordStatistics,
        model: Retriever,
        places: Sequence[int] | None = None,
    ) -> None:
        """model: to rank them, not indexed. places: as in Corpus."""
        corpus = SomePapers([record_of(paper) for paper in papers], whole, path.name)
        corpus.places = None if places is None else np.array(places, np.int64)
        columns = [[getattr(paper, name) for paper in papers] for name in SCHEMA.names]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
        identities = np.array([identity(paper) for paper in papers], np.uint64).reshape(
            -1, len(Identity._fields)
        )
        super().__init__(path, corpus, [pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)], identities)
        self._model = model

    @cached_property
    def retriever(self) -> Retriever:
        """A copy of the model, indexed while others search."""
        made = copy(self._model)
        if isinstance(made, Ranker):
            made.all_parts = {name: copy(part) for name, part in made.all_parts.items()}
        return made.index(self.corpus)

    @cached_property
    def search_index(self) -> SearchIndex:
        return SearchIndex.make(self.corpus, self._batches)


class Shards:
    """The shards of a library, searched by threads."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        self.all = list(shards)
        self._pool = ThreadPoolExecutor(len(self.all))

    def ask(self, query: ShardQuery) -> list[ShardAnswer]:
        """Ask all shards."""
        return list(self._pool.map(lambda shard: shard.ask(query), self.all))

    def read(self, rows: Sequence[Sequence[int]]) -> list[dict[int, LibraryPaper]]:
        """Read papers of each shard, by row."""
        return list(self._pool.map(Shard.read, self.all, rows))


class DiskLibrary(Library):
    """A library in shards. A row stands for a row of a shard: row * number of shards + shard.

    Sizes of all files are checked when it is opened. Of files that were touched since they were last compared
    with their checksums, those whose content a question does not check itself (BY_BLOCK) are compared then,
    or in the background if they are large (LARGE); answers are marked until then.
    """

    on_disk: ClassVar[bool] = True
    collections: Sequence[str] = ()

    def __init__(self, path: Path, manifest: Manifest) -> None:
        super().__init__(path, manifest)
        self._touched = touched_files(self.folder)
        now = [name for name in self._touched if not name.endswith(BY_BLOCK)]
        large = [name for name in now if name.endswith(OF_WORDS)]
        if sum((self.folder / name).stat().st_size for name in large) <= LARGE:
            large = []
        compare_files(self.folder, (name for name in now if name not in large))
        self._large, self._checking = large, None if not large else Thread(target=self._check, daemon=True)
        self._damage: InputError | None = None
        self._inodes = {name: _inodes(self.folder / name) for name in (STATISTICS, MODEL)}
        self.shards = Shards([Shard(folder) for folder in self.shard_folders])

    def _check(self) -> None:
        """Compare large files in the background."""
        try:
            compare_files(self.folder, self._large)
        except (InputError, OSError) as error:
            if self.folder.exists():  # else it was replaced
                self._damage = damaged(self.path, error)

    def load(self) -> None:
        _ = self.whole, self.dense
        for shard in self.shards.all:
            if "codes" not in shard.__dict__:
                with damage_told(self.path):
                    compare_files(self.folder, [str((shard.folder / CODES).relative_to(self.folder))])
                    _ = shard.codes
        if self._checking is not None:
            self._checking.start()

    @property
    def note(self) -> str:
        return UNCHECKED if self._checking is not None and self._checking.is_alive() else ""

    @cached_property
    def whole(self) -> WordStatistics:
        """Word statistics of the whole collection."""
        return self._opened(lambda: WordStatistics.open(self.folder / STATISTICS))

    @cached_property
    def retriever(self) -> Retriever:
        """The ranking model, not indexed: it ranks what shards find."""
        return self._opened(lambda: _without_contexts(open_model(self.folder / MODEL, self.path / ENCODED)))

    @property
    def _encoder(self) -> NetworkRetriever | None:
        """The networks of the model, if they read all papers rather than the first ones of an answer."""
        found = encoder_of(self.retriever)
        if found is None:
            return None
        found.reads_all = max(self.whole.papers, len(self)) <= MOST_ENCODED
        return found if found.reads_all else None

    @property
    def networks(self) -> NetworkRetriever | None:
        if (encoder := self._encoder) is None:
            return None
        with damage_told(self.path):
            papers = [record_of(paper) for shard in self.shards.all for _, paper in shard.papers()]
        return copy(encoder).index(SomePapers(papers, self.whole, self.path.name))

    @cached_property
    def dense(self) -> DenseRetriever:
        """Its dense part."""
        return find_dense(self.retriever)

    def _opened(self, open: Callable[[], T]) -> T:
        try:
            return open()
        except (InputError, OSError, ValueError) as error:
            raise damaged(self.path, error) from None

    @classmethod
    @contextmanager
    def edit(cls, path: str | Path, wait: bool = True) -> Iterator[Self]:
        with super().edit(path, wait) as library, full_disk_as_os_error(library.path):
            with damage_told(library.path):
                compare_files(library.folder, library._touched)  # what is damaged must not be gone on with
            yield library

    def __len__(self) -> int:
        return self.manifest.counts["papers"]

    @property
    def shard_folders(self) -> list[Path]:
        """The folders of the shards."""
        return [self.folder / SHARDS / str(number) for number in range(self.manifest.shards)]

    def row(self, name: str) -> int | None:
        found = self.find([name])
        return found[0][0] if found else None

    def paper(self, row: int) -> LibraryPaper:
        inside, shard = divmod(row, self.manifest.shards)
        with damage_told(self.path):
            found = self.shards.all[shard].read([inside])
        if not found:
            raise IndexError(f"row {row}")
        return found[inside]

    def find(self, called: Sequence[str], names: Sequence[str] = ()) -> list[tuple[int, LibraryPaper]]:
        """Return the rows and papers of these ids, keys and aliases, and those with any of the names."""
        most = MAX_SAME_KEY * (len(names) + len(called))
        query = ShardQuery({}, None, list(names), [], [CALLED + name for name in called], by_name=most)
        with damage_told(self.path):
            answers = self.shards.ask(query)
            wanted = [np.union1d(one.named.rows, one.called.rows).tolist() for one in answers]
            return [*self._by_row(self.shards.read(wanted)).items()]

    def encode(self, query: Query) -> Floats:
        """Encode a query, [D]."""
        corpus = SomePapers([], self.whole, self.path.name)
        dense = copy(self.dense)
        dense.prepare(corpus)
        vectors = dense.encode_queries(Queries.from_list(corpus, [replace(query, known=(), own=None)]))
        return np.asarray(vectors[0], np.float32)

    def candidates(self, request: Request, depth: int) -> Candidates:
        if self._damage is not None:
            raise self._damage
        query, filters = mark_query(request.query), request.filters
        depth = max(depth, getattr(self.retriever, "depth", DEPTH)) + 1
        depth *= FILTERED if filters != Filters() else 1
        names, years = names_in(query.context)
        called = [*request.query.known, *filters.only, named_key(query.context)]
        asked = ShardQuery(
            self._weights(query),
            self.encode(query),
            names,
            sorted(years),
            [CALLED + name for name in called if name],
            round(MORE_WORDS * depth),
            round(MORE_VECTORS * depth),
            between=year_range(filters.years) if filters.years else None,
        )
        found = {**self._read(asked), **dict(self.find([], self._nearest(query, depth)))}
        # In the order of the sources, which tells equal scores apart.
        place_of = {row: self._place(row) for row in found}
        rows = sorted(found, key=place_of.__getitem__)
        papers, places = [found[row] for row in rows], [place_of[row] for row in rows]
        return FoundPapers(self.path, papers, self.whole, self.retriever, places)

    def _place(self, row: int) -> int:
        """The place of a row in the order of the sources, as in Corpus.places."""
        inside, shard = divmod(row, self.manifest.shards)
        return (shard << 40) + inside

    def _nearest(self, query: Query, k: int) -> list[str]:
        """Return names of the k papers that networks find."""
        if (encoder := self._encoder) is None:
            return []
        corpus = SomePapers([], self.whole, self.path.name)
        queries = Queries.from_list(corpus, [replace(query, known=(), own=None)])
        return encoded_names(encoder.nearest(queries, k))

    def search_candidates(self, query: str) -> Candidates:
        names = [FIRST + folded(one) for word in query_words(query) for one in spellings(word)]
        called = [CALLED + word for word in query.split()]
        found = self._read(ShardQuery(self._weights(Query(query)), None, names, [], called, IN_PART))
        return FoundPapers(self.path, [*found.values()], self.whole, BM25(query=("context",)))

    def _weights(self, query: Query) -> dict[str, float]:
        """Return BM25's terms of a query, and their counts times their idf in the whole collection."""
        counts, whole = Counter(query_terms(query)), self.whole
        rarity = idf(whole.count(BM25_TERM, list(counts)), whole.papers)
        return {term: times * float(rarity[n]) for n, (term, times) in enumerate(counts.items())}

    def _read(self, query: ShardQuery) -> dict[int, LibraryPaper]:
        """Ask all shards, and read the best papers that they find, by row."""
        answers = self.shards.ask(query)
        wanted: list[list[NDArray[np.int64]]] = [[NOTHING.rows] for _ in answers]
        for kind, most in (
            ("words", query.by_words),
            ("near", query.by_vector),
            ("named", query.by_name),
            ("called", query.by_name),
        ):
            found = [getattr(answer, kind) for answer in answers]
            scores = np.concatenate([part.scores for part in found])
            shard = np.repeat(np.arange(len(found)), [len(part.rows) for part in found])
            rows = np.concatenate([part.rows for part in found])
            best = np.lexsort((rows, shard, -scores))[:most]
            for number, own in enumerate(wanted):
                own.append(rows[best[shard[best] == number]])
        parts = self.shards.read([np.unique(np.concatenate(own)).tolist() for own in wanted])
        return self._by_row(parts)

    def _by_row(self, found: Sequence[dict[int, LibraryPaper]]) -> dict[int, LibraryPaper]:
        """Return the papers of all shards by their rows in the library."""
        shards = self.manifest.shards
        return {
            row * shards + number: paper
            for number, part in enumerate(found)
            for row, paper in sorted(part.items())
        }

    def _reopened(self) -> Library:
        new = self.open(self.path)
        for name, folder in {"whole": STATISTICS, "retriever": MODEL}.items():
            if name in self.__dict__ and self._inodes[folder] == new._inodes[folder]:
                new.__dict__[name] = self.__dict__[name]
        for old, shard in zip(self.shards.all, new.shards.all, strict=False):
            if "codes" in old.__dict__ and old.codes_file == shard.codes_file:
                shard.codes = old.codes
        new.load()
        return new

    def add(
        self,
        records: Iterable[LibraryPaper],
        files: Sequence[str] = (),
        named: Sequence[str] = (),
        separate: Sequence[str] = (),
    ) -> Added:
        apart = list(dict.fromkeys([*self.manifest.separate, *separate]))
        new = list(records)
        shared = sorted({name for paper in new for name in shared_names(paper)})
        found = self.find([paper.id for paper in new], shared)
        known = FoundPapers(self.path, [paper for _, paper in found], self.whole, self.retriever)
        with Deduplicator(self.path, known, separate=apart) as merged:
            for paper in new:
                merged.add(paper)
            merged.finish()
            papers, shards = list(merged.papers()), self.manifest.shards
            replaced = [found[row][0] for row in merged.replaced.tolist()]
        # What replaces a paper belongs to its shard.
        numbers = [row % shards for row in replaced] + [shards - 1] * (len(papers) - len(replaced))
        names = list(dict.fromkeys([*self.manifest.named, *named]))
        added = {paper.id for paper in papers}
        removed = [id for id in self.manifest.removed if id not in added]
        fields: dict[str, Any] = {"named": names, "separate": apart, "removed": removed}
        if papers:
            total = self._change(list(zip(numbers, papers, strict=True)), replaced, **fields)
        else:
            total = len(self)
            write_manifest(self.path, msgspec.structs.replace(self.manifest, **fields))
        return Added(len(papers) - len(replaced), len(replaced), total)

    def remove(self, names: Iterable[str]) -> int:
        rows = self.rows(names)
        self.check_some_left(len(rows))
        ids = [self.paper(row).id for row in rows.tolist()]
        removed = list(dict.fromkeys([*self.manifest.removed, *ids]))
        self._change([], rows.tolist(), removed=removed)
        return len(rows)

    def _change(
        self, added: Sequence[tuple[int, LibraryPaper]], left_out: Iterable[int], **fields: Any
    ) -> int:
        """Write a generation with papers added to shards, given by their numbers, and without some rows.

        It shares all other files with this one by hard links. fields: of the manifest. Returns the number of
        papers.
        """
        shards = self.manifest.shards
        new: dict[int, list[LibraryPaper]] = {}
        gone: dict[int, list[int]] = {}
        for number, paper in added:
            new.setdefault(number, []).append(paper)
        for row in left_out:
            gone.setdefault(row % shards, []).append(row // shards)
        with new_generation(self.path) as (generation, folder):
            link_or_copy(self.folder, folder)
            for shard in sorted({*gone, *new}):
                found, vectors, _ = entries(new.get(shard, []), self.dense, self.whole)
                change_shard(folder / SHARDS / str(shard), found, vectors, gone.get(shard, ()))
            write_checksums(folder, before=self.folder)
            papers = sum(len(Shard(folder / SHARDS / str(shard))) for shard in range(shards))
            about = {"counts": self.manifest.counts | {"papers": papers}, "changed": now(), **fields}
            write_manifest(self.path, msgspec.structs.replace(self.manifest, generation=generation, **about))
        return papers

    def verify(self) -> None:
        try:
            check_checksums(self.folder, trust=False)
        except InputError as error:
            raise damaged(self.path, error) from None
        super().verify()

    def describe(self) -> dict[str, str]:
        lines = super().describe()
        return {"papers": lines.pop("papers"), "shards": f"{self.manifest.shards}", **lines}


def _inodes(folder: Path) -> list[tuple[int, int]]:
    """Return what is the same for folders of hard links to the same files."""
    stats = [file.stat() for file in sorted(folder.rglob("*")) if file.is_file()]
    return [(stat.st_dev, stat.st_ino) for stat in stats]


def _without_contexts(retriever: Retriever) -> Retriever:
    """Leave out the parts that need contexts, which a library on disk has not."""
    if not isinstance(retriever, Ranker):
        return retriever
    parts = {name: part for name, part in retriever.all_parts.items() if not part.reads_contexts}
    return Ranker(retriever.model, parts, retriever.depth, retriever.features)
