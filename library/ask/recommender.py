"""Opens a library, and recommends papers of it for a passage that lacks a citation."""

from __future__ import annotations

import logging
import math
import re
import threading
from collections.abc import Iterable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from citerec.base.errors import InputError
from citerec.base.files import expand_user
from citerec.base.progress import spinner
from citerec.base.settings import check_count, check_texts, listed
from citerec.formats.bibliography.paper import LibraryPaper
from citerec.library.ask.question import (
    Filters,
    Request,
    append_mark,
    cited_near,
    is_english,
    mark_context,
    mark_query,
    named_key,
    named_papers,
)
from citerec.library.ask.recommendation import TOGETHER, Recommendation, what_fits
from citerec.library.evidence.passages import TextPlace
from citerec.library.papers.encoding import MOST_READ, BackgroundEncoding, encode, in_words, state
from citerec.library.papers.folder import damage_told
from citerec.library.papers.library import Library
from citerec.library.papers.search import IN_PART, count_words, plain_words, query_words, spellings
from citerec.library.papers.storage import Storage
from citerec.library.sources.finding import is_temporary
from citerec.rerank.ranker.model import Ranker, encoder_of
from citerec.retrieval.arrays import Rows
from citerec.retrieval.base import Ranking, Retriever, empty_rankings
from citerec.retrieval.fusion import fuse_scores
from citerec.retrieval.queries import Queries, Query

if TYPE_CHECKING:
    from citerec.library.evidence.evidence import FullTexts
    from citerec.rerank.cross_encoder.reranker import Reranker
    from citerec.rerank.settings import ScoringSettings

log = logging.getLogger(__name__)

RERANK_DEPTH = 30
"""Number of top papers that a cross-encoder reranks."""
CITED, CITED_SHARE = 3, 0.3
"""Most papers cited elsewhere in the draft to recommend beside k others: a number, or a share of k."""
CITED_DEPTH = 100
"""Number of top papers among which they are looked for."""
NAMED, MOST_FIRST, SAID = 0.9, 20, 0.5
"""Probability that one of the named papers is meant, of which at most so many come first; and one that says
the sentence nearly word for word: 5 of 10 such papers were, among 10,680 contexts of 40 drafts over the
abstracts of their bibliographies."""
RERANKER_WEIGHT = 0.3
"""The cross-encoder's weight relative to the retriever's, on z-scores."""


