"""Dense retrievers: saved indexes and cached queries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from citerec.base.errors import InputError
from citerec.datasets.corpus import Corpus
from citerec.retrieval import dense
from citerec.retrieval.dense import DenseRetriever
from citerec.retrieval.queries import Queries
from citerec.retrieval.settings import IndexConfig

INDEXES = {
    "exact": IndexConfig(device="cpu"),
    "half": IndexConfig("half", device="cpu"),
    "ivf": IndexConfig("ivf", lists=3, probes=1),
}


class Bags(DenseRetriever):
    """Encodes texts as sums of random word vectors."""

    name = "bags"

    def __init__(self, seed: int = 0, index: IndexConfig | None = None) -> None:
        super().__init__(index or INDEXES["exact"])
        self.seed = seed
        self.encoded = 0

    def fingerprint(self) -> dict[str, Any]:
        return {"seed": self.seed}

    def prepare(self, corpus: Corpus) -> None:
        self.of = corpus
        self.table = np.random.default_rng(self.seed).standard_normal((len(corpus.words), 6))

    def encode_papers(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        self.encoded += len(rows)
        return self._sums(self.of.abstract_tokens, rows)

    def encode_queries(self, queries: Queries | NDArray[np.int64]) -> NDArray[np.float32]:
        return self._sums(self.of.context_tokens, Queries.from_contexts(self.of, queries).contexts)

    def _sums(self, tokens: Any, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        sums = np.array([self.table[tokens[row][tokens[row] >= 0]].sum(0) for row in rows])
        return np.asarray(sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-9), np.float32)


def saved(corpus: Corpus, folder: Path, **settings: Any) -> Bags:
    retriever = Bags(**settings)
    retriever.index(corpus)
    retriever.save(folder)
    return retriever


def test_paper_ids_are_saved_next_to_their_vectors(tiny_corpus: Corpus, tmp_path: Path) -> None:
    saved(tiny_corpus, tmp_path / "index")
    ids = (tmp_path / "index" / "ids.txt").read_text("utf-8").splitlines()
    assert ids == [id for id, may in zip(tiny_corpus.paper_ids, tiny_corpus.is_candidate, strict=True) if may]
    assert len(np.load(tmp_path / "index" / "vectors.npy")) == len(ids) == 11


def test_an_index_of_something_else_is_refused(
    tiny_corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "index"
    saved(tiny_corpus, folder, index=INDEXES["ivf"])

    def refused(retriever: Bags, message: str) -> None:
        with pytest.raises(InputError, match=message):
            retriever.open(tiny_corpus, folder)
        assert retriever.encoded == 0

    refused(Bags(1, INDEXES["ivf"]), "the index was built with seed=0, not 1")
    refused(Bags(), "the index was built with index={'kind': 'ivf'.*, not {'kind': 'exact'}")
    monkeypatch.setattr(dense, "NORMALISATIONS", {})
    refused(Bags(index=INDEXES["ivf"]), "built with normalisation=unit, not none")
    monkeypatch.undo()
    Bags(index=IndexConfig("ivf", lists=3, probes=2)).load(folder, tiny_corpus)  # search settings may differ


def test_too_few_papers_raise_before_encoding(tiny_corpus: Corpus) -> None:
    retriever = Bags(index=IndexConfig("ivf", lists=12))
    with pytest.raises(InputError, match=r"index\.kind=ivf: needs 12 papers to train on, has 11"):
        retriever.index(tiny_corpus)
    assert retriever.encoded == 0
