"""Extract contexts from a full text: the text around each citation, other markers masked as OTHERCIT.

`find_citations` yields all citations, `cut_window` cuts the text around one, `find_leak` detects windows that
name an author of the cited paper or have a year next to the mask, and `select_contexts` chooses the contexts
of the corpus.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from citerec.base.errors import InputError
from citerec.base.settings import Settings, setting
from citerec.datasets.records import MARKER_WORDS, OTHER_MARKER, TARGET_MARKER
from citerec.datasets.tokenize import cut_window
from citerec.formats.articles.markers import Bibliography, Marker, find_markers, has_numbers
from citerec.formats.documents import CitationSpan, FullText, Paragraph, Reference
from citerec.formats.letters import fold
from citerec.formats.names import surname

if TYPE_CHECKING:
    from citerec.datasets.building.catalogue import Catalogue

# Allowed between two markers of a group: separators, or a closing and an opening bracket.
_SEPARATORS = r"[\s,;&/–—−‐-]*"
_BETWEEN = re.compile(rf"{_SEPARATORS}|\]{_SEPARATORS}\[|\){_SEPARATORS}\(")
_MARKER_WORD = re.compile("(target|other)(cit)", re.IGNORECASE)
_SPACE = re.compile(r"\s\s+|[^\S ]")
_YEAR = r"(?<!\d)((?:19|20)\d\d)[a-z]?"
_ADJACENT_YEARS = (
    re.compile(rf"{_YEAR}\W{{0,3}}{TARGET_MARKER}"),
    re.compile(rf"{TARGET_MARKER}\W{{0,3}}{_YEAR}(?!\w)"),
)
MAX_UNRESOLVED = 100_000
"""Maximum number of references without a paper that are listed."""


@dataclass(frozen=True)
class ContextRules(Settings):
    """Rules by which contexts are cut and selected.

    `shortest`, `per_pair` and `leaks` are rules of this project; Gu et al. 2022 use shortest=0 per_pair=null
    leaks=keep.
    """

    window: int = setting(200, least=1)
    """maximum characters on each side of a citation"""
    words: str = setting("cut", choices=("cut", "whole"))
    """words at the ends of a window: cut (as in the published data sets) | whole"""
    shortest: int = 50
    """minimum characters of a context, not counting markers"""
    per_pair: int | None = setting(5, least=1)
    """maximum contexts per pair of citing and cited paper, sampled; null: all"""
    seed: int = 0
    """random seed"""
    leaks: str = setting("drop", choices=("drop", "keep", "named"))
    """contexts that name an author of the cited paper, or have a year next to the marker: drop | keep | named
    (drop, but those with the first author's name make splits of their own and keep the names before it)"""
    candidates: str = setting("abstract", choices=("abstract", "title"))
    """what papers need: abstract (a title and an abstract) | title (only a title)"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shortest > 2 * self.window:
            raise InputError(
                f"shortest: {self.shortest} is more than two windows of {self.window} characters"
            )


def select_contexts(
    full_text: FullText,
    citing: int,
    catalogue: Catalogue,
    rules: ContextRules,
    counts: Mapping[str, Counter[str]],
    unresolved: Counter[Reference],
) -> Iterator[SelectedContext]:
    """Yield the contexts of a paper in the order of its text.

    citing: row of the citing paper. counts, unresolved (references without a paper): updated for the report.
    """
    from citerec.datasets.building.catalogue import AUTHORS  # cutting a context needs no catalogue

    resolved: dict[str, int | None] = {}
    pairs: dict[tuple[int, bool], dict[str, int]] = {}  # texts, and their places
    outcomes = counts["contexts"]
    citations = find_citations(full_text, rules.window + len(OTHER_MARKER), counts["spans"])
    for place, citation in enumerate(citations):
        outcomes["citations"] += 1
        reference = full_text.references[citation.ref]
        if citation.ref not in resolved:
            resolved[citation.ref], how = catalogue.resolve(reference)
            counts["references"][how] += 1
        cited = resolved[citation.ref]
        if cited is None:
            outcomes["the cited paper was not found"] += 1
            if reference in unresolved or len(unresolved) < MAX_UNRESOLVED:
                unresolved[reference] += 1
            continue
        if cited == citing:
            outcomes["self-citation"] += 1
            continue
        text = cut_window(citation.left, citation.right, rules.window, rules.words)
        named = False
        if rules.leaks == "named":
            with_names = cut_window(citation.named, citation.right, rules.window, rules.words)
            first = [*catalogue.surnames(cited)[:1], *map(surname, reference.authors[:1])]
            if named := names_any(fold(with_names), first):
                text = with_names
        bare = text.replace(TARGET_MARKER, "").replace(OTHER_MARKER, "").strip()
        # First authors, according to both the paper and the reference.
        names = catalogue.surnames(cited) + [surname(author) for author in reference.authors[:AUTHORS]]
        if len(bare) < max(1, rules.shortest):
            outcomes["too short"] += 1
        elif rules.leaks != "keep" and not named and (reason := find_leak(text, names)):
            outcomes[reason] += 1
        elif text in pairs.setdefault((cited, named), {}):
            outcomes["the same text as another context of the pair"] += 1
        else:
            pairs[cited, named][text] = place
    chosen = list[tuple[int, SelectedContext]]()
    for (cited, named), contexts in pairs.items():
        placed = [*contexts.items()]
        kept: Sequence[int] = range(len(placed))
        if rules.per_pair is not None and len(contexts) > rules.per_pair:
            outcomes["more than per_pair for one pair"] += len(contexts) - rules.per_pair
            # Seeded by the pair, so that the sample does not depend on other papers.
            draw = random.Random(f"{rules.seed} {catalogue.ids[citing]} {catalogue.ids[cited]}")
            kept = draw.sample(kept, rules.per_pair)
        for number in kept:
            text, place = placed[number]
            chosen.append((place, SelectedContext(cited, number, text, named)))
    yield from (context for _, context in sorted(chosen))


class SelectedContext(NamedTuple):
    """A context: the row of the cited paper, its number within the pair, and the masked text.

    named: it has the name of the cited paper's first author (leaks=named).
    """

    cited: int
    number: int
    text: str
    named: bool


class CitationContext(NamedTuple):
    """A cited bibliography entry, and the text before and after its marker.

    named: `left` with the names that the marker begins with.
    """

    ref: str
    left: str
    right: str
    named: str


def find_citations(
    full_text: FullText, reach: int, spans: Counter[str], bibliography: Bibliography | None = None
) -> Iterator[CitationContext]:
    """Yield the citations of bibliography entries in text order.

    reach: minimum number of characters on each side, if the section has them; the outermost may be part of a
    marker. spans: counts the spans that are masked only, or dropped because they are outside their paragraph.
    bibliography: that of the references, if known; making it anew for each section of a thesis takes seconds.
    """
    bibliography = bibliography or Bibliography(full_text.references)
    numbers = has_numbers(full_text.paragraphs)
    for _, paragraphs in groupby(full_text.paragraphs, key=lambda paragraph: paragraph.section):
        text, cites = _join_paragraphs(paragraphs, full_text, spans)
        if cites:
            yield from _section_citations(text, find_markers(text, cites, bibliography, numbers), reach)


def _join_paragraphs(
    paragraphs: Iterator[Paragraph], full_text: FullText, counts: Counter[str]
) -> tuple[str, list[CitationSpan]]:
    """Join the paragraphs of a section; returns the text, and the spans with offsets in that text."""
    texts: list[str] = []
    spans: list[CitationSpan] = []
    length = 0
    for text, own, *_ in paragraphs:
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


def _section_citations(text: str, markers: list[Marker], reach: int) -> Iterator[CitationContext]:
    groups: list[list[Marker]] = []
    for marker in markers:
        if groups and _BETWEEN.fullmatch(text[groups[-1][-1].end : marker.start] + marker.opening):
            groups[-1].append(marker)
        else:
            groups.append([marker])
    # `masked` is the section with all groups replaced by OTHERCIT, at the offsets `places`.
    pieces: list[str] = []
    places: list[int] = []
    length = done = 0
    for group in groups:
        piece = _clean_text(text[done : group[0].start]) + group[0].opening
        places.append(length + len(piece))
        pieces += (piece, OTHER_MARKER)
        length = places[-1] + len(OTHER_MARKER)
        done = group[-1].end
    masked = "".join([*pieces, _clean_text(text[done:])])
    for group, place in zip(groups, places, strict=True):
        end = place + len(OTHER_MARKER)
        for number, marker in enumerate(group):
            left, right = masked[max(0, place - reach) : place], masked[end : end + reach]
            if number > 0:
                left += OTHER_MARKER + _text_between(text, group[number - 1], marker)
            if number + 1 < len(group):
                right = _text_between(text, marker, group[number + 1]) + OTHER_MARKER + right
            named = left
            if marker.names:
                named, names = left.removesuffix(marker.opening), _clean_text(marker.names)
                named += names.lstrip() if named[-1:] in (" ", "(", "[") else names
            for ref in marker.refs:
                yield CitationContext(ref, left, right, named)


def _text_between(text: str, marker: Marker, following: Marker) -> str:
    text = _clean_text(text[marker.end : following.start] + following.opening)
    return text if text and text[-1] not in ",;" else f"{text} "


def _clean_text(text: str) -> str:
    """Clean text between markers: single spaces, separated from markers, no words that look like them."""
    if any(word in text.lower() for word in MARKER_WORDS):
        text = _MARKER_WORD.sub(r"\1 \2", text)
    text = _SPACE.sub(" ", text)
    # A letter or digit next to a marker ("word5") would merge with it into one word.
    return " " * text[:1].isalnum() + text + " " * text[-1:].isalnum()


def find_leak(text: str, surnames: Sequence[str]) -> str | None:
    """Return how a context leaks the cited paper, whose authors have these surnames; None if it does not."""
    if adjacent_years(text):
        return "a year next to the mask"
    if names_any(fold(text), surnames):
        return "an author of the cited paper is named"
    return None


def adjacent_years(text: str) -> list[int]:
    """The years 1900 to 2099 next to the mask, separated by at most three characters, no letters or digits.

    >>> adjacent_years("was shown (Lee, 2010; TARGETCIT)")
    [2010]
    """
    return [int(match[1]) for side in _ADJACENT_YEARS for match in side.finditer(text)]


def names_any(folded: str, surnames: Iterable[str]) -> bool:
    """True if a surname of three or more letters is a word of the text; both are folded."""
    return any(
        len(name) > 2 and name in folded and re.search(rf"(?<!\w){re.escape(name)}(?!\w)", folded)
        for name in surnames
    )
