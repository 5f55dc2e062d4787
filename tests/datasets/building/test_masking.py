"""Markers, masks and windows: citation styles by example, and properties of any text."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citerec.datasets.building.contexts import CitationContext, find_citations, find_leak
from citerec.datasets.records import OTHER_MARKER, TARGET_MARKER
from citerec.datasets.tokenize import cut_window
from citerec.formats.articles.markers import Bibliography, find_markers, has_numbers
from citerec.formats.documents import CitationSpan, FullText, Paragraph, Reference

REFERENCES = {
    "smith": Reference(authors=("John Smith", "Ann Jones", "Bo Li")),
    "lee": Reference(authors=("Lee, Kai", "Diaz, Mo")),
    "maaten": Reference(authors=("van der Maaten, Laurens", "Hinton, Geoffrey")),
    "unknown": Reference(title="Nobody knows by whom"),
}


def marked_up(text: str) -> tuple[str, list[CitationSpan]]:
    """Parse text and spans: {smith:[5]} is a span "[5]" that cites smith, {:[5]} cites an unknown paper."""
    plain, cites = "", []
    for piece in re.split(r"(\{\w*:[^{}]*\})", text):
        if piece.startswith("{"):
            ref, _, marker = piece[1:-1].partition(":")
            cites.append(CitationSpan(len(plain), len(plain) + len(marker), ref or None))
            plain += marker
        else:
            plain += piece
    return plain, cites


def masked(text: str) -> str:
    """The text with refs in place of markers, * if unknown."""
    plain, cites = marked_up(text)
    paragraph = Paragraph(plain, cites)
    result, done = "", 0
    for marker in find_markers(plain, cites, Bibliography(REFERENCES), has_numbers([paragraph])):
        result += plain[done : marker.start] + marker.opening + ("/".join(marker.refs) or "*").upper()
        done = marker.end
    return result + plain[done:]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # numbers, and names before them
        ("as {smith:[5]} show", "as [SMITH] show"),
        ("Smith et al. {smith:[5]} show", "[SMITH] show"),
        ("Smith et al {smith:[5]} show", "[SMITH] show"),
        ("However, Smith, Jones and Li {smith:[5]} show", "However, [SMITH] show"),
        ("However, Smith, Jones, and Li {smith:[5]} show", "However, [SMITH] show"),
        ("of van der Maaten and Hinton {maaten:[5]} show", "of [MAATEN] show"),
        ("J. Smith and colleagues {smith:[5]} show", "[SMITH] show"),
        ("in Smith's work {smith:[5]}, Lee's {lee:[6]}", "in Smith's work [SMITH], [LEE]"),
        ("the Adam {smith:[5]} optimiser", "the Adam [SMITH] optimiser"),
        ("Smith {lee:[6]} is another", "Smith [LEE] is another"),
        ("{smith:[5}, {lee:6]}", "[SMITH, LEE]"),
        ("{smith:[5]}–{lee:[7]}", "[SMITH]–[LEE]"),
        ("words{smith:5},{lee:6} in superscript", "wordsSMITH,LEE in superscript"),
        # names and years
        ("{smith:Smith et al. (2010)} show", "SMITH show"),
        ("Smith et al. {smith:(2010)} show", "(SMITH) show"),
        ("Smith et al. ({smith:2010}) show", "(SMITH) show"),
        ("{smith:Smith et al.} (2010) show", "SMITH show"),
        ("{smith:Smith et al.} [5] {smith:[5]}", "SMITH [*] [SMITH]"),
        ("{smith:Smith et al.} {smith:[5]} show", "[SMITH] show"),
        ("Lee and Diaz {lee:(2011)} show", "(LEE) show"),
        ("Lee & Diaz ({lee:2011}) show", "(LEE) show"),
        ("Lee {lee:(2011)} and Smith {smith:(2010)}", "(LEE) and (SMITH)"),
        ("Nobody {unknown:(2011)} show", "(UNKNOWN) show"),
        ("in {smith:(Smith et al., 2010;} {lee:Lee and Diaz, 2011)}", "in (SMITH; LEE)"),
        ("in (Smith et al., {smith:2010}, {lee:2012})", "in (SMITH, LEE)"),
        ("in (see {smith:Smith, 2010}, p. 5)", "in (see SMITH, p. 5)"),
        ("in {smith:(Smith et al., 2010}, 2012)", "in (SMITH)"),
        # markers without a span
        ("in (Peters et al., 2011) and {smith:[5]}", "in (*) and [SMITH]"),
        ("in (Peters, 2011a; Foo and Bar, 1999) or (cf. Peters, 2010)", "in (*; *) or (cf. *)"),
        ("Peters et al. (2011) and Peters et al. show", "* and * show"),
        ("Peters and Baker (2011), Peters (2012), Lee 2011", "(*), (*), *"),
        ("Lee and Diaz show, O’Brien and Diaz show", "* show, O’Brien and Diaz show"),
        ("De Marneffe et al., 2008, Łukasz et al. 2009", "*, *"),
        ("{smith:[5]} and [6, 7–9] or [12] but [0, 1], [a]", "[SMITH] and [*, *–*] or [*] but [0, 1], [a]"),
        ("{smith:[5}, 6, {lee:8]}", "[SMITH, *, LEE]"),
        ("no numbers [6] where {smith:Smith et al., 2010}", "no numbers [6] where SMITH"),
        # not markers
        ("In May 2010 and in (2010) ImageNet 2012 had 1,000 classes in 1999/2000 of 2000%", None),
        ("Research and Development, Alice and Bob", None),
        # overlapping spans are merged
        ("in {smith:[5]} only", "in [SMITH] only"),
        ("a {:[5]} b", "a [*] b"),
    ],
)  # fmt: skip
def test_marker_styles(text: str, expected: str | None) -> None:
    assert masked(text) == (text if expected is None else expected)


def test_overlapping_spans_are_merged_into_one_marker() -> None:
    text = "as in [5-7], and so on"
    cites = [CitationSpan(6, 11, "smith"), CitationSpan(7, 8, "lee"), CitationSpan(9, 13, "smith")]
    (marker,) = find_markers(text, cites, Bibliography(REFERENCES), True)
    assert (text[marker.start : marker.end], marker.refs) == ("5-7", ("smith", "lee"))


def contexts(text: str, window: int = 200, words: str = "cut") -> list[tuple[str, str]]:
    result = found_in(*marked_up(text), window + len(OTHER_MARKER))
    return [(ref, cut_window(left, right, window, words)) for ref, left, right, _ in result]


def test_the_target_and_its_surroundings() -> None:
    text = "We follow {smith:[1}, {lee:2}, {maaten:3}, {unknown:4]} as  Lee and Diaz\n{lee:[2]} did.{smith:1}"
    assert contexts(text) == [
        ("smith", "We follow [TARGETCIT, OTHERCIT] as [OTHERCIT] did.OTHERCIT"),
        ("lee", "We follow [OTHERCIT, TARGETCIT, OTHERCIT] as [OTHERCIT] did.OTHERCIT"),
        ("maaten", "We follow [OTHERCIT, TARGETCIT, OTHERCIT] as [OTHERCIT] did.OTHERCIT"),
        ("unknown", "We follow [OTHERCIT, TARGETCIT] as [OTHERCIT] did.OTHERCIT"),
        ("lee", "We follow [OTHERCIT] as [TARGETCIT] did.OTHERCIT"),
        ("smith", "We follow [OTHERCIT] as [OTHERCIT] did.TARGETCIT"),
    ]


@pytest.mark.parametrize(
    ("window", "words", "expected"),
    [
        (7, "cut", "arsers TARGETCIT for it"),
        (10, "cut", "] parsers TARGETCIT for it."),
        (17, "cut", "] parsers TARGETCIT for it."),
        (18, "cut", "OTHERCIT] parsers TARGETCIT for it."),
        (21, "cut", "w [OTHERCIT] parsers TARGETCIT for it."),
        (99, "cut", "we follow [OTHERCIT] parsers TARGETCIT for it."),
        (7, "whole", "TARGETCIT for"),
        (8, "whole", "parsers TARGETCIT for it."),
        (21, "whole", "[OTHERCIT] parsers TARGETCIT for it."),
    ],
)
def test_the_ends_of_a_window(window: int, words: str, expected: str) -> None:
    assert cut_window("we follow [OTHERCIT] parsers ", " for it.", window, words) == expected


def test_masks_are_separated_from_words_and_words_like_masks_are_changed() -> None:
    assert contexts("word{smith:5}{lee:6}next") == [
        ("smith", "word TARGETCIT OTHERCIT next"),
        ("lee", "word OTHERCIT TARGETCIT next"),
    ]
    assert contexts("the word TARGETCIT, othercit {smith:[5]}") == [
        ("smith", "the word TARGET CIT, other cit [TARGETCIT]")
    ]


def test_windows_continue_in_the_next_paragraph_but_not_in_the_next_section() -> None:
    paragraphs = [
        Paragraph("The first one [1].", [CitationSpan(15, 16, "smith")], "one"),
        Paragraph("The second [2].", [CitationSpan(12, 13, "lee")], "one"),
        Paragraph("Of another section [1].", [CitationSpan(20, 21, "smith")], "two"),
    ]
    result = find_citations(FullText(paragraphs, REFERENCES), 300, Counter())
    assert [cut_window(left, right, 200, "cut") for _, left, right, _ in result] == [
        "The first one [TARGETCIT]. The second [OTHERCIT].",
        "The first one [OTHERCIT]. The second [TARGETCIT].",
        "Of another section [TARGETCIT].",
    ]


def test_invalid_spans_are_counted() -> None:
    text = "One [1] and two [2]."
    cites = [CitationSpan(5, 6, "smith"), CitationSpan(17, 18, "gone"), CitationSpan(17, 18, None)]
    cites += [CitationSpan(start, end, "lee") for start, end in ((5, 99), (-3, 2), (7, 7), (8, 3))]
    counts: Counter[str] = Counter()
    result = list(find_citations(FullText([Paragraph(text, cites)], REFERENCES), 50, counts))
    assert [(ref, cut_window(left, right, 50, "cut")) for ref, left, right, _ in result] == [
        ("smith", "One [TARGETCIT] and two [OTHERCIT].")
    ]
    assert counts == {
        "outside of the paragraph, dropped": 4,
        "of a reference that the bibliography lacks, masked": 1,
        "of no reference, masked": 1,
    }


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("the lattice decoder of Müller (TARGETCIT)", "author"),
        ("the Muller's decoder (TARGETCIT)", "author"),
        ("muller is a miller, Müllerian too (TARGETCIT)", None),
        ("Li is short (TARGETCIT)", None),
        ("van der Maaten (TARGETCIT)", "author"),
        ("TARGETCIT (2010)", "year"),
        ("TARGETCIT, 2010b.", "year"),
        ("in 1999 (TARGETCIT)", "year"),
        ("in 1999 and later (TARGETCIT)", None),
        ("TARGETCIT 20101 and 1850", None),
    ],
)
def test_leaks(text: str, reason: str | None) -> None:
    result = find_leak(text, ["Muller", "Li", "Maaten"])
    assert result is None if reason is None else result is not None and reason in result


# Property tests: words with all kinds of letters, and citations in common styles.

WORDS = st.text(
    st.one_of(
        st.characters(codec="utf-8", exclude_categories=["Cs"]),
        st.sampled_from(" \n([{)]},;.-–'0123456789abcABC😀🜁é\u0301"),
    ),
    max_size=25,
)
FORMS = {
    "smith": [
        "[5]",
        "(Smith et al., 2010)",
        "Smith et al. (2010)",
        "Smith, Jones, and Li [5]",
        "5",
        "(2010)",
    ],
    "lee": ["[6]", "(Lee and Diaz, 2011)", "Lee and Diaz (2011)", "Lee & Diaz [6]", "6", "Lee and Diaz"],
    "unknown": ["[9]", "(Nobody, 1999)", "Nobody (1999)", "(Nobody et al., 1999b)"],
}
WITHOUT_SPANS = ["(Smith et al., 2010)", "Smith et al.", "Lee and Diaz (2011)", "(Peters, 1999)", "[7]"]
OVERLOOKED = st.sampled_from(WITHOUT_SPANS)
CITATION = st.sampled_from([(ref, form) for ref, forms in sorted(FORMS.items()) for form in forms])
PIECES = st.lists(st.one_of(WORDS, CITATION, OVERLOOKED), min_size=1, max_size=12)
ODD_SPANS = st.lists(
    st.builds(
        CitationSpan, st.integers(-5, 120), st.integers(-5, 160), st.sampled_from([*REFERENCES, "gone", None])
    ),
    max_size=3,
)
AUTHOR_YEAR = re.compile(r"\b(?:Smith|Lee|Nobody|Peters)(?: et al\.| and Diaz)?,? \(?(?:19|20)\d\d")


def assembled(pieces: list[str | tuple[str, str]], between: str = "") -> tuple[str, list[CitationSpan]]:
    """Join words and citations into a text; also returns the citation spans."""
    text, cites = "", []
    for piece in pieces:
        text += between
        if isinstance(piece, tuple):
            cites.append(CitationSpan(len(text), len(text) + len(piece[1]), piece[0]))
        text += piece if isinstance(piece, str) else piece[1]
    return text, cites


def found_in(text: str, cites: list[CitationSpan], reach: int) -> list[CitationContext]:
    return list(find_citations(FullText([Paragraph(text, cites)], REFERENCES), reach, Counter()))


@given(PIECES, ODD_SPANS, st.integers(1, 200), st.sampled_from(["cut", "whole"]))
def test_every_context_has_one_mask_and_fits_the_window(
    pieces: list[str | tuple[str, str]], odd: list[CitationSpan], window: int, words: str
) -> None:
    text, cites = assembled(pieces)
    for ref, left, right, _ in found_in(text, odd + cites, window + len(OTHER_MARKER)):
        context = cut_window(left, right, window, words)
        assert ref in REFERENCES
        assert context.count(TARGET_MARKER) == 1
        before, after = context.split(TARGET_MARKER)
        assert len(before) <= window and len(after) <= window
        for side in (before, after):  # no partial and no adjacent markers
            assert not re.search(r"THERCIT|OTHERCI", side.replace(OTHER_MARKER, ""))
            assert not re.search(rf"{OTHER_MARKER}[\s,;&–-]*{OTHER_MARKER}", side)


@given(st.lists(st.one_of(st.text("abc xyz.,😀🜁", min_size=1, max_size=25), CITATION), max_size=12))
def test_no_author_or_year_of_a_citation_remains(pieces: list[str | tuple[str, str]]) -> None:
    for _, left, right, _ in found_in(*assembled(pieces, " "), 500):
        assert not AUTHOR_YEAR.search(left + right)
        assert not re.search(r"et al|Smith|Diaz|Nobody|19|20", left + right)


@given(st.lists(st.tuples(st.text("abcxyz 😀🜁", min_size=1, max_size=25), CITATION), max_size=8))
def test_masks_match_a_plain_replacement(parts: list[tuple[str, tuple[str, str]]]) -> None:
    """Compare with an oracle that inserts the masks between the words directly."""
    text, cites = "", []
    for words, (ref, _) in parts:
        text += f" a{words}z ["
        cites.append(CitationSpan(len(text), len(text) + 1, ref))
        text += "5]"
    result = found_in(text, cites, 10_000)
    assert len(result) == len(parts)
    for place, (ref, left, right, _) in enumerate(result):
        marks = [TARGET_MARKER if other == place else OTHER_MARKER for other in range(len(parts))]
        pasted = "".join(f" a{words}z [{mark}]" for (words, _), mark in zip(parts, marks, strict=True))
        assert ref == parts[place][1][0]
        assert (left + TARGET_MARKER + right).split() == pasted.split()


NAMES = st.lists(st.sampled_from(["Lee", "Diaz, Mo", "van der Maaten", "Ann Jones", ""]), max_size=4)


@given(st.dictionaries(st.sampled_from("abcd"), NAMES, min_size=1), st.data())
def test_an_entry_without_its_authors_is_as_if_it_were_read_so(
    authors: dict[str, list[str]], data: st.DataObject
) -> None:
    references = {ref: Reference(authors=tuple(names)) for ref, names in authors.items()}
    ref = data.draw(st.sampled_from(sorted(references)))
    whole, expected = Bibliography(references), Bibliography(references | {ref: Reference()})
    result, before = whole.without_authors(ref), (whole.everyone, whole.pairs)
    assert (result.everyone, result.pairs) == (expected.everyone, expected.pairs)
    assert all(result.surnames([item]) == expected.surnames([item]) for item in references)
    assert (whole.everyone, whole.pairs) == before
