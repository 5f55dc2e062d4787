"""Ranking measures, computed by ir_measures (trec_eval inside)."""

from __future__ import annotations

from collections.abc import Sequence

import ir_measures
import numpy as np
import numpy.typing as npt
from ir_measures import RR, Measure, P, R

from evaluation.qrels import Qrels
from retrieval.runs import Run

Values = dict[str, npt.NDArray[np.float64]]
"""Of each measure, the values of all queries [Q]."""

CUTOFFS = (1, 10, 20, 50, 100, 200, 500, 1000, 2000)
"""Ranks of Gu et al. 2022, table 2."""

_QUERIES = 256


def prefetch_measures(cutoffs: Sequence[int] = CUTOFFS) -> dict[str, Measure]:
    """`mrr` and `recall@k`, by the names that reports use."""
    return {"mrr": RR} | {f"recall@{k}": R @ k for k in cutoffs}


def f1(precision: npt.ArrayLike, recall: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """The harmonic mean of precisions and recalls [...], 0 where both are 0.

    >>> f1([0.5, 0], [0.25, 0]).tolist()
    [0.3333333333333333, 0.0]
    """
    p, r = np.asarray(precision, np.float64), np.asarray(recall, np.float64)
    return np.divide(2 * p * r, p + r, out=np.zeros(p.shape), where=p + r > 0)


def query_values(run: Run, qrels: Qrels, cutoffs: Sequence[int], f1_at: Sequence[int] = ()) -> Values:
    """`mrr` and `recall@k` of each query; of the ranks in `f1_at` also `precision@k` and `f1@k`.

    F1 is that of Citeomatic's evaluation (Bhagavatula et al. 2018, citeomatic/eval_metrics.py): of the
    precision and recall of one query, so that its mean is over queries. ir_measures has it at no rank.
    """
    measures = prefetch_measures(sorted({*cutoffs, *f1_at})) | {f"precision@{k}": P @ k for k in f1_at}
    values = per_query(run, qrels, measures)
    return values | {f"f1@{k}": f1(values[f"precision@{k}"], values[f"recall@{k}"]) for k in f1_at}


def per_query(run: Run, qrels: Qrels, measures: dict[str, Measure]) -> Values:
    """The value of each measure for each query of the qrels, in their order.

    A query that the run lacks has zero; one that the qrels lack does not count. Papers of equal score are
    ranked as trec_eval does, by id, so that the values are those of the written files. Works in batches of
    queries, so that memory is bounded.
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
