"""`citerec report`: the references of a draft on one page, before it is submitted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import date
from html import escape
from statistics import median
from typing import Any

from citerec.base.errors import count_noun
from citerec.base.files import expand_user
from citerec.formats.bibliography.paper import is_preprint, terminal_text
from citerec.formats.names import surname
from citerec.library.commands.references import judge_all
from citerec.library.drafts.check import CheckedDraft, find_problems, read_checked
from citerec.library.papers.library import Library
from citerec.library.settings import ReportSettings

RECENT = 5
"""Years in which a reference is recent."""
VENUES = 10
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
    content = describe(settings, draft, Library.open(settings.library) if settings.library else None)
    told = ((title, content[name]) for name, title in _LISTS.items())
    lists = [(f"{title} ({len(lines)})", lines) for title, lines in told if lines]
    title, numbers = f"References of {draft.path.name}", [*_numbers(content)]
    if settings.format == "json":
        print(json.dumps(content, ensure_ascii=False, indent=1))
    elif settings.format == "html":
        print(f"<!DOCTYPE html><html lang=en><meta charset=utf-8><title>{escape(title)}</title>")
        for number, (head, lines) in enumerate(((title, numbers), *lists)):
            items, level = "".join(f"<li>{escape(line)}</li>" for line in lines), 2 if number else 1
            print(f"<h{level}>{escape(head)}</h{level}><ul>{items}</ul>")
        print("</html>")
    else:
        for head, lines in ((str(draft.path), numbers), *lists):
            print(f"{head}:", *(f"  {terminal_text(line)}" for line in lines), sep="\n")


def describe(settings: ReportSettings, draft: CheckedDraft, library: Library | None = None) -> dict[str, Any]:
    """Return what the report says: numbers, and lists of keys with what is said of them."""
    places: dict[str, set[tuple[str, int]]] = {}
    for citation in draft.citations:
        places.setdefault(draft.key(citation.key), set()).add((str(citation.file), citation.start))
    cited, notes = [draft.by_key[key] for key in places if key in draft.by_key], [*draft.notes]
    papers = [entry.paper for entry in cited if entry.paper]
    answers = [answer for _, answer in judge_all(settings, library, cited, notes)]
    years = sorted(paper.year for paper in papers if paper.year)
    own = {name.casefold() for name in settings.author}
    lists: dict[str, list[str]] = {name: [] for name in _LISTS}
    for problem in find_problems(draft, library):
        if problem.kind in lists:
            is_told = problem.kind != "uncited"
            lists[problem.kind].append(f"{problem.key} {problem.message}" if is_told else problem.key)
    names = {"published": "preprint", "retracted": "retracted", "doi": "missing_doi"}
    for answer in answers:
        for kind, text, where in answer.status:
            name = names.get(kind, "")
            if name and all(line.split()[0] != answer.key for line in lists[name]):
                lists[name].append(f"{answer.key} {text} ({where})")
    lists["contradicted"] = [f"{answer.key} {answer.said}" for answer in answers if answer.findings]
    lists["could_go"] = could_go(places, len(places) - settings.most) if settings.most else []
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
        **lists,
        "notes": notes,
    }


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


def _numbers(content: Mapping[str, Any]) -> Iterator[str]:
    def share(name: str, noun: str) -> str:
        return f"{noun} ({content[name] / max(content['references'], 1):.0%})"

    def count(name: str, noun: str) -> str:
        return count_noun(content[name], noun)

    references, citations = count("references", "reference"), count("citations", "citation")
    yield f"{references} in {citations}; {share('own', count('own', 'own work'))}"
    without = f"{content['without_doi']:,} without DOI"
    yield f"{share('preprints', count('preprints', 'preprint'))}, {share('without_doi', without)}"
    if content["median_year"]:
        recent = share("recent", f"{content['recent']:,} of the last {RECENT} years")
        yield f"median year {content['median_year']}, oldest {content['oldest']}, {recent}"
    yield ", ".join(f"{count:,} {answer}" for answer, count in sorted(content["answers"].items()))
    if content["venues"]:
        yield "venues: " + "; ".join(f"{venue} {count}" for venue, count in content["venues"].items())
