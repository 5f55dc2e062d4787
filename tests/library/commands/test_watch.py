"""A library that follows its sources."""

from __future__ import annotations

import logging
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import requests

from citerec.base.errors import InputError
from citerec.library.commands.change import build
from citerec.library.papers import watch as module
from citerec.library.papers.building import refresh
from citerec.library.papers.library import Library
from citerec.library.papers.watch import watching
from citerec.library.settings import BuildSettings
from citerec.tests.library.conftest import papers_of
from citerec.tests.library.sources.zotero import Zotero


def entries(*titles: str) -> str:
    return "".join(f"@misc{{{title.replace(' ', '')}, title={{{title}}}}}\n" for title in titles)


@pytest.fixture
def folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(module, "TICK", 0.05)
    caplog.set_level(logging.INFO, module.__name__)
    yield tmp_path


def titles() -> list[str]:
    return sorted(paper.title for paper in papers_of(Library.open("mine")))


def wait_for(condition: Callable[[], bool]) -> None:
    for _ in range(2400):
        if condition():
            return
        time.sleep(0.05)
    pytest.fail("nothing has happened")


def write(path: str, *found: str) -> Path:
    Path(path).write_text(entries(*found), encoding="utf-8")
    return Path(path)


def started(*arguments: str) -> Any:
    """A process of citerec, and what it prints."""
    command = [sys.executable, "-m", "citerec", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def make(*sources: str) -> None:
    build(BuildSettings(library="mine", source=sources, model="bm25"))


@pytest.mark.slow
def test_files_folders_and_patterns(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    write("a.bib", "One", "Two")
    (folder / "refs" / "deep").mkdir(parents=True)
    write("refs/deep/b.bib", "Three")
    write("x1.bib", "Four")
    make("a.bib", "refs", "x*.bib")
    write("a.bib", "One", "Two", "Before the watch")
    with watching("mine"):
        wait_for(lambda: "Before the watch" in titles())
        write("a.bib", "One", "Two", "Five")
        wait_for(lambda: "Five" in titles() and "Before the watch" not in titles())
        write("new.bib", "Six").rename("refs/deep/new.bib")
        wait_for(lambda: "Six" in titles())
        (folder / "refs" / "later").mkdir()
        write("refs/later/c.bib", "Seven")
        wait_for(lambda: "Seven" in titles())
        write("x2.bib", "Eight")
        wait_for(lambda: "Eight" in titles())
        Path("x2.bib").unlink()
        wait_for(lambda: "Eight" not in titles())
        Path("refs").rename("away")
        wait_for(lambda: "refs: no such file" in caplog.text)
        Path("away").rename("refs")
        write("refs/deep/d.bib", "Nine")
        wait_for(lambda: "Nine" in titles())
    generation = Library.open("mine").manifest.generation
    write("a.bib", "One", "Nobody watches")
    assert Library.open("mine").manifest.generation == generation
    lines = [record.getMessage().partition(": ")[2].partition(";")[0] for record in caplog.records]
    one, another = "1 added, 0 removed, 0 replaced", "1 added, 1 removed, 0 replaced"
    assert lines[:3] == [one, another, one]


def test_a_file_that_is_half_written_or_gone_is_waited_for(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write("a.bib", *(f"Number {number}" for number in range(10)))
    make("a.bib")
    with watching("mine"):
        wait_for(lambda: len(titles()) == 10)
        Path("a.bib").write_text("@misc{half, ti", encoding="utf-8")
        wait_for(lambda: "a.bib: has no usable paper" in caplog.text)
        write("a.bib", "Number 1")
        wait_for(lambda: "9 of 10 papers would be removed" in caplog.text)
        Path("a.bib").unlink()
        wait_for(lambda: "a.bib: no such file" in caplog.text)
        write("a.bib", *(f"Number {number}" for number in range(11)))
        wait_for(lambda: len(titles()) == 11)


def test_nothing_is_read_while_nothing_changes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    updates: list[str] = []
    update = module._update

    def count(path: Path, before: str) -> str:
        updates.append(before)
        return update(path, before)

    monkeypatch.setattr(module, "_update", count)
    write("a.bib", "One")
    make("a.bib")
    with watching("mine"):
        wait_for(lambda: len(updates) == 1)  # at the start
        time.sleep(0.5)
        assert len(updates) == 1
        write("a.bib", "One", "Two")
        wait_for(lambda: len(titles()) == 2)
        assert len(updates) == 2


def test_a_full_text_that_comes_after_its_entry_is_read(folder: Path) -> None:
    Path("a.bib").write_text("@misc{a, title={One}, file={late.xml}}", encoding="utf-8")
    build(BuildSettings(library="mine", source=("a.bib",), model="bm25", fulltext=True))
    with watching("mine"):
        time.sleep(0.5)
        front = "<front><article-meta><article-id>1</article-id></article-meta></front>"
        text = "We grow moss on stones in the north, and measure how long it takes in each of the seasons."
        Path("late.xml").write_text(f"<article>{front}<body><p>{text}</p></body></article>", "utf-8")
        wait_for(lambda: Library.open("mine").full_texts is not None)


def test_zotero_by_its_database(folder: Path) -> None:
    zotero = Zotero([{"key": f"KEY{n}", "itemType": "book", "title": f"Title {n}"} for n in range(9)])
    path = zotero.write(folder / "Zotero" / "zotero.sqlite")
    make("zotero")
    with watching("mine"), closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("PRAGMA locking_mode = EXCLUSIVE")
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("INSERT INTO deletedItems VALUES (1, 0)")
        wait_for(lambda: titles() == [f"Title {n}" for n in range(1, 9)])
        writer.execute("UPDATE itemDataValues SET value = 'Changed' WHERE value = 'Title 8'")
        wait_for(lambda: "Changed" in titles())


def test_a_zotero_that_lost_papers_empties_no_library(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    zotero = Zotero([{"key": f"KEY{n}", "itemType": "book", "title": f"Title {n}"} for n in range(40)])
    path = zotero.write(folder / "Zotero" / "zotero.sqlite")
    make("zotero")
    assert not refresh("mine").written
    with closing(sqlite3.connect(path)) as damage, damage:  # most items have lost their data
        damage.execute("DELETE FROM itemData WHERE itemID > 1")
    line = "39 of 40 papers would be removed, since zotero changed; check"
    with pytest.raises(InputError, match=line):
        refresh("mine")
    with watching("mine"):
        wait_for(lambda: line in caplog.text)
        time.sleep(0.5)
    assert caplog.text.count("would be removed") == 1
    assert len(titles()) == 40
    assert refresh("mine", force=True)[1:] == (0, 39, 0, True, 0)


def test_a_library_that_goes_is_no_longer_watched(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    write("a.bib", "One")
    make("a.bib")
    Path("mine").rename("other")
    with watching("mine"):
        wait_for(lambda: "mine: no such folder; " in caplog.text)


@pytest.mark.slow
def test_the_command_ends_with_an_interrupt(folder: Path) -> None:
    write("a.bib", "One")
    make("a.bib")
    with started("update", "library=mine", "watch=true") as process:
        assert process.stdout.readline() == f"watching {folder / 'a.bib'}; Ctrl-C ends\n"
        write("a.bib", "One", "Two")
        assert ": 1 added, 0 removed" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert (process.stdout.read(), process.stderr.read(), process.wait(120)) == ("", "", 0)
    assert titles() == ["One", "Two"]


@pytest.mark.slow
def test_a_server_of_a_file_follows_it(folder: Path) -> None:
    write("a.bib", "One")
    with started("serve", "a.bib", "port=0", "watch=true") as process:
        url, papers = process.stdout.readline().split("  ")
        assert papers == "1 paper of a.bib\n"
        write("a.bib", "One", "Two")
        search = f"{url}search?query=two"
        wait_for(lambda: len(requests.get(search, timeout=120).json()["papers"]) == 1)
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 0
        assert ": 1 added, 0 removed" in process.stderr.read()
