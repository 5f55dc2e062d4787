"""Papers of a citation graph as a corpus whose queries are papers, so that any retriever can rank them.

A paper that asks is a context: its abstract stands there (its title where it has none), so that title and
context, or title and abstract, are the query. The papers that it cites are to be found.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from datasets.atomic import written_folder
from datasets.citations.graph import CitationGraph, open_graph
from datasets.citations.paper_lines import PaperLine, read_paper_lines
from datasets.citations.query_lists import read_query_lists
from datasets.errors import InputError
from datasets.fulltext.output import JsonFile
from datasets.fulltext.splitting import Splitting
from datasets.prepare import open_corpus
from datasets.progress import reading
from datasets.ragged import Ragged
from datasets.schema import SPLITS, TARGET_MARKER, TRAIN
from datasets.store import Corpus

FIELDS = "fields"


class Asked(NamedTuple):
    """Papers that ask, rows of the graph ascending [Q], and the rows of those they are to find [Q]."""

    papers: NDArray[np.int64]
    relevant: Ragged


def open_papers(
    papers: str | Path | Sequence[str | Path],
    splitting: Splitting,
    queries: str | Path | None = None,
    citations: str | Path | None = None,
    tokenizer: str = "default",
    cache_dir: str | Path = ".cache",
    name: str | None = None,
) -> Corpus:
    """A corpus of all papers with a text, in which those ask that cite others (conf/data/papers.yaml).

    papers, citations: as for open_graph. Cited papers of a later year than the query's are left out.
    queries: a file of the ids of each split (datasets.citations.query_lists); None: `splitting` chooses.
    Raises InputError for files that cannot be used, and where no paper cites another.
    """
    graph = open_graph(papers, citations, cache_dir=cache_dir)
    textual = graph.titled | (graph.abstract_lengths > 0)
    relevant = earlier(graph, textual)
    may = np.flatnonzero(textual & (relevant.lengths > 0))
    if not len(may):
        raise InputError(f"{graph.files[0]}: no paper cites another that is in it, with a text and not later")
    asked: dict[str, Asked] = {}
    for split, rows in _splits(graph, may, splitting, queries).items():
        if len(rows):
            asked[split] = Asked(rows, relevant.take(rows))
    title = name or Path(graph.files[0]).resolve().parent.name
    return corpus_of(graph, np.flatnonzero(textual), asked, title, cache_dir, tokenizer)


def earlier(graph: CitationGraph, wanted: NDArray[np.bool_]) -> Ragged:
    """The wanted papers [P] that each paper cites and that are not later than itself; unknown years pass."""
    citing = np.repeat(np.arange(len(graph)), graph.cites.lengths)
    cited = graph.cites.values
    years = graph.years[citing]
    there = wanted[cited] & ((years == 0) | (graph.years[cited] <= years))
    counts = np.bincount(citing[there], minlength=len(graph))
    return Ragged(cited[there], np.concatenate([[0], np.cumsum(counts)]))


def corpus_of(
    graph: CitationGraph,
    papers: NDArray[np.int64],
    asked: Mapping[str, Asked],
    name: str,
    cache_dir: str | Path,
    tokenizer: str = "default",
) -> Corpus:
    """Some papers of a graph, all of them candidates, with splits of queries.

    papers: rows, ascending, each with a text; row i of the corpus is papers[i]. What asks and what is to be
    found is among them. A context has the id of its paper.
    """
    digest = hashlib.blake2b(f"{graph.fingerprint} {list(asked)}".encode(), digest_size=8)
    arrays = [papers, *(part for split in asked.values() for part in (split.papers, *_flat(split.relevant)))]
    for array in arrays:
        digest.update(len(array).to_bytes(8, "little"))
        digest.update(np.ascontiguousarray(array, np.int64).data)
    folder = Path(cache_dir).expanduser() / "questions" / digest.hexdigest()
    if not folder.is_dir():
        with written_folder(folder) as part:
            _write(part, graph, papers, asked)
    return open_corpus(
        folder,
        tokenizer=tokenizer,
        cache_dir=cache_dir,
        candidates="all",
        splits=list(asked),
        name=name,
        field=FIELDS if graph.fields.lengths[papers].any() else None,
    )


def chosen_lines(graph: CitationGraph, rows: NDArray[np.int64]) -> Iterator[tuple[int, PaperLine]]:
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


def _write(folder: Path, graph: CitationGraph, papers: NDArray[np.int64], asked: Mapping[str, Asked]) -> None:
    """The source files of the corpus (datasets.source)."""
    asking = np.concatenate([np.empty(0, np.int64), *(split.papers for split in asked.values())])
    asks = np.zeros(len(graph), np.bool_)
    asks[asking] = True
    with (
        JsonFile(folder / "papers.json", True) as texts,
        JsonFile(folder / "contexts.json", True) as contexts,
    ):
        for row, paper in chosen_lines(graph, papers):
            record = {"title": paper.title, "abstract": paper.abstract, "year": paper.year or None}
            texts.add(record | ({FIELDS: list(paper.fields)} if paper.fields else {}), paper.id)
            if asks[row]:
                body = f"{TARGET_MARKER} {paper.abstract or paper.title}"
                contexts.add({"masked_text": body, "citing_id": paper.id}, paper.id)
    for split, (rows, relevant) in asked.items():
        with JsonFile(folder / f"{split}.json", False) as queries:
            for row, found in zip(rows.tolist(), relevant, strict=True):
                cited = [graph.ids[one] for one in found.tolist()]
                queries.add({"context_id": graph.ids[row], "positive_ids": cited})


def _splits(
    graph: CitationGraph, may: NDArray[np.int64], splitting: Splitting, queries: str | Path | None
) -> dict[str, NDArray[np.int64]]:
    """Of each split the rows of the papers that ask; what a list names and may not ask is left out."""
    if queries is None:
        names = [splitting(graph.ids[row], int(graph.years[row])) for row in may.tolist()]
        return {split: may[[name == split for name in names]] for split in SPLITS}
    lists = read_query_lists(queries)
    rows = {split: np.array(sorted(lists.rows(split, graph)), np.int64) for split in lists.splits}
    listed = np.concatenate(list(rows.values()))
    if TRAIN not in rows:  # all others
        rows = {TRAIN: np.setdiff1d(may, listed)} | rows
    named = [*(split for split in SPLITS if split in rows), *(split for split in rows if split not in SPLITS)]
    return {split: np.intersect1d(rows[split], may) for split in named}


def _flat(ragged: Ragged) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    return ragged.values, ragged.offsets
