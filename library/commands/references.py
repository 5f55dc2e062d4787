"""`citerec references`: is each reference real, and stated correctly? `citerec report`: the references of a
draft on one page, before it is submitted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from citerec.base.errors import InputError, count_noun
from citerec.base.files import cache_folder, expand_user
from citerec.base.progress import count_progress
from citerec.formats.bibliography.paper import LibraryPaper, is_preprint, terminal_text
from citerec.formats.drafts.languages import PLAIN, language_of
from citerec.library.ask.recommender import open_library
from citerec.library.drafts.check import (
    CheckedDraft,
    Entry,
    find_doubles,
    find_problems,
    read_checked,
    read_entries,
)
from citerec.library.enrich.client import FILE, AnswerCache
from citerec.library.enrich.enrich import ask_services, make_services, unanswered
from citerec.library.enrich.matching import lookups_of
from citerec.library.enrich.services import TITLE, Lookup, Service
from citerec.library.papers.library import Library
from citerec.library.references.answers import ANSWERS, Answer, LibrarySource, Record, Source, Status, judge
from citerec.library.references.table import Table
from citerec.library.settings import DraftReferences, ReferencesSettings, ReportSettings


def references(settings: ReferencesSettings) -> None:
    """Print what is known of each reference; exit with 1 if `strict` and one is contradicted or retracted."""
    notes: list[str] = []
    library = open_library(settings.library) if settings.library else None
    name = settings.file or settings.library
    entries = _entries(settings, library, notes)
    sources: list[Source] = []
    with ExitStack() as stack:
        if settings.services:
            folder = library.path if library is not None else cache_folder()
            folder.mkdir(parents=True, exist_ok=True)
            cache = stack.enter_context(closing(AnswerCache(folder / FILE, settings.max_age)))
            source = ServiceSource(make_services(settings), cache)
            papers = [entry.paper for entry in entries if entry.paper]
            failed = ask_services(settings, source, papers.__getitem__, np.arange(len(papers)), name)
            if failed is None:
                return
            notes += [f"{name}: {reason}; the same command asks again" for name, reason in failed.items()]
            sources.append(source)
        answers = judge_all(settings, library, entries, notes, sources)
    if settings.format == "json":
        listed = [{"file": str(at.file), "line": at.line, **answer.as_json()} for at, answer in answers]
        print(json.dumps({"entries": listed, "notes": notes}, ensure_ascii=False, indent=1))
    else:
        for entry, answer in answers:
            print(f"{entry.place}: {terminal_text(f'{entry.shown} {answer.text}')}")
        for note in notes:
            print(f"note: {terminal_text(note)}")
        counts = Counter(answer.answer for _, answer in answers)
        told = ", ".join(f"{counts[name]:,} {name}" for name in ANSWERS)
        print(f"{name}: {count_noun(len(answers), 'reference')}: {told}")
    kinds = {status.kind for _, answer in answers for status in answer.status}
    if settings.strict and ("retracted" in kinds or any(answer.findings for _, answer in answers)):
        raise SystemExit(1)


def _entries(settings: ReferencesSettings, library: Library | None, notes: list[str]) -> list[Entry]:
    """Return the entries of a bibliography, a draft or a library."""
    if library is not None and not settings.file:
        return [Entry(paper.key or paper.id, Path(settings.library), 0, paper) for paper in library.papers()]
    path = expand_user(settings.file)
    if path.suffix != PLAIN and language_of(path.suffix) is not None:
        draft = read_checked(path, *settings.draft_files)
        notes += draft.notes
        if not draft.entries:
            raise InputError(f"{path}: has no bibliography that can be compared; give bib=FILE")
        return [*draft.entries]
    if not (entries := [*read_entries(path, lambda error: notes.append(str(error)))]):
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
    """Return what a library, the settings' tables and sources say about the entries that can be read."""
    read = [(entry, entry.paper._replace(key=entry.key)) for entry in entries if entry.paper]
    bad = list[InputError]()
    tables = [Table.open([name], bad.append) for name in settings.table]  # each reported by its name and date
    own = [LibrarySource(library, [paper for _, paper in read])] if library else []
    if bad:
        notes.append(f"{count_noun(len(bad), 'record')} of the table skipped: {bad[0]}")
    doubles: dict[str, list[Status]] = {}
    for finding in find_doubles(CheckedDraft(Path(), (), (), ("*",), entries, (), (), (), ())):
        doubles.setdefault(finding.key, []).append(Status(finding.kind, finding.message))
    answers = []
    with count_progress("references", len(read)) as advance:
        for entry, paper in read:
            answer = judge(paper, [*own, *tables, *sources], on_note=notes.append)
            answers.append((entry, replace(answer, status=[*answer.status, *doubles.get(entry.key, ())])))
            advance(1)
    return answers


