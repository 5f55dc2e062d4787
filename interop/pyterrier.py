"""PyTerrier transformers for all retrievers and rerankers of citerec.

    import pyterrier as pt
    from citerec.interop.pyterrier import Rerank, Retrieve, qrels, topics

    bm25, reranker = Retrieve(BM25().index(corpus)), Rerank(Reranker.open("FOLDER"), corpus)
    asked, cited = topics(corpus, "test"), qrels(corpus, "test")
    pt.Experiment([bm25, bm25 % 100 >> reranker], asked, cited, ["recip_rank"])

Topics have the columns qid and query, a passage with TARGETCIT where the citation is missing. They may have
title, abstract and year of the paper being written, own (its id), and known (ids of papers that it cites
elsewhere).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from citerec.base.errors import InputError, needs_extra
from citerec.datasets.corpus import Corpus
from citerec.evaluation.protocol import Qrels
from citerec.rerank.cross_encoder.reranker import Reranker
from citerec.retrieval.base import Retriever
from citerec.retrieval.queries import Queries, Query

with needs_extra("citerec.interop.pyterrier", "peers"):
    import pandas as pd
    import pyterrier as pt

FIELDS = ("title", "abstract", "year", "known", "own")
"""Columns of topics besides qid and query; all may be missing."""
BATCH = 256
"""Queries searched at a time."""


def topics(corpus: Corpus, split: str) -> pd.DataFrame:
    """Return the queries of a split: qid, query, title, abstract, year, own."""
    queries = Queries.from_contexts(corpus, corpus.split(split))
    return pd.DataFrame(
        {
            "qid": queries.names(),
            "query": queries.texts("context"),
            "title": queries.texts("title"),
            "abstract": queries.texts("abstract"),
            "year": queries.years.tolist(),
            "own": [corpus.paper_ids[row] if row >= 0 else None for row in queries.citing.tolist()],
        }
    )


def qrels(corpus: Corpus, split: str) -> pd.DataFrame:
    """Return the cited papers of a split: qid, docno, label."""
    judged = Qrels.from_split(corpus, corpus.split(split)).judgements
    pairs = [(query, *label) for query, papers in judged.items() for label in papers.items()]
    return pd.DataFrame(pairs, columns=["qid", "docno", "label"])


class Retrieve(pt.Transformer):
    """Topics to results: qid, docno, score, rank, with the columns of the topics."""

    def __init__(self, retriever: Retriever, num_results: int = 1000) -> None:
        """retriever: one that has indexed its corpus."""
        self.retriever, self.num_results = retriever, num_results

    def __repr__(self) -> str:
        return f"Retrieve({self.retriever.name}, {self.num_results})"

    def transform(self, topics: pd.DataFrame) -> pd.DataFrame:
        corpus = self.retriever.corpus
        parts = []
        for start in range(0, max(len(topics), 1), BATCH):
            part = topics.iloc[start : start + BATCH]
            ranking = self.retriever.search(_queries(corpus, part), self.num_results)
            is_found = ranking.papers >= 0
            ranks = np.broadcast_to(np.arange(ranking.k), is_found.shape)[is_found]
            rows = np.arange(len(part)).repeat(is_found.sum(axis=1))
            results = part.iloc[rows].reset_index(drop=True)
            docnos = [corpus.paper_ids[paper] for paper in ranking.papers[is_found].tolist()]
            scores = ranking.scores[is_found].astype(np.float64)
            parts.append(results.assign(docno=docnos, score=scores, rank=ranks))
        return pd.concat(parts, ignore_index=True)


class Rerank(pt.Transformer):
    """Results to results, with the scores of a cross-encoder or a retriever."""

    def __init__(self, reranker: Reranker | Retriever, corpus: Corpus | None = None) -> None:
        """corpus: has the papers' texts, for a cross-encoder; a retriever knows its own corpus."""
        if corpus is None:
            if not isinstance(reranker, Retriever):
                raise InputError("Rerank: give the corpus with the papers' texts")
            corpus = reranker.corpus
        self.reranker, self.corpus = reranker, corpus

    def __repr__(self) -> str:
        return f"Rerank({self.reranker.name})"

    def transform(self, results: pd.DataFrame) -> pd.DataFrame:
        results = results.reset_index(drop=True)  # labels may be there twice
        groups = [group for _, group in results.groupby("qid", sort=False)]
        scored = results.assign(score=np.full(len(results), -np.inf))
        column = scored["score"].to_numpy(copy=True)
        for start in range(0, len(groups), BATCH):
            part = groups[start : start + BATCH]
            queries = _queries(self.corpus, pd.DataFrame([group.iloc[0] for group in part]))
            papers = np.full((len(part), max(map(len, part))), -1, np.int32)
            for row, group in enumerate(part):
                papers[row, : len(group)] = [self.corpus.paper_row(docno) for docno in group["docno"]]
            if isinstance(self.reranker, Retriever):
                scores = self.reranker.score(queries, papers)
            else:
                scores = self.reranker.score_candidates(queries, papers)
            for row, group in enumerate(part):
                column[group.index] = scores[row, : len(group)]
        return pt.model.add_ranks(scored.assign(score=column), single_query=False)


def _queries(corpus: Corpus, topics: pd.DataFrame) -> Queries:
    """Return the queries of topics; missing values are unknown."""
    columns = [name for name in FIELDS if name in topics.columns]
    queries = []
    for topic in topics.to_dict("records"):
        fields: dict[str, Any] = {}
        for name in columns:
            value = topic[name]
            if not (pd.api.types.is_scalar(value) and pd.isna(value)):
                fields[name] = {"known": tuple, "year": int}.get(name, str)(value)
        queries.append(Query(topic["query"], **fields))
    return Queries.from_list(corpus, queries)
