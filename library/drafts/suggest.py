"""`citerec draft`: suggests papers for the missing citations of a draft, and fills a copy."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.text import Text

from citerec.base.errors import count_noun
from citerec.base.files import expand_user
from citerec.base.progress import spinner
from citerec.formats.bibliography.paper import LibraryPaper, terminal_text
from citerec.formats.documents import Reference
from citerec.formats.letters import normalise_title
from citerec.formats.names import surname
from citerec.library import MARK
from citerec.library.ask.display import Labelled, table
from citerec.library.ask.question import Filters, Request
from citerec.library.ask.recommendation import Recommendation, note_on
from citerec.library.ask.recommender import Recommender, open_recommender
from citerec.library.drafts.copies import Suggestions, numbered_keys, plan_copies, write_copies
from citerec.library.drafts.reader import MARK_KEY, Draft, Place, read_draft
from citerec.library.papers.library import Library
from citerec.library.settings import DraftSettings
from citerec.retrieval.passages import CitingPassages
from citerec.retrieval.queries import Query

_INDENT = Text(" ")


def draft(settings: DraftSettings) -> None:
    """Print suggestions for a draft, and write a copy that cites them if requested."""
    root, bibs = settings.draft_files
    parsed = read_draft(expand_user(settings.tex), root, bibs)
    plain = settings.citations == "plain"
    copies = plan_copies(parsed, expand_user(settings.fill), root, plain) if settings.fill else None
    recommender = open_recommender(settings.library, settings.reranker)
    with spinner("looking for papers"):
        suggestions = suggest(parsed, recommender, settings.k)
    if copies is not None:  # before the report, whose reader may close the pipe
        for line in write_copies(suggestions, recommender.library, copies, settings.sure, settings.pages):
            print(line, file=sys.stderr)
    if settings.format == "json":
        print(json.dumps(as_json(suggestions), ensure_ascii=False, indent=1))
    else:
        report(suggestions, Console(highlight=False, soft_wrap=False))


def suggest(draft: Draft, recommender: Recommender, k: int) -> Suggestions:
    """Find papers for each place, except the draft itself and papers cited in the same sentence: the k best
    that it does not cite, and the best that it cites elsewhere."""
    ids = known_papers(draft, recommender.library)
    passages = citing_passages(draft, ids)
    requests = [place_request(draft, place, ids, passages) for place in draft.places]
    recommended = recommender.recommend_batch(requests, k)
    keys = own_keys(draft, ids, recommender.library, (paper for papers in recommended for paper in papers))
    suggested = [[replace(paper, key=keys[paper.id]) for paper in papers] for papers in recommended]
    return Suggestions(draft, suggested, ids)


def own_keys(
    draft: Draft, ids: Mapping[str, str], library: Library, papers: Iterable[Recommendation]
) -> dict[str, str]:
    """Return the keys of papers by id: the draft's key of a paper that it cites, or whose entry it has, else
    the library's, with a number if that is taken. Where the draft has several, the library's comes first.

    ids: see `known_papers`.
    """
    cited, keys = dict[str, list[str]](), dict[str, str]()
    for key, id in ids.items():
        cited.setdefault(id, []).append(key)
    taken = draft.references.all_keys() | draft.cited.keys()
    entries = draft.references.entries(taken)

    def title(key: str) -> str:
        """The title of a draft's entry; "" if it has none."""
        return normalise_title(entries[key].title) if key in entries else ""

    for id, letters in {paper.id: normalise_title(paper.title) for paper in papers}.items():
        paper = library.by_id(id)
        own = [name for name in (paper.key, *paper.aliases) if name]
        there = cited.get(id) or [name for name in own if letters and title(name) == letters]
        if there:
            keys[id] = next((name for name in own if name in there), there[0])
        else:
            numbered = numbered_keys(paper._replace(key=own[0] if own else ""))
            keys[id] = next(key for key in numbered if key not in taken or title(key) == letters)
            taken.add(keys[id])
    return keys


def place_request(draft: Draft, place: Place, ids: Mapping[str, str], passages: CitingPassages) -> Request:
    """Return the request for a missing citation; ids: see `known_papers`. What only a second copy of its text
    cites, as in an old version that the draft includes, is not known."""
    copied = passages.copied(place.passage)
    query = Query(
        place.context,
        title=draft.title,
        abstract=draft.abstract,
        year=draft.year,
        known=tuple(id for id in ids.values() if id not in copied),
        passages=passages,
        place=place.passage,
    )
    return Request(query, Filters(exclude=[ids[key] for key in place.beside if key in ids]))


