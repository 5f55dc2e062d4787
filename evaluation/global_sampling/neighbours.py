"""Graph neighbours of a query: what cites, or is cited by, what it cites (Medić and Šnajder 2022, 4.1)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from datasets.citations.graph import CitationGraph
from datasets.ragged import Ragged, offsets_of


def neighbourhoods(graph: CitationGraph, papers: NDArray[np.integer]) -> Ragged:
    """OC ∪ IC of each paper [n]: rows that it cites or that cite it, ascending, each once."""
    owners, found = [], []
    for links in (graph.cites, graph.cited_by):
        taken = links.take(papers)
        owners.append(np.repeat(np.arange(len(papers), dtype=np.int64), taken.lengths))
        found.append(taken.values.astype(np.int64))
    keys = np.unique(np.concatenate(owners) << 32 | np.concatenate(found))
    counts = np.bincount(keys >> 32, minlength=len(papers))
    return Ragged((keys & 0xFFFF_FFFF).astype(np.int32), offsets_of(counts))


def overlaps(cited: NDArray[np.integer], around: Ragged) -> NDArray[np.float64]:
    """O(q, c) = |OC_q ∩ (OC_c ∪ IC_c)| / |OC_q| for each paper c that q cites [n].

    cited: OC_q, rows [n]; around: the neighbourhoods of these.
    """
    owner = np.repeat(np.arange(len(cited)), around.lengths)
    inside = np.isin(around.values, cited)
    return np.bincount(owner[inside], minlength=len(cited)) / len(cited)


def graph_candidates(
    graph: CitationGraph, query: int, may: NDArray[np.bool_], number: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """At most `number` neighbours of a query out of those that `may` be taken [P].

    The neighbourhood of the cited paper of the highest overlap comes first, then that of the next; of equals
    the one of the lower row. Of the last neighbourhood that is needed, some at random by `rng`.
    """
    cited = graph.cites[query]
    around = neighbourhoods(graph, cited)
    found: list[int] = []
    taken: set[int] = {query}
    for place in np.argsort(-overlaps(cited, around), kind="stable").tolist():
        rows = around[place]
        fresh = [row for row in rows[may[rows]].tolist() if row not in taken]
        fresh = fresh if len(found) + len(fresh) <= number else rng.permutation(fresh).tolist()
        found += fresh[: number - len(found)]
        taken.update(found)
        if len(found) == number:
            break
    return np.array(found, np.int64)
