"""Find contexts that leak the answer: title, first author or year of a target in the text."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from citerec.base.progress import count_progress, read_progress
from citerec.datasets.building.contexts import adjacent_years, names_any
from citerec.datasets.corpus import Corpus
from citerec.datasets.files.beir import read_paper_metadata
from citerec.datasets.files.source_files import read_records
from citerec.datasets.inspect.tables import CorpusView, Table
from citerec.formats.letters import fold
from citerec.formats.names import surname

CONTEXTS = 1000
"""Contexts per progress update."""
_NAME_SEPARATOR = re.compile(r"\s*;\s*|\s+and\s+")
_NOT_ALNUM = re.compile(r"[\W_]+")


def first_authors(corpus: Corpus, path: Path, key: str) -> list[str]:
    """Read the folded surname of each paper's first author [P] from the papers file; "" if unknown.

    The store does not keep authors. path: the papers file; key: its field with the authors. Raises InputError
    if the file cannot be read.
    """
    surnames = [""] * len(corpus.paper_ids)
    ids = iter(corpus.paper_ids)
    wanted, row = next(ids), 0
    with read_progress(path, "authors") as on_bytes:
        # The store has the papers in file order, without dropped records.
        records: Iterable[tuple[Any, Any]]
        if ".jsonl" in path.suffixes:
            records = read_paper_metadata(path, on_bytes)
        else:
            records = read_records(path, dict, on_bytes, lambda bad: None)
        for paper, record in records:
            if paper == wanted:
                surnames[row] = sys.intern(first_surname(record.get(key)))
                wanted, row = next(ids, ""), row + 1
    return surnames


def first_surname(authors: Any) -> str:
    """The first surname in a list of names, or in a string separated by "and" or semicolons; "" if none.

    >>> [first_surname(authors) for authors in (["Ann B. Lee", "K. Müller"], "Müller, K.; Lee, A.", [], None)]
    ['Lee', 'Muller', '', '']
    """
    names = _NAME_SEPARATOR.split(authors.strip()) if isinstance(authors, str) else authors
    if not isinstance(names, list) or not names or not isinstance(names[0], str):
        return ""
    return surname(names[0])


def plain_words(folded: str) -> str:
    """Reduce a text to lower-case words of letters and digits, with a space before, between and after them.

    >>> plain_words("Pre-training (BERT)")
    ' pre training bert '
    """
    return f" {' '.join(_NOT_ALNUM.split(folded.casefold())).strip()} "


def leak_table(view: CorpusView, surnames: list[str], title_words: int) -> Table:
    """Count contexts that name a target. surnames [P]; title_words: minimum length of titles to search."""
    corpus = view.corpus

    @lru_cache(maxsize=1 << 16)
    def title(row: int) -> str:
        words = plain_words(fold(corpus.titles[row]))
        return words if words.count(" ") > title_words else ""

    kinds = {
        "title": "contexts with the title of a target",
        "author": "contexts with the surname of a target's first author",
        "year": "contexts with a year next to the marker",
        "own_year": "contexts with the year of a target next to the marker",
    }
    marked, checked = (np.zeros((len(kinds), len(view.split)), np.bool_) for _ in range(2))
    with count_progress("titles, authors and years in contexts", int((view.split >= 0).sum())) as done:
        for split in corpus.splits.values():
            for query, row in enumerate(split.contexts.tolist()):
                targets, text = split.positives[query].tolist(), corpus.context_texts[row]
                folded = fold(text)
                plain = plain_words(folded)
                titles = [words for target in targets if (words := title(target))]
                authors = [name for target in targets if len(name := surnames[target]) > 2]
                years = {int(corpus.years[target]) for target in targets} - {0}
                adjacent = adjacent_years(text)
                marked[:, row] = (
                    any(words in plain for words in titles),
                    names_any(folded, authors),
                    bool(adjacent),
                    not years.isdisjoint(adjacent),
                )
                checked[:, row] = bool(titles), bool(authors), True, bool(years)
                if (query + 1) % CONTEXTS == 0:
                    done(CONTEXTS)
            done(len(split) % CONTEXTS)
    lines = [view.line(*kind, marked[i], checked[i]) for i, kind in enumerate(kinds.items())]
    lines.append(view.line("any", "contexts with any of these", np.logical_or.reduce(marked)))
    note = (
        f"Titles of at least {title_words} words must match in full, ignoring case and punctuation; surnames "
        "of at least three letters as written; years up to three characters from the marker, without letters "
        "or digits between. Shares are of the contexts with a target that has such a title, author or year. "
        "A title can be a common phrase, and a surname can belong to someone else."
    )
    return Table("leaks", "Contexts that leak the answer", note, list(view.contexts), lines)
