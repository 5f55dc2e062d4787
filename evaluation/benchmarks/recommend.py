"""benchmark=recommend: contexts of a corpus asked of a library as people ask them (library.recommender)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from datasets.corpus import Corpus
from datasets.errors import InputError
from evaluation.benchmark import Data, RetrieverMaker
from evaluation.prefetch import Prefetch
from evaluation.report import Metrics, Provenance
from evaluation.settings import RecommendSettings
from library.recommender import Recommender, Request
from rerank.settings import ScoringSettings
from retrieval.arrays import Mask
from retrieval.base import Ranking, Retriever, empty_rankings
from retrieval.queries import Queries, Query


class Recommend(Prefetch):
    """How well a library answers. Its measures are those of benchmark=prefetch."""

    name = "recommend"
    settings_class: ClassVar[type[RecommendSettings]] = RecommendSettings
    settings: RecommendSettings

    def run(
        self, folder: Path, provenance: Provenance, retriever: RetrieverMaker, data: Data | None = None
    ) -> Metrics:
        """The library is the retriever."""
        given = self.settings
        if given.library is None:
            raise InputError("benchmark=recommend needs library=FOLDER, which recommend.py build made")
        # People get the fastest arithmetic of their machine, a benchmark the same at each run.
        opened = LibraryAnswers(Recommender.open(given.library, given.reranker, ScoringSettings()))
        return super().run(folder, provenance, lambda: opened, data)


class LibraryAnswers(Retriever):
    """Asks a library: each context is a text, with title and abstract of its citing paper."""

    name = "library"

    def __init__(self, recommender: Recommender) -> None:
        super().__init__()
        self._recommender = recommender

    def settings(self) -> dict[str, Any]:
        library = self._recommender.library
        return {"library": library.corpus.fingerprint, "model": library.manifest.model}

    def _index(self, corpus: Corpus) -> None:
        """Find the corpus's candidates in the library; InputError if it has none of them."""
        library = self._recommender.library
        candidates = np.flatnonzero(corpus.is_candidate).tolist()
        found = [(library.row(corpus.paper_ids[row]), row) for row in candidates]
        self._papers = np.full(len(library), -1, np.int32)
        for there, row in reversed(found):
            if there is not None:
                self._papers[there] = row
        if (self._papers < 0).all():
            raise InputError(f"{library.path}: has no candidate of {corpus.name}; build it of its papers")

    def _search(self, queries: Queries, k: int, allowed: Mask | None) -> Ranking:
        if allowed is not None:
            raise InputError("benchmark=recommend: takes no filters and one protocol, transductive")
        ids, texts = queries.corpus.paper_ids, map(queries.texts, ("context", "title", "abstract"))
        asked = [
            Request(Query(context, title, abstract, int(year)), exclude=(ids[own],))
            for context, title, abstract, year, own in zip(*texts, queries.years, queries.citing, strict=True)
        ]
        papers, scores = empty_rankings(len(asked), k)
        for query, found in enumerate(self._recommender.rank(asked, k)):
            there = found.papers[0][:k] >= 0
            rows = np.where(there, self._papers[found.papers[0][:k]], -1)
            papers[query, : len(rows)] = rows
            scores[query, : len(rows)] = np.where(rows >= 0, found.scores[0][:k], -np.inf)
        return Ranking(papers, scores)
