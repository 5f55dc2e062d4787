"""The scripts of speed/ start, and import what exists."""

import sys
from importlib import import_module
from pathlib import Path

import pytest

from citerec.speed import gpu

SCRIPTS = sorted(path.stem for path in (Path(__file__).parents[2] / "speed").glob("[a-z]*.py"))


@pytest.mark.parametrize("name", SCRIPTS)
def test_each_script_starts(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as ended:
        import_module(f"citerec.speed.{name}").main()
    assert ended.value.code == 0 and "--help" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_measurements_for_gpus_run_in_a_tiny_form_on_the_cpu(
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
