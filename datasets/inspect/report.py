"""Run an inspection: compute its tables, print them, and write them to a page and a file of numbers."""

from __future__ import annotations

import io
import json
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from citerec.base.configuration import read_settings
from citerec.base.errors import InputError
from citerec.base.files import expand_user, write_text
from citerec.base.settings import Settings, setting
from citerec.datasets.corpus import Corpus
from citerec.datasets.inspect import statistics
from citerec.datasets.inspect.duplicate_papers import (
    PaperDuplicates,
    context_duplicate_table,
    paper_duplicate_table,
    twin_table,
)
from citerec.datasets.inspect.leaks import first_authors, leak_table
from citerec.datasets.inspect.tables import CorpusView, Table, flat_counts
from citerec.datasets.near_duplicates import counted_words, word_lengths
from citerec.datasets.records import TARGET_MARKER
from citerec.datasets.tokenize import sentence_starts

log = logging.getLogger(__name__)

MIN_NEAR = 0.5
"""Minimum similarity of near-duplicates; finding all pairs below it would be slow."""
WIDTH = 150
"""Width of the summary on the page, in a file or a pipe."""
SENTENCES, CHARACTERS = 2, 400
"""Abstracts are shortened to this length."""


@dataclass(frozen=True)
class InspectSettings(Settings):
    """Options of an inspection (conf/inspect.yaml)."""

    near: float = setting(0.8, least=MIN_NEAR, most=1)
    title_words: int = setting(3, least=1)
    authors: str = "authors"
    examples: int = 5
    seed: int = 0


def inspect_corpus(
    data: Callable[[], Corpus],
    output_dir: str | Path,
    **settings: Any,
) -> Path:
    """Inspect a corpus: print a summary, write it to index.html and all numbers to inspect.json.

    Returns the path of the page.

    data: opens the corpus. settings: see InspectSettings. Raises InputError for invalid settings or data.
    """
    options = read_settings(InspectSettings, settings)
    folder = expand_user(output_dir)
    folder.mkdir(parents=True, exist_ok=True)  # fail before the long computation
    corpus = data()
    if corpus.papers_file is None and options.authors != InspectSettings.authors:
        raise InputError(
            f"authors={options.authors}: {corpus.name} has no single papers file to read it from"
        )
    view = CorpusView(corpus)
    counted = counted_words(corpus.words)
    contexts, titles, abstracts = (
        word_lengths(tokens, counted)
        for tokens in (corpus.context_tokens, corpus.title_tokens, corpus.abstract_tokens)
    )
    if corpus.papers_file is None:  # several files, or made as it is read
        surnames = [""] * len(corpus.paper_ids)
        log.warning("%s: the authors are not known, as there is no single papers file", corpus.name)
    elif not any(surnames := first_authors(corpus, corpus.papers_file, options.authors)):
        if options.authors != InspectSettings.authors:
            raise InputError(f"authors={options.authors}: no paper of {corpus.papers_file} has this key")
        log.warning("%s: no paper has authors in the field %r", corpus.papers_file, options.authors)
    papers = PaperDuplicates(view, counted, titles, options.near)
    dropped = statistics.bad_record_table(corpus)
    tables = [
        *([dropped] if dropped else []),
        statistics.split_table(view),
        statistics.target_table(view),
        statistics.paper_table(view, np.array(surnames) != ""),
        statistics.length_table(corpus, contexts, titles, abstracts),
        statistics.empty_table(view, contexts),
        leak_table(view, surnames, options.title_words),
        paper_duplicate_table(view, papers, options.near),
        twin_table(view, papers),
        context_duplicate_table(view, counted, options.near),
    ]
    drawn = draw_examples(corpus, options.examples, options.seed)
    content = {"data": corpus.name, "fingerprint": corpus.fingerprint, **flat_counts(tables)}
    write_text(folder / "inspect.json", json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    page = Console(record=True, file=io.StringIO(), width=WIDTH)
    print_summary(tables, drawn, page)
    write_text(folder / "index.html", page.export_html())
    console = Console()
    print_summary(tables, drawn, console if console.is_terminal else Console(width=WIDTH))
    return folder / "index.html"


@dataclass(frozen=True)
class ShownPaper:
    """A paper of an example; year 0 if unknown. `start`: the first sentences of the abstract."""

    id: str
    title: str
    year: int
    start: str

    @property
    def name(self) -> str:
        return f"{self.title.strip() or 'no title'}{f' ({self.year})' if self.year else ''}"


@dataclass(frozen=True)
class Example:
    """A context, split at its marker, with its papers."""

    split: str
    context: str
    before: str
    after: str
    citing: ShownPaper
    targets: Sequence[ShownPaper]


def draw_examples(corpus: Corpus, count: int, seed: int) -> list[Example]:
    """Draw up to `count` contexts from the splits in turn; deterministic for a seed."""
    draws = {
        name: random.Random(f"{seed} {name}").sample(range(len(split)), min(count, len(split)))
        for name, split in corpus.splits.items()
    }
    turns = [(name, draw[turn]) for turn in range(count) for name, draw in draws.items() if turn < len(draw)]
    order = list(corpus.splits)
    return [_example(corpus, *turn) for turn in sorted(turns[:count], key=lambda turn: order.index(turn[0]))]


def _example(corpus: Corpus, name: str, query: int) -> Example:
    split = corpus.splits[name]
    row = int(split.contexts[query])
    before, _, after = corpus.context_texts[row].partition(TARGET_MARKER)
    citing, *targets = (
        ShownPaper(
            corpus.paper_ids[p], corpus.titles[p], int(corpus.years[p]), shorten_abstract(corpus.abstracts[p])
        )
        for p in (int(corpus.citing[row]), *split.positives[query].tolist())
    )
    return Example(name, corpus.context_ids[row], before, after, citing, targets)


def shorten_abstract(text: str) -> str:
    """The first sentences of a text, cut between words if too long.

    >>> shorten_abstract("We parse. It is 3.5 times faster. Nobody knows why.")
    'We parse. It is 3.5 times faster. …'
    """
    text = " ".join(text.split())
    start = text[: [*sentence_starts(text), len(text)][:SENTENCES][-1]].rstrip()
    if len(start) > CHARACTERS:
        start = start[:CHARACTERS].rpartition(" ")[0] or start[:CHARACTERS]
    return start if start == text else f"{start} …"


def print_summary(tables: Sequence[Table], examples: Sequence[Example], console: Console) -> None:
    """Print each table, with all-zero lines combined into one line below it, then the examples."""
    for table in tables:
        printed = RichTable(title=table.title, title_justify="left", title_style="bold")
        printed.add_column("")
        for column in table.columns:
            printed.add_column(Text(column), justify="right")
        zero = []
        for line in table.lines:
            if all(value == 0 for value in line.values.values()):
                zero.append(line.label)
            else:
                printed.add_row(Text(line.label), *(line.format_value(column) for column in table.columns))
        console.print(printed if printed.row_count else Text(table.title, style="bold"))
        if zero:
            console.print(Text(f"None: {'; '.join(zero)}."))
        console.print(Text(table.note, style="dim"))
        console.print()
    for number, example in enumerate(examples, 1):
        console.print(Text(f"Example {number}: {example.split}, {example.context}", style="bold"))
        context = Text(f"  {example.before}").append(TARGET_MARKER, style="bold reverse")
        console.print(context.append(example.after))
        console.print(Text(f"  from: {example.citing.name}"))
        for target in example.targets:
            console.print(Text(f"  cites: {target.name}. {target.start}"))
        console.print()
