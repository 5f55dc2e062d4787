"""Recommendations for a passage that lacks a citation, out of one's own library."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc

from datasets.corpus import Corpus
from datasets.errors import InputError, error_text
from datasets.records import OTHER_MARKER, TARGET_MARKER
from library.duplicates import Deduplicator
from library.explanation import EvidenceFinder, Recommendation
from library.library import MANIFEST, Indexer, Library, LibraryPaper, Rows
from library.models import copy_model, install_model, open_model
from rerank.ranker import Ranker
from retrieval.arrays import Mask
from retrieval.base import Ranking, Retriever
from retrieval.bm25 import BM25
from retrieval.fusion import fuse_scores
from retrieval.queries import Queries, Query
from training.hub import is_hub_id

if TYPE_CHECKING:
    from rerank.reranker import Reranker
    from rerank.settings import ScoringSettings

MODEL, RANKING = "model", "index/ranking"
"""Folders of a generation: of its model, and of the retriever's index."""
HUB = [f"*.{kind}" for kind in ("arrow", "npy", "json", "txt", "safetensors")]
"""Files of a library that are downloaded."""
RERANKED = 30
"""Papers that a cross-encoder reads."""
WEIGHT = 0.3
"""Of its score beside the retriever's, both as z-scores (docs/reranking.md)."""
LONGEST = 100_000
"""Characters of a question, at most."""

_MARK = re.compile(
    rf"\[CITE\]|\[@?\?\]|\\[a-zA-Z]*cite[a-zA-Z]*\*?(?:\[[^\]]*\])*\{{\s*(?:\?*|TODO)\s*\}}|{TARGET_MARKER}"
)
_YEARS = re.compile(r"\s*(\d{1,4})?\s*(-)?\s*(\d{1,4})?\s*")


def mark_context(text: str) -> str:
    """The text with TARGET_MARKER at its first mark, or at its end, and OTHER_MARKER at further ones.

    Marks are [CITE], \\cite{?}, \\cite{}, [?], [@?] and TARGETCIT.

    >>> mark_context("Adam [CITE] is usual."), mark_context("So is SGD.")
    ('Adam TARGETCIT is usual.', 'So is SGD. TARGETCIT')
    """
    first, *others = [*_MARK.split(text)]
    if not others:
        return f"{text.rstrip()} {TARGET_MARKER}"
    return first + TARGET_MARKER + OTHER_MARKER.join(others)


@dataclass(frozen=True)
class Request:
    """A question and what may answer it: ids or keys of papers, years as 2015-2020, a collection, a venue."""

    query: Query
    exclude: Sequence[str] = ()
    only: Sequence[str] = ()
    years: str | None = None
    collection: str | None = None
    venue: str | None = None


@dataclass(frozen=True)
class _Generation:
    """What answers while a library does not change."""

    library: Library
    retriever: Retriever
    witness: EvidenceFinder

    @classmethod
    def of(cls, library: Library) -> _Generation:
        retriever = open_model(library.folder / MODEL, library.corpus)
        try:
            retriever.load(library.folder / RANKING, library.corpus)
        except InputError as error:
            again = f"python recommend.py build library={library.path} overwrite=true makes it again"
            raise InputError(f"{error}; {again}") from None
        return cls(library, retriever, EvidenceFinder(library.corpus))

    @cached_property
    def words(self) -> BM25:
        """For plain searches, by the index that questions are answered from where it has words."""
        parts = self.retriever.parts if isinstance(self.retriever, Ranker) else {"": self.retriever}
        for part in parts.values():
            if isinstance(part, BM25) and not part.reads_contexts:
                return part.asked_by(("context",))
        found = BM25(query=("context",))
        found.index(self.library.corpus)
        return found

    def allowed(self, asked: Request) -> Mask | None:
        """The papers [P] that pass the filters; None: all."""
        library = self.library
        if not any((asked.exclude, asked.only, asked.years, asked.collection, asked.venue)):
            return None
        allowed = np.ones(len(library), np.bool_)
        if asked.only:
            allowed[:] = False
            allowed[library.rows(asked.only, "only")] = True
        allowed[[row for name in asked.exclude if (row := library.row(name)) is not None]] = False
        if asked.years:
            first, last = year_range(asked.years)
            allowed &= (library.corpus.years >= first) & (library.corpus.years <= last)
        if asked.collection:
            lists = library.metadata["collections"].combine_chunks()
            inside = pc.list_parent_indices(lists).filter(pc.equal(pc.list_flatten(lists), asked.collection))
            if not len(inside):
                raise InputError(f"collection={asked.collection}: no paper of the library is in it")
            allowed &= np.isin(np.arange(len(library)), inside.to_numpy())
        if asked.venue:
            venues = library.metadata["venue"]
            allowed &= pc.match_substring(venues, asked.venue, ignore_case=True).to_numpy()
        return allowed


