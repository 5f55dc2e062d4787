"""Papers of a citation graph as a corpus whose queries are papers, so that any retriever can rank them.

A paper that asks is a context: its abstract stands there (its title where it has none), so that title and
context, or title and abstract, are the query. The papers that it cites are to be found.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from datasets.atomic import written_folder
from datasets.citations.graph import CitationGraph, open_graph
from datasets.citations.questions import Asked, Files, Questions, Rules, chosen_lines, find_questions
from datasets.fulltext.output import JsonFile
from datasets.fulltext.splitting import Splitting
from datasets.prepare import open_corpus
from datasets.ragged import Ragged
from datasets.schema import TARGET_MARKER
from datasets.store import Corpus

FIELDS = "fields"


def open_papers(
    papers: Files,
    splitting: Splitting,
    queries: str | Path | None = None,
    citations: str | Path | None = None,
    tokenizer: str = "default",
    cache_dir: str | Path = ".cache",
    name: str | None = None,
    min_cited: int = 1,
    found: str = "all",
    near_duplicates: float | None = None,
    held_out: Files | None = None,
) -> Corpus:
    """A corpus of all papers with a text, in which those ask that cite others (conf/data/papers.yaml).

    papers, citations: as for open_graph. Cited papers of a later year than the query's are left out.
    queries: a file of the ids of each split (datasets.citations.query_lists); None: `splitting` chooses.
    min_cited and so on: datasets.citations.questions.Rules.
    Raises InputError for files that cannot be used, and where no paper cites another.
    """
    rules = Rules(min_cited, found, near_duplicates, held_out)
    graph = open_graph(papers, citations, cache_dir=cache_dir)
    questions = find_questions(graph, splitting, queries, rules, cache_dir)
    asked = {split: some for split, some in questions.asked.items() if len(some.papers)}
    title = name or Path(graph.files[0]).resolve().parent.name
    return corpus_of(graph, questions.papers, asked, title, cache_dir, tokenizer)


def open_questions(
    papers: Files,
    splitting: Splitting,
    queries: str | Path | None = None,
    citations: str | Path | None = None,
    tokenizer: str = "default",
    cache_dir: str | Path = ".cache",
    name: str | None = None,
    min_cited: int = 1,
    found: str = "all",
    near_duplicates: float | None = None,
    held_out: Files | None = None,
) -> Questions:
    """What the corpus of open_papers asks, without making it; of no use are its tokenizer and name."""
    rules = Rules(min_cited, found, near_duplicates, held_out)
    graph = open_graph(papers, citations, cache_dir=cache_dir)
    return find_questions(graph, splitting, queries, rules, cache_dir)


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


def _flat(ragged: Ragged) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    return ragged.values, ragged.offsets
