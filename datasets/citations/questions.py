"""Which papers of a citation graph ask in which split, and for what.

Nogueira et al. 2020, section 4.1: a paper asks for those that it cites, that are in the collection and not
later than itself; training papers with nearly the title of a held-out one do not ask (near_duplicates).
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from datasets.atomic import written_whole
from datasets.citations.graph import CitationGraph, open_graph
from datasets.citations.near_duplicates import TitleIndex, check_threshold
from datasets.citations.paper_lines import PaperLine, read_paper_lines
from datasets.citations.query_lists import read_query_lists
from datasets.citations.year_shares import YearShares
from datasets.errors import InputError
from datasets.fulltext.splitting import Splitting
from datasets.progress import reading
from datasets.ragged import Ragged, offsets_of
from datasets.schema import SPLITS, TRAIN

log = logging.getLogger(__name__)

TITLES = 1 << 16
"""Titles that are compared together."""
VERSION = 1
"""Of what the cache keeps of near-duplicates."""

Files = str | Path | Sequence[str | Path]
Rows = NDArray[np.int64]


class Asked(NamedTuple):
    """Papers that ask, rows of the graph ascending [Q], and the rows of those they are to find [Q]."""

    papers: Rows
    relevant: Ragged


@dataclass(frozen=True)
class Questions:
    """A collection's papers [P], rows of the graph ascending, and of each split what is asked.

    may: all papers that may ask. asked: those that do, of other splits than train perhaps a sample. removed:
    rows of training papers that may and do not ask, as near-duplicates of held-out ones.
    """

    graph: CitationGraph
    papers: Rows
    may: dict[str, Asked]
    asked: dict[str, Asked]
    removed: Rows


@dataclass(frozen=True)
class Rules:
    """Who asks, and for what.

    min_cited: papers that a query is to find, at least. found: `all` papers, or those of `train` alone, as
    Citeomatic does with DBLP and PubMed. near_duplicates: a Jaccard index of the words of two titles, above
    which a training paper does not ask because of a paper that asks in another split, or one of `held_out`:
    files of papers of other collections. None: all ask.
    """

    min_cited: int = 1
    found: str = "all"
    near_duplicates: float | None = None
    held_out: Files | None = None

    def __post_init__(self) -> None:
        if type(self.min_cited) is not int or self.min_cited < 1:
            raise InputError(f"data.min_cited: {self.min_cited!r} is no number of papers from 1 on")
        if self.found not in ("all", TRAIN):
            raise InputError(f"data.found: {self.found!r} is neither all nor train")
        if self.near_duplicates is not None:
            check_threshold(self.near_duplicates, "data.near_duplicates")
        elif self.held_out:
            raise InputError("data.held_out: needs data.near_duplicates, as 0.7")


def find_questions(
    graph: CitationGraph,
    splitting: Splitting,
    queries: str | Path | None = None,
    rules: Rules = Rules(),
    cache_dir: str | Path = ".cache",
) -> Questions:
    """The questions of a graph (conf/data/papers.yaml).

    queries: a file of the ids of each split (datasets.citations.query_lists); None: `splitting` chooses.
    Raises InputError for lists that cannot be used, and where no paper cites another.
    """
    papers = graph.titled | (graph.abstract_lengths > 0)
    if isinstance(splitting, YearShares) and queries is None:
        papers &= graph.years > 0
    splits = _splits(graph, np.flatnonzero(papers), splitting, queries)
    relevant = earlier(graph, papers)
    if rules.found == TRAIN:
        of_training = np.zeros(len(graph), np.bool_)
        of_training[splits.get(TRAIN, [])] = True
        relevant = earlier(graph, papers & of_training)
    enough = relevant.lengths >= rules.min_cited
    if not enough[papers].any():
        least = f"{rules.min_cited} others that are" if rules.min_cited > 1 else "another that is"
        raise InputError(f"{graph.files[0]}: no paper cites {least} in it, with a text and not later")
    may = {split: rows[enough[rows]] for split, rows in splits.items()}
    asked = splitting.sampled(may) if isinstance(splitting, YearShares) and queries is None else dict(may)
    removed = np.empty(0, np.int64)
    if rules.near_duplicates is not None and TRAIN in may:
        held_out = np.sort(np.concatenate([removed, *(asked[split] for split in asked if split != TRAIN)]))
        removed = _near_duplicates(graph, may[TRAIN], held_out, rules, Path(cache_dir).expanduser())
        asked[TRAIN] = np.setdiff1d(may[TRAIN], removed)
        counted = f"{len(removed):,} of {len(may[TRAIN]):,}"
        log.info("%s training queries have nearly the title of a held-out paper and are left out", counted)
    return Questions(
        graph,
        np.flatnonzero(papers),
        {split: Asked(rows, relevant.take(rows)) for split, rows in may.items()},
        {split: Asked(rows, relevant.take(rows)) for split, rows in asked.items()},
        removed,
    )


def earlier(graph: CitationGraph, wanted: NDArray[np.bool_]) -> Ragged:
    """The wanted papers [P] that each paper cites and that are not later than itself; unknown years pass."""
    citing = np.repeat(np.arange(len(graph)), graph.cites.lengths)
    cited = graph.cites.values
    years = graph.years[citing]
    there = wanted[cited] & ((years == 0) | (graph.years[cited] <= years))
    counts = np.bincount(citing[there], minlength=len(graph))
    return Ragged(cited[there], offsets_of(counts))


def chosen_lines(graph: CitationGraph, rows: Rows) -> Iterator[tuple[int, PaperLine]]:
    """The papers in some rows of a graph, ascending, out of its files."""
    wanted = np.zeros(len(graph), np.bool_)
    wanted[rows] = True
    row = 0
    for path in graph.files:
        with reading(path, path.name) as on_bytes:
            for paper in read_paper_lines(path, on_bytes):
                if wanted[row]:
                    yield row, paper
                row += 1


def _splits(
    graph: CitationGraph, papers: Rows, splitting: Splitting | YearShares, queries: str | Path | None
) -> dict[str, Rows]:
    """Of each split the rows of its papers, whether they may ask or not."""
    if queries is None:
        if isinstance(splitting, YearShares):
            return splitting.split(graph.years, papers)
        names = np.array(
            [splitting(graph.ids[row], int(graph.years[row])) or "" for row in papers.tolist()], object
        )
        return {split: papers[names == split] for split in SPLITS}
    lists = read_query_lists(queries)
    rows = {split: np.array(sorted(lists.rows(split, graph)), np.int64) for split in lists.splits}
    listed = np.concatenate(list(rows.values()))
    if TRAIN not in rows:  # all others
        rows = {TRAIN: np.setdiff1d(papers, listed)} | rows
    named = [*(split for split in SPLITS if split in rows), *(split for split in rows if split not in SPLITS)]
    return {split: np.intersect1d(rows[split], papers) for split in named}


def _near_duplicates(
    graph: CitationGraph, train: Rows, held_out: Rows, rules: Rules, cache_dir: Path
) -> Rows:
    """The training papers whose titles are near a held-out one: looked for once, then kept in the cache."""
    assert rules.near_duplicates is not None
    others = open_graph(rules.held_out, cache_dir=cache_dir) if rules.held_out else None
    digest = hashlib.blake2b(
        f"{VERSION} {rules.near_duplicates} {graph.fingerprint} {others and others.fingerprint}".encode(),
        digest_size=8,
    )
    for rows in (train, held_out):
        digest.update(len(rows).to_bytes(8, "little"))
        digest.update(np.ascontiguousarray(rows, np.int64).data)
    path = cache_dir / "near_duplicates" / f"{digest.hexdigest()}.npy"
    if not path.is_file():
        titles = [paper.title for _, paper in chosen_lines(graph, held_out)]
        if others is not None:
            titles += [paper.title for _, paper in chosen_lines(others, np.arange(len(others)))]
        index = TitleIndex(titles, rules.near_duplicates)
        found = [part[index.near(some)] for part, some in _batches(graph, train)]
        with written_whole(path) as unfinished, unfinished.open("wb") as file:
            np.save(file, np.concatenate([np.empty(0, np.int64), *found]))
    return np.asarray(np.load(path, allow_pickle=False))


def _batches(graph: CitationGraph, rows: Rows) -> Iterator[tuple[Rows, list[str]]]:
    """Rows and their titles, many at a time."""
    titles: list[str] = []
    first = 0
    for _, paper in chosen_lines(graph, rows):
        titles.append(paper.title)
        if len(titles) == TITLES:
            yield rows[first : first + TITLES], titles
            first, titles = first + TITLES, []
    yield rows[first:], titles
