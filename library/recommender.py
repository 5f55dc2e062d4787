"""Recommends papers of a library for a passage that lacks a citation."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from citerec.base.errors import InputError, error_text
from citerec.base.files import link_or_copy
from citerec.base.progress import spinner
from citerec.datasets.corpus import Corpus
from citerec.datasets.languages.known import LANGUAGES
from citerec.datasets.records import OTHER_MARKER, TARGET_MARKER
from citerec.library.drafts.placeholders import target_mark
from citerec.library.duplicates import Deduplicator
from citerec.library.explanation import Explainer, Recommendation
from citerec.library.filters import Filters
from citerec.library.library import (
    MANIFEST,
    METADATA,
    Indexer,
    Library,
    LibraryPaper,
    Rows,
    damaged,
    outdated,
    read_manifest,
)
from citerec.library.limits import MAX_TEXT
from citerec.library.models import install_model, open_model
from citerec.library.search import IN_PART, SearchIndex, count_words, named_papers, plain_words, query_words
from citerec.rerank.ranker.model import Ranker
from citerec.retrieval.arrays import Mask
from citerec.retrieval.base import OtherIndex, Ranking, Retriever
from citerec.retrieval.fusion import fuse_scores
from citerec.retrieval.lexical.bm25 import BM25
from citerec.retrieval.queries import WINDOW, Queries, Query, cut_around_mark
from citerec.training.hub import is_hub_id

if TYPE_CHECKING:
    from citerec.rerank.cross_encoder.reranker import Reranker
    from citerec.rerank.settings import ScoringSettings

MODEL, RANKING = "model", "index/ranking"
"""Folders of a generation that hold the model and the retriever's index."""
HUB_PATTERNS = [f"*.{kind}" for kind in ("arrow", "npy", "json", "txt", "safetensors")]
"""Files of a library to download from the hub."""
RERANK_DEPTH = 30
"""Number of top papers that a cross-encoder reranks."""
CITED = 3
"""Papers cited elsewhere in the draft that are recommended beside k others."""
CITED_DEPTH = 100
"""Papers among which they are looked for."""
NAMED = 0.9
"""Probability that a named paper is the one meant."""
RERANKER_WEIGHT = 0.3
"""Weight of its score relative to the retriever's, both as z-scores (docs/guide/reranking.md)."""

_PLAIN_MARK = re.compile(rf"\[\?\]|\b{TARGET_MARKER}\b|(?<![\w\\@])(?:TODO|FIXME|XXX):\w(?:[\w:.-]*\w)?")
"""Marks that are of no language."""


def mark_context(text: str) -> str:
    r"""Replace the first mark of a text, or TARGETCIT, by `target_mark` and other marks by OTHER_MARKER.

    Marks are the missing citations of drafts in any language, such as [CITE], \cite{?} and [@TODO:blei2003];
    [?], TODO:blei2003 and TARGETCIT. Without a mark, TARGET_MARKER is appended.

    >>> mark_context("Adam [CITE] is usual."), mark_context(r"Adam \cite{TODO:kingma} is. So is SGD [@?].")
    ('Adam TARGETCIT is usual.', 'Adam Kingma TARGETCIT is. So is SGD OTHERCIT.')
    """
    spans = [match.span() for match in _PLAIN_MARK.finditer(text)]
    for language in LANGUAGES:
        spans += [(found.start, found.end) for found in language.citations(text) if found.missing]
    target = min(spans, key=lambda span: (text[slice(*span)] != TARGET_MARKER, span), default=None)
    pieces, done = list[str](), 0
    for span in sorted(spans):
        if span[0] >= done:
            mark = text[slice(*span)]
            pieces += [text[done : span[0]], target_mark(mark) if span == target else OTHER_MARKER]
            done = span[1]
    return "".join([*pieces, text[done:]]) if pieces else append_mark(text)


def append_mark(text: str) -> str:
    return f"{text.rstrip()} {TARGET_MARKER}"


def mark_query(query: Query) -> Query:
    """Mark the citation in a query, and cut its context from a longer text, which becomes its surroundings.
    A text without a mark is not cut. Raises InputError for one that is too long or has no words."""
    if len(query.context) > MAX_TEXT:
        raise InputError(
            f"text: has {len(query.context):,} characters; give only the passage around the citation, at "
            f"most {MAX_TEXT:,}"
        )
    context = mark_context(query.context)
    if not re.search(r"\w", context.replace(TARGET_MARKER, "").replace(OTHER_MARKER, "")):
        raise InputError("text: has no words; give the passage around the citation")
    if context == append_mark(query.context):
        return replace(query, context=context)
    near = cut_around_mark(context, WINDOW)
    return replace(query, context=near, surroundings="" if near == context else context)


