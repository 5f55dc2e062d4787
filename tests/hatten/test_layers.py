"""Dropout and ReLU compared with torch's, the mean path with loops over documents and words."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from citerec.hatten.documents import ABSTRACT, CONTEXT, NEAR, TITLE
from citerec.hatten.kernels import dropout, feed_forward, relu_in_place
from citerec.hatten.static.means import DISTANCE_BUCKETS
from citerec.hatten.static.network import MeanPath
from citerec.tests.hatten.made import documents


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout_keeps_the_mean_and_follows_the_seed(dtype: torch.dtype) -> None:
    x = torch.ones(200_001, dtype=dtype)
    torch.manual_seed(3)
    once = dropout(x, 0.1)
    torch.manual_seed(3)
    assert torch.equal(once, dropout(x, 0.1))
    assert not torch.equal(once, dropout(x, 0.1))
    assert (once == 0).float().mean().item() == pytest.approx(0.1, abs=0.005)
    assert once.float().mean().item() == pytest.approx(1.0, abs=0.005)
    assert len(once.unique()) == 2


def test_relu_in_place_is_relu_in_bfloat16() -> None:
    values = torch.tensor([-1.5, -0.0, 0.0, 1e-30, 3.0, float("inf"), float("-inf")], dtype=torch.bfloat16)
    with torch.no_grad():
        assert torch.equal(relu_in_place(values.clone()), torch.relu(values))


@pytest.mark.parametrize("shape", [(3, 7, 6), (5, 6)])
def test_feed_forward_has_the_values_and_gradients_of_torch_ops(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    up, down = nn.Linear(6, 9), nn.Linear(9, 6)
    x, grad = torch.randn(shape, requires_grad=True), torch.randn(shape)
    inputs = [x, *up.parameters(), *down.parameters()]
    results = [feed_forward(x, up, down), down(torch.relu(up(x)))]
    for mine, torchs in zip(*[[y, *torch.autograd.grad(y, inputs, grad)] for y in results], strict=True):
        torch.testing.assert_close(mine, torchs)


TARGET, WORDS = 3, 8


def made(seed: int = 0) -> MeanPath:
    """Return a mean path with random weights."""
    path, random = MeanPath(WORDS, near=1), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in path.parameters():
            weight.copy_(torch.randn(weight.shape, generator=random))
    path.target_id = TARGET
    return path.eval()


def word_vectors(seed: int = 1) -> Tensor:
    return torch.randn(WORDS, 5, generator=torch.Generator().manual_seed(seed))


def bucket(place: int, marker: int) -> int:
    distance = place - marker
    return min(abs(distance), DISTANCE_BUCKETS - 1) + (DISTANCE_BUCKETS if distance > 0 else 0)


def by_loops(path: MeanPath, vectors: Tensor, rows: list[list[list[int]]]) -> Tensor:
    out = []
    for row in rows:
        query = int(len(row) > 2 and bool(row[2]))
        total = torch.zeros(vectors.shape[1])
        for kind, paragraph in enumerate(row):
            mean = torch.zeros(vectors.shape[1])
            for place, word in enumerate(paragraph):
                weight = torch.log1p(path.word_weight[word].exp())
                if TARGET in paragraph:
                    weight = weight * path.distance_weight[bucket(place, paragraph.index(TARGET))].exp()
                mean = mean + weight * vectors[word]
            if paragraph:
                share = path.paragraph_weight[query, (TITLE, ABSTRACT, CONTEXT, NEAR)[kind]].exp()
                total = total + share * unit(mean)
        out.append(unit(total))
    return torch.stack(out)


def unit(vector: Tensor) -> Tensor:
    return vector / vector.norm().clamp(min=1e-12)


texts = st.lists(st.integers(0, WORDS - 1), max_size=7)
some_documents = st.lists(st.lists(texts, min_size=2, max_size=4), min_size=1, max_size=5)


@given(rows=some_documents, seed=st.integers(0, 100))
def test_is_the_weighted_mean_of_the_words_with_and_without_torch(
    rows: list[list[list[int]]], seed: int
) -> None:
    path, vectors, read = made(seed), word_vectors(seed), documents(rows)
    with_torch = path.encode(vectors, read).detach()  # torch is used where gradients are enabled
    with torch.no_grad():
        torch.testing.assert_close(with_torch, by_loops(path, vectors, rows), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(path.encode(vectors, read), with_torch, rtol=1e-4, atol=1e-5)


def test_distances_from_the_marker_are_signed_and_bounded() -> None:
    path, vectors = made(), torch.eye(WORDS)
    text = [1] * (DISTANCE_BUCKETS + 9) + [TARGET] + [2] * (DISTANCE_BUCKETS + 9)
    with torch.no_grad():
        path.word_weight.zero_()
        path.distance_weight.copy_(torch.linspace(-3, 3, 2 * DISTANCE_BUCKETS))
        result = path.encode(vectors, documents([[[], [], text]]))
        weight = path.distance_weight.exp()
        before = (
            weight[1:DISTANCE_BUCKETS].sum() + 10 * weight[DISTANCE_BUCKETS - 1]
        )  # the last weight is shared
        after = weight[DISTANCE_BUCKETS + 1 :].sum() + 10 * weight[2 * DISTANCE_BUCKETS - 1]
        expected = torch.zeros(WORDS)
        expected[[1, 2, TARGET]] = torch.stack([before, after, weight[0]])
        torch.testing.assert_close(result[0], unit(expected))


def test_words_are_dropped_only_in_training() -> None:
    path, vectors = made(), word_vectors()
    some = documents([[[1, 2, 4, 5], [6, 7]], [[1], [2], [4, TARGET, 5]]])
    path.dropout = 0.5
    with torch.no_grad():
        still = path.encode(vectors, some)
        assert torch.equal(path.encode(vectors, some), still)
        path.train()
        moved = torch.stack([path.encode(vectors, some) for _ in range(20)])
        assert not torch.equal(moved[0], moved[1])
        path.dropout = 1.0  # every word
        assert not path.encode(vectors, some).any()
    lengths: Any = moved.norm(dim=2)
    assert ((lengths - 1).abs() < 1e-5).logical_or(lengths == 0).all()
