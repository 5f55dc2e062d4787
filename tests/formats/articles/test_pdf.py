"""Text of PDFs: made papers come back word by word, in both orders of drawing."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citerec.base.errors import InputError
from citerec.formats.articles.pdf import PdfText, read_pdf
from citerec.tests.made_pdfs import BOLD, MadePaper, made_paper, place_text, write_pdf


def text_of(pdf: PdfText, section: str = "") -> str:
    return " ".join(part.text for part in pdf.paragraphs if part.section == section or not section)


@pytest.mark.parametrize("by_rows", [False, True])
def test_a_paper_comes_back_as_it_was_made(by_rows: bool) -> None:
    made = made_paper(3, 3000, by_rows)
    result = read_pdf(made.pdf())
    assert result.title == made.title
    assert result.abstract == made.abstract
    for heading, paragraphs in made.sections:
        assert text_of(result, heading) == " ".join(paragraphs)
    assert result.pages == 8
    assert "doi:10.5555/made.3" in result.first
    assert made.header not in text_of(result)
    assert made.references[0] not in text_of(result)


def test_each_page_of_a_paragraph_is_known() -> None:
    made = made_paper(1, 3000)
    result = read_pdf(made.pdf())
    crossing = [part for part in result.paragraphs if len(part.starts) > 1]
    assert crossing
    for part in crossing:
        (first, page), (offset, following) = part.starts
        assert (first, following) == (0, page + 1)
        only_there = read_pdf(one_page(made, following)).first
        begin = part.text[offset:].split()[1:4]  # the first word may begin on the page before
        assert " ".join(begin) in re.sub(r"\s+", " ", only_there)


def one_page(made: MadePaper, number: int) -> bytes:
    pages = list(made._pages())
    return write_pdf([made._page(number, *pages[number - 1])])


def test_an_abstract_on_the_line_of_its_heading_and_a_footnote_within_a_paragraph() -> None:
    page = [
        place_text(60, 740, "A title of large letters", 18, BOLD),
        place_text(60, 700, "Abstract. We measure what a reader of papers needs most of all.", 10),
        place_text(60, 660, "1 Introduction", 12, BOLD),
        place_text(60, 640, "The text of the first page goes on after its footnote, which is", 10),
        place_text(60, 80, "1 A footnote in small letters, which belongs to no sentence.", 7),
    ]
    after = place_text(60, 700, "in small letters, and it ends on the second page.", 10)
    result = read_pdf(write_pdf([b"".join(page), after]))
    assert result.abstract == "We measure what a reader of papers needs most of all."
    assert [part.text for part in result.paragraphs if part.section == "1 Introduction"] == [
        "The text of the first page goes on after its footnote, which is in small letters, and it ends on "
        "the second page.",
        "1 A footnote in small letters, which belongs to no sentence.",
    ]


def drawn(*lines: str, size: float = 10, font: bytes = b"", more: bytes = b"") -> str:
    """The paragraphs of a page with these lines. font: in place of the usual one; more: a further object."""
    page = b"".join(place_text(60, 700 - 12 * row, line, size) for row, line in enumerate(lines))
    usual = b"/Subtype /Type1 /BaseFont /Times-Roman /Encoding /WinAnsiEncoding"
    content = write_pdf([page]).replace(usual, font or usual).replace(b"xref\n", more + b"xref\n", 1)
    return "\n".join(part.text for part in read_pdf(content).paragraphs)


def test_lines_that_begin_with_high_signs_are_no_headings() -> None:
    lines = ["some of us ask for the means and errors", "(as we say) of all that is known and that we"]
    low = (
        b"/Subtype /TrueType /BaseFont /Low /Encoding /WinAnsiEncoding /FontDescriptor <<"
        b" /Type /FontDescriptor /FontName /Low /Flags 34 /Ascent 550 /Descent -150"
        b" /FontBBox [0 -150 1000 550] /ItalicAngle 0"
        b" /CapHeight 500 /StemV 80 >>"
    )
    lines += ["can measure in a large field where our", "(old) ones are, and not only in books."]
    assert drawn(*lines, font=low) == " ".join(lines)


def pictures(letters: bytes) -> tuple[bytes, bytes]:
    """A font whose letters are pictures, and the object with them."""
    font = b"/Subtype /Type3 /FontBBox [0 0 50 70] /FontMatrix [1 0 0 1 0 0] /FirstChar 0 /LastChar 122"
    font += b" /Widths [%s] /CharProcs << %s >> /Encoding << /Differences [32 /space %s] >>" % (
        b" ".join([b"50"] * 123),
        b" ".join(b"/%c 9 0 R" % letter if letter > 31 else b"/g%d 9 0 R" % letter for letter in letters),
        b" ".join(
            b"%d /%c" % (letter, letter) if letter > 31 else b"%d /g%d" % (letter, letter)
            for letter in letters
        ),
    )
    picture = b"50 0 0 0 40 70 d1 0 0 40 70 re f"
    return font, b"9 0 obj\n<< /Length %d >>\nstream\n%s\nendstream\nendobj\n" % (len(picture), picture)


LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def test_letters_that_are_pictures_may_have_any_size_and_be_ligatures() -> None:
    font, more = pictures(LETTERS + b"\x0b\x0c\x0e")
    lines = ["the e\x0ecient o\x0ece of \x0celds", "a\x0bords more than we could say of them"]
    assert drawn(*lines, size=0.1, font=font, more=more) == (
        "the efficient office of fields affords more than we could say of them"
    )


OAKS = [
    "growth rings of old oaks tell how wet",
    "each summer was. Cores were taken from",
    "forty trees in three parks, and the rings",
    "were measured under a microscope by us",
    "in the museum. Narrow rings followed dry",
    "years, while floods left pale rings.",
]
KELP = [line.replace("oaks", "kelp").replace("trees", "fronds") for line in OAKS]


def rows(lines: list[str], left: float = 80, top: float = 700, step: float = 12, size: float = 10) -> bytes:
    return b"".join(place_text(left, top - step * i, line, size) for i, line in enumerate(lines))


def numbers(
    values: range, left: float, top: float = 700, step: float = 12, every: int = 1, size: float = 8
) -> bytes:
    texts = [str(value) if value % every == 0 else "" for value in values]
    return b"".join(place_text(left, top - step * i, text, size) for i, text in enumerate(texts))


def together(*columns: tuple[float, list[str]]) -> bytes:
    """Columns that are drawn row by row."""
    return b"".join(
        place_text(left, 700 - 12 * i, lines[i], 10)
        for i in range(max(len(lines) for _, lines in columns))
        for left, lines in columns
        if i < len(lines)
    )


@pytest.mark.parametrize(
    "pages, text",
    [
        pytest.param([numbers(range(1, 7), 60) + rows(OAKS)], " ".join(OAKS), id="numbers of lines"),
        pytest.param(
            [b"".join(numbers(range(9 + i, 10 + i), 68, 700 - 12 * i, size=6) + rows([line], 80, 700 - 12 * i)
                      for i, line in enumerate(OAKS))],
            " ".join(OAKS),
            id="numbers drawn with their lines, near to them",
        ),
        pytest.param(
            [rows(4 * OAKS, step=24) + numbers(range(1, 25), 400, step=24, every=5)],
            " ".join(4 * OAKS),
            id="every fifth number, at the right, in double spacing",
        ),
        pytest.param(
            [numbers(range(1, 7), 60) + rows(OAKS[:6]), numbers(range(7, 9), 60) + rows(["and so", "on."])],
            " ".join([*OAKS[:6], "and so on."]),
            id="a last page with few numbers",
        ),
        pytest.param(
            [b"".join(place_text(60, 700 - 24 * i, str(i + 1), 10) + rows([line, "etc."], 80, 700 - 24 * i)
                      for i, line in enumerate(OAKS))],
            " ".join(f"{i} {line} etc." for i, line in enumerate(OAKS, 1)),
            id="numbers of items stay",
        ),
        pytest.param(
            [place_text(80, 688, "K", 24) + rows(["ELP grows where the coast", "is cold, as all divers"], 100)
             + rows(["know who were there in the spring."], top=676)],
            "KELP grows where the coast is cold, as all divers know who were there in the spring.",
            id="a large first letter",
        ),
        pytest.param(
            [rows(["ELP grows where the coast", "is cold, as all divers"], 100) + place_text(80, 688, "K", 24)
             + rows(["know who were there in the spring."], top=676)],
            "KELP grows where the coast is cold, as all divers know who were there in the spring.",
            id="a large first letter, drawn later",
        ),
        pytest.param(
            [rows(["A well-known trans-", "parent state-of-the-", "art and well-", "known X-", "ray differ-",
                   "ences."])],
            "A well-known transparent state-of-the-art and well-known X-ray differences.",
            id="compounds at the ends of lines",
        ),
        pytest.param(
            [b"".join([
                place_text(80, 700, "They removed all the urchins", 10), place_text(193, 704, "3,12", 6),
                place_text(206, 700, "from areas of 10", 10), place_text(272, 704, "6", 6),
                place_text(278, 700, "km", 10), place_text(291, 704, "2", 6)]),
             rows(OAKS)],
            "They removed all the urchins ³,¹² from areas of 10^6 km² " + " ".join(OAKS),
            id="numbers above the line",
        ),
        pytest.param(
            [rows(KELP), b"q 0 1 -1 0 612 0 cm\n" + rows(OAKS, top=500) + b"Q\n"],
            " ".join(KELP + OAKS),
            id="a page on its side",
        ),
        pytest.param(
            [rows(KELP), b"q 0 -1 1 0 0 792 cm\n" + rows(OAKS, top=500) + b"Q\n"],
            " ".join(KELP + OAKS),
            id="a page on its other side",
        ),
        pytest.param([together((60, OAKS), (240, KELP))], " ".join(OAKS + KELP), id="a narrower gutter"),
        pytest.param(
            [b"".join(place_text(30, 700 - 14 * i, str(i + 1), 7) + place_text(60, 700 - 14 * i, line, 10)
                      for i, line in enumerate(OAKS))
             + b"".join(place_text(560, 700 - 14 * i, str(i + 7), 7) + place_text(320, 700 - 14 * i, line, 10)
                        for i, line in enumerate(KELP))],
            " ".join(OAKS + KELP),
            id="numbers on both sides of two columns",
        ),
        pytest.param([together((60, OAKS), (246, KELP))], " ".join(OAKS + KELP), id="a narrow gutter"),
        pytest.param(
            [together((40, OAKS), (235, KELP), (430, OAKS))], " ".join(OAKS + KELP + OAKS), id="three columns"
        ),
        pytest.param(
            [rows(OAKS[:4]) + rows(["Figure 1: The kelp by years."], top=600) + rows(OAKS[4:], top=560)],
            " ".join([*OAKS, "Figure 1: The kelp by years."]),
            id="a caption as large as the text",
        ),
    ],
)  # fmt: skip
def test_layouts_of_pages(pages: list[bytes], text: str) -> None:
    assert " ".join(part.text for part in read_pdf(write_pdf(pages)).paragraphs) == text


@pytest.mark.parametrize("heading", ["Abstract", "a b s t r a c t", "Zusammenfassung"])
def test_an_abstract_in_small_letters(heading: str) -> None:
    """Its heading is as small in LaTeX's class article, and its letters are apart in Elsevier's journals."""
    page = place_text(160, 740, heading, 9, BOLD) + rows(OAKS, 80, 720, 11, 9)
    page += place_text(60, 600, "A B C D E F", 9, BOLD) + place_text(60, 550, "1 Introduction", 12, BOLD)
    result = read_pdf(write_pdf([page + rows(3 * KELP, 60, 530)]))
    assert result.abstract == " ".join(OAKS)
    assert text_of(result) == " ".join(OAKS + 3 * KELP)  # without the labels of parts of a figure


def test_a_paragraph_may_begin_with_a_heading_and_have_code() -> None:
    text = b"".join(
        [
            place_text(60, 700, "Study area.", 11, BOLD),
            place_text(122, 700, "Those who go there from the town in any of the years find", 9),
            place_text(60, 688, "a field that is larger than all others, and is called by the", 9),
            place_text(60, 676, "names of rows and fields", 7),
            place_text(135, 676, "as they say.", 9),
        ]
    )
    [part] = read_pdf(write_pdf([text])).paragraphs
    assert part.text.startswith("Study area. Those") and part.text.endswith(
        "by the names of rows and fields as they say."
    )
    assert part.section == ""


def test_appendices_after_the_references_are_read() -> None:
    rows = [
        "References",
        *(f"[{i}] A cited work of the year." for i in range(9)),
        "Appendix A",
        "More proofs follow.",
    ]
    first = [
        place_text(60, 740 - 14 * row, "The running text of this paper is short.", 10) for row in range(20)
    ]
    fonts = {"References": BOLD, "Appendix A": BOLD}
    last = [
        place_text(60, 740 - 14 * row, text, 12 if text in fonts else 10, fonts.get(text, "F1"))
        for row, text in enumerate(rows)
    ]
    text = text_of(read_pdf(write_pdf([b"".join(first), b"".join(last)])))
    assert "cited work" not in text
    assert text.endswith("More proofs follow.")


@pytest.mark.parametrize(
    "content, message",
    [
        (b"no PDF", "is not a PDF"),
        (b"%PDF-1.4\n" + bytes(1000), "is not a PDF"),
        (write_pdf([b""]), "has no text"),
        (made_paper(1, 600).pdf()[:2000], "is not a PDF|has no text"),
    ],
)
def test_what_cannot_be_read_is_told(content: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_pdf(content)


def test_a_broken_table_of_objects_is_repaired() -> None:
    made = made_paper(1, 600)
    whole = made.pdf()
    broken = whole.replace(b"\nxref\n", b"\nxxxx\n").replace(b"startxref\n", b"startxref\n9")
    assert read_pdf(broken) == read_pdf(whole)


@given(st.binary(max_size=400), st.integers(0, 2000), st.integers(0, 2000))
def test_damaged_bytes_raise_nothing_else(noise: bytes, start: int, length: int) -> None:
    whole = bytearray(made_paper(2, 300).pdf())
    whole[start : start + length] = noise
    try:
        read_pdf(bytes(whole))
    except InputError as error:
        assert "\n" not in str(error)
