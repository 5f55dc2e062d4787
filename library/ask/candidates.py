"""Papers to rank for a question, with what ranks them."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from citerec.base.errors import InputError, quoted
from citerec.datasets.corpus import Corpus
from citerec.datasets.records import PaperRecord
from citerec.formats.bibliography.paper import LibraryPaper
from citerec.formats.names import surname
from citerec.library.ask.explanation import Explainer
from citerec.library.ask.search import SearchIndex
from citerec.rerank.ranker.model import Ranker
from citerec.retrieval.base import Retriever
from citerec.retrieval.lexical.bm25 import BM25

if TYPE_CHECKING:
    from citerec.library.evidence.evidence import FullTexts

Rows = NDArray[np.int64]
MAX_AUTHORS = 10
"""Maximum authors of a paper whose surnames are in the corpus; contexts name at most the first three."""
_IN_CORPUS = ("id", "title", "abstract", "year")
_LISTS = ("authors", "collections", "tags", "aliases", "filled", "files", "names")
_COLUMNS = {name: pa.string() for name in LibraryPaper._fields if name not in _IN_CORPUS}
_COLUMNS |= dict.fromkeys(_LISTS, pa.list_(pa.string())) | {"source": pa.int32()}
SCHEMA = pa.schema([pa.field(name, kind, nullable=False) for name, kind in _COLUMNS.items()])
"""The fields of LibraryPaper that are not in the corpus."""


def record_of(paper: LibraryPaper) -> PaperRecord:
    """Return a paper as a corpus reads it, with surnames as fields."""
    return PaperRecord(paper.id, paper.title, paper.abstract, paper.year, surnames_of(paper.authors))


def surnames_of(authors: Sequence[str]) -> tuple[str, ...]:
    return tuple(filter(None, map(surname, authors[:MAX_AUTHORS])))


class Papers(ABC):
    """Papers that have rows, which ids, citation keys and aliases stand for. path: of the library."""

    path: Path

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def paper(self, row: int) -> LibraryPaper:
        """Return the paper of a row. Raises IndexError if the row does not exist."""

    @abstractmethod
    def row(self, name: str) -> int | None:
        """Return the row of the paper with this id, citation key or alias; None if there is none."""

    def rows(self, names: Iterable[str], option: str = "id") -> Rows:
        """Return the rows of papers, ascending and unique. Raises InputError for an unknown one."""
        rows = []
        for name in names:
            if (row := self.row(name)) is None:
                raise InputError(f"{option}={quoted(name)[1:-1]}: no paper of {self.path} has this id or key")
            rows.append(row)
        return np.unique(np.array(rows, np.int64))


class Candidates(Papers):
    """Papers [P], one per row of `corpus`, and what ranks them."""

    def __init__(
        self, path: Path, corpus: Corpus, metadata: list[pa.RecordBatch], identities: NDArray[np.uint64]
    ) -> None:
        """metadata: batches of SCHEMA. identities: formats.same_work.Identity of each paper [P, F]."""
        self.path, self.corpus, self.identities = path, corpus, identities
        self._batches = metadata
        self._starts = np.cumsum([0, *map(len, metadata)])
        self.metadata = pa.Table.from_batches(metadata, SCHEMA)
        if len(self.metadata) != len(corpus.paper_ids):
            raise InputError("corpus and metadata differ in their number of papers")
        self.lock = threading.Lock()
        """Hold it while `retriever`, `search_index` or `text_search` searches."""

    @property
    @abstractmethod
    def retriever(self) -> Retriever:
        """The ranking model, with its index of these papers."""

    @property
    @abstractmethod
    def search_index(self) -> SearchIndex: ...

    @property
    def full_texts(self) -> FullTexts | None:
        """The full texts of the papers, if there are any."""
        return None

    @cached_property
    def explainer(self) -> Explainer:
        retriever = self.retriever
        if not isinstance(retriever, Ranker):
            return Explainer(self.corpus, full_texts=self.full_texts)
        return Explainer(self.corpus, retriever.statistics, self.full_texts, retriever.encoder)

    @cached_property
    def text_search(self) -> BM25:
        """BM25 over titles and abstracts; shares the index of the retriever's BM25 if it has one."""
        parts = self.retriever.parts if isinstance(self.retriever, Ranker) else {"": self.retriever}
        for part in parts.values():
            if isinstance(part, BM25) and not part.reads_contexts:
                return part.with_query_fields(("context",))
        bm25 = BM25(query=("context",))
        bm25.index(self.corpus)
        return bm25

    def __len__(self) -> int:
        return len(self.metadata)

    @property
    def collections(self) -> list[str]:
        """Names of all collections, sorted."""
        return sorted(self.metadata["collections"].combine_chunks().flatten().unique().to_pylist())

    @cached_property
    def has_filled(self) -> bool:
        """True if `citerec enrich` has filled in anything."""
        return any(pc.sum(batch["filled"].value_lengths()).as_py() for batch in self._batches)

    def paper(self, row: int) -> LibraryPaper:
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        batch = int(np.searchsorted(self._starts, row, side="right")) - 1
        [fields] = self._batches[batch].slice(row - int(self._starts[batch]), 1).to_pylist()
        fields |= {name: tuple(fields[name]) for name in _LISTS}
        corpus = self.corpus
        fields |= {"id": corpus.paper_ids[row], "title": corpus.titles[row]}
        return LibraryPaper(**fields, abstract=corpus.abstracts[row], year=int(corpus.years[row]))

    def select(self, rows: Rows, names: list[str]) -> list[dict[str, Any]]:
        """Return these fields of the papers of rows; faster than `paper` for many."""
        batches = np.searchsorted(self._starts, rows, side="right") - 1
        found: dict[int, dict[str, Any]] = {}
        for batch in np.unique(batches).tolist():
            inside = rows[batches == batch]
            part = self._batches[batch].select(names).take(pa.array(inside - self._starts[batch]))
            found.update(zip(inside.tolist(), part.to_pylist(), strict=True))
        return [found[row] for row in rows.tolist()]

    @cached_property
    def _row_by_name(self) -> dict[str, int]:
        """Rows by key and alias. Keys take precedence over aliases, earlier rows over later ones."""
        keys, aliases = (self.metadata[name].combine_chunks() for name in ("key", "aliases"))
        with_key = pc.indices_nonzero(pc.not_equal(keys, ""))
        rows = [*with_key.to_pylist(), *pc.list_parent_indices(aliases).to_pylist()]
        names = [*keys.take(with_key).to_pylist(), *pc.list_flatten(aliases).to_pylist()]
        return dict(zip(reversed(names), reversed(rows), strict=True))

    def row(self, name: str) -> int | None:
        return self.corpus.paper_row(name) if self.corpus.has_paper(name) else self._row_by_name.get(name)

    def id_of(self, name: str) -> str | None:
        """Return the id of the paper with this id, citation key or alias; None if there is none."""
        return None if (row := self.row(name)) is None else self.corpus.paper_ids[row]
