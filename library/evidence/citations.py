"""What the full texts of a library cite: its own papers, with the sentences, and works that it has not.

Which entries are which papers is kept in the store of the texts (`link_texts`), and found anew when papers or
texts have changed. Sentences are read when they are asked for.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from citerec.base.errors import InputError
from citerec.datasets.records import OTHER_MARKER, TARGET_MARKER, WINDOW, ContextRecord, QueryRecord
from citerec.datasets.tokenize import sentence_starts
from citerec.formats.articles.citing import Entry, Mark, read_work
from citerec.formats.bibliography.paper import LibraryPaper, make_paper
from citerec.formats.identifiers import clean_doi
from citerec.formats.letters import fold, normalise_title
from citerec.formats.names import parse_names, surname
from citerec.library.evidence import DATABASE, FOLDER
from citerec.library.evidence.links import Linker
from citerec.library.evidence.passages import Passage, TextPlace
from citerec.library.evidence.store import TextStore
from citerec.retrieval.queries import cut_around_mark

LINKED = "linked"
"""State of the store: what was linked."""
_BETWEEN = " ,;–-[]()"
"""What may stand between two marks of one place."""


def sentence_bounds(text: str, marks: Iterable[tuple[int, int]]) -> list[int]:
    """Return where the sentences of a text begin, and its end; lines are paragraphs.

    marks: spans of citations; a number after a full stop belongs to the sentence before it.

    >>> from itertools import pairwise
    >>> text = "Bees dance.[1, 2] Ants do not.³ Why?"
    >>> bounds = sentence_bounds(text, [(12, 13), (15, 16), (30, 31)])
    >>> [text[a:b] for a, b in pairwise(bounds)]
    ['Bees dance.[1, 2] ', 'Ants do not.³ ', 'Why?']
    """
    regions: list[list[int]] = []
    for start, end in sorted(marks):
        if any(map(str.isalpha, text[start:end])):
            continue
        if regions and start >= regions[-1][1] and not text[regions[-1][1] : start].strip(_BETWEEN):
            regions[-1][1] = max(end, regions[-1][1])
        elif not regions or start >= regions[-1][1]:
            regions.append([start, end])
    plain = text
    for start, end in regions:
        start = len(text[:start].rstrip(" [("))
        while end < len(text) and text[end] in ")]":
            end += 1
        if start and text[start - 1] in ".?!":  # moved behind the mark: "dance[1, 2]. Ants"
            plain = f"{plain[: start - 1]}{'x' * (end - start)}{text[start - 1]}{plain[end:]}"
    breaks = (place + 1 for place, sign in enumerate(text) if sign == "\n")
    return sorted({0, *sentence_starts(plain), *breaks, len(text)})


LEAST_WORDS, MOST_LETTERS = 5, 800
"""Least words and most characters of a sentence; what is shorter or longer was not read as one."""


def is_sentence(text: str) -> bool:
    """True for a whole sentence; a part of one begins with a small letter."""
    text = text.strip()
    return len(text.split()) >= LEAST_WORDS and len(text) <= MOST_LETTERS and not text[:1].islower()


def sentence_of(bounds: list[int], start: int) -> tuple[int, int]:
    """Return the sentence of a place."""
    place = min(bisect_right(bounds, start), len(bounds) - 1)
    return bounds[place - 1], bounds[place]


# Links.


class Cited(NamedTuple):
    """A work that a full text cites. paper: its id in the library; "" if it has it not. sentences: those that
    cite it, and where each stands."""

    entry: str
    paper: str = ""
    sentences: tuple[tuple[str, TextPlace], ...] = ()


def link_texts(store: TextStore, papers: Callable[[], Iterable[LibraryPaper]]) -> bool:
    """Find which papers the entries of all texts are, unless that is known. Returns whether it was not."""
    digest = store.digest(paper[:3] + paper[4:9] for paper in papers())
    if store.get(LINKED) == digest:
        return False
    linker, letters = Linker(papers()), {paper.id: normalise_title(paper.title) for paper in papers()}
    links: list[tuple[str, int, str]] = []
    texts = store.papers()
    own = {text.file: letters.get(text.paper, "") for text in texts}
    for file, read in store.abouts(dict.fromkeys(text.file for text in texts)):
        for row, paper in linker.link(read.entries).items():
            if letters[paper.id] != own[file]:  # how to cite this paper
                links.append((file, row, paper.id))
    store.set_links(links, digest)
    return True


class Citations:
    """What the texts of a library cite."""

    def __init__(self, library: Path) -> None:
        """Raises InputError if the library has no full texts, or what they cite was not read."""
        if not (library / FOLDER / DATABASE).is_file():
            command = f"citerec add library={library} source=FILE fulltext=true"
            raise InputError(f"{library}: has no full texts; read its PDFs: {command}")
        self._store = TextStore(library / FOLDER)
        if not self._store.get(LINKED):
            command = f"citerec update library={library}"
            raise InputError(f"{library}: what its PDFs cite was not read yet; read it: {command}")
        self._files = {text.paper: text.file for text in self._store.papers()}

    def close(self) -> None:
        self._store.close()

    @property
    def papers(self) -> list[str]:
        """The papers with a text."""
        return list(self._files)

    def has_text(self, paper: str) -> bool:
        """True if the PDF of a paper was read."""
        return paper in self._files

    def cites(self, paper: str) -> list[Cited]:
        """Return what the list of references of a paper's PDF has, in its order; none without a list."""
        if not (file := self._files.get(paper)):
            return []
        entries, marks = self._read(file)
        links = {row: cited for _, row, cited in self._store.links(file=file)}
        passages = self._store.text(paper)[1]
        return [
            Cited(entry.text, links.get(row, ""), tuple(_sentences(file, passages, marks, row)))
            for row, entry in enumerate(entries)
        ]

    def cited_by(self, paper: str) -> dict[str, Cited]:
        """Return the papers whose PDFs cite a paper, and how."""
        by_file: dict[str, list[str]] = {}
        for citing, file in self._files.items():
            by_file.setdefault(file, []).append(citing)
        citing_papers: dict[str, Cited] = {}
        for file, row, _ in self._store.links(paper=paper):
            entries, marks = self._read(file)
            for citing in by_file.get(file, ()):
                passages = self._store.text(citing)[1]
                citing_papers[citing] = Cited(
                    entries[row].text, paper, tuple(_sentences(file, passages, marks, row))
                )
        return citing_papers

    def contexts(self, paper: str) -> Iterator[tuple[int, str, list[str]]]:
        """Yield where a text cites papers: the page, the text around it with TARGET_MARKER, and their ids."""
        file = self._files[paper]
        links = {row: cited for _, row, cited in self._store.links(file=file)}
        marks, passages = self._read(file)[1] if links else [], self._store.text(paper)[1]
        for number, group in groupby(marks, key=lambda mark: mark.text):
            own, passage = list(group), passages[number]
            bounds = sentence_bounds(passage.text, [mark[1:3] for mark in own])
            for mark in own:
                cited = list(dict.fromkeys(links[row] for row in mark.entries if row in links))
                if not cited or not is_sentence(passage.text[slice(*sentence_of(bounds, mark.start))]):
                    continue
                pieces, done = list[str](), 0
                for other in own:
                    sign = TARGET_MARKER if other is mark else OTHER_MARKER
                    pieces += [passage.text[done : other.start], f" {sign} "]
                    done = other.end
                text = " ".join("".join([*pieces, passage.text[done:]]).split())
                text = _LOOSE.sub("", text)
                yield passage.page(mark.start), cut_around_mark(text, WINDOW), cited

    def _read(self, file: str) -> tuple[list[Entry], list[Mark]]:
        read = next((read for _, read in self._store.abouts([file])), None)
        return ([], []) if read is None else (read.entries, read.marks)

    def missing(self, least: int) -> tuple[list[MissingWork], int]:
        """Return the works that the texts of at least so many papers cite and the library lacks, most cited
        first; and how many entries could not be compared, as no title could be told."""
        works: dict[str, list[tuple[str, int, Entry]]] = {}
        unclear, links = 0, {(file, row) for file, row, _ in self._store.links()}
        paper_of = {file: paper for paper, file in self._files.items()}
        for file, read in self._store.abouts(paper_of):
            for row, entry in enumerate(read.entries):
                if (file, row) in links:
                    continue
                if name := _name_of(entry.text):
                    works.setdefault(name, []).append((paper_of[file], row, entry))
                else:
                    unclear += 1
        found = []
        for places in works.values():
            citing = dict.fromkeys(paper for paper, _, _ in places)
            if len(citing) >= least:
                entries = [entry.text for _, _, entry in places]
                found.append(
                    MissingWork(_fullest(entries), tuple(citing), tuple(place[:2] for place in places))
                )
        found.sort(key=lambda work: (-len(work.citing), work.entry))
        return found, unclear

    def sentences(self, work: MissingWork) -> Iterator[tuple[str, str, TextPlace]]:
        """Yield how a work is cited: the paper, the sentence, and where it stands."""
        for paper, row in work.places:
            file = self._files[paper]
            passages = self._store.text(paper)[1]
            for sentence, place in _sentences(file, passages, self._read(file)[1], row):
                yield paper, sentence, place


