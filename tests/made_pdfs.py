"""Makes PDFs of papers with known text: two columns, headings, headers, broken words, references."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate

WIDTH, HEIGHT = 612, 792
"""US letter, in points."""
COLUMNS, LINE, ROWS = (54, 318), 11.5, 54
"""Left edges of the columns, and the distance and number of their lines."""
LETTERS = 46
"""Letters of a line of a column."""
REGULAR, BOLD = "F1", "F2"


@dataclass
class MadePaper:
    """sections: their headings and paragraphs. by_rows: draw both columns together, line by line."""

    title: str
    abstract: str
    sections: Sequence[tuple[str, Sequence[str]]]
    references: Sequence[str] = ()
    header: str = "Journal of Made Papers 12 (2020)"
    by_rows: bool = False
    first_page: Sequence[str] = field(default_factory=tuple)
    """Further lines above the abstract: authors, DOI."""

    def pdf(self) -> bytes:
        return write_pdf([self._page(number, *page) for number, page in enumerate(self._pages(), 1)])

    def _pages(self) -> Iterator[tuple[list[list[Piece]], bool]]:
        """Yield the columns of each page, and whether it is the first, which is shorter."""
        lines = list(self._lines())
        first = True
        while lines:
            rows = ROWS - (10 if first else 0)
            columns = [lines[:rows], lines[rows : 2 * rows]]
            lines = lines[2 * rows :]
            yield columns, first
            first = False

    def _lines(self) -> Iterator[Piece]:
        """The text in lines of a column; an empty one stands around a heading."""
        texts = [("Abstract", [self.abstract]), *self.sections]
        for heading, paragraphs in texts:
            yield from (Piece(""), Piece(heading, BOLD, 11), Piece(""))
            for paragraph in paragraphs:
                yield from (Piece(line, indent=12 * (i == 0)) for i, line in enumerate(wrap(paragraph)))
        if self.references:
            yield from (Piece(""), Piece("References", BOLD, 11), Piece(""))
            for number, reference in enumerate(self.references, 1):
                yield from (Piece(line, size=9) for line in wrap(f"[{number}] {reference}"))

    def _page(self, number: int, columns: list[list[Piece]], first: bool) -> bytes:
        drawn = [place_text(54, HEIGHT - 36, self.header, 8), place_text(300, 30, str(number), 8)]
        top = HEIGHT - 66.0
        if first:
            drawn.append(place_text(80, top, self.title, 16, BOLD))
            drawn += [place_text(80, top - 18 - 12 * i, line, 10) for i, line in enumerate(self.first_page)]
            top -= 10 * LINE
        placed = [
            [
                place_text(x + piece.indent, top - LINE * row, piece.text, piece.size, piece.font)
                for row, piece in enumerate(column)
            ]
            for x, column in zip(COLUMNS, columns, strict=True)
        ]
        if self.by_rows:
            rows = range(max(map(len, placed)))
            drawn += [column[row] for row in rows for column in placed if row < len(column)]
        else:
            drawn += [text for column in placed for text in column]
        return b"".join(drawn)


@dataclass(frozen=True)
class Piece:
    """A line of a column."""

    text: str
    font: str = REGULAR
    size: float = 10
    indent: float = 0


def wrap(text: str) -> Iterator[str]:
    """Split a text into lines, and some words with a hyphen."""
    line = ""
    for word in text.split():
        room = LETTERS - len(line) - 1
        if line and len(word) > room:
            if room > 4 and len(word) > room + 2 and word.isalpha():
                yield f"{line} {word[: room - 1]}-"
                line = word[room - 1 :]
                continue
            yield line
            line = word
        else:
            line = f"{line} {word}" if line else word
    if line:
        yield line


def place_text(x: float, y: float, text: str, size: float, font: str = REGULAR) -> bytes:
    if not text:
        return b""
    letters = text.encode("cp1252", "replace")
    for special in (b"\\", b"(", b")"):
        letters = letters.replace(special, b"\\" + special)
    return b"BT /%s %g Tf %g %g Td (%s) Tj ET\n" % (font.encode(), size, x, y, letters)


def write_pdf(pages: Sequence[bytes], compress: bool = True) -> bytes:
    """A PDF of content streams."""
    objects: list[bytes] = []

    def add(content: bytes) -> int:
        objects.append(content)
        return len(objects)

    fonts = [
        add(b"<< /Type /Font /Subtype /Type1 /BaseFont /%s /Encoding /WinAnsiEncoding >>" % name)
        for name in (b"Times-Roman", b"Times-Bold")
    ]
    tree = 2 * len(pages) + len(fonts) + 1
    kids = []
    for page in pages:
        stream = zlib.compress(page) if compress else page
        packed = b"/Filter /FlateDecode " if compress else b""
        content = add(b"<< %s/Length %d >>\nstream\n%s\nendstream" % (packed, len(stream), stream))
        numbers = tree, WIDTH, HEIGHT, content, *fonts
        kids.append(
            add(
                b"<< /Type /Page /Parent %d 0 R /MediaBox [0 0 %d %d] /Contents %d 0 R "
                b"/Resources << /Font << /F1 %d 0 R /F2 %d 0 R >> >> >>" % numbers
            )
        )
    add(b"<< /Type /Pages /Kids [%s] /Count %d >>" % (b" ".join(b"%d 0 R" % kid for kid in kids), len(kids)))
    root = add(b"<< /Type /Catalog /Pages %d 0 R >>" % tree)
    written, offsets = bytearray(b"%PDF-1.4\n"), []
    for number, body in enumerate(objects, 1):
        offsets.append(len(written))
        written += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    start = len(written)
    size = len(objects) + 1
    written += b"xref\n0 %d\n0000000000 65535 f \n%s" % (size, table)
    written += b"trailer\n<< /Size %d /Root %d 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (size, root, start)
    return bytes(written)


VOCABULARY = 50_000
"""Words of made texts, which are as frequent as those of a language (Zipf 1949)."""


@cache
def _words() -> tuple[list[str], list[float]]:
    """Return made words, most frequent first, and sums of their frequencies."""
    draw = random.Random(0)
    syllables = [
        f"{first}{vowel}{last}"
        for first in "bcdfglmnprst"
        for vowel in "aeiou"
        for last in ("", "n", "r", "s")
    ]
    words = list(dict.fromkeys("".join(draw.choices(syllables, k=1 + i % 4)) for i in range(2 * VOCABULARY)))
    return words, list(accumulate(1 / (rank + 2.7) for rank in range(len(words))))


def made_paper(number: int, length: int = 3600, by_rows: bool = False) -> MadePaper:
    """A paper of random sentences."""
    draw = random.Random(number)
    words, sums = _words()

    def sentence() -> str:
        return f"{' '.join(draw.choices(words, cum_weights=sums, k=draw.randint(12, 24))).capitalize()}."

    def paragraph(count: int) -> str:
        return " ".join(sentence() for _ in range(max(count // 18, 1)))

    headings = ("1 Introduction", "2 Related Work", "3 Method", "4 Experiments", "5 Conclusion")
    sections = [(name, [paragraph(120) for _ in range(length // 120 // len(headings))]) for name in headings]
    references = [
        f"A. Author and B. Other. {sentence()} Journal of Tests, {1990 + i % 30}." for i in range(40)
    ]
    title = " ".join(draw.choices(words, k=4)).capitalize()
    lines = ["Ann Author and Bo Other", f"doi:10.5555/made.{number}"]
    return MadePaper(title, paragraph(150), sections, references, by_rows=by_rows, first_page=lines)
