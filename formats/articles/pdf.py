"""The text of a PDF: paragraphs in reading order with their pages and sections.

PDFium gives the characters of a page in the order in which they were drawn. Programs draw texts in reading
order, so this order is kept, unless the lines of two columns have been drawn together, row by row. Headers
and footers, which several pages repeat, and rotated text are left out; the list of references is kept apart.
"""

from __future__ import annotations

import ctypes
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pypdfium2
import pypdfium2.raw as pdfium

from citerec.base.errors import InputError
from citerec.formats.articles.citing import Entry, split_references
from citerec.formats.articles.pdf_layout import (
    MAX_CHARACTERS,
    Line,
    PdfParagraph,
    arrange,
    by_columns,
    find_title,
    is_abstract,
    without_margins,
)

MAX_PAGES = 1000
"""Pages that are read of a PDF; later ones are not."""
MAX_PAGE = 100_000
"""Characters that are read of a page."""


class PdfText(NamedTuple):
    """The running text of a PDF. first: the whole text of the first page; pages: their number; entries: of
    the list of references; labels: printed numbers of the pages, none if these are 1, 2, 3."""

    paragraphs: list[PdfParagraph]
    title: str
    first: str
    pages: int
    entries: list[Entry]
    labels: list[str]

    @property
    def abstract(self) -> str:
        """The paragraphs of the section Abstract; "" if none is told apart."""
        own = (part.text for part in self.paragraphs if is_abstract(part.section))
        return " ".join(own)


_LINE = re.compile(r"[^\r\n\ufffe]+")
_BROKEN = "\ufffe"
"""What PDFium writes for a hyphen at the end of a line."""
_BOLD = re.compile(r"bold|black|heavy|medi(?!um)|cmbx|cmb\d|sfbx|-bd|\.b$", re.IGNORECASE)
_SMALLEST = 2.0
"""Least size of a font; one whose letters are pictures may have any size."""
_RAISED = re.compile(r"(?<!\d)\d{1,3}(?!\d)")
_LETTER = re.compile(r"[^\W\d_]")
SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_SMALL, _RAISE = 0.85, 0.15
"""Size of a raised number and its least height above the line, in heights of the line."""
_GAP = 1.2
"""Least space between columns, in heights of the line."""


def read_pdf(file: str | Path | bytes) -> PdfText:
    """Read the text of a PDF. Raises InputError if it is encrypted, damaged or has no text."""
    try:
        document = pypdfium2.PdfDocument(file)
    except pypdfium2.PdfiumError as error:
        reason = "needs a password" if "password" in str(error) else "is not a PDF, or is damaged"
        raise InputError(reason) from None
    try:
        pages = len(document)
        lines: list[Line] = []
        labels = [clean(document.get_page_label(number)) for number in range(min(pages, MAX_PAGES))]
        first, characters = "", 0
        for number in range(min(pages, MAX_PAGES)):
            text, page_lines = _read_page(document, number)
            first, characters = first or text, characters + len(text)
            lines += page_lines
            if characters > MAX_CHARACTERS:
                break
    finally:
        document.close()
    if sum(map(str.isalpha, "".join(line.text for line in lines[:1000]))) < 40:
        raise InputError("has no text; it may be a scan, which needs text recognition (OCR) first")
    title = find_title(lines)
    running, entries = split_references(without_margins(lines))
    if all(label in ("", str(number)) for number, label in enumerate(labels, 1)):
        labels = []
    return PdfText(arrange(running), title, clean(first), pages, entries, labels)