def _sentences(
    file: str, passages: Sequence[Passage], marks: Sequence[Mark], row: int
) -> Iterator[tuple[str, TextPlace]]:
    """Yield the sentences whose marks cite an entry, and their places."""
    shown = set[str]()
    for mark in marks:
        if row in mark.entries:
            passage = passages[mark.text]
            spans = [other[1:3] for other in marks if other.text == mark.text]
            start, end = sentence_of(sentence_bounds(passage.text, spans), mark.start)
            sentence = passage.text[start:end].strip()
            if is_sentence(sentence) and sentence not in shown:
                shown.add(sentence)
                yield sentence, TextPlace(file, passage.page(mark.start), passage.section, passage.text)


# Works that are missing.

READ_FROM_PDF = "read from the reference list of a PDF"
"""Note of what is exported."""
_LOOSE = re.compile(r" (?=[.,;:)\]])")
_ONE_AUTHOR = re.compile(r"^([^\W\d_][\w'’-]+) ([A-Z]{1,3})$")
LEAST_LETTERS = 15
"""Letters of a title by which a work is known."""


class MissingWork(NamedTuple):
    """A work that the library lacks. entry: the fullest one. citing: papers. places: papers, and the rows of
    the entries in their lists."""

    entry: str
    citing: tuple[str, ...]
    places: tuple[tuple[str, int], ...]

    def paper(self) -> LibraryPaper:
        """Return what the lists say of the work, without a key if no title can be told."""
        work, doi = read_work(self.entry), clean_doi(re.sub(r"(?<=[/.])\s+", "", self.entry))
        title = work.title if work else ""
        named = _ONE_AUTHOR.sub(r"\1, \2", work.authors) if work else ""
        authors = [name.full for name in parse_names(named)] if named else []
        year = work.year if work else 0
        first = re.sub(r"\W", "", fold(surname(authors[0])).lower()) if authors else "anonymous"
        word = next((word for word in re.findall(r"[a-z]{4,}", fold(title).lower())), "")
        fields: dict[str, Any] = {"title": title, "authors": authors, "year": year, "doi": doi}
        return make_paper(key=f"{first}{year or ''}{word}" if title else "", **fields)


