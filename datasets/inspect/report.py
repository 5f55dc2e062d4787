"""Inspect a corpus before using it: citerec data inspect data=... (docs/research/inspect.md)."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from hydra.utils import instantiate
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from citerec.base.configuration import composed_command, read_settings
from citerec.base.errors import InputError
from citerec.base.files import expand_user, write_text
from citerec.base.settings import Settings, setting
from citerec.datasets.corpus import Corpus
from citerec.datasets.inspect import statistics
from citerec.datasets.inspect.duplicates import context_duplicate_table, paper_duplicate_table
from citerec.datasets.inspect.leaks import first_authors, leak_table
from citerec.datasets.inspect.tables import CorpusView, Table, flat_counts
from citerec.datasets.near_duplicates import counted_words, word_lengths

log = logging.getLogger(__name__)

MIN_NEAR = 0.5
"""Minimum similarity of near-duplicates; finding all pairs below it would be slow."""
WIDTH = 150
"""Width of the summary on the page, in a file or a pipe."""


@dataclass(frozen=True)
class InspectSettings(Settings):
    """Options of an inspection (conf/inspect.yaml)."""

    near: float = setting(0.8, least=MIN_NEAR, most=1)
    title_words: int = setting(3, least=1)
    authors: str = "authors"


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
    dropped = statistics.bad_record_table(corpus)
    tables = [
        *([dropped] if dropped else []),
        statistics.split_table(view),
        statistics.target_table(view),
        statistics.paper_table(view, np.array(surnames) != ""),
        statistics.length_table(corpus, contexts, titles, abstracts),
        statistics.empty_table(view, contexts),
        leak_table(view, surnames, options.title_words),
        paper_duplicate_table(view, counted, options.near),
        context_duplicate_table(view, counted, options.near),
    ]
    content = {"data": corpus.name, "fingerprint": corpus.fingerprint, **flat_counts(tables)}
    write_text(folder / "inspect.json", json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    page = Console(record=True, file=io.StringIO(), width=WIDTH)
    print_summary(tables, page)
    write_text(folder / "index.html", page.export_html())
    console = Console()
    print_summary(tables, console if console.is_terminal else Console(width=WIDTH))
    return folder / "index.html"


def print_summary(tables: Sequence[Table], console: Console) -> None:
    """Print each table, with all-zero lines combined into one line below it."""
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


main = composed_command("inspect", lambda config: f"page: {instantiate(config)}")