@dataclass(frozen=True)
class Request:
    """A query, and which papers may answer it."""

    query: Query
    filters: Filters = field(default_factory=Filters)


@dataclass(frozen=True)
class Generation:
    """The library, retriever and explanations of one generation."""

    library: Library
    retriever: Retriever
    explainer: Explainer

    @classmethod
    def load(cls, library: Library) -> Generation:
        try:
            retriever = open_model(library.folder / MODEL)
            retriever.load(library.folder / RANKING, library.corpus)
        except OtherIndex:
            raise outdated(library.path) from None
        except (InputError, OSError) as error:
            raise damaged(library.path, error) from None
        statistics = retriever.statistics if isinstance(retriever, Ranker) else None
        return cls(library, retriever, Explainer(library.corpus, statistics))

    @cached_property
    def search_index(self) -> SearchIndex:
        return SearchIndex.open(self.library)

    @cached_property
    def text_search(self) -> BM25:
        """BM25 over titles and abstracts; shares the index of the retriever's BM25 if it has one."""
        parts = self.retriever.parts if isinstance(self.retriever, Ranker) else {"": self.retriever}
        for part in parts.values():
            if isinstance(part, BM25) and not part.reads_contexts:
                return part.with_query_fields(("context",))
        bm25 = BM25(query=("context",))
        bm25.index(self.library.corpus)
        return bm25


