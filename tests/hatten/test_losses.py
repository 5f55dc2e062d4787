"""The losses compared with values of the reference and with loops over their definitions."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from citerec.hatten.training.losses import (
    CITED,
    EXCLUDED,
    OTHER,
    OTHER_QUERY,
    RELEVANT,
    InfoNCE,
    Loss,
    Triplet,
)

GOLDEN = Path(__file__).parents[3] / "shared" / "golden" / "hatten_reference.npz"
COSINES = npst.arrays(np.float32, (3, 6), elements=st.floats(-1, 1, width=32))
LEVELS = npst.arrays(
    np.int64, (3, 6), elements=st.sampled_from([EXCLUDED, CITED, RELEVANT, OTHER, OTHER_QUERY])
)


def levels_of_batch(class_labels: Tensor, irrelevance_levels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Convert the reference's description of a batch [B] to query rows [Q], paper rows [N] and levels [Q, N].

    Documents of one class belong to one query, whose level is 0.
    """
    queries, papers = (irrelevance_levels == 0).nonzero()[:, 0], (irrelevance_levels > 0).nonzero()[:, 0]
    own = class_labels[queries][:, None] == class_labels[papers][None]
    return queries, papers, torch.where(own, irrelevance_levels[papers][None], OTHER_QUERY)


@pytest.mark.skipif(not GOLDEN.is_file(), reason="the reference's output is not at ../shared/golden")
@pytest.mark.parametrize("positives", [(1, 2), (1,)])
def test_the_triplet_loss_matches_the_reference(positives: tuple[int, ...]) -> None:
    golden = np.load(GOLDEN)
    queries, papers, levels = levels_of_batch(
        torch.from_numpy(golden["class_labels"]).long(), torch.from_numpy(golden["irrelevance_levels"]).long()
    )
    vectors = F.normalize(torch.from_numpy(golden["embedding"]), dim=1)
    loss = Triplet(positives=positives)(vectors[queries] @ vectors[papers].T, levels)
    name = "_".join(["triplet_loss_positives", *map(str, positives)])
    assert float(loss) == pytest.approx(float(golden[name]), abs=1e-5)


@given(
    cosines=COSINES,
    levels=LEVELS,
    positives=st.sampled_from([(1,), (1, 2), (2,), (1, 2, 3)]),
    margin=st.floats(0, 0.5),
)
def test_the_triplet_loss_is_the_sum_over_triples(
    cosines: Any, levels: Any, positives: tuple[int, ...], margin: float
) -> None:
    expected = 0.0
    for row, of_row in zip(cosines.astype(float), levels, strict=True):
        for p, level in enumerate(of_row):
            for n, other in enumerate(of_row):
                if level in positives and other > level:
                    expected += max(0.0, row[n] - row[p] + margin * (other - level))
    loss = Triplet(margin, positives)(torch.from_numpy(cosines), torch.from_numpy(levels))
    assert float(loss) == pytest.approx(expected, rel=1e-4, abs=1e-4)


@given(
    cosines=COSINES,
    levels=LEVELS,
    cited=npst.arrays(np.int64, 3, elements=st.integers(0, 5)),
    temperature=st.floats(0.05, 1),
    log_rate=st.none() | npst.arrays(np.float32, 6, elements=st.floats(-5, 0, width=32)),
)
def test_infonce_is_the_cross_entropy_of_the_cited_papers(
    cosines: Any, levels: Any, cited: Any, temperature: float, log_rate: Any
) -> None:
    levels = levels.copy()
    levels[np.arange(3), cited] = CITED
    rates, expected = np.zeros(6) if log_rate is None else log_rate.astype(float), 0.0
    for row, of_row in zip(cosines.astype(float), levels, strict=True):
        terms = np.exp(row / temperature - rates)
        counted, wanted = ~np.isin(of_row, (EXCLUDED, RELEVANT)), of_row == CITED
        expected += math.log(terms[counted].sum() / terms[wanted].sum()) / 3
    loss = InfoNCE(temperature, correct_rate=log_rate is not None)
    value = loss(torch.from_numpy(cosines), torch.from_numpy(levels), torch.from_numpy(rates))
    assert float(value) == pytest.approx(expected, rel=1e-3, abs=1e-4)


@pytest.mark.parametrize("loss", [Triplet(), InfoNCE()])
def test_excluded_papers_get_no_gradient(loss: Loss) -> None:
    cosines = torch.zeros(2, 4, requires_grad=True)
    levels = torch.tensor([[CITED, EXCLUDED, OTHER, OTHER_QUERY], [OTHER_QUERY, CITED, EXCLUDED, OTHER]])
    loss(cosines, levels, torch.zeros(4), None).backward()
    assert cosines.grad is not None and cosines.grad.isfinite().all()
    assert ((cosines.grad != 0) == (levels != EXCLUDED)).all()
    assert ((cosines.grad < 0) == (levels == CITED)).all()


class LargestTensor(TorchDispatchMode):
    """Records the number of elements of the largest tensor that any operation returns."""

    largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for part in out if isinstance(out, tuple | list) else (out,):
            if isinstance(part, Tensor):
                self.largest = max(self.largest, part.numel())
        return out


def test_no_tensor_over_all_triples_is_created() -> None:
    queries, papers = 60, 200
    levels = torch.full((queries, papers), OTHER_QUERY)
    levels[torch.arange(queries), torch.arange(queries)] = CITED
    levels[torch.arange(queries), torch.arange(queries) + 60] = RELEVANT
    cosines = torch.rand(queries, papers, requires_grad=True)
    with LargestTensor() as seen:
        Triplet()(cosines, levels).backward()
    assert queries * papers <= seen.largest <= 2 * queries * papers  # two positives per query
