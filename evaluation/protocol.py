"""Protocols: which contexts of a split are queries, which papers are candidates; qrels: relevant papers."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from datasets.columns import Ragged
from datasets.corpus import Corpus, Split
from datasets.errors import InputError
from datasets.files import atomic_write
from datasets.records import TRAIN
from evaluation.settings import DRAFT, INDUCTIVE, TRANSDUCTIVE
from retrieval.filters import Filters
from retrieval.queries import Queries, cited_elsewhere
from retrieval.run import NAMES, escape_ids, read_fields, unescape_id

log = logging.getLogger(__name__)

GROUPS = {
    TRANSDUCTIVE: {"": "all", "seen": "seen", "unseen": "unseen"},
    INDUCTIVE: {INDUCTIVE: INDUCTIVE},
    DRAFT: {DRAFT: DRAFT},
}
"""Of each protocol, groups of queries by the part before the slash in metrics.json, and their labels."""


def metric_key(name: str, protocol: str) -> str:
    """The key of a number in metrics.json: `mrr`, `inductive/mrr`."""
    return name if protocol == TRANSDUCTIVE else f"{protocol}/{name}"


def protocol_file(name: str, protocol: str) -> str:
    """The name of a file of one protocol: `run.trec`, `run-inductive.trec`."""
    path = Path(name)
    return name if protocol == TRANSDUCTIVE else f"{path.stem}-{protocol}{path.suffix}"


@dataclass(frozen=True)
class Protocol:
    """Queries, their candidates, and groups of the queries [Q] that are reported by themselves.

    candidates: size of the pool; a query gets all of it but its citing paper, and with `filters.year=citing`
    nothing later than that. known: papers [Q] that the citing paper is known to cite at other places.
    """

    name: str
    queries: Split
    filters: Filters
    candidates: int
    groups: Mapping[str, npt.NDArray[np.bool_]] = field(default_factory=dict)
    known: Ragged | None = None

    def asked(self, corpus: Corpus) -> Queries:
        """What retrievers are given."""
        return Queries.of(corpus, self.queries.contexts, self.known)


def protocols(names: Sequence[str], corpus: Corpus, queries: Split, filters: Filters) -> list[Protocol]:
    """The protocols of these names; the inductive one only where there is a query and a candidate for it.

    Raises InputError if the filters leave no candidate, or if no protocol remains.
    """
    passed, groups = filters.allowed(corpus), seen_groups(corpus, queries)
    made = []
    if TRANSDUCTIVE in names:
        made.append(Protocol(TRANSDUCTIVE, queries, filters, int(passed.sum()), groups))
    if INDUCTIVE in names:
        pool = int((passed & ~corpus.seen).sum())
        unseen = np.flatnonzero(groups["unseen"]) if groups else np.empty(0, np.int64)
        if len(unseen) and pool:
            made.append(
                Protocol(INDUCTIVE, take_queries(queries, unseen), replace(filters, unseen=True), pool)
            )
        else:
            lacks = f"split {TRAIN!r}" if not groups else "candidate" if len(unseen) else "query"
            log.info(
                "corpus %s, split %s: no %s for the inductive protocol", corpus.name, queries.name, lacks
            )
    if DRAFT in names:
        known = cited_elsewhere(corpus, corpus.split(queries.name), queries.contexts)
        made.append(Protocol(DRAFT, queries, filters, int(passed.sum()), known=known))
    if not made:
        raise InputError(
            f"benchmark.protocols={list(names)}: corpus {corpus.name} has nothing for it in the split "
            f"{queries.name!r}; add {TRANSDUCTIVE}"
        )
    return made


def take_queries(split: Split, rows: npt.NDArray[np.int64]) -> Split:
    """The given queries of a split, by their places in it."""
    return Split(split.name, split.contexts[rows], split.positives.take(rows))


def seen_groups(corpus: Corpus, split: Split) -> dict[str, npt.NDArray[np.bool_]]:
    """Queries [Q] with a target that training contexts cite, `seen`, and the others, `unseen`.

    Empty where the corpus has no training split.
    """
    if TRAIN not in corpus.splits:
        return {}
    query = np.repeat(np.arange(len(split)), split.positives.lengths)
    hits = np.bincount(query, weights=corpus.seen[split.positives.values], minlength=len(split))
    return {"seen": hits > 0, "unseen": hits == 0}


@dataclass(frozen=True)
class Qrels:
    """The relevant papers: {query id: {paper id: relevance}}."""

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
        with atomic_write(Path(path)) as part, part.open("w", encoding="utf-8") as file:
            for query, papers in zip(escape_ids(self.judgements), self.judgements.values(), strict=True):
                for paper, relevance in zip(escape_ids(papers), papers.values(), strict=True):
                    file.write(f"{query} 0 {paper} {relevance}\n")

    @classmethod
    def read(cls, path: str | Path) -> Qrels:
        """Read qrels of this or any other tool; InputError that names file, line and field, or a double."""
        judgements: dict[str, dict[str, int]] = {}
        for query, paper, relevance in read_pairs(path, ("query", "0", "paper", "relevance"), pa.int64()):
            if paper in judgements.setdefault(query, {}):
                raise InputError(f"{path}: query {query!r} has the paper {paper!r} twice")
            judgements[query][paper] = relevance
        return cls(judgements)


def read_pairs(path: str | Path, names: tuple[str, ...], kind: pa.DataType) -> Iterator[tuple[str, str, Any]]:
    """Query, paper, and the `kind` of number that qrels or a run have of them; names: fields of a line."""
    value = next(name for name in names if name in ("relevance", "score"))
    table = read_fields(path, names, {"query": NAMES, "paper": NAMES, value: kind})
    for query, paper, number in zip(*(table[name].to_pylist() for name in table.column_names), strict=True):
        yield unescape_id(query), unescape_id(paper), number
