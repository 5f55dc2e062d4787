"""The records of a generated corpus, block by block; a block is the same whatever was made before it.

Papers stand in the order of their years. The latest of them cite: CONTEXTS_PER_PAPER times on average, as
many as there are contexts. Whom they cite is drawn by a popularity that falls with a power of its rank
(CITED_SHIFT, CITED_POWER), among the papers before them. A paper has a theme of a few rarer words that come
back in its title and abstract and in the contexts that cite it: so that retrieval has something to find.

Lengths: titles and abstracts as those of 62,774 papers of arXiv, contexts and citations as those of NeurIPS
2025. Gamma distributions fit the former by their means and deviations:

    python -m benchmarks.distributions --papers ../shared/data/arxiv_distractors/papers.jsonl.gz \
        ../shared/data/arxiv9196/papers.jsonl.gz --data ../shared/data/neurips2025-lcr
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from datasets.errors import InputError
from datasets.schema import SPLITS, TARGET_MARKER
from datasets.synthetic.words import Words

BLOCK = 4096
"""Papers or contexts that are drawn together: part of what a seed means."""

TITLE_WORDS = (9.2, 3.6)
ABSTRACT_WORDS = (120.0, 59.0)
"""Mean and standard deviation of a gamma distribution."""
SIDE_WORDS = (28.0, 2.5)
"""Of one side of a context: mean and standard deviation of a normal distribution."""
CUT_SIDES = 0.12
"""Sides that the end of a section makes shorter, evenly down to nothing."""
OTHER_CITATIONS = 0.04
"""Words of a context that are the marker of another citation."""

CONTEXTS_PER_PAPER = 20
"""Of a citing paper; 35 in NeurIPS 2025, 4 in the ACL data. For arXiv it is not known to us."""
CITED_SHIFT, CITED_POWER = 5.0, 0.75
SPLIT_SHARES = {"train": 2_988_030, "val": 112_779, "test": 104_401}
"""As arXiv is split; by citing paper, in the order of years."""
FIRST_YEAR, YEARS = 1991, 29
FIELDS = ["cs", "math", "cond-mat", "astro-ph", "physics", "hep-ph", "quant-ph", "hep-th", "stat", "gr-qc"]

THEME = 8
"""Words in a paper's theme."""
THEME_RANK = 200
"""They are rarer than this rank."""
IN_PAPER, IN_CONTEXT = 0.25, 0.15
"""Of its words as rare as that, how many are of its theme, or of the cited paper's."""

CLOSING = {"papers": b"\n}\n", "contexts": b"\n}\n"} | dict.fromkeys(SPLITS, b"\n]\n")
"""The end of each file."""

Ints = NDArray[np.int64]
Pieces = dict[str, bytes]


