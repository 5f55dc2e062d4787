"""neurips2025-lcr: what papers of NeurIPS 2025 cite, of the papers of machine learning conferences.

Full texts are Markdown that Docling made of OpenReview's PDFs; those with numbered references are used.
Titles and abstracts are those of OpenReview and of Paper Copilot's lists.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from citerec.datasets.published.recipes import build_corpus
from citerec.formats.json_lines import gzip_writer

_HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)
_ENTRY = re.compile(r"^(?:- )?\[(\d{1,3})\] +(.+)$", re.MULTILINE)
_MARKER = re.compile(r"\[\d{1,3}(?: ?[,;–-] ?\d{1,3})*\]")
_NO_TEXT = re.compile(r"^(?:\||!\[|<!--|#|- |\d+\.|\$|(?:Figure|Table|Algorithm) \d+)")
_YEAR = re.compile(r"(\d{4})\.json")
LEAST_ENTRIES = 5


def build(folders: Sequence[Path], target: Path) -> None:
    """Build the corpus; folders: the full texts with OpenReview's records, and the lists of conferences."""
    texts, lists = folders
    with TemporaryDirectory(dir=target.parent) as work:
        lines = Path(work) / "papers.jsonl.gz"
        with gzip_writer(lines) as out:
            for record in (*_listed(lists), *_papers(texts)):
                out.write(msgspec.json.encode(record) + b"\n")
        build_corpus(lines, target, train=0.85, val=0.1, test=0.05, words="whole")


def _listed(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the papers of the conferences' lists."""
    for file in sorted(folder.glob("*/*.json")):
        if not (year := _YEAR.search(file.name)):
            continue
        for number, record in enumerate(msgspec.json.decode(file.read_bytes())):
            names = [name.strip() for name in (record.get("author") or "").split(";")]
            texts = {"title": record.get("title") or "", "abstract": record.get("abstract") or ""}
            if record.get("status") not in ("Reject", "Withdraw", "Desk Reject"):
                yield {"id": f"{file.stem}-{number}", "year": int(year[1]), "authors": names, **texts}


def _papers(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the papers of OpenReview, those of 2025 with their full texts."""
    for file in sorted(folder.glob("output/neurips_*/reviews/*.json")):
        record = msgspec.json.decode(file.read_bytes())
        year = int(record["conference"].split()[-1])
        paper = {
            "id": f"neurips{year}-{record['id']}",
            "title": record["title"],
            "abstract": record["abstract"],
        }
        paper |= {"year": year, "authors": record["authors"]}
        text = file.parent.parent / "parsed_pdfs" / f"{record['id']}.pdf.md"
        yield paper | (_full_text(text.read_text("utf-8")) if text.is_file() else {})


def _full_text(text: str) -> dict[str, Any]:
    """Return body and bibliography of Markdown with a numbered list of references; empty without one."""
    headings = list(_HEADING.finditer(text))
    names = [heading[1].strip().casefold() for heading in headings]
    if "references" not in names or "abstract" not in names:
        return {}
    start, end = (headings[names.index(name)] for name in ("abstract", "references"))
    entries: dict[str, str] = {}
    for number, entry in _ENTRY.findall(text[end.end() :]):  # lists of appendices may have the same numbers
        entries.setdefault(number, " ".join(entry.split()))
    if len(entries) < LEAST_ENTRIES:
        return {}
    body: list[dict[str, Any]] = []
    section = start[1]
    for block in re.split(r"\n\s*\n", text[start.end() : end.start()]):
        block = block.strip()
        if heading := _HEADING.match(block):
            section = heading[1]
        elif block and section != start[1] and not _NO_TEXT.match(block):
            words = " ".join(block.replace("\\_", "_").split())
            cites = [
                {"start": marker.start(), "end": marker.end(), "ref": number}
                for marker in _MARKER.finditer(words)
                for number in _numbers(marker[0])
                if number in entries
            ]
            body.append({"section": section, "text": words, "cites": cites})
    return {"body": body, "bibliography": {number: {"text": entry} for number, entry in entries.items()}}


def _numbers(marker: str) -> list[str]:
    """
    >>> _numbers("[3, 7-9]")
    ['3', '7', '8', '9']
    """
    numbers = []
    for part in re.split("[,;]", marker[1:-1]):
        first, _, last = part.replace("–", "-").replace(" ", "").partition("-")
        numbers += [str(number) for number in range(int(first), int(last or first) + 1)][:20]
    return numbers
