"""What the summary of a sweep says of papers that ask: figure 1 and table 4 of Nogueira et al. 2020."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from omegaconf import OmegaConf

from evaluation.global_reranking_published import (
    Section,
    published_query_forms,
    published_query_tokens,
    published_rerankers,
)
from evaluation.report import number

if TYPE_CHECKING:
    from evaluation.summary import Job

PLOT = "query-tokens.png"
F1 = "f1@20"


class Point(NamedTuple):
    """A training or an evaluation with a budget of tokens for each side, and what it measured."""

    query: int
    candidate: int
    f1: float
    mrr: float


def sections(folder: Path, jobs: Sequence[Job], varied: Sequence[str]) -> list[Section]:
    """More parts of the summary in `folder`, where the jobs are of that kind; draws their plot there.

    varied: what the jobs differ in.
    """
    found = []
    tokens = by_tokens(map(_point_of, jobs), folder / PLOT)
    if tokens is not None:
        found.append(tokens)
    if any(f"base/{F1}" in job.metrics for job in jobs):
        found.append(published_rerankers())
    elif "retriever.query" in varied and any(F1 in job.metrics for job in jobs):
        found.append(published_query_forms())
    return found


def point(metrics: Mapping[str, Any]) -> Point | None:
    """Of an evaluation; None for one that has no such budget, or no such measure."""
    if "query_tokens" not in metrics or F1 not in metrics:
        return None
    query, candidate = (int(metrics[f"{side}_tokens"]) for side in ("query", "candidate"))
    return Point(query, candidate, float(metrics[F1]), float(metrics["mrr"]))


def _point_of(job: Job) -> Point | None:
    """Of an evaluation, or of a training that measured F1 in its validations."""
    if f"val/{F1}" not in job.metrics:
        return point(job.metrics)
    config = OmegaConf.load(job.folder / ".hydra" / "config.yaml")
    pairs = OmegaConf.select(config, "model.pairs")
    if pairs is None or pairs.query_tokens is None:
        return None
    query = int(pairs.query_tokens)
    f1, mrr = (float(job.metrics[f"val/{name}"]) for name in (F1, "mrr"))
    return Point(query, int(pairs.max_tokens) - query, f1, mrr)


def by_tokens(given: Iterable[Point | None], plot: Path) -> Section | None:
    """The table of figure 1, drawn into `plot`; None where tokens are not divided in several ways."""
    points = sorted(one for one in given if one is not None)
    if len({(one.query, one.candidate) for one in points}) < 2:
        return None
    _draw(plot, points)
    rows = [[str(one.query), str(one.candidate), number(one.f1), number(one.mrr)] for one in points]
    return Section(
        "F1@20 by the tokens of query and candidate",
        "Of a training its best round, on validation queries; of an evaluation its queries.\n\n"
        f"![F1@20 by tokens of the query]({plot.name})\n\n"
        f"{published_query_tokens()}",
        [["tokens of the query", "of the candidate", "F1@20", "MRR"], *rows],
    )


def _draw(path: Path, points: Sequence[Point]) -> None:
    """F1@20 by the tokens of the query, a curve for each number of tokens of a pair."""
    from evaluation.plots import curve_plot

    curves: dict[str, dict[int, float]] = {}
    for one in points:
        curves.setdefault(f"{one.query + one.candidate} tokens a pair", {})[one.query] = one.f1
    curve_plot(path, curves, "F1@20 by the tokens of the query", "tokens of the query", "F1@20")
