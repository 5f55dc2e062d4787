"""Reads PDFs, and JATS and TEI, in processes of their own with limits of time and memory, so that no file
costs more than a line of the report.

`python -m citerec.library.evidence.reading` is such a process: it reads names of files, as JSON, line by
line, and answers each with a line, a `ReadText`.
"""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, as_completed, wait
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import msgspec

from citerec.base.errors import InputError, error_text
from citerec.formats.articles.citing import Entry, Mark, find_marks
from citerec.formats.articles.pdf_layout import PdfParagraph, abstract_in
from citerec.formats.bibliography.attachments import XML
from citerec.formats.identifiers import ARXIV_ID
from citerec.library.evidence.passages import cut

if TYPE_CHECKING:
    from citerec.formats.articles.pdf import PdfText
    from citerec.formats.documents import FullText, Metadata, Paragraph, Reference

READER = 4
"""Increase it when PDFs are read differently: libraries then read theirs again."""
SECONDS = 60.0
"""Time to read a PDF."""
MEMORY = 1 << 30
"""Bytes of address space of a process that reads PDFs (not on macOS and Windows)."""
MAX_BYTES = 300_000_000
"""Size of a PDF that is read."""
_DOI = re.compile(r"\b10\.\d{4,9}/[^\s\"<>,;]+[^\s\"<>,;.)\]]")
_ARXIV = re.compile(rf"arxiv\s*:\s*({ARXIV_ID})", re.IGNORECASE)
MAX_IDENTIFIERS = 20
MAX_NAMES = 10
"""Authors of an entry in XML that are kept."""
HEAD = 2000
"""Characters of the first page that are kept to find the paper."""


class ReadText(msgspec.Struct, frozen=True, kw_only=True):
    """What was read of a file. problem: why nothing was, or not all. head: the beginning of the first page;
    identifiers: on this page, in order ("doi:10.1/a", "arxiv:2101.00001"). entries: of the list of
    references; marks: places in the passages (TextStore) that cite them; a text that has marks when it is
    read is not cut: its parts are its passages. labels: as of PdfText."""

    problem: str = ""
    title: str = ""
    head: str = ""
    abstract: str = ""
    identifiers: list[str] = []
    pages: int = 0
    parts: list[PdfParagraph] = []
    entries: list[Entry] = []
    marks: list[Mark] = []
    labels: list[str] = []

    @classmethod
    def of(cls, text: PdfText) -> ReadText:
        (paragraphs, entries), *chapters = text.chapters
        begin = abstract_in(text.paragraphs).start  # before it are title, authors and notes
        named = [f"arxiv:{found_id[1]}" for found_id in _ARXIV.finditer(text.first)]
        named += [f"doi:{found_doi[0].lower()}" for found_doi in _DOI.finditer(text.first)]
        return cls(
            problem=f"only the first {text.read:,} of {text.pages:,} pages were read"
            if text.read < text.pages
            else "",
            title=text.title,
            head=text.first[:HEAD],
            abstract=text.abstract,
            identifiers=list(dict.fromkeys(named))[:MAX_IDENTIFIERS],
            pages=text.pages,
            labels=text.labels,
            **_joined([(paragraphs[begin:], entries), *chapters]),
        )


def _joined(chapters: Sequence[tuple[list[PdfParagraph], list[Entry]]]) -> dict[str, Any]:
    """Return parts and entries of a text; of several chapters, also the marks, which cite their lists."""
    if len(chapters) == 1:
        return {"parts": chapters[0][0], "entries": chapters[0][1]}
    parts, entries, marks = list[PdfParagraph](), list[Entry](), list[Mark]()
    for paragraphs, listed in chapters:
        passages = cut(paragraphs)
        for text, start, end, rows in find_marks([passage.text for passage in passages], listed):
            marks.append(Mark(len(parts) + text, start, end, tuple(len(entries) + row for row in rows)))
        parts += [PdfParagraph(passage.text, tuple(passage.starts), passage.section) for passage in passages]
        entries += listed
    return {"parts": parts, "entries": entries, "marks": marks}


def read_files(
    files: Iterable[Path], workers: int = 0, seconds: float = SECONDS, memory: int = MEMORY
) -> Iterator[tuple[Path, ReadText]]:
    """Yield what was read of each file, as they finish. workers: number of processes, 0: one per core."""
    workers = workers or os.cpu_count() or 1
    free: SimpleQueue[_Process] = SimpleQueue()
    processes = [_Process(seconds, memory) for _ in range(workers)]
    for process in processes:
        free.put(process)

    def read(file: Path) -> tuple[Path, ReadText]:
        process = free.get()
        try:
            return file, process.read(file)
        finally:
            free.put(process)

    with ThreadPoolExecutor(workers) as pool:
        try:
            running: set[Future[tuple[Path, ReadText]]] = set()
            for file in files:
                running.add(pool.submit(read, file))
                if len(running) > 2 * workers:
                    done, running = wait(running, return_when=FIRST_COMPLETED)
                    yield from (future.result() for future in done)
            yield from (future.result() for future in as_completed(running))
        finally:  # before the threads end, which may wait for a process
            for process in processes:
                process.close()


