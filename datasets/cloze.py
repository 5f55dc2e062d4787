"""Make a corpus from abstracts by the inverse cloze task: citerec data cloze source=FILES output=DIR.

A passage of a paper's abstract, with a mark at the end of one of its sentences, is a context that cites this
paper, which is then known by its title and, at most, the rest of its abstract. This trains models on papers
without known citations (Lee et al. 2019, "Latent Retrieval for Weakly Supervised Open Domain Question
Answering", section 4).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Any

import msgspec

from citerec.base.arguments import command
from citerec.base.errors import InputError, quoted
from citerec.base.files import atomic_folder, disk_errors, new_folder
from citerec.base.settings import Settings
from citerec.datasets.building.readers import find_records
from citerec.datasets.files.source_files import read_paper_objects
from citerec.datasets.records import MARKER_WORDS, SPLITS, TARGET_MARKER, TRAIN
from citerec.datasets.splitting import RandomSplitting
from citerec.datasets.tokenize import sentence_starts
from citerec.formats.json_lines import PaperId, Year, validate

SHORTEST = 8
"""Words of the shortest passage."""
CONTEXTS = 2
"""Maximum number of contexts per paper."""
WORDS = 35
"""Words after which a passage ends with its sentence; at the end of the abstract it may be shorter."""
WITHOUT_ABSTRACT = 0.5
"""Share of papers of which only the title is kept, even if passages leave some of the abstract."""
HELD_OUT = 0.005
"""Share of the citing papers in val, and the same in test."""
LINES = (".jsonl", ".jsonl.gz")
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
    seed: int = 0
    """random seed"""


def write_cloze_corpus(settings: ClozeSettings) -> str:
    """Write a corpus (datasets/files/source_files.py) to a new folder; return a summary line.

    Papers without a title are left out. Equal papers and settings give equal files. Raises InputError for
    invalid records, for a field that no paper has, and if there are no contexts.
    """
    folder, papers = new_folder(settings.output), _read_papers(settings.source, settings.field)
    ids, same_field = list(papers), dict[str, list[str]]()
    for id, (_, field) in papers.items():
        same_field.setdefault(field, []).append(id)
    splitting = RandomSplitting(1 - 2 * HELD_OUT, HELD_OUT, HELD_OUT, settings.seed)
    records, contexts = dict[str, Any](), dict[str, Any]()
    queries: dict[str, list[Any]] = {split: [] for split in SPLITS}
    for id, (paper, field) in papers.items():
        rng = Random(f"{settings.seed} {id}")
        passages, rest = cut_passages(paper.abstract or "", CONTEXTS, WORDS, rng)
        for number, text in enumerate(passages):
            key, citing = f"{id}__{number}", id
            while citing == id:
                citing = rng.choice(same_field[field] if len(same_field[field]) > 1 else ids)
            contexts[key] = {"masked_text": text, "context_id": key, "citing_id": citing, "refid": id}
            split = splitting(citing, paper.year) or TRAIN  # None: the shares are rounded
            queries[split].append({"context_id": key, "positive_ids": [id]})
        abstract = "" if rng.random() < WITHOUT_ABSTRACT else rest
        records[id] = {"title": paper.title, "abstract": abstract, "year": int(paper.year) or None}
    if not contexts:
        raise InputError(f"source: none of {len(ids):,} papers has a passage of {SHORTEST} words")
    with disk_errors(folder, "the corpus", "output"), atomic_folder(folder) as unfinished:
        for name, content in {"papers": records, "contexts": contexts, **queries}.items():
            if content:
                (unfinished / f"{name}.json").write_bytes(msgspec.json.encode(content))
    counts = ", ".join(f"{len(settings):,} in {split}" for split, settings in queries.items())
    return f"{folder}: {len(ids):,} papers; contexts: {counts}"


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


class _Record(msgspec.Struct):
    paper_id: PaperId
    title: str | None = None
    abstract: str | None = None
    year: Year = Year(0)


def _read_papers(source: Sequence[str], field: str) -> dict[str, tuple[_Record, str]]:
    """Read the papers with a title, and the first field of each or "", by id.

    Raises InputError for a second paper of an id, and for unusable files and fields.
    """
    papers: dict[str, tuple[_Record, str]] = {}
    for path in find_records(source, (*LINES, "papers.json", "papers.json.gz")):
        for where, record in read_paper_objects(path):
            paper = validate(record, _Record, where)
            paper.title = " ".join((paper.title or "").split())
            names = validate(record.get(field), _FIELDS, where, field) or [""]
            if paper.title and paper.paper_id in papers:
                raise InputError(f"source: the paper {quoted(paper.paper_id)} appears twice in {path}")
            if paper.title:
                papers[str(paper.paper_id)] = paper, names if isinstance(names, str) else names[0]
    if len(papers) < 2:
        raise InputError(f"source: {len(papers)} papers with a title; needs two or more")
    if field and not any(first for _, first in papers.values()):
        raise InputError(f"field={field}: no paper has it; leave it out or name another key")
    return papers


main = command("data cloze", ClozeSettings, write_cloze_corpus)
