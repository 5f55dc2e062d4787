"""The measurements for GPUs in a tiny form on the CPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from citerec.speed import gpu


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_all_measurements_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CITATION_CACHE", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["gpu", "--tiny"])
    gpu.main()
    out = capsys.readouterr().out
    for row in (
        "| HAtten, training, 8 queries a step | ",
        "| HAtten, encoding (on cpu, chunks of 1,024 tokens, chosen) | ",
        "| cross-encoder of BERT-base's size, training | ",
        "| ... scoring | ",
    ):
        assert row in out, out
