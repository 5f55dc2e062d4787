"""The two tokenisers, a table that numbers words, and the starts of sentences."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from citerec.datasets.records import OTHER_MARKER, TARGET_MARKER
from citerec.formats.letters import with_pairs

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from citerec.datasets.columns import Ragged

Tokenizer = Callable[[str], list[str]]

# In order: decimal numbers, words, the clitics that GloVe's tokeniser splits off ("model's" -> model 's), any
# other single character.
_TOKEN = re.compile(r"\d+(?:[.,]\d+)+(?![^\W_])|[^\W_]+|'(?:s|re|ll|ve|d|m|t)\b|[^\w\s]|_")
_SENTENCE_END = re.compile(
    r"[.!?][\"')\]]*\s+(?=[A-Z0-9(\[\"'])|[\u3002\uff01\uff1f\uff61][\u300d\u300f\u201d\u2019\uff09)]*\s*(?=\S)"
)
_ABBREVIATION = re.compile(
    r"(?:^|[\s(\[])(?:(?i:al|approx|cf|e\.g|eqs?|etc|figs?|i\.e|no|refs?|resp|secs?|vs)|[A-Z])\.\s+$"
)


def reference_tokenize(text: str) -> list[str]:
    """Lower-case and split on white space, as the published HAtten code does.

    >>> reference_tokenize("Deep nets (TARGETCIT) work.")
    ['deep', 'nets', '(targetcit)', 'work.']
    """
    return text.lower().split()


def default_tokenize(text: str) -> list[str]:
    """Lower-case and split words from punctuation and at hyphens; a citation marker is one token.

    Ligatures and mathematical letters become plain letters (NFKC). Scripts without spaces between words are
    split into pairs of letters (formats.letters).

    >>> default_tokenize("State-of-the-art nets (TARGETCIT) reach 0.95.")
    ['state', '-', 'of', '-', 'the', '-', 'art', 'nets', '(', 'targetcit', ')', 'reach', '0.95', '.']
    """
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text).replace("\u2019", "'").replace("\u00ad", "")
        text = with_pairs(text)
    return _TOKEN.findall(_normalise(text))


def sentence_starts(text: str) -> list[int]:
    """Character offsets at which the second and later sentences of a text begin.

    >>> from itertools import pairwise
    >>> text = "Trees are parsed (cf. Fig. 2). Graphs are not! We ask why."
    >>> [text[a:b] for a, b in pairwise([0, *sentence_starts(text), len(text)])]
    ['Trees are parsed (cf. Fig. 2). ', 'Graphs are not! ', 'We ask why.']
    """
    ends = (match.end() for match in _SENTENCE_END.finditer(text))
    return [end for end in ends if _ABBREVIATION.search(text, max(0, end - 16), end) is None]


def _normalise(text: str) -> str:
    """Lower-case a text and put spaces around the markers."""
    if TARGET_MARKER in text:
        text = text.replace(TARGET_MARKER, f" {TARGET_MARKER} ")
    if OTHER_MARKER in text:
        text = text.replace(OTHER_MARKER, f" {OTHER_MARKER} ")
    return text.lower()


TOKENIZER = "default"
"""How the texts of a library are split into words."""
TOKENIZERS: dict[str, Tokenizer] = {"default": default_tokenize, "reference": reference_tokenize}
"""The tokenisers by their name in `data.tokenizer`."""


class _Numbers(dict[str, int]):
    """Numbers words in order of first occurrence."""

    def __missing__(self, word: str) -> int:
        number = self[word] = len(self)
        return number


class WordTable:
    """Splits texts into words and numbers these in order of first occurrence; without lone surrogates."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenize, self._numbers = tokenizer, _Numbers()

    def __len__(self) -> int:
        return len(self._numbers)

    def ids(self, texts: Sequence[str]) -> Ragged:
        """Tokenise texts: the word ids of each text [rows]."""
        # NumPy and Arrow, without which texts are split
        from citerec.datasets.columns import Ragged, offsets_of

        rows = [*map(self._tokenize, texts)]
        lengths = [*map(len, rows)]
        return Ragged(self._ids(chain.from_iterable(rows), sum(lengths)), offsets_of(lengths))

    def words(self) -> pa.LargeStringArray:
        """Return all words by id."""
        import pyarrow as pa

        return pa.array([*self._numbers], pa.large_string())

    def _ids(self, words: Iterable[str], count: int) -> NDArray[np.int32]:
        import numpy as np

        return np.fromiter(map(self._numbers.__getitem__, words), np.int32, count)
