"""Commands whose disk fails, or that are killed, at a change of a file: the old state or the new one."""

from __future__ import annotations

import shutil

import pytest

from citerec.tests.faults.writes import run_all

PLACES = 2
"""Of each command, besides its last three changes of files; `python -m citerec.tests.faults.writes` tries all
of them, and other commands."""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cc") is None, reason="the shim needs a C compiler")
@pytest.mark.parametrize("name", ["build", "add", "draft fill=", "model.save", "a training's checkpoint"])
def test_a_failed_or_killed_change_leaves_the_old_or_the_new_state(name: str) -> None:
    done = run_all(PLACES, [name])[name]
    assert not done["problems"]
    assert done["tries"] == done["old"] + done["new"] > 2 and done["old"]
