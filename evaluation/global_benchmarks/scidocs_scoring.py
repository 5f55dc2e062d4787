"""SciDocs' papers as a corpus, and what a retriever makes of them: embeddings, or scores of pairs."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import orjson
import torch
from numpy.typing import NDArray

from datasets.atomic import written_whole
from datasets.errors import InputError
from datasets.store import Corpus
from evaluation.global_benchmarks.pool_benchmark import some
from evaluation.global_benchmarks.pool_scores import pool_scores
from evaluation.global_benchmarks.scidocs_format import Pools, Scores
from evaluation.global_benchmarks.texts import Question, open_texts, read_texts
from retrieval.article import ArticleRetriever
from retrieval.article_text import ArticleReader
from retrieval.base import Retriever
from retrieval.embedder import Advance, Place, Vectors, Work, embedded

log = logging.getLogger(__name__)

EMBEDDINGS = "embeddings.jsonl"


@dataclass(frozen=True)
class Papers:
    """The benchmark's papers as a corpus, whose contexts are the queries that have a text.

    pools: {query: candidates} of all tasks together, those that the file of texts has.
    """

    corpus: Corpus
    pools: dict[str, list[str]]


def open_papers(pools: dict[str, Pools], texts: Path, cache_dir: str | Path) -> Papers:
    """The papers of all tasks, read from a file of texts.

    Papers that the file lacks are left out, as the official script leaves out those without an embedding.
    Raises InputError where no query has a text.
    """
    together: dict[str, dict[str, int]] = {}
    for of in pools.values():
        for query, pool in of.items():
            own = together.setdefault(query, {})
            for paper, relevance in pool.items():
                own[paper] = max(relevance, own.get(paper, 0))
    wanted = set(together) | {paper for pool in together.values() for paper in pool}
    there, readable = set[str](), set[str]()
    for text in read_texts(texts):
        if text.id in wanted:
            there.add(text.id)
            if text.title.strip() or text.abstract.strip():
                readable.add(text.id)
    if lacking := sorted(wanted - there):
        log.warning("%s lacks %s papers of the benchmark: %s", texts, f"{len(lacking):,}", some(lacking))
    questions = {}
    for query, pool in together.items():
        relevant = tuple(paper for paper, relevance in pool.items() if relevance > 0 and paper in readable)
        if query in readable and relevant:
            questions[query] = Question(query, relevant)
    if not questions:
        raise InputError(
            f"{texts}: none of the {len(together):,} queries has a text, as {some(list(together))}"
        )
    asked = {query: [paper for paper in together[query] if paper in there] for query in questions}
    candidates = {paper for pool in asked.values() for paper in pool}
    return Papers(open_texts("SciDocs", texts, questions, candidates, cache_dir), asked)


def score(
    retriever: Retriever, papers: Papers, pools: dict[str, Pools], index_dir: str | Path | None
) -> dict[str, Scores]:
    """{task: {query: {candidate: score}}} by a retriever; papers without a text come last."""
    retriever.open(papers.corpus, index_dir)
    found = pool_scores(retriever, papers.corpus, papers.pools)
    return {
        task: {
            query: {paper: found[query][paper] for paper in pool if paper in found[query]}
            for query, pool in of.items()
            if query in found
        }
        for task, of in pools.items()
    }


def write_embeddings(path: Path, retriever: ArticleRetriever, papers: Papers) -> None:
    """The encoder's vectors of all papers, of their own length, in the official format.

    An encoding that was cut off goes on (retrieval.embedder).
    """
    corpus, encoder = papers.corpus, retriever.encoder
    rows = np.arange(len(corpus.paper_ids), dtype=np.int64)
    reader = ArticleReader(corpus, encoder.tokenizer, encoder.config)

    def encode(part: NDArray[np.int64], advance: Advance) -> Vectors:
        with torch.inference_mode():
            return encoder.encode(reader.papers(part), advance).float().cpu().numpy(), None

    about = {**encoder.of_papers(), "normalisation": "none"}
    found = embedded(Work(corpus, rows, about, encoder.dim, encode, dtype="float32"), Place())
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as unfinished, unfinished.open("wb") as file:
        for row in rows.tolist():
            line = {"paper_id": corpus.paper_ids[row], "embedding": found.vectors[row : row + 1][0]}
            file.write(orjson.dumps(line, option=orjson.OPT_SERIALIZE_NUMPY) + b"\n")
