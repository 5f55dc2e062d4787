"""Source files at URLs: copied once, copied again when they change, and clear errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from datasets import files as remote
from datasets.errors import InputError
from datasets.prepare import open_corpus


@pytest.fixture
def bucket(tiny_source: Path) -> Iterator[str]:
    """The files of `tiny_source` in a file system in memory."""
    system = fsspec.filesystem("memory")
    for path in tiny_source.iterdir():
        system.pipe(f"/bucket/data/{path.name}", path.read_bytes())
    yield "memory://bucket/data"
    system.rm("/bucket", recursive=True)


def test_a_store_of_a_url_is_that_of_the_files(bucket: str, tiny_source: Path, tmp_path: Path) -> None:
    there = open_corpus(bucket, cache_dir=tmp_path / "there")
    here = open_corpus(tiny_source, cache_dir=tmp_path / "here", name="data")
    assert there.name == "data"
    assert there.path.name == here.path.name
    for path in here.path.iterdir():
        assert path.read_bytes() == (there.path / path.name).read_bytes()


def test_files_are_copied_once_and_again_when_they_change(bucket: str, tmp_path: Path) -> None:
    stems = ["papers", "contexts", "train", "val", "test"]
    first = remote.local_folder(bucket, stems, tmp_path)
    times = {path.name: path.stat().st_mtime_ns for path in first.iterdir()}
    assert remote.local_folder(bucket, stems, tmp_path) == first
    assert times == {path.name: path.stat().st_mtime_ns for path in first.iterdir()}
    fsspec.filesystem("memory").pipe("/bucket/data/val.json", b"[]")
    again = remote.local_folder(bucket, stems, tmp_path)
    assert (again / "val.json").read_bytes() == b"[]"
    assert (first / "val.json").read_bytes() != b"[]"


def test_papers_may_lie_elsewhere(bucket: str, tiny_source: Path, tmp_path: Path) -> None:
    (tiny_source / "papers.json").rename(tmp_path / "moved.json")
    corpus = open_corpus(tiny_source, papers=f"{bucket}/papers.json", cache_dir=tmp_path / "cache")
    assert len(corpus.paper_ids) == 12


def test_a_url_of_a_file_is_the_file_itself(tiny_source: Path, tmp_path: Path) -> None:
    url = f"file://{tiny_source}"
    assert remote.local_folder(url, ["papers"], tmp_path) == tiny_source
    assert len(open_corpus(url, cache_dir=tmp_path / "cache").paper_ids) == 12
    assert not (tmp_path / "cache" / "remote").exists()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("memory://bucket/nothing", "none of the files is there: papers.json, contexts.json, train.json"),
        ("nosuch://bucket/data", "nosuch"),
        ("http://127.0.0.1:9/data", "none of the files is there|cannot be read|install"),
    ],
)
def test_what_cannot_be_read_is_one_line(url: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message) as caught:
        open_corpus(url, cache_dir=tmp_path)
    assert str(caught.value).startswith(url)
    assert "\n" not in str(caught.value)


def test_a_copy_that_is_cut_short_is_not_used(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = fsspec.filesystem("memory")
    monkeypatch.setattr(type(system), "size", lambda self, path: 10**9)
    with pytest.raises(InputError, match=r"bytes came of 1,000,000,000; run again"):
        remote.local_folder(bucket, ["papers"], tmp_path / "cache")
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
