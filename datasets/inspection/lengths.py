"""How many words the texts have."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from datasets.inspection.findings import Line, Number, Section
from datasets.store import Corpus

QUANTILES = {"p1": 1, "p5": 5, "p25": 25, "median": 50, "p75": 75, "p95": 95, "p99": 99}
"""Per cent, by column."""

COLUMNS = ("texts", "mean", "least", *QUANTILES, "most")


def length_section(
    corpus: Corpus,
    contexts: NDArray[np.int64],
    titles: NDArray[np.int64],
    abstracts: NDArray[np.int64],
) -> Section:
    """Words of the contexts [C] of each split, and of titles and abstracts [P] that are not empty."""
    lines = [
        _line(f"contexts_{name}", f"contexts of {name}", contexts[split.contexts])
        for name, split in corpus.splits.items()
    ]
    lines += [
        _line("titles", "titles", titles[titles > 0]),
        _line("abstracts", "abstracts", abstracts[abstracts > 0]),
    ]
    note = (
        "Running words: signs alone and the marks of citations are none. p5 is the length that 5 % of the "
        "texts do not exceed."
    )
    return Section("lengths", "Lengths in words", note, COLUMNS, lines)


def _line(key: str, what: str, lengths: NDArray[np.int64]) -> Line:
    if not len(lengths):
        return Line(key, what, {"texts": 0})
    # The method gives lengths that there are, not means of two.
    quantiles = np.percentile(lengths, list(QUANTILES.values()), method="inverted_cdf")
    values: Mapping[str, Number] = {
        "texts": len(lengths),
        "mean": float(lengths.mean()),
        "least": int(lengths.min()),
        **{column: int(value) for column, value in zip(QUANTILES, quantiles, strict=True)},
        "most": int(lengths.max()),
    }
    return Line(key, what, values)
