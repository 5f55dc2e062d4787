"""The interface of everything that fetches candidates for a citation context."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import numpy.typing as npt

from datasets.store import Corpus
from retrieval.ranking import Ranking, ordered


class Retriever(ABC):
    """Ranks the candidates of a corpus for its contexts. Subclasses fill in `_index` and `_search`."""

    name: str

    def __init__(self) -> None:
        self._corpus: Corpus | None = None

    @property
    def corpus(self) -> Corpus:
        """The indexed corpus; RuntimeError before `index`."""
        if self._corpus is None:
            raise RuntimeError(f"{self.name}: call index(corpus) before search")
        return self._corpus

    def index(self, corpus: Corpus) -> None:
        """Prepare for searching the candidates of this corpus, in place of any other."""
        self._corpus = None
        self._index(corpus)
        self._corpus = corpus

    def search(self, contexts: npt.NDArray[np.int64], k: int) -> Ranking:
        """The k best candidates of each context, without the paper that the context stands in.

        contexts: int64 [Q], rows of the corpus's contexts. Memory grows with Q * k: pass many in batches.
        """
        corpus = self.corpus
        if k < 1:
            raise ValueError(f"k must be at least 1, not {k}")
        contexts = np.asarray(contexts, dtype=np.int64)
        # The citing paper may take one of the first k places, so ask for one more.
        depth = min(k + 1, int(np.count_nonzero(corpus.is_candidate)))
        if len(contexts) == 0 or depth == 0:
            return ordered(
                np.empty((len(contexts), 0), np.int32), np.empty((len(contexts), 0), np.float32), k
            )
        found = self._search(contexts, depth)
        drop = (found.papers == corpus.citing[contexts][:, None]) | ~corpus.is_candidate[found.papers]
        return ordered(found.papers, found.scores, k, drop)

    @abstractmethod
    def _index(self, corpus: Corpus) -> None: ...

    @abstractmethod
    def _search(self, contexts: npt.NDArray[np.int64], k: int) -> Ranking:
        """The k best candidates of each context, or fewer where no more match.

        The citing paper may be among them. k is at most the number of candidates. Rows of papers that are
        no candidates are dropped by the caller, and then fewer than k may be left.
        """
