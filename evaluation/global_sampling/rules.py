"""Which papers may ask and be found (Medić and Šnajder 2022, section 3), and how they are drawn."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from datasets.citations.graph import CitationGraph
from datasets.citations.query_lists import read_query_lists
from datasets.citations.questions import earlier
from datasets.errors import InputError
from datasets.ragged import Ragged

TEST, VALIDATION = "test", "val"

Rows = NDArray[np.int64]
"""Rows of the graph's papers."""


@dataclass(frozen=True)
class Rules:
    """Papers without a title or a year, with a shorter abstract or fewer citations, are left out altogether.

    year: of the queries, and the last one of candidates; None: any, and a query finds what is not later than
    itself. min_abstract: characters. min_citations: how often a paper is cited, at least.
    min_cited: candidates that a query cites, at least.
    leave_out: ids that do not ask, as a model's training queries, or a file of them, one a line.
    queries_file: only the papers of its splits ask (datasets.citations.query_lists).
    """

    year: int | None = None
    min_abstract: int = 30
    min_citations: int = 3
    min_cited: int = 1
    leave_out: Sequence[str] | str = ()
    queries_file: str | Path | None = None

    def __post_init__(self) -> None:
        """Raises InputError for what is no number."""
        for name, least in (("min_abstract", 0), ("min_citations", 0), ("min_cited", 1)):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise InputError(f"benchmark.rules.{name}: {value!r} is no whole number from {least} on")
        if self.year is not None and type(self.year) is not int:
            raise InputError(f"benchmark.rules.year: {self.year!r} is no year; null for any")


class Sampler:
    """Draws queries and pools out of a graph; what is drawn depends on the seed and on what it is for alone.

    eligible [P]: passes the filters. candidates [P]: those of them that may be found.
    relevant [P]: the candidates that each paper cites, not later than itself.
    """

    def __init__(self, graph: CitationGraph, rules: Rules, seed: int) -> None:
        self.graph, self.rules, self.seed = graph, rules, seed
        self.eligible: NDArray[np.bool_] = (
            graph.titled
            & (graph.years != 0)
            & (graph.abstract_lengths >= rules.min_abstract)
            & (graph.citations >= rules.min_citations)
            & ~graph.is_distractor
        )
        in_time = True if rules.year is None else graph.years <= rules.year
        self.candidates: NDArray[np.bool_] = self.eligible & in_time
        self.distractors: Rows = np.flatnonzero(
            graph.is_distractor & graph.titled & (graph.abstract_lengths >= rules.min_abstract)
        )
        self.relevant: Ragged = earlier(graph, self.candidates)

    @cached_property
    def askable(self) -> NDArray[np.bool_]:
        """Papers that may ask [P]; InputError if there is none."""
        may = self.eligible & (self.relevant.lengths >= self.rules.min_cited)
        if self.rules.year is not None:
            may &= self.graph.years == self.rules.year
        may[self._left_out] = False
        if not may.any():
            raise InputError(
                f"{self.graph.files[0]}: no paper{self.of_year} passes the filters and cites "
                f"{self.rules.min_cited} or more that do; change benchmark.rules"
            )
        return may

    def facts(self) -> list[str]:
        """What was left out, in sentences."""
        graph, of_year = self.graph, self.of_year
        passing, papers = np.count_nonzero(self.candidates), np.count_nonzero(~graph.is_distractor)
        asking = (
            self.eligible if self.rules.year is None else self.eligible & (graph.years == self.rules.year)
        )
        vain = np.count_nonzero(asking & (self.relevant.lengths < self.rules.min_cited))
        may, distractors = np.count_nonzero(self.askable), len(self.distractors)
        return [
            f"{passing:,} of {papers:,} papers pass the filters; {may:,}{of_year} may ask.",
            f"{vain:,} others{of_year} cite fewer than {self.rules.min_cited} candidates that are not later, "
            "and are no queries.",
            *self._listed(),
            f"{graph.unknown:,} citations are of or by papers that are in no file.",
            *(
                [f"{distractors:,} distractors, of any year, fill what the papers do not."]
                if distractors
                else []
            ),
        ]

    def queries(
        self, number: int | None, validation: int, among: NDArray[np.bool_] | None = None, *purpose: str
    ) -> tuple[Rows, Rows]:
        """At most so many papers for test, and others for validation, of those `among` [P] that may ask.

        Both in the order drawn; validation does not change test. With a file of queries, of its splits.
        """
        may = self.askable if among is None else self.askable & among
        order = self.shuffled(np.flatnonzero(may), "queries", *purpose)
        if self.rules.queries_file is None:
            first = len(order) if number is None else number
            return order[:first], order[first : first + validation]
        lists = read_query_lists(self.rules.queries_file)
        test, val = (
            order[np.isin(order, lists.rows(split, self.graph))]
            if split in lists.splits or split == TEST
            else order[:0]
            for split in (TEST, VALIDATION)
        )
        return test[:number], val[:validation]

    def shuffled(self, rows: Rows, *purpose: str | int) -> Rows:
        """Rows in an order that depends on the seed and the purpose."""
        return self.rng(*purpose).permutation(rows)

    def rng(self, *purpose: str | int) -> np.random.Generator:
        """Random numbers for one purpose."""
        text = repr((self.seed, *purpose)).encode()
        return np.random.default_rng(int.from_bytes(hashlib.blake2b(text, digest_size=16).digest(), "little"))

    def cited(self, queries: Rows) -> Rows:
        """The candidates that queries cite, ascending."""
        return np.unique(self.relevant.take(queries).values).astype(np.int64)

    def _listed(self) -> list[str]:
        """How many of the listed queries may not ask, in a sentence."""
        if self.rules.queries_file is None:
            return []
        rows = read_query_lists(self.rules.queries_file).rows(TEST, self.graph)
        lost = np.count_nonzero(~self.askable[rows])
        return [f"{lost:,} of the {len(rows):,} papers listed for {TEST} may not ask."] if lost else []

    @cached_property
    def _left_out(self) -> list[int]:
        """Rows; ids that no paper has are passed over."""
        names = self.rules.leave_out
        if isinstance(names, str):
            try:
                names = Path(names).expanduser().read_text("utf-8").split()
            except (OSError, UnicodeDecodeError) as error:
                reason = error.strerror if isinstance(error, OSError) else "not a text in UTF-8"
                raise InputError(
                    f"benchmark.rules.leave_out: {names}: {reason}; name a file of ids"
                ) from None
        return [self.graph.rows[name] for name in map(str, names) if name in self.graph.rows]

    @property
    def of_year(self) -> str:
        """ " of 2019", or nothing where queries are of any year."""
        return "" if self.rules.year is None else f" of {self.rules.year}"