class Recommender:
    """Recommends papers of a library. Several threads may query it at once."""

    def __init__(self, library: Library, reranker: Reranker | None = None) -> None:
        """reranker: a cross-encoder that reranks the top papers."""
        self.library, self.reranker = library, reranker
        """The library as of the last query."""
        self._reranker_lock, self._reload_lock = threading.Lock(), threading.Lock()
        self._background: BackgroundEncoding | None = None
        library.load()

    @classmethod
    def open(
        cls,
        path: str | Path,
        reranker: str | Path | None = None,
        scoring: ScoringSettings | None = None,
    ) -> Recommender:
        """Open the library in a folder, or of a file of papers or Zotero, as `citerec ask` does.

        reranker: folder of a cross-encoder (rerank.cross_encoder.reranker). scoring: None means the fastest
        settings.
        Raises InputError if a folder does not contain a library or a cross-encoder.
        """
        library = open_library(path)
        if reranker is None:
            return cls(library)
        # These import torch, which nothing else here needs.
        from citerec.rerank.cross_encoder.reranker import Reranker
        from citerec.rerank.settings import ScoringSettings

        cross_encoder = Reranker.open(reranker, scoring or ScoringSettings(precision="fastest"))
        if isinstance(library.storage, Storage):
            cross_encoder.prepare(library.corpus)  # now rather than at the first query
        return cls(library, cross_encoder)

    def recommend(
        self,
        text: str,
        title: str = "",
        abstract: str = "",
        k: int = 10,
        *,
        known: Sequence[str] = (),
        exclude: Sequence[str] = (),
        years: str | None = None,
        filters: Filters | None = None,
        rerank: bool | None = None,
        explain: bool = False,
    ) -> list[Recommendation]:
        """Return the k best papers to cite at the mark of a text (`mark_context`), best first.

        title, abstract: of the paper being written. known: ids or keys of papers that it cites elsewhere, of
        which CITED or CITED_SHARE of k are recommended beside k others. exclude: ids or keys; years: such as
        2015-2020; filters: all conditions on the papers, in place of exclude and years.
        rerank: use the cross-encoder; None means if there is one. explain: add the ranker's features.
        Raises InputError for a text without words and for invalid filters.
        """
        check_texts(text=text, title=title, abstract=abstract)
        filters = filters or Filters(exclude, years=years)
        request = Request(Query(text, title, abstract, known=listed(known, "known")), filters)
        return self.recommend_batch([request], k, rerank=rerank, explain=explain)[0]

    def recommend_batch(
        self, requests: Sequence[Request], k: int = 10, *, rerank: bool | None = None, explain: bool = False
    ) -> list[list[Recommendation]]:
        """Return what `recommend` does, for several requests."""
        check_count("k", k)
        with damage_told(self.library.path):
            rankings = [self.ranked(request, k, rerank) for request in requests]
            return [ranked.best(k, explain) for ranked in rankings]

    def ranked(
        self, request: Request, depth: int, rerank: bool | None = False, quick: bool = False
    ) -> Ranked:
        """Rank at most `depth` papers for a request, to recommend some of them. quick: without networks."""
        if rerank and self.reranker is None:
            raise InputError("rerank: there is no cross-encoder; give reranker=FOLDER")
        reranks = self.reranker is not None and rerank is not False
        storage = self.refresh().storage
        depth = max(min(depth, len(storage)), RERANK_DEPTH if reranks else 0)
        query, filters = mark_query(request.query), request.filters
        named = [*query.known, *filters.only, named_key(query.context)]
        papers = storage.candidates(query, depth, filters.condition(), named)
        if query.passages is None:
            passages, place = cited_near(request.query.context, papers.id_of)
            query = replace(query, passages=passages, place=place)
        corpus, ids = papers.corpus, map(papers.id_of, query.known)
        if own := papers.titled(query.title):  # the paper being written, and versions of it
            names = [corpus.paper_ids[row] for row in own]
            query = replace(query, own=names[0])
            filters = replace(filters, exclude=[*filters.exclude, *names[1:]])
        queries = Queries.from_list(corpus, [replace(query, known=tuple(id for id in ids if id is not None))])
        if not len(papers):
            return Ranked(papers, queries, Ranking(*empty_rankings(1, 0)), {}, 0)
        retriever = papers.retriever
        if quick and isinstance(retriever, Ranker):
            retriever = retriever.without_networks()
        with papers.lock if not quick else nullcontext():
            allowed = filters.mask(papers)
            languages = None if quick or is_english(query.context) else papers.languages
            retriever = languages or retriever
            ranking = retriever.search_allowed(queries, _depth(depth, len(queries.known[0])), allowed)
        with papers.search_lock:
            rows, name = named_papers(papers, query.context)

        def is_citable(row: int) -> bool:
            return row != queries.citing[0] and (allowed is None or bool(allowed[row]))

        named_rows = dict.fromkeys(filter(is_citable, rows), name)
        first = list(named_rows)
        if not first and papers.full_texts is not None:
            first = [*filter(is_citable, papers.full_texts.literal(query.context))]
        if reranks:
            ranking = self._rerank(queries, ranking)
        share = None
        if retriever.log_probabilities:
            own = np.exp(ranking.scores[0][np.isin(ranking.papers[0], first)]).sum()
            share = NAMED if named_rows else max(SAID, min(float(own), NAMED))
        ranking = _named_first(ranking, first, share)
        count = corpus.total_papers if allowed is None else int(np.count_nonzero(allowed))
        return Ranked(papers, queries, ranking, named_rows, count, languages, quick)

    def search(self, query: str, k: int = 10) -> list[LibraryPaper]:
        """Return at most k papers with the words of a query, or their beginnings, best first by BM25.

        Papers with all of them in key, authors, year, title and venue; if there is none, papers with as many
        as possible there and in the abstract. Raises InputError for a query without words.
        """
        check_count("k", k)
        check_texts(query=query)
        if not re.search(r"[^\W_]", query):
            raise InputError("query: has no words; give some of a title, authors, year or key")
        with damage_told(self.library.path):
            papers = self.refresh().storage.search_candidates(query)
            if not len(papers):
                return []
            with papers.search_lock:
                rows, has_all = papers.search_index.search(query, max(k, IN_PART))
            if has_all:
                return [papers.paper(row) for row in rows[:k]]
            with papers.lock:
                queries = Queries.from_list(papers.corpus, [Query(query)])
                more = papers.text_search.search(queries, max(k, IN_PART)).papers[0]
            sought = map(papers.paper, dict.fromkeys([*rows, *more[more >= 0].tolist()]))
            return sorted(sought, key=partial(count_words, query_words(query)), reverse=True)[:k]

    def lacking(self, query: str, papers: Sequence[LibraryPaper]) -> list[str]:
        """Return a line for each word of a query that none of the papers found for it has."""
        lines, some = [], self.library.storage.search_candidates(query)
        words = [word for word in query_words(query) if not any(count_words([word], one) for one in papers)]
        for word in words:
            with some.search_lock:
                near = some.search_index.near(word)
            lines.append(f"nothing has “{word}”" + (f"; did you mean {near}?" if near else ""))
        return lines

    def passages(self, claim: str, name: str, k: int = 3) -> tuple[LibraryPaper, list[tuple[str, TextPlace]]]:
        """Return a paper by id or key, and the k passages of its full text that fit a claim best, best first:
        the sentence that fits best ("" for none), and where it stands.

        claim: may mark where it cites the paper. Raises InputError for an unknown paper, and if the library
        or the paper has no full text.
        """
        check_count("k", k)
        if not re.search(r"\w", claim):
            raise InputError("claim: has no words")
        papers, texts, row = self._full_text(name)
        marked = mark_context(claim)
        context = claim if marked == append_mark(claim) else marked
        passages = texts.passages(context, [row], k).get(row, [])
        explainer = papers.explainer
        return papers.paper(row), [explainer.sentence_in(context, passage) for passage in passages]

    def text_file(self, name: str) -> str:
        """Return the file that a paper's full text was read from. Raises InputError if it has none."""
        _, texts, row = self._full_text(name)
        return texts.file(row)

    def _full_text(self, name: str) -> tuple[Storage, FullTexts, int]:
        library = self.refresh()
        papers = library.storage.named([name])
        [row] = papers.rows([name], "key").tolist()
        if (texts := papers.full_texts) is None:
            raise InputError(f"{library.path}: has no full texts; read PDFs: citerec build ... fulltext=true")
        if not texts.has_text(row):
            raise InputError(f"key={name}: has no full text: no PDF of it was found that can be read")
        return papers, texts, row

    def refresh(self) -> Library:
        """Return the library, reloaded if it has changed on disk."""
        with self._reload_lock:
            before, self.library = self.library, self.library.refresh()
            if self._background is not None and self.library is not before:
                self._background.start(self.library)
            return self.library

    def encode_in_background(self) -> None:
        """From now on, let the networks read papers that they have not read in a thread of this process."""
        self._background = BackgroundEncoding()
        self._background.start(self.library)

    def _rerank(self, queries: Queries, ranking: Ranking) -> Ranking:
        assert self.reranker is not None
        head = Ranking(ranking.papers[:, :RERANK_DEPTH], ranking.scores[:, :RERANK_DEPTH])
        with self._reranker_lock:
            scores = self.reranker.score_candidates(queries, head.papers)
        order = np.argsort(-fuse_scores(head, scores, RERANKER_WEIGHT), axis=1, kind="stable")
        # Scores of the two models are not comparable, so the retriever's scores stay, in descending order.
        papers = np.take_along_axis(head.papers, order, axis=1)
        return Ranking(np.concatenate([papers, ranking.papers[:, RERANK_DEPTH:]], axis=1), ranking.scores)


