"""The commands that ask a library."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console

from citerec.base.progress import spinner
from citerec.formats.bibliography.paper import LibraryPaper, retraction_note, terminal_text
from citerec.formats.drafts.inputs import decode
from citerec.library.ask.display import as_json, citation, paper_list, table
from citerec.library.ask.question import Filters
from citerec.library.ask.recommendation import note_on
from citerec.library.ask.recommender import Recommender, open_library, open_recommender
from citerec.library.settings import AskSettings, SearchSettings


def ask(settings: AskSettings) -> None:
    """Print papers to cite. Nothing else goes to stdout."""
    recommender = open_recommender(settings.library, settings.reranker)
    recommender.library.rows(settings.exclude, "exclude")  # a misspelt key would exclude nothing
    text = decode(sys.stdin.buffer.read()) if settings.text == "-" else settings.text
    filters = Filters(settings.exclude, settings.only, settings.years, settings.collection, settings.venue)
    with spinner("asking"):
        recommended = recommender.recommend(
            text, settings.title, settings.abstract, settings.k, filters=filters, explain=settings.explain
        )
    note, library = note_on(recommended), recommender.library
    if settings.format == "table":
        if note:
            print(note)
        Console().print(table(recommended, settings.explain))
    elif settings.format == "json":
        print(as_json(recommended, settings.explain))
    else:
        _print_papers([library.by_id(paper.id) for paper in recommended], settings.format)
        for paper in recommended:
            if told := retraction_note(paper.retracted):
                print(terminal_text(f"{paper.key or paper.id}: {told}"), file=sys.stderr)
    if not recommended:
        print(f"{settings.library}: no paper matches this passage", file=sys.stderr)
    elif note and settings.format != "table":
        print(f"{settings.library}: {note}", file=sys.stderr)


def search(settings: SearchSettings) -> None:
    """Print papers with these words. Nothing else goes to stdout."""
    recommender = Recommender(open_library(settings.library))  # words need no network
    query = " ".join(settings.words)
    papers = recommender.search(query, settings.k)
    lacking = recommender.lacking(query, papers)
    for line in lacking or ([] if papers else ["no paper has these words"]):
        print(f"{settings.library}: {line}", file=sys.stderr)
    if settings.format == "json":
        print(as_json(papers))
    elif settings.format == "table":
        Console().print(paper_list(papers))
    else:
        _print_papers(papers, settings.format)


def _print_papers(papers: Sequence[LibraryPaper], format: str) -> None:
    from citerec.formats.bibliography.references import ENTRIES, cite_keys  # a table needs neither

    if write := ENTRIES.get(format):
        print(write(papers), end="")
    else:
        print(citation(cite_keys(papers), format))
