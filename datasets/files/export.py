"""Export a corpus in the BEIR layout: `citerec data export data=... output=DIR`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from citerec.base.configuration import composed_command
from citerec.base.files import atomic_folder, disk_errors, new_folder
from citerec.base.progress import count_progress
from citerec.datasets.corpus import Corpus
from citerec.datasets.files.beir import HEADER, PAPERS, QRELS, QUERIES, beir_split
from citerec.datasets.records import default_citing_id


def export(data: Callable[[], Corpus], output: str | Path) -> str:
    """Write a corpus to the new folder `output`; return a summary line.

    data: opens the corpus. Raises InputError if the folder exists.
    """
    folder = new_folder(output)
    corpus = data()
    ids, contexts = list(corpus.paper_ids), list(corpus.context_ids)
    citing = corpus.citing.tolist()
    pairs = zip(citing, contexts, strict=True)
    implicit = {row for row, query in pairs if row >= 0 and ids[row] == default_citing_id(query)}
    with disk_errors(folder, "the export", "output"), atomic_folder(folder) as part:
        (part / QRELS).mkdir()
        with (part / PAPERS).open("wb") as file, count_progress("papers", len(ids)) as advance:
            for row, paper in enumerate(ids):
                if row not in implicit:
                    fields = {"_id": paper, "title": corpus.titles[row], "text": corpus.abstracts[row]}
                    file.write(
                        msgspec.json.encode(fields | {"metadata": _paper_metadata(corpus, row)}) + b"\n"
                    )
                advance(1)
        with (part / QUERIES).open("wb") as file, count_progress("queries", len(contexts)) as advance:
            for row, (query, text) in enumerate(zip(contexts, corpus.context_texts, strict=True)):
                more: dict[str, Any] = {}
                if (paper := citing[row]) in implicit:
                    more = {"title": corpus.titles[paper], "abstract": corpus.abstracts[paper]}
                    more |= {"year": year} if (year := int(corpus.years[paper])) else {}
                elif paper >= 0:
                    more = {"citing_id": ids[paper]}
                file.write(msgspec.json.encode({"_id": query, "text": text, "metadata": more}) + b"\n")
                advance(1)
        for name, split in corpus.splits.items():
            with (part / QRELS / f"{beir_split(name)}.tsv").open("w", encoding="utf-8") as lines:
                lines.write("\t".join(HEADER) + "\n")
                for position, row in enumerate(split.contexts.tolist()):
                    for paper in split.positives[position].tolist():
                        lines.write(f"{contexts[row]}\t{ids[paper]}\t1\n")
    splits = ", ".join(f"{beir_split(name)} {len(split):,}" for name, split in corpus.splits.items())
    return f"{folder}: {len(ids) - len(implicit):,} papers, {len(contexts):,} queries ({splits})"


def _paper_metadata(corpus: Corpus, row: int) -> dict[str, Any]:
    year, codes = int(corpus.years[row]), corpus.fields[row].tolist()
    metadata: dict[str, Any] = {"year": year} if year else {}
    if codes:
        key, names = corpus.settings["field"] or "fields", [corpus.field_names[code] for code in codes]
        metadata[key] = names[0] if key == "year" else names  # a list would be no year for data.field=year
    return metadata


main = composed_command("export")
