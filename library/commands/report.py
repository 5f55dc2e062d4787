"""`citerec report`: the references of a draft on one page, before it is submitted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import date
from html import escape
from statistics import median
from typing import Any

from citerec.base.files import expand_user
from citerec.formats.bibliography.paper import is_preprint, terminal_text
from citerec.formats.names import surname
from citerec.library.commands.references import judge_all
from citerec.library.drafts.check import CheckedDraft, find_problems, read_checked
from citerec.library.papers.library import Library
from citerec.library.settings import ReportSettings

RECENT, VENUES = 5, 10
"""Years in which a reference is recent; venues that are told."""
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
    "could_go": "could go: cited once, beside others",
    "notes": "notes",
}


def report(settings: ReportSettings) -> None:
    """Print the report."""
    draft = read_checked(expand_user(settings.tex), *settings.draft_files)
    library = Library.open(settings.library) if settings.library else None
    numbers, lists = describe(settings, draft, library)
    page = {f"References of {draft.path.name}": [*_lines(numbers)]}
    page |= {f"{title} ({len(lists[name])})": lists[name] for name, title in _LISTS.items() if lists[name]}
    if settings.format == "json":
        print(json.dumps({"draft": str(draft.path), **numbers, **lists}, ensure_ascii=False, indent=1))
    elif settings.format == "html":
        print("<!DOCTYPE html><html lang=en><meta charset=utf-8><title>References</title>")
        for head, lines in page.items():
            print(f"<h2>{escape(head)}</h2><ul>", *(f"<li>{escape(line)}</li>" for line in lines), "</ul>")
    else:
        for head, lines in page.items():
            print(f"{head}:", *(f"  {terminal_text(line)}" for line in lines), sep="\n")


def describe(
    settings: ReportSettings, draft: CheckedDraft, library: Library | None = None
) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """Return the numbers of a report, and its lists of keys with what is said of them."""
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
        "own": sum(any(surname(name).casefold() in own for name in paper.authors) for paper in papers),
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
    lists: dict[str, dict[str, str]] = {name: {} for name in _LISTS}
    for kind, key, text in told:
        if kind in lists:
            lists[kind].setdefault(key, key if kind == "uncited" else f"{key} {text}")
    going = could_go(places, len(places) - settings.most) if settings.most else []
    listed = {kind: [*keys.values()] for kind, keys in lists.items()}
    return numbers, listed | {"could_go": going, "notes": notes}


def could_go(places: Mapping[str, set[tuple[str, int]]], count: int) -> list[str]:
    """Return up to `count` keys whose one citation stands beside others, which stay: of large groups first.

    places: where each key is cited.
    """
    sizes = Counter(place for each in places.values() for place in each)
    once = {key: next(iter(each)) for key, each in places.items() if len(each) == 1}
    gone: list[str] = []
    while len(gone) < count and (open_keys := [key for key in once if sizes[once[key]] > 1]):
        gone.append(key := max(open_keys, key=lambda key: (sizes[once[key]], key)))
        sizes[once.pop(key)] -= 1
    return gone


def _lines(numbers: Mapping[str, Any]) -> Iterator[str]:
    for name, number in numbers.items():
        text = str(number)
        if isinstance(number, dict):
            text = "; ".join(f"{each} {count:,}" for each, count in number.items())
        elif name in _SHARES:
            text = f"{number:,} ({number / max(numbers['references'], 1):.0%})"
        if number not in (None, {}):
            yield f"{_NUMBERS.get(name, name.replace('_', ' '))}: {text}"
