"""Plain letters: names and words are compared without accents and ligatures."""

from __future__ import annotations

import unicodedata

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
