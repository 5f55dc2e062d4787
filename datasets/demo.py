"""Generate a demo corpus that word overlap alone cannot solve.

The process, with the numbers of the default size (2,000 papers, 8,000 contexts):

1. Concepts. Each of ten fields has 96 possible tasks (object x action), 24 methods (adjective x head) and 15
   kinds of data (source x collection); all fields share 20 properties. Each concept has a formal name, a
   synonym with no words in common and, except for properties, an abbreviation. Names are composed: in the
   synonym of every method, `sparse` becomes `thinned out` and `encoder` becomes `embedder`.
2. Topics. Each field has five topics; each topic prefers 5 tasks, 8 methods, 5 kinds of data and 6
   properties of its field.
3. Papers. Each paper has a topic, one of 20 years, an invented system name, one task, two methods, one kind
   of data and two properties: from its topic with probability 0.8, else from its field. It uses one name per
   concept, the formal one in nine of ten cases.
4. Citations. The latest quarter of the papers cites earlier papers, 16 times each: of its own topic (0.6),
   its field (0.25) or any field (0.15), in proportion to a long-tailed popularity and 0.5 ** (age / 2 years).
5. Contexts. The sentence with the target marker names one to three concepts of the cited paper: by formal
   name (0.3), synonym (0.55) or abbreviation (0.15). One or two sentences before or after it are about the
   citing paper or an unrelated one.
6. Splits. By citing paper, 8 : 1 : 1; validation and test papers are the latest. 3 of 10 papers cited in test
   are not cited in train.

Lexical matching can only use the formal names (BM25: recall@10 0.23); a ranker that knew all names of each
concept would reach 0.9. The same name pairs recur in many papers, so they can be learnt from the training
contexts and generalise to papers that no training context cites.
"""

from __future__ import annotations

import json
import logging
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from citerec.datasets.corpus import Corpus
from citerec.datasets.errors import InputError
from citerec.datasets.files import atomic_folder, file_lock
from citerec.datasets.prepare import open_corpus
from citerec.datasets.records import TARGET_MARKER

log = logging.getLogger(__name__)

VERSION = 2
"""Part of the folder name: increment it when the process changes."""
TOPICS_PER_FIELD = 5
METHODS_PER_FIELD = 24
PREFERRED = {"T": 5, "M": 8, "D": 5, "P": 6}
"""Number of concepts that a topic prefers: tasks, methods, data, properties."""
FROM_TOPIC = 0.8
CITING_SHARE = 4
"""One in this many papers cites others."""
YEARS = 20
HALF_LIFE = 2.0
"""Years after which the probability of being cited halves."""
MIN_PAPERS = 100

Pair = tuple[str, str]
Weights = tuple[float, float, float]
"""Probabilities of a concept's formal name, synonym and abbreviation."""
IN_PAPERS: Weights = (0.9, 0.1, 0.0)
IN_CONTEXTS: Weights = (0.3, 0.55, 0.15)


