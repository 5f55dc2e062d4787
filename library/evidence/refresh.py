"""Brings the full texts of a library up to date: reads new PDFs, forgets those of papers that are gone.

    LIBRARY/fulltexts/lock           locked by the process that does so
    LIBRARY/fulltexts/texts.sqlite   what was read (store)
    LIBRARY/fulltexts/N/             the index (index)

What is read is kept at once, so that a stopped command goes on where it was.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain, groupby
from pathlib import Path

from citerec.base.errors import InputError, count_noun
from citerec.base.files import disk_errors, expand_user, file_lock, read_limited, real_path
from citerec.base.progress import count_progress
from citerec.formats.articles.citing import split_references
from citerec.formats.articles.pdf_layout import KNOWN_HEADING, MAX_CHARACTERS, Line, PdfParagraph
from citerec.formats.bibliography.paper import LibraryPaper
from citerec.library.evidence import FOLDER
from citerec.library.evidence.files import PaperFinder, cache_of, folder_files, stamp_of
from citerec.library.evidence.index import CURRENT, update_index
from citerec.library.evidence.passages import Passage
from citerec.library.evidence.reading import HEAD, MAX_BYTES, ReadText, read_files, unreadable
from citerec.library.evidence.store import TextStore

LOCK = "lock"
KEPT_EVERY = 2.0
"""Seconds after which what was read is kept."""
_BROKEN = re.compile(r"(?<=[a-z])-\n(?=[a-z])")
KEPT = "no such file; its text is kept"
SHOWN = 10
"""Maximum number of problems to print."""


@dataclass
class TextReport:
    """What a refresh has done. problems: by file, what could not be read; lines: other messages. abstracts:
    how many were filled in. changed: whether the index did."""

    papers: int = 0
    passages: int = 0
    read: int = 0
    abstracts: int = 0
    changed: bool = False
    problems: dict[str, str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        counts = f"full texts: {count_noun(self.papers)}, {count_noun(self.passages, 'passage')}"
        filled = f"; {count_noun(self.abstracts, 'abstract')} filled in" if self.abstracts else ""
        lines = [f"{counts}; {count_noun(self.read, 'PDF')} read{filled}"]
        lines += [f"  {file}: {problem}" for file, problem in self.problems.items()]
        if len(lines) > SHOWN + 1:
            lines[SHOWN + 1 :] = [f"  ... and {len(lines) - SHOWN - 1:,} more"]
        return "\n".join([*lines, *self.lines])


def refresh_texts(
    library: Path,
    papers: Callable[[], Iterable[LibraryPaper]],
    *,
    pdfs: Sequence[str] = (),
    notes: Mapping[str, Sequence[Passage]] | None = None,
) -> TextReport:
    """Read the PDFs of papers, and index their passages.

    papers: yields them, anew for each call. pdfs: folders of PDFs of any of the papers. notes: what the user
    wrote or marked in a file, by file.
    """
    folder, notes = library / FOLDER, notes or {}
    with disk_errors(folder, "full texts", "library"):
        folder.mkdir(exist_ok=True)
        with (
            file_lock(folder / LOCK, "reads full texts"),
            closing(TextStore(folder, create=True)) as store,
        ):
            report = TextReport()
            reader = _Reader(store, report)
            texts = reader.texts_of(papers())
            texts |= reader.texts_in(pdfs, papers, texts)
            of_papers = {paper: notes[file] for paper, file in texts.items() if notes.get(file)}
            store.set_papers(texts, of_papers)
            before, total = store.get(CURRENT), sum(stored.passages for stored in store.papers())
            with count_progress("passages indexed", total) as advance:
                index = update_index(folder, store, advance)
            report.papers = len(texts)
            report.passages = 0 if index is None else len(index)
            report.changed = store.get(CURRENT) != before
            return report


class _Reader:
    """Reads files that the store does not know, or that have changed."""

    def __init__(self, store: TextStore, report: TextReport) -> None:
        self._store, self._report = store, report

    def texts_of(self, papers: Iterable[LibraryPaper]) -> dict[str, str]:
        """Return the file of each paper that names one with a text: the first that can be read."""
        places: dict[str, list[str]] = {}
        kept = self._store.known_files()
        for paper in papers:
            if paper.files:
                existing = [name for name in paper.files if stamp_of(Path(name))]
                places[paper.id] = existing + [
                    file for file in paper.files if file in kept and file not in existing
                ]
                if not places[paper.id]:
                    self._report.problems[paper.files[0]] = "no such file"
        files_of: dict[str, str] = {}
        while places := {paper: files for paper, files in places.items() if files and paper not in files_of}:
            self._read([files[0] for files in places.values()])
            readable = self._store.readable()
            files_of |= {paper: files[0] for paper, files in places.items() if files[0] in readable}
            places = {paper: files[1:] for paper, files in places.items()}
        self._report.problems |= {file: KEPT for file in files_of.values() if not stamp_of(Path(file))}
        return files_of

    def texts_in(
        self, pdfs: Sequence[str], papers: Callable[[], Iterable[LibraryPaper]], taken: Mapping[str, str]
    ) -> dict[str, str]:
        """Return the papers whose PDF is, or was, in a folder, other than those taken, each with its file."""
        files: list[str] = []
        for name in pdfs:
            inside, lines = folder_files(name)
            files += map(str, inside)
            self._report.lines += lines
        folders = [*map(expand_user, pdfs)]
        there = [folder for folder in folders if os.path.isdir(folder)]
        gone = {
            file: any(folder in Path(file).parents for folder in there)
            for file in self._store.known_files()
            if any(folder in Path(file).parents for folder in folders) and not stamp_of(Path(file))
        }
        of_others = set(taken.values())
        files = [file for file in (*files, *gone) if file not in of_others]
        matched = self._matched(files, papers, taken) if files else {}
        self._report.problems |= {file: KEPT for file in matched.values() if gone.get(file)}
        return matched

    def _matched(
        self, files: list[str], papers: Callable[[], Iterable[LibraryPaper]], taken: Mapping[str, str]
    ) -> dict[str, str]:
        self._read(files, without_text=True)
        finder, matches, unknown = PaperFinder(papers()), list[tuple[bool, int, int, str, str]](), 0
        readable = self._store.readable()
        for file, text in self._store.abouts(file for file in files if file in readable):
            (paper, way), is_gone = finder.find(Path(file), text), stamp_of(Path(file)) is None
            unknown += not paper and not is_gone
            if paper:  # of two alike, a copy has the longer name
                matches.append((is_gone, way, len(Path(file).name), file, paper))
        matched, others = dict[str, str](), list[str]()
        for is_gone, *_, file, paper in sorted(matches):
            if (taken.get(paper) or matched.setdefault(paper, file)) != file and not is_gone:
                others.append(Path(file).name)
        self._read(matched.values())  # whose texts were dropped while the library lacked the paper
        if others:
            names = ", ".join(others[:SHOWN])
            self._report.lines.append(f"  {count_noun(len(others), 'PDF')} of papers with another: {names}")
        if unknown:
            self._report.lines.append(f"  {count_noun(unknown, 'PDF')} of no paper in the library")
        return matched

    def _read(self, files: Iterable[str], without_text: bool = False) -> None:
        """Read files that are new or have changed, or whose text was dropped, unless `without_text`; of those
        that are not on this machine, the text that Zotero keeps."""
        files = list(files)
        stamps_before, stamps = self._store.known_files(without_text), dict[str, tuple[int, int]]()
        for file in files:
            if (stamp := stamp_of(Path(file))) and stamps_before.get(file) != stamp:
                stamps[file] = stamp
        is_here = {file: os.path.exists(file) for file in stamps}
        here = [Path(file) for file, there in is_here.items() if there]
        cached = ((Path(file), read_cache(Path(file))) for file, there in is_here.items() if not there)
        kept: list[tuple[str, int, int, ReadText]] = []
        last, read = time.monotonic(), 0
        with count_progress("PDFs read", len(stamps)) as advance:
            try:
                for path, text in chain(cached, read_files(here)):
                    size, changed = stamps[str(path)]
                    is_closed = not text.parts and not os.access(path, os.R_OK)  # until its mode changes
                    kept.append((str(path), size, -1 if is_closed else changed, text))
                    read += bool(text.parts or not text.problem)
                    advance(1)
                    if time.monotonic() - last > KEPT_EVERY:
                        self._store.put(kept)
                        kept, last = [], time.monotonic()
            finally:
                self._store.put(kept)
        self._report.read += read
        problems = self._store.problems()
        self._report.problems |= {file: problems[file] for file in files if file in problems}


def read_cache(file: Path) -> ReadText:
    """Return the text that Zotero keeps of a PDF: without pages, unless form feeds divide them."""
    cache = cache_of(file)
    is_link = real_path(cache).parent != real_path(cache.parent)
    if problem := "is a link out of its folder" if is_link else unreadable(cache):
        return ReadText(problem=f"{cache.name} beside it {problem}")
    try:
        text = read_limited(cache, MAX_BYTES).decode("utf-8", "replace")
    except InputError as error:
        return ReadText(problem=str(error))
    cut = f"only the first {MAX_CHARACTERS:,} characters were read" if len(text) > MAX_CHARACTERS else ""
    pages = text[:MAX_CHARACTERS].split("\f")
    lines = [
        Line(line.strip(), number if len(pages) > 1 else 0, 0, 0, 0, 1, bold=False)
        for number, page in enumerate(pages, 1)
        for line in (*page.split("\n"), "")
    ]
    parts, section = list[PdfParagraph](), ""
    chapters = split_references(lines)
    running = [line for part, _ in chapters for line in part]
    entries = [entry for _, listed in chapters for entry in listed]
    for kind, group in groupby(
        running, lambda line: (line.text != "", KNOWN_HEADING.fullmatch(line.text) is None)
    ):
        block = list(group)
        paragraph = " ".join(_BROKEN.sub("", "\n".join(line.text for line in block)).split())
        if kind == (True, False):
            section = paragraph
        elif paragraph:
            parts.append(PdfParagraph(paragraph, ((0, block[0].page),), section))
    printed = len(pages) if len(pages) > 1 else 0
    return ReadText(problem=cut, head=text[:HEAD], pages=printed, parts=parts, entries=entries)
