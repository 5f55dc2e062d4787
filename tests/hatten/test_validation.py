"""The papers that validation searches, and what a round mines for."""

from __future__ import annotations

import numpy as np
import pytest

from datasets.corpus import Corpus
from hatten.batches import Batches, TrainingData
from hatten.documents import DocumentReader, Vocabulary
from hatten.settings import EncoderBatchSettings, EncoderValidationSettings
from hatten.train import Validation

QUERIES = 12


def validation(corpus: Corpus, papers: int, seed: int = 0) -> Validation:
    return Validation(EncoderValidationSettings(queries=QUERIES, papers=papers, depth=10), corpus, seed)


def cited(corpus: Corpus, contexts: np.ndarray) -> list[set[int]]:
    split = corpus.split("val")
    rows = {int(context): row for row, context in enumerate(split.contexts)}
    return [set(split.positives[rows[int(context)]].tolist()) for context in contexts]


def unit(rows: int, seed: int) -> np.ndarray:
    vectors = np.random.default_rng(seed).standard_normal((rows, 6)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.parametrize("papers", [3, 40])
def test_a_sample_of_papers_has_all_that_the_queries_cite(demo_corpus: Corpus, papers: int) -> None:
    made = validation(demo_corpus, papers)
    positives = set().union(*cited(demo_corpus, made.contexts))
    chosen = set(np.flatnonzero(made.candidates).tolist())
    assert len(positives) > 3 and positives <= chosen
    assert len(chosen) == max(papers, len(positives))
    again, other = validation(demo_corpus, papers), validation(demo_corpus, papers, seed=1)
    assert (again.candidates == made.candidates).all() and again.contexts.tolist() == made.contexts.tolist()
    assert (other.candidates != made.candidates).any()


@pytest.mark.parametrize("papers", [0, 40, 1000])
def test_recall_is_that_of_a_search_through_its_papers(demo_corpus: Corpus, papers: int) -> None:
    made = validation(demo_corpus, papers)
    queries, vectors = unit(QUERIES, 1), unit(len(demo_corpus.paper_ids), 2)
    cosines = queries @ vectors.T
    cosines[:, ~made.candidates] = -np.inf
    cosines[np.arange(QUERIES), demo_corpus.citing[made.contexts]] = -np.inf
    best = [set(row[:10].tolist()) for row in np.argsort(-cosines, axis=1)]
    shares = [
        len(found & right) / len(right)
        for found, right in zip(best, cited(demo_corpus, made.contexts), strict=True)
    ]
    measured = made.measure(queries, vectors)
    assert measured["recall@10"] == pytest.approx(np.mean(shares))
    assert measured.get("papers") == (40 if papers == 40 else None)  # said of a sample alone


def test_nothing_is_measured_without_queries(demo_corpus: Corpus) -> None:
    made = Validation(EncoderValidationSettings(queries=0), demo_corpus, 0)
    assert len(made.contexts) == 0 and not made.candidates.any()
    assert len(Validation(EncoderValidationSettings(split="none"), demo_corpus, 0).contexts) == 0


def test_a_short_round_mines_for_its_own_queries(demo_corpus: Corpus) -> None:
    reader = DocumentReader(demo_corpus, Vocabulary(demo_corpus.words), 12)
    short, long = (
        EncoderBatchSettings(queries=8, mined=1, random=0, steps_per_round=steps) for steps in (5, 50)
    )
    data = TrainingData(reader, short, seed=0)
    asked = [data.queries_of(number) for number in range(2)]
    for number, queries in enumerate(asked):
        order = Batches(reader, data.split, None, short, seed=0, round=number).order
        assert queries.tolist() == sorted(order.tolist()) and len(queries) == 40
    assert not set(asked[0].tolist()) & set(asked[1].tolist())
    every = TrainingData(reader, long, seed=0).queries_of(3)
    assert every.tolist() == list(range(len(data.split)))
