"""Bars and spinners on terminals."""

from __future__ import annotations

import io
import time

import pytest
from rich.console import Console

from citerec.base import progress
from citerec.base.progress import count_progress, spinner


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=80)
    monkeypatch.setattr(progress, "_console", lambda: console)
    return shown


def test_long_work_shows_a_spinner_and_bars_inside(
    terminal: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    with spinner("indexing"):
        for _ in range(200):
            if "indexing" in terminal.getvalue():
                break
            time.sleep(0.01)
        with count_progress("papers", 2) as advance:
            advance(1)
    assert "indexing" in terminal.getvalue() and "papers" in terminal.getvalue()


def test_short_work_shows_nothing(terminal: io.StringIO) -> None:
    with pytest.raises(ValueError, match="wrong"), spinner("indexing"):
        raise ValueError("wrong")
    assert terminal.getvalue() == ""


def test_nothing_is_shown_where_there_is_no_terminal(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    with spinner("indexing"):
        time.sleep(0.05)
    assert capfd.readouterr() == ("", "")
