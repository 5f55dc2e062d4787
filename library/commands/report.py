"""`citerec report`: the references of a draft on one page, before it is submitted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import date
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
    "notes": "notes",
}


def report(settings: ReportSettings) -> None:
    """Print the report."""
    draft = read_checked(expand_user(settings.tex), *settings.draft_files)
    content = describe(settings, draft, Library.open(settings.library) if settings.library else None)
    if settings.format == "json":
        print(json.dumps(content, ensure_ascii=False, indent=1))
        return
    lists = [(f"{title} ({len(content[name])})", content[name]) for name, title in _LISTS.items()]
    for head, lines in [(str(draft.path), [*_numbers(content)]), *lists]:
        if lines:
            print(f"{head}:", *(f"  {terminal_text(line)}" for line in lines), sep="\n")


def describe(settings: ReportSettings, draft: CheckedDraft, library: Library | None = None) -> dict[str, Any]:
    """Return what the report says: numbers, and lists of keys with what is said of them."""
    keys = dict.fromkeys(draft.key(citation.key) for citation in draft.citations)
    cited, notes = [draft.by_key[key] for key in keys if key in draft.by_key], [*draft.notes]
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
    return {
        "draft": str(draft.path),
        "references": len(keys),
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
