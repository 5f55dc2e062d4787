"""Names that the source files, the tokenisers and the models agree on."""

from __future__ import annotations

TARGET_MARKER = "TARGETCIT"
"""Stands in a context where the paper to be recommended is cited."""

OTHER_MARKER = "OTHERCIT"
"""Stands in a context where some other paper is cited."""

TARGET_WORD = TARGET_MARKER.lower()
OTHER_WORD = OTHER_MARKER.lower()
MARKER_WORDS = (TARGET_WORD, OTHER_WORD)
"""What the markers are after lower-casing, in both tokenisers."""

SPLITS = ("train", "val", "test")
"""Splits that are looked for when none are named."""

TRAIN = "train"
"""The split that models are trained on and popularity is counted in."""


def split_group(split: str) -> str:
    """The part of a split's name up to the first underscore: `val` for `val_sentences`.

    Splits of one group may share citing papers, splits of two groups may not.
    """
    return split.split("_", 1)[0]
