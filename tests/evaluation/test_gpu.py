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
    assert "failed" not in out and "left out" not in out, out
    for row in (
        "| HAtten, training, 8 queries a step | ",
        "| HAtten, encoding (on cpu, chunks of 2,048 tokens, chosen) | ",
        "| cross-encoder of BERT-base's size, training | ",
        "| bi-encoder of MiniLM's size, training | ",
    ):
        assert row in out, out


def test_no_measurement_begins_after_the_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        sys, "argv", ["gpu", "--tiny", "--minutes", "0", "--only", "hatten_training", "bi_encoder"]
    )
    gpu.main()
    lines = [line for line in capsys.readouterr().out.splitlines() if "left out" in line]
    assert lines == [
        f"| {name} | left out: the time is over | |" for name in ("hatten_training", "bi_encoder")
    ]
