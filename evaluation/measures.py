"""Measures computed by ir_measures (trec_eval inside): of a ranking, per query, and in per_query.csv."""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ir_measures
import numpy as np
import numpy.typing as npt
from ir_measures import AP, RR, Measure, P, R

from citerec.base.errors import InputError
from citerec.base.files import atomic_write
from citerec.datasets.corpus import Split
from citerec.evaluation import significance
from citerec.evaluation.protocol import Qrels
from citerec.retrieval.base import Ranking
from citerec.retrieval.run import Run

Values = dict[str, npt.NDArray[np.float64]]
"""{measure: values of all queries [Q]}"""

_NAMES = {"recall@": "R@", "precision@": "P@", "mrr": "MRR", "map": "AP"}
"""Names of measures in reports, as ir_measures has them."""
_STANDARD = re.compile(rf"^(?:{'|'.join(_NAMES)})(?=$|\d)")
QUERIES = 256
"""Queries measured at a time."""


def evaluate(
    ranking: Ranking, measures: Sequence[str], intervals: bool = False, seed: int = 0
) -> dict[str, Any]:
    """Return the mean of each measure over the queries of a ranking.

    ranking: of a split, as returned by `retriever.search(corpus.split("test"), k=100)`. measures: names of
    ir_measures, such as R@10, MRR, nDCG@10, AP, or of reports, such as recall@10; MRR and AP see the k papers
    of the ranking only. Where more papers have the score of the last, rank these, too.
    intervals: return (mean, low, high) with the ends of the 95 % interval, clustered by citing paper
    (evaluation.significance); NaN if all queries come from a single citing paper.
    Raises InputError for an unknown measure, a cutoff beyond k, and a ranking of other queries or of none.
    """
    measured = measure(ranking, measures)
    averages = means(measured.values)
    if not intervals:
        return averages
    ends = significance.intervals(
        np.stack(list(measured.values.values()), axis=1), measured.papers, seed=seed
    )
    columns = zip(averages.items(), *(end.tolist() for end in ends), strict=True)
    return {name: (mean, low, high) for (name, mean), low, high in columns}


def measure(ranking: Ranking, measures: Sequence[str]) -> PerQuery:
    """Return each measure for each query of a ranking; arguments and errors as of `evaluate`."""
    queries = ranking.queries
    if queries is None or queries.positives is None:
        raise InputError("evaluate: rank the queries of a split, as in search(corpus.split('test'), k=100)")
    if not len(queries) or not measures:
        raise InputError("evaluate: there must be a query and a measure")
    parsed = {name: _parse_measure(name, ranking.k) for name in measures}
    corpus, rows = queries.corpus, queries.contexts.tolist()
    ids, citing = [corpus.context_ids[row] for row in rows], corpus.citing[queries.contexts].tolist()
    qrels = Qrels.from_split(corpus, Split("", queries.contexts, queries.positives))
    run = Run(ids, corpus.paper_ids, ranking)
    # R@10 and recall@10 are the same
    computed = per_query(run.batches(QUERIES), qrels, {str(metric): metric for metric in parsed.values()})
    places = {query: place for place, query in enumerate(qrels.judgements)}
    drawn = [places[id] for id in ids]  # a sample may have a query more than once
    values = {name: computed[str(metric)][drawn] for name, metric in parsed.items()}
    return PerQuery(ids, [corpus.paper_ids[row] for row in citing], values)


def _parse_measure(name: str, k: int) -> Measure:
    """Return the measure of that name; InputError if it is unknown, or cut off beyond k papers."""
    try:
        measure = ir_measures.parse_measure(_STANDARD.sub(lambda match: _NAMES[match[0]], name))
        is_supported = ir_measures.pytrec_eval.supports(measure)
    except (NameError, SyntaxError, ValueError, TypeError, AssertionError):
        raise InputError(f"{name}: no such measure; give one such as R@10, MRR, nDCG@10, P@5 or AP") from None
    if not is_supported:
        raise InputError(f"{name}: trec_eval cannot compute it")
    if any(measure.params.get(part, 1) < 1 for part in ("cutoff", "rel")):  # would end the interpreter
        raise InputError(f"{name}: ranks and grades begin at 1")
    if (cutoff := measure.params.get("cutoff", 0)) > k:
        raise InputError(f"{name}: the ranking has {k} papers per query; search with k={cutoff}")
    return measure


