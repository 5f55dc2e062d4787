"""`python recommend.py ask`: recommendations for one passage, as a table, JSON, BibTeX or citations."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence

from rich.console import Console

from datasets.errors import InputError
from library.evidence import Recommendation
from library.formats import FORMATS, as_json, bibtex, citation, shown, table
from library.messages import MOST_PAPERS
from library.recommender import Recommender
from library.settings import AskSettings


def ask(settings: AskSettings) -> None:
    """Print the papers to cite; nothing else goes to stdout."""
    if settings.format not in FORMATS:
        raise InputError(f"format={settings.format}: choose one of {', '.join(FORMATS)}")
    if not 1 <= settings.k <= MOST_PAPERS:
        raise InputError(f"k={settings.k}: give a number from 1 to {MOST_PAPERS}")
    text = _read() if settings.text == "-" else settings.text
    library = Recommender.open(settings.library, settings.reranker)
    found = library.recommend(
        text,
        settings.title,
        settings.abstract,
        settings.k,
        exclude=settings.exclude,
        only=settings.only,
        years=settings.years,
        collection=settings.collection,
        venue=settings.venue,
        explain=settings.explain,
    )
    if not found:
        print(f"{settings.library}: no paper answers to this passage", file=sys.stderr)
    show: dict[str, Callable[[], object]] = {
        "table": lambda: Console().print(table(found, settings.explain)),
        "json": lambda: print(as_json(found, settings.explain)),
        "bibtex": lambda: print(bibtex(_papers(library, found)), end=""),
        "cite": lambda: print(citation([paper.key or paper.id for paper in found], "cite")),
        "markdown": lambda: print(citation([paper.key or paper.id for paper in found], "markdown")),
    }
    show[settings.format]()
