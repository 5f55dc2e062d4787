"""Checksums of folders, full disks."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from citerec.base.checksums import (
    CHECKSUMS,
    check_checksums,
    write_checksums,
)
from citerec.base.errors import InputError, error_line, is_full
from citerec.base.files import (
    atomic_write,
    cache_folder,
    files_below,
    read_limited,
    user_cache,
)
from citerec.datasets.generate import open_demo


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with checksums, one subfolder, and another with checksums of its own."""
    for name in ("a.npy", "sub/b", "own/c"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("some content")
    write_checksums(tmp_path / "own")
    write_checksums(tmp_path)
    return tmp_path


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)


def test_unchanged_files_pass(folder: Path) -> None:
    (folder / "another").touch()
    flip(folder / "own/c")
    check_checksums(folder, "build it again")
    write_checksums(folder)
    check_checksums(folder, "build it again")


def test_listed_files_keep_their_checksums(folder: Path) -> None:
    (folder / "sub/b").unlink()
    (folder / "new").write_text("more")
    write_checksums(folder, keep=True)
    check_checksums(folder, "build it again")
    flip(folder / "a.npy")
    write_checksums(folder, keep=True)
    with pytest.raises(InputError, match=r"a\.npy: damaged"):
        check_checksums(folder, "build it again")


@pytest.mark.parametrize(
    ("damage", "line"),
    [
        (lambda folder: flip(folder / "a.npy"), "a.npy: damaged (its content has changed); build it again"),
        (
            lambda folder: (folder / "a.npy").write_text("some"),
            "a.npy: damaged (its size has changed); build it",
        ),
        (lambda folder: flip(folder / "sub/b"), "sub/b: damaged"),
        (lambda folder: (folder / "sub/b").unlink(), "sub/b: missing; build it again"),
        (lambda folder: (folder / "sub/b").write_text("some content and more"), "sub/b: damaged (its size"),
        (lambda folder: (folder / CHECKSUMS).unlink(), f"{CHECKSUMS}: missing; build it again"),
        (lambda folder: (folder / CHECKSUMS).write_text("{"), f"{CHECKSUMS}: damaged"),
        (lambda folder: (folder / CHECKSUMS).write_text("[1]"), f"{CHECKSUMS}: damaged"),
    ],
)
def test_damage_is_named(folder: Path, damage: Callable[[Path], None], line: str) -> None:
    damage(folder)
    with pytest.raises(InputError) as caught:
        check_checksums(folder, "build it again")
    assert str(caught.value).startswith(f"{folder}/{line}")


def test_a_folder_that_goes_while_its_files_are_listed_is_left_out(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scandir = os.scandir

    def scandir_of_a_folder_that_is_moved(path: str) -> object:
        if Path(path) == folder / "sub":
            (folder / "sub").rename(folder / "moved")
        return scandir(path)

    assert folder / "sub" / "b" in files_below(folder)
    monkeypatch.setattr(os, "scandir", scandir_of_a_folder_that_is_moved)
    result = files_below(folder)
    assert (
        folder / "a.npy" in result and folder / "own" / "c" in result and folder / "sub" / "b" not in result
    )


def test_files_are_read_again_only_if_they_were_touched(folder: Path) -> None:
    content, times = (folder / "sub/b").read_text(), (folder / "sub/b").stat()
    (folder / "sub/b").write_text(content.swapcase())
    with pytest.raises(InputError, match="sub/b: damaged"):
        check_checksums(folder)
    os.utime(folder / "sub/b", ns=(times.st_atime_ns, times.st_mtime_ns))
    check_checksums(folder)
    with pytest.raises(InputError, match="sub/b: damaged"):
        check_checksums(folder, trust=False)


def test_a_full_disk_that_numpy_reports_is_told_with_the_file(tmp_path: Path) -> None:
    with pytest.raises(OSError) as raised, atomic_write(tmp_path / "array"), open("/dev/full", "wb") as full:
        np.zeros(1 << 20).tofile(full)
    assert is_full(raised.value) and str(tmp_path / "array") in (error_line(raised.value) or "")


def test_downloads_and_prepared_data_are_in_the_users_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for unset in (
        lambda: monkeypatch.setenv("CITATION_CACHE", ""),
        lambda: monkeypatch.delenv("CITATION_CACHE"),
    ):
        unset()
        assert cache_folder() == user_cache() == tmp_path / "cache" / "citerec"
    monkeypatch.setenv("CITATION_CACHE", "~/shared")
    assert cache_folder() == Path.home() / "shared" and cache_folder("here") == Path("here")
    assert cache_folder("~nobody there/data") == Path("~nobody there/data")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CITATION_CACHE", str(tmp_path / "chosen"))
    open_demo(papers=120, contexts=300)
    assert [path.name for path in tmp_path.iterdir()] == ["chosen"]


def test_a_pipe_is_refused_instead_of_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.tex")
    for path in (tmp_path / "a.tex", Path("/dev/zero"), tmp_path):
        with pytest.raises(InputError, match=r"cannot be read: is a .*, not a file"):
            read_limited(path, 10)
