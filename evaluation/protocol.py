"""Protocols: which contexts of a split are asked, and which papers may be the answer.

Transductive: every context, every candidate. Inductive: the contexts whose cited papers are all cited by no
training context, and the candidates that none cites; a retriever that has learnt which papers are cited often
gains nothing by it there. The numbers of the two are of different queries and pools.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from datasets.errors import InputError
from datasets.schema import TRAIN
from datasets.store import Corpus, Split
from retrieval.filters import Filters

log = logging.getLogger(__name__)

TRANSDUCTIVE, INDUCTIVE = "transductive", "inductive"
PROTOCOLS = (TRANSDUCTIVE, INDUCTIVE)

GROUPS = {TRANSDUCTIVE: {"": "all", "seen": "seen", "unseen": "unseen"}, INDUCTIVE: {INDUCTIVE: INDUCTIVE}}
"""Of each protocol, groups of queries by the part before the slash in metrics.json, and their labels."""


def key_of(name: str, protocol: str) -> str:
    """The key of a number in metrics.json: `mrr`, `inductive/mrr`."""
    return name if protocol == TRANSDUCTIVE else f"{protocol}/{name}"


def file_of(name: str, protocol: str) -> str:
    """The name of a file of one protocol: `run.trec`, `run-inductive.trec`."""
    path = Path(name)
    return name if protocol == TRANSDUCTIVE else f"{path.stem}-{protocol}{path.suffix}"


@dataclass(frozen=True)
class Protocol:
    """Queries, what they may find, and groups of them [Q] that are reported by themselves.

    candidates: papers of the pool; a query gets those of them that are not its citing paper, and with
    `filters.year=citing` no later ones.
    """

    name: str
    queries: Split
    filters: Filters
    candidates: int
    groups: Mapping[str, npt.NDArray[np.bool_]] = field(default_factory=dict)


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
            made.append(Protocol(INDUCTIVE, taken(queries, unseen), replace(filters, unseen=True), pool))
        else:
            lacks = f"split {TRAIN!r}" if not groups else "candidate" if len(unseen) else "query"
            log.info(
                "corpus %s, split %s: no %s for the inductive protocol", corpus.name, queries.name, lacks
            )
    if not made:
        raise InputError(
            f"benchmark.protocols={list(names)}: corpus {corpus.name} has nothing for it in the split "
            f"{queries.name!r}; add {TRANSDUCTIVE}"
        )
    return made


def taken(split: Split, rows: npt.NDArray[np.int64]) -> Split:
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