def citing_passages(draft: Draft, ids: Mapping[str, str]) -> CitingPassages:
    """Return the passages of a draft that cite; ids: of papers by key."""
    cited = [[ids[key] for key in keys if key in ids] for _, keys in draft.passages]
    return CitingPassages([context for context, _ in draft.passages], cited)


def known_papers(draft: Draft, library: Library) -> dict[str, str]:
    """Return the library ids of the papers that a draft cites, by its keys.

    Papers are matched by their title in the draft's bibliography, and by key only if they have none there,
    since the same key may mean another paper in the library. Of several with one title, the one with the key
    is meant, or else the one that shares most of the other fields.
    """
    entries = {key: entry for key, entry in draft.cited.items() if entry and entry.title}
    wanted = {normalise_title(entry.title) for entry in entries.values()} - {""}
    listed: dict[str, list[LibraryPaper]] = {}
    if wanted:
        papers = library.related(LibraryPaper("", title=entry.title) for entry in entries.values())
        for row, title in enumerate(papers.corpus.titles):
            if (letters := normalise_title(title)) in wanted:
                listed.setdefault(letters, []).append(papers.paper(row))

    def meant(key: str, entry: Reference) -> str | None:
        same = [
            (_agreement(key, entry, paper), paper) for paper in listed.get(normalise_title(entry.title), ())
        ]
        return max(same, key=lambda pair: pair[0])[1].id if same else None

    id_of = library.storage.id_of
    ids = {key: meant(key, entries[key]) if key in entries else id_of(key) for key in draft.cited}
    return {key: id for key, id in ids.items() if id is not None}


def _agreement(key: str, entry: Reference, paper: LibraryPaper) -> tuple[bool, int]:
    """Return whether a paper with the title of an entry has its key, and how many of its fields."""
    first = [surname(names[0]) for names in (entry.authors, paper.authors) if names]
    fields = (
        f"doi:{paper.doi}" in entry.identifiers,
        bool(paper.arxiv) and paper.arxiv == entry.arxiv,
        bool(paper.year) and paper.year == entry.year,
        len(first) == 2 and first[0] == first[1],
    )
    return bool(key) and key in (paper.key, *paper.aliases), sum(fields)


def as_json(suggestions: Suggestions) -> dict[str, Any]:
    draft = suggestions.draft
    places = [
        {
            "file": _relative_path(draft, place),
            "line": place.line,
            "command": place.command,
            "sentence": place.sentence,
            "beside": list(place.beside),
            "note": note_on(papers),
            "recommendations": [paper.as_json() for paper in papers],
        }
        for place, papers in zip(draft.places, suggestions.papers, strict=True)
    ]
    head = {"draft": str(draft.path), "title": draft.title, "abstract": draft.abstract}
    return {**head, "places": places, "unknown": suggestions.unknown, "notes": list(draft.notes)}


def report(suggestions: Suggestions, console: Console) -> None:
    """Print each place with its sentence and the suggested papers."""
    draft = suggestions.draft
    cited = f"cites {count_noun(len(draft.cited))}, {len(suggestions.ids)} of them in the library"
    title = f"“{terminal_text(draft.title)}”" if draft.title else "no title"
    missing = count_noun(len(draft.places), "missing citation")
    head = Text.assemble((draft.path.name, "bold"), f": {title}, {missing}, {cited}")
    console.print(Labelled([(Text(), head)]))
    if not draft.abstract:
        console.print(Text("no abstract found; suggestions are better with one", style="dim"))
    for place, papers in zip(draft.places, suggestions.papers, strict=True):
        console.print()
        where = f"{_relative_path(draft, place)}:{place.line}"
        console.print(Text.assemble((where, "bold magenta"), "  ", (terminal_text(place.command), "magenta")))
        sentence = Text(terminal_text(place.sentence), style="default")
        sentence.highlight_words([MARK, MARK_KEY], "bold yellow")
        console.print(Labelled([(_INDENT, sentence)]))
        none = Labelled([(_INDENT, Text("no matching paper in the library", style="dim"))])
        if note := note_on(papers):
            console.print(Labelled([(_INDENT, Text(note, style="yellow"))]))
        console.print(table(papers).indented() if papers else none)
    notes = list(draft.notes)
    if suggestions.unknown:
        keys = ", ".join(suggestions.unknown)
        notes.insert(0, f"neither in the library nor in the draft's bibliography: {keys}")
    if notes:
        console.print()
    for note in notes:
        console.print(Labelled([(Text("note:", style="dim"), Text(terminal_text(note), style="dim"))]))


def _relative_path(draft: Draft, place: Place) -> str:
    """Return the place's file relative to the draft's folder."""
    folder = draft.path.parent
    return str(place.file.relative_to(folder) if place.file.is_relative_to(folder) else place.file)
