"""Reads each bibliography and draft of a folder, and compares what is in .bib files with pandoc's reading.

    python -m citerec.tests.peers.sweep FOLDER [OUT.jsonl]

Prints the table of tests/cases.md; OUT.jsonl gets a line for each difference, refusal and traceback. Needs
pandoc 3.9 on the path.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from citerec.base.errors import InputError
from citerec.formats.bibliography.entries import BibtexText
from citerec.formats.bibliography.paper import LibraryPaper
from citerec.formats.drafts.inputs import decode_text
from citerec.library.drafts.check import find_problems, read_checked
from citerec.library.sources.readers import read_source

BIBLIOGRAPHIES = (".bib", ".bibtex", ".ris", ".nbib", ".enw", ".yaml", ".yml", ".json")
DRAFTS = (".tex", ".md", ".qmd", ".rmd", ".typ", ".org")
_NO_WORKS = ("xdata", "set")
Row = dict[str, Any]


def flat(text: str) -> str:
    """Return the letters and digits of a text, without accents and markup."""
    text = "".join(c for c in unicodedata.normalize("NFKD", re.sub(r"<[^>]*>", "", text)) if c.isalnum())
    return re.sub(r"[\W_]+", "", text.replace("\u0131", "i")).casefold()


def lost_keys(path: Path, papers: list[LibraryPaper], said: str) -> list[str]:
    """Return the keys of a .bib file that are neither read nor named in a message."""
    entries = (entry for entry in BibtexText(decode_text(path)).entries if entry.kind not in _NO_WORKS)
    have = {name for paper in papers for name in (paper.key, *paper.aliases)}
    return [key for entry in entries if (key := entry.key) and key not in have and key not in said]


def pandoc_items(text: str) -> list[Row] | None:
    """Return CSL items as pandoc reads BibLaTeX; None if it refuses the text or hangs."""
    command = ["pandoc", "-f", "biblatex", "-t", "csljson"]
    try:
        done = subprocess.run(command, input=text.encode(), capture_output=True, timeout=60)
    except subprocess.TimeoutExpired:
        return None
    return None if done.returncode else json.loads(done.stdout)


def written(name: Row) -> str:
    """Return a CSL name as our papers write it."""
    if literal := name.get("literal"):
        return str(literal)
    parts = ("given", "dropping-particle", "non-dropping-particle", "family", "suffix")
    return " ".join(str(name[part]) for part in parts if name.get(part))


def differences(item: Row, paper: LibraryPaper, entry: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield (field with cause, pandoc's value, ours) of what differs."""
    theirs, ours = item.get("title", ""), paper.title
    if (left := flat(theirs)) != (right := flat(ours)):
        letters = iter(right)
        if "$" in theirs:
            cause = "formula: pandoc keeps LaTeX, we write characters"
        elif re.search(r"(?i)\b(?:titleaddon|issuetitle|maintitle)\s*=", entry):
            cause = "pandoc's has titleaddon, issuetitle or maintitle"
        elif "\\" in entry and all(single in letters for single in left):
            cause = "pandoc leaves out macros that it does not know"
        else:
            cause = "other"
        yield f"title, {cause}", theirs, ours
    year = int(((item.get("issued", {}).get("date-parts") or [[0]])[0] or [0])[0])
    if year != paper.year:
        if year == 0:
            cause = "pandoc reads none in such as c. 1990, 199X, 1960--1961"
        else:
            cause = "before our era, or the year 100: we have none" if year < 1000 else "other"
        yield f"year, {cause}", year, paper.year
    people: list[Row] = next((item[role] for role in ("author", "editor", "director") if item.get(role)), [])
    names = [name for name in map(written, people) if name.lower() != "others"]
    if [sorted(flat(name)) for name in names] != [sorted(flat(name)) for name in paper.authors]:
        if any("=" in name for name in names):
            cause = "pandoc does not read biblatex's extended names"
        elif len(names) == len(paper.authors) and all(
            set(flat(single)) <= set(flat(other)) for single, other in zip(names, paper.authors, strict=True)
        ):
            cause = "pandoc leaves out macros that it does not know"
        else:
            cause = "other"
        yield f"authors, {cause}", names, list(paper.authors)


def main(folder: Path, out: Path | None) -> None:
    """Print the counts of a folder's files."""
    counts, rows = Counter[str](), list[Row]()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        kind = "drafts" if path.suffix.lower() in DRAFTS else "bibliographies"
        name = str(path.relative_to(folder))
        try:
            if path.suffix.lower() in BIBLIOGRAPHIES:
                bad = list[InputError]()
                papers = list(read_source(path, bad.append))
                counts["bibliographies read"] += 1
                if path.suffix in (".bib", ".bibtex"):
                    counts["entries of .bib files"] += len(papers)
                    lost = lost_keys(path, papers, " ".join(map(str, bad)))
                    rows += [{"file": name, "cause": "lost key", "key": key} for key in lost]
                    rows += compare(path, name, papers, counts)
            elif kind == "drafts":
                find_problems(read_checked(path))
                counts["drafts read"] += 1
        except InputError as error:
            rows.append({"cause": f"{kind} refused in one line", "file": name, "line": str(error)})
        except Exception as error:
            rows.append({"file": name, "cause": "traceback", "line": repr(error)})
    counts.update({"traceback": 0, "lost key": 0}, **Counter(row["cause"] for row in rows))
    for item, number in sorted(counts.items()):
        print(f"| {item} | {number:,} |")
    if out:
        out.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")


def compare(path: Path, name: str, papers: list[LibraryPaper], counts: Counter[str]) -> Iterator[Row]:
    """Yield what differs between our papers of a .bib file and pandoc's items, by key."""
    items = pandoc_items(decode_text(path))
    if items is None:
        counts["files that pandoc refuses"] += 1
    for item in items or ():
        named = [paper for paper in papers if paper.key == item["id"]]  # a key may stand twice
        if named:
            counts["entries compared with pandoc's"] += 1
            result = min(([*differences(item, paper, paper.bibtex)] for paper in named), key=len)
            for cause, theirs, ours in result:
                yield {"cause": cause, "file": name, "key": item["id"], "pandoc": theirs, "ours": ours}
        elif item.get("title"):
            yield {
                "cause": "a title that only pandoc has",
                "file": name,
                "key": item["id"],
                "pandoc": item["title"],
            }


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None)
