"""Commands whose disk fails, or that are killed, at a change of a file: the old state or the new one."""

from __future__ import annotations

import shutil

import pytest

from citerec.tests.faults.writes import run_all

COMMANDS = ("build", "add", "draft fill=", "model.save", "a training's checkpoint")
PLACES = 1
"""Of each command, and its last three changes of files; `python -m citerec.tests.faults.writes` tries all of
these and of other commands."""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cc") is None, reason="the shim needs a C compiler")
def test_a_failed_or_killed_change_leaves_the_old_or_the_new_state() -> None:
    done = run_all(PLACES, COMMANDS)
    assert set(done) == set(COMMANDS)
    assert not [problem for one in done.values() for problem in one["problems"]]
    for name, one in done.items():
        assert one["tries"] == one["old"] + one["new"] > 4 and one["old"], name
