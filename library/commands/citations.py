"""The commands about what a library's PDFs cite."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import asdict
from itertools import chain, islice

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from citerec.base.errors import count_noun
from citerec.base.files import expand_user
from citerec.formats.bibliography.bibtex import write_item
from citerec.formats.bibliography.paper import LibraryPaper, terminal_text
from citerec.formats.bibliography.references import ENTRIES, paper_item
from citerec.library.ask.relations import SENTENCES, Relations, name_of
from citerec.library.evidence.citations import READ_FROM_PDF, Citations
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
    _print(f"{shown.title} · {name_of(shown)} · {shown.key or shown.id}", "bold")
    others = f"; {count_noun(relations.others, 'other work')}" if relations.others else ""
    cites = f"\ncites {count_noun(len(relations.cites))} of the library{others}"
    cited_by = f"\ncited by {count_noun(len(relations.cited_by))} of the library"
    for heading, related in ((relations.note or cites, relations.cites), (cited_by, relations.cited_by)):
        print(heading)
        for other in related:
            _print(f"{other['key'] or other['id']}  {other['title']} ({other['name']})", indent=2)
            for sentence in other["sentences"]:
                _print_sentence(sentence["text"], sentence["page"])


def _print(text: str, style: str = "", indent: int = 0) -> None:
    Console().print(Padding(Text(terminal_text(text), style=style), (0, 0, 0, indent)))


def _print_sentence(text: str, page: int, key: str = "") -> None:
    where = ", ".join(filter(None, [key, f"p. {page}" if page else ""]))
    shown = excerpt(text, (), 2 * MAX_EXCERPT)
    _print(f"“{shown}”" + (f" ({where})" if where else ""), "italic", 4)


def missing(settings: MissingSettings) -> None:
    """Print works that PDFs cite and the library lacks. Nothing else goes to stdout."""
    library = Library.open(settings.library)
    with closing(Citations(expand_user(settings.library))) as citations:
        works, unclear = citations.missing(settings.least)
        works = works[: settings.k]
        for work in works if settings.format == "text" else ():
            _print(f"{count_noun(len(work.citing), 'PDF')}  {work.entry}", "bold")
            sentences = chain.from_iterable(citations.sentences(*place[:2]) for place in work.places)
            for citing, text, place in islice(sentences, SENTENCES):
                row = library.row(citing)
                _print_sentence(text, place.page, "" if row is None else library.paper(row).key or citing)
    if settings.format != "text":
        papers = [paper for work in works if (paper := work.paper()).title]
        print(ENTRIES[settings.format]([*_exported(papers)]), end="")
        if left := len(works) - len(papers):
            print(f"{count_noun(left, 'work')} left out, whose title cannot be told", file=sys.stderr)
    if not works:
        cited = count_noun(settings.least, "PDF")
        print(f"{settings.library}: no work that it lacks is cited by {cited}", file=sys.stderr)
    if unclear:
        count = count_noun(unclear, "reference")
        print(f"{count} could not be compared, as no title can be told", file=sys.stderr)


def _exported(papers: Iterable[LibraryPaper]) -> Iterator[LibraryPaper]:
    """Yield papers whose entries say where they were read."""
    for paper in papers:
        item = paper_item(paper)
        item.fields["note"] = READ_FROM_PDF
        yield paper._replace(bibtex=write_item(item, paper.id))
