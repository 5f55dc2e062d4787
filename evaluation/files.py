"""What a benchmark writes, and small text files that are whole or not there."""

from __future__ import annotations

from pathlib import Path

from datasets.files import written_whole

METRICS, REPORT, PLOT = "metrics.json", "report.md", "recall.png"
RUN, QRELS, PER_QUERY = "run.trec", "qrels.trec", "per_query.csv"


def write_text(path: Path, text: str) -> None:
    """Write a text file; after an error `path` is what it was before."""
    with written_whole(path) as part:
        part.write_text(text, encoding="utf-8")
