"""`citerec references`: is each reference real, and is it said right?"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from urllib.parse import quote

from citerec.base.errors import InputError, count_noun
from citerec.base.files import cache_folder, expand_user
from citerec.base.progress import count_progress
from citerec.formats.bibliography.paper import LibraryPaper, terminal_text
from citerec.formats.bibliography.reading.recognise import recognise
from citerec.formats.drafts.languages import language_of
from citerec.library.drafts.check import Entry, read_checked, read_entries
from citerec.library.drafts.reader import PLAIN
from citerec.library.enrich.client import FILE, AnswerCache, Client, Unavailable
from citerec.library.enrich.enrich import Plan, consent, make_services
from citerec.library.enrich.matching import lookups_of
from citerec.library.enrich.services import LONGEST, TITLE, Lookup, Service
from citerec.library.papers.library import Library
from citerec.library.references.answers import (
    CONFIRMED,
    CONTRADICTED,
    UNKNOWN,
    Answer,
    PaperSource,
    Source,
    TableSource,
    judge,
)
from citerec.library.references.table import Table
from citerec.library.settings import ReferencesSettings, ReportSettings
from citerec.library.sources.readers import read_source


def references(settings: ReferencesSettings) -> None:
    """Print what is known of each reference; exit with 1 if `strict` and one is contradicted or retracted."""
    notes: list[str] = []
    library = Library.open(settings.library) if settings.library else None
    entries = _entries(settings, library, notes)
    papers = [entry.paper for entry in entries if entry.paper]
    sources = make_sources(settings, library, papers, notes)
    if settings.services:
        asked = _ask_services(settings, library, papers, notes)
        if asked is None:
            return
        sources.append(asked)
    answers = judge_all(entries, sources, notes)
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
    bad = (
        answer.findings or any(status.kind == "retracted" for status in answer.status)
        for _, answer in answers
    )
    if settings.strict and any(bad):
        raise SystemExit(1)


def _entries(settings: ReferencesSettings, library: Library | None, notes: list[str]) -> list[Entry]:
    """Return the entries of a bibliography, a draft or a library."""
    if not settings.file:
        assert library is not None
        return [Entry(paper.key or paper.id, library.path, 0, paper) for paper in library.papers()]
    path = expand_user(settings.file)
    if path.suffix != PLAIN and language_of(path.suffix) is not None:
        root = expand_user(settings.root) if settings.root else None
        draft = read_checked(path, root, [expand_user(bib) for bib in settings.bib])
        notes += draft.notes
        return [*draft.entries]
    if recognise(path) == "bibtex":
        entries = [*read_entries([path])]
        bad = [entry.key for entry in entries if entry.paper is None]
        notes += [f"{path.name}: {key} cannot be read" for key in bad]
        if not entries:
            raise InputError(f"{path}: has no entries (@article{{key, ...}})")
        return entries
    papers = read_source(path, lambda error: notes.append(str(error)))
    return [Entry(paper.key or paper.id, path, 0, paper) for paper in papers]


def make_sources(
    settings: ReferencesSettings | ReportSettings,
    library: Library | None,
    papers: Sequence[LibraryPaper],
    notes: list[str],
) -> list[Source]:
    """Return the sources that a command's settings name: a library, a table."""
    sources: list[Source] = []
    if library is not None:
        sources.append(PaperSource.of_library(library, papers))
    if settings.table:
        bad: list[InputError] = []
        sources.append(TableSource(Table.open(settings.table, bad.append)))
        if bad:
            notes.append(f"{count_noun(len(bad), 'record')} of the table skipped: {bad[0]}")
    return sources


def judge_all(
    entries: Sequence[Entry], sources: Sequence[Source], notes: list[str]
) -> list[tuple[Entry, Answer]]:
    """Return the answers about entries that can be read."""
    read = [(entry, entry.paper._replace(key=entry.key)) for entry in entries if entry.paper]
    others = PaperSource.of([(paper, f"entry {entry.key}") for entry, paper in read], confirms=False)
    with count_progress("references", len(read)) as advance:
        answers = []
        for entry, paper in read:
            answers.append((entry, judge(paper, sources, others, on_note=notes.append)))
            advance(1)
    return answers


# Services.


def _ask_services(
    settings: ReferencesSettings, library: Library | None, papers: Sequence[LibraryPaper], notes: list[str]
) -> PaperSource | None:
    """Ask services after consent; return what they answered, None without consent."""
    services = make_services(settings)
    folder = library.path if library is not None else cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with closing(AnswerCache(folder / FILE, settings.max_age)) as cache:
        plan: Plan = {}
        for service in services:
            asked = [lookup for paper in papers for lookup in _lookups(paper, service)]
            kinds = Counter(lookup.kind for lookup in set(asked) if cache.get(service.name, lookup) is None)
            plan |= {service.name: kinds} if kinds else {}
        if plan and not consent(settings, plan, services, settings.file):
            return None
        records: list[tuple[LibraryPaper, str]] = []
        left = [*papers]
        for service in services:
            found: set[int] = set()
            with Client(service) as client:
                try:
                    for by_title in (False, True):
                        open_papers = [paper for paper in left if id(paper) not in found]
                        pairs = [
                            (paper, lookup)
                            for paper in open_papers
                            for lookup in _lookups(paper, service)
                            if (lookup.kind == TITLE) == by_title
                        ]
                        _ask(client, cache, [lookup for _, lookup in pairs])
                        for paper, lookup in pairs:
                            works = cache.get(service.name, lookup) or []
                            records += [(work, service.label) for work in works]
                            found |= {id(paper)} if works else set()
                except Unavailable as error:
                    notes.append(f"{service.name}: {error}; the same command asks again")
            left = [paper for paper in left if id(paper) not in found]
    return PaperSource.of(records)


def _lookups(paper: LibraryPaper, service: Service) -> list[Lookup]:
    """Return what a service can be asked about a paper: its identifiers, then its title."""
    bare = paper._replace(doi="", arxiv="", url="", id="")
    lookups = dict.fromkeys([*lookups_of(paper, service.kinds), *lookups_of(bare, ())])
    return [lookup for lookup in lookups if service.accepts(lookup)]


def _ask(client: Client, cache: AnswerCache, lookups: Iterable[Lookup]) -> None:
    """Ask a service what is not in the cache."""
    service = client.service
    new = [lookup for lookup in dict.fromkeys(lookups) if cache.get(service.name, lookup) is None]
    with count_progress(service.label, len(new)) as advance:
        for batch in _batches(new, service):
            cache.put(service.name, client.ask(batch))
            advance(len(batch))


def _batches(lookups: Sequence[Lookup], service: Service) -> Iterator[list[Lookup]]:
    for kind in dict.fromkeys(lookup.kind for lookup in lookups):
        batch, length = list[Lookup](), 0
        for lookup in (lookup for lookup in lookups if lookup.kind == kind):
            own = len(quote(lookup.value))
            if batch and (len(batch) == service.batch_size(kind) or length + own > LONGEST):
                yield batch
                batch, length = [], 0
            batch.append(lookup)
            length += own
        if batch:
            yield batch
