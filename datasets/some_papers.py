"""A corpus of a few papers in memory, perhaps part of a large collection."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from citerec.datasets.columns import Ragged
from citerec.datasets.corpus import Corpus
from citerec.datasets.records import PaperRecord
from citerec.datasets.tokenize import TOKENIZER, TOKENIZERS, WordTable
from citerec.datasets.word_statistics import WORD, WordStatistics


class SomePapers(Corpus):
    """Papers [P] in memory, all candidates, without contexts. `fields` are the surnames of their authors.

    whole: statistics of the collection that the papers come from; None: they are the whole collection.
    """

    def __init__(self, papers: Sequence[PaperRecord], whole: WordStatistics | None, name: str) -> None:
        self.path, self.name, self.whole = Path(name), name, whole
        self.fingerprint = ""
        self.settings = {"tokenizer": TOKENIZER, "candidates": "all", "field": "authors"}
        self.paper_ids = [paper.id for paper in papers]  # type: ignore[assignment]
        self.titles = [paper.title for paper in papers]  # type: ignore[assignment]
        self.abstracts = [paper.abstract for paper in papers]
        self.context_ids = self.context_texts = []  # type: ignore[assignment]
        self.years = np.array([paper.year for paper in papers], np.int32)
        self.is_candidate, self.seen = np.ones(len(papers), np.bool_), np.zeros(len(papers), np.bool_)
        self.citing, self.context_tokens, self.splits = np.empty(0, np.int32), Ragged.from_rows([]), {}
        codes: dict[str, int] = {}
        self.fields = Ragged.from_rows(
            [[codes.setdefault(name, len(codes)) for name in paper.fields] for paper in papers]
        )
        self.field_names = list(codes)
        table = WordTable(TOKENIZERS[TOKENIZER])
        self.title_tokens, self.abstract_tokens = table.ids(self.titles), table.ids(self.abstracts)
        self.words = table.words()

    @cached_property
    def word_counts(self) -> np.ndarray:  # type: ignore[override]
        """Occurrences of each word, [V], in the whole collection."""
        if self.whole is not None:
            return self.whole.count(WORD, self.words)
        ids = np.concatenate([self.title_tokens.values, self.abstract_tokens.values])
        return np.bincount(ids, minlength=len(self.words))
