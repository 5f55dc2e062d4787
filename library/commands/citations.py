"""The commands about what a library's PDFs cite."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict
from itertools import islice
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from citerec.base.errors import count_noun
from citerec.base.files import expand_user
from citerec.formats.bibliography.bibtex import write_item
from citerec.formats.bibliography.paper import LibraryPaper, terminal_text
from citerec.formats.bibliography.references import ENTRIES, paper_item
from citerec.library.ask.relations import SENTENCES, Relations, name_of
from citerec.library.drafts.copies import numbered_keys
from citerec.library.evidence.citations import READ_FROM_PDF, Citations, MissingWork
from citerec.library.evidence.explanation import MAX_EXCERPT, excerpt
from citerec.library.papers.library import Library
from citerec.library.settings import MissingSettings, PaperSettings


def paper(settings: PaperSettings) -> None:
    """Print what a paper's PDF cites, and which PDFs cite it."""
    library = Library.open(settings.library)
    relations = Relations.read(library, settings.key)
    if settings.format == "json":
        print(json.dumps(asdict(relations), ensure_ascii=False, indent=1))
        return
    shown = library.by_id(relations.id)
    console = Console()
    console.print(
        Text(terminal_text(f"{shown.title} · {name_of(shown)} · {shown.key or shown.id}"), style="bold")
    )
    if relations.note:
        console.print(Text(relations.note))
    else:
        others = f"; {count_noun(relations.others, 'other work')}" if relations.others else ""
        console.print(Text(f"\ncites {count_noun(len(relations.cites))} of the library{others}"))
    _print(console, relations.cites)
    console.print(Text(f"\ncited by {count_noun(len(relations.cited_by))} of the library"))
    _print(console, relations.cited_by)


def _print(console: Console, related: Iterable[Mapping[str, Any]]) -> None:
    for paper in related:
        line = f"{paper['key'] or paper['id']}  {paper['title']} ({paper['name']})"
        console.print(Padding(Text(terminal_text(line)), (0, 0, 0, 2)))
        for sentence in paper["sentences"]:
            _print_sentence(console, sentence["text"], sentence["page"])


def _print_sentence(console: Console, text: str, page: int, key: str = "") -> None:
    where = ", ".join(filter(None, [key, f"p. {page}" if page else ""]))
    shown = excerpt(text, (), 2 * MAX_EXCERPT)
    line = f"“{shown}”" + (f" ({where})" if where else "")
    console.print(Padding(Text(terminal_text(line), style="italic"), (0, 0, 0, 4)))


def missing(settings: MissingSettings) -> None:
    """Print works that PDFs cite and the library lacks. Nothing else goes to stdout."""
    library = Library.open(settings.library)
    with closing(Citations(expand_user(settings.library))) as citations:
        works, unclear = citations.missing(settings.least)
        works = works[: settings.k]
        listed = [_described(library, work, citations) for work in works]
    papers = [work.paper() for work in works]
    if settings.format == "text":
        console = Console()
        for work in listed:
            console.print(
                Text(terminal_text(f"{count_noun(work['pdfs'], 'PDF')}  {work['entry']}"), style="bold")
            )
            for sentence in work["sentences"]:
                _print_sentence(console, sentence["text"], sentence["page"], sentence["key"])
    elif settings.format == "json":
        for work, paper in zip(listed, papers, strict=True):
            work |= {"title": paper.title, "year": paper.year or None, "doi": paper.doi}
        print(json.dumps(listed, ensure_ascii=False, indent=1))
    else:
        titled = (paper for paper in papers if paper.title)
        print(ENTRIES[settings.format]([*_exported(titled)]), end="")
        if left := sum(not paper.title for paper in papers):
            print(f"{count_noun(left, 'work')} left out, whose title cannot be told", file=sys.stderr)
    if not works:
        cited = count_noun(settings.least, "PDF")
        print(f"{settings.library}: no work that it lacks is cited by {cited}", file=sys.stderr)
    if unclear:
        count = count_noun(unclear, "reference")
        print(f"{count} could not be compared, as no title can be told", file=sys.stderr)


def _described(library: Library, work: MissingWork, citations: Citations) -> dict[str, Any]:
    keys = {id: library.by_id(id).key or id for id in work.citing if library.row(id) is not None}
    sentences = [
        {"key": keys[id], "text": text, "page": place.page}
        for id, text, place in islice(citations.sentences(work.places), SENTENCES)
        if id in keys
    ]
    about = {"entry": work.entry, "pdfs": len(work.citing), "cited_by": [*keys.values()]}
    return about | {"sentences": sentences}


def _exported(papers: Iterable[LibraryPaper]) -> Iterator[LibraryPaper]:
    """Yield papers with keys that differ, whose entries say where they were read."""
    taken = set[str]()
    for paper in papers:
        key = next(key for key in numbered_keys(paper) if key not in taken)
        taken.add(key)
        item = paper_item(paper)
        item.fields["note"] = READ_FROM_PDF
        yield paper._replace(key=key, bibtex=write_item(item, key))
