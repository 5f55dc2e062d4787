"""Ranking CSFCube's pools by a retriever, in the official format (Mysore et al. 2021)."""

from __future__ import annotations

from pathlib import Path

import orjson

from datasets.atomic import written_whole
from datasets.errors import InputError
from datasets.store import Corpus
from evaluation.global_benchmarks.csfcube_format import RELEVANT, CsfCube, ranked_file
from evaluation.global_benchmarks.pool_benchmark import some
from evaluation.global_benchmarks.pool_scores import pool_scores
from evaluation.global_benchmarks.texts import Question, Text, open_texts, read_texts
from retrieval.base import Retriever

LABELS = {
    "background": ("background_label", "objective_label"),
    "method": ("method_label",),
    "result": ("result_label",),
}
"""The sentences of a facet; what a paper is for belongs to its background (annotation guidelines)."""
WHOLE, FACET = "whole", "facet"


def find_texts(folder: Path) -> Path:
    """The file of abstracts in the collection's folder; InputError if there is none."""
    found = sorted(folder.glob("abstracts-csfcube-preds*.jsonl*"))
    if not found:
        raise InputError(f"{folder}: no abstracts-csfcube-preds.jsonl, whose texts are to be ranked")
    return found[0]


def context_of(name: str, facet: str, query: str) -> str:
    """The context that stands for a query of a facet: by its whole abstract, or by the facet's sentences."""
    return f"{name}_{facet}_{query}"


def open_cube(cube: CsfCube, texts: Path, cache_dir: str | Path) -> Corpus:
    """The collection as a corpus, with two contexts for each query of a facet: whole, and its sentences.

    The latter are left out where there are none. Raises InputError that names papers without a text.
    """
    asking = {name for pools in cube.pools.values() for name in pools}
    asked = {text.id: text for text in read_texts(texts) if text.id in asking}
    questions, candidates = {}, set[str]()
    for facet, pools in cube.pools.items():
        for name, pool in pools.items():
            candidates |= set(pool)
            relevant = tuple(paper for paper, grade in pool.items() if grade >= RELEVANT)
            questions[context_of(name, facet, WHOLE)] = Question(name, relevant)
            if words := sentences(asked[name], facet) if name in asked else "":
                questions[context_of(name, facet, FACET)] = Question(name, relevant, words)
    return open_texts("CSFCube", texts, questions, candidates, cache_dir)


def sentences(text: Text, facet: str) -> str:
    """What an abstract says of a facet, by the labels of its sentences."""
    labelled = zip(text.labels, text.sentences, strict=False)  # there may be no labels at all
    return " ".join(sentence for label, sentence in labelled if label in LABELS[facet])


def write_ranked(
    cube: CsfCube, corpus: Corpus, retriever: Retriever, query: str, folder: Path, experiment: str
) -> None:
    """Rank all pools, and write test-pid2pool-csfcube-EXPERIMENT-FACET-ranked.json into the folder.

    The retriever has indexed the corpus. query: what it is asked by, whole or facet. A distance is minus its
    score; candidates of equal distance are ordered by id. Raises InputError that names queries without a
    sentence of their facet.
    """
    contexts = set(corpus.context_ids)
    for facet, pools in cube.pools.items():
        asked = {name: context_of(name, facet, query) for name in pools}
        if mute := [name for name, context in asked.items() if context not in contexts]:
            raise InputError(
                f"{facet}: no sentence (pred_labels) of {some(mute)}; ask by benchmark.query=whole"
            )
        scores = pool_scores(retriever, corpus, {asked[name]: pool for name, pool in pools.items()})
        ranked = {}
        for name, context in asked.items():
            distances = [(-score, paper) for paper, score in scores[context].items()]
            ranked[name] = [(paper, distance) for distance, paper in sorted(distances)]
        folder.mkdir(parents=True, exist_ok=True)
        with written_whole(folder / ranked_file(experiment, facet)) as part:
            part.write_bytes(orjson.dumps(ranked))