class Recommender:
    """Recommends papers of a library. Several threads may query it at once."""

    def __init__(self, library: Library, reranker: Reranker | None = None) -> None:
        """reranker: a cross-encoder that reranks the top papers."""
        self.reranker = reranker
        self._search_lock, self._reranker_lock = threading.Lock(), threading.Lock()
        self._reload_lock = threading.Lock()
        self._current, self._mtime = Generation.load(library), (library.path / MANIFEST).stat().st_mtime_ns

    @classmethod
    def open(
        cls, path: str | Path, reranker: str | Path | None = None, scoring: ScoringSettings | None = None
    ) -> Recommender:
        """Open the library in a folder.

        reranker: folder of a cross-encoder (rerank.cross_encoder.reranker). scoring: None means the fastest
        settings.
        Raises InputError if a folder does not contain a library or a cross-encoder.
        """
        on_disk = bool(read_manifest(Path(path).expanduser()).shards)
        library = None if on_disk else Library.open(path)
        cross_encoder = None
        if reranker is not None:
            from citerec.rerank.cross_encoder.reranker import (
                Reranker,  # imports torch, which nothing else here needs
            )
            from citerec.rerank.settings import ScoringSettings

            cross_encoder = Reranker.open(reranker, scoring or ScoringSettings("fastest"))
        if library is None:
            from citerec.library.disk.library import LargeLibrary, LargeRecommender  # imports tantivy

            return LargeRecommender(LargeLibrary.open(path), cross_encoder)
        if cross_encoder is not None:
            cross_encoder.prepare(library.corpus)  # now rather than at the first query
        return cls(library, cross_encoder)

    @classmethod
    def from_pretrained(cls, path: str | Path) -> Recommender:
        """Like `open`, for a library's folder or hub id. Raises InputError if it cannot be downloaded."""
        if Path(path).exists() or not is_hub_id(path):
            return cls.open(path)
        from huggingface_hub import snapshot_download

        try:
            return cls.open(snapshot_download(str(path), allow_patterns=HUB_PATTERNS))
        except InputError:
            raise
        except Exception as error:  # the network raises nearly anything
            raise InputError(
                f"{path}: neither a folder nor available on the hub ({error_text(error)}); copy the library "
                "to this machine and give its folder"
            ) from None

    @property
    def library(self) -> Library:
        """The library as of the last query or change."""
        return self._current.library

    @property
    def calibrated(self) -> bool:
        """True if scores are logarithms of probabilities."""
        return self._current.retriever.log_probabilities

    @property
    def reranks(self) -> bool:
        """True if there is a cross-encoder."""
        return self.reranker is not None

    def recommend(
        self,
        text: str,
        title: str = "",
        abstract: str = "",
        k: int = 10,
        *,
        known: Sequence[str] = (),
        filters: Filters | None = None,
        rerank: bool | None = None,
        explain: bool = False,
    ) -> list[Recommendation]:
        """Return the k best papers to cite at the mark of a text (`mark_context`), best first.

        title, abstract: of the paper being written. known: ids or keys of papers that it cites elsewhere; at
        most CITED of them are recommended, beside k others. filters: which papers may be recommended.
        rerank: use the cross-encoder; None means if there is one. explain: add the ranker's features.
        Raises InputError for a text without words and for invalid filters.
        """
        request = Request(Query(text, title, abstract, known=tuple(known)), filters or Filters())
        return self.recommend_batch([request], k, rerank=rerank, explain=explain)[0]

    def recommend_batch(
        self, requests: Sequence[Request], k: int = 10, *, rerank: bool | None = None, explain: bool = False
    ) -> list[list[Recommendation]]:
        """Like `recommend`, for several requests."""
        generation, queries, rankings, named = self._rank(requests, k, rerank)
        return [
            self._recommendations(
                generation,
                queries[row : row + 1],
                _both_groups(ranking, queries.known[row], k),
                explain,
                named[row],
            )
            for row, ranking in enumerate(rankings)
        ]

    def ranked(self, request: Request, depth: int) -> Ranked:
        """Rank at most `depth` papers for a request, to recommend some of them later."""
        generation, queries, [ranking], [named] = self._rank([request], depth, False)
        return Ranked(self, generation, queries, ranking, named)

    def rank(self, requests: Sequence[Request], k: int, rerank: bool | None = None) -> list[Ranking]:
        """Like `recommend_batch`, but return only library rows and scores, [1, k or more] per request."""
        return self._rank(requests, k, rerank)[2]

    def _rank(
        self, requests: Sequence[Request], k: int, rerank: bool | None
    ) -> tuple[Generation, Queries, list[Ranking], list[dict[int, str]]]:
        if rerank and self.reranker is None:
            raise InputError("rerank: there is no cross-encoder; give reranker=FOLDER")
        generation, reranks = self.refresh(), self.reranker is not None and rerank is not False
        depth = max(k, RERANK_DEPTH) if reranks else k
        log_probabilities = generation.retriever.log_probabilities
        prepared = [self._prepare_query(generation.library, request.query) for request in requests]
        queries = Queries.from_list(generation.library.corpus, prepared)
        with self._search_lock:
            masks = [request.filters.mask(generation.library) for request in requests]
            rankings = [
                generation.retriever.search_allowed(
                    queries[row : row + 1], _depth(depth, len(queries.known[row])), mask
                )
                for row, mask in enumerate(masks)
            ]
            named = [
                self._named(generation, query.context, mask)
                for query, mask in zip(prepared, masks, strict=True)
            ]
        if reranks:
            rankings = [self._rerank(queries[row : row + 1], ranking) for row, ranking in enumerate(rankings)]
        rankings = [
            _named_first(ranking, list(rows), log_probabilities)
            for ranking, rows in zip(rankings, named, strict=True)
        ]
        return generation, queries, rankings, named

    def _named(self, generation: Generation, context: str, mask: Mask | None) -> dict[int, str]:
        """Return the rows of the papers that a question names, and their name in it."""
        rows, name = named_papers(generation.library, generation, context)
        return {row: name for row in rows if mask is None or mask[row]}

    def search(self, query: str, k: int = 10) -> list[LibraryPaper]:
        """Return at most k papers with the words of a query, or their beginnings, best first by BM25.

        Papers with all of them in key, authors, year, title and venue; if there is none, papers with as many
        as possible there and in the abstract. Raises InputError for a query without words.
        """
        if not re.search(r"[^\W_]", query):
            raise InputError("query: has no words; give some of a title, authors, year or key")
        generation = self.refresh()
        with self._search_lock:
            rows, has_all = generation.search_index.search(query, max(k, IN_PART))
            if has_all:
                return [generation.library.paper(row) for row in rows[:k]]
            queries = Queries.from_list(generation.library.corpus, [Query(query)])
            more = generation.text_search.search(queries, max(k, IN_PART)).papers[0]
        papers = map(generation.library.paper, dict.fromkeys([*rows, *more[more >= 0].tolist()]))
        return sorted(papers, key=partial(count_words, query_words(query)), reverse=True)[:k]

    def add(self, papers: Sequence[LibraryPaper]) -> None:
        """Add papers to the library; records of existing papers complete them (library.duplicates)."""
        with Library.edit(self.library.path) as library, Deduplicator(library.path, library) as records:
            for paper in papers:
                records.add(paper)
            records.finish()
            if records.count:
                add_papers(library, records, records.papers())
        self.refresh()

    def remove(self, names: Sequence[str]) -> None:
        """Remove papers by id or key. Raises InputError for an unknown one."""
        with Library.edit(self.library.path) as library:
            remove_papers(library, names)
        self.refresh()

    def refresh(self) -> Generation:
        """Return the current generation, reloaded if the library has changed on disk."""
        path = self._current.library.path
        try:
            mtime = (path / MANIFEST).stat().st_mtime_ns
        except OSError:
            return self._current  # the library was deleted
        if mtime != self._mtime:
            with self._reload_lock:
                if mtime != self._mtime:
                    self._current, self._mtime = Generation.load(Library.open(path)), mtime
        return self._current

    def _prepare_query(self, library: Library, query: Query) -> Query:
        """Mark the citation and resolve known papers to ids. Raises InputError like `mark_query`."""
        known = [library.row(name) for name in query.known]
        ids = tuple(library.corpus.paper_ids[row] for row in known if row is not None)
        return replace(mark_query(query), known=ids)

    def _rerank(self, queries: Queries, ranking: Ranking) -> Ranking:
        assert self.reranker is not None
        head = Ranking(ranking.papers[:, :RERANK_DEPTH], ranking.scores[:, :RERANK_DEPTH])
        with self._reranker_lock:
            scores = self.reranker.score_candidates(queries, head.papers)
        order = np.argsort(-fuse_scores(head, scores, "score", RERANKER_WEIGHT), axis=1, kind="stable")
        # Scores of the two models are not comparable, so the retriever's scores stay, in descending order.
        papers = np.take_along_axis(head.papers, order, axis=1)
        return Ranking(np.concatenate([papers, ranking.papers[:, RERANK_DEPTH:]], axis=1), ranking.scores)

    def _recommendations(
        self,
        generation: Generation,
        query: Queries,
        ranking: Ranking,
        explain: bool,
        named: dict[int, str],
    ) -> list[Recommendation]:
        papers, known = ranking.papers[0], set(query.known[0].tolist())
        calibrated = generation.retriever.log_probabilities
        features = generation.retriever.explain(query, papers[None]) if explain else {}
        evidence = generation.explainer.explain(query, papers.tolist())
        recommendations = []
        for index, row in enumerate(papers.tolist()):
            paper = generation.library.paper(row)
            fields = paper.id, paper.key, paper.title, paper.authors, paper.year or None, paper.venue
            values = {name: float(column[0, index]) for name, column in features.items()}
            score = float(ranking.scores[0, index])
            why = replace(evidence[index], name=named[row]) if row in named else evidence[index]
            probability = math.exp(score) if calibrated else None
            about = why, values, probability, row in known, paper.names
            recommendations.append(Recommendation(index + 1, score, *fields, *about))
        return recommendations


