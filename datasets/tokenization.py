"""Two ways to cut a text into lower-case words."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

from datasets.schema import OTHER_MARKER, TARGET_MARKER

Tokenizer = Callable[[str], list[str]]

# In this order: decimal numbers, words, the clitics that GloVe's own tokeniser cuts off ("model's" becomes
# model 's), any other single sign.
_TOKEN = re.compile(r"\d+(?:[.,]\d+)+(?![^\W_])|[^\W_]+|'(?:s|re|ll|ve|d|m|t)\b|[^\w\s]|_")


def reference_tokenize(text: str) -> list[str]:
    """Lower-case and split on white space, as the published HAtten code does.

    >>> reference_tokenize("Deep nets (TARGETCIT) work.")
    ['deep', 'nets', '(targetcit)', 'work.']
    """
    return text.lower().split()


def default_tokenize(text: str) -> list[str]:
    """Lower-case, part words from punctuation and keep both; a citation marker is always one token.

    Hyphenated words are parted too. Ligatures and mathematical letters become plain letters (NFKC).

    >>> default_tokenize("State-of-the-art nets (TARGETCIT) reach 0.95.")
    ['state', '-', 'of', '-', 'the', '-', 'art', 'nets', '(', 'targetcit', ')', 'reach', '0.95', '.']
    """
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text).replace("\u2019", "'").replace("\u00ad", "")
    return _TOKEN.findall(lowered(text))


def lowered(text: str) -> str:
    """In lower case, with spaces around the markers."""
    if TARGET_MARKER in text:
        text = text.replace(TARGET_MARKER, f" {TARGET_MARKER} ")
    if OTHER_MARKER in text:
        text = text.replace(OTHER_MARKER, f" {OTHER_MARKER} ")
    return text.lower()


TOKENIZERS: dict[str, Tokenizer] = {"default": default_tokenize, "reference": reference_tokenize}
"""By the name that the configuration uses (`data.tokenizer`)."""
