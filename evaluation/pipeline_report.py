"""The report of two stages: what the prefetcher found, and what reranking made of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from evaluation.pipeline_stages import BASE, COMPARED, GAIN, OF_DEPTH, depths_of
from evaluation.protocol import GROUPS, PROTOCOLS, TRANSDUCTIVE, key_of
from evaluation.report import (
    MEASURED,
    Facts,
    Metrics,
    Provenance,
    index_text,
    markdown_table,
    measure_cell,
    number,
    origin,
    pool_text,
    protocol_lines,
)


@dataclass(frozen=True)
class About:
    """What a benchmark of two stages says of itself.

    lines: of the candidates; sections: more parts before the origin; folder: of the pairs' scores.
    """

    heading: str
    folder: str
    lines: list[str]
    sections: list[str] = field(default_factory=list)


def pipeline_name(metrics: Metrics) -> str:
    """The two stages, and how they are fused, as `hatten + reranker`."""
    fused = f", fused by {metrics['fuse']}" if metrics["fuse"] != "none" else ""
    return f"{metrics['retriever']} + {metrics['reranker']}{fused}"


def stage_rows(
    metrics: Metrics, protocol: str = TRANSDUCTIVE, intervals: bool = False
) -> tuple[list[str], list[list[str]]]:
    """Head and rows: each measure of the prefetcher, of the reranked, and the ratio."""
    prefix = key_of("", protocol)
    wanted = tuple(prefix + measure for measure in MEASURED)
    names = [name for name in metrics if name.startswith(wanted) and not name.endswith(("/low", "/high"))]
    rows = []
    for name in names:
        base, final = (float(metrics[key]) for key in (BASE + name, name))
        rows.append(
            [
                name.removeprefix(prefix),
                measure_cell(metrics, BASE + name, intervals),
                measure_cell(metrics, name, intervals),
                f"{final / base:.3f}" if base else "",
            ]
        )
    return ["measure", "base", "reranked", "ratio"], rows


def depth_rows(metrics: Metrics, protocol: str = TRANSDUCTIVE) -> tuple[list[str], list[list[str]]]:
    """Head and rows: R@10, MRR, ceiling and seconds a query by the number of reranked candidates."""
    rows = [
        [f"{depth:,}", *(number(values[name]) for name in OF_DEPTH)]
        for depth, values in depths_of(metrics, protocol).items()
    ]
    return ["reranked candidates", "R@10", "MRR", "prefetch ceiling", "s/query"], rows


def depth_columns(
    curves: Mapping[str, Mapping[int, Mapping[str, float]]], measure: str, corner: str = ""
) -> tuple[list[str], list[list[str]]]:
    """Head and rows: a measure of several pipelines, a column for each number of reranked candidates.

    curves: what `depths_of` gives, by name; corner: the first cell of the head.
    """
    depths = sorted({depth for curve in curves.values() for depth in curve})
    rows = [
        [name, *(f"{curve[k][measure]:.3f}" if k in curve else "" for k in depths)]
        for name, curve in curves.items()
    ]
    return [corner, *(f"{k:,}" for k in depths)], rows


def headline(metrics: Metrics, protocol: str = TRANSDUCTIVE) -> str:
    """Base -> Reranked and the ceiling, in a line for people."""
    parts = []
    start = key_of("f1@", protocol)
    ranks = [name.removeprefix(start) for name in metrics if name.startswith(start)]
    f1 = [f"f1@{rank}" for rank in ranks if rank.isdecimal()]
    for name in [*COMPARED, *f1]:
        key = key_of(name, protocol)
        gain = f"{GAIN}{key}"
        sure = f"p {metrics[f'{gain}/p']:.4f}"
        if f"{gain}/low" in metrics:
            sure = f"95 % {metrics[f'{gain}/low']:+.4f} to {metrics[f'{gain}/high']:+.4f}, {sure}"
        values = f"{metrics[BASE + key]:.4f} -> {metrics[key]:.4f} ({metrics[gain]:+.4f}; {sure})"
        parts.append(f"{name.replace('recall', 'R').upper()} {values}")
    ceiling = metrics[key_of("ceiling", protocol)]
    return (
        f"Base -> Reranked: {'; '.join(parts)}. Prefetch ceiling: {ceiling:.4f}, the share of the cited "
        "papers that are among the reranked candidates: what a perfect reranker would find."
    )


def pipeline_report(metrics: Metrics, provenance: Provenance, plot: str, facts: Facts, about: About) -> str:
    """Markdown: base and reranked side by side, by depth, the times, and how to get them again."""
    where = f"{metrics['data']}, split {metrics['split']}"
    test = (
        "Differences: their interval as above, p of a two-sided randomisation test in which the two rankings "
        "of a citing paper change places."
    )
    lines = [*protocol_lines(metrics, facts), test, *about.lines, *_fused(metrics)]
    parts = [
        f"# {about.heading}: {pipeline_name(metrics)} on {where}",
        "## Protocol",
        "\n".join(f"- {line}" for line in lines),
    ]
    for protocol in PROTOCOLS:
        if key_of("queries", protocol) in metrics:
            parts += [f"## Results, {protocol}", pool_text(metrics, protocol), headline(metrics, protocol)]
            parts += [markdown_table(*stage_rows(metrics, protocol, intervals=True))]
            parts += _groups(metrics, protocol)
            parts += [
                "### By the number of reranked candidates",
                markdown_table(*depth_rows(metrics, protocol)),
            ]
    parts += [f"![R@10 by reranked candidates]({plot})", "## Time and size", _costs(metrics, facts, about)]
    return "\n\n".join([*parts, *about.sections, *origin(metrics, provenance)]) + "\n"


def _fused(metrics: Metrics) -> list[str]:
    if metrics["fuse"] == "none":
        return ["Ranked by the reranker's score alone; papers of equal score keep the prefetcher's order."]
    how = "reciprocal ranks" if metrics["fuse"] == "rank" else "z-scores"
    return [
        f"Ranked by a weighted sum of {how} of both stages: {metrics['weight']} the reranker's, the rest the "
        "prefetcher's (benchmark.weight)."
    ]


def _groups(metrics: Metrics, protocol: str) -> list[str]:
    """Base and reranked of each group of queries."""
    groups = [group for group in GROUPS[protocol] if f"{group}/queries" in metrics and group != protocol]
    groups = [group for group in groups if metrics[f"{group}/queries"]]
    if not groups:
        return []
    head = ["queries", "", *(f"{measure} {stage}" for measure in COMPARED for stage in ("base", "reranked"))]
    rows = [
        [
            group,
            f"{metrics[f'{group}/queries']:,}",
            *(
                measure_cell(metrics, f"{stage}{group}/{measure}", True)
                for measure in COMPARED
                for stage in (BASE, "")
            ),
        ]
        for group in groups
    ]
    return [markdown_table(head, rows)]


def _costs(metrics: Metrics, facts: Facts, about: About) -> str:
    pairs, new = int(metrics["pairs"]), int(metrics["pairs_new"])
    when = "all of them now" if new == pairs else f"{new:,} of them now, the others before"
    protocol = next(one for one in PROTOCOLS if key_of("queries", one) in metrics)
    whole, base = (metrics[stage + key_of("seconds_per_query", protocol)] for stage in ("", BASE))
    return (
        f"{index_text(metrics, facts)} Prefetching: {1000 * float(base):.3f} ms a query, in batches. "
        f"Reranking: {metrics['pairs_per_second']:,.1f} pairs a second, measured when the {pairs:,} pairs "
        f"were scored ({when}; `{about.folder}`). Both: {float(whole):.3f} s a query. "
        f"{metrics['processors']} processors."
    )
