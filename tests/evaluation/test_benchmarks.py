"""The benchmarks import what exists, and leave out what is not installed."""

import sys
from importlib import import_module
from pathlib import Path

import pytest

SCRIPTS = sorted(path.stem for path in (Path(__file__).parents[2] / "speed").glob("[a-z]*.py"))


@pytest.mark.parametrize("name", SCRIPTS)
def test_each_script_starts(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as ended:
        import_module(f"citerec.speed.{name}").main()
    assert ended.value.code == 0 and "--help" in capsys.readouterr().out


def test_ways_whose_packages_are_missing_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from citerec.speed.reranking import WAYS, installed_ways

    monkeypatch.setitem(sys.modules, "openvino", None)  # as if not installed
    names = ["torch, float32", "OpenVINO, float32", "OpenVINO, int8"]
    assert installed_ways(names) == {"torch, float32": WAYS["torch, float32"]}
    out = capsys.readouterr().out
    assert out.startswith("left out: OpenVINO, float32 (needs openvino); OpenVINO, int8 (needs ")
