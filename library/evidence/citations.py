"""What the full texts of a library cite: its own papers, with the sentences, and works that it lacks.

Which entries are which papers is kept in the store of the texts (`link_texts`), and found anew when papers or
texts have changed. Sentences are read when they are asked for.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

from citerec.base.errors import InputError
from citerec.datasets.records import OTHER_MARKER, TARGET_MARKER, WINDOW, ContextRecord, QueryRecord
from citerec.datasets.tokenize import sentence_starts
from citerec.formats.articles.citing import Mark, read_work
from citerec.formats.bibliography.paper import LibraryPaper, make_paper
from citerec.formats.drafts.language import replaced
from citerec.formats.identifiers import clean_doi
from citerec.formats.letters import fold, normalise_title
from citerec.formats.names import Name, ambiguous, parse_names, surname
from citerec.library.evidence import DATABASE, FOLDER
from citerec.library.evidence.links import Linker
from citerec.library.evidence.passages import Passage, TextPlace
from citerec.library.evidence.reading import ReadText
from citerec.library.evidence.store import TextStore
from citerec.retrieval.queries import cut_around_mark

TEXTS = 16
"""Texts that stay open: a work is cited at several places, and a paper cites many."""
LINKED = "linked"
"""State of the store: what was linked."""
_MASK = "\0"
_AFTER_STOP = re.compile(rf"([.?!])([ \[(]*{_MASK}(?:[{_MASK} ,;–\-\[\]()]*{_MASK})?[)\]]*)")
"""A stop, and the marks after it."""


def sentence_bounds(text: str, marks: Iterable[tuple[int, int]]) -> list[int]:
    """Return where the sentences of a text begin, and its end; lines are paragraphs.

    marks: spans of citations; a number after a full stop belongs to the sentence before it.

    >>> from itertools import pairwise
    >>> text = "Bees dance.[1, 2] Ants do not.³ Why?"
    >>> bounds = sentence_bounds(text, [(12, 13), (15, 16), (30, 31)])
    >>> [text[a:b] for a, b in pairwise(bounds)]
    ['Bees dance.[1, 2] ', 'Ants do not.³ ', 'Why?']
    """
    masked = text
    for start, end in marks:
        if not any(map(str.isalpha, text[start:end])):
            masked = f"{masked[:start]}{_MASK * (end - start)}{masked[end:]}"
    # the stop is moved behind the mark: "dance[1, 2]. Ants"
    plain = _AFTER_STOP.sub(lambda match: "x" * len(match[2]) + match[1], masked)
    breaks = (place + 1 for place, sign in enumerate(text) if sign == "\n")
    return sorted({0, *sentence_starts(plain), *breaks, len(text)})


LEAST_WORDS, MOST_LETTERS = 5, 800
"""Least words and most characters of a sentence; what is shorter or longer was not read as one."""


def is_sentence(text: str) -> bool:
    """True for a whole sentence; a part of one begins with a small letter."""
    return len(text.split()) >= LEAST_WORDS and len(text) <= MOST_LETTERS and not text[:1].islower()


def marked_sentences(texts: Sequence[str], marks: Iterable[Mark]) -> Iterator[tuple[Mark, str]]:
    """Yield the marks and the sentences in which they stand. marks: in the order of the texts."""
    for number, group in groupby(marks, lambda mark: mark.text):
        own, text = list(group), texts[number]
        bounds = sentence_bounds(text, [mark[1:3] for mark in own])
        for mark in own:
            place = min(bisect_right(bounds, mark.start), len(bounds) - 1)
            yield mark, text[bounds[place - 1] : bounds[place]].strip()


# Links.


class CitingSentence(NamedTuple):
    """A sentence that cites a work. paper: the one whose text has it."""

    paper: str
    text: str
    place: TextPlace


def link_texts(store: TextStore, papers: Callable[[], Iterable[LibraryPaper]]) -> bool:
    """Find which papers the entries of all texts are, unless that is known. Returns whether it was not."""
    digest = store.digest(paper[:3] + paper[4:9] for paper in papers())
    if store.get(LINKED) == digest:
        return False
    linker, titles = Linker(papers()), {paper.id: normalise_title(paper.title) for paper in papers()}
    own = {text.file: titles.get(text.paper, "") for text in store.papers()}
    links = [
        (file, row, paper.id)
        for file, read in store.abouts(own)
        for row, entry in enumerate(read.entries)
        if (paper := linker.find(entry.text)) and titles[paper.id] != own[file]  # not "how to cite this"
    ]
    store.set_links(links, digest)
    return True


class Citations:
    """What the texts of a library cite."""

    def __init__(self, library: Path) -> None:
        """Raises InputError if the library has no full texts, or what they cite was not read."""
        again = f"read its PDFs: citerec add library={quote(str(library))} fulltext=true"
        if not (library / FOLDER / DATABASE).is_file():
            raise InputError(f"{library}: has no full texts; {again}")
        self._store = TextStore(library / FOLDER)
        if not self._store.get(LINKED):
            raise InputError(f"{library}: what its PDFs cite was not read yet; {again}")
        self.files = {text.paper: text.file for text in self._store.papers()}
        """The PDFs that were read, by paper."""
        self._papers = {file: paper for paper, file in self.files.items()}
        self._text = lru_cache(TEXTS)(self._open)

    def close(self) -> None:
        self._store.close()

    def cites(self, paper: str) -> tuple[dict[str, list[CitingSentence]], int]:
        """Return the papers that a paper's PDF cites, with the sentences, and how many other works its list
        of references has; none without a PDF or a list."""
        if (file := self.files.get(paper)) is None:
            return {}, 0
        links = self._store.links(file=file)
        cited = self._by_paper((cited, paper, row) for _, row, cited in links)
        return cited, len(self._text(paper)[1].entries) - len(links)

    def cited_by(self, paper: str) -> dict[str, list[CitingSentence]]:
        """Return the papers whose PDFs cite a paper, with the sentences."""
        links = [link for link in self._store.links(paper=paper) if link[0] in self._papers]
        return self._by_paper((self._papers[file], self._papers[file], row) for file, row, _ in links)

    def _by_paper(self, links: Iterable[tuple[str, str, int]]) -> dict[str, list[CitingSentence]]:
        """Return sentences by paper. links: a paper, the one whose text cites, and the row of its entry."""
        by_paper = dict[str, list[CitingSentence]]()
        for paper, citing, row in sorted(links):
            by_paper.setdefault(paper, []).extend(self.sentences(citing, row))
        return by_paper

    def sentences(self, paper: str, row: int) -> Iterator[CitingSentence]:
        """Yield the sentences of a paper that cite an entry of its list, each once."""
        passages, _, marked = self._text(paper)
        shown = dict[str, Mark]()
        for mark, text in marked:
            if row in mark.entries and is_sentence(text):
                shown.setdefault(text, mark)
        for text, mark in shown.items():
            passage = passages[mark.text]
            place = TextPlace(self.files[paper], passage.page(mark.start), passage.section, passage.text)
            yield CitingSentence(paper, text, place)

    def contexts(self, paper: str) -> Iterator[tuple[int, str, list[str]]]:
        """Yield where a text cites papers: the page, the text around it with TARGET_MARKER, and their ids."""
        links = {row: cited for _, row, cited in self._store.links(file=self.files[paper])}
        passages, read, marked = self._text(paper) if links else ((), ReadText(), ())
        beside = {number: [*marks] for number, marks in groupby(read.marks, lambda mark: mark.text)}
        for mark, sentence in marked:
            cited = list(dict.fromkeys(links[row] for row in mark.entries if row in links))
            if cited and is_sentence(sentence):
                passage, others = passages[mark.text], beside[mark.text]
                markers = (TARGET_MARKER if other is mark else OTHER_MARKER for other in others)
                edits = [(*other[1:3], f" {name} ") for other, name in zip(others, markers, strict=True)]
                text = _LOOSE.sub("", " ".join(replaced(passage.text, edits).split()))
                yield passage.page(mark.start), cut_around_mark(text, WINDOW), cited

    def _open(self, paper: str) -> tuple[Sequence[Passage], ReadText, Sequence[tuple[Mark, str]]]:
        """Return the passages of a paper, what else was read of its PDF, and the sentences that cite."""
        passages = self._store.text(paper)[1]
        read = self._store.about(self.files[paper]) or ReadText()
        return passages, read, [*marked_sentences([passage.text for passage in passages], read.marks)]

    def missing(self, least: int) -> tuple[list[MissingWork], int]:
        """Return the works that the texts of at least `least` papers cite and the library lacks, most cited
        first; and how many entries could not be compared, as no title could be told."""
        works: dict[str, list[tuple[str, int, str]]] = {}
        linked = {(file, row) for file, row, _ in self._store.links()}
        for file, read in self._store.abouts(self._papers):
            for row, entry in enumerate(read.entries):
                if (file, row) not in linked:
                    place = self._papers[file], row, entry.text
                    works.setdefault(_name_of(entry.text), []).append(place)
        unclear = len(works.pop("", ()))
        missing = [work for work in map(MissingWork, works.values()) if len(work.citing) >= least]
        return sorted(missing, key=lambda work: (-len(work.citing), work.entry)), unclear


# Works that are missing.

READ_FROM_PDF = "read from the reference list of a PDF"
"""Note of exported entries."""
_LOOSE = re.compile(r" (?=[.,;:)\]])")
_ONE_AUTHOR = re.compile(r"^([^\W\d_][\w'’-]+) ([A-Z]{1,3})$")
_OF_PEOPLE = re.compile(r",|\b[A-Z]\.|\s[A-Z]{1,3}\b")  # others, such as World Bank, are kept as they are
LEAST_LETTERS = 15
"""Least letters of a title by which a work is known."""


class MissingWork(NamedTuple):
    """A work that the library lacks. places: papers that cite it, and the rows and texts of the entries in
    their lists."""

    places: Sequence[tuple[str, int, str]]

    @property
    def entry(self) -> str:
        """The fullest entry: one with an identifier, of these the longest of usual length."""
        entries = (text for _, _, text in self.places)
        return max(entries, key=lambda text: (bool(clean_doi(text)), len(text) < 400, len(text)))

    @property
    def citing(self) -> tuple[str, ...]:
        """The papers, each once."""
        return tuple(dict.fromkeys(paper for paper, _, _ in self.places))

    def paper(self) -> LibraryPaper:
        """Return what the lists say of the work, without a key if no title can be told."""
        doi = clean_doi(re.sub(r"(?<=[/.])\s+", "", self.entry))
        if (work := read_work(self.entry)) is None:
            return make_paper(doi=doi)
        people, names = _OF_PEOPLE.search(work.authors), parse_names(_ONE_AUTHOR.sub(r"\1, \2", work.authors))
        names = [name if people else Name(literal=name.full) for name in names]
        authors = [name.full for name in names]
        first = re.sub(r"\W", "", fold(surname(authors[0])).lower()) if authors else "anonymous"
        word = next((word for word in re.findall(r"[a-z]{4,}", fold(work.title).lower())), "")
        named: dict[str, Any] = {"title": work.title, "authors": authors, "year": work.year, "doi": doi}
        return make_paper(key=f"{first}{work.year or ''}{word}", names=ambiguous(names), **named)


def _name_of(entry: str) -> str:
    """Return what lists of different styles have in common of a work; "" if it cannot be told."""
    work = read_work(entry)
    letters = normalise_title(work.title) if work else ""
    return letters if len(letters) >= LEAST_LETTERS else clean_doi(entry)


# Contexts.


def text_contexts(library: Path, papers: Mapping[str, str]) -> tuple[list[ContextRecord], list[QueryRecord]]:
    """Return the contexts in which full texts cite papers of a library, and the cited papers of each.

    papers: ids that may occur, and their titles. Papers of one title are versions of one work: all their
    contexts are those of the first of them, each once.
    """
    first: dict[str, str] = {}
    leaders = {
        paper: first.setdefault(normalise_title(title) or paper, paper) for paper, title in papers.items()
    }
    contexts, queries, known = list[ContextRecord](), list[QueryRecord](), set[tuple[str, str]]()
    with closing(Citations(library)) as citations:
        for citing in filter(papers.__contains__, citations.files):
            own = leaders[citing]
            for number, (page, text, cited) in enumerate(citations.contexts(citing)):
                wanted = [paper for paper in cited if paper in papers and leaders[paper] != own]
                if wanted and (own, text) not in known:
                    known.add((own, text))
                    name = f"{citing}#{page}.{number}"
                    contexts.append(ContextRecord(name, text, own))
                    queries.append(QueryRecord(name, wanted))
    return contexts, queries
