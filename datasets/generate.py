"""Generate the demo corpus, data=demo: papers whose words, lengths and citations are like those of real ones.

The vocabulary is unbounded; word frequencies and text lengths follow those of real abstracts. Each paper has
a topic and a theme of a few of the topic's words, which its text and the contexts that cite it use. Contexts
replace most of them by synonyms: matching words finds some of the cited papers, and a model that learns the
synonyms, which all papers of a topic share, finds more.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from citerec.base.errors import InputError
from citerec.base.files import atomic_folder, cache_folder, disk_errors, file_lock, new_folder
from citerec.datasets.corpus import Corpus
from citerec.datasets.prepare import open_corpus
from citerec.datasets.records import OTHER_MARKER, SPLITS, TARGET_MARKER
from citerec.formats.json_lines import json_writer

SHIFT, HEAD = 0.7, 0.95
CORE, TAIL = 2500, 1.9
"""Frequencies fall as (rank + SHIFT) ** -HEAD up to rank CORE, then as rank ** -TAIL."""
CORE_SHARE = 0.86
"""Share of tokens up to rank CORE."""
MAX_RANK = 2.0**40

_COMMON = """
    the of and a to in we is for that on with this by are as an our model which from be can data models
    learning it based at show these two method results or such methods using time paper also have propose
    performance training between state has new not approach problem one large both their its more different
    tasks space first high algorithm information image where when however network non while framework
"""
COMMON = _COMMON.split()
"""The most frequent words; all others are made of syllables."""
_ONSETS = ["b", "d", "f", "k", "l", "m", "n", "p", "r", "s", "t", "v", "gr", "st", "pr", "th"]
SYLLABLES = [onset + vowel for onset in _ONSETS for vowel in "aeio"]
ENDINGS = ["", "s", "n", "ng", "l", "r", "nt", "x"] * 64
ENDINGS[100] = "\u00e9s"
ENDINGS[200:203] = [r"^{\ast}", r"^{\prime}", r"_{\min}"]
"""Word endings: one in 512 is not ASCII, three have a backslash."""
TWO_SYLLABLES = 3000
"""Offset added to ranks so that only the first thousand words have two syllables."""
CAPITALISED = 1 << 17
"""Rarer words are written in lower case at the start of a sentence, too."""
SEPARATORS = [" ", ", ", ". ", "-", " (", ") ", "."]
SEPARATOR_SHARES = [0.875, 0.043, 0.043, 0.025, 0.007, 0.007]
"""Frequencies of the separators after a word, measured on real abstracts."""
FULL_STOP = 2

BLOCK = 4096
"""Papers or contexts per random number generator; changing it changes the corpus."""
TITLE_WORDS, ABSTRACT_WORDS = (9.2, 3.6), (120.0, 59.0)
"""Mean and standard deviation of a gamma distribution."""
SIDE_WORDS = (28.0, 2.5)
"""Words per side of a context: mean and standard deviation of a normal distribution."""
CUT_SIDES = 0.12
"""Share of sides truncated by the end of a section, to a uniform length."""
OTHER_CITATIONS = 0.04
"""Share of a context's words that are the marker of another citation."""
CONTEXTS_PER_PAPER = 20
"""Contexts per citing paper; 35 in NeurIPS 2025, 4 in the ACL data."""
CITED_SHIFT, CITED_POWER = 5.0, 0.75
"""A paper is cited in proportion to (its rank + CITED_SHIFT) ** -CITED_POWER."""
PROPORTIONS = (8, 1, 1)
"""Proportions of train, val and test; the split is by citing paper, in chronological order."""
VERSION = 3
"""Part of the demo's folder: increment it when the process changes."""
FIRST_YEAR, YEARS = 1991, 29
FIELDS = ["cs", "math", "cond-mat", "astro-ph", "physics", "hep-ph", "quant-ph", "hep-th", "stat", "gr-qc"]
TOPIC_PAPERS, TOPIC_WORDS = 40, 32
"""Mean number of papers of a topic, and of its words, all rarer than THEME_RANK; each has a synonym."""
OWN_TOPIC = 0.25
"""Share of citations drawn from the citing paper's topic; more would make popular papers too rare."""
THEME_WORDS, THEME_RANK = 8, 200
"""Number of words of its topic in a paper's theme."""
IN_TEXT = 0.25
"""Share of rare words taken from the theme of the paper, or of the cited paper in contexts."""
SYNONYMS_IN_PAPER, SYNONYMS_IN_CONTEXT = 0.1, 0.7
"""Share of the words of a theme that are replaced by their synonyms."""
MIN_RECORDS, MAX_CONTEXTS = 100, 500
"""Minimum number of papers and of contexts; maximum number of contexts per paper."""

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def word(rank: int) -> str:
    """Return the word with the given rank (from 1); unique for each rank.

    >>> word(1), word(200), word(4000)
    ('the', 'grathon', 'bavamor')
    """
    if rank <= len(COMMON):
        return COMMON[rank - 1]
    left, parts = rank + TWO_SYLLABLES, []
    while left:
        left, digit = divmod(left - 1, len(SYLLABLES))
        parts.append(SYLLABLES[digit])
    return "".join(reversed(parts)) + ENDINGS[(rank * 2654435761 >> 8) % len(ENDINGS)]


