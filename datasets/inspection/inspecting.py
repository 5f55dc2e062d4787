"""An inspection: what it counts, in which order, and the files it writes.

The findings as one HTML page that needs nothing else: no script, plots inside, everything escaped.
The findings and examples for a terminal.
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from rich.console import Console
from rich.table import Table
from rich.text import Text

from datasets.corpus import Corpus
from datasets.errors import InputError
from datasets.files import written_whole
from datasets.inspection.counts import (
    Example,
    citations,
    draw_examples,
    dropped_section,
    empty_section,
    length_section,
    paper_section,
    split_section,
    target_section,
    year_section,
)
from datasets.inspection.duplicates import (
    ContextDuplicates,
    PaperDuplicates,
    context_duplicate_section,
    paper_duplicate_section,
    twin_section,
)
from datasets.inspection.findings import Section, flat
from datasets.inspection.leaks import FirstAuthors, leak_section
from datasets.inspection.plots import Plot, draw_plots
from datasets.near_duplicates import counted_words, word_lengths
from datasets.records import TARGET_MARKER


def html_page(
    name: str,
    about: str,
    sections: Sequence[Section],
    plots: Sequence[Plot],
    examples: Sequence[Example],
    folder: Path,
) -> str:
    """folder: where the files of the plots are."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined
    )
    images = [base64.b64encode((folder / plot.file).read_bytes()).decode() for plot in plots]
    return environment.get_template("page.html").render(
        name=name,
        about=about,
        sections=sections,
        plots=list(zip(plots, images, strict=True)),
        examples=examples,
        marker=TARGET_MARKER,
    )


WIDTH = 150
"""Of tables in a file or a pipe, which have no width."""


def print_summary(
    sections: Sequence[Section], examples: Sequence[Example], console: Console | None = None
) -> None:
    """A table for each section, what is 0 everywhere in one line below it; then the examples."""
    console = console or Console()
    if not console.is_terminal:
        console = Console(file=console.file, width=WIDTH)
    for section in sections:
        _print_section(section, console)
    for number, example in enumerate(examples, 1):
        console.print(Text(f"Example {number}: {example.split}, {example.context}", style="bold"))
        context = Text(f"  {example.before}").append(TARGET_MARKER, style="bold reverse")
        console.print(context.append(example.after))
        console.print(Text(f"  from: {example.citing.name}"))
        for target in example.targets:
            console.print(Text(f"  cites: {target.name}. {target.start}"))
        console.print()


def _print_section(section: Section, console: Console) -> None:
    table = Table(title=section.title, title_justify="left", title_style="bold")
    table.add_column("")
    for column in section.columns:
        table.add_column(Text(column), justify="right")
    nothing = []
    for line in section.lines:
        if all(value == 0 for value in line.values.values()):
            nothing.append(line.what)
        else:
            table.add_row(Text(line.what), *(line.shown(column) for column in section.columns))
    console.print(table if table.row_count else Text(section.title, style="bold"))
    if nothing:
        console.print(Text(f"None: {'; '.join(nothing)}."))
    console.print()


log = logging.getLogger(__name__)

LEAST_NEAR = 0.5
"""Below it texts are no near-duplicates, and to find all pairs takes long."""


def inspect_corpus(
    data: Callable[[], Corpus],
    output_dir: str | Path,
    near: float = 0.8,
    title_words: int = 3,
    authors: str = "authors",
    examples: int = 5,
    seed: int = 0,
) -> Path:
    """Inspect a corpus: print a summary, write inspect.json, plots and index.html; gives the page.

    data: opens the corpus. near: Jaccard similarity from which texts are nearly the same. title_words: that a
    title has at least to be looked for in contexts. authors: key of the papers file. examples: contexts to
    read, drawn by `seed`. Raises InputError for what cannot be used.
    """
    _check(near, title_words, authors, examples, seed)
    folder = Path(output_dir).expanduser()
    folder.mkdir(parents=True, exist_ok=True)  # fails before the work is done
    corpus = data()
    if corpus.papers_file is None:
        raise InputError(f"corpus {corpus.name}: it is not known which papers file it is from")
    splits = citations(corpus)
    counted = counted_words(corpus.words)
    contexts = word_lengths(corpus.context_tokens, counted)
    titles = word_lengths(corpus.title_tokens, counted)
    abstracts = word_lengths(corpus.abstract_tokens, counted)
    first_authors = FirstAuthors(corpus, corpus.papers_file, authors)
    if not first_authors.known.any():
        log.warning("%s: no paper has authors under the key %r", corpus.papers_file, authors)
    papers = PaperDuplicates(corpus, splits, counted, titles, near)
    dropped = dropped_section(corpus)
    sections = [
        *([dropped] if dropped else []),
        split_section(corpus, splits),
        target_section(corpus, splits),
        paper_section(corpus, first_authors.known),
        year_section(corpus, splits),
        length_section(corpus, contexts, titles, abstracts),
        empty_section(corpus, splits, contexts),
        leak_section(corpus, splits, first_authors, title_words),
        paper_duplicate_section(corpus, papers, near),
        twin_section(corpus, splits, papers),
        context_duplicate_section(corpus, ContextDuplicates(corpus, splits, counted, near), near),
    ]
    plots = draw_plots(folder, corpus, splits, contexts, titles, abstracts)
    candidates = (
        "papers that have an abstract" if corpus.settings["candidates"] == "abstract" else "all papers"
    )
    about = (
        f"{len(corpus.paper_ids):,} papers, {len(corpus.context_ids):,} contexts. "
        f"Tokeniser: {corpus.settings['tokenizer']}; candidates: {candidates}."
    )
    drawn = draw_examples(corpus, examples, seed)
    page = html_page(corpus.name, about, sections, plots, drawn, folder)
    _write(folder / "inspect.json", _json(corpus, sections))
    _write(folder / "index.html", page)
    print_summary(sections, drawn)
    return folder / "index.html"


def _check(near: Any, title_words: Any, authors: Any, examples: Any, seed: Any) -> None:
    if isinstance(near, bool) or not isinstance(near, int | float) or not LEAST_NEAR <= near <= 1:
        raise InputError(f"near: must be a number from {LEAST_NEAR} to 1, not {near!r}")
    for name, value, least in (("title_words", title_words, 1), ("examples", examples, 0), ("seed", seed, 0)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise InputError(f"{name}: must be a whole number of {least} or more, not {value!r}")
    if not isinstance(authors, str) or not authors:
        raise InputError(f"authors: {authors!r} is no key of the papers file; name one, as authors")


def _json(corpus: Corpus, sections: list[Section]) -> str:
    content = {"data": corpus.name, "fingerprint": corpus.fingerprint, **flat(sections)}
    return json.dumps(content, indent=1, ensure_ascii=False, default=_plain) + "\n"


def _plain(value: Any) -> int | float:
    assert isinstance(value, np.generic)
    plain: int | float = value.item()
    return plain


def _write(path: Path, text: str) -> None:
    with written_whole(path) as part:
        part.write_text(text, "utf-8")
