"""A recommended paper, and what is said above a list of them: that none fits, or that several do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from citerec.library.evidence.explanation import Explanation

TOGETHER = 10
"""Number of top papers considered to say that several or none fit."""
SURE, FEWEST = 0.5, 3
"""A paper with at least this probability fits, if it is the best of FEWEST or more."""
LEAST_COSINE, PER_PAPERS, MOST_PAPERS = 0.2, 0.03, 10_000
"""If any of n papers fits, the best one's cosine with a passage is at least LEAST_COSINE + PER_PAPERS * ln n,
as the best of many is higher by chance; n is at most MOST_PAPERS, for which this was seen to hold."""
NO_PAPER, TOO_FEW, FEW_PAPERS = 0.18, 0.7, 1000
"""The same without an encoder: none fits if no paper has probability NO_PAPER and those of the first papers
sum to less than TOO_FEW; nothing is said of more than FEW_PAPERS papers."""
SEVERAL, TOGETHER_SURE = 0.28, 0.9
"""Several fit if no paper has probability SEVERAL, but those of the first papers sum to TOGETHER_SURE."""
NOTHING_FITS = "nothing in the library fits well"
SEVERAL_FIT = "several papers fit about equally well"


@dataclass(frozen=True)
class Recommendation:
    """A recommended paper; year None and empty fields are unknown.

    features: the ranker's, if requested. probability: that it is the paper meant; None if the library's model
    cannot tell. cited: the draft cites it elsewhere. note: on all papers of the list (`what_fits`).
    """

    rank: int
    score: float
    id: str
    key: str
    title: str
    authors: tuple[str, ...] = ()
    year: int | None = None
    venue: str = ""
    evidence: Explanation = field(default_factory=Explanation)
    features: dict[str, float] = field(default_factory=dict)
    probability: float | None = None
    cited: bool = False
    names: tuple[str, ...] = ()
    """as `LibraryPaper.names`"""
    retracted: str = ""
    """as `LibraryPaper.retracted`"""
    note: str = ""

    @property
    def why(self) -> str:
        return self.evidence.why

    def as_json(self, explain: bool = False) -> dict[str, Any]:
        """Return the fields that every interface shows, and to explain it the features, if any."""
        names = ("rank", "score", "probability", "cited", "retracted", "id", "key", "title", "year", "why")
        shown = {name: getattr(self, name) for name in names}
        if explain and self.features:
            shown["features"] = {name: None if math.isnan(x) else x for name, x in self.features.items()}
        return shown


def note_on(papers: Sequence[Recommendation]) -> str:
    """Return what to say above a list: that none of its papers fits, that several do, or nothing."""
    return next((paper.note for paper in papers), "")


def what_fits(probabilities: NDArray[np.floating], papers: int, cosine: float | None) -> str:
    """Return NOTHING_FITS, SEVERAL_FIT or nothing.

    probabilities: of the first papers of a ranked list. papers: how many were ranked. cosine: the highest of
    the first TOGETHER papers with the passage by the encoder; None without one.

    The first papers are TOGETHER, or the first tenth of fewer than a hundred papers.
    """
    if not len(probabilities):
        return ""
    best, together = probabilities.max(), probabilities[: min(TOGETHER, -(-papers // 10))].sum()
    if cosine is None:
        nothing = papers <= FEW_PAPERS and best < NO_PAPER and together < TOO_FEW
    else:
        least = LEAST_COSINE + PER_PAPERS * math.log(min(papers, MOST_PAPERS))
        nothing = (best < SURE or papers < FEWEST) and cosine < least
    if nothing:
        return NOTHING_FITS
    return SEVERAL_FIT if best < SEVERAL and together >= TOGETHER_SURE else ""
