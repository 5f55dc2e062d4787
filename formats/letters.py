"""Plain letters: names and words are compared without accents and ligatures; words in any script."""

# ruff: noqa: RUF001

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from hashlib import blake2b

LONG_TITLE = 20
_UNSPACED = (
    r"\u3005-\u3007\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    r"\U00020000-\U000323af\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ece\u0edc-\u0edf\u1000-\u103f\u1050-\u109f"
    r"\u1780-\u17d3\u17dd"
)
"""Letters of Han, Kana, Thai, Lao, Myanmar and Khmer, which are written without spaces between words."""
SIGNS = "".join(sign for sign in map(chr, range(0x900, 0xE00)) if unicodedata.category(sign)[0] == "M")
r"""Vowel signs and the like within words of Indian scripts, which \w lacks."""
_RUN = re.compile(f"[{_UNSPACED}]+")
_WORD = re.compile(f"[{_UNSPACED}]+|(?:(?![{_UNSPACED}])[^\\W_][{SIGNS}]*)+")
_ASCII_WORD = re.compile(r"[^\W_]+")
_NOT_ALNUM = re.compile(r"[\W_]+")
_ASCII_LETTERS = {code: chr(code).lower() if chr(code).isalnum() else None for code in range(128)}

# Letters without a Unicode decomposition.
_PLAIN = str.maketrans(
    {"ø": "o", "Ø": "O", "ł": "l", "Ł": "L", "đ": "d", "Đ": "D", "ß": "ss", "æ": "ae", "Æ": "Ae", "ı": "i"}
)

_GREEK_NAMES = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho sigma tau "
    "upsilon phi chi psi omega"
)
GREEK = dict(zip(_GREEK_NAMES.split(), "αβγδεζηθικλμνξοπρστυφχψω", strict=True))


def nfc(key: str) -> str:
    """Return a key with one character for a letter and its accent; macOS may write two (NFD)."""
    return unicodedata.normalize("NFC", key)


def fold(text: str) -> str:
    """Remove accents and ligatures.

    >>> fold("Müller and Łukasiewicz")
    'Muller and Lukasiewicz'
    """
    if text.isascii():
        return text
    letters = unicodedata.normalize("NFKD", text.translate(_PLAIN))
    return "".join(letter for letter in letters if not unicodedata.combining(letter))


_SPELT = """
а:a б:b в:v г:g ґ:g д:d е:e є:ie ё:e ж:zh з:z и:i і:i ї:i й:y,i,j к:k л:l м:m н:n о:o п:p р:r с:s т:t у:u ф:f
х:kh,h ц:ts,c ч:ch ш:sh щ:shch,sch ъ: ы:y ь: э:e ю:yu,iu,ju я:ya,ia,ja
α:a β:v,b γ:g δ:d ε:e ζ:z η:i,e θ:th ι:i κ:k λ:l μ:m ν:n ξ:x ο:o π:p ρ:r σ:s ς:s τ:t υ:y,u φ:ph,f χ:ch,h ψ:ps
ω:o"""
_LATIN_OF = {pair[0]: pair[2:].split(",") for pair in _SPELT.split()}
"""Latin spellings of Cyrillic and Greek letters in up to three systems."""
_NOT_LATIN = re.compile("[\u0370-\u03ff\u0400-\u04ff]")
_CASES = re.compile(r"(?<=[\u0400-\u04ff]{4})(?:а|у|ым|ом|е|ой|ого|ому)$")
"""Endings of Russian surnames in other cases than the first."""


def latin_names(word: str) -> list[str]:
    """Return how a Cyrillic or Greek name, also without its case, may be spelt in Latin letters.

    >>> latin_names("Хинтоном"), latin_names("Müller")
    (['khintonom', 'hintonom', 'khinton', 'hinton'], [])
    """
    if not _NOT_LATIN.search(word):
        return []
    names = []
    plain = word.lower() if word[0] > "\u03ff" else fold(word.lower())  # й is not и with an accent
    for form in dict.fromkeys((plain, _CASES.sub("", plain))):
        for system in range(3):
            spelt = (_LATIN_OF.get(letter, [letter]) for letter in form)
            names.append("".join(letters[min(system, len(letters) - 1)] for letters in spelt))
    return list(dict.fromkeys(names))


_PLAIN_LETTERS = str.maketrans({letter: spelt[0] for letter, spelt in _LATIN_OF.items()} | {"η": "e"})
_SOUNDS = {"ph": "f", "th": "t", "x": "ks", "ae": "e", "oe": "e", "eu": "u", "ou": "u", "y": "i", "j": "i"}
_SOUNDS |= dict.fromkeys(("c", "ch", "ck", "kh", "q", "qu"), "k") | {"w": "v", "z": "s", "ts": "s"}
_SOUND = re.compile("|".join(sorted(_SOUNDS, key=len, reverse=True)))
_SOFT_C, _TWICE, _ES = re.compile("c(?=[eiy])"), re.compile(r"(.)\1+"), re.compile("^es(?=[kmpt])")


def cognate(word: str) -> str:
    """Spell a lower-case word in the same way for all languages that have it from Greek or Latin.

    >>> [cognate(word) for word in ("spectrum", "espectro", "spektrale", "спектров", "φάσματος")]
    ['spektrum', 'spektro', 'spektrale', 'spektrov', 'fasmatos']
    """
    if not word.isascii():
        word = fold(word.translate(_PLAIN_LETTERS)).translate(_PLAIN_LETTERS)  # й is not и with an accent
    word = _SOUND.sub(lambda sound: _SOUNDS[sound[0]], _SOFT_C.sub("s", word))
    return _ES.sub("s", _TWICE.sub(r"\1", word))


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


def words(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield the words of a text with their places: runs of letters and digits, and in scripts that have no
    spaces between words, each pair of neighbouring letters, without vowel signs above or below.

    >>> [word for word, *_ in words("基于BERT模型的分类, ป่า 2")]
    ['基于', 'BERT', '模型', '型的', '的分', '分类', 'ปา', '2']
    """
    if text.isascii():
        yield from ((match[0], *match.span()) for match in _ASCII_WORD.finditer(text))
        return
    for match in _WORD.finditer(text):
        if _RUN.match(match[0]):
            yield from _pairs(match[0], match.start())
        else:
            yield match[0], *match.span()


def with_pairs(text: str) -> str:
    """Return a text with spaces between the words of scripts that have none: pairs of letters, see `words`.

    >>> with_pairs("of 在线教学 2").split()
    ['of', '在线', '线教', '教学', '2']
    """
    if text.isascii():
        return text
    return _RUN.sub(lambda run: f" {' '.join(pair for pair, *_ in _pairs(run[0], 0))} ", text)


def _pairs(run: str, start: int) -> Iterator[tuple[str, int, int]]:
    places = [place for place, letter in enumerate(run) if unicodedata.category(letter)[0] != "M"]
    if len(places) == 1:
        yield run[places[0]], start, start + len(run)
    for first, second, end in zip(places, places[1:], [*places[2:], len(run)], strict=False):
        yield run[first] + run[second], start + first, start + end
