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

Sentences of the demo corpus: templates, and how a concept is named in them.
The concepts of the demo corpus, and the topics that prefer some of them.
"""

from __future__ import annotations

import json
import logging
import os
import random
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets.corpus import Corpus
from datasets.demo_words import ACTIONS, ADJECTIVES, COLLECTIONS, FIELDS, HEADS, PROPERTIES, SYLLABLES, Pair
from datasets.errors import InputError
from datasets.prepare import open_corpus
from datasets.records import TARGET_MARKER

Weights = tuple[float, float, float]
"""How often a concept is named by its formal name, its other name, its abbreviation."""


@dataclass(frozen=True)
class Concept:
    """Something that papers are about. `forms`: formal name, other name and, for some, an abbreviation."""

    forms: tuple[str, ...]

    def mention(self, rng: random.Random, weights: Weights) -> str:
        """One of the forms, drawn with the weights (formal, other, short)."""
        return rng.choices(self.forms, weights[: len(self.forms)])[0]


TITLES = """
{M} for {T} under {P}
{T} with a {M}
{M} and {N} for {T}
towards {P} in {T}
learning {T} from {D}
{S}: a {M} for {T}
{S}: {T} under {P}
{S}: {M} meets {N}
on {P} in {T}: a {M} approach
a study of {M} for {T} on {D}
""".strip().splitlines()

OPENINGS = """
{T} is a central problem of {F} research, yet {P} is seldom considered
progress in {T} has long been held back by {P}
many applications need {T} that copes with {P}
we revisit {T} in the light of {P}
existing work on {T} pays little attention to {P}
{P} is the main obstacle to {T} in practice
""".strip().splitlines()

METHODS = """
we propose a {M} that works together with a {N}
this paper introduces {S}, a {M} combined with a {N}
our approach couples a {M} to a {N} and is trained jointly
the key idea is to let a {N} guide a {M}
we build on a {M} and show how a {N} makes it practical
we derive a new objective for a {M} and solve it by a {N}
""".strip().splitlines()

RESULTS = """
experiments on {D} show gains of {n} points over strong baselines
on {D} the {M} reduces the error by {n} percent
we evaluate {T} on {D} and report consistent improvements
results on {D} show that the {N} accounts for most of the gain
on {D} the results hold across {n} settings
compared with earlier systems on {D}, {S} is {n} times faster at equal accuracy
""".strip().splitlines()

FURTHER = """
we also examine {Q} and explain why it matters
the same design helps with {Q}
{Q} is treated as a further goal
an extension to {Q} is described
we release code and models for {T}
a {M} is known to be hard to train, and we analyse why
the choice of the {N} turns out to be important
""".strip().splitlines()

FILLERS = """
the analysis covers both theory and practice
the procedure is simple and needs no extra supervision
we discuss limitations and directions for further work
all hyperparameters were selected on held out material
a user study with {n} participants supports the findings
the proof relies on standard assumptions
our findings question common beliefs in {F} research
the gains are largest when resources are small
""".strip().splitlines()

ABSTRACT = (OPENINGS, METHODS, RESULTS, FURTHER, FURTHER, FILLERS)
"""An abstract has a sentence of each; every concept but the second property is sure to be in it."""

CITING = """
{M} was first applied to {T} in {C}
the closest work to ours uses {M} for {T} {C}
for {T}, {C} rely on {M} and report results on {D}
following {C}, we address {P} in {T}
as in {C}, a {M} is used together with {N}
we compare with the {M} of {C}, which was designed for {P}
{P} in {T} has been studied before {C}
a strong baseline for {T} on {D} is the {M} {C}
{D} was used to study {T} with {M} {C}
our evaluation on {D} follows the protocol for {T} {C}
others {C} handle {P} by means of {M}
it was shown {C} that {N} helps {T}
in contrast to {C}, we do not need {M} to reach {P}
recent systems for {T} are built on {M} and {N} {C}
the idea to combine {M} with {N} goes back to {C}
we use the implementation of {C} for {T}
see {C} for a discussion of {M}
{S} {C} is a common choice for {T}
""".strip().splitlines()

AROUND = """
in this section we review earlier work on {T}
many other solutions exist for {T} OTHERCIT
another line of research looks at {P} OTHERCIT
{M} has also been explored in this setting OTHERCIT
our own system differs in that it uses {M}
we return to this point in section {n}
these methods were compared on {D} OTHERCIT
the remaining details are given in the appendix
this choice had little effect in our experiments
it is not clear whether this holds for {T}
a full survey is beyond the scope of this paper OTHERCIT
we found it to be stable over {n} runs
""".strip().splitlines()


def fill(template: str, words: Mapping[str, str], rng: random.Random) -> str:
    """A template with its slots filled: by `words`, n by a number; with the fitting article.

    >>> fill("a {M} in section {n}", {"M": "encoder"}, random.Random(0))
    'an encoder in section 26'
    """
    text = re.sub(r"\{(\w)\}", lambda slot: words.get(slot[1]) or str(rng.randint(2, 40)), template)
    return re.sub(r"\b([Aa]) (?=[aeiouAEIOU])", r"\1n ", text)


def sentence(text: str) -> str:
    """Capital first letter and a full stop."""
    return text[0].upper() + text[1:] + "."


TOPICS_OF_FIELD = 5
METHODS_OF_FIELD = 24
PREFERRED = {"T": 5, "M": 8, "D": 5, "P": 6}


@dataclass
class Topic:
    """Concepts that a group of papers prefers, and all of its field, by slot: T, M, D, P of `demo_text`."""

    field: str
    preferred: dict[str, list[Concept]]
    possible: dict[str, list[Concept]]

    def draw(self, slot: str, count: int, preferred: float, rng: random.Random) -> list[Concept]:
        """Different concepts; each is a preferred one with the given probability."""
        drawn: list[Concept] = []
        while len(drawn) < count:
            concept = rng.choice((self.preferred if rng.random() < preferred else self.possible)[slot])
            if concept not in drawn:
                drawn.append(concept)
        return drawn


def make_topics(rng: random.Random) -> list[Topic]:
    """The topics of all fields."""
    taken: set[str] = set()
    methods = [(adjective, head) for adjective in ADJECTIVES for head in HEADS]
    chosen = rng.sample(methods, METHODS_OF_FIELD * len(FIELDS))
    properties = [Concept((formal, other)) for formal, other in PROPERTIES]
    topics = []
    for i, (field, (objects, sources)) in enumerate(FIELDS.items()):
        own = chosen[i * METHODS_OF_FIELD : (i + 1) * METHODS_OF_FIELD]
        possible = {
            "T": [_compose(thing, action, taken) for thing in objects for action in ACTIONS],
            "M": [_compose(adjective, head, taken) for adjective, head in own],
            "D": [_compose(source, collection, taken) for source in sources for collection in COLLECTIONS],
            "P": properties,
        }
        for _ in range(TOPICS_OF_FIELD):
            preferred = {slot: rng.sample(possible[slot], count) for slot, count in PREFERRED.items()}
            topics.append(Topic(field, preferred, possible))
    return topics


def _compose(first: Pair, second: Pair, taken: set[str]) -> Concept:
    formal, other = (f"{first[i]} {second[i]}" for i in (0, 1))
    return Concept((formal, other, _abbreviation(formal.split(), taken)))


def _abbreviation(words: Sequence[str], taken: set[str]) -> str:
    """The first letters of the words, as many as make it a new one: `sparse encoder` -> SpEn."""
    for length in range(2, 9):
        short = "".join(word[:length].capitalize() for word in words)
        if short not in taken:
            break
    taken.add(short)
    return short


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
