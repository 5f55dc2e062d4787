"""Contexts that give the answer away: title, first author or year of a target in the text.

First authors, which the store does not keep: the papers file is read once more, as a stream.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from datasets.corpus import Corpus
from datasets.fulltext.bibliography import fold, surname
from datasets.fulltext.contexts import any_named, years_beside
from datasets.inspection.counts import Citations, query_line
from datasets.inspection.findings import Section
from datasets.json_stream import read_records
from datasets.progress import counting, reading

_BETWEEN = re.compile(r"\s*;\s*|\s+and\s+")


class FirstAuthors:
    """Their surnames by the row of the paper, folded; "" where there is none."""

    def __init__(self, corpus: Corpus, path: Path, key: str) -> None:
        """key: what holds the authors in the papers file. Raises InputError if that cannot be read."""
        self._surnames = [""] * len(corpus.paper_ids)
        ids = iter(corpus.paper_ids)
        wanted, row = next(ids), 0
        with reading(path, "authors") as on_bytes:
            # The papers of a store are in the order of the file, from which records may have been left out.
            # Malformed ones are among these, or there would be no store.
            for paper, record in read_records(path, frozenset(), dict, on_bytes, lambda bad: None):
                if paper == wanted:
                    # Many papers have the same name: it is kept once.
                    self._surnames[row] = sys.intern(first_surname(record.get(key)))
                    wanted, row = next(ids, ""), row + 1

    def __getitem__(self, row: int) -> str:
        return self._surnames[row]

    @property
    def known(self) -> NDArray[np.bool_]:
        """[P]"""
        return np.fromiter(map(bool, self._surnames), np.bool_, len(self._surnames))


def first_surname(authors: Any) -> str:
    """Of a list of names, or of names in a string that "and" or semicolons part; "" for anything else.

    >>> [first_surname(authors) for authors in (["Ann B. Lee", "K. Müller"], "Müller, K.; Lee, A.", [], None)]
    ['Lee', 'Muller', '', '']
    """
    names = _BETWEEN.split(authors.strip()) if isinstance(authors, str) else authors
    if not isinstance(names, list) or not names or not isinstance(names[0], str):
        return ""
    return surname(names[0])


EVERY = 1000
"""Contexts between two reports of progress."""

_NOT_ALNUM = re.compile(r"[\W_]+")


class Surnames(Protocol):
    """First authors' by the row of the paper, folded; "" where there is none."""

    def __getitem__(self, row: int) -> str: ...


def plain_words(folded: str) -> str:
    """Words of letters and digits, in lower case, with a space before, between and after them.

    >>> plain_words("Pre-training (BERT)")
    ' pre training bert '
    """
    return f" {' '.join(_NOT_ALNUM.split(folded.casefold())).strip()} "


def leak_section(
    corpus: Corpus, splits: Mapping[str, Citations], surnames: Surnames, title_words: int
) -> Section:
    """Which contexts of each split name a target. title_words: that a title has at least to be looked for."""

    @lru_cache(maxsize=1 << 16)
    def title(row: int) -> str:
        words = plain_words(fold(corpus.titles[row]))
        return words if words.count(" ") > title_words else ""

    kinds = {
        "title": "contexts with the title of a target",
        "author": "contexts with the surname of a target's first author",
        "year": "contexts with a year beside the mark",
        "own_year": "contexts with the year of a target beside the mark",
    }
    marked = {kind: {name: np.zeros(len(s.split), np.bool_) for name, s in splits.items()} for kind in kinds}
    # What can be given away: of papers without title, author or year nothing can.
    able = {kind: dict.fromkeys(splits, 0) for kind in kinds}
    with counting(
        "titles, authors and years in contexts", sum(len(s.split) for s in splits.values())
    ) as done:
        for name, split in splits.items():
            for query, (row, positives) in enumerate(
                zip(split.split.contexts.tolist(), split.split.positives, strict=True)
            ):
                targets = positives.tolist()
                text = corpus.context_texts[row]
                folded = fold(text)
                plain = plain_words(folded)
                titles = [words for target in targets if (words := title(target))]
                authors = [surname for target in targets if len(surname := surnames[target]) > 2]
                years, beside = {int(corpus.years[target]) for target in targets} - {0}, years_beside(text)
                found = {
                    "title": any(words in plain for words in titles),
                    "author": any_named(folded, authors),
                    "year": bool(beside),
                    "own_year": not years.isdisjoint(beside),
                }
                possible = {"title": titles, "author": authors, "year": True, "own_year": years}
                for kind in kinds:
                    marked[kind][name][query] = found[kind]
                    able[kind][name] += bool(possible[kind])
                if (query + 1) % EVERY == 0:
                    done(EVERY)
            done(len(split.split) % EVERY)
    lines = [query_line(corpus, splits, kind, what, marked[kind], able[kind]) for kind, what in kinds.items()]
    some = {name: np.any([marked[kind][name] for kind in kinds], axis=0) for name in splits}
    lines.append(query_line(corpus, splits, "any", "contexts with any of these", some))
    note = (
        f"The whole title, of {title_words} words or more, letter case and signs left aside; the surname as "
        "it is written, of three letters or more; years with at most three characters between them and the "
        "mark, no letters or digits. Shares are of the contexts with a target that has such a title, author "
        "or year. A title may be a common phrase, and a surname may mean somebody else."
    )
    return Section("leaks", "Contexts that give the answer away", note, list(splits), lines)
