"""A generated corpus in which equal words do not give the answer away.

The process, with the numbers of the default size (2,000 papers, 8,000 contexts):

1. World. Ten fields; a field has 96 possible tasks (object x action), 24 methods (adjective x head), 15
   kinds of data (source x collection); 20 properties belong to all fields. All these are concepts. A
   concept has a formal name, another name made of other words and, if it is no property, an abbreviation.
   Names are composed: `sparse` and `encoder` are `thinned out` and `embedder` in the other name of every
   method that has them.
2. Topics. A field has five; a topic prefers 5 tasks, 8 methods, 5 kinds of data and 6 properties of its
   field.
3. Papers. A paper has a topic, a year out of 20, a coined name of its system, one task, two methods, one
   kind of data and two properties: from its topic with probability 0.8, else from its field. It keeps to
   one name for each of them, in nine of ten cases the formal one.
4. Citations. The latest quarter of the papers cites earlier ones, 16 times each: of its own topic (0.6),
   its field (0.25) or any (0.15), in proportion to a popularity with a long tail and to 0.5 ** (age / 2
   years).
5. Contexts. A sentence with the target marker names one to three concepts of the cited paper: by the formal
   name (0.3), the other one (0.55) or the abbreviation (0.15). One or two sentences before or after it are
   about the citing paper or a third one.
6. Splits. By citing paper, 8 : 1 : 1; validation and test are the latest. So 3 of 10 papers cited in test
   are not cited in train.

A ranker of equal words finds what the formal names leave it (BM25: recall@10 0.23), one that knew the
names of each concept would reach 0.9. The links between names occur with many papers: they can be learnt
from the training contexts and hold for papers that no training context cites.
"""

from __future__ import annotations

import json
import logging
import os
import random
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets.demo_text import ABSTRACT, AROUND, CITING, TITLES, Concept, Weights, fill, sentence
from datasets.demo_words import SYLLABLES
from datasets.demo_world import Topic, make_topics
from datasets.errors import InputError
from datasets.prepare import open_corpus
from datasets.schema import TARGET_MARKER
from datasets.store import Corpus

log = logging.getLogger(__name__)

VERSION = 2
"""Part of the folder's name: raise it when the process changes."""

IN_PAPERS: Weights = (0.9, 0.1, 0.0)
IN_CONTEXTS: Weights = (0.3, 0.55, 0.15)
FROM_TOPIC = 0.8
ONE_IN_CITES = 4
YEARS = 20
HALF_LIFE = 2.0
"""Years in which the chance to be cited falls to a half."""
SMALLEST = 100
"""Papers that a demo corpus has at least."""


@dataclass
class Paper:
    """A paper before it is written out: `concepts` and plain `words` by slot."""

    id: str
    topic: Topic
    year: int
    concepts: dict[str, Concept]
    words: dict[str, str]
    popularity: float
    title: str
    abstract: str


def open_demo(
    papers: int = 2000,
    contexts: int = 8000,
    seed: int = 0,
    tokenizer: str = "default",
    cache_dir: str | Path = ".cache",
) -> Corpus:
    """Generate the demo corpus of a seed (once; a few seconds) and open it.

    Raises InputError if it is too small to have three splits.
    """
    name = f"papers{papers}-contexts{contexts}-seed{seed}-v{VERSION}"
    folder = Path(cache_dir).expanduser() / "demo" / name
    if not folder.is_dir():
        write_demo(folder, papers, contexts, seed)
    return open_corpus(folder, tokenizer=tokenizer, cache_dir=cache_dir, name="demo", field="field")


def write_demo(folder: Path, papers: int, contexts: int, seed: int) -> None:
    """Write the source files of a demo corpus into a new folder, all or none."""
    if papers < SMALLEST or contexts < papers // ONE_IN_CITES:
        least = f"{SMALLEST} papers and a context for {ONE_IN_CITES} papers"
        raise InputError(
            f"data.papers={papers} data.contexts={contexts}: the demo corpus needs at least {least}"
        )
    building = folder.with_name(f"{folder.name}.part{os.getpid()}")
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir(parents=True)
    try:
        for stem, content in generate(papers, contexts, seed).items():
            (building / f"{stem}.json").write_text(json.dumps(content, indent=0), "utf-8")
        try:
            building.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process was faster, with the same content
                raise
    finally:
        shutil.rmtree(building, ignore_errors=True)
    log.info("demo corpus generated in %s", folder)