def open_library(place: str | Path) -> Library:
    """Return the library in a folder, or the temporary one of a file of papers or a place in Zotero."""
    if not is_temporary(str(place)):
        return Library.open(place)
    from citerec.library.ask.temporary import temporary_library  # which builds libraries

    return temporary_library(str(place))


def open_recommender(place: str, reranker: str | None = None, serves: bool = False) -> Recommender:
    """Open the library in a folder, or the temporary one of a file or a place in Zotero.

    serves: this process will stay, so its networks may read the papers in the background.
    """
    if serves and not is_temporary(place):
        place = str(expand_user(place).absolute())  # so errors name it, and the server hides it from clients
    with spinner("opening the library"):
        recommender = Recommender.open(place, reranker)
    if serves:
        recommender.encode_in_background()
    else:
        _read_missing(recommender.library, place)
    return recommender


def _read_missing(library: Library, place: str) -> None:
    """Let the networks of a library read some papers that they lack, and tell what they have read: they rank
    better when they have read all. A temporary library has just been read in part."""
    readings, next_step = state(library), "the next question"
    if all(reading.complete for reading in readings):
        return
    if not is_temporary(place):
        next_step = library.encodes
        with suppress(InputError, OSError):  # another process does it, or nothing may be written
            readings = encode(library, wait=False, most=MOST_READ)
    more = "" if all(reading.complete for reading in readings) else f"; {next_step} goes on"
    log.warning("%s: %s%s", place, in_words(readings), more)