class _Process:
    """A process that reads PDFs, started when it is first needed, and again after a PDF has ended it."""

    def __init__(self, seconds: float, memory: int) -> None:
        self._seconds, self._memory = seconds, memory
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False

    def read(self, file: Path) -> ReadText:
        if problem := unreadable(file):
            return ReadText(problem=problem)
        text, how = self._ask(file)
        if text is None and how not in ("slow", "closed"):  # perhaps not because of what this PDF contains
            text, how = self._ask(file)
        if text is None:
            slow = f"takes more than {self._seconds:g} s"
            crash = f"ended the process that reads it ({how}); it may be damaged, or need too much memory"
            return ReadText(problem=slow if how == "slow" else crash)
        return text

    def _ask(self, file: Path) -> tuple[ReadText | None, str]:
        """Return the answer, or None and how the process has ended."""
        if self._closed:
            return None, "closed"
        process = self._process = self._process or self._start()
        assert process.stdin is not None and process.stdout is not None
        slow = threading.Event()

        def end() -> None:
            slow.set()
            process.kill()

        timer = threading.Timer(self._seconds, end)
        timer.daemon = True
        timer.start()
        line = b""
        try:
            with suppress(BrokenPipeError, ValueError):  # ValueError: `close` has closed the pipes
                process.stdin.write(msgspec.json.encode(str(file)) + b"\n")
                process.stdin.flush()
                line = process.stdout.readline()
        finally:
            timer.cancel()
            timer.join()
        if line.endswith(b"\n"):
            return msgspec.json.decode(line, type=ReadText), ""
        self._process = None
        _end(process)
        return None, "slow" if slow.is_set() else _exit_name(process.returncode)

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-P", "-m", __name__, str(self._memory)]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)

    def close(self) -> None:
        self._closed = True
        if (process := self._process) is not None:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and close its pipes."""
    process.kill()
    with suppress(OSError), process:  # which waits for it
        pass


def _exit_name(code: int) -> str:
    try:
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"
    except ValueError:
        return f"signal {-code}"


def unreadable(file: Path) -> str:
    """Return why a file is not opened at all; "" if it is."""
    try:
        status = file.stat()
    except FileNotFoundError:
        return "no such file"
    except OSError as error:
        return error.strerror or "cannot be opened"
    if not stat.S_ISREG(status.st_mode):
        return "is not a file"
    if status.st_size > MAX_BYTES:
        return f"has {status.st_size / 1e6:,.0f} MB; at most {MAX_BYTES / 1e6:,.0f} are read"
    return ""


def main() -> None:
    """Answer the files that are named on stdin."""
    _limit(int(sys.argv[1]))
    # what libraries print must not come between the answers
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    for line in sys.stdin.buffer:
        answers.write(msgspec.json.encode(read_here(msgspec.json.decode(line, type=str))) + b"\n")
        answers.flush()


def read_here(file: str | Path) -> ReadText:
    """Read a PDF, or JATS or TEI, in this process."""
    from citerec.formats.articles.pdf import read_pdf

    try:
        return read_xml(Path(file)) if str(file).lower().endswith(XML) else ReadText.of(read_pdf(file))
    except (InputError, OSError) as error:
        return ReadText(problem=error_text(error).removeprefix(f"{file}: "))
    except MemoryError:
        return ReadText(problem="needs too much memory")


def open_xml(file: Path) -> tuple[Metadata, FullText]:
    """Return what JATS or TEI says of a paper, and its text. Raises InputError without a running text."""
    from citerec.formats.articles.jats import read_jats
    from citerec.formats.articles.tei import read_tei
    from citerec.formats.articles.xml_documents import read_trees

    with file.open("rb") as content:
        root = next(read_trees(content, str(file)))
    document = (read_tei if root.tag == "TEI" else read_jats)(root, file.stem, str(file))
    text = document.full_text() if document.full_text else None
    if text is None or not text.paragraphs:
        raise InputError("has no running text")
    return document.metadata, text


def xml_marks(paragraphs: Iterable[Paragraph], references: Iterable[str]) -> list[Mark]:
    """Return the marks in paragraphs that cite entries of a list, by their names."""
    rows, marks = {name: row for row, name in enumerate(references)}, dict[tuple[int, int, int], list[int]]()
    for number, paragraph in enumerate(paragraphs):
        for start, end, ref in paragraph.citations:
            if ref in rows:
                marks.setdefault((number, start, end), []).append(rows[ref])
    return [Mark(*place, tuple(dict.fromkeys(cited))) for place, cited in marks.items()]


def read_xml(file: Path) -> ReadText:
    """Read JATS or TEI, whose marks say which entries they cite. Raises InputError without a running text."""
    about, (paragraphs, references) = open_xml(file)
    return ReadText(
        title=about.title,
        head=about.title,
        abstract=about.abstract,
        identifiers=[*about.identifiers],
        parts=[PdfParagraph(paragraph.text, ((0, 0),), paragraph.section) for paragraph in paragraphs],
        entries=[Entry(0, _printed(reference)) for reference in references.values()],
        marks=xml_marks(paragraphs, references),
    )


def _printed(entry: Reference) -> str:
    """Return an entry in the form from which its content can be read (formats.articles.citing)."""
    if not entry.title:
        return entry.text
    names = " and ".join(entry.authors[:MAX_NAMES])
    return f"{names}: “{entry.title}.” {entry.year or ''} {' '.join(entry.identifiers)}".strip(" :")


def _limit(memory: int) -> None:
    """Limit this process: its memory, and that it writes no file."""
    if sys.platform == "linux":
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    main()
