"""Statistics of a paper collection: citerec data count data.papers=FILES (docs/research/data.md).

The counts are those in Table 1 of Nogueira et al. 2020.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from hydra.utils import instantiate

from citerec.base.configuration import composed_command
from citerec.base.files import atomic_write, expand_user, write_text
from citerec.datasets.citations.queries import GraphQueries, read_rows
from citerec.datasets.records import TRAIN
from citerec.formats.json_lines import encode_json, gzip_writer

COUNTS, TABLE, QUERIES, HELD_OUT = "counts.json", "counts.md", "queries.json", "held_out.jsonl.gz"


def count_collection(data: GraphQueries, output_dir: str | Path) -> str:
    """Write the counts as JSON and as a table, plus QUERIES and HELD_OUT; return the table.

    QUERIES contains the ids of the val and test queries, for data.queries. HELD_OUT contains id, title and
    year of these papers, for data.held_out of another collection.
    """
    folder = expand_user(output_dir)
    held_out = {split: queries.papers for split, queries in data.queries.items() if split != TRAIN}
    is_held_out = np.zeros(len(data.graph), np.bool_)
    is_held_out[np.concatenate([np.empty(0, np.int64), *held_out.values()])] = True
    characters = 0
    with atomic_write(folder / HELD_OUT) as path, gzip_writer(path) as file:
        for row, paper in read_rows(data.graph, data.papers):
            characters += len(paper.title) + len(paper.abstract)
            if is_held_out[row]:
                line = {"paper_id": paper.id, "title": paper.title, "year": paper.year or None}
                file.write(encode_json(line) + b"\n")
    lists = {split: [data.graph.ids[row] for row in rows.tolist()] for split, rows in held_out.items()}
    counts = _counts(data, characters)
    table = _table(counts)
    write_text(folder / QUERIES, encode_json(lists).decode() + "\n")
    write_text(folder / COUNTS, msgspec.json.format(encode_json(counts), indent=2).decode() + "\n")
    write_text(folder / TABLE, table)
    return f"{table}\n{folder}: {COUNTS}, {TABLE}, {QUERIES}, {HELD_OUT}"


def _counts(data: GraphQueries, characters: int) -> dict[str, Any]:
    """Count documents and citations (pairs of a query and a relevant paper), in total and per split.

    unknown: citations of papers that are in no file. passed_over: other citations that are not pairs, such as
    those of later papers and by papers outside all splits. left_out: papers without a text, or without a year
    if the split needs one.
    """
    graph, documents = data.graph, len(data.papers)
    citations = sum(len(queries.relevant.values) for queries in data.eligible.values())
    splits = {}
    for split, eligible in data.eligible.items():
        years = graph.years[eligible.papers]
        years, used = years[years > 0], data.queries[split]
        splits[split] = {
            "years": [int(years.min()), int(years.max())] if len(years) else None,
            "queries": len(eligible.papers),
            "pairs": len(eligible.relevant.values),
            "asked": len(used.papers),
            "asked_pairs": len(used.relevant.values),
        }
    return {
        "files": [path.name for path in graph.files],
        "documents": documents,
        "left_out": len(graph) - documents,
        "citations": citations,
        "citations_per_document": citations / documents,
        "characters_per_document": characters / documents,
        "unknown": graph.unknown,
        "passed_over": len(graph.cites.values) - citations,
        "splits": splits,
        "near_duplicates": len(data.removed),
    }


def _table(counts: dict[str, Any]) -> str:
    rows = [
        ("documents", f"{counts['documents']:,}"),
        ("citations", f"{counts['citations']:,}"),
        ("citations per document", f"{counts['citations_per_document']:.2f}"),
        ("characters per document", f"{counts['characters_per_document']:,.0f}"),
    ]
    for split, numbers in counts["splits"].items():
        years = f" ({'–'.join(map(str, dict.fromkeys(numbers['years'])))})" if numbers["years"] else ""
        rows.append((f"queries, {split}{years}", f"{numbers['queries']:,}"))
        rows.append((f"query and relevant pairs, {split}", f"{numbers['pairs']:,}"))
        if numbers["asked"] != numbers["queries"]:
            rows.append((f"queries used, {split}", f"{numbers['asked']:,}"))
            rows.append((f"pairs of the queries used, {split}", f"{numbers['asked_pairs']:,}"))
    rows += [
        ("training queries dropped as near-duplicates", f"{counts['near_duplicates']:,}"),
        ("papers dropped", f"{counts['left_out']:,}"),
        ("citations of unknown papers", f"{counts['unknown']:,}"),
        ("other citations that are not pairs", f"{counts['passed_over']:,}"),
    ]
    lines = [f"| {', '.join(counts['files'])} | |", "| --- | ---: |"]
    return "\n".join([*lines, *(f"| {name} | {value} |" for name, value in rows)]) + "\n"


main = composed_command("count", lambda config: instantiate(config.counting))
