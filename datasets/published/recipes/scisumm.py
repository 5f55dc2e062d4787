"""acl-scisumm-lcr: sentences that cite the thousand papers of ScisummNet (Yasunaga et al. 2019).

Of the citing papers only the Anthology ids are known, which serve as their titles. The data do not say which
marker of a sentence is the cited paper's: it is taken to be the one with the year of the cited paper's id and
the first author that most of the sentences citing it share.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from xml.etree import ElementTree

import msgspec

from citerec.datasets.published.recipes import build_corpus
from citerec.formats.json_lines import gzip_writer

_ID = re.compile(r"[A-Z](\d\d)-\d{4}")
_MARKER = re.compile(
    r"(?P<name>[^\W\d_][\w'’-]+)(?P<others>(?:\s+(?:and|&)\s+[^\W\d_][\w'’-]+|\s+et\.?\s+al\.?)?),?\s*\(?(?P<year>\d{4})[a-z]?\)?"
)
SHARE = 0.5
"""Least share of the sentences citing a paper that name its first author."""


def build(folders: Sequence[Path], target: Path) -> None:
    """Build the corpus: train to 2010, val 2011, test from 2012."""
    papers = {file.parent.parent.name: file for file in sorted(folders[0].rglob("Reference_XML/*.xml"))}
    years = {"train_years": (None, 2010), "val_years": (2011, 2011), "test_years": (2012, None)}
    with TemporaryDirectory(dir=target.parent) as work:
        lines = Path(work) / "papers.jsonl.gz"
        with gzip_writer(lines) as out:
            for record in _records(papers):
                out.write(msgspec.json.encode(record) + b"\n")
        rules: dict[str, Any] = {"candidates": "title", "leaks": "keep", "words": "whole", "shortest": 50}
        build_corpus(lines, target, **years, **rules)


def _records(papers: dict[str, Path]) -> Iterator[dict[str, Any]]:
    """Yield the cited papers, then the citing ones, in the layout of datasets.building.readers."""
    sentences: dict[str, dict[str, list[tuple[int, int, str]]]] = {}
    for id, file in papers.items():
        tree = ElementTree.fromstring(file.read_bytes())
        title, abstract = (
            tree.findtext("S") or "",
            " ".join(s.text or "" for s in tree.iterfind("ABSTRACT/S")),
        )
        yield {"id": id, "title": title, "abstract": abstract, "year": _year(id)}
        for citing, text, start, end in _citing(id, file.parent.parent / "citing_sentences.json"):
            sentences.setdefault(citing, {}).setdefault(text, []).append((start, end, id))
    for citing, texts in sentences.items():
        body = [  # in sections of their own, since the sentences do not follow each other
            {
                "section": str(number),
                "text": text,
                "cites": [{"start": start, "end": end, "ref": id} for start, end, id in sorted(spans)],
            }
            for number, (text, spans) in enumerate(texts.items())
        ]
        cited = {id: {"paper": id} for spans in texts.values() for *_, id in spans}
        heading = {"id": f"{citing}:citing", "title": citing, "year": _year(citing)}
        yield heading | {"body": body, "bibliography": cited}


def _year(id: str) -> int:
    """Return the year of an Anthology id (to 2020); 0 for another id."""
    match = _ID.fullmatch(id)
    return 0 if match is None else int(match[1]) + (1900 if int(match[1]) > 20 else 2000)


def _citing(id: str, file: Path) -> Iterator[tuple[str, str, int, int]]:
    """Yield citing paper, sentence and the place of the marker of the cited paper in it."""
    if not file.is_file() or not (year := _year(id)):
        return
    read = msgspec.json.decode(file.read_bytes())
    sentences = [(line["citing_paper_id"], " ".join(line["clean_text"].split())) for line in read]
    sentences = [(citing, text) for citing, text in dict.fromkeys(sentences) if text and citing != id]
    markers = [
        [marker for marker in _MARKER.finditer(text) if int(marker["year"]) == year] for _, text in sentences
    ]
    names = Counter(name for own in markers for name in {marker["name"].casefold() for marker in own})
    if not names or names.most_common(1)[0][1] < SHARE * len(sentences):
        return
    name = names.most_common(1)[0][0]
    for (citing, text), own in zip(sentences, markers, strict=True):
        if match := next((marker for marker in own if marker["name"].casefold() == name), None):
            yield citing, text, *match.span()
