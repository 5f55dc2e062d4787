"""The interface of everything that fetches candidates for a citation context."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from datasets.errors import InputError
from datasets.store import Corpus
from retrieval.filters import Filters
from retrieval.ranking import Ranking, nothing, ordered
from retrieval.saved import folder_bytes, has_index, read_index, written_index

log = logging.getLogger(__name__)


ENCODINGS = ("local", "ray")


class Retriever(ABC):
    """Ranks the candidates of a corpus for its contexts.

    Subclasses fill in `_index` and `_search`, and for indexes on disk `settings`, `_save` and `_load`.
    """

    name: str

    def __init__(self) -> None:
        self._corpus: Corpus | None = None
        self.tuned: dict[str, Any] = {}
        """What `index` chose by the validation split, as plain values."""
        self.reused = False
        """Whether `index` found some of the work done, so that its time says nothing."""

    @property
    def corpus(self) -> Corpus:
        """The indexed corpus; RuntimeError before `index`."""
        if self._corpus is None:
            raise RuntimeError(f"{self.name}: call index(corpus) before search")
        return self._corpus

    def encode_with(self, encoding: str) -> None:
        """Who encodes the papers from now on: `local`, this process, or `ray`, Ray Data (docs/ray.md).

        InputError for a retriever that has nothing to encode, or none but itself to do it.
        """
        check_encoding(encoding)
        if encoding != "local":
            raise InputError(
                f"encoding={encoding}: retriever={self.name} makes no vectors of papers that way"
            )

    def index(self, corpus: Corpus) -> None:
        """Prepare for searching the candidates of this corpus, in place of any other.

        What a retriever learns from a corpus, it learns here: from the training split, and settings that are
        to be tuned from the validation split.
        """
        self._corpus, self.tuned, self.reused = None, {}, False
        self._index(corpus)
        self._corpus = corpus

    def search(self, contexts: npt.NDArray[np.int64], k: int, filters: Filters | None = None) -> Ranking:
        """The k best candidates of each context, without the paper that the context stands in.

        contexts: int64 [Q], rows of the corpus's contexts. Memory grows with Q * k: pass many in batches.
        filters: which candidates may be returned; with them the result is what a search would give in a
        corpus that has no others, as far as it goes (see retrieval.indexes for approximate indexes).
        Raises InputError for scores that are NaN.
        """
        corpus = self.corpus
        if k < 1:
            raise ValueError(f"k must be at least 1, not {k}")
        contexts = np.asarray(contexts, dtype=np.int64)
        if not filters:
            return self._without_own(contexts, k, None)
        papers, scores = nothing(len(contexts), k)
        for queries, allowed in filters.groups(corpus, contexts):
            found = self._without_own(contexts[queries], k, allowed)
            papers[queries], scores[queries] = found.papers, found.scores
        return Ranking(papers, scores)

    def _without_own(
        self, contexts: npt.NDArray[np.int64], k: int, allowed: npt.NDArray[np.bool_] | None
    ) -> Ranking:
        corpus = self.corpus
        may = corpus.is_candidate if allowed is None else allowed
        # The citing paper may take one of the first k places, so ask for one more.
        depth = min(k + 1, int(np.count_nonzero(may)))
        if len(contexts) == 0 or depth == 0:
            return Ranking(*nothing(len(contexts), k))
        found = self._search(contexts, depth, allowed)
        self._check_scores(found, contexts)
        drop = (found.papers == corpus.citing[contexts][:, None]) | ~may[found.papers]
        return ordered(found.papers, found.scores, k, drop)

    def _check_scores(self, found: Ranking, contexts: npt.NDArray[np.int64]) -> None:
        """InputError that names the contexts for which a paper's score is NaN."""
        wrong = (np.isnan(found.scores) & (found.papers >= 0)).any(axis=1)
        if wrong.any():
            names = [self.corpus.context_ids[row] for row in contexts[wrong][:5].tolist()]
            raise InputError(
                f"retriever={self.name}: NaN as the score of papers for {np.count_nonzero(wrong):,} queries, "
                f"as {', '.join(names)}; its weights or vectors are damaged"
            )

    def save(self, folder: str | Path) -> None:
        """Write the index to a folder, which is whole or what it was before."""
        corpus = self.corpus
        with written_index(Path(folder), self._about(corpus), self.tuned) as part:
            self._save(part)

    def load(self, folder: str | Path, corpus: Corpus) -> None:
        """Take an index that `save` wrote in place of indexing; its large arrays stay on the disk, mapped.

        Raises InputError if it is of another retriever, other weights or settings or another corpus, or cut
        short.
        """
        self._corpus = None
        self.tuned = read_index(Path(folder), self._about(corpus))
        self._load(Path(folder), corpus)
        self._corpus = corpus

    def open(self, corpus: Corpus, folder: str | Path | None) -> None:
        """Load the index in the folder, or make it and save it there; without a folder just make it."""
        if folder is not None and has_index(Path(folder)):
            self.load(folder, corpus)
            log.info("%s: index read from %s", self.name, folder)
            return
        self.index(corpus)
        if folder is not None:
            self.save(folder)
            log.info("%s: index saved in %s, %s bytes", self.name, folder, f"{folder_bytes(Path(folder)):,}")

    def _about(self, corpus: Corpus) -> dict[str, Any]:
        return {"retriever": self.name, "corpus": corpus.fingerprint, **self.settings()}

    @property
    def index_bytes(self) -> int:
        """Memory that the index takes (of what is searched, not of the texts or the model)."""
        return 0

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """All that an index depends on beside the corpus, as plain values: options, a hash of weights."""

    def asking(self) -> dict[str, Any]:
        """What a search depends on beside the index, as plain values."""
        return {}

    @abstractmethod
    def _index(self, corpus: Corpus) -> None: ...

    @abstractmethod
    def _search(
        self, contexts: npt.NDArray[np.int64], k: int, allowed: npt.NDArray[np.bool_] | None
    ) -> Ranking:
        """The k best of the allowed papers for each context, or fewer where no more match.

        allowed: bool [P], candidates that may be returned; None: every candidate. The citing paper may be
        among the found. k is at most the number of papers allowed. Papers that are no candidates, or not
        allowed, are dropped by the caller, and then fewer than k may be left.
        """

    @abstractmethod
    def _save(self, folder: Path) -> None:
        """Write the index into an empty folder."""

    @abstractmethod
    def _load(self, folder: Path, corpus: Corpus) -> None:
        """Read what `_save` wrote."""


def check_encoding(encoding: str) -> None:
    """InputError unless there is such a way to encode papers."""
    if encoding not in ENCODINGS:
        raise InputError(f"encoding={encoding}: choose one of {', '.join(ENCODINGS)}")