@dataclass
class ServiceSource:
    """Answers of services about works. Each is asked, by identifiers and titles, what earlier ones lack."""

    services: Sequence[Service]
    cache: AnswerCache

    def records(self, paper: LibraryPaper, count: int | None = None) -> Iterator[Record]:
        """Yield what the services, or the first `count` of them, have told."""
        for service in self.services[:count]:
            for lookup in _lookups(paper, service):
                for work in self.cache.get(service.name, lookup) or ():
                    yield Record(work, service.label, by_id=lookup.kind != TITLE)

    def open_lookups(self, _: int, paper: LibraryPaper, service: Service) -> list[Lookup]:
        if any(self.records(paper, self.services.index(service))):
            return []
        return unanswered(_lookups(paper, service), service, self.cache)


def _lookups(paper: LibraryPaper, service: Service) -> list[Lookup]:
    bare = paper._replace(doi="", arxiv="", url="", id="")
    return [*dict.fromkeys([*lookups_of(paper, service), *lookups_of(bare, service)])]


# The report.

RECENT, VENUES = 5, 10
"""Number of years in which a reference is recent; number of venues reported."""
_NUMBERS = {"own": "own works", "recent": f"of the last {RECENT} years"}
_SHARES = ("own", "preprints", "without_doi", "recent")
_LISTS = {
    "contradicted": "contradicted references",
    "retracted": "retracted",
    "unknown": "unknown keys",
    "duplicate": "doubled",
    "preprint": "preprints that have been published",
    "missing_doi": "entries whose record has a DOI",
    "uncited": "entries that are never cited",
    "notes": "notes",
}


def report(settings: ReportSettings) -> None:
    """Print numbers, and lists of keys with what is said of them."""
    draft = read_checked(expand_user(settings.tex), *settings.draft_files)
    library = open_library(settings.library) if settings.library else None
    places: dict[str, set[tuple[str, int]]] = {}
    for citation in draft.citations:
        places.setdefault(draft.key(citation.key), set()).add((str(citation.file), citation.start))
    notes = [*draft.notes]
    judged = judge_all(settings, library, [draft.by_key[key] for key in draft.used], notes)
    papers = [entry.paper for entry, _ in judged if entry.paper]
    years, own = sorted(paper.year for paper in papers if paper.year), {*map(str.casefold, settings.author)}
    numbers = {
        "references": len(places),
        "citations": len(set[tuple[str, int]]().union(*places.values())),
        "own": sum(any(p.surname(at).casefold() in own for at in range(len(p.authors))) for p in papers),
        "preprints": sum(map(is_preprint, papers)),
        "recent": sum(year > date.today().year - RECENT for year in years),
        "without_doi": sum(not paper.doi for paper in papers),
        "median_year": int(median(years)) if years else None,
        "oldest": years[0] if years else None,
        "venues": dict(Counter(paper.venue for paper in papers if paper.venue).most_common(VENUES)),
        "answers": dict(Counter(answer.answer for _, answer in judged)),
    }
    told = [(problem.kind, problem.key, problem.message) for problem in find_problems(draft, library)]
    for _, answer in judged:
        told += [(status.kind, answer.key, status.said) for status in answer.status]
        told += [("contradicted", answer.key, answer.said)] * bool(answer.findings)
    listed: dict[str, dict[str, str]] = {name: {} for name in _LISTS}
    for kind, key, text in told:
        if kind in listed:
            listed[kind].setdefault(key, key if kind == "uncited" else f"{key} {text}")
    lists = {kind: [*keys.values()] for kind, keys in listed.items()} | {"notes": notes}
    if settings.format == "json":
        print(json.dumps({"draft": str(draft.path), **numbers, **lists}, ensure_ascii=False, indent=1))
        return
    page = {f"References of {draft.path.name}": [*_lines(numbers)]}
    page |= {f"{title} ({len(lists[name])})": lists[name] for name, title in _LISTS.items() if lists[name]}
    for head, lines in page.items():
        print(f"{head}:", *(f"  {terminal_text(line)}" for line in lines), sep="\n")


def _lines(numbers: Mapping[str, Any]) -> Iterator[str]:
    for name, number in numbers.items():
        text = str(number)
        if isinstance(number, dict):
            text = "; ".join(f"{each} {count:,}" for each, count in number.items())
        elif name in _SHARES:
            text = f"{number:,} ({number / max(sum(numbers['answers'].values()), 1):.0%})"
        if number not in (None, {}):
            yield f"{_NUMBERS.get(name, name.replace('_', ' '))}: {text}"
