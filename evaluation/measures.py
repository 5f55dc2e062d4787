"""Measures of single queries, computed by ir_measures (trec_eval inside), and the file that holds them."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import ir_measures
import numpy as np
import numpy.typing as npt
from ir_measures import AP, RR, Measure, P, R

from datasets.errors import InputError
from datasets.files import atomic_write
from evaluation.protocol import Qrels
from retrieval.run import Run

Values = dict[str, npt.NDArray[np.float64]]
"""Of each measure, the values of all queries [Q]."""

_QUERIES = 256


def f1(precision: npt.ArrayLike, recall: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """The harmonic mean of precisions and recalls [...], 0 where both are 0.

    >>> f1([0.5, 0], [0.25, 0]).tolist()
    [0.3333333333333333, 0.0]
    """
    p, r = np.asarray(precision, np.float64), np.asarray(recall, np.float64)
    return np.divide(2 * p * r, p + r, out=np.zeros(p.shape), where=p + r > 0)


def query_values(run: Run, qrels: Qrels, cutoffs: Sequence[int], f1_at: Sequence[int] = ()) -> Values:
    """`mrr` and `recall@k` of each query; of the ranks in `f1_at` also `precision@k` and `f1@k`, and `map`.

    F1 is that of Citeomatic's evaluation (Bhagavatula et al. 2018, citeomatic/eval_metrics.py): of the
    precision and recall of one query, so that its mean is over queries. ir_measures has it at no rank.
    """
    measures = {"mrr": RR} | {f"recall@{k}": R @ k for k in sorted({*cutoffs, *f1_at})}
    several = {"map": AP} | {f"precision@{k}": P @ k for k in f1_at} if f1_at else {}
    values = per_query(run, qrels, measures | several)
    return values | {f"f1@{k}": f1(values[f"precision@{k}"], values[f"recall@{k}"]) for k in f1_at}


def per_query(run: Run, qrels: Qrels, measures: dict[str, Measure]) -> Values:
    """The value of each measure for each query of the qrels, in their order.

    A query that the run lacks scores zero; one that the qrels lack does not count. Ties are ordered as
    trec_eval does, by id, so that the values are those of the written files.
    """
    rows = {query: row for row, query in enumerate(qrels.judgements)}
    values = {name: np.zeros(len(rows)) for name in measures}
    names = {measure: name for name, measure in measures.items()}
    for batch in run.batches(_QUERIES):
        judged = {query: qrels.judgements[query] for query in batch if query in rows}
        found = {query: batch[query] for query in judged}
        if not found:
            continue
        for metric in ir_measures.pytrec_eval.iter_calc(list(names), judged, found):
            values[names[metric.measure]][rows[metric.query_id]] = metric.value
    return values


def means(values: Values, where: npt.NDArray[np.bool_] | None = None) -> dict[str, float]:
    """The mean of each measure over all queries, or over those set in `where` [Q]; empty if there is none."""
    chosen = values if where is None else {name: array[where] for name, array in values.items()}
    return {name: float(array.mean()) for name, array in chosen.items() if len(array)}


HEAD = ["query_id", "citing_id"]


@dataclass(frozen=True)
class PerQuery:
    """Measures of queries [Q] with the ids of queries and of the papers that they stand in."""

    query_ids: Sequence[str]
    citing_ids: Sequence[str]
    values: Values

    @classmethod
    def of_groups(cls, groups: Mapping[str, tuple[Sequence[str], Values]]) -> PerQuery:
        """Of queries that are papers, and are called GROUP/PAPER: {group: (papers, values)}."""
        pairs = [(group, paper) for group, (papers, _) in groups.items() for paper in papers]
        names = next(iter(groups.values()))[1]
        values = {name: np.concatenate([of[name] for _, of in groups.values()]) for name in names}
        return cls([f"{group}/{paper}" for group, paper in pairs], [paper for _, paper in pairs], values)

    def __len__(self) -> int:
        return len(self.query_ids)

    @property
    def papers(self) -> npt.NDArray[np.int64]:
        """A number for each citing paper [Q]."""
        codes: dict[str, int] = {}
        return np.array([codes.setdefault(paper, len(codes)) for paper in self.citing_ids], np.int64)

    def write(self, path: str | Path) -> None:
        """Write a table of commas with a row for each query; numbers keep all digits."""
        columns = [array.tolist() for array in self.values.values()]
        with atomic_write(Path(path)) as part, part.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow([*HEAD, *self.values])
            writer.writerows(zip(self.query_ids, self.citing_ids, *columns, strict=True))

    @classmethod
    def read(cls, path: str | Path) -> PerQuery:
        """Read what `write` wrote; InputError that names file, line and column."""
        try:
            with Path(path).open(encoding="utf-8", newline="") as file:
                rows = list(csv.reader(file))
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise InputError(f"{path}: {reason}; a benchmark writes such a file beside its report") from None
        if len(rows) < 2 or rows[0][:2] != HEAD:
            raise InputError(f"{path}: no table of queries, whose header starts with {','.join(HEAD)}")
        names = rows[0][2:]
        for line, row in enumerate(rows, 1):
            if len(row) != len(rows[0]):
                raise InputError(f"{path}, line {line}: {len(row)} columns instead of {len(rows[0])}")
        values = {
            name: _numbers(path, name, [row[2 + i] for row in rows[1:]]) for i, name in enumerate(names)
        }
        return cls([row[0] for row in rows[1:]], [row[1] for row in rows[1:]], values)


def _numbers(path: str | Path, name: str, texts: list[str]) -> npt.NDArray[np.float64]:
    found = np.empty(len(texts))
    for place, text in enumerate(texts):
        try:
            found[place] = float(text)
        except ValueError:
            raise InputError(f"{path}, line {place + 2}, column {name!r}: {text!r} is not a number") from None
    return found
