"""Qrels: the papers that are to be found for each query."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from datasets.atomic import written_whole
from datasets.store import Corpus, Split
from retrieval.trec import NAMES, escaped, read_fields, unescaped


@dataclass(frozen=True)
class Qrels:
    """The papers to be found: {query id: {paper id: relevance}}."""

    judgements: dict[str, dict[str, int]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.judgements)

    @classmethod
    def of_split(cls, corpus: Corpus, split: Split) -> Qrels:
        """The cited papers of a split's contexts, each of relevance 1."""
        contexts, papers = corpus.context_ids, corpus.paper_ids
        rows = zip(split.contexts.tolist(), split.positives, strict=True)
        return cls({contexts[row]: {papers[p]: 1 for p in found.tolist()} for row, found in rows})

    def write(self, path: str | Path) -> None:
        """Write lines `query 0 paper relevance`."""
        with written_whole(Path(path)) as part, part.open("w", encoding="utf-8") as file:
            for query, papers in zip(escaped(self.judgements), self.judgements.values(), strict=True):
                for paper, relevance in zip(escaped(papers), papers.values(), strict=True):
                    file.write(f"{query} 0 {paper} {relevance}\n")

    @classmethod
    def read(cls, path: str | Path) -> Qrels:
        """Read qrels of this or any other tool; InputError that names file, line and field."""
        columns = ("query", "iteration", "paper", "relevance")
        table = read_fields(path, columns, {"query": NAMES, "paper": NAMES, "relevance": pa.int64()})
        judgements: dict[str, dict[str, int]] = {}
        for query, paper, relevance in zip(
            *(table[name].to_pylist() for name in table.column_names), strict=True
        ):
            judgements.setdefault(unescaped(query), {})[unescaped(paper)] = relevance
        return cls(judgements)
