"""`python recommend.py draft`: papers to cite where a draft lacks a citation."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from datasets.fulltext.catalogue import letters_of
from library.draft_copy import copy_places, write_copies
from library.draft_reader import HERE, Draft, Place, read_draft
from library.evidence import MARK, Recommendation
from library.formats import counted, shown, table
from library.library import Library
from library.recommender import Asked, Recommender
from library.settings import DraftSettings
from retrieval.queries import Query

_INDENTED = (0, 0, 0, 2)


@dataclass(frozen=True)
class Suggestions:
    """found: papers for each place of the draft, under the keys that the draft has for them, if it has.

    known: id in the library of each paper that the draft cites and the library has, by the draft's key.
    """

    draft: Draft
    found: Sequence[Sequence[Recommendation]]
    known: dict[str, str]

    @property
    def unknown(self) -> list[str]:
        """Keys that neither the library nor the draft's bibliography has."""
        return [key for key, entry in self.draft.cited.items() if entry is None and key not in self.known]


def draft(settings: DraftSettings) -> None:
    """Print what to cite in a draft, and write the filled copy if one is wished for."""
    root = Path(settings.root).expanduser() if settings.root else None
    given = read_draft(Path(settings.tex).expanduser(), root)
    targets = copy_places(given, Path(settings.fill).expanduser(), root) if settings.fill else None
    recommender = Recommender.open(settings.library, settings.reranker)
    suggestions = suggest(given, recommender, settings.k)
    if targets is not None:  # first: who reads the report may stop
        for line in write_copies(given, suggestions.found, suggestions.known, recommender.library, targets):
            print(line, file=sys.stderr)
    if settings.format == "json":
        print(json.dumps(as_json(suggestions), ensure_ascii=False, indent=1))
    else:
        report(suggestions, Console(highlight=False, soft_wrap=False))


def suggest(given: Draft, recommender: Recommender, k: int) -> Suggestions:
    """The k best papers for each place; neither the draft itself nor papers that its sentence cites."""
    known, own = known_papers(given, recommender.library)
    asked = []
    for place in given.places:
        beside = [known[key] for key in place.beside if key in known]
        query = Query(place.context, given.title, given.abstract, given.year, tuple(known.values()), own)
        asked.append(Asked(query, exclude=beside))
    keys = {paper: key for key, paper in known.items()}
    found = [
        [replace(paper, key=keys.get(paper.id, paper.key)) for paper in papers]
        for papers in recommender.recommend_batch(asked, k)
    ]
    return Suggestions(given, found, known)


def known_papers(given: Draft, library: Library) -> tuple[dict[str, str], str | None]:
    """Ids in the library of the papers that a draft cites, by its keys, and of the draft itself.

    By the title in the draft's bibliography, else by the key: one key may stand for another paper elsewhere.
    """
    wanted = {key: letters_of(entry.title) for key, entry in given.cited.items() if entry and entry.title}
    titles = {*wanted.values(), letters_of(given.title)} - {""}
    corpus = library.corpus
    rows: dict[str, int] = {}
    if titles:
        for row, title in enumerate(corpus.titles):
            if (letters := letters_of(title)) in titles:
                rows.setdefault(letters, row)
    known = {}
    for key in given.cited:
        if (there := rows.get(wanted[key]) if key in wanted else library.row(key)) is not None:
            known[key] = corpus.paper_ids[there]
    own = rows.get(letters_of(given.title))
    return known, None if own is None else corpus.paper_ids[own]


def as_json(suggestions: Suggestions) -> dict[str, Any]:
    given = suggestions.draft
    places = [
        {
            "file": _name(given, place),
            "line": place.line,
            "command": place.command,
            "sentence": place.sentence,
            "beside": list(place.beside),
            "recommendations": [paper.as_json() for paper in papers],
        }
        for place, papers in zip(given.places, suggestions.found, strict=True)
    ]
    about = {"draft": str(given.path), "title": given.title, "abstract": given.abstract}
    return {**about, "places": places, "unknown": suggestions.unknown, "notes": list(given.notes)}


def report(suggestions: Suggestions, console: Console) -> None:
    """Each place with its sentence and the papers for it, for people."""
    given = suggestions.draft
    cited = f"cites {len(given.cited)}, of which the library has {len(suggestions.known)}"
    title = f"“{shown(given.title)}”" if given.title else "without a title"
    places = f"{counted(len(given.places), 'place')} to fill"
    console.print(Text.assemble((given.path.name, "bold"), f": {title}, {places}, {cited}"))
    if not given.abstract:
        console.print(Text("no abstract was found: with one, suggestions are better", style="dim"))
    for place, papers in zip(given.places, suggestions.found, strict=True):
        console.print()
        where = f"{_name(given, place)}:{place.line}"
        console.print(Text.assemble((where, "bold magenta"), "  ", (shown(place.command), "magenta")))
        sentence = Text(shown(place.sentence), style="default")
        sentence.highlight_words([MARK, HERE], "bold yellow")
        console.print(Padding(sentence, _INDENTED))
        found = table(papers) if papers else Text("nothing in the library answers to it", style="dim")
        console.print(Padding(found, _INDENTED))
    notes = list(given.notes)
    if suggestions.unknown:
        keys = ", ".join(suggestions.unknown)
        notes.insert(0, f"neither in the library nor in the draft's bibliography: {keys}")
    if notes:
        console.print()
    for note in notes:
        console.print(Text(f"note: {shown(note)}", style="dim"))


def _name(given: Draft, place: Place) -> str:
    """The place's file as seen from the draft's folder."""
    folder = given.path.parent
    return str(place.file.relative_to(folder) if place.file.is_relative_to(folder) else place.file)
