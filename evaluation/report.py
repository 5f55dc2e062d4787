"""The report of one evaluation, for people; the same numbers as metrics.json."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata

from datasets.records import TRAIN
from evaluation.protocol import GROUPS, INDUCTIVE, PROTOCOLS, TRANSDUCTIVE, key_of
from evaluation.significance import DRAWS, LEVEL

Metrics = Mapping[str, float | int | str]

TRAINING = (
    "**These are training queries.** Whatever was learnt from that split has seen their answers: trained "
    "weights, citation counts, and context profiles, which hold each query itself."
)
MEASURED = ("mrr", "recall@", "precision@", "f1@")
"""What the names of measures begin with."""

PACKAGES = ("numpy", "torch", "faiss-cpu", "faiss-gpu", "bm25s", "ir_measures")


@dataclass(frozen=True)
class Provenance:
    """Where numbers come from: the command that gives them again, and the settings as YAML."""

    command: str = ""
    settings: str = ""


@dataclass(frozen=True)
class Facts:
    """What the numbers do not tell.

    depth: papers fetched a query; run_depth: how many of them are in the run files (None: all).
    queries: contexts asked, of split_queries. loaded: the index was read from disk, not made.
    """

    depth: int
    run_depth: int | None
    queries: int
    split_queries: int
    loaded: bool


def markdown_table(head: list[str], rows: list[list[str]]) -> str:
    """A table with the first column to the left and the others to the right."""
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def number(value: object) -> str:
    """A number as tables show it: four places, three digits of a small one, thousands apart."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4f}" if abs(value) >= 0.01 or value == 0 else f"{value:.3g}"


def measure_rows(
    metrics: Metrics, protocol: str = TRANSDUCTIVE, intervals: bool = False
) -> tuple[list[str], list[list[str]]]:
    """Head and rows of the table of measures, a column for each group of queries that there is."""
    labels = {f"{group}/" if group else "": label for group, label in GROUPS[protocol].items()}
    groups = [group for group in labels if f"{group}queries" in metrics]
    measures = dict.fromkeys(
        name.removeprefix(group)
        for group in groups
        for name in metrics
        if name.startswith(tuple(group + measure for measure in MEASURED))
        and not name.endswith(("/low", "/high"))
    )
    rows = [
        [name, *(measure_cell(metrics, group + name, intervals) for group in groups)]
        for name in ["queries", *measures]
    ]
    return ["measure", *(labels[group] for group in groups)], rows


def measure_cell(metrics: Metrics, name: str, interval: bool, places: int = 4) -> str:
    """A number, with the ends of its interval in brackets where they are asked for and known."""
    value = metrics.get(name, "")
    if not isinstance(value, float):
        return number(value)
    text = f"{value:.{places}f}"
    if interval and f"{name}/low" in metrics:
        text += f" [{metrics[f'{name}/low']:.3f}, {metrics[f'{name}/high']:.3f}]"
    return text


def prefetch_report(
    metrics: Metrics, provenance: Provenance, plot: str, facts: Facts, sections: Sequence[str] = ()
) -> str:
    """Markdown: protocol, data, measures, times, and how to get them again.

    sections: more parts, before the last.
    """
    parts = [
        f"# Prefetching: {metrics['retriever']} on {metrics['data']}, split {metrics['split']}",
        "## Protocol",
        "\n".join(f"- {line}" for line in protocol_lines(metrics, facts)),
    ]
    for protocol in PROTOCOLS:
        if key_of("queries", protocol) in metrics:
            parts += [f"## Results, {protocol}", pool_text(metrics, protocol)]
            parts += [markdown_table(*measure_rows(metrics, protocol, intervals=True))]
    parts += [
        f"![recall@k]({plot})",
        "## Time and size",
        _costs(metrics, facts),
        *sections,
        *origin(metrics, provenance),
    ]
    return "\n\n".join(parts) + "\n"


