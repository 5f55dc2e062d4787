"""How often `citerec references` is right: on HALLMARK, CiteAudit's real citations and people's .bib files.

    python reproduce/references.py dev_public.jsonl benchmark.json "BIBS/*.bib" TABLE...

HALLMARK's valid entries are a table, too. The contradictions of the .bib files are listed, to be read.
"""

import json
import re
import sys
import time
from collections import Counter
from collections.abc import Sequence
from glob import glob
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from citerec.formats.bibliography.paper import LibraryPaper, make_paper
from citerec.formats.bibliography.reading.bibtex import parse_bibtex, read_bibtex
from citerec.formats.identifiers import find_arxiv_id
from citerec.library.references.answers import Source, judge
from citerec.library.references.table import Table

hallmark, citeaudit, bibs, *tables = sys.argv[1:]
CITATION = re.compile(r"(?s)(.+?(?<![A-Z ]\w))\. (.{12,}?[.?!])(?: (.*))?$")
YEAR = re.compile(r"\b(?:19|20)\d\d(?=[a-z]?\b)")


def bibtex(row: dict[str, Any]) -> str:
    fields = ", ".join(f"{name} = {{{value}}}" for name, value in row["fields"].items())
    return f"@{row['bibtex_type']}{{{row['bibtex_key']}, {fields}}}\n"


def citation(text: str) -> LibraryPaper | None:
    """Return the paper of "Authors. Title. Venue, year."; None for another form."""
    if not (match := CITATION.match(text)):
        return None
    names = [name for name in re.split(r",? and |, ", match[1]) if name and name != "et al"]
    rest = match[3] or ""
    venue = re.sub(r"^In |arXiv preprint.*|,? (?:pp\.|pages|vol)\W.*|, \d.*", "", rest)
    note = "and others" if "et al" in match[1] else ""
    doi = re.search(r"10\.\d{4,}/[^\s,]+", rest)
    arxiv = f"arXiv:{found}" if (found := find_arxiv_id(rest)) else ""
    years = YEAR.findall(re.sub(r"https?:\S+( \S+)?|\d{4}\.\d{4,5}|\d+[-–:]\d+|10\.\d{4,}\S*", " ", rest))
    fields = {"title": match[2][:-1], "author": f"{' and '.join(names)} {note}", "journal": venue or arxiv}
    fields |= {"doi": doi[0] if doi else "", "year": years[-1] if years else ""}
    entry = f"@article{{key, {', '.join(f'{name} = {{{value}}}' for name, value in fields.items())}}}"
    paper = next(parse_bibtex(re.sub(r"[\\#%&$]", "", entry), "citation", lambda _: None), None)
    return paper and paper._replace(arxiv=make_paper(title="x", arxiv=arxiv).arxiv)


def measure(title: str, rows: Sequence[tuple[bool, LibraryPaper]], sources: Sequence[Source]) -> None:
    """Print the answers about valid and invented (label, paper)."""
    counts, start = Counter[tuple[bool, str]](), time.process_time()
    for label, paper in rows:
        counts[label, judge(paper, sources).answer] += 1
    ms = (time.process_time() - start) / len(rows) * 1000
    for label in (True, False):
        total = sum(counts[label, answer] for answer in ("confirmed", "contradicted", "unknown"))
        shares = ", ".join(
            f"{counts[label, answer] / total:.1%} {answer}" for answer in ("confirmed", "contradicted")
        )
        print(f"{title}: {'valid' if label else 'invented'} {total:,}: {shares}; {ms:.1f} ms an entry")


lines = [json.loads(line) for line in Path(hallmark).read_text("utf-8").splitlines()]
valid = Path(mkdtemp()) / "valid.bib"
valid.write_text("".join(bibtex(row) for row in lines if row["label"] == "VALID"), "utf-8")
rows = [(row["label"] == "VALID", next(parse_bibtex(bibtex(row), "", lambda _: None))) for row in lines]
listed = json.loads(Path(citeaudit).read_text("utf-8"))["data"]
real = [
    (row["GT"], paper)
    for row in listed
    if row["source_type"] == "realworld" and (paper := citation(row["citation"]))
]
opened = Table.open(tables, lambda _: None)
own = Table.open([str(valid)], lambda _: None)
for name, sources in {
    "alone": [],
    "open data": [opened],
    "valid works": [own],
    "both": [opened, own],
}.items():
    measure(f"HALLMARK, {name}", rows, sources)
for name, sources in {"alone": [], "open data": [opened]}.items():
    measure(f"CiteAudit, {name}", real, sources)
count, found = 0, []
for file in sorted(glob(bibs)):
    for paper in read_bibtex(Path(file), lambda _: None):
        count += 1
        answer = judge(paper._replace(files=()), [opened])
        if answer.findings:
            found.append(f"{Path(file).stem} {paper.key}: {answer.said}")
print(f"{count:,} entries of {len(glob(bibs))} bibliographies: {len(found)} contradicted", *found, sep="\n  ")
