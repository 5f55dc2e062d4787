"""The text of a PDF: paragraphs in reading order with their pages and sections.

PDFium gives the characters of a page in the order in which they were drawn. Programs draw texts in reading
order, so this order is kept, unless the lines of columns have been drawn together, row by row. Headers and
footers, which several pages repeat, numbers of lines and single rotated texts are left out; the list of
references is kept apart.
"""

from __future__ import annotations

import ctypes
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
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
    abstract_in,
    arrange,
    by_columns,
    find_title,
    without_margins,
)

MAX_PAGES = 1000
"""Pages that are read of a PDF; later ones are not."""
MAX_PAGE = 100_000
"""Characters that are read of a page."""


class PdfText(NamedTuple):
    """The running text of a PDF. chapters: parts with one list of references each, and its entries; first:
    whole text of the first page; pages: number of pages; labels: their printed numbers, none if 1, 2, 3;
    read: number of pages that were read."""

    chapters: list[tuple[list[PdfParagraph], list[Entry]]]
    title: str
    first: str
    pages: int
    labels: list[str]
    read: int

    @property
    def paragraphs(self) -> list[PdfParagraph]:
        return [part for paragraphs, _ in self.chapters for part in paragraphs]

    @property
    def abstract(self) -> str:
        """The paragraphs of the section Abstract; "" if none is recognised."""
        paragraphs = self.paragraphs
        return " ".join(paragraphs[number].text for number in abstract_in(paragraphs))


_LINE = re.compile(r"[^\r\n\ufffe]+")
_LABEL = re.compile(r"[\[(]?\d{1,3}[\])]?\.?|[^\w\s]")
"""A number or dot before an item of a list; the space after it is no gutter."""
_SPACED = re.compile(r"[^\W\d_](?: [^\W\d_]){5,}")
"""A b s t r a c t; letters in the order of the alphabet name the parts of a figure."""
_BROKEN = "\ufffe"
"""What PDFium writes for a hyphen at the end of a line."""
_LEADS = re.compile(r"\d{1,5}(?!\S)")
_TRAILS = re.compile(r"(?<!\S)\d{1,5}\Z")
_NUMBER = re.compile(r"(?<=\S)[-\u2212+]?\d[\d,\u2013-]*|\d{2,}")
_WORD_END = re.compile(r"[^\W\d_]{3}$|[.,;:)\]\"\u201d]$")
_INITIAL = re.compile(r"(?<!\S)[A-Z\u00c0-\u00de\u0391-\u042f](?=\s?[^\W\d_])")
_LIGATURE_CODES = dict(
    zip("\x0b\x0c\r\x0e\x0f\x1b\x1c\x1d\x1e\x1f", 2 * "\ufb00\ufb01\ufb02\ufb03\ufb04", strict=True)
)
_LIGATURE_CODE = re.compile(r"[\x0b\x0c\x0e\x0f\x1b-\x1f]|\r(?!\n)")
_MATHEMATICS = re.compile(r"cmmi|cmsy|cmex|math|symbol", re.IGNORECASE)
_BOLD = re.compile(r"bold|black|heavy|medi(?!um)|cmbx|cmb\d|sfbx|-bd|\.b$", re.IGNORECASE)
_SMALLEST = 2.0
"""Smallest font size that is believed; a font whose letters are pictures may state any size."""
SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_GAP, _NARROW = 1.2, 0.5
"""Minimum space between columns, in line heights: in a single line, and where many lines have a space."""
_SIDEWAYS = 0.2
"""Minimum share of a page's letters at an angle for these to be read."""


def read_pdf(file: str | Path | bytes) -> PdfText:
    """Read the text of a PDF. Raises InputError if it is encrypted, damaged or has no text."""
    with _opened(file) as document:
        pages = len(document)
        lines: list[Line] = []
        labels = [clean(document.get_page_label(number)) for number in range(min(pages, MAX_PAGES))]
        strips: list[float] = []
        first, characters, read = "", 0, 0
        while read < min(pages, MAX_PAGES) and characters <= MAX_CHARACTERS:
            text, page_lines = _read_page(document, read, strips)
            first, characters, read = first or text, characters + len(text), read + 1
            lines += page_lines
    if sum(map(str.isalpha, "".join(line.text for line in lines[:1000]))) < 40:
        raise InputError("has no text; it may be a scan, which needs text recognition (OCR) first")
    title = find_title(lines)
    chapters = [(arrange(part), entries) for part, entries in split_references(without_margins(lines))]
    if all(label in ("", str(number)) for number, label in enumerate(labels, 1)):
        labels = []
    return PdfText(chapters, title, clean(first), pages, labels, read)


