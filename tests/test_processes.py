"""Processes of a training, and their threads."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


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
    few = [item for item in expected.split(", ") if not item.startswith("4")]
    assert done.stderr.count("trains with") == len(few), "and says so, as progress is shown from Python"
