"""Libraries that are asked without being built, and what a user hears who names none."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from citerec.library.ask import temporary
from citerec.library.ask.temporary import temporary_library
from citerec.library.papers.library import Library
from citerec.tests.conftest import Run
from citerec.tests.library.commands.test_watch import entries, started
from citerec.tests.library.sources.zotero import Zotero


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder of a user without Zotero."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path


@pytest.fixture
def run(folder: Path, command: Run) -> Run:
    """Runs `citerec COMMAND ...` in that folder: (exit code, stdout, stderr)."""
    return command


@pytest.mark.slow
def test_a_file_is_asked_without_building(run: Run, folder: Path) -> None:
    Path("papers.bib").write_text(entries("Parsing trees", "Graphs of words"), encoding="utf-8")
    assert (
        run("ask", "papers.bib", "trees are parsed [CITE]", "k=1", "format=cite")[1]
        == "\\cite{Parsingtrees}\n"
    )
    [cached] = temporary.cache().iterdir()
    assert cached.is_relative_to(folder / "home") and cached.parent.stat().st_mode & 0o77 == 0
    made = (cached / "library.json").stat().st_mtime_ns
    assert run("search", "papers.bib", "graphs", "words", "format=cite")[1] == "\\cite{Graphsofwords}\n"
    assert (cached / "library.json").stat().st_mtime_ns == made, "an unchanged file is not read again"
    Path("papers.bib").write_text(entries("Songs of birds"), encoding="utf-8")
    assert run("search", "papers.bib", "birds", "format=cite")[1] == "\\cite{Songsofbirds}\n"
    assert run("search", "library=papers.bib", "graphs")[2] == "papers.bib: nothing has “graphs”\n"
    (Library.open(cached).folder / "records.values.npy").write_bytes(b"damage")
    assert run("search", "papers.bib", "birds", "format=cite")[1] == "\\cite{Songsofbirds}\n"
    Path("papers.bib").write_text("", encoding="utf-8")
    code, out, err = run("search", "papers.bib", "birds")
    assert (code, out) == (
        2,
        "",
    ) and err == f"error: {Path('papers.bib').resolve()}: is empty; export it again\n"


def test_zotero_is_asked_without_building(run: Run, folder: Path) -> None:
    items = [
        {"key": f"KEY{n}", "itemType": "book", "title": f"Title {n}", "citationKey": f"k{n}"}
        for n in range(3)
    ]
    database = Zotero(items).write(folder / "home" / "Zotero" / "zotero.sqlite")
    assert run("search", "zotero", "title", "2", "format=cite", "k=1")[1] == "\\cite{k2}\n"
    database.unlink()
    code, _, err = run("search", "zotero", "title", "2")
    assert code == 2 and "Zotero has no database here; name it" in err and err.count("\n") == 1
    assert err.endswith("as in ~/Zotero/zotero.sqlite\n")
    assert run("search", "zotero://x", "title")[2].startswith("error: zotero://x: write zotero, ")


def test_the_least_recently_used_libraries_leave(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(temporary, "MOST", 2)
    names = ["a.bib", "b.bib", "c.bib"]
    for name in names:
        Path(name).write_text(entries("A title"), encoding="utf-8")
    first, second = (temporary_library(name).path for name in names[:2])
    os.utime(second / "library.lock", (1, 1))
    assert temporary_library("a.bib").path == first and second.exists()
    third = temporary_library("c.bib").path
    assert {*temporary.cache().iterdir()} == {first, third}
    monkeypatch.setattr(temporary, "MOST_BYTES", 1)
    assert {temporary_library("a.bib").path} == {*temporary.cache().iterdir()} == {first}


FOUND = "error: library is required; found {}; go on with: {}\n"


@pytest.mark.parametrize(
    ("files", "arguments", "line"),
    [
        (["a.bib"], ["ask", "Adam [CITE]"], FOUND.format("a.bib", "citerec ask a.bib ...")),
        (["my refs.bib"], ["search", "x"], FOUND.format("my refs.bib", "citerec search 'my refs.bib' ...")),
        (
            ["a.bib", "b.bib"],
            ["ask", "x"],
            FOUND.format("a.bib, b.bib", "citerec ask a.bib ..."),
        ),
        (
            ["a.bib", "c/b.bib"],
            ["serve"],
            FOUND.format("a.bib, c/b.bib", "citerec serve a.bib ..."),
        ),
        (
            ["a.bib", "mine/library.json"],
            ["ask", "x"],
            FOUND.format("mine, a.bib", "citerec ask mine ..."),
        ),
        (
            ["a.bib", "mine/library.json"],
            ["update"],
            FOUND.format("mine", "citerec update mine ..."),
        ),
        (["a.bib"], ["update"], "error: library is required, as in citerec update my-library: a folder fr"),
        ([], ["ask", "x"], "error: library is required, as in citerec ask papers.bib: a file of papers, z"),
        (["refs/a.bib"], ["ask", "refs", "x"], "error: refs: is not a library (it has no library.json); "
         "create one with citerec build library=my-library source=refs\n"),
        (["refs/library.lock"], ["info", "refs"], "error: refs: is not a library (it has no library.json); "
         "create one with citerec build library=refs\n"),
        (["a.bib"], ["update", "a.bib"], "error: a.bib: is a file, not a library; create one with citerec"),
    ],
)  # fmt: skip
def test_without_a_library_what_is_nearby_is_named(
    run: Run, files: list[str], arguments: list[str], line: str
) -> None:
    for name in files:
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).touch()
    code, out, err = run(*arguments)
    assert (code, out) == (2, "") and err.startswith(line) and err.count("\n") == 1


def test_the_library_to_build_is_the_first_argument(run: Run) -> None:
    Path("a.bib").write_text(entries("A title"), encoding="utf-8")
    assert run("build", "mine", "source=a.bib", "model=bm25")[1].startswith("mine: 1 paper, ")
    assert run("build", "mine", "overwrite=true")[1].startswith("mine: 1 paper, ")
    assert run("build", "library=a.bib", "a.bib")[2] == "error: library=a.bib: is a file; name a folder\n"
    assert run("add", "mine")[2].startswith("error: source is required, as in source=papers.bib")
    assert run("add", "mine", "fulltext=true")[:2] == (0, "full texts: 0 papers, 0 passages; 0 PDFs read\n")
    assert run("build", "mine")[::2] == (
        2,
        "error: source is required, as in source=papers.bib: files of papers\n",
    )
    assert run("build")[2] == (
        "error: library is required, as in library=my-library: folder of the library; `library=` may be "
        "omitted in the first place\n"
    )


def test_the_command_alone_says_how_to_go_on(folder: Path) -> None:
    Zotero([]).write(folder / "home" / "Zotero" / "zotero.sqlite")
    Path("a.bib").touch()
    code = "import sys, citerec.__main__ as m; m.main(); assert 'numpy' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    found, _, command, _, last = done.stdout.splitlines()
    assert found == "Found a.bib, zotero. Go on with:"
    assert command == '    citerec ask a.bib "A sentence that lacks a citation [CITE]."'
    assert last == "citerec --help lists all commands."


@pytest.mark.slow
def test_an_interrupt_leaves_nothing_half_built(folder: Path) -> None:
    Path("a.bib").write_text(entries(*(f"Title {number}" for number in range(3000))), encoding="utf-8")
    with started("search", "a.bib", "title") as process:
        while process.poll() is None and not [*temporary.cache().glob("*/generations/*")]:
            time.sleep(0.001)
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == ""
        assert process.stderr.read() == "interrupted\n" and process.wait(120) == 130
    assert [*temporary.cache().iterdir()] == []
