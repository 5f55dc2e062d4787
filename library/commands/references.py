"""`citerec references`: is each reference real, and is it said right?"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from citerec.base.errors import InputError, count_noun
from citerec.base.files import cache_folder, expand_user
from citerec.base.progress import count_progress
from citerec.formats.bibliography.paper import LibraryPaper, terminal_text
from citerec.formats.bibliography.reading.recognise import recognise
from citerec.formats.drafts.languages import language_of
from citerec.library.drafts.check import Entry, read_checked, read_entries
from citerec.library.drafts.reader import PLAIN
from citerec.library.enrich.client import FILE, AnswerCache
from citerec.library.enrich.enrich import ask_services, make_services, unanswered
from citerec.library.enrich.matching import lookups_of
from citerec.library.enrich.services import Lookup, Service
from citerec.library.papers.library import Library
from citerec.library.references.answers import (
    CONFIRMED,
    CONTRADICTED,
    UNKNOWN,
    Answer,
    PaperSource,
    Source,
    judge,
)
from citerec.library.references.compare import Record
from citerec.library.references.table import Table
from citerec.library.settings import DraftReferences, ReferencesSettings
from citerec.library.sources.readers import read_source


def references(settings: ReferencesSettings) -> None:
    """Print what is known of each reference; exit with 1 if `strict` and one is contradicted or retracted."""
    notes: list[str] = []
    library = Library.open(settings.library) if settings.library else None
    entries = _entries(settings, library, notes)
    sources: list[Source] = []
    if settings.services:
        asked = _ask_services(settings, library, [entry.paper for entry in entries if entry.paper], notes)
        if asked is None:
            return
        sources = [asked]
    answers = judge_all(settings, library, entries, notes, sources)
    if settings.format == "json":
        listed = [
            {"file": str(entry.file), "line": entry.line, **answer.as_json()} for entry, answer in answers
        ]
        print(json.dumps({"entries": listed, "notes": notes}, ensure_ascii=False, indent=1))
    else:
        for entry, answer in answers:
            place = f"{entry.file.name}:{entry.line}" if entry.line else entry.file.name
            print(f"{place}: {terminal_text(f'{entry.key} {answer.text}')}")
        for note in notes:
            print(f"note: {terminal_text(note)}")
        counts = Counter(answer.answer for _, answer in answers)
        told = ", ".join(f"{counts[name]:,} {name}" for name in (CONFIRMED, CONTRADICTED, UNKNOWN))
        print(f"{settings.file or settings.library}: {count_noun(len(answers), 'reference')}: {told}")
    if settings.strict and any(answer.findings or answer.is_retracted for _, answer in answers):
        raise SystemExit(1)


def _entries(settings: ReferencesSettings, library: Library | None, notes: list[str]) -> list[Entry]:
    """Return the entries of a bibliography, a draft or a library."""
    if not settings.file:
        assert library is not None
        return [Entry(paper.key or paper.id, library.path, 0, paper) for paper in library.papers()]
    path = expand_user(settings.file)
    if path.suffix != PLAIN and language_of(path.suffix) is not None:
        draft = read_checked(path, *settings.draft_files)
        notes += draft.notes
        return [*draft.entries]
    if recognise(path) != "bibtex":
        papers = read_source(path, lambda error: notes.append(str(error)))
        return [Entry(paper.key or paper.id, path, 0, paper) for paper in papers]
    if not (entries := [*read_entries([path])]):
        raise InputError(f"{path}: has no entries (@article{{key, ...}})")
    notes += [f"{path.name}: {entry.key} cannot be read" for entry in entries if entry.paper is None]
    return entries


def judge_all(
    settings: DraftReferences,
    library: Library | None,
    entries: Sequence[Entry],
    notes: list[str],
    sources: Sequence[Source] = (),
) -> list[tuple[Entry, Answer]]:
    """Return the answers about entries that can be read, by a library, the settings' table and sources."""
    read = [(entry, entry.paper._replace(key=entry.key)) for entry in entries if entry.paper]
    first: list[Source] = [PaperSource.of_library(library, [paper for _, paper in read])] if library else []
    if settings.table:
        bad: list[InputError] = []
        first.append(Table.open(settings.table, bad.append))
        if bad:
            notes.append(f"{count_noun(len(bad), 'record')} of the table skipped: {bad[0]}")
    others = PaperSource([Record(paper, f"entry {entry.key}", confirms=False) for entry, paper in read])
    answers = []
    with count_progress("references", len(read)) as advance:
        for entry, paper in read:
            answers.append((entry, judge(paper, [*first, *sources], others, on_note=notes.append)))
            advance(1)
    return answers


@dataclass
class ReferenceAsker:
    """Asks services about references: by their identifiers, then their titles, until one has found a work."""

    services: Sequence[Service]
    cache: AnswerCache

    def lookups(self, paper: LibraryPaper, service: Service) -> list[Lookup]:
        bare = paper._replace(doi="", arxiv="", url="", id="")
        return [*dict.fromkeys([*lookups_of(paper, service), *lookups_of(bare, service)])]

    def works(self, paper: LibraryPaper, service: Service) -> list[LibraryPaper]:
        answers = (self.cache.get(service.name, lookup) for lookup in self.lookups(paper, service))
        return [work for works in answers for work in works or ()]

    def open_lookups(self, _: int, paper: LibraryPaper, service: Service) -> list[Lookup]:
        before = self.services[: self.services.index(service)]
        is_found = any(self.works(paper, earlier) for earlier in before)
        return [] if is_found else unanswered(self.lookups(paper, service), service, self.cache)


def _ask_services(
    settings: ReferencesSettings, library: Library | None, papers: Sequence[LibraryPaper], notes: list[str]
) -> PaperSource | None:
    """Ask services after consent; return what they answered, None without consent."""
    folder = library.path if library is not None else cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with closing(AnswerCache(folder / FILE, settings.max_age)) as cache:
        asker, rows = ReferenceAsker(make_services(settings), cache), np.arange(len(papers))
        name = settings.file or settings.library
        unavailable = ask_services(settings, asker, papers.__getitem__, rows, name)
        if unavailable is None:
            return None
        notes += [f"{name}: {reason}; the same command asks again" for name, reason in unavailable.items()]
        pairs = ((paper, service) for service in asker.services for paper in papers)
        return PaperSource(
            [Record(work, service.label) for paper, service in pairs for work in asker.works(paper, service)]
        )