class Generator:
    """Generates `papers` papers, of which the last ones cite, and `contexts` contexts."""

    def __init__(self, papers: int, contexts: int, seed: int) -> None:
        if min(papers, contexts) < MIN_RECORDS or contexts > MAX_CONTEXTS * papers or seed < 0:
            raise InputError(
                f"papers={papers} contexts={contexts} seed={seed}: needs at least {MIN_RECORDS} of each, at "
                f"most {MAX_CONTEXTS} contexts per paper and a seed of 0 or more"
            )
        self._papers, self._contexts, self._seed = papers, contexts, seed
        self._topics = max(1, papers // TOPIC_PAPERS)
        each = min(CONTEXTS_PER_PAPER, max(1, contexts // 100))
        self._citing = max(3, min(contexts // each, papers // 2))
        bounds = [round(share * self._citing) for share in np.cumsum([0, *PROPORTIONS]) / sum(PROPORTIONS)]
        bounds[1], bounds[2] = min(bounds[1], self._citing - 2), min(bounds[2], self._citing - 1)
        self._splits = dict(zip(SPLITS, pairwise(bounds), strict=True))
        weights = (np.arange(1, CORE + 1) + SHIFT) ** -HEAD
        self._core = CORE_SHARE * np.cumsum(weights) / weights.sum()
        self._common = float(self._core[THEME_RANK - 1])
        self._words: dict[int, str] = {0: OTHER_MARKER}

    def papers(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the id and the record of each paper, the oldest first."""
        for number, rows in enumerate(_blocks(self._papers)):
            rng = np.random.default_rng((self._seed, 0, number))
            texts = []
            for mean, deviation in (TITLE_WORDS, ABSTRACT_WORDS):
                drawn = rng.gamma((mean / deviation) ** 2, deviation**2 / mean, len(rows))
                lengths = np.maximum(drawn.round(), 1).astype(np.int64)
                ranks = self._theme_ranks(np.repeat(rows, lengths), SYNONYMS_IN_PAPER, rng)
                texts.append(self._texts(ranks, lengths, rng, ends=True))
            years = FIRST_YEAR + (YEARS * np.sqrt(rows / self._papers)).astype(np.int64)
            # The first fields are the largest.
            fields = (len(FIELDS) * self._hash(rows % self._topics + 2**61) ** 2).astype(np.int64)
            columns = zip(rows.tolist(), *texts, years.tolist(), fields.tolist(), strict=True)
            for row, title, abstract, year, field in columns:
                record = {"title": title, "abstract": abstract, "year": year, "field": FIELDS[field]}
                yield paper_id(row), record

    def contexts(self) -> Iterator[tuple[str, dict[str, str]]]:
        """Yield the split and the record of each context, by citing papers."""
        for number, rows in enumerate(_blocks(self._contexts)):
            rng = np.random.default_rng((self._seed, 1, number))
            n = len(rows)
            first, last = (self._citing * int(row) // self._contexts for row in (rows[0], rows[-1] + 1))
            weights = rng.standard_exponential(last - first)
            each = 1 + rng.multinomial(n - len(weights), weights / weights.sum())
            owners = np.repeat(np.arange(first, last), each)
            citing = self._papers - self._citing + owners
            cited = self._draw_cited(citing, rng)
            lengths = np.maximum(rng.normal(*SIDE_WORDS, 2 * n).round(), 1)
            cut = rng.random(2 * n) < CUT_SIDES
            lengths[cut] = 1 + (lengths[cut] * rng.random(cut.sum())).astype(np.int64)
            lengths = lengths.astype(np.int64)
            ranks = self._theme_ranks(np.repeat(np.repeat(cited, 2), lengths), SYNONYMS_IN_CONTEXT, rng)
            ranks[rng.random(len(ranks)) < OTHER_CITATIONS] = 0
            sides = self._texts(ranks, lengths, rng, ends=False)
            splits = [
                name for owner in owners.tolist() for name, (start, end) in self._splits.items()
                if start <= owner < end
            ]  # fmt: skip
            columns = (column.tolist() for column in (rows, citing, cited))
            for split, left, right, row, a, b in zip(splits, sides[::2], sides[1::2], *columns, strict=True):
                key = f"{paper_id(a)}_{paper_id(b)}_{row}"
                text = f"{left}({TARGET_MARKER}) {right.rstrip(' ')}"
                yield split, {
                    "masked_text": text, "context_id": key, "citing_id": paper_id(a), "refid": paper_id(b)
                }  # fmt: skip

    def _ranks(self, uniform: Floats) -> Ints:
        """Map uniform numbers in [0, 1) to ranks by inverse transform sampling; higher is rarer."""
        ranks = np.searchsorted(self._core, uniform, side="right") + 1
        rare = np.flatnonzero(uniform >= CORE_SHARE)
        left = (1 - uniform[rare]) / (1 - CORE_SHARE)
        ranks[rare] = 1 + np.minimum(CORE * left ** (1 / (1 - TAIL)), MAX_RANK).astype(np.int64)
        return ranks

    def _theme_ranks(self, papers: Ints, synonyms: float, rng: np.random.Generator) -> Ints:
        """Draw the ranks of words [n]; IN_TEXT of the rare ones are from the themes of papers [n]."""
        uniform = rng.random(len(papers))
        thematic = np.flatnonzero((uniform >= self._common) & (rng.random(len(papers)) < IN_TEXT))
        number = rng.integers(THEME_WORDS, size=len(thematic))
        synonym = rng.random(len(thematic)) < synonyms
        papers = papers[thematic]
        words = (self._hash(papers * THEME_WORDS + number) * TOPIC_WORDS).astype(np.int64)
        values = self._hash(2 * (papers % self._topics * TOPIC_WORDS + words) + synonym + 2**62)
        # Overall word frequencies do not change.
        uniform[thematic] = self._common + (1 - self._common) * values
        return self._ranks(uniform)

    def _texts(self, ranks: Ints, lengths: Ints, rng: np.random.Generator, ends: bool) -> list[str]:
        """Compose texts of `lengths` [rows] words (at least one) by their ranks [words].

        ends: start with a capital letter and end with a full stop; otherwise end with a space.
        """
        bounds = np.cumsum(SEPARATOR_SHARES)[:-1]
        separators = np.searchsorted(bounds, rng.random(len(ranks)), side="right")
        last = np.cumsum(lengths) - 1
        separators[last] = len(SEPARATORS) - 1 if ends else 0
        starts = np.roll(separators == FULL_STOP, 1)
        starts[last[:-1] + 1] = ends
        starts[:1] = ends
        pieces = []
        for rank, start, separator in zip(ranks.tolist(), starts.tolist(), separators.tolist(), strict=True):
            if rank not in self._words:
                self._words[rank] = word(rank)
            text = self._words[rank]
            pieces.append(text.capitalize() if start and 0 < rank < CAPITALISED else text)
            pieces.append(SEPARATORS[separator])
        ends_at = 2 * np.cumsum(np.append(0, lengths))
        return ["".join(pieces[start:end]) for start, end in pairwise(ends_at.tolist())]

    def _draw_cited(self, citing: Ints, rng: np.random.Generator) -> Ints:
        """Draw an earlier paper for each citing paper [n], by popularity."""
        papers, power = self._papers, 1 - CITED_POWER
        ends = (CITED_SHIFT + 1) ** power, (CITED_SHIFT + papers) ** power
        drawn = (ends[0] + (ends[1] - ends[0]) * rng.random(len(citing))) ** (1 / power) - CITED_SHIFT
        rank = np.clip(drawn.astype(np.int64), 1, papers)
        # The step spreads popular papers over all years; the modulus maps later papers to earlier ones.
        step = round(papers * 0.618)
        while np.gcd(step, papers) != 1:
            step += 1
        cited = (rank * step % papers) % citing
        own = cited - (cited - citing) % self._topics
        return np.where((own >= 0) & (rng.random(len(cited)) < OWN_TOPIC), own, cited)

    def _hash(self, numbers: Ints) -> Floats:
        """Hash each number to a value in [0, 1) (SplitMix64)."""
        x = numbers.astype(np.uint64) + np.uint64(self._seed * 0x9E3779B97F4A7C15 % 2**64)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
        return (x ^ (x >> np.uint64(31))) / 2.0**64


def _blocks(count: int) -> list[Ints]:
    return [np.arange(start, min(start + BLOCK, count)) for start in range(0, count, BLOCK)]


def paper_id(row: int) -> str:
    """Return the id of the paper in a row."""
    return f"x{row:08}"


def generate_corpus(papers: int, contexts: int, output: str | Path, seed: int = 0) -> None:
    """Write papers, contexts and splits to a new folder, atomically.

    Raises InputError for an existing folder, an invalid size and a full disk.
    """
    generator, folder = Generator(papers, contexts, seed), new_folder(output)
    with disk_errors(folder, "the generated corpus", "output"), atomic_folder(folder) as unfinished:
        with json_writer(unfinished / "papers.json", keys=True) as add:
            for id, paper in generator.papers():
                add(paper, id)
        with ExitStack() as stack:
            add = stack.enter_context(json_writer(unfinished / "contexts.json", keys=True))
            queries = {
                split: stack.enter_context(json_writer(unfinished / f"{split}.json", keys=False))
                for split in SPLITS
            }
            for split, context in generator.contexts():
                add(context, context["context_id"])
                queries[split]({"context_id": context["context_id"], "positive_ids": [context["refid"]]})


def open_demo(
    papers: int = 2000,
    contexts: int = 8000,
    seed: int = 0,
    tokenizer: str = "default",
    cache_dir: str | Path | None = None,
) -> Corpus:
    """Open the demo corpus; generate it on first use. Raises InputError."""
    name = f"papers{papers}-contexts{contexts}-seed{seed}-v{VERSION}"
    folder = cache_folder(cache_dir) / "demo" / name
    with disk_errors(folder, "the demo corpus", "data.cache_dir"):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with file_lock(folder.with_name(f".{name}.lock"), "generates the same corpus"):
            if not folder.is_dir():
                generate_corpus(papers, contexts, folder, seed)
    return open_corpus(folder, tokenizer=tokenizer, cache_dir=cache_dir, name="demo", field="field")