@dataclass(frozen=True)
class Ranked:
    """Papers ranked for one request (`Recommender.ranked`). Recommending some of them is quick."""

    recommender: Recommender
    generation: Generation
    query: Queries
    ranking: Ranking
    named: dict[int, str]

    def best(self, k: int) -> list[Recommendation]:
        """Return what `Recommender.recommend_batch` returns, without a cross-encoder."""
        known = self.query.known[0]
        depth = _depth(k, len(known))
        head = Ranking(self.ranking.papers[:, :depth], self.ranking.scores[:, :depth])
        return self._recommend(_both_groups(head, known, k))

    @cached_property
    def _texts(self) -> list[str]:
        """Words of key, authors, year, title and venue of each ranked paper, in a form to compare."""
        library, corpus, rows = self.generation.library, self.generation.library.corpus, self._rows
        return [
            plain_words(f"{one['key']} {' '.join(one['authors'])} {year} {corpus.titles[row]} {one['venue']}")
            for one, row, year in zip(
                library.select(rows, ["key", "authors", "venue"]),
                rows.tolist(),
                corpus.years[rows],
                strict=True,
            )
        ]

    @property
    def _rows(self) -> Rows:
        return self.ranking.papers[0, self.ranking.papers[0] >= 0]

    def matching(self, query: str) -> list[str]:
        """Return the ids of the ranked papers with the words of a query, or their beginnings, best first."""
        words = [f" {word}" for word in plain_words(query).split()]
        ids, pairs = self.generation.library.corpus.paper_ids, zip(self._rows, self._texts, strict=True)
        return [ids[row] for row, text in pairs if all(word in text for word in words)]

    def among(self, ids: Iterable[str], k: int) -> list[Recommendation]:
        """Return the k best of these papers; those that are not ranked follow in the given order."""
        corpus = self.generation.library.corpus
        rows = np.array([corpus.paper_row(id) for id in ids if corpus.has_paper(id)], np.int32)
        kept = np.isin(self.ranking.papers[0], rows)
        others = rows[~np.isin(rows, self.ranking.papers[0])]
        papers = np.concatenate([self.ranking.papers[0, kept], others])[:k]
        least = self.ranking.scores[0].min(initial=0)
        scores = np.concatenate([self.ranking.scores[0, kept], np.full(len(others), least)])[:k]
        return self._recommend(Ranking(papers[None], scores[None].astype(np.float32)))

    def _recommend(self, ranking: Ranking) -> list[Recommendation]:
        return self.recommender._recommendations(self.generation, self.query, ranking, False, self.named)


