"""Which split the contexts of a citing paper go to: one of train, val and test for all of them, or none.

Masking: the citations of a full text, with the text around them in which all other markers are OTHERCIT.
Windows around a mask, and what they give away.
Which citations of a full text become contexts.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import groupby
from typing import Any, NamedTuple, Protocol

from datasets.errors import InputError
from datasets.fulltext.bibliography import AUTHORS, Catalogue, fold, resolve, surname
from datasets.fulltext.markers import Bibliography, Marker, find_markers, has_numbers
from datasets.fulltext.records import Cite, FullText, Paragraph, Reference
from datasets.records import MARKER_WORDS, OTHER_MARKER, SPLITS, TARGET_MARKER

# What may be between two markers of a group: separators, also a bracket closed and the next one opened.
_SEPARATORS = r"[\s,;&/–—−‐-]*"
_BETWEEN = re.compile(rf"{_SEPARATORS}|\]{_SEPARATORS}\[|\){_SEPARATORS}\(")
_MARKER_WORD = re.compile("(target|other)(cit)", re.IGNORECASE)
_SPACE = re.compile(r"\s\s+|[^\S ]")


class Citation(NamedTuple):
    """What is cited, and the text before and after the marker."""

    ref: str
    left: str
    right: str


def citations(full_text: FullText, reach: int, spans: Counter[str]) -> Iterator[Citation]:
    """The citations of entries of the bibliography, in the order of the text.

    reach: characters of text on each side at least, if the section has them; the outermost may be part of a
    marker. spans: counts the spans that are dropped, as they lie outside of their paragraph, or only masked.
    """
    bibliography = Bibliography(full_text.references)
    numbers = has_numbers(full_text.paragraphs)
    for _, paragraphs in groupby(full_text.paragraphs, key=lambda paragraph: paragraph.section):
        text, cites = _joined(paragraphs, full_text, spans)
        if cites:
            yield from _of_section(text, find_markers(text, cites, bibliography, numbers), reach)


def _joined(
    paragraphs: Iterator[Paragraph], full_text: FullText, spans: Counter[str]
) -> tuple[str, list[Cite]]:
    """The text of a section, and its spans. Offsets are those of the text."""
    texts: list[str] = []
    cites: list[Cite] = []
    length = 0
    for text, own, _ in paragraphs:
        for start, end, ref in own:
            if not 0 <= start < end <= len(text):
                spans["outside of the paragraph, dropped"] += 1
                continue
            if ref is None:
                spans["of no reference, masked"] += 1
            elif ref not in full_text.references:
                spans["of a reference that the bibliography lacks, masked"] += 1
                ref = None
            cites.append(Cite(length + start, length + end, ref))
        texts.append(text)
        length += len(text) + 1
    return "\n".join(texts), cites


def _of_section(text: str, markers: list[Marker], reach: int) -> Iterator[Citation]:
    # `masked` is the section with all groups as OTHERCIT; `places` are those of the groups in it.
    pieces: list[str] = []
    places: list[int] = []
    groups = _groups(text, markers)
    length = done = 0
    for group in groups:
        piece = _plain(text[done : group[0].start]) + group[0].opening
        places.append(length + len(piece))
        pieces += (piece, OTHER_MARKER)
        length = places[-1] + len(OTHER_MARKER)
        done = group[-1].end
    pieces.append(_plain(text[done:]))
    masked = "".join(pieces)
    for group, place in zip(groups, places, strict=True):
        end = place + len(OTHER_MARKER)
        for number, marker in enumerate(group):
            left, right = masked[max(0, place - reach) : place], masked[end : end + reach]
            if number > 0:
                left += OTHER_MARKER + _between(text, group[number - 1], marker)
            if number + 1 < len(group):
                right = _between(text, marker, group[number + 1]) + OTHER_MARKER + right
            for ref in marker.refs:
                yield Citation(ref, left, right)


def _between(text: str, marker: Marker, following: Marker) -> str:
    text = _plain(text[marker.end : following.start] + following.opening)
    return text if text and text[-1] not in ",;" else f"{text} "


def _groups(text: str, markers: list[Marker]) -> list[list[Marker]]:
    groups: list[list[Marker]] = []
    for marker in markers:
        if groups and _BETWEEN.fullmatch(text[groups[-1][-1].end : marker.start] + marker.opening):
            groups[-1].append(marker)
        else:
            groups.append([marker])
    return groups


def _plain(text: str) -> str:
    """Text between markers: single spaces, parted from the markers, no words that look like them."""
    if any(word in text.lower() for word in MARKER_WORDS):
        text = _MARKER_WORD.sub(r"\1 \2", text)
    text = _SPACE.sub(" ", text)
    # A letter or digit beside a marker ("word5") would be read as one word with it.
    return " " * text[:1].isalnum() + text + " " * text[-1:].isalnum()


_YEAR = r"(?<!\d)((?:19|20)\d\d)[a-z]?"
_YEARS_BESIDE = (
    re.compile(rf"{_YEAR}\W{{0,3}}{TARGET_MARKER}"),
    re.compile(rf"{TARGET_MARKER}\W{{0,3}}{_YEAR}(?!\w)"),
)


def cut(left: str, right: str, window: int, words: str) -> str:
    """A mask with at most `window` characters of the text on each side of it, and no part of a marker.

    words: at the ends they are `cut`, as in ACL-200, RefSeer and Gu et al. 2022, or only `whole` ones stand.

    >>> cut("we use parsers (", ") here", 11, "cut")
    'e parsers (TARGETCIT) here'
    """
    start, end = max(0, len(left) - window), min(len(right), window)
    if words == "whole":
        while 0 < start < len(left) and not (left[start - 1].isspace() or left[start].isspace()):
            start += 1
        while 0 < end < len(right) and not (right[end - 1].isspace() or right[end].isspace()):
            end -= 1
    for other in re.finditer(OTHER_MARKER, left):
        if other.start() < start < other.end():
            start = other.end()
    for other in re.finditer(OTHER_MARKER, right):
        if other.start() < end < other.end():
            end = other.start()
    return f"{left[start:].lstrip()}{TARGET_MARKER}{right[:end].rstrip()}"


def leak(text: str, surnames: Sequence[str]) -> str | None:
    """What a context gives away of the cited paper, or None.

    An author: one of `surnames` is named in it (any_named). A year: see years_beside.
    """
    if years_beside(text):
        return "a year is beside the mask"
    if any_named(fold(text), surnames):
        return "an author of the cited paper is named"
    return None


def years_beside(text: str) -> list[int]:
    """The years of 1900 to 2099 beside the mask, at most three characters between, no letters or digits.

    >>> years_beside("was shown (Lee, 2010; TARGETCIT)")
    [2010]
    """
    return [int(match[1]) for side in _YEARS_BESIDE for match in side.finditer(text)]


def any_named(folded: str, surnames: Iterable[str]) -> bool:
    """Whether one of the surnames, folded as the text is and of three letters or more, is a word of it."""
    return any(
        len(name) > 2 and name in folded and re.search(rf"(?<!\w){re.escape(name)}(?!\w)", folded)
        for name in surnames
    )


WORDS = ("cut", "whole")


@dataclass(frozen=True)
class Rules:
    """Which contexts are cut and kept; see build_corpus."""

    window: int
    words: str
    shortest: int
    per_pair: int | None
    seed: int

    def __post_init__(self) -> None:
        least = {"window": 1, "shortest": 0, "per_pair": 1, "seed": 0}
        for name, smallest in least.items():
            value = getattr(self, name)
            if value is None and name == "per_pair":
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < smallest:
                raise InputError(f"{name}: must be a whole number of {smallest} or more, not {value!r}")
        if self.words not in WORDS:
            raise InputError(f"words: {self.words!r} is not one of {', '.join(WORDS)}")
        if self.shortest > 2 * self.window:
            raise InputError(f"shortest: {self.shortest} is more than two windows of {self.window} hold")


def select(
    full_text: FullText, citing: int, catalogue: Catalogue, rules: Rules, counts: Mapping[str, Counter[str]]
) -> Iterator[tuple[int, int, str]]:
    """(row of the cited paper, number among the contexts of the pair, masked text), pair by pair.

    citing: row of the paper. counts: those of the report.
    """
    rows: dict[str, int | None] = {}
    pairs: dict[int, list[str]] = {}
    texts: set[str] = set()
    outcomes = counts["contexts"]
    for citation in citations(full_text, rules.window + len(OTHER_MARKER), counts["spans"]):
        outcomes["citations"] += 1
        reference = full_text.references[citation.ref]
        if citation.ref not in rows:
            rows[citation.ref], how = resolve(reference, catalogue)
            counts["references"][how] += 1
        cited = rows[citation.ref]
        if cited is None:
            outcomes["the cited paper was not found"] += 1
        elif cited == citing:
            outcomes["the paper cites itself"] += 1
        else:
            text = cut(citation.left, citation.right, rules.window, rules.words)
            bare = text.replace(TARGET_MARKER, "").replace(OTHER_MARKER, "").strip()
            if len(bare) < max(1, rules.shortest):
                outcomes["too short"] += 1
            elif reason := leak(text, _surnames(reference, cited, catalogue)):
                outcomes[reason] += 1
            elif text in texts:
                outcomes["the same text as another context of the paper"] += 1
            else:
                texts.add(text)
                pairs.setdefault(cited, []).append(text)
    for cited, contexts in pairs.items():
        kept = list(range(len(contexts)))
        if rules.per_pair is not None and len(contexts) > rules.per_pair:
            outcomes["more than per_pair of one pair"] += len(contexts) - rules.per_pair
            # By the pair alone, whatever else is read.
            draw = random.Random(f"{rules.seed} {catalogue.ids[citing]} {catalogue.ids[cited]}")
            kept = sorted(draw.sample(kept, rules.per_pair))
        for number in kept:
            yield cited, number, contexts[number]


def _surnames(reference: Reference, cited: int, catalogue: Catalogue) -> list[str]:
    """Of the first authors, as the reference and the paper have them."""
    return catalogue.surnames(cited) + [surname(author) for author in reference.authors[:AUTHORS]]


_Years = Sequence[int | None] | None


class Splitting(Protocol):
    """Chooses by the citing paper, so that no paper cites in two splits."""

    settings: dict[str, Any]
    """What it was made with, for the report."""

    def __call__(self, paper: str, year: int) -> str | None:
        """The split of the contexts in a paper of that id and year (0: unknown); None: they are dropped."""


class RandomSplitting:
    """By a hash of seed and id: other papers in the collection change nothing.

    train, val, test: shares of the citing papers; what is missing to 1 is dropped.
    """

    def __init__(self, train: float, val: float, test: float, seed: int) -> None:
        shares = {"train": train, "val": val, "test": test}
        for name, share in shares.items():
            if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
                raise InputError(f"splitting.{name}: {share!r} is no share between 0 and 1")
        if sum(shares.values()) > 1 + 1e-9:
            raise InputError(f"splitting: the shares train, val and test add up to {sum(shares.values()):g}")
        self._shares = shares
        self._seed = seed
        self.settings: dict[str, Any] = {**shares, "seed": seed}

    def __call__(self, paper: str, year: int) -> str | None:
        digest = blake2b(f"{self._seed} {paper}".encode(), digest_size=8).digest()
        place = int.from_bytes(digest, "little") / 2**64
        for split, share in self._shares.items():
            place -= share
            if place < 0:
                return split
        return None


class YearSplitting:
    """By ranges of years [first, last], both included, None for an open end; None for a split not wanted.

    Other and unknown years are dropped. Gu et al. 2022, section 3, split by date: the latest contexts are for
    validation and test.
    """

    def __init__(self, train: _Years, val: _Years, test: _Years) -> None:
        given = dict(zip(SPLITS, (train, val, test), strict=True))
        self._ranges = {name: _range(name, years) for name, years in given.items() if years is not None}
        for name, (first, last) in self._ranges.items():
            for other, (begin, end) in self._ranges.items():
                if name < other and first <= end and begin <= last:
                    raise InputError(f"splitting: the years of {name} and {other} overlap")
        self.settings: dict[str, Any] = given

    def __call__(self, paper: str, year: int) -> str | None:
        if year:
            for split, (first, last) in self._ranges.items():
                if first <= year <= last:
                    return split
        return None


def _range(name: str, years: Sequence[int | None]) -> tuple[float, float]:
    if (
        not isinstance(years, list | tuple)
        or len(years) != 2
        or not all(year is None or type(year) is int for year in years)
    ):
        raise InputError(
            f"splitting.{name}: must be two years as [2019,2020], null for an open end; is {years!r}"
        )
    first = float("-inf") if years[0] is None else years[0]
    last = float("inf") if years[1] is None else years[1]
    if first > last:
        raise InputError(f"splitting.{name}: {years[0]} is after {years[1]}")
    return first, last
