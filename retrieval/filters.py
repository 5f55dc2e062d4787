"""Filters restrict the candidates that a search may return.

The citing paper is never returned, whatever the filters (`Retriever.search`, `Queries.is_own`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from citerec.base.errors import InputError
from citerec.base.files import digest_json
from citerec.datasets.corpus import Corpus
from citerec.retrieval.arrays import Mask, Rows
from citerec.retrieval.queries import Queries

CITING = "citing"


@dataclass(frozen=True)
class Filters:
    """A paper must pass every filter that is set."""

    exclude: Sequence[str] | str = ()
    """ids of papers that are never returned, or a file of ids, one per line"""
    year: int | str | None = None
    """latest year of a paper, or `citing`: the year of the citing paper; unknown years (0) pass"""
    field: str | Sequence[str] | None = None
    """field of the paper, or several of which it must have one (the key `data.field` of the papers file)"""
    unseen: bool = False
    """only papers that no training context cites (the inductive pool)"""

    def __post_init__(self) -> None:
        """Raises InputError for a year that is neither a number nor `citing`, or an unreadable file."""
        ids = _read_ids(Path(self.exclude)) if isinstance(self.exclude, str | Path) else self.exclude
        object.__setattr__(self, "exclude", _names("exclude", ids))
        self._fields()  # raises
        if isinstance(self.year, np.integer):
            object.__setattr__(self, "year", int(self.year))
        if self.year is not None and self.year != CITING and type(self.year) is not int:
            raise InputError(f"filters.year: {self.year!r} is neither a year nor {CITING!r}")

    def __bool__(self) -> bool:
        """True if any filter is set."""
        return bool(self.exclude) or self.year is not None or self.field is not None or self.unseen

    def __str__(self) -> str:
        """The filters that are set, such as `year: citing, field: NIPS`."""
        parts = []
        if self.exclude:  # with a digest, which tells pools apart
            parts.append(f"exclude: {len(self.exclude):,} papers ({digest_json(sorted(self.exclude), 4)})")
        parts += [f"year: {self.year}"] if self.year is not None else []
        parts += [f"field: {' or '.join(self._fields())}"] if self.field is not None else []
        parts += ["unseen: true"] if self.unseen else []
        return ", ".join(parts)

    def allowed(self, corpus: Corpus) -> Mask:
        """Mask [P] of candidates that pass for every query; InputError naming a filter that leaves none."""
        passed = corpus.is_candidate.copy()
        if self.exclude:
            unknown = [paper for paper in self.exclude if not corpus.has_paper(paper)]
            if unknown:
                raise InputError(
                    f"filters.exclude: corpus {corpus.name} has no paper {unknown[0]!r}"
                    f"{f' (and {len(unknown) - 1} more)' if len(unknown) > 1 else ''}"
                )
            passed[[corpus.paper_row(paper) for paper in self.exclude]] = False
            _check_left(passed, corpus, "exclude")
        if self.field is not None:
            passed &= corpus.in_fields(self._fields())
            _check_left(passed, corpus, f"field={self.field}")
        if isinstance(self.year, int):
            passed &= corpus.years <= self.year
            _check_left(passed, corpus, f"year={self.year}")
        if self.unseen:
            passed &= ~corpus.seen
            _check_left(passed, corpus, "unseen=true")
        return passed

    def groups(self, queries: Queries) -> Iterator[tuple[Rows, Mask]]:
        """Group queries by allowed papers: yields indices of queries, and the mask [P]."""
        passed = self.allowed(queries.corpus)
        if self.year != CITING:
            yield np.arange(len(queries)), passed
            return
        for year in np.unique(queries.years):
            allowed = passed if year == 0 else passed & (queries.corpus.years <= year)
            yield np.flatnonzero(queries.years == year), allowed

    def _fields(self) -> tuple[str, ...]:
        fields: Any = self.field
        return _names("field", [fields] if isinstance(fields, str | int) else fields or ())


def _names(option: str, names: Any) -> tuple[str, ...]:
    """Names in a list; those of digits are parsed as numbers on the command line."""
    if isinstance(names, int | float) or not all(isinstance(name, str | int) for name in names):
        how = """quote numbers, as in '["1901.10430"]'; ids may be in a file"""
        raise InputError(f"filters.{option}: {names!r} is no list of names; {how}")
    return tuple(map(str, names))


def _read_ids(path: Path) -> list[str]:
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise InputError(
            f"filters.exclude: {path}: {reason}; name a file with one id per line, or list ids: [id,id]"
        ) from None
    return [line.strip() for line in lines if line.strip()]


def _check_left(passed: Mask, corpus: Corpus, what: str) -> None:
    if not passed.any():
        raise InputError(f"filters.{what}: leaves none of the candidates of {corpus.name}")