@dataclass(frozen=True)
class Plan:
    """A corpus of so many papers and contexts. InputError for numbers that make no three splits."""

    papers: int
    contexts: int
    seed: int = 0

    def __post_init__(self) -> None:
        if self.papers < 100 or self.contexts < 100:
            raise InputError(
                f"papers={self.papers} contexts={self.contexts}: at least 100 of each are needed"
            )
        if self.contexts > 500 * self.papers:
            raise InputError(f"contexts={self.contexts}: at most 500 times as many as papers={self.papers}")
        if not 0 <= self.seed < 2**63:
            raise InputError(f"seed={self.seed}: must be from 0 to 2**63 - 1")

    @property
    def blocks(self) -> list[tuple[str, int]]:
        """Kind and number of all blocks, in the order of the files."""
        return [
            (kind, number)
            for kind, size in (("papers", self.papers), ("contexts", self.contexts))
            for number in range(-(-size // BLOCK))
        ]

    @property
    def citing(self) -> int:
        """Papers that cite, the last ones."""
        return max(3, min(self.contexts // CONTEXTS_PER_PAPER, self.papers // 2))

    @cached_property
    def splits(self) -> dict[str, range]:
        """Citing papers, counted from the first of them, of each split."""
        shares = np.cumsum([0, *SPLIT_SHARES.values()]) / sum(SPLIT_SHARES.values())
        bounds = [round(share * self.citing) for share in shares.tolist()]
        bounds[1], bounds[2] = min(bounds[1], self.citing - 2), min(bounds[2], self.citing - 1)
        return {split: range(*ends) for split, ends in zip(SPLITS, pairwise(bounds), strict=True)}

    def themes(self, papers: Ints, number: Ints) -> NDArray[np.float64]:
        """Where in [0, 1) a paper's theme has its words, by their number."""
        start = np.uint64(self.seed * 0x9E3779B97F4A7C15 % 2**64)
        x = (papers * THEME + number).astype(np.uint64) + start
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):  # SplitMix64
            x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
        return (x ^ (x >> np.uint64(31))) / 2.0**64


class Generator:
    """Makes the blocks of a plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.words = plan, Words()
        self._common = self.words.share(THEME_RANK)

    def block(self, kind: str, number: int) -> Pieces:
        """Pieces of the files by their stems. All blocks of a kind in order, and CLOSING, make a file."""
        rng = np.random.default_rng((self.plan.seed, kind == "contexts", number))
        first, count = number * BLOCK, getattr(self.plan, kind)
        rows = np.arange(first, min(first + BLOCK, count))
        return self._papers(rows, rng) if kind == "papers" else self._contexts(rows, rng)

    def _papers(self, rows: Ints, rng: np.random.Generator) -> Pieces:
        texts = []
        for mean, deviation in (TITLE_WORDS, ABSTRACT_WORDS):
            drawn = rng.gamma((mean / deviation) ** 2, deviation**2 / mean, len(rows))
            lengths = np.maximum(drawn.round(), 1).astype(np.int64)
            ranks = self._ranks(np.repeat(rows, lengths), IN_PAPER, rng)
            texts.append(self.words.texts(ranks, lengths, rng))
        year = FIRST_YEAR + (YEARS * np.sqrt(rows / self.plan.papers)).astype(np.int64)
        field = pa.array(FIELDS).take(pa.array((len(FIELDS) * rng.random(len(rows)) ** 2).astype(np.int64)))
        title, abstract = texts
        records = joined(
            ',\n"', paper_ids(rows), '": {"title": "', title, '", "abstract": "', abstract,
            '", "year": ', pc.cast(pa.array(year), pa.string()), ', "field": "', field, '"}',
        )  # fmt: skip
        return {"papers": opened(records, "{" if rows[0] == 0 else None)}

    def _contexts(self, rows: Ints, rng: np.random.Generator) -> Pieces:
        plan, n = self.plan, len(rows)
        first, last = (plan.citing * int(row) // plan.contexts for row in (rows[0], rows[-1] + 1))
        weights = rng.standard_exponential(last - first)
        each = 1 + rng.multinomial(n - len(weights), weights / weights.sum())
        owner = np.repeat(np.arange(first, last), each)
        citing = plan.papers - plan.citing + owner
        cited = self._cited(citing, rng)
        lengths = np.maximum(rng.normal(*SIDE_WORDS, 2 * n).round(), 1)
        cut = rng.random(2 * n) < CUT_SIDES
        lengths[cut] = 1 + (lengths[cut] * rng.random(cut.sum())).astype(np.int64)
        lengths = lengths.astype(np.int64)
        ranks = self._ranks(np.repeat(np.repeat(cited, 2), lengths), IN_CONTEXT, rng)
        ranks[rng.random(len(ranks)) < OTHER_CITATIONS] = 0
        sides = self.words.texts(ranks, lengths, rng, ends=False)
        left, right = (sides.take(pa.array(np.arange(side, 2 * n, 2))) for side in (0, 1))
        ids = pc.binary_join_element_wise(
            paper_ids(citing), paper_ids(cited), pc.cast(pa.array(rows), pa.string()), "_"
        )
        records = joined(
            ',\n"', ids, '": {"masked_text": "', left, f"({TARGET_MARKER}) ", pc.utf8_rtrim(right, " "),
            '", "context_id": "', ids, '", "citing_id": "', paper_ids(citing),
            '", "refid": "', paper_ids(cited), '"}',
        )  # fmt: skip
        pieces = {"contexts": opened(records, "{" if rows[0] == 0 else None)}
        for split, members in plan.splits.items():
            here = pa.array((owner >= members.start) & (owner < members.stop))
            if pc.any(here).as_py():
                records = joined(
                    ',\n{"context_id": "', ids.filter(here),
                    '", "positive_ids": ["', paper_ids(cited).filter(here), '"]}',
                )  # fmt: skip
                pieces[split] = opened(records, "[" if first <= members.start else None)
        return pieces

    def _ranks(self, papers: Ints, share: float, rng: np.random.Generator) -> Ints:
        """Ranks of running words; of the rarer ones a share is of the theme of the paper of each word."""
        uniform = rng.random(len(papers))
        own = np.flatnonzero((uniform >= self._common) & (rng.random(len(papers)) < share))
        place = self.plan.themes(papers[own], rng.integers(THEME, size=len(own)))
        # Themes are drawn by the same law, so that words keep their frequencies over all.
        uniform[own] = self._common + (1 - self._common) * place
        return self.words.ranks(uniform)

    def _cited(self, citing: Ints, rng: np.random.Generator) -> Ints:
        """A paper before each of these, by popularity."""
        papers, power = self.plan.papers, 1 - CITED_POWER
        ends = (CITED_SHIFT + 1) ** power, (CITED_SHIFT + papers) ** power
        drawn = (ends[0] + (ends[1] - ends[0]) * rng.random(len(citing))) ** (1 / power) - CITED_SHIFT
        rank = np.clip(drawn.astype(np.int64), 1, papers)
        # Popular papers are spread over all years; one that is too late stands for one of the first.
        step = round(papers * 0.618)
        while np.gcd(step, papers) != 1:
            step += 1
        return (rank * step % papers) % citing


def paper_ids(rows: Ints) -> pa.StringArray:
    """
    >>> paper_ids(np.array([7])).to_pylist()
    ['x00000007']
    """
    numbers = pc.utf8_lpad(pc.cast(pa.array(rows), pa.string()), width=8, padding="0")
    return pc.binary_join_element_wise("x", numbers, "")


def joined(*parts: str | pa.StringArray) -> bytes:
    """Records of constant and of changing parts, one behind the other, as bytes."""
    records = pc.binary_join_element_wise(*parts, "")
    start, end = (int(np.frombuffer(records.buffers()[1], np.int32)[row]) for row in (0, len(records)))
    return records.buffers()[2].slice(start, end - start).to_pybytes()


def opened(records: bytes, bracket: str | None) -> bytes:
    """With the opening bracket of the file in place of the first comma, if they are its first records."""
    return records if bracket is None else bracket.encode() + records[1:]
