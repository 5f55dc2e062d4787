"""First authors, which the store does not keep: the papers file is read once more, as a stream."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datasets.fulltext.names import surname
from datasets.json_stream import read_records
from datasets.progress import reading
from datasets.store import Corpus

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
