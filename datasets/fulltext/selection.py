"""Which citations of a full text become contexts."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from datasets.errors import InputError
from datasets.fulltext.catalogue import AUTHORS, Catalogue
from datasets.fulltext.masking import citations
from datasets.fulltext.names import surname
from datasets.fulltext.resolving import resolve
from datasets.fulltext.schema import FullText, Reference
from datasets.fulltext.windows import cut, leak
from datasets.schema import OTHER_MARKER, TARGET_MARKER

WORDS = ("cut", "whole")


@dataclass(frozen=True)
class Rules:
    """Which contexts are cut and kept; see build_corpus."""

    window: int
    words: str
    shortest: int
    per_pair: int | None
    seed: int

    def __post_init__(self) -> None:
        least = {"window": 1, "shortest": 0, "per_pair": 1, "seed": 0}
        for name, smallest in least.items():
            value = getattr(self, name)
            if value is None and name == "per_pair":
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < smallest:
                raise InputError(f"{name}: must be a whole number of {smallest} or more, not {value!r}")
        if self.words not in WORDS:
            raise InputError(f"words: {self.words!r} is not one of {', '.join(WORDS)}")
        if self.shortest > 2 * self.window:
            raise InputError(f"shortest: {self.shortest} is more than two windows of {self.window} hold")


def select(
    full_text: FullText, citing: int, catalogue: Catalogue, rules: Rules, counts: Mapping[str, Counter[str]]
) -> Iterator[tuple[int, int, str]]:
    """(row of the cited paper, number among the contexts of the pair, masked text), pair by pair.

    citing: row of the paper. counts: those of the report.
    """
    rows: dict[str, int | None] = {}
    pairs: dict[int, list[str]] = {}
    texts: set[str] = set()
    outcomes = counts["contexts"]
    for citation in citations(full_text, rules.window + len(OTHER_MARKER), counts["spans"]):
        outcomes["citations"] += 1
        reference = full_text.references[citation.ref]
        if citation.ref not in rows:
            rows[citation.ref], how = resolve(reference, catalogue)
            counts["references"][how] += 1
        cited = rows[citation.ref]
        if cited is None:
            outcomes["the cited paper was not found"] += 1
        elif cited == citing:
            outcomes["the paper cites itself"] += 1
        else:
            text = cut(citation.left, citation.right, rules.window, rules.words)
            bare = text.replace(TARGET_MARKER, "").replace(OTHER_MARKER, "").strip()
            if len(bare) < max(1, rules.shortest):
                outcomes["too short"] += 1
            elif reason := leak(text, _surnames(reference, cited, catalogue)):
                outcomes[reason] += 1
            elif text in texts:
                outcomes["the same text as another context of the paper"] += 1
            else:
                texts.add(text)
                pairs.setdefault(cited, []).append(text)
    for cited, contexts in pairs.items():
        kept = list(range(len(contexts)))
        if rules.per_pair is not None and len(contexts) > rules.per_pair:
            outcomes["more than per_pair of one pair"] += len(contexts) - rules.per_pair
            # By the pair alone, whatever else is read.
            draw = random.Random(f"{rules.seed} {catalogue.ids[citing]} {catalogue.ids[cited]}")
            kept = sorted(draw.sample(kept, rules.per_pair))
        for number in kept:
            yield cited, number, contexts[number]


def _surnames(reference: Reference, cited: int, catalogue: Catalogue) -> list[str]:
    """Of the first authors, as the reference and the paper have them."""
    return catalogue.surnames(cited) + [surname(author) for author in reference.authors[:AUTHORS]]
