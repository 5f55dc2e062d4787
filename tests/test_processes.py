"""Processes of a training: parts, sums, gradients."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from citerec.tests.processes import in_processes
from citerec.training.processes import Share


@given(st.integers(0, 100), st.integers(1, 9))
def test_parts_cover_all_rows_in_order(rows: int, processes: int) -> None:
    parts = [np.arange(rows)[Share(rank, processes).part(rows)] for rank in range(processes)]
    assert np.concatenate(parts).tolist() == list(range(rows))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize("rows", [7, 2])
def test_arrays_are_merged_in_blocks(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("citerec.retrieval.vectors.BLOCK", 6)  # two rows
    expected = np.random.default_rng(0).standard_normal((9, 3)).astype(np.float32)
    wanted = np.array([0, 2, 3, 4, 6, 7, 8])[:rows]
    expected[np.setdiff1d(np.arange(9), wanted)] = 0

    def merged(share: Share) -> list[list[float]]:
        array, own = np.zeros_like(expected), wanted[share.part(rows)]
        array[own] = expected[own]
        share.merge(array, wanted)
        return list(array.tolist())

    assert in_processes(3, merged) == [expected.tolist()] * 3


@pytest.mark.parametrize("kind", [np.int32, np.bool_])
def test_parts_are_collected(kind: type[np.generic]) -> None:
    whole = (np.arange(10).reshape(5, 2) % 3 - 1).astype(kind)
    for found in in_processes(3, lambda share: share.collect(whole[share.part(5)], 5)):
        assert found.dtype == kind and found.tolist() == whole.tolist()


def test_the_mean_of_the_gradients_is_that_of_one_process() -> None:
    """Every process computes the loss of all rows; its encoder sees its own only."""
    inputs = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))

    def gradient(share: Share) -> Tensor:
        weight = torch.linspace(-1, 1, 12).view(4, 3).requires_grad_()
        rows = share.gather((inputs[share.part(5)] @ weight).tanh(), 5)
        (rows @ rows.T).logsumexp(1).sum().backward()
        assert weight.grad is not None
        return weight.grad

    expected = gradient(Share())
    assert expected.abs().min() > 0.01
    torch.testing.assert_close(torch.stack(in_processes(3, gradient)).mean(0), expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("imports", "expected"),
    [
        # libgomp reads GOMP_SPINCOUNT when torch loads it, so that it must be set before.
        ("import torch, citerec", "1 1000, 4 1000, 3 None"),
        ("import citerec, torch", "4 1000, 4 1000, 4 None"),
    ],
)
def test_threads_that_spin_are_no_more_than_cores_are_free(imports: str, expected: str) -> None:
    script = f"""
import os
os.sched_getaffinity = lambda process: range(4)
{imports}
from citerec.training.loop import TrainingRun
found = []
for load in (40.0, 0.5, 2.0):
    os.getloadavg = lambda: (load, 0.0, 0.0)
    if load == 2.0:
        os.environ.pop("GOMP_SPINCOUNT")
    torch.set_num_threads(4)
    TrainingRun()
    found.append(f"{{torch.get_num_threads()}} {{os.environ.get('GOMP_SPINCOUNT')}}")
print(*found, sep=", ")
"""
    environment = {name: value for name, value in os.environ.items() if name != "GOMP_SPINCOUNT"}
    done = subprocess.run(
        [sys.executable, "-P", "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{expected}\n"
    few = [one for one in expected.split(", ") if not one.startswith("4")]
    assert done.stderr.count("trains with") == len(few), "and says so, as progress is shown from Python"