def origin(metrics: Metrics, provenance: Provenance) -> list[str]:
    """The data, the versions, the command and the settings."""
    versions = [f"python {platform.python_version()}", *filter(None, map(_version, PACKAGES))]
    parts = [
        "## Origin",
        f"Corpus {metrics['data']}, prepared store `{metrics['fingerprint']}`. {', '.join(versions)}.",
    ]
    if provenance.command:
        parts.append(f"```\n{provenance.command}\n```")
    if provenance.settings:
        parts.append(f"```yaml\n{provenance.settings.strip()}\n```")
    return parts


def protocol_lines(metrics: Metrics, facts: Facts) -> list[str]:
    """What was asked, by which rules, and how it was measured."""
    split = metrics["split"]
    asked = f"Each of the {facts.queries:,} contexts of the split {split} is a query"
    if facts.queries < facts.split_queries:
        drawn = f"drawn at random from its {facts.split_queries:,}"
        asked = f"{facts.queries:,} contexts of the split {split}, {drawn}, are queries"
    files = "no run file was written"
    if facts.run_depth is None or facts.run_depth >= facts.depth:
        files = "the run files hold all that was found"
    elif facts.run_depth:
        files = (
            f"the run files hold the first {facts.run_depth:,} of each query and the equals of the last of "
            "them, which is enough for recall up to there (benchmark.run_depth)"
        )
    return [
        f"{asked}; the papers that are cited in place of the target marker are to be found.",
        f"A query never finds the paper that it stands in; {facts.depth:,} papers are fetched a query.",
        *([f"Filters, for all that follows: {metrics['filters']}."] if metrics["filters"] else []),
        "Measures by ir_measures (trec_eval), mean over queries; a query without results counts as zero, "
        f"papers of equal score are ordered as trec_eval does; {files}.",
        f"In brackets: {LEVEL:.0%} confidence interval, by drawing citing papers with all of their queries "
        f"{DRAWS:,} times (percentile bootstrap).",
        *([TRAINING] if split == TRAIN else []),
    ]


def pool_text(metrics: Metrics, protocol: str) -> str:
    """Which papers may be found, by how many queries, and what the columns of the table are."""
    queries, papers, candidates = (
        metrics[key_of(name, protocol)] for name in ("queries", "citing_papers", "candidates")
    )
    who = f"{queries:,} queries of {papers:,} citing papers."
    passing = "that pass the filters" if metrics["filters"] else "of the corpus"
    if protocol == INDUCTIVE:
        return (
            f"Pool: the {candidates:,} candidates {passing} that no training context cites; {who} They are "
            "those of whose cited papers no training context cites any. The transductive protocol has other "
            "queries and another pool: numbers of the two cannot be compared."
        )
    seen = "Seen: a query with a cited paper that some training context cites too; unseen: the others."
    if "seen/queries" not in metrics:
        seen = "Seen and unseen targets are not told apart: the corpus has no training split."
    return f"Pool: all {candidates:,} candidates {passing}; {who} {seen}"


def index_text(metrics: Metrics, facts: Facts) -> str:
    """How long indexing took, and the size of the index."""
    index = f"Index: {metrics['index_seconds']:.2f} s"
    if facts.loaded:
        index += ", to open one that was made before"
    else:
        index += f", {metrics['papers_per_second']:,.0f} papers a second"
    return f"{index}; {int(metrics['index_bytes']) / 1e6:,.1f} MB."


def _costs(metrics: Metrics, facts: Facts) -> str:
    seconds = next(
        float(metrics[key]) for p in PROTOCOLS if (key := key_of("seconds_per_query", p)) in metrics
    )
    tuned = [
        f"{name.removeprefix('tuned/')}: {metrics[name]}" for name in metrics if name.startswith("tuned/")
    ]
    lines = [
        f"{index_text(metrics, facts)} Search, with encoding the queries, in "
        f"batches: {1000 * seconds:.3f} ms a query. {metrics['processors']} processors.",
        *([f"Chosen on the validation split: {', '.join(tuned)}."] if tuned else []),
    ]
    return "\n\n".join(lines)


def _version(package: str) -> str | None:
    try:
        return f"{package} {metadata.version(package)}"
    except metadata.PackageNotFoundError:
        return None
