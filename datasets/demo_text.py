"""Sentences of the demo corpus: templates, and how a concept is named in them.

Slots: T task, M and N methods, D data, P and Q properties, S name of the system, F field, C citation marker,
n a number.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass

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
