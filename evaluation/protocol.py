"""Protocols, which select queries and candidates, and qrels, the relevant papers of each query."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from citerec.base.errors import InputError
from citerec.base.files import atomic_write
from citerec.datasets.corpus import Corpus, Split
from citerec.evaluation.settings import DRAFT, INDUCTIVE, TRANSDUCTIVE
from citerec.retrieval.filters import Filters
from citerec.retrieval.passages import CitedElsewhere, cited_elsewhere
from citerec.retrieval.queries import Queries
from citerec.retrieval.run import NAMES, escape_ids, read_fields, unescape_id

log = logging.getLogger(__name__)


def metric_key(name: str, protocol: str) -> str:
    """Return the key of a metric in metrics.json, e.g. `mrr` or `inductive/mrr`."""
    return name if protocol == TRANSDUCTIVE else f"{protocol}/{name}"


def protocol_file(name: str, protocol: str) -> str:
    """Return the file name for a protocol, e.g. `run.trec` or `run-inductive.trec`."""
    path = Path(name)
    return name if protocol == TRANSDUCTIVE else f"{path.stem}-{protocol}{path.suffix}"


@dataclass(frozen=True)
class Protocol:
    """Queries, their candidates, and groups of queries [Q] that are reported separately.

    candidates: size of the pool; each query searches all of it except its citing paper and, with
    `filters.year=citing`, later papers. elsewhere: what the citing papers are known to cite at other places.
    """

    name: str
    queries: Split
    filters: Filters
    candidates: int
    groups: Mapping[str, npt.NDArray[np.bool_]] = field(default_factory=dict)
    elsewhere: CitedElsewhere | None = None

    def retriever_queries(self, corpus: Corpus) -> Queries:
        """The queries as passed to retrievers."""
        return Queries.from_contexts(corpus, self.queries.contexts, self.elsewhere)


def make_protocols(names: Sequence[str], corpus: Corpus, queries: Split, filters: Filters) -> list[Protocol]:
    """Return the named protocols, leaving out the inductive one if it has no queries or no candidates.

    Raises InputError if the filters leave no candidates, or if no protocol remains.
    """
    passed, groups = filters.allowed(corpus), seen_groups(corpus, queries)
    protocols = []
    if TRANSDUCTIVE in names:
        protocols.append(Protocol(TRANSDUCTIVE, queries, filters, int(passed.sum()), groups))
    if INDUCTIVE in names:
        pool = int((passed & ~corpus.seen).sum())
        unseen = np.flatnonzero(groups["unseen"]) if groups else np.empty(0, np.int64)
        if len(unseen) and pool:
            inductive = queries.take(unseen)
            protocols.append(Protocol(INDUCTIVE, inductive, replace(filters, unseen=True), pool))
        else:
            log.info("corpus %s, split %s: no inductive queries or candidates", corpus.name, queries.name)
    if DRAFT in names:
        elsewhere = cited_elsewhere(corpus, corpus.split(queries.name), queries.contexts)
        protocols.append(Protocol(DRAFT, queries, filters, int(passed.sum()), elsewhere=elsewhere))
    if not protocols:
        raise InputError(
            f"benchmark.protocols={list(names)}: split {queries.name!r} of corpus {corpus.name} has no such "
            f"queries or candidates; add {TRANSDUCTIVE}"
        )
    return protocols


def seen_groups(corpus: Corpus, split: Split) -> dict[str, npt.NDArray[np.bool_]]:
    """Split queries into masks [Q]: `seen`, with a target that training contexts cite, and `unseen`.

    Empty if the corpus has no training split.
    """
    if not corpus.training_splits:
        return {}
    query = np.repeat(np.arange(len(split)), split.positives.lengths)
    hits = np.bincount(query, weights=corpus.seen[split.positives.values], minlength=len(split))
    return {"seen": hits > 0, "unseen": hits == 0}


@dataclass(frozen=True)
class Qrels:
    """Relevance judgements, {query id: {paper id: relevance}}."""

    judgements: dict[str, dict[str, int]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.judgements)

    @classmethod
    def from_split(cls, corpus: Corpus, split: Split) -> Qrels:
        """Judge the papers that each context of a split cites as relevant (1)."""
        contexts, papers = corpus.context_ids, corpus.paper_ids
        rows = zip(split.contexts.tolist(), split.positives, strict=True)
        return cls({contexts[row]: {papers[p]: 1 for p in cited.tolist()} for row, cited in rows})

    def write(self, path: str | Path) -> None:
        """Write lines `query 0 paper relevance`."""
        with atomic_write(Path(path)) as part, part.open("w", encoding="utf-8") as file:
            for query, papers in zip(escape_ids(self.judgements), self.judgements.values(), strict=True):
                for paper, relevance in zip(escape_ids(papers), papers.values(), strict=True):
                    file.write(f"{query} 0 {paper} {relevance}\n")

    @classmethod
    def read(cls, path: str | Path) -> Qrels:
        """Read a qrels file of any tool; InputError names file, line and field, or a duplicate."""
        judgements: dict[str, dict[str, int]] = {}
        kinds = {"query": NAMES, "paper": NAMES, "relevance": pa.int64()}
        table = read_fields(path, ("query", "0", "paper", "relevance"), kinds)
        columns = (table[name].to_pylist() for name in table.column_names)
        for name, id, relevance in zip(*columns, strict=True):
            query, paper = unescape_id(name), unescape_id(id)
            if paper in judgements.setdefault(query, {}):
                raise InputError(f"{path}: query {query!r} has the paper {paper!r} twice")
            judgements[query][paper] = relevance
        return cls(judgements)
