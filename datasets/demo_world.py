"""The concepts of the demo corpus, and the topics that prefer some of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from datasets.demo_text import Concept
from datasets.demo_words import ACTIONS, ADJECTIVES, COLLECTIONS, FIELDS, HEADS, PROPERTIES, Pair

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
