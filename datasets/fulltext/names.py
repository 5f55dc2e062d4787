"""Surnames, and names and titles made comparable."""

from __future__ import annotations

import re
import unicodedata
from hashlib import blake2b

# Letters that Unicode does not decompose.
_PLAIN = str.maketrans(
    {"ø": "o", "Ø": "O", "ł": "l", "Ł": "L", "đ": "d", "Đ": "D", "ß": "ss", "æ": "ae", "Æ": "Ae", "ı": "i"}
)
_SUFFIXES = frozenset(("jr", "sr", "ii", "iii", "iv"))
_MONTH = r"(?:0[1-9]|1[0-2])"
_ARXIV = re.compile(
    rf"(?:(\d\d){_MONTH}\.\d{{4,5}}|[a-z-]+(?:\.[A-Z]{{2}})?[/_]?(\d\d){_MONTH}\d{{3}})(?:v\d+)?"
)
_NOT_ALNUM = re.compile(r"[\W_]+")


def fold(text: str) -> str:
    """Without accents and ligatures.

    >>> fold("Müller and Łukasiewicz")
    'Muller and Lukasiewicz'
    """
    if text.isascii():
        return text
    letters = unicodedata.normalize("NFKD", text.translate(_PLAIN))
    return "".join(letter for letter in letters if not unicodedata.combining(letter))


def surname(name: str) -> str:
    """The last word of a family name, folded; "" if there is none.

    >>> [surname(name) for name in ("Ann B. Lee", "van der Maaten, Laurens", "K. Müller, Jr.", "Penkov MA")]
    ['Lee', 'Maaten', 'Muller', 'Penkov']
    """
    family, _, rest = fold(name).partition(",")
    if rest and rest.strip(" .").lower() not in _SUFFIXES:
        words = family.split()
    else:
        words = [word for word in family.split() if word.strip(".").lower() not in _SUFFIXES]
        # Initials after the name, as PubMed has them.
        while len(words) > 1 and len(words[-1]) <= 3 and words[-1].isupper():
            words.pop()
    return words[-1].strip(".") if words else ""


def letters_of(text: str) -> str:
    """Its letters and digits, folded and in lower case.

    >>> letters_of("BERT: Pre-training")
    'bertpretraining'
    """
    return _NOT_ALNUM.sub("", fold(text).casefold())


def title_key(letters: str) -> int:
    """64 bits that stand for a title, from its letters_of."""
    return int.from_bytes(blake2b(letters.encode(), digest_size=8).digest(), "little")


def arxiv_year(paper: str) -> int:
    """The year in an id of arXiv, which a file may be named by; 0 if it is none.

    >>> [arxiv_year(paper) for paper in ("2101.00001v2", "hep-th9901001", "paper-7")]
    [2021, 1999, 0]
    """
    match = _ARXIV.fullmatch(paper)
    if not match:
        return 0
    digits = int(match[1] or match[2])
    return digits + (1900 if digits > 90 else 2000)