def _depth(k: int, known: int) -> int:
    """Return how many papers to rank for k papers, and some of those that the draft cites elsewhere."""
    return max(k + known, CITED_DEPTH) if known else k


def _both_groups(ranking: Ranking, known: NDArray[np.integer], k: int) -> Ranking:
    """Keep the k best papers that the draft does not cite elsewhere and the CITED best that it does, so that
    neither push the others out."""
    found = ranking.papers[0] >= 0
    cited = found & np.isin(ranking.papers[0], known)
    others = found & ~cited
    kept = (others & (np.cumsum(others) <= k)) | (cited & (np.cumsum(cited) <= CITED))
    return Ranking(ranking.papers[:, kept], ranking.scores[:, kept])


def _named_first(ranking: Ranking, named: list[int], log_probabilities: bool) -> Ranking:
    """Put the papers that a question names first; scores stay in descending order.

    log_probabilities: scores are those; then the named papers share NAMED, and the others the rest.
    """
    if not named:
        return ranking
    others = ranking.papers[0][(ranking.papers[0] >= 0) & ~np.isin(ranking.papers[0], named)]
    papers = np.array([[*named, *others]], np.int32)
    scores = ranking.scores[0][ranking.papers[0] >= 0]
    if log_probabilities:
        share = np.full(len(named), math.log(NAMED / len(named)), np.float32)
        rest = ranking.scores[0][np.isin(ranking.papers[0], others)] + math.log(1 - NAMED)
        return Ranking(papers, np.concatenate([share, np.minimum(rest, share[0])])[None])
    best = scores[0] if len(scores) else np.float32(0)
    added = np.full(papers.shape[1] - len(scores), best, np.float32)  # they have no score of their own
    return Ranking(papers, np.concatenate([added, scores])[None])


def add_papers(
    library: Library, records: Deduplicator, papers: Iterable[LibraryPaper], **fields: Any
) -> Library:
    """Write a generation with the deduplicated `papers` of `records`. Call it inside `Library.edit`."""
    kept = np.delete(np.arange(len(library)), records.replaced)
    removed = library.manifest.removed
    if removed:
        added = {paper.id for paper in records.papers()}
        removed = [id for id in removed if id not in added]
    return library.write_generation(kept, papers, indexer(), removed=removed, **fields)


def remove_papers(library: Library, names: Iterable[str]) -> Library:
    """Write a generation without the papers of these ids or keys. Call it inside `Library.edit`.

    Raises InputError for an unknown paper, or if no paper would be left.
    """
    rows = library.rows(names)
    if len(rows) == len(library):
        raise InputError(f"{library.path}: no paper would be left; delete the folder instead")
    ids = [library.corpus.paper_ids[row] for row in rows.tolist()]
    removed = list(dict.fromkeys([*library.manifest.removed, *ids]))
    kept = np.delete(np.arange(len(library)), rows)
    return library.write_generation(kept, (), indexer(), removed=removed)


def indexer(model: str = "", ranker: str = "") -> Indexer:
    """Return an Indexer. A new library gets `model` and `ranker` (library.models), others keep theirs."""

    def index(old: Library | None, new: Corpus, kept: Rows, folder: Path) -> None:
        if old is None:
            install_model(model, ranker, folder / MODEL)
        else:
            link_or_copy(old.folder / MODEL, folder / MODEL)
        try:
            retriever = open_model(folder / MODEL)
            with spinner("indexing (the first time may take a minute)"):
                if old is None:
                    retriever.index(new)
                    retriever.save(folder / RANKING)
                else:
                    _change_index(retriever, old, new, kept, folder)
        except OtherIndex:
            if old is None:
                raise
            raise outdated(old.path) from None
        SearchIndex.write(old, new, kept, folder, folder / METADATA)

    return index


def _change_index(retriever: Retriever, old: Library, new: Corpus, kept: Rows, folder: Path) -> None:
    before, after = old.folder / RANKING, folder / RANKING
    if retriever.can_extend(old.corpus, new, before):
        retriever.extend(old.corpus, new, before, after)
    else:
        retriever.reindex(old.corpus, new, kept, before)
        retriever.save(after)