class Recommender:
    """Answers questions from a library. Several threads may ask at once."""

    def __init__(self, library: Library, reranker: Reranker | None = None) -> None:
        """reranker: reads the first papers again, slower and better."""
        self.reranker = reranker
        self._lock, self._reading, self._opening = threading.Lock(), threading.Lock(), threading.Lock()
        self._now, self._written = _Generation.of(library), (library.path / MANIFEST).stat().st_mtime_ns

    @classmethod
    def open(
        cls, path: str | Path, reranker: str | Path | None = None, scoring: ScoringSettings | None = None
    ) -> Recommender:
        """The recommender of a library's folder.

        reranker: a cross-encoder's folder (rerank.reranker). scoring: how it scores; None: the fastest way.
        Raises InputError if the folder is no library, or the reranker none.
        """
        library = Library.open(path)
        if reranker is None:
            return cls(library)
        from rerank.reranker import Reranker  # torch, which the rest does without
        from rerank.settings import ScoringSettings

        reader = Reranker.open(reranker, scoring or ScoringSettings("fastest"))
        reader.prepare(library.corpus)  # now, not at the first question
        return cls(library, reader)

    @classmethod
    def from_pretrained(cls, path: str | Path) -> Recommender:
        """As `open`, of a library's folder or its id on the hub. InputError if it cannot be had."""
        if Path(path).exists() or not is_hub_id(path):
            return cls.open(path)
        from huggingface_hub import snapshot_download

        try:
            return cls.open(snapshot_download(str(path), allow_patterns=HUB))
        except InputError:
            raise
        except Exception as error:  # the network raises nearly anything
            raise InputError(
                f"{path}: neither a folder nor available on the hub ({error_text(error)}); copy the "
                "library's folder to this machine and name it"
            ) from None

    @property
    def library(self) -> Library:
        """As it was at the last question or change."""
        return self._now.library

    @property
    def reranks(self) -> bool:
        """Whether there is a cross-encoder."""
        return self.reranker is not None

    def recommend(
        self,
        text: str,
        title: str = "",
        abstract: str = "",
        k: int = 10,
        *,
        exclude: Sequence[str] = (),
        only: Sequence[str] = (),
        years: str | None = None,
        collection: str | None = None,
        venue: str | None = None,
        year: int = 0,
        known: Sequence[str] = (),
        rerank: bool | None = None,
        explain: bool = False,
    ) -> list[Recommendation]:
        """The k best papers to cite at the mark of a text (`marked`), best first.

        title, abstract, year: of the paper being written. known: ids or keys of papers that it cites already.
        exclude, only, years, collection, venue: which papers may be recommended (`Asked`). rerank: with the
        cross-encoder; None: if there is one. explain: with the ranker's features.
        Raises InputError for a text without words, and for filters that leave nothing or are not understood.
        """
        query = Query(text, title, abstract, year, tuple(known))
        asked = Request(query, exclude, only, years, collection, venue)
        return self.recommend_batch([asked], k, rerank=rerank, explain=explain)[0]

    def recommend_batch(
        self, asked: Sequence[Request], k: int = 10, *, rerank: bool | None = None, explain: bool = False
    ) -> list[list[Recommendation]]:
        """As `recommend`, for several questions."""
        now, queries, rankings = self._ranked(asked, k, rerank)
        return [
            self._shown(now, queries[row : row + 1], found, k, explain) for row, found in enumerate(rankings)
        ]

    def rank(self, asked: Sequence[Request], k: int, rerank: bool | None = None) -> list[Ranking]:
        """As `recommend_batch`: rows of the library's papers and scores alone, [1, k or more] a question."""
        return self._ranked(asked, k, rerank)[2]

    def _ranked(
        self, asked: Sequence[Request], k: int, rerank: bool | None
    ) -> tuple[_Generation, Queries, list[Ranking]]:
        if rerank and self.reranker is None:
            raise InputError("rerank: there is no cross-encoder; give reranker=FOLDER")
        now, again = self._follow(), self.reranker is not None and rerank is not False
        depth = max(k, RERANKED) if again else k
        queries = Queries.asked(now.library.corpus, [self._query(now.library, one.query) for one in asked])
        with self._lock:
            rankings = [
                now.retriever.search_allowed(queries[row : row + 1], depth, now.allowed(one))
                for row, one in enumerate(asked)
            ]
        if again:
            rankings = [self._reranked(queries[row : row + 1], found) for row, found in enumerate(rankings)]
        return now, queries, rankings

    def search(self, query: str, k: int = 10) -> list[LibraryPaper]:
        """The k papers of the library that answer to some words, best first, by BM25."""
        now = self._follow()
        with self._lock:
            found = now.words.search(Queries.asked(now.library.corpus, [Query(query)]), k).papers[0]
        return [now.library.paper(row) for row in found[found >= 0].tolist()]

    def add(self, papers: Sequence[LibraryPaper]) -> None:
        """Add papers to the library; one that is there already becomes fuller (library.duplicates)."""
        with Library.changing(self.library.path) as library, Deduplicator(library.path, library) as gathering:
            for paper in papers:
                gathering.add(paper)
            gathering.finish()
            if gathering.count:
                add_papers(library, gathering, gathering.papers())
        self._follow()

    def remove(self, names: Sequence[str]) -> None:
        """Remove papers by their ids or keys; InputError for one that is unknown."""
        with Library.changing(self.library.path) as library:
            remove_papers(library, names)
        self._follow()

    def _follow(self) -> _Generation:
        """The current generation, also where another process has made it."""
        try:
            written = (self._now.library.path / MANIFEST).stat().st_mtime_ns
        except OSError:
            return self._now  # someone has taken the library away
        if written != self._written:
            with self._opening:
                if written != self._written:
                    self._now, self._written = _Generation.of(Library.open(self._now.library.path)), written
        return self._now

    def _query(self, library: Library, query: Query) -> Query:
        """With the mark, and with papers by their ids. InputError where there is nothing to go by."""
        if len(query.context) > LONGEST:
            raise InputError(
                f"text: {len(query.context):,} characters; give the passage around the citation, at most "
                f"{LONGEST:,}"
            )
        context = mark_context(query.context)
        if not re.search(r"\w", context.replace(TARGET_MARKER, "").replace(OTHER_MARKER, "")):
            raise InputError("text: there are no words in it; give the passage around the citation")
        known = [library.row(name) for name in query.known]
        ids = tuple(library.corpus.paper_ids[row] for row in known if row is not None)
        return replace(query, context=context, known=ids)

    def _reranked(self, queries: Queries, found: Ranking) -> Ranking:
        assert self.reranker is not None
        head = Ranking(found.papers[:, :RERANKED], found.scores[:, :RERANKED])
        with self._reading:
            scores = self.reranker.score_candidates(queries, head.papers)
        order = np.argsort(-fuse_scores(head, scores, "score", WEIGHT), axis=1, kind="stable")
        # Scores of two models have no unit in common: the retriever's stay, in the new order of papers.
        papers = np.take_along_axis(head.papers, order, axis=1)
        return Ranking(np.concatenate([papers, found.papers[:, RERANKED:]], axis=1), found.scores)

    def _shown(
        self, now: _Generation, query: Queries, found: Ranking, k: int, explain: bool
    ) -> list[Recommendation]:
        papers = found.papers[0][:k][found.papers[0][:k] >= 0]
        features = now.retriever.explain(query, papers[None]) if explain else {}
        context, title = query.texts("context")[0], query.texts("title")[0]
        own = int(query.citing[0])
        evidence = now.witness.evidence(context, papers.tolist(), title, None if own < 0 else own)
        shown = []
        for place, row in enumerate(papers.tolist()):
            paper = now.library.paper(row)
            known = paper.id, paper.key, paper.title, paper.authors, paper.year or None, paper.venue
            told = {name: float(values[0, place]) for name, values in features.items()}
            score = float(found.scores[0, place])
            shown.append(Recommendation(place + 1, score, *known, evidence[place], told))
        return shown


