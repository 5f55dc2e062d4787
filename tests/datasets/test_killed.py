"""A preparation that is killed at any moment: the next one starts clean and makes the same bytes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

KILLED = """
import json, os, signal, sys
from pathlib import Path
from datasets.prepare import open_corpus

source, scratch, bad, first = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
moments = fatal = 0

def at_each_moment(event, arguments):
    # What touches the disk: whatever a store is made of begins with one of these.
    global moments
    if event in ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir"):
        if isinstance(arguments[0], (str, bytes, os.PathLike)) and str(scratch) in os.fsdecode(arguments[0]):
            moments += 1
            if moments == fatal:
                os.kill(os.getpid(), signal.SIGKILL)

def prepare(cache):
    open_corpus(source, cache_dir=cache, on_error=bad, max_bad_share=1.0)

def prepare_and_die(cache, moment):
    global moments, fatal
    child = os.fork()
    if not child:
        moments, fatal = 0, moment
        prepare(cache)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def content(cache):
    folders = [path for path in (cache / "corpora").iterdir() if path.is_dir()]
    return {file.relative_to(cache): file.read_bytes() for folder in folders for file in folder.iterdir()}

sys.addaudithook(at_each_moment)
prepare(scratch / "whole")
last, expected = moments, content(scratch / "whole")
left = 0
for moment in range(first, last + 1, 3):
    cache = scratch / str(moment)
    assert prepare_and_die(cache, moment) == -signal.SIGKILL, moment
    left += any(path.suffix == ".part" for path in cache.glob("corpora/*"))
    prepare(cache)
    assert content(cache) == expected, moment
print(json.dumps({"moments": last, "files": len(expected), "left": left}))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("on_error", "first"), [("raise", 1), ("skip", 2)])
def test_after_a_kill_at_any_moment_the_same_store_is_made(
    tiny_source: Path, tmp_path: Path, on_error: str, first: int
) -> None:
    if on_error == "skip":
        papers = json.loads((tiny_source / "papers.json").read_text())
        (tiny_source / "papers.json").write_text(json.dumps({"bad": {"title": 3}, **papers}))
    (tmp_path / "scratch").mkdir()
    command = [
        sys.executable,
        "-c",
        KILLED,
        str(tiny_source),
        str(tmp_path / "scratch"),
        on_error,
        str(first),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    counted = json.loads(done.stdout.splitlines()[-1])
    assert counted["files"] > 20 and counted["moments"] > 40 and counted["left"] > 10
