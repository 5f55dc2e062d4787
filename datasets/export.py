"""Write a corpus in BEIR's layout, for other tools: `python -m datasets.export data=... output=DIR`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from datasets.beir import HEAD, NAMES, PAPERS, QRELS, QUERIES, writing_id
from datasets.command import command
from datasets.corpus import Corpus
from datasets.files import atomic_folder, new_folder
from datasets.progress import count_progress


def export(data: Callable[[], Corpus], output: str | Path) -> str:
    """Write a corpus into the new folder `output`; gives a line that says what is there.

    data: opens the corpus. InputError if the folder is there already.
    """
    folder = new_folder(output)
    corpus = data()
    ids, contexts = list(corpus.paper_ids), list(corpus.context_ids)
    citing = corpus.citing.tolist()
    pairs = zip(citing, contexts, strict=True)
    own = {row for row, query in pairs if row >= 0 and ids[row] == writing_id(query)}
    with atomic_folder(folder) as part:
        (part / QRELS).mkdir()
        with (part / PAPERS).open("wb") as file, count_progress("papers", len(ids)) as advance:
            for row, paper in enumerate(ids):
                if row not in own:
                    known = {"_id": paper, "title": corpus.titles[row], "text": corpus.abstracts[row]}
                    file.write(orjson.dumps(known | {"metadata": _of_paper(corpus, row)}) + b"\n")
                advance(1)
        with (part / QUERIES).open("wb") as file, count_progress("queries", len(contexts)) as advance:
            for row, (query, text) in enumerate(zip(contexts, corpus.context_texts, strict=True)):
                more: dict[str, Any] = {}
                if (paper := citing[row]) in own:
                    more = {"title": corpus.titles[paper], "abstract": corpus.abstracts[paper]}
                    more |= {"year": year} if (year := int(corpus.years[paper])) else {}
                elif paper >= 0:
                    more = {"citing_id": ids[paper]}
                file.write(orjson.dumps({"_id": query, "text": text, "metadata": more}) + b"\n")
                advance(1)
        for name, split in corpus.splits.items():
            with (part / QRELS / f"{NAMES.get(name, name)}.tsv").open("w", encoding="utf-8") as lines:
                lines.write("\t".join(HEAD) + "\n")
                for place, row in enumerate(split.contexts.tolist()):
                    for paper in split.positives[place].tolist():
                        lines.write(f"{contexts[row]}\t{ids[paper]}\t1\n")
    splits = ", ".join(f"{NAMES.get(name, name)} {len(split):,}" for name, split in corpus.splits.items())
    return f"{folder}: {len(ids) - len(own):,} papers, {len(contexts):,} queries ({splits})"


def _of_paper(corpus: Corpus, row: int) -> dict[str, Any]:
    year, codes = int(corpus.years[row]), corpus.fields[row].tolist()
    found: dict[str, Any] = {"year": year} if year else {}
    if codes:
        found[corpus.settings["field"] or "fields"] = [corpus.field_names[code] for code in codes]
    return found


main = command("export")


if __name__ == "__main__":
    main()
