"""Disks that are full or read-only: one line, and nothing is lost (needs the right to mount one)."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from citerec.base.errors import InputError
from citerec.datasets.splitting import RandomSplitting
from citerec.tests.conftest import Run
from citerec.tests.datasets.conftest import build_corpus

Mount = Callable[[str], Path]


@pytest.fixture
def mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mount]:
    """Mounts a small disk at `disk` in the current folder, or changes its options."""
    monkeypatch.chdir(tmp_path)
    folder = Path("disk")
    folder.mkdir()

    def mount_(options: str) -> Path:
        again = ",remount" if folder.is_mount() else ""
        command = ["mount", "-t", "tmpfs", "-o", options + again, "tmpfs", str(folder)]
        if subprocess.run(command, capture_output=True).returncode:
            pytest.skip("may not mount a disk")
        return folder

    yield mount_
    if folder.is_mount():
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def run(mount: Mount, command: Run, tmp_path: Path) -> Run:
    """Runs a command beside a draft and a .bib file: (exit code, stdout, stderr)."""
    (tmp_path / "a.bib").write_text("@misc{one, title={Parsing trees}}\n@misc{two, title={Speech}}\n")
    (tmp_path / "draft.md").write_text("# Draft\n\nTrees are parsed [@?].\n")
    return lambda line: command(*line.split())


@pytest.mark.parametrize(
    "given",
    [
        "build library=disk/other source=a.bib model=bm25",
        "build library=disk/mine overwrite=true",
        "add library=disk/mine source=a.bib",
        "remove library=disk/mine id=one",
        "draft library=disk/mine tex=draft.md fill=disk/copy.md",
        "draft library=disk/mine tex=draft.md fill=disk/folder",
    ],
)
def test_a_read_only_disk_is_one_line(mount: Mount, run: Run, given: str) -> None:
    mount("size=4m")
    assert run("build library=disk/mine source=a.bib model=bm25")[0] == 0
    mount("ro")
    code, out, err = run(given)
    assert (code, out) == (2, "") and "Read-only file system" in err and err.count("\n") == 1
    assert err.startswith("error: disk/") or "/disk/" in err
    assert "library=disk/other" not in given or err.startswith("error: disk/other: ")
    assert not re.search(r"/tmp[a-z0-9_]{8}:|/\.\w", err), f"a temporary name: {err}"
    assert run("ask library=disk/mine trees k=1 format=cite")[:2] == (0, "\\cite{one}\n")


def test_a_corpus_on_a_read_only_disk_is_one_line(mount: Mount, tmp_path: Path) -> None:
    mount("ro")
    (tmp_path / "a.md").write_text("---\nbibliography: a.bib\n---\n# T\n\nTrees [@one].\n")
    (tmp_path / "a.bib").write_text("@misc{one, title={Parsing trees}}\n")
    with pytest.raises(
        InputError, match=r"^disk/corpus: Read-only file system; set output to another folder$"
    ):
        build_corpus("a.md", "disk/corpus", RandomSplitting(1, 0, 0, seed=0))