def generate(papers: int, contexts: int, seed: int) -> dict[str, Any]:
    """Content of the source files by stem; the same for the same arguments."""
    rng = random.Random(seed)
    pool = _make_papers(papers, make_topics(rng), rng)
    citing = pool[-(papers // ONE_IN_CITES) :]
    share = [contexts // len(citing) + (i < contexts % len(citing)) for i in range(len(citing))]
    files: dict[str, Any] = {"papers": {paper.id: _paper_record(paper) for paper in pool}, "contexts": {}}
    tenth = max(1, len(citing) // 10)
    split_of = ["train"] * (len(citing) - 2 * tenth) + ["val"] * tenth + ["test"] * tenth
    files |= {"train": [], "val": [], "test": []}
    first = len(pool) - len(citing)
    for i, paper in enumerate(citing):
        for number, cited in enumerate(_draw_cited(paper, pool[: first + i], share[i], rng)):
            context = f"{paper.id}_{cited.id}_{number}"
            text = _context_text(paper, cited, rng.choice(pool[:first]), rng)
            record = {"masked_text": text, "context_id": context, "citing_id": paper.id, "refid": cited.id}
            files["contexts"][context] = record
            files[split_of[i]].append({"context_id": context, "positive_ids": [cited.id]})
    return files


def _make_papers(count: int, topics: Sequence[Topic], rng: random.Random) -> list[Paper]:
    """Papers in the order of their years."""
    made = []
    for i in range(count):
        topic = rng.choice(topics)
        methods, properties = topic.draw("M", 2, FROM_TOPIC, rng), topic.draw("P", 2, FROM_TOPIC, rng)
        concepts = {"M": methods[0], "N": methods[1], "P": properties[0], "Q": properties[1]}
        concepts |= {slot: topic.draw(slot, 1, FROM_TOPIC, rng)[0] for slot in "TD"}
        words = {"S": "".join(rng.choices(SYLLABLES, k=3)).capitalize(), "F": topic.field}
        # An author keeps to one name of a thing.
        names = words | {slot: concept.mention(rng, IN_PAPERS) for slot, concept in concepts.items()}
        title = fill(rng.choice(TITLES), names, rng)
        texts = [sentence(fill(rng.choice(part), names, rng)) for part in ABSTRACT]
        year = 2005 + YEARS * i // count
        popularity = min(rng.paretovariate(1.2), 50.0)
        title = title[0].upper() + title[1:]
        made.append(Paper(f"demo{i:05d}", topic, year, concepts, words, popularity, title, " ".join(texts)))
    return made


def _paper_record(paper: Paper) -> dict[str, Any]:
    return {
        "title": paper.title,
        "abstract": paper.abstract,
        "year": paper.year,
        "field": paper.topic.field,
    }


def _draw_cited(citing: Paper, earlier: Sequence[Paper], count: int, rng: random.Random) -> list[Paper]:
    """The cited paper of each context; a paper is seldom drawn again."""
    nearby = (
        [paper for paper in earlier if paper.topic is citing.topic],
        [paper for paper in earlier if paper.topic.field == citing.topic.field],
        earlier,
    )
    weights = [
        [p.popularity * 0.5 ** ((citing.year - p.year) / HALF_LIFE) for p in papers] for papers in nearby
    ]
    drawn: dict[str, int] = {}
    cited = []
    for _ in range(count):
        level = rng.choices(range(3), (0.6, 0.25, 0.15))[0]
        if not nearby[level]:
            level = 2
        paper = rng.choices(nearby[level], weights[level])[0]
        if drawn.get(paper.id, 0):
            paper = rng.choices(nearby[level], weights[level])[0]
        drawn[paper.id] = drawn.get(paper.id, 0) + 1
        cited.append(paper)
    return cited


def _context_text(citing: Paper, cited: Paper, third: Paper, rng: random.Random) -> str:
    marker = f"({TARGET_MARKER})" if rng.random() < 0.7 else TARGET_MARKER
    texts = [fill(rng.choice(CITING), _names_in_context(cited, rng) | {"C": marker}, rng)]
    for _ in range(rng.randint(1, 2)):
        about = citing if rng.random() < 0.6 else third
        around = fill(rng.choice(AROUND), _names_in_context(about, rng), rng)
        texts.insert(rng.choice((0, len(texts))), around)
    return " ".join(sentence(text) for text in texts)


def _names_in_context(paper: Paper, rng: random.Random) -> dict[str, str]:
    return paper.words | {slot: concept.mention(rng, IN_CONTEXTS) for slot, concept in paper.concepts.items()}
