"""Bars and spinners on terminals."""

from __future__ import annotations

import io
import logging
import re
import time
from collections.abc import Iterator

import pytest
from rich.console import Console

from citerec.base import progress
from citerec.base.progress import count_progress, show_log, spinner


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
        for _ in range(12_000):
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


def test_long_counts_are_logged(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    caplog.set_level(logging.INFO)
    with count_progress("papers", 10, 4) as advance:
        advance(1)
        monkeypatch.setattr(progress, "LOG_INTERVAL", -1.0)
        advance(2.6)
    (line,) = caplog.messages
    assert re.fullmatch(r"papers: 8 of 10, [\d,.]+/s, \d+ s left", line)


@pytest.fixture
def loggers() -> Iterator[tuple[logging.Logger, logging.Logger]]:
    """The root's and ours, the latter as in a program that does not know it."""
    root, ours = logging.getLogger(), logging.getLogger("citerec")
    before = root.handlers, ours.handlers, ours.level
    ours.handlers, ours.level = [], logging.NOTSET
    yield root, ours
    root.handlers, ours.handlers, level = before
    ours.setLevel(level)


def test_the_log_is_shown_unless_the_program_has_its_own(
    loggers: tuple[logging.Logger, logging.Logger], capsys: pytest.CaptureFixture[str]
) -> None:
    root, ours = loggers
    root.handlers = []  # pytest's
    work = logging.getLogger("citerec.training.loop")
    for _ in range(2):
        show_log()
    work.info("round 1")
    assert capsys.readouterr().err == "round 1\n"
    own = io.StringIO()
    root.addHandler(logging.StreamHandler(own))
    work.info("round 2")
    assert (own.getvalue(), capsys.readouterr().err) == ("round 2\n", ""), "each line once"
    root.handlers, ours.handlers = [], []
    ours.setLevel(logging.WARNING)
    show_log()
    work.info("round 3")
    assert capsys.readouterr().err == ""
