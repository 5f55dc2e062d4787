"""The benchmarks import what exists."""

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