def f1(precision: npt.ArrayLike, recall: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return the harmonic mean of precisions and recalls [...], 0 where both are 0.

    >>> f1([0.5, 0], [0.25, 0]).tolist()
    [0.3333333333333333, 0.0]
    """
    p, r = np.asarray(precision, np.float64), np.asarray(recall, np.float64)
    return np.divide(2 * p * r, p + r, out=np.zeros(p.shape), where=p + r > 0)


def query_values(run: Run, qrels: Qrels, cutoffs: Collection[int], f1_at: Sequence[int] = ()) -> Values:
    """Compute `mrr` and `recall@k` per query; for the ranks in `f1_at` also `precision@k`, `f1@k` and `map`.

    F1 is computed per query from its precision and recall and then averaged over queries, as in Citeomatic
    (Bhagavatula et al. 2018, citeomatic/eval_metrics.py). ir_measures has no F1 at a cutoff.
    """
    measures: dict[str, Measure] = {"mrr": RR} | {f"recall@{k}": R @ k for k in sorted({*cutoffs, *f1_at})}
    if f1_at:
        measures |= {"map": AP} | {f"precision@{k}": P @ k for k in f1_at}
    values = per_query(run.batches(QUERIES), qrels, measures)
    return values | {f"f1@{k}": f1(values[f"precision@{k}"], values[f"recall@{k}"]) for k in f1_at}


def per_query(
    batches: Iterable[dict[str, dict[str, float]]], qrels: Qrels, measures: Mapping[str, Measure]
) -> Values:
    """Compute each measure for each query of the qrels, in their order.

    batches: scores of the papers of some queries each. Queries without scores count as 0; queries missing
    from the qrels are ignored. Ties are ordered by id, as in trec_eval, so the values agree with the files on
    disk.
    """
    rows = {query: row for row, query in enumerate(qrels.judgements)}
    values = {name: np.zeros(len(rows)) for name in measures}
    names = {measure: name for name, measure in measures.items()}
    for batch in batches:
        by_query = {query: scores for query, scores in batch.items() if query in rows}
        judged = {query: qrels.judgements[query] for query in by_query}
        for metric in ir_measures.pytrec_eval.iter_calc(list(names), judged, by_query) if judged else ():
            values[names[metric.measure]][rows[metric.query_id]] = metric.value
    return values


def means(values: Values, where: npt.NDArray[np.bool_] | None = None) -> dict[str, float]:
    """Average each measure over all queries, or over those set in `where` [Q]; empty if there are none."""
    chosen = values if where is None else {name: array[where] for name, array in values.items()}
    return {name: float(array.mean()) for name, array in chosen.items() if len(array)}


ID_COLUMNS = ["query_id", "citing_id"]


@dataclass(frozen=True)
class PerQuery:
    """Measures per query [Q], with the ids of the queries and of their citing papers."""

    query_ids: Sequence[str]
    citing_ids: Sequence[str]
    values: Values

    @classmethod
    def from_groups(cls, groups: Mapping[str, tuple[Sequence[str], Values]]) -> PerQuery:
        """Build from query papers by group, {group: (papers, values)}; queries are named GROUP/PAPER."""
        pairs = [(group, paper) for group, (papers, _) in groups.items() for paper in papers]
        names = next(iter(groups.values()))[1]
        values = {name: np.concatenate([own[name] for _, own in groups.values()]) for name in names}
        return cls([f"{group}/{paper}" for group, paper in pairs], [paper for _, paper in pairs], values)

    def __len__(self) -> int:
        return len(self.query_ids)

    @property
    def papers(self) -> npt.NDArray[np.int64]:
        """One number per citing paper [Q]."""
        codes: dict[str, int] = {}
        return np.array([codes.setdefault(paper, len(codes)) for paper in self.citing_ids], np.int64)

    def take(self, rows: Sequence[int]) -> PerQuery:
        """Select queries by position."""
        ids, citing = ([column[row] for row in rows] for column in (self.query_ids, self.citing_ids))
        return PerQuery(ids, citing, {name: values[rows] for name, values in self.values.items()})

    def write(self, path: str | Path) -> None:
        """Write a CSV file with one row per query; numbers keep all digits."""
        columns = [array.tolist() for array in self.values.values()]
        with atomic_write(Path(path)) as part, part.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow([*ID_COLUMNS, *self.values])
            writer.writerows(zip(self.query_ids, self.citing_ids, *columns, strict=True))

    @classmethod
    def read(cls, path: str | Path) -> PerQuery:
        """Read a file that `write` wrote; InputError if it is missing or another file."""
        try:
            with Path(path).open(encoding="utf-8", newline="") as file:
                head, *rows = csv.reader(file)
            ids, citing, *columns = zip(*rows, strict=True)
            values = {
                name: np.array(column, np.float64) for name, column in zip(head[2:], columns, strict=True)
            }
        except (OSError, ValueError, csv.Error) as error:
            reason = error.strerror if isinstance(error, OSError) else f"no measures per query ({error})"
            raise InputError(f"{path}: {reason}; benchmarks write this file next to their report") from None
        return cls(ids, citing, values)