def _read_page(document: pypdfium2.PdfDocument, number: int) -> tuple[str, list[Line]]:
    """Return the text of a page as it stands there, and its lines in reading order."""
    try:
        page = document[number]
        text_page = page.get_textpage()
    except pypdfium2.PdfiumError:
        return "", []  # a damaged page among others
    try:
        count = min(text_page.count_chars(), MAX_PAGE)
        text = text_page.get_text_range(0, count) if count else ""
        if len(text) != count:  # characters without Unicode, or with two code units
            codes = (pdfium.FPDFText_GetUnicode(text_page, i) for i in range(count))
            text = "".join(chr(code) if 0 < code < 0xD800 or code > 0xDFFF else " " for code in codes)
        letters = _Letters(text_page, text, _page_angle(page, text_page, text))
        lines, cut = [], 0
        for match in _LINE.finditer(text):
            parts = letters.line(number + 1, *match.span())
            cut += len(parts) > 1
            lines += parts
        if cut > len(lines) / 8:
            lines = by_columns(lines, page.get_width())
        return text.replace(_BROKEN, "-\n"), lines
    finally:
        text_page.close()
        page.close()


def _page_angle(page: Any, text_page: Any, text: str) -> float:
    """Return the angle of text that is upright on a page, which may be rotated when it is shown."""
    if not page.get_rotation():
        return 0.0
    letters = [letter.start() for letter in re.finditer(r"[^\W\d_]", text)]
    sample = letters[:: len(letters) // 100 + 1]
    angles = Counter(round(pdfium.FPDFText_GetCharAngle(text_page, i), 1) for i in sample)
    return angles.most_common(1)[0][0] if angles else 0.0


class _Letters:
    """The characters of a page. angle: of upright text, in radians."""

    def __init__(self, page: Any, text: str, angle: float) -> None:
        self._page, self._text, self._angle = page, text, angle

    def line(self, number: int, start: int, end: int) -> list[Line]:
        """Read a line of page `number`, in its parts if it crosses two columns; none if it is not upright."""
        text = self._text
        start, end = _strip(text, start, end)
        if start == end:
            return []
        if abs(pdfium.FPDFText_GetCharAngle(self._page, start) - self._angle) > 0.1:
            return []
        pieces = [(start, end)]
        if pdfium.FPDFText_CountRects(self._page, start, end - start) > 1:
            pieces = list(self._columns(start, end))
        lines = []
        for begin, stop in pieces:
            first, last = self._box(begin), self._box(stop - 1)
            broken = text[stop : stop + 1] == _BROKEN or text[stop - 1] in "-\u00ad\u2010"
            bold = self._is_bold(begin) and self._is_bold(stop - 1)
            place = first.left, last.right, self._baseline(begin), self._height(begin, stop)
            own = self._with_superscripts(begin, stop, place[3])
            lines.append(Line(clean(own), number, *place, bold, broken))
        return lines

    def _with_superscripts(self, start: int, end: int, height: float) -> str:
        """Return a line's text, its raised numbers as superscripts: "as shown¹²", not "as shown12"."""
        text, low = self._text[start:end], None
        for match in _RAISED.finditer(self._text, start + 1, end):
            if self._size(match.start()) > _SMALL * height:
                continue
            low = self._lowest(start, end) if low is None else low
            if self._baseline(match.start()) > low + _RAISE * height:
                first, last = match.start() - start, match.end() - start
                text = text[:first] + match[0].translate(SUPERSCRIPTS) + text[last:]
        return text

    def _lowest(self, start: int, end: int) -> float:
        """Return the baseline of a line, which may begin with a raised mark."""
        places = (match.start() for match in _LETTER.finditer(self._text, start, end))
        return min(map(self._baseline, islice(places, 0, 60, 12)), default=self._baseline(start))

    def _columns(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the parts of a line between wide spaces."""
        begin, height = start, 0.0
        for match in re.finditer(r"\S(\s+)(?=\S)", self._text[start:end]):
            before, after = start + match.start(), start + match.end()
            left, right = self._box(before), self._box(after)
            height = height or self._size(before)
            if right.left - left.right > _GAP * height:
                yield begin, before + 1
                begin = after
        yield begin, end

    def _box(self, index: int) -> Box:
        """Return the box of a character, as high as its font, where text is upright."""
        box = pdfium.FS_RECTF()
        pdfium.FPDFText_GetLooseCharBox(self._page, index, ctypes.byref(box))
        if not self._angle:
            return Box(box.left, box.right, box.top - box.bottom)
        cosine, sine = math.cos(self._angle), math.sin(self._angle)
        corners = [(x, y) for x in (box.left, box.right) for y in (box.bottom, box.top)]
        across = [x * cosine - y * sine for x, y in corners]
        up = [x * sine + y * cosine for x, y in corners]
        return Box(min(across), max(across), max(up) - min(up))

    def _baseline(self, index: int) -> float:
        x, y = ctypes.c_double(), ctypes.c_double()
        pdfium.FPDFText_GetCharOrigin(self._page, index, ctypes.byref(x), ctypes.byref(y))
        return x.value * math.sin(self._angle) + y.value * math.cos(self._angle)

    def _height(self, start: int, end: int) -> float:
        """Return the size of a line's letters, beside smaller marks and code, and a heading before it."""
        if (size := self._size(start)) == self._size(end - 1):
            return size
        step = (end - 1 - start) / 4
        places = (start + round(step * part) for part in range(5))
        return sorted(self._size(place - self._text[place].isspace()) for place in places)[3]

    def _size(self, index: int) -> float:
        """Return the size of a character's font: brackets and signs have higher boxes than letters."""
        matrix = pdfium.FS_MATRIX()
        pdfium.FPDFText_GetMatrix(self._page, index, ctypes.byref(matrix))
        size = math.hypot(matrix.c, matrix.d) * pdfium.FPDFText_GetFontSize(self._page, index)
        return size if size > _SMALLEST else max(self._box(index).height, 1.0)

    def _is_bold(self, index: int) -> bool:
        name = ctypes.create_string_buffer(128)
        pdfium.FPDFText_GetFontInfo(self._page, index, name, len(name), ctypes.byref(ctypes.c_int()))
        return _BOLD.search(name.value.decode("latin-1")) is not None


class Box(NamedTuple):
    left: float
    right: float
    height: float


def _strip(text: str, start: int, end: int) -> tuple[int, int]:
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    return start, end


# Characters.

_ACCENTS = {
    "\u00b4": "\u0301",  # acute
    "`": "\u0300",
    "\u00a8": "\u0308",  # diaeresis
    "\u02c6": "\u0302",  # circumflex
    "\u02dc": "\u0303",  # tilde
    "\u00b8": "\u0327",  # cedilla
    "\u02c7": "\u030c",  # caron
    "\u02da": "\u030a",  # ring
    "\u00af": "\u0304",  # macron
    "\u02d8": "\u0306",  # breve
    "\u02d9": "\u0307",  # dot
    "\u02dd": "\u030b",  # double acute
}
"""Accents that fonts draw as characters, and those that combine with a letter."""
_ACCENTED = re.compile(rf"([{''.join(_ACCENTS)}])\s?([a-zA-Zıȷ])|([cC])\u00b8")
_DOTLESS = str.maketrans("ıȷ", "ij")
_LIGATURES = re.compile("[\ufb00-\ufb06]")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\ufeff\ufffd\ue000-\uf8ff]")


def clean(text: str) -> str:
    """Replace ligatures and letters whose accent stands before them, and remove control characters.

    >>> clean("e\ufb03cient na¨ıve")
    'efficient naïve'
    """
    if text.isascii() and text.isprintable():
        return text
    text = _LIGATURES.sub(lambda match: unicodedata.normalize("NFKC", match[0]), text)
    text = _CONTROL.sub("", text)
    return unicodedata.normalize("NFC", _ACCENTED.sub(_accented, text))


def _accented(match: re.Match[str]) -> str:
    accent, letter = match[1] or "\u00b8", match[2] or match[3]
    whole = unicodedata.normalize("NFC", letter.translate(_DOTLESS) + _ACCENTS[accent])
    return whole if len(whole) == 1 else match[0]
