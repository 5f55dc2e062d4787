"""The two tokenisers, a compiled word table for whole corpora, and the starts of sentences.

A WordTable turns many texts into token ids without a Python object per token. It splits ASCII texts, nearly
all texts in English, with compiled rules, several times as fast as the tokeniser. For other texts it only
looks up the tokens.

63 MB of titles and abstracts take 2.6 s. Arrow's regular expressions and dictionary encoding, which cannot
express all of the rules, took 5.3 s, the tokeniser's with Arrow's dictionary encoding 7.5 s.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from citerec.base.packages import compiled
from citerec.datasets.columns import Ragged, offsets_of
from citerec.datasets.records import OTHER_MARKER, TARGET_MARKER

Tokenizer = Callable[[str], list[str]]

SPACE, DIGIT, LETTER, SIGN, APOSTROPHE, UNDERLINE = range(6)
FREE = -1
"""An empty slot of the table."""

# In order: decimal numbers, words, the clitics that GloVe's tokeniser splits off ("model's" -> model 's), any
# other single character.
_TOKEN = re.compile(r"\d+(?:[.,]\d+)+(?![^\W_])|[^\W_]+|'(?:s|re|ll|ve|d|m|t)\b|[^\w\s]|_")
_SENTENCE_END = re.compile(r"[.!?][\"')\]]*\s+(?=[A-Z0-9(\[\"'])")
_ABBREVIATION = re.compile(
    r"(?:^|[\s(\[])(?:(?i:al|approx|cf|e\.g|eqs?|etc|figs?|i\.e|no|pp?|refs?|resp|secs?|vols?|vs)|[A-Z])\.\s+$"
)


def reference_tokenize(text: str) -> list[str]:
    """Lower-case and split on white space, as the published HAtten code does.

    >>> reference_tokenize("Deep nets (TARGETCIT) work.")
    ['deep', 'nets', '(targetcit)', 'work.']
    """
    return text.lower().split()


def default_tokenize(text: str) -> list[str]:
    """Lower-case and split words from punctuation and at hyphens; a citation marker is one token.

    Ligatures and mathematical letters become plain letters (NFKC).

    >>> default_tokenize("State-of-the-art nets (TARGETCIT) reach 0.95.")
    ['state', '-', 'of', '-', 'the', '-', 'art', 'nets', '(', 'targetcit', ')', 'reach', '0.95', '.']
    """
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text).replace("\u2019", "'").replace("\u00ad", "")
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


def _kinds() -> NDArray[np.uint8]:
    """Return the kind of each byte [256]; bytes beyond ASCII are letters, as such texts are pre-split."""
    kinds = np.full(256, LETTER, np.uint8)
    for byte, sign in enumerate(map(chr, range(128))):
        if not sign.isalpha():
            kinds[byte] = SPACE if sign.isspace() else DIGIT if sign.isdigit() else SIGN
    kinds[ord("'")], kinds[ord("_")] = APOSTROPHE, UNDERLINE
    return kinds


class WordTable:
    """Numbers words in order of first occurrence. Texts must not contain lone surrogates."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        if tokenizer not in (default_tokenize, reference_tokenize):
            raise ValueError(f"the rules of {tokenizer} are not compiled")
        self._tokenize = tokenizer
        self._kinds = _kinds()
        self._count = 0
        self._slots = np.full(1 << 10, FREE, np.int32)
        self._hashes = np.empty(1 << 9, np.uint64)  # per word
        self._ends = np.zeros((1 << 9) + 1, np.int64)  # offsets of the words in the letters
        self._letters = np.empty(0, np.uint8)

    def __len__(self) -> int:
        return self._count

    def ids(self, texts: Sequence[str]) -> Ragged:
        """Tokenise texts: the word ids of each text [rows]."""
        by_rules = self._tokenize is default_tokenize
        plain = np.fromiter((text.isascii() for text in texts), np.bool_, len(texts))
        pieces = [
            (_normalise(text) if by_rules else text.lower()) if ascii else " ".join(self._tokenize(text))
            for text, ascii in zip(texts, plain.tolist(), strict=True)
        ]
        return self._look_up([piece.encode() for piece in pieces], plain & by_rules)

    def add_words(self, words: pa.LargeStringArray) -> NDArray[np.int32]:
        """Add words that are not in the table yet; return the ids of all given words [words]."""
        return self._look_up(words.cast(pa.large_binary()).to_pylist(), np.zeros(len(words), np.bool_)).values

    def words(self) -> pa.LargeStringArray:
        """Return all words by id."""
        ends = pa.py_buffer(self._ends[: self._count + 1])
        letters = pa.py_buffer(self._letters[: self._ends[self._count]])
        return pa.LargeStringArray.from_buffers(self._count, ends, letters)

    def _look_up(self, pieces: list[bytes], by_rules: NDArray[np.bool_]) -> Ragged:
        """by_rules [rows]: split by the rules of default_tokenize, or else only at spaces."""
        text = np.frombuffer(b"".join(pieces), np.uint8)
        ends = offsets_of(np.fromiter(map(len, pieces), np.int64, len(pieces)))[1:]
        # Sized for the largest possible number of words and letters; untouched pages take no memory.
        ids, offsets = np.empty(len(text), np.int32), np.zeros(len(pieces) + 1, np.int64)
        self._letters = _enlarge(self._letters, int(self._ends[self._count]) + len(text))
        row = at = done = 0
        while True:
            self._count, row, at, done = _look_up(
                text, ends, by_rules, self._kinds, row, at, done,
                self._count, self._slots, self._hashes, self._ends, self._letters, ids, offsets,
            )  # fmt: skip
            if row == len(pieces):
                return Ragged(ids[:done].copy(), offsets)
            self._grow()

    def _grow(self) -> None:
        """Enlarge the table to four times its size."""
        self._slots = np.full(4 * len(self._slots), FREE, np.int32)
        _fill(self._slots, self._hashes[: self._count])
        self._hashes = _enlarge(self._hashes, len(self._slots) // 2)
        self._ends = _enlarge(self._ends, len(self._slots) // 2 + 1)


def _enlarge(values: NDArray[Any], size: int) -> NDArray[Any]:
    if len(values) >= size:
        return values
    larger = np.empty(max(size, 2 * len(values)), values.dtype)
    larger[: len(values)] = values
    return larger


_compiled = compiled(nogil=True)


@_compiled
def _look_up(
    text: NDArray[np.uint8],
    row_ends: NDArray[np.int64],
    by_rules: NDArray[np.bool_],
    kinds: NDArray[np.uint8],
    row: int,
    at: int,
    done: int,
    count: int,
    slots: NDArray[np.int32],
    hashes: NDArray[np.uint64],
    ends: NDArray[np.int64],
    letters: NDArray[np.uint8],
    ids: NDArray[np.int32],
    offsets: NDArray[np.int64],
) -> tuple[int, int, int, int]:
    """Split texts from byte `at` of row `row`; write words to ids[done:] and the ends of rows to `offsets`.

    Returns (count, row, at, done): the number of words in the table and the position reached, which is after
    the last row, or before a new word if the table is half full.
    """
    mask = np.uint64(len(slots) - 1)
    while row < len(row_ends):
        end = row_ends[row]
        while at < end:
            if kinds[text[at]] == SPACE:
                at += 1
                continue
            if by_rules[row]:
                stop = _token_end(text, at, end, kinds)
            else:
                stop = _run_end(text, at, end, kinds, UNDERLINE)
            code = np.uint64(0xCBF29CE484222325)  # FNV-1a
            for i in range(at, stop):
                code = (code ^ np.uint64(text[i])) * np.uint64(0x100000001B3)
            slot = (code ^ (code >> np.uint64(32))) & mask
            while True:
                id = slots[slot]
                if id == FREE:
                    if 2 * count == len(slots):
                        return count, row, at, done
                    id = count
                    slots[slot], hashes[count] = count, code
                    start = ends[count]
                    for i in range(stop - at):  # a slice would take four seconds to compile
                        letters[start + i] = text[at + i]
                    count += 1
                    ends[count] = start + stop - at
                    break
                if hashes[id] == code and _equal(letters, ends[id], ends[id + 1], text, at, stop):
                    break
                slot = (slot + np.uint64(1)) & mask
            ids[done] = id
            done += 1
            at = stop
        row += 1
        offsets[row] = done
    return count, row, at, done


@_compiled
def _fill(slots: NDArray[np.int32], hashes: NDArray[np.uint64]) -> None:
    mask = np.uint64(len(slots) - 1)
    for word in range(len(hashes)):
        slot = (hashes[word] ^ (hashes[word] >> np.uint64(32))) & mask
        while slots[slot] != FREE:
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = word


@_compiled
def _equal(
    letters: NDArray[np.uint8], first: int, last: int, text: NDArray[np.uint8], at: int, stop: int
) -> bool:
    if last - first != stop - at:
        return False
    for i in range(stop - at):  # noqa: SIM110 - numba cannot compile any() over a generator
        if letters[first + i] != text[at + i]:
            return False
    return True


@_compiled
def _run_end(text: NDArray[np.uint8], at: int, end: int, kinds: NDArray[np.uint8], last: int) -> int:
    """Return the end of the run of bytes of the kinds DIGIT to `last` that starts at `at`."""
    while at < end and DIGIT <= kinds[text[at]] <= last:
        at += 1
    return at


@_compiled
def _token_end(text: NDArray[np.uint8], at: int, end: int, kinds: NDArray[np.uint8]) -> int:
    """Return the end of the token that starts at `at`: the alternatives of _TOKEN, in order."""
    kind = kinds[text[at]]
    if kind == DIGIT:
        number, here = -1, _run_end(text, at, end, kinds, DIGIT)
        while here + 1 < end and (text[here] == 44 or text[here] == 46) and kinds[text[here + 1]] == DIGIT:
            here = _run_end(text, here + 1, end, kinds, DIGIT)  # past a comma or point
            if here == end or kinds[text[here]] != LETTER:
                number = here
        if number >= 0:
            return number
    if kind in (DIGIT, LETTER):
        return _run_end(text, at, end, kinds, LETTER)
    if kind == APOSTROPHE:
        stop = _run_end(text, at + 1, end, kinds, LETTER)
        if (stop == end or kinds[text[stop]] != UNDERLINE) and _is_clitic(text, at + 1, stop):
            return stop
    return at + 1


@_compiled
def _is_clitic(text: NDArray[np.uint8], at: int, stop: int) -> bool:
    """True for s, d, m, t, re, ll and ve."""
    if stop - at == 1:
        return text[at] == 115 or text[at] == 100 or text[at] == 109 or text[at] == 116
    if stop - at == 2:
        first, second = text[at], text[at + 1]
        return (second == 101 and (first == 114 or first == 118)) or (first == 108 and second == 108)
    return False
