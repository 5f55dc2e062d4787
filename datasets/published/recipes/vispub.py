"""vispub: the papers of IEEE VIS 1990-2018 and what they cite of each other (Isenberg et al. 2017)."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import msgspec

from citerec.formats.json_lines import gzip_writer

TABLE = "data/IEEE VIS papers 1990-2018 - Main dataset.csv"
LEAST = 5
"""Fewest citations of a query."""
SPLITS = {"train": (1990, 2012), "val": (2013, 2014), "test": (2015, 2018)}


def build(folders: Sequence[Path], target: Path) -> None:
    """Write papers.jsonl.gz and queries.json, as data=papers reads them."""
    target.mkdir()
    with (folders[0] / TABLE).open(encoding="utf-8", newline="") as file:
        rows = {row["DOI"].strip().lower(): row for row in csv.DictReader(file)}
    years = {id: int(row["Year"]) for id, row in rows.items()}
    queries: dict[str, dict[str, list[str]]] = {split: {} for split in SPLITS}
    with gzip_writer(target / "papers.jsonl.gz") as out:
        for id in sorted(rows, key=lambda id: (years[id], id)):
            row, year = rows[id], years[id]
            named = (doi.strip().lower() for doi in row["InternalReferences"].split(";"))
            cited = [doi for doi in dict.fromkeys(named) if doi in rows and doi != id]
            paper = {
                "paper_id": id,
                "title": " ".join(row["Title"].split()),
                "abstract": " ".join(row["Abstract"].split()),
                "year": year,
                "fields": [row["Conference"]],
                "references": cited,
            }
            out.write(msgspec.json.encode(paper) + b"\n")
            if paper["abstract"] and sum(years[doi] <= year for doi in cited) >= LEAST:
                split = next(name for name, (first, last) in SPLITS.items() if first <= year <= last)
                queries[split].setdefault(row["Conference"], []).append(id)
    (target / "queries.json").write_bytes(msgspec.json.format(msgspec.json.encode(queries), indent=2))
