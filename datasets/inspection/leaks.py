"""Contexts that give the answer away: title, first author or year of a target in the text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Protocol

import numpy as np

from datasets.fulltext.names import fold
from datasets.fulltext.windows import any_named, years_beside
from datasets.inspection.findings import Section
from datasets.inspection.queries import Citations, query_line
from datasets.progress import counting
from datasets.store import Corpus

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
