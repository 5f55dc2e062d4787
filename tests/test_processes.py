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


TORCH_FIRST = "import torch\nimport citerec"
CITEREC_FIRST = "import citerec\nimport torch"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("imports", "load", "threads"),
    [
        (TORCH_FIRST, 40.0, 1),
        (TORCH_FIRST, 0.5, 4),
        (TORCH_FIRST + "\nos.environ.pop('GOMP_SPINCOUNT')", 2.0, 3),
        (CITEREC_FIRST, 40.0, 4),
    ],
)
def test_threads_that_spin_are_no_more_than_cores_are_free(imports: str, load: float, threads: int) -> None:
    """libgomp reads GOMP_SPINCOUNT when torch loads it, so that it must be set before."""
    script = f"""
import os
os.getloadavg = lambda: ({load}, 0.0, 0.0)
os.sched_getaffinity = lambda process: range(4)
{imports}
from citerec.training.loop import TrainingRun
torch.set_num_threads(4)
TrainingRun()
print(torch.get_num_threads(), os.environ.get("GOMP_SPINCOUNT"))
"""
    environment = {name: value for name, value in os.environ.items() if name != "GOMP_SPINCOUNT"}
    done = subprocess.run(
        [sys.executable, "-P", "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    spins = "None" if "pop" in imports else "1000"
    assert done.stdout == f"{threads} {spins}\n"
    assert ("trains with" in done.stderr) == (threads < 4), "and says so, as progress is shown from Python"
