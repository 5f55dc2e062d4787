"""Contexts cut from a full text: the text around each citation, with all other markers masked as OTHERCIT.

`citations` gives all of them, `cut` their windows, `leak` what a window gives away of the cited paper;
`select` chooses those that become contexts of the corpus.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from datasets.errors import InputError
from datasets.fulltext.catalogue import AUTHORS, Catalogue, fold, surname
from datasets.fulltext.documents import CitationSpan, FullText, Paragraph, Reference
from datasets.fulltext.markers import Bibliography, Marker, find_markers, has_numbers
from datasets.records import MARKER_WORDS, OTHER_MARKER, TARGET_MARKER
from datasets.settings import Settings, setting

# What may stand between two markers of a group: separators, also a bracket that closes before one that opens.
_SEPARATORS = r"[\s,;&/–—−‐-]*"
_BETWEEN = re.compile(rf"{_SEPARATORS}|\]{_SEPARATORS}\[|\){_SEPARATORS}\(")
_MARKER_WORD = re.compile("(target|other)(cit)", re.IGNORECASE)
_SPACE = re.compile(r"\s\s+|[^\S ]")
_YEAR = r"(?<!\d)((?:19|20)\d\d)[a-z]?"
_YEARS_BESIDE = (
    re.compile(rf"{_YEAR}\W{{0,3}}{TARGET_MARKER}"),
    re.compile(rf"{TARGET_MARKER}\W{{0,3}}{_YEAR}(?!\w)"),
)
MOST_UNRESOLVED = 100_000
"""References without a paper that are listed."""


@dataclass(frozen=True)
class ContextRules(Settings):
    """Which contexts are cut and kept; `shortest`, `per_pair` and `leaks` are rules of this project.

    window: characters on each side of a mask at most. words: those at the ends are `cut`, as in ACL-200,
    RefSeer and Gu et al. 2022, or only `whole` ones are kept. shortest: characters beside the masks that a
    context needs. per_pair: contexts of one citing and one cited paper at most, drawn by `seed`; None: all.
    leaks: `drop` or `keep` contexts that name an author of the cited paper or have a year beside the mask.
    """

    window: int = setting(200, least=1)
    words: str = setting("cut", choices=("cut", "whole"))
    shortest: int = 50
    per_pair: int | None = setting(5, least=1)
    seed: int = 0
    leaks: str = setting("drop", choices=("drop", "keep"))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shortest > 2 * self.window:
            raise InputError(f"shortest: {self.shortest} is more than two windows of {self.window} hold")


def select_contexts(
    full_text: FullText,
    citing: int,
    catalogue: Catalogue,
    rules: ContextRules,
    counts: Mapping[str, Counter[str]],
    unresolved: Counter[Reference],
) -> Iterator[tuple[int, int, str]]:
    """(row of the cited paper, number among the contexts of the pair, masked text), pair by pair.

    citing: row of the paper. counts, unresolved (references without a paper): those of the report.
    """
    resolved: dict[str, int | None] = {}
    pairs: dict[int, list[str]] = {}
    texts: set[str] = set()
    outcomes = counts["contexts"]
    for citation in citations(full_text, rules.window + len(OTHER_MARKER), counts["spans"]):
        outcomes["citations"] += 1
        reference = full_text.references[citation.ref]
        if citation.ref not in resolved:
            resolved[citation.ref], how = catalogue.resolve(reference)
            counts["references"][how] += 1
        cited = resolved[citation.ref]
        if cited is None:
            outcomes["the cited paper was not found"] += 1
            if reference in unresolved or len(unresolved) < MOST_UNRESOLVED:
                unresolved[reference] += 1
            continue
        if cited == citing:
            outcomes["the paper cites itself"] += 1
            continue
        text = cut_window(citation.left, citation.right, rules.window, rules.words)
        bare = text.replace(TARGET_MARKER, "").replace(OTHER_MARKER, "").strip()
        # Of the first authors, as the reference and the paper have them.
        names = catalogue.surnames(cited) + [surname(author) for author in reference.authors[:AUTHORS]]
        if len(bare) < max(1, rules.shortest):
            outcomes["too short"] += 1
        elif rules.leaks == "drop" and (reason := find_leak(text, names)):
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


class CitationContext(NamedTuple):
    """The entry of the bibliography that is cited, and the text before and after the marker."""

    ref: str
    left: str
    right: str


def citations(full_text: FullText, reach: int, spans: Counter[str]) -> Iterator[CitationContext]:
    """The citations of entries of the bibliography, in the order of the text.

    reach: characters of text on each side at least, if the section has them; the outermost may be part of a
    marker.
    spans: counts the spans that are dropped, as they lie outside of their paragraph, or only masked.
    """
    bibliography = Bibliography(full_text.references)
    numbers = has_numbers(full_text.paragraphs)
    for _, paragraphs in groupby(full_text.paragraphs, key=lambda paragraph: paragraph.section):
        text, cites = _joined(paragraphs, full_text, spans)
        if cites:
            yield from _of_section(text, find_markers(text, cites, bibliography, numbers), reach)


def _joined(
    paragraphs: Iterator[Paragraph], full_text: FullText, counts: Counter[str]
) -> tuple[str, list[CitationSpan]]:
    """The text of a section, and its spans with offsets in that text."""
    texts: list[str] = []
    spans: list[CitationSpan] = []
    length = 0
    for text, own, _ in paragraphs:
        for start, end, ref in own:
            if not 0 <= start < end <= len(text):
                counts["outside of the paragraph, dropped"] += 1
                continue
            if ref is None:
                counts["of no reference, masked"] += 1
            elif ref not in full_text.references:
                counts["of a reference that the bibliography lacks, masked"] += 1
                ref = None
            spans.append(CitationSpan(length + start, length + end, ref))
        texts.append(text)
        length += len(text) + 1
    return "\n".join(texts), spans


def _of_section(text: str, markers: list[Marker], reach: int) -> Iterator[CitationContext]:
    groups: list[list[Marker]] = []
    for marker in markers:
        if groups and _BETWEEN.fullmatch(text[groups[-1][-1].end : marker.start] + marker.opening):
            groups[-1].append(marker)
        else:
            groups.append([marker])
    # `masked` is the section with all groups as OTHERCIT, which stand at `places`.
    pieces: list[str] = []
    places: list[int] = []
    length = done = 0
    for group in groups:
        piece = _plain(text[done : group[0].start]) + group[0].opening
        places.append(length + len(piece))
        pieces += (piece, OTHER_MARKER)
        length = places[-1] + len(OTHER_MARKER)
        done = group[-1].end
    masked = "".join([*pieces, _plain(text[done:])])
    for group, place in zip(groups, places, strict=True):
        end = place + len(OTHER_MARKER)
        for number, marker in enumerate(group):
            left, right = masked[max(0, place - reach) : place], masked[end : end + reach]
            if number > 0:
                left += OTHER_MARKER + _between(text, group[number - 1], marker)
            if number + 1 < len(group):
                right = _between(text, marker, group[number + 1]) + OTHER_MARKER + right
            for ref in marker.refs:
                yield CitationContext(ref, left, right)


def _between(text: str, marker: Marker, following: Marker) -> str:
    text = _plain(text[marker.end : following.start] + following.opening)
    return text if text and text[-1] not in ",;" else f"{text} "


def _plain(text: str) -> str:
    """Text between markers: single spaces, apart from the markers, without words that look like them."""
    if any(word in text.lower() for word in MARKER_WORDS):
        text = _MARKER_WORD.sub(r"\1 \2", text)
    text = _SPACE.sub(" ", text)
    # A letter or digit beside a marker ("word5") would be read as one word with it.
    return " " * text[:1].isalnum() + text + " " * text[-1:].isalnum()


def cut_window(left: str, right: str, window: int, words: str) -> str:
    """A mask with at most `window` characters of text on each side, and no part of a marker.

    >>> cut_window("we use parsers (", ") here", 11, "cut")
    'e parsers (TARGETCIT) here'
    >>> cut_window("we use parsers (", ") here", 11, "whole")
    'parsers (TARGETCIT) here'
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


def find_leak(text: str, surnames: Sequence[str]) -> str | None:
    """What a context gives away of the cited paper, whose authors have these surnames; None for nothing."""
    if years_beside(text):
        return "a year is beside the mask"
    if any_named(fold(text), surnames):
        return "an author of the cited paper is named"
    return None


def years_beside(text: str) -> list[int]:
    """The years 1900 to 2099 beside the mask, with at most three characters between, no letters or digits.

    >>> years_beside("was shown (Lee, 2010; TARGETCIT)")
    [2010]
    """
    return [int(match[1]) for side in _YEARS_BESIDE for match in side.finditer(text)]


def any_named(folded: str, surnames: Iterable[str]) -> bool:
    """Whether one of the surnames of three letters or more is a word of the text; both are folded."""
    return any(
        len(name) > 2 and name in folded and re.search(rf"(?<!\w){re.escape(name)}(?!\w)", folded)
        for name in surnames
    )