@cache
def demo_texts() -> dict[str, Any]:
    """The words and templates of datasets/demo.yaml."""
    return dict(yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8")))


def parse_pairs(text: str) -> list[Pair]:
    """Parse comma-separated pairs of a formal name and a synonym.

    >>> parse_pairs("image|picture, pose|posture")
    [('image', 'picture'), ('pose', 'posture')]
    """
    pairs = (part.split("|") for part in text.split(", "))
    return [(formal, synonym) for formal, synonym in pairs]


@dataclass(frozen=True)
class Concept:
    """Something papers are about. `forms`: formal name, synonym and optionally an abbreviation."""

    forms: tuple[str, ...]

    def mention(self, rng: random.Random, weights: Weights) -> str:
        return rng.choices(self.forms, weights[: len(self.forms)])[0]


@dataclass
class Topic:
    """The concepts that a topic prefers, and all those of its field, by template slot: T, M, D, P."""

    field: str
    preferred: dict[str, list[Concept]]
    possible: dict[str, list[Concept]]

    def draw(self, slot: str, count: int, rng: random.Random) -> list[Concept]:
        """Draw `count` distinct concepts."""
        drawn: list[Concept] = []
        while len(drawn) < count:
            concept = rng.choice((self.preferred if rng.random() < FROM_TOPIC else self.possible)[slot])
            if concept not in drawn:
                drawn.append(concept)
        return drawn


@dataclass(eq=False)
class DemoPaper:
    """A paper with the `concepts` and plain `words` that fill its template slots."""

    id: str
    topic: Topic
    year: int
    concepts: dict[str, Concept]
    words: dict[str, str]
    popularity: float
    title: str
    abstract: str

    def names(self, rng: random.Random, weights: Weights) -> dict[str, str]:
        """Draw the words that fill the slots of a template."""
        return self.words | {slot: concept.mention(rng, weights) for slot, concept in self.concepts.items()}


def open_demo(
    papers: int = 2000,
    contexts: int = 8000,
    seed: int = 0,
    tokenizer: str = "default",
    cache_dir: str | Path = ".cache",
) -> Corpus:
    """Open the demo corpus; generate it on first use, which needs a few seconds.

    Raises InputError if the corpus is too small for three splits.
    """
    name = f"papers{papers}-contexts{contexts}-seed{seed}-v{VERSION}"
    folder = Path(cache_dir).expanduser() / "demo" / name
    if not folder.is_dir():
        write_demo(folder, papers, contexts, seed)
    return open_corpus(folder, tokenizer=tokenizer, cache_dir=cache_dir, name="demo", field="field")


def write_demo(folder: Path, papers: int, contexts: int, seed: int) -> None:
    """Write the source files of a demo corpus to a new folder, atomically."""
    if papers < MIN_PAPERS or contexts < papers // CITING_SHARE:
        raise InputError(
            f"data.papers={papers} data.contexts={contexts}: the demo corpus needs at least {MIN_PAPERS} "
            f"papers and one context per {CITING_SHARE} papers"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with file_lock(folder.with_name(f".{folder.name}.lock"), "generates the same corpus"):
        if folder.is_dir():
            return
        with atomic_folder(folder) as part:
            for stem, content in generate(papers, contexts, seed).items():
                (part / f"{stem}.json").write_text(json.dumps(content, indent=0), "utf-8")
    log.info("demo corpus generated in %s", folder)


def generate(papers: int, contexts: int, seed: int) -> dict[str, Any]:
    """Return the content of the source files by stem; deterministic in its arguments."""
    rng = random.Random(seed)
    pool = _make_papers(papers, make_topics(rng), rng)
    first = papers - papers // CITING_SHARE
    citing = pool[first:]
    tenth = max(1, len(citing) // 10)
    split_of = ["train"] * (len(citing) - 2 * tenth) + ["val"] * tenth + ["test"] * tenth
    records = {
        paper.id: {
            "title": paper.title,
            "abstract": paper.abstract,
            "year": paper.year,
            "field": paper.topic.field,
        }
        for paper in pool
    }
    files: dict[str, Any] = {"papers": records, "contexts": {}, "train": [], "val": [], "test": []}
    for i, paper in enumerate(citing):
        count = contexts // len(citing) + (i < contexts % len(citing))
        for number, cited in enumerate(_draw_cited(paper, pool[: first + i], count, rng)):
            context = f"{paper.id}_{cited.id}_{number}"
            text = _context_text(paper, cited, rng.choice(pool[:first]), rng)
            record = {"masked_text": text, "context_id": context, "citing_id": paper.id, "refid": cited.id}
            files["contexts"][context] = record
            files[split_of[i]].append({"context_id": context, "positive_ids": [cited.id]})
    return files


def make_topics(rng: random.Random) -> list[Topic]:
    """Create the topics of all fields."""
    words, used = demo_texts(), set[str]()
    adjectives, heads = parse_pairs(words["adjectives"]), parse_pairs(words["heads"])
    actions, collections = parse_pairs(words["actions"]), parse_pairs(words["collections"])
    methods = [(adjective, head) for adjective in adjectives for head in heads]
    chosen = iter(rng.sample(methods, METHODS_PER_FIELD * len(words["fields"])))
    properties = [Concept(names) for names in parse_pairs(words["properties"])]
    topics = []
    for field, things in words["fields"].items():
        tasks = [(thing, action) for thing in parse_pairs(things["objects"]) for action in actions]
        data = [
            (source, collection) for source in parse_pairs(things["sources"]) for collection in collections
        ]
        composed = {"T": tasks, "M": [next(chosen) for _ in range(METHODS_PER_FIELD)], "D": data}
        possible = {slot: [_make_concept(*pair, used) for pair in pairs] for slot, pairs in composed.items()}
        possible["P"] = properties
        for _ in range(TOPICS_PER_FIELD):
            preferred = {slot: rng.sample(possible[slot], count) for slot, count in PREFERRED.items()}
            topics.append(Topic(field, preferred, possible))
    return topics


def _make_concept(first: Pair, second: Pair, used: set[str]) -> Concept:
    """Compose a concept; its abbreviation has the shortest unused prefixes: `sparse encoder` -> SpEn."""
    formal, synonym = (f"{first[i]} {second[i]}" for i in (0, 1))
    shorts = ("".join(word[:length].capitalize() for word in formal.split()) for length in range(2, 9))
    short = next(short for short in shorts if short not in used)
    used.add(short)
    return Concept((formal, synonym, short))


def _make_papers(count: int, topics: Sequence[Topic], rng: random.Random) -> list[DemoPaper]:
    """Create papers in chronological order."""
    templates = {key: text.splitlines() for key, text in demo_texts().items() if isinstance(text, str)}
    # One sentence per kind; together they mention every concept except the second property.
    abstract = ("openings", "methods", "results", "further", "further", "fillers")
    syllables = demo_texts()["syllables"].split()
    papers = []
    for i in range(count):
        topic = rng.choice(topics)
        methods, properties = topic.draw("M", 2, rng), topic.draw("P", 2, rng)
        concepts = {"M": methods[0], "N": methods[1], "P": properties[0], "Q": properties[1]}
        concepts |= {slot: topic.draw(slot, 1, rng)[0] for slot in "TD"}
        words = {"S": "".join(rng.choices(syllables, k=3)).capitalize(), "F": topic.field}
        paper = DemoPaper(f"demo{i:05d}", topic, 2005 + YEARS * i // count, concepts, words, 0.0, "", "")
        names = paper.names(rng, IN_PAPERS)  # one name per concept in the whole paper
        title = fill_template(rng.choice(templates["titles"]), names, rng)
        paper.title = title[0].upper() + title[1:]
        sentences = [to_sentence(fill_template(rng.choice(templates[part]), names, rng)) for part in abstract]
        paper.abstract = " ".join(sentences)
        paper.popularity = min(rng.paretovariate(1.2), 50.0)
        papers.append(paper)
    return papers


def _draw_cited(
    citing: DemoPaper, earlier: Sequence[DemoPaper], count: int, rng: random.Random
) -> list[DemoPaper]:
    """Draw the cited paper of each context; repeats are redrawn once and so are rare."""
    pools = (
        [paper for paper in earlier if paper.topic is citing.topic],
        [paper for paper in earlier if paper.topic.field == citing.topic.field],
        earlier,
    )
    weights = [[p.popularity * 0.5 ** ((citing.year - p.year) / HALF_LIFE) for p in pool] for pool in pools]
    cited: list[DemoPaper] = []
    for _ in range(count):
        level = rng.choices(range(3), (0.6, 0.25, 0.15))[0]
        if not pools[level]:
            level = 2
        paper = rng.choices(pools[level], weights[level])[0]
        if paper in cited:
            paper = rng.choices(pools[level], weights[level])[0]
        cited.append(paper)
    return cited


def _context_text(citing: DemoPaper, cited: DemoPaper, third: DemoPaper, rng: random.Random) -> str:
    marker = f"({TARGET_MARKER})" if rng.random() < 0.7 else TARGET_MARKER
    template = rng.choice(demo_texts()["citing"].splitlines())
    sentences = [fill_template(template, cited.names(rng, IN_CONTEXTS) | {"C": marker}, rng)]
    for _ in range(rng.randint(1, 2)):
        about = citing if rng.random() < 0.6 else third
        template = rng.choice(demo_texts()["around"].splitlines())
        around = fill_template(template, about.names(rng, IN_CONTEXTS), rng)
        sentences.insert(rng.choice((0, len(sentences))), around)
    return " ".join(to_sentence(text) for text in sentences)


def fill_template(template: str, words: Mapping[str, str], rng: random.Random) -> str:
    """Fill the slots of a template, {n} with a random number, and correct articles (a, an).

    >>> fill_template("a {M} in section {n}", {"M": "encoder"}, random.Random(0))
    'an encoder in section 26'
    """
    text = re.sub(r"\{(\w)\}", lambda slot: words.get(slot[1]) or str(rng.randint(2, 40)), template)
    return re.sub(r"\b([Aa]) (?=[aeiouAEIOU])", r"\1n ", text)


def to_sentence(text: str) -> str:
    return text[0].upper() + text[1:] + "."
