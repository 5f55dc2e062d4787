"""A few contexts to read, with the papers that cite and are cited."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

from datasets.schema import TARGET_MARKER
from datasets.store import Corpus

SENTENCES = 2
"""Of an abstract that are shown, and"""
CHARACTERS = 400
"""so much of them."""

_SENTENCE_ENDS = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9(\"'])")


@dataclass(frozen=True)
class ShownPaper:
    """A paper for people; year 0 is unknown, `start` are the first sentences of its abstract."""

    id: str
    title: str
    year: int
    start: str

    @property
    def name(self) -> str:
        """Title and year."""
        return f"{self.title.strip() or 'no title'}{f' ({self.year})' if self.year else ''}"


@dataclass(frozen=True)
class Example:
    """A context, parted at its mark, and its papers."""

    split: str
    context: str
    before: str
    after: str
    citing: ShownPaper
    targets: Sequence[ShownPaper]


def draw_examples(corpus: Corpus, count: int, seed: int) -> list[Example]:
    """So many contexts, from the splits by turns, the same for a seed; all there are if they are fewer."""
    draws = {
        name: random.Random(f"{seed} {name}").sample(range(len(split)), min(count, len(split)))
        for name, split in corpus.splits.items()
    }
    turns = [(name, draw[turn]) for turn in range(count) for name, draw in draws.items() if turn < len(draw)]
    order = list(corpus.splits)
    chosen = sorted(turns[:count], key=lambda turn: order.index(turn[0]))
    return [_example(corpus, name, query) for name, query in chosen]


def first_sentences(text: str) -> str:
    """The first sentences of a text, cut at a word where they are long.

    >>> first_sentences("We parse. It is 3.5 times faster. Nobody knows why.")
    'We parse. It is 3.5 times faster. …'
    """
    text = " ".join(text.split())
    start = " ".join(_SENTENCE_ENDS.split(text)[:SENTENCES])
    if len(start) > CHARACTERS:
        start = start[:CHARACTERS].rpartition(" ")[0] or start[:CHARACTERS]
    return start if start == text else f"{start} …"


def _example(corpus: Corpus, name: str, query: int) -> Example:
    split = corpus.splits[name]
    row = int(split.contexts[query])
    before, _, after = corpus.context_texts[row].partition(TARGET_MARKER)
    targets = [_shown(corpus, target) for target in split.positives[query].tolist()]
    citing = _shown(corpus, int(corpus.citing[row]))
    return Example(name, corpus.context_ids[row], before, after, citing, targets)


def _shown(corpus: Corpus, row: int) -> ShownPaper:
    start = first_sentences(corpus.abstracts[row])
    return ShownPaper(corpus.paper_ids[row], corpus.titles[row], int(corpus.years[row]), start)
