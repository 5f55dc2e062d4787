"""How often `citerec references` is right: on HALLMARK, CiteAudit's real citations and people's .bib files.

    python reproduce/references.py dev_public.jsonl benchmark.json "BIBS/*.bib" TABLE...

HALLMARK's valid entries are a table, too. The contradictions of the .bib files are listed, to be read.
"""

import json
import re
import sys
import time
from collections import Counter
from glob import glob
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from citerec.formats.bibliography.paper import LibraryPaper, make_paper
from citerec.formats.bibliography.reading.bibtex import parse_bibtex, read_bibtex
from citerec.formats.identifiers import find_arxiv_id
from citerec.library.references.answers import judge
from citerec.library.references.table import Table

CITATION = re.compile(r"(?s)(.+?(?<![A-Z ]\w))\. (.{12,}?[.?!])(?: (.*))?$")
"""Authors. Title. Venue, year."""


def bibtex(kind: str, fields: dict[str, Any]) -> str:
    return f"@{kind}{{key, {', '.join(f'{name} = {{{value}}}' for name, value in fields.items())}}}\n"


def read(text: str) -> LibraryPaper | None:
    return next(parse_bibtex(text, "entry", lambda _: None), None)


def citation(text: str) -> LibraryPaper | None:
    """Return the paper of a citation as CiteAudit prints it; None for another form."""
    if not (match := CITATION.match(text)):
        return None
    names, rest = re.split(r",? and |, ", match[1]), match[3] or ""
    authors = " and ".join(name for name in names if name not in ("", "et al"))
    venue = re.sub(r"^In |arXiv preprint.*|,? (?:pp\.|pages|vol)\W.*|, \d.*", "", rest)
    doi, arxiv = re.search(r"10\.\d{4,}/[^\s,]+", rest), find_arxiv_id(rest)
    dated = re.sub(r"https?:\S+( \S+)?|\d{4}\.\d{4,5}|\d+[-–:]\d+|10\.\d{4,}\S*", " ", rest)
    fields = {"title": match[2][:-1], "author": f"{authors} {'and others' if 'et al' in match[1] else ''}"}
    fields |= {"journal": venue or (f"arXiv:{arxiv}" if arxiv else ""), "doi": doi[0] if doi else ""}
    fields |= {"year": ["", *re.findall(r"\b(?:19|20)\d\d(?=[a-z]?\b)", dated)][-1]}
    paper = read(re.sub(r"[\\#%&$]", "", bibtex("article", fields)))
    return paper and paper._replace(arxiv=make_paper(title="x", arxiv=arxiv).arxiv)


def measure(title: str, rows: list[tuple[str, LibraryPaper]], tables: list[Table]) -> list[str]:
    """Print the answers about (label, paper); return the contradictions."""
    start, answers = time.process_time(), [(label, judge(paper, tables)) for label, paper in rows]
    ms = (time.process_time() - start) / len(rows) * 1000
    for label, total in Counter(label for label, _ in rows).items():
        counts = Counter(answer.answer for other, answer in answers if other == label)
        shares = ", ".join(f"{counts[name] / total:.1%} {name}" for name in ("confirmed", "contradicted"))
        print(f"{title}: {label} {total:,}: {shares}; {ms:.1f} ms an entry")
    return [f"{label} {answer.key}: {answer.said}" for label, answer in answers if answer.findings]


hallmark, citeaudit, bibs, *tables = sys.argv[1:]
lines = [json.loads(line) for line in Path(hallmark).read_text("utf-8").splitlines()]
entries = [(row["label"].lower(), bibtex(row["bibtex_type"], row["fields"])) for row in lines]
rows = [(label, paper) for label, text in entries if (paper := read(text))]
valid = Path(mkdtemp()) / "valid.bib"
valid.write_text("".join(text for label, text in entries if label == "valid"), "utf-8")
listed = json.loads(Path(citeaudit).read_text("utf-8"))["data"]
listed = [row for row in listed if row["source_type"] == "realworld"]
real = [("valid" if row["GT"] else "wrong", paper) for row in listed if (paper := citation(row["citation"]))]
opened, own = (Table.open(files, lambda _: None) for files in (tables, [str(valid)]))
sources = {"alone": [], "open data": [opened], "valid works": [own], "both": [opened, own]}
for name, each in sources.items():
    measure(f"HALLMARK, {name}", rows, each)
for name in ("alone", "open data"):
    measure(f"CiteAudit, {name}", real, sources[name])
papers = (paper for file in sorted(glob(bibs)) for paper in read_bibtex(Path(file), lambda _: None))
people = [("entries", paper._replace(files=())) for paper in papers]
found = measure(f"{len(glob(bibs))} bibliographies", people, [opened])
print(f"{len(found)} contradicted", *found, sep="\n  ")
