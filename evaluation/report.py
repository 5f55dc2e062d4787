"""The report of one evaluation, for people; the same numbers as metrics.json."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata

Metrics = Mapping[str, float | int | str]

GROUPS = {"": "all", "seen": "seen", "unseen": "unseen"}
PACKAGES = ("numpy", "torch", "faiss-cpu", "faiss-gpu", "bm25s", "ir_measures")


@dataclass(frozen=True)
class Provenance:
    """Where numbers come from: the command that gives them again, and the settings as YAML."""

    command: str = ""
    settings: str = ""


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


def measure_rows(metrics: Metrics) -> tuple[list[str], list[list[str]]]:
    """Head and rows of the table of measures, a column for each group of queries that there is."""
    groups = [group for group in GROUPS if (f"{group}/queries" if group else "queries") in metrics]
    measures = [name for name in metrics if name == "mrr" or name.startswith("recall@")]
    head = ["measure", *(GROUPS[group] for group in groups)]
    rows = []
    for name in ["queries", *measures]:
        values = [metrics.get(f"{group}/{name}" if group else name, "") for group in groups]
        rows.append([name, *map(number, values)])
    return head, rows


def prefetch_report(metrics: Metrics, provenance: Provenance, plot: str | None, depth: int) -> str:
    """Markdown: protocol, data, measures, times, and how to get them again."""
    head, rows = measure_rows(metrics)
    seen = [
        "- Seen: a query with a cited paper that some training context cites too; unseen: the others."
        if "seen/queries" in metrics
        else "- Seen and unseen targets are not told apart: the corpus has no training split.",
    ]
    versions = [f"python {platform.python_version()}", *filter(None, map(_version, PACKAGES))]
    parts = [
        f"# Prefetching: {metrics['retriever']} on {metrics['data']}, split {metrics['split']}",
        "## Protocol",
        "\n".join(
            [
                f"- Each of the {metrics['queries']:,} contexts of the split {metrics['split']} is a query; "
                "the papers that it cites in place of its target marker are to be found.",
                f"- Pool: all {metrics['candidates']:,} candidates of the corpus (transductive), the citing "
                f"paper of the query excluded; {depth:,} papers fetched a query.",
                *seen,
                "- Measures by ir_measures (trec_eval) over run.trec and qrels.trec, mean over queries; a "
                "query without results counts as zero, papers of equal score are ordered as trec_eval does.",
            ]
        ),
        "## Results",
        markdown_table(head, rows),
    ]
    if plot:
        parts.append(f"![recall@k]({plot})")
    parts += [
        "## Time",
        f"Index: {metrics['index_seconds']:.2f} s. Search, with encoding the queries, in batches: "
        f"{1000 * float(metrics['seconds_per_query']):.3f} ms a query. {os.cpu_count()} processors.",
        "## Origin",
        f"Corpus {metrics['data']}, prepared store `{metrics['fingerprint']}`. {', '.join(versions)}.",
    ]
    if provenance.command:
        parts.append(f"```\n{provenance.command}\n```")
    if provenance.settings:
        parts.append(f"```yaml\n{provenance.settings.strip()}\n```")
    return "\n\n".join(parts) + "\n"


def _version(package: str) -> str | None:
    try:
        return f"{package} {metadata.version(package)}"
    except metadata.PackageNotFoundError:
        return None