@dataclass(frozen=True)
class Ranked:
    """Papers ranked for one request (`Recommender.ranked`). Recommending some of them is quick.

    ranking: their rows, [1, depth] and some more that the question names. named: rows of these, and their
    names in it. count: papers that may be recommended. languages: the ranker for other languages than
    English, if it ranked them. quick: ranked without networks.
    """

    papers: Storage
    query: Queries
    ranking: Ranking
    named: dict[int, str]
    count: int
    languages: Ranker | None = None
    quick: bool = False

    @property
    def retriever(self) -> Retriever:
        """The model that ranked them."""
        return self.papers.retriever if self.languages is None else self.languages

    def best(self, k: int, explain: bool = False) -> list[Recommendation]:
        """Return what `Recommender.recommend_batch` returns."""
        known = self.query.known[0]
        depth = _depth(k, len(known))
        head = Ranking(self.ranking.papers[:, :depth], self.ranking.scores[:, :depth])
        return self._recommend(_both_groups(head, known, k), explain)

    @cached_property
    def _texts(self) -> list[str]:
        """Words of key, authors, year, title and venue of each ranked paper, in a form to compare."""
        texts = []
        for paper in map(self.papers.paper, self._rows.tolist()):
            authors = " ".join(paper.authors)
            texts.append(plain_words(f"{paper.key} {authors} {paper.year} {paper.title} {paper.venue}"))
        return texts

    @property
    def _rows(self) -> Rows:
        return self.ranking.papers[0, self.ranking.papers[0] >= 0]

    @cached_property
    def _note(self) -> str:
        """What to say above the papers."""
        retriever, rows = self.retriever, self._rows[:TOGETHER]
        if not retriever.log_probabilities or not len(rows) or self.quick or rows[0] in self.named:
            return ""
        cosine = None
        if (encoder := encoder_of(retriever)) is not None and encoder.reads(self.query)[0]:
            encoder.read(rows)
            cosine = float(encoder.cosines(self.query, rows[None].astype(np.int32)).max())
        return what_fits(np.exp(self.ranking.scores[0, : len(rows)]), self.count, cosine)

    @property
    def ids(self) -> list[str]:
        """The ids of the ranked papers, best first."""
        return [self.papers.corpus.paper_ids[row] for row in self._rows.tolist()]

    def matching(self, query: str) -> list[str]:
        """Return the ids of the ranked papers with the words of a query, or their beginnings, best first."""
        words = [[*map(plain_words, spellings(word))] for word in query_words(query)]
        return [
            id
            for id, text in zip(self.ids, self._texts, strict=True)
            if all(any(spelling in text for spelling in either) for either in words)
        ]

    def among(self, ids: Iterable[str], k: int) -> list[Recommendation]:
        """Return the k best of these papers; those that are not ranked follow in the given order."""
        corpus = self.papers.corpus
        rows = np.array([corpus.paper_row(id) for id in ids if corpus.has_paper(id)], np.int32)
        kept = np.isin(self.ranking.papers[0], rows)
        others = rows[~np.isin(rows, self.ranking.papers[0])]
        papers = np.concatenate([self.ranking.papers[0, kept], others])[:k]
        least = self.ranking.scores[0].min(initial=0)
        scores = np.concatenate([self.ranking.scores[0, kept], np.full(len(others), least)])[:k]
        return self._recommend(Ranking(papers[None], scores[None].astype(np.float32)))

    def _recommend(self, ranking: Ranking, explain: bool = False) -> list[Recommendation]:
        rows, known, retriever = ranking.papers[0], set(self.query.known[0].tolist()), self.retriever
        features = retriever.explain(self.query, rows[None]) if explain else {}
        explainer = self.papers.explainer if self.languages is None else self.papers.languages_explainer
        explanations = explainer.explain(self.query, rows.tolist()) if len(rows) else []
        recommendations = []
        for index, (row, evidence) in enumerate(zip(rows.tolist(), explanations, strict=True)):
            paper, score = self.papers.paper(row), float(ranking.scores[0, index])
            recommendation = Recommendation(
                rank=index + 1,
                score=score,
                id=paper.id,
                key=paper.key,
                title=paper.title,
                authors=paper.authors,
                year=paper.year or None,
                venue=paper.venue,
                evidence=replace(evidence, name=self.named.get(row, evidence.name)),
                features={name: float(column[0, index]) for name, column in features.items()},
                probability=math.exp(score) if retriever.log_probabilities else None,
                cited=row in known,
                names=paper.names,
                retracted=paper.retracted,
                note=self._note,
            )
            recommendations.append(recommendation)
        return recommendations


