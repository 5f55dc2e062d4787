"""The two tokenisers, a table that numbers words, and the starts of sentences."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import chain, count, islice
from typing import TYPE_CHECKING

from citerec.datasets.records import OTHER_MARKER, TARGET_MARKER
from citerec.formats.letters import SIGNS, with_pairs

if TYPE_CHECKING:
    from citerec.datasets.columns import Ragged

_ANY_SPACE, _LAST_SPACE = re.compile(r"\s"), re.compile(r"\s(?=\S*\Z)")
Tokenizer = Callable[[str], list[str]]

# In order: decimal numbers, words, the clitics that GloVe's tokeniser splits off ("model's" -> model 's), any
# other single character.
_TOKEN = re.compile(r"\d+(?:[.,]\d+)+(?![^\W_])|[^\W_]+|'(?:s|re|ll|ve|d|m|t)\b|[^\w\s]|_")
_SIGN = re.compile(f"[{SIGNS}]")
_WITH_SIGNS = re.compile(_TOKEN.pattern.replace("[^\\W_]+|", f"(?:[^\\W_][{SIGNS}]*)+|"))  # half as fast
_SENTENCE_END = re.compile(
    r"[.!?][\"')\]”’»“]*\s+(?=[A-Z0-9\[\"'“„«¿¡]|\((?!(?:1[6-9]|20)\d\d)|[^\W\x00-\x7f])"
    r"|[\u3002\uff01\uff1f\uff61][\u300d\u300f\u201d\u2019\uff09)]*\s*(?=\S)"
)
_ABBREVIATION = re.compile(
    r"al|approx|cf|chaps?|dr|e\.g|eds?|eqs?|etc|figs?|i\.e|mrs?|pp?|prof|refs?|resp|secs?|st|vols?|vs"
    r"|abb|abschn|anm|aufl|bde?|bspw|bzw|ca|d\.h|ebd|evtl|fn|ggf|hrsg|inkl|insb|kap|nr|s\.[ou]|sog|u\.a"
    r"|usw|vgl|z\.[bt]|ziff"
    r"|éds?|env|p\.ex|coll|núm|págs?|séc|coord|trad|afb|bijv|blz|d\.w\.z|hfdst|o\.a"
    r"|гл|изд|напр|ред|рис|см|стр|табл"
)
_BEFORE_NUMBER = re.compile("abs|app|art|caps?|ch|col|fasc|fol|no?|n°|pag|pl|rn|sect|suppl|t|tabs?|vers")
"""Abbreviations that are also words at the end of sentences."""
_DAY_OR_CENTURY = re.compile(
    "Aufl|Jahrh|Jh|Januar|Jänner|Februar|März|April|Mai|Juni|Juli|August|September|Oktober|November|Dezember"
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
        if _SIGN.search(text):
            return _WITH_SIGNS.findall(_normalise(text))
    return _TOKEN.findall(_normalise(text))


def sentence_starts(text: str) -> list[int]:
    """Character offsets at which the second and later sentences of a text begin.

    >>> from itertools import pairwise
    >>> text = "Trees are parsed (cf. Fig. 2). Graphs are not! We ask why."
    >>> [text[a:b] for a, b in pairwise([0, *sentence_starts(text), len(text)])]
    ['Trees are parsed (cf. Fig. 2). ', 'Graphs are not! ', 'We ask why.']
    """
    ends = (match.end() for match in _SENTENCE_END.finditer(text))
    return [end for end in ends if not _goes_on(text, end)]


def _goes_on(text: str, end: int) -> bool:
    """True if the full stop before text[end] is that of an abbreviation or a German ordinal."""
    if text[end].islower():
        return True
    before, word = ["", "", *text[max(0, end - 16) : end].split()][-2:]  # or blanks alone
    short = word.lstrip("([„“»«").removesuffix(".").lower()
    if short.isdigit():
        return len(short) < 3 and _DAY_OR_CENTURY.match(text, end) is not None
    if len(short) == 1 and short.isalpha():  # initials; z. B., d. h., v. Chr., p. 5
        of_two = (len(before) == 2 and before[1] == ".") or text[end + 1 : end + 2] == "."
        if of_two or word[-2:-1].isupper() or text.startswith("Chr.", end):
            return True
    known = _BEFORE_NUMBER if text[end].isdigit() else _ABBREVIATION
    return (known.fullmatch(short) or _ABBREVIATION.fullmatch(short)) is not None


def cut_window(left: str, right: str, window: int, words: str) -> str:
    """Cut at most `window` characters on each side of a mask, without parts of other markers.

    >>> cut_window("we use parsers (", ") here", 11, "cut")
    'e parsers (TARGETCIT) here'
    >>> cut_window("we use parsers (", ") here", 11, "whole")
    'parsers (TARGETCIT) here'
    """
    start, end = max(0, len(left) - window), min(len(right), window)
    if words == "whole":
        if 0 < start < len(left):
            space = _ANY_SPACE.search(left, start - 1)
            start = max(start, space.start()) if space else len(left)
        if 0 < end < len(right) and not right[end].isspace():
            last = _LAST_SPACE.search(right, 0, end)
            end = last.start() + 1 if last else 0
    for other in re.finditer(OTHER_MARKER, left):
        if other.start() < start < other.end():
            start = other.end()
    for other in re.finditer(OTHER_MARKER, right):
        if other.start() < end < other.end():
            end = other.start()
    return f"{left[start:].lstrip()}{TARGET_MARKER}{right[:end].rstrip()}"


def _normalise(text: str) -> str:
    """Lower-case a text and put spaces around the markers."""
    for marker in (TARGET_MARKER, OTHER_MARKER):
        text = text.replace(marker, f" {marker} ")
    return text.lower()


TOKENIZER = "default"
"""How the texts of a library are split into words."""
TOKENIZERS: dict[str, Tokenizer] = {"default": default_tokenize, "reference": reference_tokenize}
"""The tokenisers by their name in `data.tokenizer`."""


class WordTable:
    """Splits texts into words and numbers these in order of first occurrence; without lone surrogates."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenize, self._numbers = tokenizer, defaultdict[str, int](count().__next__)

    def __len__(self) -> int:
        return len(self._numbers)

    def ids(self, texts: Sequence[str]) -> Ragged:
        """Tokenise texts: the word ids of each text [rows]."""
        import numpy as np  # splitting texts alone does without it

        from citerec.datasets.columns import Ragged, offsets_of

        rows = [*map(self._tokenize, texts)]
        lengths = [*map(len, rows)]
        numbers = map(self._numbers.__getitem__, chain.from_iterable(rows))
        return Ragged(np.fromiter(numbers, np.int32, sum(lengths)), offsets_of(lengths))

    def words(self, start: int = 0) -> list[str]:
        """Return all words by id, from `start` on."""
        return [*islice(self._numbers, start, None)]
