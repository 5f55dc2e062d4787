"""Plain letters: names and words are compared without accents and ligatures."""

from __future__ import annotations

import re
import unicodedata
from hashlib import blake2b

LONG_TITLE = 20
_NOT_ALNUM = re.compile(r"[\W_]+")
_ASCII_LETTERS = {code: chr(code).lower() if chr(code).isalnum() else None for code in range(128)}

# Letters without a Unicode decomposition.
_PLAIN = str.maketrans(
    {"ø": "o", "Ø": "O", "ł": "l", "Ł": "L", "đ": "d", "Đ": "D", "ß": "ss", "æ": "ae", "Æ": "Ae", "ı": "i"}
)


def fold(text: str) -> str:
    """Remove accents and ligatures.

    >>> fold("Müller and Łukasiewicz")
    'Muller and Lukasiewicz'
    """
    if text.isascii():
        return text
    letters = unicodedata.normalize("NFKD", text.translate(_PLAIN))
    return "".join(letter for letter in letters if not unicodedata.combining(letter))


def normalise_title(text: str) -> str:
    """Reduce a title to its letters and digits, folded and in lower case.

    >>> normalise_title("BERT: Pre-training")
    'bertpretraining'
    """
    if text.isascii():
        return text.translate(_ASCII_LETTERS)
    return _NOT_ALNUM.sub("", fold(text).casefold())


def title_key(letters: str) -> int:
    """Return a 64-bit hash of a title's letters (normalise_title)."""
    return int.from_bytes(blake2b(letters.encode(), digest_size=8).digest(), "little")
