"""Titles get what the definition says, and a network finds the title that has a passage's words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from citerec.datasets.corpus import Corpus
from citerec.retrieval.networks.encoder import REACH, NetworkRetriever, score_titles, word_weights
from citerec.retrieval.networks.networks import Networks
from citerec.retrieval.queries import Queries

DIM, MARK, STOP = 8, 0, 1
PASSAGES = st.lists(st.integers(2, 9), max_size=6)


@given(
    PASSAGES,
    PASSAGES,
    st.lists(st.lists(st.integers(0, 9), max_size=5), min_size=1, max_size=5),
    st.integers(0, 9),
)
def test_titles_get_the_weighted_mean_of_the_highest_cosines(
    before: list[int], after: list[int], papers: list[list[int]], seed: int
) -> None:
    rng, passage = np.random.default_rng(seed), np.array([*before, MARK, *after, STOP])
    states = rng.normal(size=(len(passage), DIM))
    states /= np.linalg.norm(states, axis=1, keepdims=True)
    lengths = np.array([len(paper) for paper in papers], np.int32)
    flat = np.array([word for paper in papers for word in paper], np.int32)
    words = rng.integers(-127, 128, (len(flat), DIM)).astype(np.int8)
    weights = word_weights(passage, len(before), (MARK, STOP), flat, lengths)
    result = score_titles(states.astype(np.float32), weights, words, lengths)
    start = 0
    for paper, got in zip(papers, result.tolist(), strict=True):
        own = words[start : start + len(paper)] / 127
        start += len(paper)
        expected, total = 0.0, 0.0
        for place, (word, state) in enumerate(zip(passage.tolist(), states, strict=True)):
            if word not in (MARK, STOP):
                have = sum(word in other for other in papers)
                weight = np.log(1 + len(papers) / (have + 1)) * np.exp(-abs(place - len(before)) / REACH)
                expected += weight * max((float(state @ item) for item in own), default=0.0)
                total += weight
        if paper and total:
            np.testing.assert_allclose(got, expected / total, rtol=1e-4, atol=1e-5)
        else:
            assert np.isnan(got)


def test_a_network_reads_titles_as_it_reads_papers(tiny_corpus: Corpus, tiny_networks: Path) -> None:
    retriever = NetworkRetriever(Networks.open(tiny_networks)).index(tiny_corpus)
    networks, reader = retriever.networks, retriever.networks.reader
    retriever.encode(np.array([3]))  # once more, in a file of its own
    queries, papers = (
        Queries.from_contexts(tiny_corpus, np.arange(2)),
        np.array([[3, 1, -1, 0], [5, 3, 2, 4]], np.int32),
    )
    result = retriever.title_scores(queries, papers)
    assert np.isnan(result[0, 2]) and np.isfinite(result[papers >= 0]).all()
    for query, text in enumerate(reader.queries(queries)):
        rows = papers[query][papers[query] >= 0]
        texts = reader.papers(tiny_corpus, rows)
        read = networks.read([paper.subwords for paper in texts])
        flat = np.array([word for paper in texts for word in paper.subwords], np.int32)
        lengths = np.array([len(paper.subwords) for paper in texts], np.int32)
        special = reader.special.values()
        weights = word_weights(np.array(text), text.index(reader.special["mask"]), special, flat, lengths)
        [(_, states)] = networks.read([text])
        titles = [hidden[: paper.title] for paper, (_, hidden) in zip(texts, read, strict=True)]
        expected = [weights @ (states @ title.T).max(axis=1) / weights.sum() for title in titles]
        np.testing.assert_allclose(result[query][papers[query] >= 0], expected, atol=0.02)
