"""The path from the mean of word vectors against a loop over documents, paragraphs and words."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from hatten.documents import ABSTRACT, CONTEXT, TITLE
from hatten.layers import MeanPath
from hatten.means import REACH
from tests.hatten.made import documents

TARGET, WORDS = 3, 8


def made(seed: int = 0) -> MeanPath:
    """Every weight random."""
    path, random = MeanPath(WORDS), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in path.parameters():
            weight.copy_(torch.randn(weight.shape, generator=random))
    path.target_id = TARGET
    return path.eval()


def word_vectors(seed: int = 1) -> Tensor:
    return torch.randn(WORDS, 5, generator=torch.Generator().manual_seed(seed))


def bucket(place: int, marker: int) -> int:
    distance = place - marker
    return min(abs(distance), REACH - 1) + (REACH if distance > 0 else 0)


def by_loops(path: MeanPath, vectors: Tensor, rows: list[list[list[int]]]) -> Tensor:
    out = []
    for row in rows:
        query = int(len(row) == 3 and bool(row[2]))
        total = torch.zeros(vectors.shape[1])
        for kind, paragraph in enumerate(row):
            mean = torch.zeros(vectors.shape[1])
            for place, word in enumerate(paragraph):
                weight = torch.log1p(path.word_weight[word].exp())
                if TARGET in paragraph:
                    weight = weight * path.distance_weight[bucket(place, paragraph.index(TARGET))].exp()
                mean = mean + weight * vectors[word]
            if paragraph:
                share = path.paragraph_weight[query, (TITLE, ABSTRACT, CONTEXT)[kind]].exp()
                total = total + share * unit(mean)
        out.append(unit(total))
    return torch.stack(out)


def unit(vector: Tensor) -> Tensor:
    return vector / vector.norm().clamp(min=1e-12)


texts = st.lists(st.integers(0, WORDS - 1), max_size=7)
some_documents = st.lists(st.lists(texts, min_size=2, max_size=3), min_size=1, max_size=5)


@settings(deadline=None, max_examples=50)
@given(rows=some_documents, seed=st.integers(0, 100))
def test_is_the_weighted_mean_of_the_words_with_torch_and_without(
    rows: list[list[list[int]]], seed: int
) -> None:
    path, vectors, read = made(seed), word_vectors(seed), documents(rows)
    with_torch = path(vectors, read).detach()  # with a gradient: torch's own operations
    with torch.no_grad():
        torch.testing.assert_close(with_torch, by_loops(path, vectors, rows), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(path(vectors, read), with_torch, rtol=1e-4, atol=1e-5)


def test_distance_counts_from_the_marker_with_a_sign_and_up_to_its_reach() -> None:
    path, vectors = made(), torch.eye(WORDS)
    text = [1] * (REACH + 9) + [TARGET] + [2] * (REACH + 9)
    with torch.no_grad():
        path.word_weight.zero_()
        path.distance_weight.copy_(torch.linspace(-3, 3, 2 * REACH))
        found = path(vectors, documents([[[], [], text]]))
        weight = path.distance_weight.exp()
        before = weight[1:REACH].sum() + 10 * weight[REACH - 1]  # 1, 2, ... words away; then all alike
        after = weight[REACH + 1 :].sum() + 10 * weight[2 * REACH - 1]
        expected = torch.zeros(WORDS)
        expected[[1, 2, TARGET]] = torch.stack([before, after, weight[0]])
        torch.testing.assert_close(found[0], unit(expected))


def test_a_model_without_a_marker_has_no_distances() -> None:
    path, vectors = made(), word_vectors()
    with torch.no_grad():
        expected = path(vectors, documents([[[], [], [1, 2, 4]]]))
        path.distance_weight.fill_(9.0)
        torch.testing.assert_close(path(vectors, documents([[[], [], [1, 2, 4]]])), expected)
        for nowhere in (None, -1):
            path.target_id = nowhere
            assert path(vectors, documents([[[], [], [1, TARGET]]])).isfinite().all()


def test_words_start_in_proportion_to_their_idf() -> None:
    path, idf = MeanPath(WORDS), np.geomspace(0.005, 20, WORDS, dtype=np.float32)
    path.start_from(idf)
    scaled = np.maximum(idf / 20 * 2, 1e-3)
    np.testing.assert_allclose(F.softplus(path.word_weight).detach().numpy(), scaled, rtol=1e-3)


def test_words_are_dropped_in_training_alone() -> None:
    path, vectors = made(), word_vectors()
    some = documents([[[1, 2, 4, 5], [6, 7]], [[1], [2], [4, TARGET, 5]]])
    path.dropout = 0.5
    with torch.no_grad():
        still = path(vectors, some)
        assert torch.equal(path(vectors, some), still)
        path.train()
        moved = torch.stack([path(vectors, some) for _ in range(20)])
        assert not torch.equal(moved[0], moved[1])
        path.dropout = 1.0  # every word
        assert not path(vectors, some).any()
    lengths: Any = moved.norm(dim=2)
    assert ((lengths - 1).abs() < 1e-5).logical_or(lengths == 0).all()


def test_every_weight_learns_from_a_query_and_a_paper() -> None:
    path, vectors = made(), word_vectors().requires_grad_()
    found = path(vectors, documents([[[1], [2, 4]], [[1, 4], [2], [4, TARGET, 5]]]))
    (found[0] @ found[1]).backward()
    for weight in (path.word_weight, path.distance_weight, path.paragraph_weight, vectors):
        assert weight.grad is not None and weight.grad.isfinite().all() and weight.grad.any()
