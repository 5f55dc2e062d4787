"""The measurements for GPUs in a tiny form on the CPU, and the list of wheels that another machine lacks."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from citerec.speed import gpu
from citerec.speed.wheels import installed, lacking, read_installed


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_all_measurements_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CITATION_CACHE", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["gpu", "--tiny"])
    gpu.main()
    out = capsys.readouterr().out
    assert "failed" not in out and "left out" not in out, out
    for row in (
        "| HAtten, training, 8 queries a step | ",
        " ms without the loader (",
        "new shapes), 0 kernels and copies, GPU busy 0.0 ms, 0 synchronisations, 0 nonzero, ",
        "| HAtten, encoding (on cpu, chunks of 2,048 tokens, chosen) | ",
        "| cross-encoder of BERT-base's size, training | ",
        "| bi-encoder of MiniLM's size, training | ",
        "| static model, two rounds with mining | trained on cpu | |",
        "| trainer.precision=bf16-mixed, with clipping | trained | |",
        "| a run that was interrupted and resumed | the same weights bit for bit | |",
        "| torchrun with one process | trained | |",
        "| JAX | not imported | |",
    ):
        assert row in out, out


def test_no_measurement_begins_after_the_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        sys, "argv", ["gpu", "--tiny", "--minutes", "0", "--only", "static_model", "without_jax"]
    )
    gpu.main()
    lines = [line for line in capsys.readouterr().out.splitlines() if "left out" in line]
    assert lines == [f"| {name} | left out: the time is over | |" for name in ("static_model", "without_jax")]


def test_wheels_that_another_machine_lacks() -> None:
    theirs = {name: found for name, found in installed().items() if name not in ("msgspec", "hydra-core")}
    assert lacking(theirs) == [f"hydra-core=={version('hydra-core')}", f"msgspec=={version('msgspec')}"]
    old = read_installed(["torch==2.11.0+cu130", "transformers==5.17.0", "numpy==1.26.0", "", "Python 3.12"])
    found = {line.partition("==")[0] for line in lacking({**theirs, **old})}
    assert found == {"hydra-core", "msgspec", "numpy"}, "what the requirements allow is kept"
    everything = lacking({})
    assert f"tokenizers=={version('tokenizers')}" in everything  # of transformers
    assert not any(line.startswith("pytest==") for line in everything)  # only for development
