"""The command `citerec`."""

from __future__ import annotations

import errno
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from citerec.base.errors import error_line
from citerec.recommend import COMMANDS as LIBRARY

pytestmark = pytest.mark.usefixtures("nothing_nearby")
_PROGRAM = runpy.run_module("citerec.__main__")  # not an import: other tests run it as a program
COMMANDS, main = _PROGRAM["COMMANDS"], _PROGRAM["main"]


@pytest.fixture
def nothing_nearby(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither .bib files nor Zotero."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.mark.parametrize(
    ("arguments", "code", "out", "err"),
    [
        ("", 0, "citerec COMMAND key=value", ""),
        ("--help", 0, "citerec COMMAND key=value", ""),
        ("--version", 0, "citerec 0.", ""),
        ("ask --help", 0, "citerec ask: Recommend papers", ""),
        ("help draft", 0, "citerec draft: Suggest papers", ""),
        ("help data build", 0, "citerec data build: Build a corpus", ""),
        ("traim model=x", 2, "", "error: citerec traim: no such command; did you mean citerec train?"),
        (
            "data dowload",
            2,
            "",
            "error: citerec data dowload: no such command; did you mean citerec data download?",
        ),
        ("data", 0, "citerec data COMMAND key=value ", ""),
        ("model --help", 0, "citerec model COMMAND key=value ", ""),
        ("xyz", 2, "", "error: citerec xyz: no such command; citerec --help lists the commands"),
    ],
)
def test_the_command(
    arguments: str, code: int, out: str, err: str, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("sys.argv", ["citerec", *arguments.split()])
    try:
        main()
        ended: object = 0
    except SystemExit as end:
        ended = end.code
    printed = capsys.readouterr()
    assert ended == code and printed.out.startswith(out) and printed.err.startswith(err)


@pytest.mark.slow
def test_nothing_that_windows_lacks_is_needed(tmp_path: Path) -> None:
    examples, folder = Path(__file__).parents[1] / "examples", tmp_path / "a drive" / "Bücher"
    shutil.copytree(examples, folder)
    commands = [
        ["build", "library=my library", "source=library.bib"],
        ["ask", "library=my library", "k=1", "Small worlds are walked [CITE]."],
        ["draft", "tex=draft.tex", "library=my library", "k=1", "fill=filled"],
        ["check", "draft.tex"],
        ["build", "library=my library", "source=library.bib", "overwrite=true"],
    ]
    code = f"""
import windows
windows.refuse()
import sys
from citerec.__main__ import main
for words in {commands!r}:
    sys.argv = ["citerec", *words]
    main()
"""
    environment = {**os.environ, "PYTHONIOENCODING": "cp1252", "LC_ALL": "C", "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = f"{environment.get('PYTHONPATH', '')}:{Path(__file__).parent}"
    command = [sys.executable, "-P", "-c", code]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True)
    assert done.returncode == 0, done.stderr.decode("cp1252")
    for line in ("malkov2020hnsw", "draft.tex: cites 1 key", "59 papers"):
        assert line in done.stdout.decode("cp1252")
    assert b"\\cite{malkov2020hnsw" in (folder / "filled" / "draft.tex").read_bytes()


def test_all_commands_are_listed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["citerec"])
    main()
    listed = capsys.readouterr().out
    assert all(f"\n  {name} " in listed for name in (*LIBRARY, *COMMANDS))


@pytest.mark.parametrize(
    ("program", "command"), [("citerec train", "citerec train"), ("some/train.py", "citerec train")]
)
def test_a_missing_extra_names_the_command(
    program: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", [program])
    line = error_line(ModuleNotFoundError(name="hydra.utils"))
    assert line == f"{command} (hydra.utils) needs the extra train: pip install 'citerec[train]'"


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OSError(errno.EROFS, "Read-only file system", "a"), "a: Read-only file system"),
        (OSError(errno.ENOSPC, "No space", "a"), "no space left on the device for a: "),
        (OSError(errno.EFBIG, "File too large"), "no space left on the device for the output: "),
        (OSError("11800 requested and 6112 written"), "no space left on the device for the output: "),
    ],
)
def test_disks_that_are_full_or_read_only(error: OSError, line: str) -> None:
    assert (error_line(error) or "").startswith(line)


def test_output_that_cannot_be_written_is_one_line() -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(
            [sys.executable, "-m", "citerec", "--help"], stdout=full, stderr=subprocess.PIPE
        )
    assert done.returncode == 2 and done.stderr.startswith(b"error: no space left on the device")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.slow
def test_a_reader_may_close_the_pipe() -> None:
    arguments = [sys.executable, "-m", "citerec", "train", "--help"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""


@pytest.mark.slow
def test_plans_of_drafts_run_by_their_command() -> None:
    plan = Path(__file__).parents[1] / "reproduce" / "drafts-2027.yaml"
    command = [sys.executable, "-m", "citerec", "results", str(plan), "jobs=[2027/builtin]"]
    result = subprocess.run(command, capture_output=True, encoding="utf-8")
    assert "drafts=drafts-2027: no such folder" in result.stdout


def test_an_interrupt_ends_with_130_wherever_it_comes(tmp_path: Path) -> None:
    lines = [
        "from citerec.base.errors import one_line_errors",
        'one_line_errors(lambda: exec("raise KeyboardInterrupt"))()',
    ]
    (tmp_path / "stopped.py").write_text("\n".join(lines), encoding="utf-8")
    command = [sys.executable, "-m", "stopped"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")
