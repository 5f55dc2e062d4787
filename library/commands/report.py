"""`citerec report`: the references of a draft on one page, before it is submitted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from html import escape
from statistics import median
from typing import Any

from citerec.base.files import expand_user
from citerec.formats.bibliography.paper import is_preprint, terminal_text
from citerec.formats.names import surname
from citerec.library.commands.references import judge_all, make_sources
from citerec.library.drafts.check import CheckedDraft, find_problems, read_checked
from citerec.library.papers.library import Library
from citerec.library.settings import ReportSettings

RECENT = 5
"""Years in which a reference is recent."""
VENUES = 10


def report(settings: ReportSettings) -> None:
    """Print the report."""
    root = expand_user(settings.root) if settings.root else None
    draft = read_checked(expand_user(settings.tex), root, [expand_user(bib) for bib in settings.bib])
    content = describe(settings, draft, Library.open(settings.library) if settings.library else None)
    if settings.format == "json":
        print(json.dumps(content, ensure_ascii=False, indent=1))
    elif settings.format == "html":
        print(_page(content))
    else:
        print(*_lines(content), sep="\n")


def describe(settings: ReportSettings, draft: CheckedDraft, library: Library | None = None) -> dict[str, Any]:
    """Return what the report says: numbers, and lists of keys with what is said of them."""
    aliases = {alias: entry.key for entry in draft.entries for alias in entry.aliases}
    places: dict[str, set[tuple[str, int]]] = {}
    for citation in draft.citations:
        place = str(citation.file), citation.start
        places.setdefault(aliases.get(citation.key, citation.key), set()).add(place)
    first = {entry.key: entry for entry in reversed(draft.entries)}
    cited = [first[key] for key in places if key in first and first[key].paper]
    papers = [entry.paper for entry in cited if entry.paper]
    notes = [*draft.notes]
    answers = [
        answer for _, answer in judge_all(cited, make_sources(settings, library, papers, notes), notes)
    ]
    years = sorted(paper.year for paper in papers if paper.year)
    own = {name.casefold() for name in settings.author}
    problems = find_problems(draft, library)
    by_kind = {
        kind: [f"{found.key} {found.message}" for found in problems if found.kind == kind]
        for kind in ("unknown", "duplicate", "preprint", "retracted")
    }
    statuses = [(answer.key, status) for answer in answers for status in answer.status]
    for name, kind in (("preprint", "published"), ("retracted", "retracted")):
        told = {text.split()[0] for text in by_kind[name]}
        new = [(key, status) for key, status in statuses if status.kind == kind and key not in told]
        by_kind[name] += [f"{key} {status.text} ({status.where})" for key, status in new]
    return {
        "draft": str(draft.path),
        "references": len(places),
        "citations": len({(citation.file, citation.start) for citation in draft.citations}),
        "own": sum(any(surname(name).casefold() in own for name in paper.authors) for paper in papers),
        "preprints": sum(map(is_preprint, papers)),
        "median_year": int(median(years)) if years else None,
        "oldest": years[0] if years else None,
        "recent": sum(year > date.today().year - RECENT for year in years),
        "without_doi": sum(not paper.doi for paper in papers),
        "venues": dict(Counter(paper.venue for paper in papers if paper.venue).most_common(VENUES)),
        "answers": dict(Counter(answer.answer for answer in answers)),
        "contradicted": [f"{answer.key} {answer.said}" for answer in answers if answer.findings],
        **by_kind,
        "missing_doi": [f"{key} {status.text}" for key, status in statuses if status.kind == "doi"],
        "uncited": [found.key for found in problems if found.kind == "uncited"],
        "could_go": could_go(places, len(places) - settings.most) if settings.most else [],
        "notes": notes,
    }


def could_go(places: Mapping[str, set[tuple[str, int]]], count: int) -> list[str]:
    """Return up to `count` keys whose one citation stands beside others, which stay: of large groups first.

    places: where each key is cited.
    """
    groups: dict[tuple[str, int], list[str]] = {}
    for key, wheres in places.items():
        for where in wheres:
            groups.setdefault(where, []).append(key)
    gone: list[str] = []
    while len(gone) < count:
        sizes = {key: len(groups[next(iter(wheres))]) for key, wheres in places.items() if len(wheres) == 1}
        key = max(sizes.keys() - {*gone}, key=lambda key: (sizes[key], key), default="")
        if not key or sizes[key] < 2:
            break
        groups[next(iter(places[key]))].remove(key)
        gone.append(key)
    return gone


def _sections(content: Mapping[str, Any]) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield titles and lists, of the lists that have something."""
    titles = {
        "contradicted": "contradicted references",
        "retracted": "retracted",
        "unknown": "unknown keys",
        "duplicate": "doubled",
        "preprint": "preprints that have been published",
        "missing_doi": "entries whose record has a DOI",
        "uncited": "entries that are never cited",
        "could_go": "could go: cited once, beside others",
        "notes": "notes",
    }
    yield from ((title, content[name]) for name, title in titles.items() if content[name])


def _numbers(content: Mapping[str, Any]) -> list[str]:
    count = content["references"]

    def share(name: str, noun: str) -> str:
        return f"{content[name]:,} {noun} ({content[name] / max(count, 1):.0%})"

    lines = [f"{count:,} references in {content['citations']:,} citations; {share('own', 'own works')}"]
    lines += [f"{share('preprints', 'preprints')}, {share('without_doi', 'without DOI')}"]
    if content["median_year"]:
        recent = share("recent", f"of the last {RECENT} years")
        lines += [f"median year {content['median_year']}, oldest {content['oldest']}, {recent}"]
    lines += [", ".join(f"{count:,} {answer}" for answer, count in sorted(content["answers"].items()))]
    venues = content["venues"].items()
    return [
        *lines,
        *(["venues: " + "; ".join(f"{venue} {count}" for venue, count in venues)] if venues else []),
    ]


def _lines(content: Mapping[str, Any]) -> Iterator[str]:
    yield f"{content['draft']}:"
    yield from (f"  {terminal_text(line)}" for line in _numbers(content))
    for title, listed in _sections(content):
        yield f"{title} ({len(listed)}):"
        yield from (f"  {terminal_text(text)}" for text in listed)


def _page(content: Mapping[str, Any]) -> str:
    """Return the report as a page of HTML without scripts."""
    title = f"References of {escape(content['draft'].rpartition('/')[2])}"
    parts = [f"<!DOCTYPE html><html lang=en><meta charset=utf-8><title>{title}</title><h1>{title}</h1><ul>"]
    parts += [*(f"<li>{escape(line)}</li>" for line in _numbers(content)), "</ul>"]
    for name, listed in _sections(content):
        items = "".join(f"<li>{escape(text)}</li>" for text in listed)
        parts.append(f"<h2>{name} ({len(listed)})</h2><ul>{items}</ul>")
    return "\n".join([*parts, "</html>"])
