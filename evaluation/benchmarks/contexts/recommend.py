"""benchmark=recommend: queries a library with the contexts of a corpus, as users do (library.recommender)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from citerec.base.errors import InputError
from citerec.datasets.corpus import Corpus
from citerec.evaluation.benchmark import Data, RetrieverFactory
from citerec.evaluation.benchmarks.contexts.prefetch import Prefetch
from citerec.evaluation.report import Provenance, Report
from citerec.evaluation.settings import RecommendSettings
from citerec.library.memory.library import in_memory
from citerec.library.question import Filters, Request
from citerec.library.recommender import Recommender
from citerec.rerank.settings import ScoringSettings
from citerec.retrieval.arrays import Mask
from citerec.retrieval.base import Ranking, Retriever, empty_rankings
from citerec.retrieval.queries import Queries, Query


class Recommend(Prefetch):
    """Evaluates the recommendations of a library with the measures of benchmark=prefetch."""

    name = "recommend"
    settings_class: ClassVar[type[RecommendSettings]] = RecommendSettings
    settings: RecommendSettings

    def run(
        self, folder: Path, provenance: Provenance, retriever: RetrieverFactory, data: Data | None = None
    ) -> Report:
        """Evaluate the library instead of `retriever`."""
        given = self.settings
        if given.library is None:
            raise InputError("benchmark=recommend needs library=FOLDER, the output of citerec build")
        # Users get the fastest arithmetic; a benchmark measures the most exact one.
        opened = LibraryRetriever(Recommender.open(given.library, given.reranker, ScoringSettings()))
        return super().run(folder, provenance, lambda: opened, data)


class LibraryRetriever(Retriever):
    """Queries a library with each context and the title and abstract of its citing paper."""

    name = "library"

    def __init__(self, recommender: Recommender) -> None:
        super().__init__()
        self._recommender, self._library = recommender, in_memory(recommender.library)

    def settings(self) -> dict[str, Any]:
        library = self._library
        return {"library": library.corpus.fingerprint, "model": library.manifest.ranking_model}

    def _index(self, corpus: Corpus) -> None:
        """Map the library's papers to the corpus's candidates; InputError if they share none."""
        library = self._library
        candidates = np.flatnonzero(corpus.is_candidate).tolist()
        rows = [(library.row(corpus.paper_ids[row]), row) for row in candidates]
        self._papers = np.full(len(library), -1, np.int32)
        for library_row, row in reversed(rows):  # the first candidate wins if two are the same paper
            if library_row is not None:
                self._papers[library_row] = row
        if (self._papers < 0).all():
            raise InputError(f"{library.path}: has no candidates of {corpus.name}; build it from its papers")

    def _search(self, queries: Queries, k: int, allowed: Mask | None) -> Ranking:
        if allowed is not None:
            raise InputError("benchmark=recommend supports only the transductive protocol, without filters")
        ids, texts = queries.corpus.paper_ids, map(queries.texts, ("context", "title", "abstract"))
        requests = [
            Request(Query(context, title, abstract, int(year)), Filters(exclude=(ids[own],)))
            for context, title, abstract, year, own in zip(*texts, queries.years, queries.citing, strict=True)
        ]
        papers, scores = empty_rankings(len(requests), k)
        for query, request in enumerate(requests):
            found = self._recommender.ranked(request, k, rerank=None).ranking
            valid = found.papers[0][:k] >= 0
            rows = np.where(valid, self._papers[found.papers[0][:k]], -1)
            papers[query, : len(rows)] = rows
            scores[query, : len(rows)] = np.where(rows >= 0, found.scores[0][:k], -np.inf)
        return Ranking(papers, scores)