def year_range(years: str) -> tuple[int, int]:
    """The first and the last of years as 2015-2020, 2015-, -2020 or 2019; InputError for anything else."""
    parts = _YEARS.fullmatch(years)
    if parts is None or not (parts[1] or parts[3]) or (parts[3] and not parts[2]):
        raise InputError(f"years={years}: give them as 2015-2020, 2015-, -2020 or 2019")
    first = int(parts[1] or 1)
    last = int(parts[3]) if parts[3] else 9999 if parts[2] else first
    if first > last:
        raise InputError(f"years={years}: the first year comes after the last")
    return first, last


def add_papers(
    library: Library, gathering: Deduplicator, papers: Iterable[LibraryPaper], **about: Any
) -> Library:
    """The generation with what has been gathered, as `papers`. Call it inside `Library.changing`."""
    kept = np.setdiff1d(np.arange(len(library)), gathering.replaced)
    removed = library.manifest.removed
    if removed:
        back = {paper.id for paper in gathering.papers()}
        removed = [id for id in removed if id not in back]
    return library.changed(kept, papers, indexer(), removed=removed, **about)


def remove_papers(library: Library, names: Iterable[str]) -> Library:
    """The generation without some papers, by their ids or keys. Call it inside `Library.changing`.

    InputError for an unknown one, and if none would be left.
    """
    rows = library.rows(names)
    if len(rows) == len(library):
        raise InputError(f"{library.path}: no paper would be left; delete the folder instead")
    gone = [library.corpus.paper_ids[row] for row in rows.tolist()]
    removed = list(dict.fromkeys([*library.manifest.removed, *gone]))
    kept = np.setdiff1d(np.arange(len(library)), rows)
    return library.changed(kept, (), indexer(), removed=removed)


def indexer(model: str = "", ranker: str = "") -> Indexer:
    """What a library calls to index its papers by its model; a new one by this model (library.models)."""

    def index(old: Library | None, new: Corpus, kept: Rows, folder: Path) -> None:
        if old is None:
            install_model(model, ranker, folder / MODEL)
        else:
            copy_model(old.folder / MODEL, folder / MODEL)
        retriever = open_model(folder / MODEL, new)
        if old is None:
            retriever.index(new)
        else:
            retriever.reindex(old.corpus, new, kept, old.folder / RANKING)
        retriever.save(folder / RANKING)

    return index
