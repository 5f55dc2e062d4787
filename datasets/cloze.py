"""Make a corpus from abstracts by the inverse cloze task: citerec data cloze source=FILES output=DIR.

A passage of a paper's abstract, with a mark at the end of one of its sentences, is a context that cites this
paper, which is then known by its title and, at most, the rest of its abstract. This trains models on papers
without known citations (Lee et al. 2019, "Latent Retrieval for Weakly Supervised Open Domain Question
Answering", section 4).
"""

from __future__ import annotations

import logging
import re
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import numpy as np

from citerec.base.arguments import command
from citerec.base.errors import InputError, quoted
from citerec.base.files import atomic_folder, disk_errors, new_folder
from citerec.base.progress import read_progress
from citerec.base.settings import Settings, setting
from citerec.datasets.building.readers import find_records
from citerec.datasets.files.source_files import read_paper_objects
from citerec.datasets.records import MARKER_WORDS, SPLITS, TARGET_MARKER, TRAIN, PaperRecord
from citerec.datasets.splitting import RandomSplitting
from citerec.datasets.tokenize import sentence_starts
from citerec.formats.json_lines import PaperId, Year, json_writer, validate

log = logging.getLogger(__name__)

SHORTEST = 8
"""Words of the shortest passage."""
LINES, PAPERS = (".jsonl", ".jsonl.gz"), (".json", ".json.gz")
"""Suffixes of JSON lines, and of files in the layout of papers.json."""
_FIELDS: Any = list[str] | str | None
_FULL_STOP = re.compile(r"[.!?]*[\"')\]]*$")


@dataclass(frozen=True, kw_only=True)
class ClozeSettings(Settings):
    """Make a corpus from papers without citations: passages of abstracts are citation contexts."""

    source: tuple[str, ...]
    """files, folders or patterns: JSON lines (.jsonl) with paper_id, title, abstract, year, or papers.json;
    plain or .gz (e.g. papers.jsonl.gz)"""
    output: str
    """new folder to write (e.g. outputs/cloze)"""
    field: str = ""
    """key of a paper's fields, such as categories: the citing paper is another one with the same first field;
    empty: any other paper"""
    contexts: int = setting(2, least=1)
    """maximum number of contexts per paper"""
    words: int = setting(35, least=SHORTEST)
    """words after which a passage ends with its sentence; at the end of the abstract it may be shorter"""
    without_abstract: float = setting(0.5, most=1)
    """share of papers of which only the title is kept, even if passages leave some of the abstract"""
    held_out: float = setting(0.005, below=0.5)
    """share of the citing papers in val, and the same in test"""
    seed: int = 0
    """random seed"""


class CitingPapers:
    """Draws citing papers: other papers of the same field, or any others for a paper alone in its field.

    ids [P]. fields [P]: a number for the field of each paper.
    """

    def __init__(self, ids: Sequence[str], fields: Sequence[int]) -> None:
        self.ids, self._fields = ids, np.asarray(fields, np.int32)
        self._rows = np.argsort(self._fields, kind="stable").astype(np.int32)
        self._places = np.argsort(self._rows).astype(np.int32)
        self._starts = np.cumsum([0, *np.bincount(self._fields)])

    def draw(self, row: int, rng: Random) -> str:
        """Return the id of a citing paper for the paper in a row; there must be two papers or more."""
        start, end = self._starts[self._fields[row] :][:2].tolist()
        if end - start == 1:
            start, end = 0, len(self.ids)
        place = rng.randrange(start, end - 1)
        return self.ids[self._rows[place + (place >= self._places[row])]]


def write_cloze_corpus(given: ClozeSettings) -> str:
    """Write a corpus (datasets/files/source_files.py) to a new folder; return a summary line.

    Papers without a title are left out. Equal papers and settings give equal files. Memory holds the ids.
    Raises InputError for invalid records, for a field that no paper has, and if there are no contexts.
    """
    folder, files = new_folder(given.output), _find_papers(given.source)
    citing = _read_citing(files, given.field)
    held_out = given.held_out
    splitting = RandomSplitting(1 - 2 * held_out, held_out, held_out, given.seed)
    written, kept = Counter[str](), 0
    with disk_errors(folder, "the corpus", "output"), atomic_folder(folder) as unfinished:
        with ExitStack() as stack:
            add_paper = stack.enter_context(json_writer(unfinished / "papers.json.gz", keys=True))
            add_context = stack.enter_context(json_writer(unfinished / "contexts.json.gz", keys=True))
            add_query = {
                split: stack.enter_context(json_writer(unfinished / f"{split}.json", keys=False))
                for split in SPLITS
            }
            for row, paper in enumerate(_read_papers(files, given.field, "writing")):
                rng = Random(f"{given.seed} {paper.id}")
                passages, rest = cut_passages(paper.abstract, given.contexts, given.words, rng)
                for number, text in enumerate(passages):
                    key, other = f"{paper.id}__{number}", citing.draw(row, rng)
                    context = {"masked_text": text, "context_id": key, "citing_id": other}
                    add_context(context | {"refid": paper.id}, key)
                    split = splitting(other, paper.year) or TRAIN  # None: the shares are rounded
                    add_query[split]({"context_id": key, "positive_ids": [paper.id]})
                    written[split] += 1
                abstract = "" if rng.random() < given.without_abstract else rest
                kept += bool(abstract)
                add_paper({"title": paper.title, "abstract": abstract, "year": paper.year or None}, paper.id)
        if not written:
            raise InputError(
                f"source: no contexts: none of {len(citing.ids):,} papers has a passage of {SHORTEST} words"
            )
        for split in SPLITS:
            if not written[split]:
                (unfinished / f"{split}.json").unlink()
                log.warning("no contexts for the split %s; it is not written", split)
    counts = ", ".join(f"{count:,} in {split}" for split, count in written.most_common())
    return f"{folder}: {len(citing.ids):,} papers, {kept:,} with abstract; contexts: {counts}"