def _depth(k: int, known: int) -> int:
    """Return how many papers to rank for k of them, and some of those that the draft cites elsewhere."""
    return max(k + known, CITED_DEPTH) if known else max(k, TOGETHER)


def _both_groups(ranking: Ranking, known: NDArray[np.integer], k: int) -> Ranking:
    """Keep the k best papers that the draft does not cite elsewhere, and the best that it does: CITED or a
    share of k, so that neither group pushes the other out."""
    most = max(CITED, round(CITED_SHARE * k))
    ranked = ranking.papers[0] >= 0
    cited = ranked & np.isin(ranking.papers[0], known)
    others = ranked & ~cited
    kept = (others & (np.cumsum(others) <= k)) | (cited & (np.cumsum(cited) <= most))
    return Ranking(ranking.papers[:, kept], ranking.scores[:, kept])


def _named_first(ranking: Ranking, named: list[int], share: float | None) -> Ranking:
    """Put the papers that a question names, or repeats, first, best first; scores stay in descending order.

    share: of probability that these papers get together, by those that they had, leaving the rest to the
    others; None if scores are not logarithms of probabilities.
    """
    if not named:
        return ranking
    score = dict(zip(ranking.papers[0].tolist(), ranking.scores[0].tolist(), strict=True))
    named = sorted(named, key=lambda row: -score.get(row, -math.inf))[:MOST_FIRST]
    others = ranking.papers[0][(ranking.papers[0] >= 0) & ~np.isin(ranking.papers[0], named)]
    papers = np.array([[*named, *others]], np.int32)
    scores = ranking.scores[0][ranking.papers[0] >= 0]
    if share is not None:
        first = np.array([score.get(row, scores.min(initial=0)) for row in named], np.float32)
        first = first - np.logaddexp.reduce(first) + math.log(share)
        rest = ranking.scores[0][np.isin(ranking.papers[0], others)] + math.log(1 - share)
        return Ranking(papers, np.concatenate([first, np.minimum(rest, first[-1])])[None])
    best = scores[0] if len(scores) else np.float32(0)
    added = np.full(papers.shape[1] - len(scores), best, np.float32)  # they have no score of their own
    return Ranking(papers, np.concatenate([added, scores])[None])
