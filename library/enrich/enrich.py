"""`citerec enrich`: fills in what the papers of a library lack, from services or from files.

Services are asked one after the other, each about what the earlier ones have left, and all answers go to a
cache first. The library is then completed from the cache in one change, so a run that was stopped goes on
where it was, and a repeated one asks nothing.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Protocol
from urllib.parse import quote, urlsplit

import numpy as np

from citerec.base.errors import InputError, count_noun
from citerec.base.progress import count_progress
from citerec.formats.bibliography.paper import (
    RETRACTED,
    LibraryPaper,
    fill_again,
    terminal_text,
    without_filled,
)
from citerec.library.enrich.client import FILE, AnswerCache, Client, Unavailable, duration
from citerec.library.enrich.matching import FIELDS, DumpFinder, Outcome, complete, lookups_of, read_works
from citerec.library.enrich.services import LONGEST, SERVICES, TITLE, Lookup, Service
from citerec.library.papers.encoding import encode
from citerec.library.papers.library import Library
from citerec.library.papers.merging import KeyIndex
from citerec.library.settings import EnrichSettings, ReferencesSettings, ServiceSettings
from citerec.retrieval.arrays import Rows

KEYS = {"openalex": "OPENALEX_API_KEY", "semanticscholar": "S2_API_KEY"}
"""Environment variables for the keys of services."""
MAILTO = "CITEREC_MAILTO"
SHOWN = 10
"""Maximum papers of a kind to list, except as JSON."""
_KINDS = {"doi": "DOIs", "arxiv": "arXiv ids", "pmid": "PubMed ids"}


def enrich(settings: EnrichSettings) -> None:
    """Complete a library from files, or from services after consent."""
    library = Library.open(settings.library)
    if settings.from_:
        _use_files(settings)
    else:
        with closing(AnswerCache(library.path / FILE, settings.max_age)) as cache:
            _use_services(settings, library, cache)
    changed = Library.open(settings.library)
    if changed.manifest.generation != library.manifest.generation:
        encode(changed)


def _use_files(settings: EnrichSettings) -> None:
    bad: list[InputError] = []
    with Library.edit(settings.library) as library:
        finder = DumpFinder(library, rows_to_ask(library))
        count = finder.read(read_works(settings.from_, library.path, bad.append))
        if bad:
            skipped = f"{count_noun(len(bad), 'record')} skipped"
            print(f"{settings.from_}: {skipped}: {bad[0]}", file=sys.stderr)
        if not count:
            raise InputError(f"from={settings.from_}: has no usable paper")
        _complete_library(settings, library, finder, {})


def _use_services(settings: EnrichSettings, library: Library, cache: AnswerCache) -> None:
    services = make_services(settings)
    finder = ServiceFinder(library, services, cache, settings.retractions)
    try:
        unavailable = ask_services(settings, finder, library.paper, finder.rows, settings.library)
    except KeyboardInterrupt:
        print(f"{library.path}: unchanged; answers are kept: the same command goes on", file=sys.stderr)
        raise
    if unavailable is None:
        return
    with Library.edit(settings.library) as library:
        finder = ServiceFinder(library, services, cache, settings.retractions)
        completed = _complete_library(settings, library, finder, unavailable)
    if unavailable and not completed:
        name, reason = next(iter(unavailable.items()))
        raise InputError(f"{name}: {reason}; the same command asks again what was not answered")


def make_services(settings: ServiceSettings) -> list[Service]:
    """Return the services to ask, in order. Raises InputError for an e-mail address or key that is none."""
    mailto = settings.mailto or os.environ.get(MAILTO, "")
    if mailto and not re.fullmatch(r"[!-?A-~]+@[!-?A-~]+", mailto):
        raise InputError(f"{'mailto' if settings.mailto else MAILTO}={mailto}: is not an e-mail address")
    services = []
    for name, (kind, address) in SERVICES.items():
        if name in settings.services:
            variable, own = KEYS.get(name, ""), getattr(settings, f"{name}_key", "")
            key = own or os.environ.get(variable, "")
            if not re.fullmatch("[!-~]*", key):  # it is sent in a header
                option = f"{name}_key" if own else variable
                raise InputError(f"{option}: is not a key: it has a space or a character that is not ASCII")
            services.append(kind(address, mailto, key))
    return services


def rows_to_ask(library: Library, retractions: bool = False) -> Rows:
    """Return the rows of the papers that lack one of FIELDS, ascending; all to ask for retractions by DOI."""
    if retractions:
        return np.arange(len(library))
    corpus, papers = library.corpus, library.mapped
    lacks = (corpus.abstract_tokens.lengths == 0) | (corpus.years <= 0) | (papers.identities[:, 1] == 0)
    records = papers.records
    lacks |= np.fromiter((not (paper.venue and paper.authors) for paper in records), np.bool_, len(records))
    return np.flatnonzero(lacks)


class ServiceFinder:
    """What services have answered about the papers of a library. Each is asked what earlier ones have left.

    retractions: ask also whether papers that lack nothing were retracted.
    """

    def __init__(
        self, library: Library, services: Sequence[Service], cache: AnswerCache, retractions: bool
    ) -> None:
        self.services, self.cache, self._retractions = services, cache, retractions
        self.rows = rows_to_ask(library, retractions)
        self._dois = KeyIndex(library.mapped.identities[:, 1])

    def find(self, row: int, paper: LibraryPaper) -> Outcome:
        outcome, told = self._replay(row, paper), paper.retraction_mark
        if told.partition(":")[2].partition(",")[0] in outcome.checked and not outcome.paper.retraction_mark:
            paper = paper._replace(filled=tuple(mark for mark in paper.filled if mark != told))
        filled = {name: source for name, source in outcome.filled.items() if not getattr(paper, name)}
        return replace(outcome, paper=fill_again(paper, outcome.paper), filled=filled)

    def _replay(self, row: int, paper: LibraryPaper, until: Service | None = None) -> Outcome:
        """Return what was found by the services before `until`.

        It begins without what was filled in before, so that a repeated run asks about the same identifiers.
        """
        outcome = Outcome(without_filled(paper))
        for service in self.services:
            if service is until:
                break
            if self._needs(outcome, service):
                outcome = self._use(row, outcome, service)
        return outcome

    def _needs(self, outcome: Outcome, service: Service) -> bool:
        checks = self._retractions and service.tells_retractions and not outcome.checked
        return bool(outcome.missing) or (checks and bool(outcome.paper.doi))

    def _use(self, row: int, outcome: Outcome, service: Service) -> Outcome:
        for lookup in lookups_of(outcome.paper, service):
            outcome = replace(outcome, asked=True)
            if (works := self.cache.get(service.name, lookup)) is None:
                return replace(outcome, unanswered=True)
            if works:
                before, by_title = outcome, lookup.kind == TITLE
                outcome = complete(
                    outcome, works, by_title, service.name, partial(self._dois.holds, besides=row)
                )
                if outcome.conflicts == before.conflicts:
                    checked = (service.label,) if service.tells_retractions else ()
                    outcome = replace(outcome, checked=outcome.checked + checked)
                    break
        return outcome

    def open_lookups(self, row: int, paper: LibraryPaper, service: Service) -> list[Lookup]:
        outcome = self._replay(row, paper, until=service)
        if not self._needs(outcome, service):
            return []
        return unanswered(lookups_of(outcome.paper, service), service, self.cache, outcome.paper)


def unanswered(
    lookups: Iterable[Lookup], service: Service, cache: AnswerCache, paper: LibraryPaper | None = None
) -> list[Lookup]:
    """Return the lookups that a service has not answered, before the first for which it found a work.
    paper: None if works may also contradict it."""
    left = []
    for lookup in lookups:
        works, by_title = cache.get(service.name, lookup), lookup.kind == TITLE
        if works and (paper is None or complete(Outcome(paper), works, by_title, "", bool).known):
            break
        if works is None:
            left.append(lookup)
    return left


class Asker(Protocol):
    """What services can be asked, and a cache for what they answer."""

    services: Sequence[Service]
    cache: AnswerCache

    def open_lookups(self, row: int, paper: LibraryPaper, service: Service) -> list[Lookup]:
        """Return what a service may still be asked about a paper, in order, until it finds a work."""


def ask_services(
    settings: EnrichSettings | ReferencesSettings,
    asker: Asker,
    paper_at: Callable[[int], LibraryPaper],
    rows: Rows,
    name: str,
) -> dict[str, str] | None:
    """Ask services about papers, after consent. Return why some could not be asked, by name; None without
    consent.

    paper_at: returns the paper of a row. name: what they are asked about.
    """
    plan = {service.name: Counter[str]() for service in asker.services}
    with count_progress("papers to look up", len(rows)) as advance:
        for row in rows.tolist():
            paper = paper_at(row)
            for service in asker.services:
                plan[service.name].update(lookup.kind for lookup in asker.open_lookups(row, paper, service))
            advance(1)
    if any(plan.values()) and not _consent(settings, plan, asker.services, name):
        return None
    unavailable = {}
    for service in asker.services:
        with Client(service) as client, count_progress(service.label, plan[service.name].total()) as advance:
            try:
                while True:  # until no paper has a lookup left; the next may depend on the answer to the last
                    before = client.requests
                    for batch in _batches(paper_at, rows, asker, service):
                        asker.cache.put(service.name, client.ask(batch))
                        advance(len(batch))
                    if client.requests == before:
                        break
            except Unavailable as error:
                unavailable[service.name] = str(error)
    return unavailable


def _consent(
    settings: EnrichSettings | ReferencesSettings,
    plan: Mapping[str, Counter[str]],
    services: Sequence[Service],
    name: str,
) -> bool:
    """Say what will be sent where, and ask whether to. plan: lookups of each kind, by service."""
    requests, seconds, lines = 0, 0.0, []
    for service in services:
        if kinds := plan.get(service.name):
            parts = [f"{kinds[kind]:,} {name}" for kind, name in _KINDS.items() if kinds[kind]]
            parts += [f"{service.sends} of {count_noun(kinds[TITLE])}"] if kinds[TITLE] else []
            parts += ["your address"] if service.mailto else []
            parts += ["your key"] if service.key else []
            needed = sum(math.ceil(count / service.batch_size(kind)) for kind, count in kinds.items())
            requests, seconds = requests + needed, seconds + needed * service.interval
            lines.append(f"  {urlsplit(service.address).hostname}: {', '.join(parts)}")
    out = sys.stderr if settings.yes or settings.format == "json" else sys.stdout
    print(f"{name}: at most this is sent, or identifiers found for a title:", file=out)
    print(*lines, sep="\n", file=out)
    print(f"  in {count_noun(requests, 'request')}, {duration(seconds)} or more", file=out)
    if settings.yes:
        return True
    if sys.stdin.isatty() and sys.stderr.isatty():
        print("Send it? [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() in ("y", "yes"):
            return True
    print("nothing was sent; yes=true sends it", file=out)
    if settings.format == "json":
        asked = {service: kinds for service, kinds in plan.items() if kinds}
        print(json.dumps({"library": name, "sent": False, "plan": asked}, indent=1))
    return False


def _batches(
    paper_at: Callable[[int], LibraryPaper], rows: Rows, asker: Asker, service: Service
) -> Iterator[list[Lookup]]:
    """Yield the next lookup of each paper, in batches of one kind."""
    groups: dict[str, dict[Lookup, int]] = {}
    for row in rows.tolist():
        for lookup in asker.open_lookups(row, paper_at(row), service)[:1]:
            group = groups.setdefault(lookup.kind, {})
            length = len(quote(lookup.value))
            is_full = len(group) == service.batch_size(lookup.kind)
            if group and (is_full or sum(group.values()) + length > LONGEST):
                yield list(group)
                group.clear()
            group[lookup] = length
    yield from (list(group) for group in groups.values() if group)


def _complete_library(
    settings: EnrichSettings,
    library: Library,
    finder: DumpFinder | ServiceFinder,
    unavailable: Mapping[str, str],
) -> int:
    """Write a generation with what was found, and print a report. Call it inside `Library.edit`.

    unavailable: services that could not be asked, and why. Returns how many papers were completed.
    """
    outcomes, changed, rows = list[Outcome](), dict[int, LibraryPaper](), finder.rows
    with count_progress("papers", len(rows)) as advance:
        for row in rows.tolist():
            outcomes.append(outcome := finder.find(row, paper := library.paper(row)))
            if outcome.paper != paper:
                changed[row] = outcome.paper
            advance(1)
    if changed:
        library.change([*changed], changed.values())
    _report(settings, outcomes, unavailable, len(library))
    return len(changed)


def _report(
    settings: EnrichSettings, outcomes: Sequence[Outcome], unavailable: Mapping[str, str], papers: int
) -> None:
    """Print what was found. papers: number in the library."""
    statuses, groups = Counter(outcome.status for outcome in outcomes), dict[str, list[Outcome]]()
    fields = Counter(name for outcome in outcomes for name in outcome.filled)
    sources = Counter(source for outcome in outcomes for source in {*outcome.filled.values()})
    for outcome in outcomes:
        groups.setdefault("retracted" if RETRACTED in outcome.filled else outcome.status, []).append(outcome)
    if settings.format == "json":
        head = {"library": settings.library, "sent": not settings.from_, "papers": len(outcomes)}
        counts = {"statuses": statuses, "fields": fields, "sources": sources, "unavailable": {**unavailable}}
        entries = [
            {name: getattr(outcome.paper, name) for name in ("id", "key", "title")}
            | {name: getattr(outcome, name) for name in ("status", "filled", "conflicts", "missing")}
            | {"retracted": outcome.paper.retracted}
            for group in groups.values()
            for outcome in group
        ]
        print(json.dumps(head | counts | {"entries": entries}, ensure_ascii=False, indent=1))
        return
    lacked = sum(bool(outcome.missing or outcome.filled.keys() - {RETRACTED}) for outcome in outcomes)
    completed = f"completed {statuses['completed']:,}"
    print(f"{settings.library}: {count_noun(papers)}, {lacked:,} lacked something")
    filled = ", ".join(f"{fields[name]:,} {name}" for name in (*FIELDS, RETRACTED) if fields[name])
    by = ", ".join(f"{name} {count:,}" for name, count in sources.most_common())
    print(f"{completed}: {filled}\nby source: {by}" if filled else completed)
    for outcome in groups.get("retracted", ()):
        print(f"retracted: {_line(outcome.paper)} ({terminal_text(outcome.paper.retracted)})")
    for status, meaning in _STATUSES.items():
        if group := groups.get(status):
            print(f"{status} {len(group):,}{meaning}")
            for outcome in group[:SHOWN] if status != "known" else ():
                why = f" ({terminal_text(outcome.conflicts[-1])})" if outcome.conflicts else ""
                print(f"  {_line(outcome.paper)}{why}")
            if len(group) > SHOWN and status != "known":
                print("  ... (format=json lists all)")
    for name, reason in unavailable.items():
        print(f"{name}: {reason}; the same command asks again what it has not answered", file=sys.stderr)


def _line(paper: LibraryPaper) -> str:
    return terminal_text(f"{paper.key or paper.id}: {paper.title}")


_STATUSES = {
    "known": ", but with nothing to fill in",
    "in conflict": ": what was found is another work",
    "not found": "",
    "unanswered": "",
    "not asked": ": without identifier, and without title, first author or year",
}
