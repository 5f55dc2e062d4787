"""Count what a collection of papers has: python -m datasets.count data.papers=FILES (docs/data.md).

What a collection of papers has, counted as in Table 1 of Nogueira et al. 2020, and lists of who asks.
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import hydra
import numpy as np
import orjson
from hydra.utils import instantiate
from omegaconf import DictConfig

from datasets.citations.questions import Asked, Questions, chosen_lines
from datasets.errors import failing_in_one_line, one_line_errors
from datasets.files import written_whole
from datasets.records import TRAIN

COUNTS, TABLE, QUERIES, HELD_OUT = "counts.json", "counts.md", "queries.json", "held_out.jsonl.gz"


def count_collection(data: Questions, output_dir: str | Path) -> str:
    """Write the counts as JSON and as a table, the ids of val and test, and the papers held out; the table.

    QUERIES is for data.queries. HELD_OUT has id, title and year of what asks in other splits than train, for
    data.held_out of another collection.
    """
    folder = Path(output_dir).expanduser()
    asked = {split: some.papers for split, some in data.asked.items() if split != TRAIN}
    with (
        written_whole(folder / HELD_OUT) as path,
        path.open("wb") as raw,
        gzip.GzipFile("", "wb", 5, raw, mtime=0) as file,  # neither name nor time: equal content, equal files
    ):
        characters = 0
        is_held_out = np.zeros(len(data.graph), np.bool_)
        is_held_out[np.concatenate([np.empty(0, np.int64), *asked.values()])] = True
        for row, paper in chosen_lines(data.graph, data.papers):
            characters += len(paper.title) + len(paper.abstract)
            if is_held_out[row]:
                line = {"paper_id": paper.id, "title": paper.title, "year": paper.year or None}
                file.write(orjson.dumps(line) + b"\n")
    lists = {split: [data.graph.ids[row] for row in rows.tolist()] for split, rows in asked.items()}
    counts = _counts(data, characters)
    table = _table(counts)
    for name, content in (
        (QUERIES, orjson.dumps(lists)),
        (COUNTS, orjson.dumps(counts, option=orjson.OPT_INDENT_2)),
        (TABLE, table.encode()),
    ):
        with written_whole(folder / name) as path:
            path.write_bytes(content + b"\n" if name != TABLE else content)
    return f"{table}\n{folder}: {COUNTS}, {TABLE}, {QUERIES}, {HELD_OUT}"


def _counts(data: Questions, characters: int) -> dict[str, Any]:
    """documents, citations (pairs of a query and what it is to find), and those of each split.

    unknown: citations of papers that are in no file. passed_over: other citations that nobody asks for, of
    later papers and by papers that ask in no split. left_out: papers without a text, or a year where that is
    needed.
    """
    graph, documents = data.graph, len(data.papers)
    citations = sum(len(some.relevant.values) for some in data.may.values())
    return {
        "files": [path.name for path in graph.files],
        "documents": documents,
        "left_out": len(graph) - documents,
        "citations": citations,
        "citations_per_document": citations / documents,
        "characters_per_document": characters / documents,
        "unknown": graph.unknown,
        "passed_over": len(graph.cites.values) - citations,
        "splits": {split: _split(data, some, data.asked[split]) for split, some in data.may.items()},
        "near_duplicates": len(data.removed),
    }


def _split(data: Questions, may: Asked, asked: Asked) -> dict[str, Any]:
    years = data.graph.years[may.papers]
    years = years[years > 0]
    return {
        "years": [int(years.min()), int(years.max())] if len(years) else None,
        "queries": len(may.papers),
        "pairs": len(may.relevant.values),
        "asked": len(asked.papers),
        "asked_pairs": len(asked.relevant.values),
    }


def _table(counts: dict[str, Any]) -> str:
    rows = [
        ("documents", f"{counts['documents']:,}"),
        ("citations", f"{counts['citations']:,}"),
        ("citations per document", f"{counts['citations_per_document']:.2f}"),
        ("characters per document", f"{counts['characters_per_document']:,.0f}"),
    ]
    for split, found in counts["splits"].items():
        years = f" ({'–'.join(map(str, dict.fromkeys(found['years'])))})" if found["years"] else ""
        rows += [
            (f"queries, {split}{years}", f"{found['queries']:,}"),
            (f"query and relevant pairs, {split}", f"{found['pairs']:,}"),
        ]
        if found["asked"] != found["queries"]:
            rows += [
                (f"queries that are asked, {split}", f"{found['asked']:,}"),
                (f"pairs of those, {split}", f"{found['asked_pairs']:,}"),
            ]
    rows += [
        ("training queries left out as near-duplicates", f"{counts['near_duplicates']:,}"),
        ("papers left out", f"{counts['left_out']:,}"),
        ("citations of papers in no file", f"{counts['unknown']:,}"),
        ("other citations that nobody asks for", f"{counts['passed_over']:,}"),
    ]
    lines = [f"| {', '.join(counts['files'])} | |", "| --- | ---: |"]
    return "\n".join([*lines, *(f"| {name} | {value} |" for name, value in rows)]) + "\n"


@one_line_errors
@hydra.main(version_base="1.3", config_path=str(Path(__file__).parents[1] / "conf"), config_name="count")
def main(config: DictConfig) -> None:
    """Compose, count, print the table."""
    with failing_in_one_line():
        print(instantiate(config.counting))


if __name__ == "__main__":
    main()
