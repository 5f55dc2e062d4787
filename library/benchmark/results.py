"""Results of drafts (`benchmark=drafts`): measures, intervals, tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from citerec.evaluation.measures import PerQuery
from citerec.evaluation.report import Column, Metrics, Part, Table, under
from citerec.evaluation.significance import intervals, paired_difference
from citerec.library.benchmark.settings import DraftsSettings
from citerec.rerank.ranker.linear import SURE, certainty

MODEL, BASELINE = "model", "baseline"
MEASURES = {"recall@10": "R@10", "mrr": "MRR", "hit@1": "hit@1"}
TESTED = ("recall@10", "mrr")
LABELS = {"as_is": "as they are", "titles": "titles only", "merged": "all merged"}
COMMANDS = {"ask": "ask", "draft": "draft", "written": "draft, written so far"}
Floats = npt.NDArray[np.float64]


class Ranks(msgspec.Struct):
    """Per query [Q]: rank of the cited paper (0: not found), its score, the best score there, and 1 if
    `citerec draft fill` cites the best paper."""

    rank: list[int] = []
    score: list[float | None] = []
    best: list[float | None] = []
    filled: list[int] = []


class DraftResult(msgspec.Struct, kw_only=True):
    """Results of a draft.

    starts: 1 for the first query of each citation [Q]. calibrated: the model's scores are logarithms of
    probabilities.
    papers: number in the author's bibliography. abstracts: the share of these with one. again: 1 for
    re-citations [Q].
    mentioned: 1 for papers that are cited before, too [Q].
    ranks: {MODEL or BASELINE: {PROTOCOL/COMMAND: ranks}}.
    """

    name: str
    field: str
    language: str
    papers: int
    abstracts: float
    query_ids: list[str]
    again: list[int]
    mentioned: list[int]
    starts: list[int]
    ranks: dict[str, dict[str, Ranks]]
    calibrated: bool

    def values(self, who: str, group: str) -> dict[str, Floats]:
        """Return the measures of the queries [Q]."""
        place = np.array(self.ranks[who][group].rank, np.float64)
        is_ranked = place > 0
        hits = {"recall@10": is_ranked & (place <= 10), "hit@1": place == 1}
        reciprocal = np.divide(1, place, out=np.zeros(len(place)), where=is_ranked)
        return {"mrr": reciprocal} | {name: hit.astype(np.float64) for name, hit in hits.items()}

    def certainty(self, who: str, group: str) -> tuple[Floats, Floats]:
        """Return the probability of the best paper of each citation [C], and whether it is cited there."""
        ranks, starts = self.ranks[who][group], np.flatnonzero(self.starts)
        right = np.maximum.reduceat((np.array(ranks.rank) == 1).astype(np.float64), starts)
        return np.nan_to_num(np.exp(np.array(ranks.best, np.float64)[starts])), right

    def filled(self, who: str, group: str) -> str:
        """Return how many of the citations that are filled are right: "9 of 11"; "" if that is unknown."""
        filled = np.array(self.ranks[who][group].filled, np.bool_)
        if not self.calibrated or not len(filled):
            return ""
        filled, right = filled[np.flatnonzero(self.starts)], self.certainty(who, group)[1]
        return f"{right[filled].sum():.0f} of {filled.sum()}"

    def means(self, who: str, group: str) -> dict[str, float]:
        """Return the means over all queries, first citations, re-citations, first mentions; NaN for none."""
        again, mentioned = np.array(self.again, np.bool_), np.array(self.mentioned, np.bool_)
        everything = np.ones(len(again), np.bool_)
        chosen = {"": everything, "first/": ~again, "again/": again, "mention/": again & ~mentioned}
        values = self.values(who, group)
        return {
            f"{kind}{name}": float(values[name][rows].mean()) if rows.any() else np.nan
            for kind, rows in chosen.items()
            for name in values
        }


def read_results(folder: Path) -> list[DraftResult]:
    """Read the results of each draft in the folder of an evaluation."""
    files = sorted(folder.glob("*.json"))
    return [msgspec.json.decode(file.read_bytes(), type=DraftResult) for file in files]


def drafts_metrics(settings: DraftsSettings, results: Sequence[DraftResult]) -> dict[str, dict[str, Any]]:
    """Return the means over drafts by PROTOCOL/COMMAND, with intervals, and differences from the baseline."""
    again, queries = (sum(map(count, (draft.again for draft in results))) for count in (sum, len))
    candidates = sum(draft.papers for draft in results)
    counts = {"drafts": len(results), "candidates": candidates, "queries": queries}
    counts |= {"first/queries": queries - again, "again/queries": again}
    metrics: dict[str, dict[str, Any]] = {}
    for group in results[0].ranks[MODEL]:
        means = {who: _draft_means(results, who, group) for who in results[0].ranks}
        metrics[group] = dict(counts)
        for who, prefix in ((MODEL, ""), (BASELINE, "baseline/")):
            if who in means:
                metrics[group] |= _with_intervals(means[who], prefix, settings.seed)
        if BASELINE in means:
            for name, values in means[MODEL].items():
                rows = ~np.isnan(values)
                if rows.any():
                    other = means[BASELINE][name][rows]
                    papers = np.arange(len(other))
                    test = paired_difference(values[rows], other, papers, seed=settings.seed)
                    ends = {"": test.difference, "/low": test.low, "/high": test.high, "/p": test.p}
                    metrics[group] |= {f"difference/{name}{end}": value for end, value in ends.items()}
    return metrics


def _draft_means(results: Sequence[DraftResult], who: str, group: str) -> dict[str, Floats]:
    """Return each mean of a draft, for all drafts [D]."""
    means = [draft.means(who, group) for draft in results]
    return {name: np.array([draft_mean[name] for draft_mean in means]) for name in means[0]}


def _with_intervals(means: Mapping[str, Floats], prefix: str, seed: int) -> dict[str, float]:
    """Return the means over drafts and the ends of their intervals; without measures that no draft has."""
    measured = {name: values for name, values in means.items() if not np.isnan(values).all()}
    columns = np.stack(list(measured.values()), axis=1)
    low, high = intervals(columns, np.arange(len(columns)), seed=seed)
    metrics: dict[str, float] = {}
    for name, mean, *ends in zip(measured, np.nanmean(columns, axis=0), low, high, strict=True):
        metrics |= {f"{prefix}{name}": float(mean)}
        if not np.isnan(ends).any():
            metrics |= {f"{prefix}{name}/low": float(ends[0]), f"{prefix}{name}/high": float(ends[1])}
    return metrics


def per_query(results: Sequence[DraftResult]) -> PerQuery:
    """Return rank, score and best score of each query, and its measures under the first protocol."""
    values = {"again": np.concatenate([np.array(draft.again, np.float64) for draft in results])}
    first = next(iter(results[0].ranks[MODEL]))
    measured = [draft.values(MODEL, first) for draft in results]
    values |= {name: np.concatenate([draft[name] for draft in measured]) for name in MEASURES}
    for who, groups in results[0].ranks.items():
        for group in groups:
            for name in Ranks.__struct_fields__:
                columns = [np.array(getattr(draft.ranks[who][group], name), np.float64) for draft in results]
                values[f"{who}/{group}/{name}"] = np.concatenate(columns)
    ids = [query for draft in results for query in draft.query_ids]
    return PerQuery(ids, [draft.name for draft in results for _ in draft.query_ids], values)


_COLUMNS = (
    Column("recall@10", "R@10", interval=True),
    Column("mrr", "MRR", interval=True),
    Column("hit@1", "hit@1"),
    Column("first/recall@10", "first: R@10"),
    Column("first/mrr", "first: MRR"),
    Column("again/recall@10", "re-citations: R@10"),
    Column("again/mrr", "re-citations: MRR"),
    Column("mention/recall@10", "first mentions: R@10"),
    Column("mention/mrr", "first mentions: MRR"),
)
_DIFFERENCES = tuple(
    column
    for name in TESTED
    for column in (
        Column(f"difference/{name}", MEASURES[name], interval=True, signed=True),
        Column(f"difference/{name}/p", f"{MEASURES[name]}, p", decimals=4),
    )
)


def result_parts(
    metrics: Mapping[str, Metrics], results: Mapping[str, Sequence[DraftResult]], baseline: str | None
) -> list[Part]:
    """Return the tables of models, given by name their metrics and the results of each draft."""
    rows = {"{}, {}: {}".format(*labels): row for labels, row in _rows(metrics, baseline).items()}
    tested = {name: row for name, row in rows.items() if f"difference/{TESTED[0]}" in row}
    differences = [Table.of(tested, _DIFFERENCES, f"differences from {baseline}", brief=False)]
    asked = {tuple((draft.name, *draft.ranks[MODEL]) for draft in drafts) for drafts in results.values()}
    is_same = len(asked) == 1
    return [
        *([_count(next(iter(metrics.values())))] if is_same else []),
        Table.of(rows, _COLUMNS, "drafts"),
        *_under("Differences", differences if tested else []),
        *_under("Probabilities", _reliability(results)),
        *_under("By draft", [_draft_table(results, baseline)] if is_same else []),
    ]


def _under(heading: str, tables: list[Table]) -> list[Part]:
    return [f"### {heading}", *tables] if tables else []


def _count(metrics: Metrics) -> str:
    counts = next(iter(metrics.values()))
    return (
        f"{counts['drafts']} drafts, {counts['candidates']:,} papers in their bibliographies, "
        f"{counts['queries']:,} queries: {counts['first/queries']:,} first citations, "
        f"{counts['again/queries']:,} re-citations."
    )


def _rows(
    results: Mapping[str, Metrics], baseline: str | None
) -> dict[tuple[str, str, str], dict[str, float]]:
    """Return the rows of the main table: for each protocol and command the baseline, then the models."""
    rows: dict[tuple[str, str, str], dict[str, float]] = {}
    for group in dict.fromkeys(group for metrics in results.values() for group in metrics):
        for name, metrics in results.items():
            metric = metrics.get(group, {})
            if of_baseline := under(metric, "baseline/"):
                rows.setdefault((*_labels(group), baseline or ""), of_baseline)
            rows[*_labels(group), name] = metric
    return rows


def headline_rows(
    results: Mapping[str, Metrics], baseline: str | None
) -> tuple[dict[str, Metrics], list[Column]]:
    """Return the baseline and the models, and columns of each command, under the first protocol."""
    first = next(iter(next(iter(results.values())))).split("/")[0]
    rows: dict[str, dict[str, float]] = {}
    for (protocol, command, name), metric in _rows(results, baseline).items():
        if protocol == LABELS[first]:
            rows.setdefault(name, {}).update({f"{command}/{key}": value for key, value in metric.items()})
    commands = dict.fromkeys(key.split("/")[0] for row in rows.values() for key in row)
    columns = [
        Column(f"{command}/{key}", f"{command}: {MEASURES[key]}", interval=key == "recall@10", best=True)
        for command in commands
        for key in TESTED
    ]
    return dict(rows), columns


def _labels(group: str) -> tuple[str, str]:
    protocol, command = group.split("/")
    return LABELS[protocol], COMMANDS[command]


def _reliability(results: Mapping[str, Sequence[DraftResult]]) -> list[Table]:
    """Return a table of how often the best paper is right, by its probability, for calibrated models."""
    rows = []
    for name, drafts in results.items():
        calibrated = [draft for draft in drafts if draft.calibrated and draft.starts]
        for group in calibrated[0].ranks[MODEL] if calibrated else ():
            pairs = [draft.certainty(MODEL, group) for draft in calibrated]
            sure, right = (np.concatenate(part) for part in zip(*pairs, strict=True))
            summary = certainty(sure, right)
            correct = f"{summary['right']:.1%}" if summary["sure"] else ""
            shown = f"{summary['ece']:.3f}", f"{summary['sure']:.1%}", correct
            rows.append([name, *_labels(group), *shown])
    head = ["model", "bibliographies", "command", "ECE", f"at least {SURE}", "right among them"]
    return [Table(head, rows, brief=False)] if rows else []


def _draft_table(results: Mapping[str, Sequence[DraftResult]], baseline: str | None) -> Table:
    """Return a table of the drafts, with R@10 and MRR under the first protocol and the last command, and what
    is filled with each command."""
    first = next(iter(results.values()))
    protocol = next(iter(first[0].ranks[MODEL])).split("/")[0]
    groups = [group for group in first[0].ranks[MODEL] if group.startswith(f"{protocol}/")]
    group = groups[-1]
    shown = {baseline or "": (first, BASELINE)} if BASELINE in first[0].ranks else {}
    shown |= {name: (drafts, MODEL) for name, drafts in results.items()}
    head = ["{}, {}".format(*_labels(group)), "field", "language", "papers", "abstracts", "queries", "first"]
    rows = []
    for row, draft in enumerate(first):
        share = 1 - sum(draft.again) / max(len(draft.again), 1)
        cells = [f"{draft.papers:,}", f"{draft.abstracts:.0%}", f"{len(draft.again):,}", f"{share:.0%}"]
        means = [drafts[row].means(who, group) for drafts, who in shown.values()]
        figures = [f"{mean[name]:.3f}" for name in TESTED for mean in means]
        filled = [drafts[row].filled(MODEL, group) for group in groups for drafts in results.values()]
        rows.append([draft.name, draft.field, draft.language, *cells, *figures, *filled])
    head += [f"{MEASURES[measure]} {name}" for measure in TESTED for name in shown]
    head += [f"{_labels(group)[1]}: right of what is filled {name}" for group in groups for name in results]
    return Table(head, rows, brief=False)