def cut_passages(abstract: str, contexts: int, words: int, rng: Random) -> tuple[list[str], str]:
    """Return masked passages of an abstract, and the abstract without them.

    Passages are drawn one after the other and share no sentence. Each begins with a random sentence and ends
    with the sentence that reaches `words` words, or before a sentence that is taken; fewer than SHORTEST
    words make no passage. The rest is empty if it repeats a passage.
    """
    text = " ".join(abstract.split())
    bounds = [0, *sentence_starts(text), len(text)]
    sentences = [text[start:end].rstrip() for start, end in pairwise(bounds)]
    taken = [False] * len(sentences)
    passages, masked = [], []
    for _ in range(contexts):
        if all(taken):
            break
        first = last = rng.choice([number for number, is_taken in enumerate(taken) if not is_taken])
        length = len(sentences[first].split())
        while length < words and last + 1 < len(sentences) and not taken[last + 1]:
            last += 1
            length += len(sentences[last].split())
        marked = rng.randint(first, last)
        passage = " ".join(sentences[first : last + 1])
        if length < SHORTEST or any(word in passage.lower() for word in MARKER_WORDS):
            continue
        taken[first : last + 1] = [True] * (last + 1 - first)
        passages.append(passage)
        end = mark_end(sentences[marked])
        masked.append(" ".join([*sentences[first:marked], end, *sentences[marked + 1 : last + 1]]))
    rest = " ".join(sentence for sentence, is_taken in zip(sentences, taken, strict=True) if not is_taken)
    return masked, "" if any(passage in rest for passage in passages) else rest


def mark_end(sentence: str) -> str:
    """Put the mark before the full stop of a sentence.

    >>> mark_end("Trees are parsed."), mark_end('(We ask "why?")'), mark_end("and so on")
    ('Trees are parsed TARGETCIT.', '(We ask "why TARGETCIT?")', 'and so on TARGETCIT')
    """
    return _FULL_STOP.sub(lambda stop: f" {TARGET_MARKER}{stop[0]}", sentence, count=1)


def _find_papers(source: Sequence[str]) -> list[Path]:
    files = find_records(source, (*LINES, "papers.json", "papers.json.gz"))
    for path in files:
        if not path.name.endswith((*LINES, *PAPERS)):
            names = "JSON lines (.jsonl, .jsonl.gz) or papers.json (.json, .json.gz)"
            raise InputError(f"source: {path}: must be {names}; citerec data convert reads other dumps")
    return files


def _read_citing(files: Sequence[Path], field: str) -> CitingPapers:
    """Read the ids and fields. Raises InputError for a second paper of an id, and for unusable fields."""
    rows, numbers, fields = dict[str, None](), dict[tuple[str, ...], int](), array("i")
    for paper in _read_papers(files, field, "ids"):
        if paper.id in rows:
            raise InputError(f"source: the paper {quoted(paper.id)} appears twice in {_names(files)}")
        rows[paper.id] = None
        fields.append(numbers.setdefault(paper.fields, len(numbers)))
    if len(rows) < 2:
        raise InputError(f"source: {_names(files)}: {len(rows)} papers with a title; needs two or more")
    if field and not any(numbers):
        raise InputError(
            f"field={field}: no paper of {_names(files)} has it; leave it out or name another key"
        )
    return CitingPapers(list(rows), fields)


def _names(files: Sequence[Path]) -> str:
    return str(files[0]) if len(files) == 1 else f"{files[0]} and {len(files) - 1} more files"


class _Record(msgspec.Struct):
    paper_id: PaperId
    title: str | None = None
    abstract: str | None = None
    year: Year = Year(0)


def _read_papers(files: Sequence[Path], field: str, what: str) -> Iterator[PaperRecord]:
    """Yield the papers with a title, and at most one field. Raises InputError with file, record and field."""
    for path in files:
        with read_progress(path, f"{path.name} ({what})") as on_bytes:
            for where, record in read_paper_objects(path, on_bytes):
                paper = validate(record, _Record, where)
                if not (title := " ".join((paper.title or "").split())):
                    continue
                names = validate(record.get(field), _FIELDS, where, field)
                first = tuple(filter(None, names[:1] if isinstance(names, list) else [names]))
                yield PaperRecord(paper.paper_id, title, paper.abstract or "", paper.year, first)


main = command("data cloze", ClozeSettings, write_cloze_corpus)