def read_first_page(file: str | Path) -> str:
    """Read the text of a PDF's first page. Raises InputError if it is encrypted or damaged."""
    with _opened(file) as document:
        return clean(_read_page(document, 0, [])[0]) if len(document) else ""


@contextmanager
def _opened(file: str | Path | bytes) -> Iterator[pypdfium2.PdfDocument]:
    try:
        document = pypdfium2.PdfDocument(file)
    except (pypdfium2.PdfiumError, OSError) as error:
        reason = "needs a password" if "password" in str(error) else "is not a PDF, or is damaged"
        raise InputError(reason) from None
    try:
        yield document
    finally:
        document.close()


def _read_page(document: pypdfium2.PdfDocument, number: int, strips: list[float]) -> tuple[str, list[Line]]:
    """Return the text of a page as it stands there, and its lines in reading order. strips: see
    `line_numbers`."""
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
        text = _with_ligatures(text_page, text)
        lines: list[Line] = []
        for angle in _page_angles(text_page, text):
            lines += _Letters(text_page, text, angle).lines(number + 1, strips)
        return text.replace(_BROKEN, "-\n"), lines
    finally:
        text_page.close()
        page.close()


def _page_angles(text_page: Any, text: str) -> list[float]:
    """Return the angles of the text of a page, in radians, most frequent first."""
    letters = [letter.start() for letter in re.finditer(r"[^\W\d_]", text)]
    sample = letters[:: len(letters) // 100 + 1]
    angles = Counter(round(pdfium.FPDFText_GetCharAngle(text_page, i), 1) for i in sample)
    quarters = {round(part * math.pi / 2, 1): part * math.pi / 2 for part in range(-2, 5)}
    common = [angle for angle, count in angles.most_common() if count >= _SIDEWAYS * len(sample)]
    return [quarters.get(angle, angle) for angle in common]


def _with_ligatures(text_page: Any, text: str) -> str:
    """Return a text with ligatures for their codes in TeX's fonts, if the PDF maps these to no Unicode."""

    def ligature(match: re.Match[str]) -> str:
        place = match.start()
        fonts = {_font(text_page, i) for i in (place - 1, place + 1) if text[i : i + 1].isalpha()}
        own = _font(text_page, place)
        return _LIGATURE_CODES[match[0]] if own in fonts and not _MATHEMATICS.search(own) else match[0]

    return _LIGATURE_CODE.sub(ligature, text)


def _font(text_page: Any, index: int) -> str:
    name = ctypes.create_string_buffer(128)
    pdfium.FPDFText_GetFontInfo(text_page, index, name, len(name), ctypes.byref(ctypes.c_int()))
    return name.value.decode("latin-1")


class _Letters:
    """The characters of a page. angle: of upright text, in radians."""

    def __init__(self, page: Any, text: str, angle: float) -> None:
        self._page, self._text, self._angle = page, text, angle

    def lines(self, number: int, strips: list[float]) -> list[Line]:
        """Read the lines of page `number` at this angle, in reading order. strips: see `line_numbers`."""
        spans = [_strip(self._text, *match.span()) for match in _LINE.finditer(self._text)]
        spans = [
            part
            for start, end in spans
            if start < end
            and abs(pdfium.FPDFText_GetCharAngle(self._page, start) - self._angle) <= 0.1  # upright
            for line in self._lines_apart(start, end)
            for part in self._initials_apart(*line)
        ]
        spans = self._without_numbers(spans, strips)
        gaps = [self._gaps(start, end) for start, end in spans]
        if sum(map(bool, gaps)) > 4:  # PDFium joins other lines across such spaces
            gaps = [wide or self._gaps(*span, 0) for span, wide in zip(spans, gaps, strict=True)]
        gutters = self._gutters(spans, gaps)
        lines, cut = [], 0
        for (start, end), wide in zip(spans, gaps, strict=True):
            edges = [start]
            for gap in wide:
                if gap.space > _GAP or any(gap.left < x < gap.right for x in gutters):
                    edges += gap.before, gap.after
            edges.append(end)
            lines += [self._line(number, *edges[i : i + 2]) for i in range(0, len(edges), 2)]
            cut += len(edges) > 2
        if self._angle and sum(a.bottom < b.bottom for a, b in pairwise(lines)) > len(lines) / 2:
            lines.reverse()  # PDFium has them in the order of their places on the page
        return by_columns(lines) if cut > len(lines) / 8 else lines

    def _lines_apart(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the lines that PDFium has taken for one: each begins left of the end of the one before."""
        if pdfium.FPDFText_CountRects(self._page, start, end - start) < 2:
            return [(start, end)]
        edges = [start]
        for match in re.finditer(r"\S(\s+)(?=\S)", self._text[start:end]):
            before, after = start + match.start(), start + match.end()
            if self._box(after).left < self._box(before).left - self._size(after):
                edges += before + 1, after
        edges.append(end)
        return [(edges[i], edges[i + 1]) for i in range(0, len(edges), 2)]

    def _initials_apart(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the parts of a line beside large first letters, which belong to several lines."""
        for match in _INITIAL.finditer(self._text, start, end):
            place = match.start()
            if self._size(place) > 1.5 * self._size(_strip(self._text, place + 1, end)[0]):
                parts = (_strip(self._text, *part) for part in ((start, place), (place + 1, end)))
                return [(place, place + 1), *((begin, stop) for begin, stop in parts if begin < stop)]
        return [(start, end)]

    def _without_numbers(self, spans: list[tuple[int, int]], strips: list[float]) -> list[tuple[int, int]]:
        """Return the spans of lines without the numbers of lines in a margin."""
        numbers, rests = [], []
        for start, end in spans:
            for begin, stop in self._edge_numbers(start, end):
                left, right = self._box(begin).left, self._box(stop - 1).right
                numbers.append(Number(int(self._text[begin:stop]), left, right, self._baseline(begin), begin))
            if rest := self._rest(start, end):
                begin, stop = rest
                rests.append((self._box(begin).left, self._box(stop - 1).right, self._baseline(begin)))
        if len(numbers) < 4 and not strips:
            return spans
        removed = line_numbers(numbers, rests, strips)
        kept = (self._rest(start, end, removed) for start, end in spans) if removed else spans
        return [span for span in kept if span]

    def _edge_numbers(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the numbers that begin and end a line and stand apart from the rest."""
        lead, trail = _LEADS.match(self._text, start, end), _TRAILS.search(self._text, start, end)
        edges = dict.fromkeys(match.span() for match in (lead, trail) if match)
        if lead and lead.end() < end:
            after = _strip(self._text, lead.end(), end)[0]
            if self._box(after).left - self._box(lead.end() - 1).right < 0.4 * self._size(after):
                edges.pop(lead.span())
        return [*edges]

    def _rest(self, start: int, end: int, gone: Container[int] | None = None) -> tuple[int, int] | None:
        """Return a line without the numbers at its edges that start at `gone` (None: all); None if empty."""
        for begin, stop in self._edge_numbers(start, end):
            if gone is None or begin in gone:
                start, end = (stop, end) if begin == start else (start, begin)
        start, end = _strip(self._text, start, end)
        return (start, end) if start < end else None

    def _line(self, number: int, start: int, end: int) -> Line:
        text = self._text
        first, last = self._box(start), self._box(end - 1)
        broken = text[end : end + 1] == _BROKEN or text[end - 1] in "-\u00ad\u2010"
        bold = self._is_bold(start) and self._is_bold(end - 1)
        place = first.left, last.right, self._baseline(start), self._height(start, end)
        words = clean(self._words(start, end))
        if _SPACED.fullmatch(words) and [*words.lower()[::2]] != sorted(words.lower()[::2]):
            words = words.replace(" ", "")
        return Line(words, number, *place, bold, broken)

    def _words(self, start: int, end: int) -> str:
        """Return a part of the text, setting numbers above the line apart from what is before them."""
        pieces: list[str] = []
        text, done = self._text, start
        for match in _NUMBER.finditer(text, start + 1, end):
            place = match.start() - (not text[match.start() - 1].isspace())
            if self._size(match.end() - 1) >= 0.85 * self._size(place):
                continue
            mark = next(i for i in range(place + 1, match.end()) if self._size(i) < 0.85 * self._size(place))
            if self._baseline(mark) > self._baseline(place) + 0.1 * self._size(place):
                before = text[max(start, mark - 3) : mark]
                sign = "^" if before[-1].isdigit() else " " if _WORD_END.search(before) else ""
                pieces += text[done:mark], sign
                done = mark
                if sign != "^":  # a mark rather than a power: as it is printed
                    pieces.append(text[mark : match.end()].translate(SUPERSCRIPTS))
                    done = match.end()
        return "".join([*pieces, text[done:end]])

    def _gaps(self, start: int, end: int, rectangles: int = 2) -> list[_Gap]:
        """Return the wide spaces of a line with at least this number of `rectangles`."""
        gaps: list[_Gap] = []
        if pdfium.FPDFText_CountRects(self._page, start, end - start) < rectangles:
            return gaps
        height = 0.0
        for match in re.finditer(r"\S(\s+)(?=\S)", self._text[start:end]):
            before, after = start + match.start(), start + match.end()
            left, right = self._box(before).right, self._box(after).left
            height = height or self._size(before)
            label = self._text[gaps[-1].after if gaps else start : before + 1]
            least = _GAP if _LABEL.fullmatch(label) else _NARROW
            if right - left > least * height:
                gaps.append(_Gap(before + 1, after, left, right, (right - left) / height))
        return gaps

    def _gutters(self, spans: Sequence[tuple[int, int]], gaps: Sequence[Sequence[_Gap]]) -> list[float]:
        """Return the places at which most lines that pass them have a space, if some of these are narrow."""
        if all(gap.space > _GAP for wide in gaps for gap in wide):
            return []
        places = Counter(round((gap.left + gap.right) / 2) for wide in gaps for gap in wide)
        edges = [(self._box(start).left, self._box(end - 1).right) for start, end in spans]
        gutters = []
        for place in places:
            spaces = sum(any(gap.left < place < gap.right for gap in wide) for wide in gaps)
            if spaces >= max(5, sum(left < place < right for left, right in edges) / 2):
                gutters.append(float(place))
        return gutters

    def _box(self, index: int) -> Box:
        """Return the box of a character, as high as its font, after a rotation that makes text upright."""
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
        """Return the size of a line's letters, ignoring smaller marks and code, and a heading before it."""
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
        return _BOLD.search(_font(self._page, index)) is not None


class Box(NamedTuple):
    left: float
    right: float
    height: float


class _Gap(NamedTuple):
    """A space text[before:after] in a line, from `left` to `right`; space: in heights of the line."""

    before: int
    after: int
    left: float
    right: float
    space: float


class Number(NamedTuple):
    """A number that begins or ends a line; start: its place in the text."""

    value: int
    left: float
    right: float
    bottom: float
    start: int


def line_numbers(
    numbers: Sequence[Number], lines: Sequence[tuple[float, float, float]], strips: list[float]
) -> set[int]:
    """Return the starts of the numbers that count the lines of a page, each or every fifth.

    They go up by the same step in a strip of the page that has little else. If the step is 1, they leave out
    no line, unlike numbers of references. lines: left, right and bottom of what else the page has. strips:
    edges of such numbers on earlier pages, at which few numbers are enough; those found here are added.
    """
    removed: set[int] = set()
    for edge in ("left", "right"):
        groups: list[list[Number]] = []
        for number in sorted(numbers, key=lambda number: getattr(number, edge)):
            if not groups or getattr(number, edge) - getattr(groups[-1][-1], edge) > 1.5:
                groups.append([])
            groups[-1].append(number)
        for group in groups:
            group.sort(key=lambda number: -number.bottom)
            left, right = min(number.left for number in group), max(number.right for number in group)
            place = getattr(group[0], edge)
            again = any(abs(place - strip) < 3 for strip in strips)
            steps = Counter(below.value - above.value for above, below in pairwise(group))
            step, count = steps.most_common(1)[0] if steps else (1, 0)
            beside = sum(line[0] < right and left < line[1] for line in lines)
            if beside > len(lines) / 8 or step < 1 or count < 0.75 * (len(group) - 1):
                continue
            top, bottom = group[0].bottom + 4, group[-1].bottom - 4
            baselines = {round(line[2] / 4) for line in lines if bottom < line[2] < top}
            if again or (len(group) > 3 and (step > 1 or len(baselines) <= 1.4 * len(group))):
                removed.update(number.start for number in group)
                strips.append(place)
    return removed


def _strip(text: str, start: int, end: int) -> tuple[int, int]:
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    return start, end


# Characters.

_ACCENTS = {"`": "\u0300", "\u02c6": "\u0302", "\u02c7": "\u030c"} | {
    accent: unicodedata.normalize("NFKD", accent)[-1]
    for accent in "\u00b4\u00a8\u02dc\u00b8\u02da\u00af\u02d8\u02d9\u02dd"
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