def _name_of(entry: str) -> str:
    """Return what lists of different styles have of a work alike; "" if it cannot be told."""
    work = read_work(entry)
    letters = normalise_title(work.title) if work else ""
    if len(letters) >= LEAST_LETTERS:
        return letters
    return clean_doi(entry)


def _fullest(entries: Sequence[str]) -> str:
    """Return the entry with an identifier, of these the most usual length."""
    return max(entries, key=lambda entry: (bool(clean_doi(entry)), len(entry) < 400, len(entry)))


# Contexts.


def text_contexts(library: Path, papers: Mapping[str, str]) -> tuple[list[ContextRecord], list[QueryRecord]]:
    """Return the contexts in which full texts cite papers of a library, as `contexts=` would give them.

    papers: ids that may occur, and their titles. Papers of one title are versions of one work: all their
    contexts are those of the first of them, each once.
    """
    if not (library / FOLDER / DATABASE).is_file():
        return [], []
    first: dict[str, str] = {}
    leaders = {
        paper: first.setdefault(normalise_title(title) or paper, paper) for paper, title in papers.items()
    }
    contexts, queries, known = list[ContextRecord](), list[QueryRecord](), set[tuple[str, str]]()
    citations = Citations(library)
    try:
        for citing in filter(papers.__contains__, citations.papers):
            own = leaders[citing]
            for number, (page, text, cited) in enumerate(citations.contexts(citing)):
                wanted = [paper for paper in cited if paper in papers and leaders[paper] != own]
                if wanted and (own, text) not in known:
                    known.add((own, text))
                    name = f"{citing}#{page}.{number}"
                    contexts.append(ContextRecord(name, text, own))
                    queries.append(QueryRecord(name, wanted))
    finally:
        citations.close()
    return contexts, queries
