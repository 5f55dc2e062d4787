"""Figures of reranking as they were published, as tables that say so."""

from __future__ import annotations

from pathlib import Path

from evaluation.published import read_published
from evaluation.report import markdown_table

FILE = Path(__file__).parent / "published_reranking.yaml"

WARNING = (
    "**Other data: not comparable with the tables above**, unless they are of the data set of that name."
)


def published_rerankers() -> list[str]:
    """Gu et al. 2022, table 3: MRR and R@10 of rerankers by data set."""
    content = read_published(FILE)
    head = ["as published", *(f"{data} {measure}" for data in content["data"] for measure in ("MRR", "R@10"))]
    rows = [
        [
            who,
            *(
                f"{value:.3f}" if value is not None else ""
                for data in content["data"]
                for value in of.get(data, [None] * 2)
            ),
        ]
        for who, of in content["rerank"].items()
    ]
    protocol = (
        "Candidates: 2,000 of oracle-BM25 (75 of RefSeer's), the whole database of FullTextPeerRead; "
        "protocol and numbers are the paper's."
    )
    return [
        "## Rerankers, as published",
        f"{WARNING} {content['source']}, Table 3. {protocol}",
        markdown_table(head, rows),
    ]


def published_pipelines() -> list[str]:
    """Gu et al. 2022, table 4: R@10 of pipelines by the number of reranked candidates."""
    content = read_published(FILE)
    head = ["as published", *(f"{k:,}" for k in content["candidates"])]
    rows = [
        [f"{data}: {who}", *(f"{value:.3f}" for value in of[data])]
        for data in content["data"]
        for who, of in content["pipeline"].items()
    ]
    return [
        "## Pipelines, as published",
        f"{WARNING} {content['source']}, Table 4: R@10.",
        markdown_table(head, rows),
    ]
