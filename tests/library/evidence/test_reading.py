"""PDFs that go wrong cost a line each, and nothing else."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import zlib
from pathlib import Path

import pytest

from citerec.formats.articles.citing import find_marks
from citerec.formats.articles.pdf import read_pdf
from citerec.library.evidence import reading, refresh
from citerec.library.evidence.reading import ReadText, read_files
from citerec.tests.made_pdfs import BOLD, made_paper, place_text, write_pdf

GOOD = made_paper(1, 600)


def zip_bomb(size: int = 1 << 29) -> bytes:
    """A PDF whose page is `size` bytes of spaces, compressed."""
    packer, block = zlib.compressobj(1), bytes(1 << 20).replace(b"\0", b" ")
    packed = b"".join([*(packer.compress(block) for _ in range(size >> 20)), packer.flush()])
    whole = write_pdf([place_text(60, 700, "text", 10)])
    start, end = whole.index(b"stream\n") + 7, whole.index(b"\nendstream")
    return re.sub(rb"/Length \d+", b"/Length %d" % len(packed), whole[:start] + packed + whole[end:], count=1)


def encrypted() -> bytes:
    """A PDF that says it is encrypted for an owner with another key."""
    whole = GOOD.pdf()
    about = b"/Encrypt << /Filter /Standard /V 1 /R 2 /O <%s> /U <%s> /P -4 >> /ID [<00> <00>] /Root"
    return whole.replace(b"/Root", about % (b"ab" * 32, b"cd" * 32))


def read(*files: Path, **limits: float) -> dict[str, ReadText]:
    return {file.name: found for file, found in read_files(files, workers=1, **limits)}  # type: ignore[arg-type]


def test_faults_cost_a_line_each(tmp_path: Path) -> None:
    good = GOOD.pdf()
    made = {
        "broken-table.pdf": good.replace(b"\nxref\n", b"\nxxxx\n"),
        "encrypted.pdf": encrypted(),
        "no-text.pdf": write_pdf([b""]),
        "wrong.pdf": b"<html>Not found</html>",
        "empty.pdf": b"",
        "good.pdf": good,
    }
    for name, content in made.items():
        (tmp_path / name).write_bytes(content)
    os.mkfifo(tmp_path / "pipe.pdf")
    (tmp_path / "loop.pdf").symlink_to("loop.pdf")
    (tmp_path / "folder.pdf").mkdir()
    names = [*made, "pipe.pdf", "loop.pdf", "folder.pdf", "vanished.pdf", "good.pdf"]
    found = read(*(tmp_path / name for name in names))
    assert {name: text.problem for name, text in found.items()} == {
        "broken-table.pdf": "",
        "encrypted.pdf": "needs a password",
        "no-text.pdf": "has no text; it may be a scan, which needs text recognition (OCR) first",
        "wrong.pdf": "is not a PDF, or is damaged",
        "empty.pdf": "is not a PDF, or is damaged",
        "good.pdf": "",
        "pipe.pdf": "is not a file",
        "loop.pdf": "Too many levels of symbolic links",
        "folder.pdf": "is not a file",
        "vanished.pdf": "no such file",
    }
    assert found["good.pdf"] == found["broken-table.pdf"]
    assert found["good.pdf"].title == GOOD.title
    assert found["good.pdf"].identifiers == ["doi:10.5555/made.1"]


@pytest.mark.parametrize("first", [[], ["Abstract"], ["1. Summary"]])
def test_a_summary_at_the_end_is_no_abstract(first: list[str]) -> None:
    sections, drawn = [*first, "1 Introduction", "2 Results", "3 Summary"], list[bytes]()
    for row, title in enumerate(["On hail", *sections]):
        text = place_text(60, 684 - 60 * row, f"Of {title} is said this and more.", 10)
        drawn += [place_text(60, 700 - 60 * row, title, 12, BOLD), text]
    found = ReadText.of(read_pdf(write_pdf([b"".join(drawn)])))
    assert found.abstract == "".join(f"Of {title} is said this and more." for title in first)
    assert [part.section for part in found.parts][-len(sections) :] == sections


def test_each_chapter_cites_its_own_list() -> None:
    rows = [f"Line {row} of a first chapter." for row in range(20)]
    for title in ("Bees dance", "Ants do not"):
        rows += ["References", "0.5", "Chapter", "It is [1].", "References", f"[1] Lee A. {title}. 2001."]
    bold = {"Chapter": BOLD}
    drawn = [place_text(60, 740 - 14 * i, row, 10, bold.get(row, "F1")) for i, row in enumerate(rows)]
    read = ReadText.of(read_pdf(write_pdf([b"".join(drawn)])))
    assert [entry.text for entry in read.entries] == ["Lee A. Bees dance. 2001.", "Lee A. Ants do not. 2001."]
    assert [mark.entries for mark in read.marks] == [(0,), (1,)]
    assert find_marks([part.text for part in read.parts], read.entries) == []  # which may mean two entries


@pytest.mark.slow
def test_a_zip_bomb_ends_its_process_alone(tmp_path: Path) -> None:
    (tmp_path / "bomb.pdf").write_bytes(zip_bomb())
    (tmp_path / "good.pdf").write_bytes(GOOD.pdf())
    found = read(tmp_path / "bomb.pdf", tmp_path / "good.pdf", memory=300 << 20)
    assert re.match(
        "ended the process that reads it|needs too much memory|has no text", found["bomb.pdf"].problem
    )
    assert found["good.pdf"].problem == ""


def test_of_ten_thousand_pages_the_first_are_read(tmp_path: Path) -> None:
    pages = [
        place_text(60, 700, f"page {i:x} of a long document has this text alone", 10) for i in range(10_000)
    ]
    (tmp_path / "long.pdf").write_bytes(write_pdf(pages, compress=False))
    found = read(tmp_path / "long.pdf")["long.pdf"]
    assert found.problem == "only the first 1,000 of 10,000 pages were read"
    assert found.pages == 10_000
    shown = " ".join(part.text for part in found.parts)
    assert "page a of" in shown and "page 3e7 of" in shown and "page 3e8 of" not in shown


def test_a_text_that_is_cut_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = [place_text(60, 700, "a page of a document that has much text", 10)] * 3
    (tmp_path / "a.pdf").write_bytes(write_pdf(pages))
    monkeypatch.setattr("citerec.formats.articles.pdf.MAX_CHARACTERS", 50)
    assert reading.read_here(tmp_path / "a.pdf").problem == "only the first 2 of 3 pages were read"
    (tmp_path / ".zotero-ft-cache").write_text("many words " * 9)
    monkeypatch.setattr(refresh, "MAX_CHARACTERS", 50)
    assert refresh.read_cache(tmp_path / "a.pdf").problem == "only the first 50 characters were read"


def test_a_slow_pdf_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading._Process, "_start", lambda self: sleeping_process())
    (tmp_path / "slow.pdf").write_bytes(GOOD.pdf())
    assert read(tmp_path / "slow.pdf", seconds=0.2)["slow.pdf"].problem == "takes more than 0.2 s"


def sleeping_process() -> object:
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def test_a_killed_process_is_started_again(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(GOOD.pdf())
    process = reading._Process(60, reading.MEMORY)
    try:
        assert process.read(tmp_path / "a.pdf").problem == ""
        assert process._process is not None
        os.kill(process._process.pid, signal.SIGKILL)
        assert process.read(tmp_path / "a.pdf").problem == ""
    finally:
        process.close()


def test_the_processes_end_with_their_reader(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(GOOD.pdf())
    before = {*threading.enumerate()}
    texts = read_files([tmp_path / "a.pdf"] * 20, workers=2)
    next(texts)
    texts.close()  # type: ignore[attr-defined]
    for thread in {*threading.enumerate()} - before:
        thread.join(120)  # a timer may be about to end
        assert not thread.is_alive(), thread
