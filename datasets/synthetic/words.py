"""Words of a vocabulary without end, with the frequencies of those of abstracts.

The r-th most frequent word (r from 1) has probability proportional to (r + SHIFT) ** -HEAD up to rank CORE
(Zipf-Mandelbrot) and falls as r ** -TAIL beyond it, for ever. Such a break is what large collections show
(Gerlach and Altmann, "Stochastic model for the vocabulary growth in natural languages", Phys. Rev. X 3,
2013), and it makes the vocabulary grow as n ** (1 / TAIL) with the number of words n (Heaps' law).
Fitted to 16.8 million words of 112,774 abstracts; compare the two with

    python -m benchmarks.distributions --data ../shared/data/neurips2025-lcr
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from datasets.schema import OTHER_MARKER

SHIFT, HEAD = 0.7, 0.95
CORE, TAIL = 2500, 1.9
CORE_SHARE = 0.86
"""Of running words, how many are of rank CORE at most."""
LAST = 2.0**40
"""No rank is beyond it."""

_COMMON = """
    the of and a to in we is for that on with this by are as an our model which from be can data models
    learning it based at show these two method results or such methods using time paper also have propose
    performance training between state has new not approach problem one large both their its more different
    tasks space first high algorithm information image where when however network non while framework
"""
COMMON = _COMMON.split()
"""The words of the first ranks, for people who read the texts; all others are made of syllables."""

_ONSETS = "b d f k l m n p r s t v gr st pr th"
SYLLABLES = [onset + vowel for onset in _ONSETS.split() for vowel in "aeio"]
ENDINGS = ["", "s", "n", "ng", "l", "r", "nt", "x"] * 64
ENDINGS[100] = "\\u00e9s"
ENDINGS[200:203] = ["^{\\\\ast}", "^{\\\\prime}", "_{\\\\min}"]
"""The ends of words as they stand in JSON: of 512 one is not ASCII, three have a backslash."""
TWO_SYLLABLES = 3000
"""Added to a rank: only the first thousand have two syllables, since words of low rank are long."""

TABLE = 1 << 17
"""Ranks whose words are kept; one word in 200 is beyond them."""

SEPARATORS = [" ", ", ", ". ", "-", " (", ") "]
SEPARATOR_SHARES = [0.875, 0.043, 0.043, 0.025, 0.007, 0.007]
"""What stands behind a word, as measured by `benchmarks.distributions`."""
STOP = 2


def word(rank: int) -> str:
    """The word of a rank from 1, as it stands in JSON; no two ranks share one.

    >>> word(1), word(200), word(5000)
    ('the', 'tolo', 'begreso')
    """
    if rank <= len(COMMON):
        return COMMON[rank - 1]
    left, parts = rank + TWO_SYLLABLES, []
    while left:
        left, digit = divmod(left - 1, len(SYLLABLES))
        parts.append(SYLLABLES[digit])
    return "".join(reversed(parts)) + ENDINGS[(rank * 2654435761 >> 8) % len(ENDINGS)]


class Words:
    """Draws ranks and makes texts of them."""

    def __init__(self) -> None:
        weights = (np.arange(1, CORE + 1) + SHIFT) ** -HEAD
        self._core = CORE_SHARE * np.cumsum(weights) / weights.sum()
        plain = pa.array([word(rank) for rank in range(1, TABLE)])
        marker = pa.array([OTHER_MARKER])  # rank 0
        self._table = pa.concat_arrays([marker, plain, marker, pc.utf8_capitalize(plain)])
        self._separators = pa.array([*SEPARATORS, "."])
        self._bounds = np.cumsum(SEPARATOR_SHARES)[:-1]

    def share(self, rank: int) -> float:
        """How many running words have a rank up to this one, which is at most CORE."""
        return float(self._core[rank - 1])

    def ranks(self, uniform: NDArray[np.float64]) -> NDArray[np.int64]:
        """Numbers of [0, 1) -> ranks from 1, by the inverse of their distribution: the higher, the rarer."""
        ranks = np.searchsorted(self._core, uniform, side="right") + 1
        rare = np.flatnonzero(uniform >= CORE_SHARE)
        left = (1 - uniform[rare]) / (1 - CORE_SHARE)
        ranks[rare] = 1 + np.minimum(CORE * left ** (1 / (1 - TAIL)), LAST).astype(np.int64)
        return ranks

    def texts(
        self,
        ranks: NDArray[np.int64],
        lengths: NDArray[np.int64],
        rng: np.random.Generator,
        ends: bool = True,
    ) -> pa.StringArray:
        """Texts as they stand in JSON: so many words each [rows], at least one, by their ranks [words].

        Rank 0 is the marker of another citation.
        ends: a text begins with a capital letter and ends with a full stop; else it ends with a space.
        """
        behind = np.searchsorted(self._bounds, rng.random(len(ranks)), side="right")
        last = np.cumsum(lengths) - 1
        behind[last] = len(SEPARATORS) if ends else 0
        starts = np.roll(behind == STOP, 1)
        starts[last[:-1] + 1] = ends
        starts[:1] = ends
        place = ranks + TABLE * starts
        rare = np.flatnonzero(ranks >= TABLE)
        place[rare] = 2 * TABLE + np.arange(len(rare))
        found = pa.array([word(rank) for rank in ranks[rare].tolist()], pa.string())
        tokens = pc.binary_join_element_wise(
            pa.concat_arrays([self._table, found]).take(pa.array(place)),
            self._separators.take(pa.array(behind)),
            "",
        )
        # The bytes of the tokens lie one behind the other: a text is from its first token to its last.
        offsets = np.frombuffer(tokens.buffers()[1], np.int32)[: len(ranks) + 1]
        rows = np.concatenate([offsets[:1], offsets[last + 1]])
        return pa.StringArray.from_buffers(len(lengths), pa.py_buffer(rows), tokens.buffers()[2])
