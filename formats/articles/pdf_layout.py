"""The layout of printed papers: puts lines in reading order and joins the running text into paragraphs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from statistics import median
from typing import NamedTuple

MAX_CHARACTERS = 4_000_000
"""Characters that are read of a text."""


class PdfParagraph(NamedTuple):
    """A paragraph; starts: the offsets in the text at which a page begins, and its number from 1."""

    text: str
    starts: tuple[tuple[int, int], ...]
    section: str = ""


class Line(NamedTuple):
    """A line of a page, or its part in one column. left, right, bottom, height: in points from the lower
    left corner; broken: a word goes on in the next line, after a hyphen."""

    text: str
    page: int
    left: float
    right: float
    bottom: float
    height: float
    bold: bool
    broken: bool = False


# Reading order.


def by_columns(lines: Sequence[Line]) -> list[Line]:
    """Sort the lines of a page that were drawn row by row: column by column, from the left.

    Lines that cross the space between two columns divide the page.
    """
    middle = _gutter(lines)
    if middle is None:
        return list(lines)
    order: list[Line] = []
    band: list[Line] = []
    for line in sorted(lines, key=lambda line: -line.bottom):
        if line.left < middle < line.right:
            order += _left_first(band, middle)
            order.append(line)
            band = []
        else:
            band.append(line)
    return order + _left_first(band, middle)


def _gutter(lines: Sequence[Line]) -> float | None:
    """Return the place in the middle half of the text that fewest lines cross; None if over a third do."""
    left, right = min(line.left for line in lines), max(line.right for line in lines)
    places = [left + (right - left) * (0.25 + i / 200) for i in range(101)]
    crossed = [sum(line.left < x < line.right for line in lines) for x in places]
    least = min(crossed)
    best = [x for x, n in zip(places, crossed, strict=True) if n == least]
    if len(best) == len(places) or 3 * least > len(lines):
        return None
    return best[len(best) // 2]


def _left_first(band: Sequence[Line], middle: float) -> list[Line]:
    """Order the lines left and right of a gutter; each side may have further columns."""
    order: list[Line] = []
    for side in (
        [line for line in band if line.left < middle],
        [line for line in band if line.left >= middle],
    ):
        beside = sum(abs(a.bottom - b.bottom) < 0.3 * a.height for a, b in pairwise(side))
        order += by_columns(side) if beside > len(side) / 4 else side
    return order


# What is not running text.

_NUMBER = re.compile(r"\d+|\b[ivxlc]+\b")
_MARGIN = 4
"""Lines at the top and at the bottom of a page that may be headers and footers."""


def without_margins(lines: Sequence[Line]) -> list[Line]:
    """Leave out headers and footers: lines that several pages have at the same height, numbers aside."""
    pages = [list(page) for _, page in groupby(lines, key=lambda line: line.page)]
    edges = [
        {id(line): line for line in (*ranked[:_MARGIN], *ranked[-_MARGIN:])}
        for page in pages
        for ranked in [sorted(page, key=lambda line: line.bottom)]
    ]
    seen = Counter(key for edge in edges for key in {_edge_key(line) for line in edge.values()})
    repeated = {key for key, count in seen.items() if count >= max(2, len(pages) // 5)}
    drop = {id(line) for edge in edges for line in edge.values() if _edge_key(line) in repeated}
    return [line for line in lines if id(line) not in drop]


def _edge_key(line: Line) -> tuple[str, int]:
    return _NUMBER.sub("0", line.text.lower()), round(line.bottom / 6)


_NUMBERED = r"(?:(?:\d{1,2}|[IVX]{1,5}|[A-H])(?:\.\d{1,2}){0,3}[.:)]?\s+)"
_REFERENCES = re.compile(
    rf"(?:(?:chapter )?{_NUMBERED})?(?:list of references|reference list|"
    r"(?:(?:supplementary|additional|methods?) )?references(?: and notes| cited)?|"
    r"(?:literature|works) cited|cited (?:literature|works)|"
    r"literatuu?r(?:verzeichnis|lijst)?|bibliogra(?:phy|phie|f[ií]a)|"
    r"(?:références|referencias|referências)(?: bibliogr(?:aphiques|[aá]ficas))?)[.:]?",
    re.IGNORECASE,
)
_APPENDIX = re.compile(
    r"(?is:appendi(?:x|ces)|supplement(?:ary|al)?|supporting)\b.{0,60}|[A-H](?:\.\d+)?[.:]?\s+[A-Z].{2,60}"
)


def references_in(lines: Sequence[Line]) -> list[tuple[int, int]]:
    """Return where lists of references begin, with their headings, and where they end at the latest: at the
    next one, at an appendix, or with the text. No lists if all headings may be of a table of contents."""
    starts = [i for i, line in enumerate(lines) if _REFERENCES.fullmatch(line.text.strip())]
    ends = [i for i, line in enumerate(lines) if _APPENDIX.fullmatch(line.text) and is_heading_line(lines, i)]
    lists = [(i, min(end for end in (*starts, *ends, len(lines)) if end > i)) for i in starts]
    return lists if starts and starts[-1] > len(lines) * 0.2 else []


# Paragraphs.

_ABSTRACTS = "abstract|summary|zusammenfassung|résumé|resumen|resumo"
_ABSTRACT = re.compile(rf"(?:[1IA]\W*\s)?(?:{_ABSTRACTS})[.:]?", re.IGNORECASE)
"""Heading of the abstract; one with a higher number is of a later section."""
_RUN_IN = re.compile(r"(abstract|summary)\s*[.:—–-]+\s*(?=\S)", re.IGNORECASE)
"""A heading that the text follows on the same line."""
KNOWN_HEADING = re.compile(
    rf"{_NUMBERED}?(?:{_ABSTRACTS}|(?:\w+ )?introduction|background|related works?|methodology|"
    r"(?:materials and )?methods?|experiments?|evaluation|results?(?: and discussion)?|discussion|"
    r"limitations|conclusions?|acknowledge?ments?|statement of need|data availability)[.:]?",
    re.IGNORECASE,
)
_CAPTION = re.compile(
    r"(?:fig(?:ure|\.)?|table|tab\.|scheme|plate|box|abb(?:ildung|\.)|tabelle|tableau|figura|tabla|tabela)"
    r"\s*[A-Z]?\d+[a-z]?\s*[.:|\u2013\u2014]",
    re.IGNORECASE,
)
_HEADING = re.compile(rf"{_NUMBERED}[^\W\d_].*")
_ENDS = re.compile(r"[.!?:;][\"'”’)\]]*$")
_MAX_HEADING = 100
_LETTERS = re.compile(r"[^\W\d_]{2,}")
_TITLED = re.compile(r"(?![a-z]).*[^\W\d_]{2}")


def arrange(lines: Sequence[Line]) -> list[PdfParagraph]:
    """Join the lines of a text, without margins and references, to paragraphs with their sections."""
    if not lines:
        return []
    words = _whole_words(lines)
    lines = _with_initials(lines, words)
    size = _text_height(lines)
    paragraphs: list[PdfParagraph] = []
    open_block: list[Line] = []
    aside: list[list[Line]] = []
    section = ""

    def close() -> None:
        for block in (open_block, *aside):
            paragraphs.extend([join_lines(block, words, section)] if block else ())
        open_block.clear()
        aside.clear()

    blocks = list(_blocks(lines, size))
    for block, after in zip(blocks, [*blocks[1:], []], strict=True):
        head = block[0]
        if _is_label(block, size):
            continue
        if _is_heading(block, after, size):
            close()
            section = " ".join(line.text for line in block).strip()
        elif run_in := _RUN_IN.match(head.text):
            close()
            section = run_in[1]
            open_block += [head._replace(text=head.text[run_in.end() :]), *block[1:]]
        elif (
            (head.height < 0.92 * size or _CAPTION.match(head.text))
            and open_block
            and head.page - open_block[-1].page <= 1
        ):
            aside.append(block)  # a footnote or caption within a paragraph
        elif open_block and _goes_on(open_block, block):
            open_block += block
        else:
            close()
            open_block += block
    close()
    return [part for part in paragraphs if part.text]


def abstract_in(paragraphs: Sequence[PdfParagraph]) -> range:
    """Return the numbers of the paragraphs of the abstract: of the first section of this name, if it is in
    the first half of the text and before the sections of the body; a later one is a summary of these."""
    half = sum(len(part.text) for part in paragraphs) / 2
    for first, (text, _, section) in enumerate(paragraphs):
        if _ABSTRACT.fullmatch(section):
            others = (n for n in range(first, len(paragraphs)) if paragraphs[n].section != section)
            return range(first, next(others, len(paragraphs)))
        half -= len(text)
        if half < 0 or (KNOWN_HEADING.fullmatch(section) and section[:3].lower() != "ack"):
            break  # thanks may come first
    return range(0)


def _whole_words(lines: Sequence[Line]) -> Counter[str]:
    """Count words, without the halves of those that are broken."""
    words: Counter[str] = Counter()
    half = 0
    for line in lines:
        line_words = re.findall(r"[\w-]*\w", line.text.lower())
        words.update(line_words[half : len(line_words) - line.broken])
        half = int(line.broken)
    return words


def _with_initials(lines: Sequence[Line], words: Counter[str]) -> list[Line]:
    """Join the large first letter of a text, which spans several lines, with the rest of its word."""
    joined = list(lines)
    for number, letter in enumerate(lines):
        if len(letter.text) > 1 or not letter.text.isupper():
            continue
        beside = [
            i
            for i, line in enumerate(joined)
            if line.page == letter.page
            and line.height < letter.height / 1.5
            and -3 < line.left - letter.right < letter.height
            and -0.2 * letter.height < line.bottom - letter.bottom < 1.1 * letter.height
        ]
        if not beside:
            continue
        first = max(beside, key=lambda i: joined[i].bottom)
        line = joined[first]
        rest = re.split(r"\W", line.text.lower(), maxsplit=1)[0]
        apart = words[rest] > 1 and not words[letter.text.lower() + rest]
        text = f"{letter.text}{' ' * apart}{line.text}"
        joined[first] = line._replace(text=text, left=letter.left)
        joined[number] = letter._replace(text="")
    return [line for line in joined if line.text]


def _text_height(lines: Iterable[Line]) -> float:
    """Return the height of most characters."""
    heights: Counter[float] = Counter()
    for line in lines:
        heights[round(line.height, 1)] += len(line.text)
    return heights.most_common(1)[0][0]


def _blocks(lines: Sequence[Line], size: float) -> Iterator[list[Line]]:
    """Split lines where a column, a page or a paragraph ends, or the size of the letters changes."""
    gaps = [
        above.bottom - below.bottom
        for above, below in pairwise(lines)
        if above.page == below.page and 0.8 * size < above.bottom - below.bottom < 3 * size
    ]
    usual = median(gaps) if gaps else 1.2 * size
    block: list[Line] = []
    for line in lines:
        if block and _is_start(block, line, usual):
            yield block
            block = []
        block.append(line)
    if block:
        yield block


def _is_start(block: Sequence[Line], line: Line, usual: float) -> bool:
    last = block[-1]
    step = last.bottom - line.bottom
    if line.page != last.page or not -0.5 * last.height < step < 1.45 * max(usual, last.height):
        return True
    if step < 0.5 * last.height:  # on the same line, or a mark above it
        return line.left > last.right + 3 * last.height
    if abs(line.height - last.height) > 0.08 * last.height and len(line.text) > 3 and len(last.text) > 3:
        return True
    if last.broken:
        return False
    if line.bold != last.bold and (_HEADING.fullmatch(last.text) or KNOWN_HEADING.fullmatch(last.text)):
        return True
    left, right = min(line.left for line in block), max(line.right for line in block)
    ends = _ENDS.search(last.text) is not None
    indented = 0.8 * line.height < line.left - left < 6 * line.height and len(block) > 1
    short = right - last.right > 3 * line.height
    return (ends and (indented or (short and len(block) > 1))) or bool(KNOWN_HEADING.fullmatch(line.text))


def _is_heading(block: Sequence[Line], after: Sequence[Line], size: float) -> bool:
    """after: the next block, which tells a heading that has no number from a label in a figure."""
    text = " ".join(line.text for line in block)
    if len(text) > _MAX_HEADING or len(block) > 3 or sum(map(str.isalpha, text)) < 3:
        return False
    if KNOWN_HEADING.fullmatch(text):
        return True
    numbered = _HEADING.fullmatch(text) is not None
    stands_out = block[0].height > 1.08 * size or all(line.bold for line in block) or text.isupper()
    if numbered and stands_out:
        return True
    is_text = bool(after) and abs(after[0].height - size) < 0.08 * size and len(after[0].text) > 30
    below = is_text and after[0].left < block[0].right and after[0].right > block[0].left
    return below and _ENDS.search(text) is None and (stands_out or (numbered and len(block) == 1))


def is_heading_line(lines: Sequence[Line], place: int) -> bool:
    """True for a line that looks like a heading beside the line before it, also if its letters are small."""
    line, before = lines[place], lines[place - 1]
    stands_out = (line.bold and not before.bold) or line.height > 1.05 * before.height
    is_text = len(line.text) > _MAX_HEADING or _ENDS.search(line.text) or not _TITLED.match(line.text)
    return bool(KNOWN_HEADING.fullmatch(line.text)) or (stands_out and not is_text)


def _is_label(block: Sequence[Line], size: float) -> bool:
    """True for a mark in a figure, a cell of a table, or part of a formula."""
    text = " ".join(line.text for line in block)
    words = _LETTERS.findall(text)
    if len(words) < 2 and KNOWN_HEADING.fullmatch(text) is None and _HEADING.fullmatch(text) is None:
        return not words or not (block[0].bold or _ENDS.search(text))
    smaller = block[0].height < 0.92 * size and _ABSTRACT.fullmatch(text) is None
    return smaller and len(words) < 8 and _ENDS.search(text) is None


def _goes_on(before: Sequence[Line], block: Sequence[Line]) -> bool:
    """True if a block continues an earlier one, in another column or page or after a formula."""
    last, head = before[-1], block[0]
    if abs(head.height - last.height) > 0.08 * last.height:
        return False
    if last.broken:
        return True
    return _ENDS.search(last.text) is None and not head.text[:1].isupper()


def join_lines(lines: Sequence[Line], words: Counter[str], section: str) -> PdfParagraph:
    """Join lines, words across them included. words: of the whole text, by which halves are joined."""
    text, page = "", 0
    starts: list[tuple[int, int]] = []
    broken = False
    for line in lines:
        start = len(text)
        if broken:
            text = _join_word(text, line.text, words)
            start = text.rfind(" ") + 1 if line.page != page else start
        else:
            text = f"{text} {line.text}" if text else line.text
            start = len(text) - len(line.text)
        if line.page != page:
            page = line.page
            starts.append((start, page))
        broken = line.broken
    return PdfParagraph(text, tuple(starts), section)


_HYPHEN_END = re.compile(r"([\w-]*\w)[-\u00ad\u2010]?$")
_WORD_START = re.compile(r"[\w-]*\w")
_HYPHENATED = re.compile(
    r"self|well|ill|high|low|long|short|half|cross|first|second|third|two|three|four|five|six|seven|eight|nine"
)
"""Beginnings of words with a hyphen."""
_SECOND = re.compile(
    r"based|making|specific|dependent|driven|aware|scale|related|oriented|tuned|tuning|shot|rich|induced|mediated"
    r"|treated|level|term"
)
"""Ends of words with a hyphen; _PREFIX has the beginnings of other words with the same ends."""
_PREFIX = re.compile(r"in|inter|un|non|over|under|pre|re|co|sub|super|up|down|out|de|en|mis|cor|bi")
_BETWEEN = re.compile(r"the|of|to|in|and|by|up|on|off|out|for|de|la")
"""Words that stand between two hyphens."""


def _join_word(text: str, more: str, words: Counter[str]) -> str:
    """Join the halves of a word; keeps the hyphen if the text has the word with it, but not without, or if
    it has neither and the halves are words."""
    first, second = _HYPHEN_END.search(text), _WORD_START.match(more)
    if first is None or second is None:
        return text + more
    start = text[: first.end(1)]
    whole, compound = f"{first[1]}{second[0]}".lower(), f"{first[1]}-{second[0]}".lower()
    keeps = words[compound] > words[whole] or not (words[whole] or second[0][0].islower())
    if not (words[whole] or words[compound]):
        half = first[1].lower().rpartition("-")[2]
        keeps |= len(first[1]) == 1
        if half != first[1].lower():
            keeps |= len(half) == 1 or words[half] > 0 or _BETWEEN.fullmatch(half) is not None
        keeps |= _SECOND.fullmatch(second[0].lower()) is not None and not _PREFIX.fullmatch(half)
        keeps |= second[0].lower() == "hoc" or bool(_HYPHENATED.fullmatch(half) and len(second[0]) > 3)
        keeps |= all(len(part) > 3 and words[part.lower()] for part in (first[1], second[0]))
    return f"{start}-{more}" if keeps and not text.endswith("\u00ad") else start + more


def find_title(lines: Sequence[Line]) -> str:
    """Return the text in the largest letters in the upper half of the first page; "" if it is no title."""
    first = [line for line in lines if line.page == lines[0].page and sum(map(str.isalpha, line.text)) > 3]
    if not first:
        return ""
    half = (max(line.bottom for line in first) + min(line.bottom for line in first)) / 2
    upper = [line for line in first if line.bottom >= half] or first
    largest = max(line.height for line in upper)
    largest_lines = [line for line in upper if line.height > 0.95 * largest]
    text = " ".join(line.text for line in largest_lines[:5])
    return text if 10 <= len(text) <= 300 else ""
