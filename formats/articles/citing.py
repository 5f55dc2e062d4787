"""The list of references of a paper as printed, its entries, and the marks in the text that cite them.

There is no general parser of references: an entry is its text, with the number that it has in the list, if
any. Marks are numbers ("[12]", "[3-5]", "(7)", superscripts) or names and years ("Lee and Kim 2003a", "Lee
(2003)"). A mark that may mean two entries means none.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise, product
from typing import NamedTuple

from citerec.formats.articles.markers import NAME, UPPER, YEAR, find_names_before, surname_in
from citerec.formats.articles.pdf_layout import Line, is_heading_line, join_lines, references_in
from citerec.formats.names import surname


class Entry(NamedTuple):
    """An entry of a list of references. number: in the list, 0 if it has none there."""

    number: int
    text: str


class Mark(NamedTuple):
    """texts[text][start:end] cites the entries, indices in the list."""

    text: int
    start: int
    end: int
    entries: tuple[int, ...]


# The list.

MAX_ENTRY = 1200
"""Maximum characters of an entry; the last one may run on into what follows the list."""
FEWEST = 5
"""Minimum number of entries of a numbered list that has no heading."""
LATEST = 0.3
"""Minimum share of a text's lines that stand before such a list."""
INDENT = 6
"""Maximum indent of the other lines of an entry, in line heights."""
_LABEL = re.compile(r"(\[|\()?(\d{1,3})((?(1)[\])]|[.)]?))(?:\s+|$)(?=\W*[^\W\d_]|\W*\d+\W*[^\W\d_]|$)")
_ENTRY_END = re.compile(r"[.)\]\d/]$")
_SAME = re.compile(r"[—–―_-](?:\s?[—–―_-])+|—(?=[.,]?\s*\(?\d{4})")  # the authors of the entry before
_DATE = r"[(\[](?:19|20)\d\d[a-z]?[)\],]"
_DATED = rf"[{UPPER}](?:[^\d().]|(?<=[{UPPER}])\.){{2,150}}\.?\s*{_DATE}(?:[.:,]?\s+[{UPPER}“\"]|\W*$)"
"""Anybody (2001). Title; what follows a journal and its year is a number."""
_ENTRY_START = re.compile(
    rf"{NAME}(?:,| [A-Z]{{1,3}}\b|[ -]{NAME}, [A-Z]\b)|(?:[A-Z]\.[\s-]?)+{NAME}|{_SAME.pattern}|{_DATED}"
)
TWO_WORKS = re.compile(rf"{_DATE}.*?[.)\]\d/]\s+{_DATED}")


def split_references(lines: Sequence[Line]) -> list[tuple[list[Line], list[Entry]]]:
    """Return the parts of a text that have their own lists of references, such as chapters: the lines of each
    without this list, and its entries. A list without a heading is known by its numbers. One that continues
    the numbers of the list before, or has no text before it, belongs to that list."""
    regions, heading = references_in(lines), 1
    if not regions:
        run, heading = _numbered(lines), 0
        if len(run) < FEWEST or run[0][1] < LATEST * len(lines):
            return [(list(lines), [])]
        regions = [(run[0][1], len(lines))]
    parts, rest, done = list[tuple[list[Line], list[Entry]]](), list[Line](), 0
    for start, end in regions:
        last = parts[-1][1][-1].number if parts else 0
        entries, others = _read_list(lines[start + heading : end], last)
        likely = sum(_is_entry(text, number) for number, text in entries)
        if 2 * likely <= len(entries) and (parts or end < regions[-1][1]):
            continue  # a word of a table or of a list of contents
        running = [*rest, *lines[done:start]]
        if not parts or (running and not 1 < entries[0].number == last + 1):
            parts.append(([], []))
        parts[-1][0].extend(running)
        parts[-1][1].extend(entries)
        rest, done = others, end
    parts[-1][0].extend([*rest, *lines[done:]])
    return parts


def _read_list(lines: Sequence[Line], last: int) -> tuple[list[Entry], list[Line]]:
    """Return the entries of a list, and the lines that are in none. last: last number of the list before."""
    run = next((run for first in (1, last + 1) if (run := _numbered(lines, first)) and run[0][1] <= 3), [])
    heads = [place for place in range(1, len(lines) - 1) if is_heading_line(lines, place)]
    end = next((i for i in heads if not (run or _has_entries(lines[i : i + 200]))), len(lines))
    run = run or [(0, place) for place in _unnumbered(lines[:end])]
    entries, others = list[Entry](), [*lines[end:]]
    for (number, first), (_, after) in pairwise([*run, (0, end)]):
        head = next((i for i in heads if first < i < after and number), after)
        is_odd = number != run[-1][0] or 2 * sum(place < first for place in heads) > len(run)
        if is_odd and sum(len(line.text) for line in lines[head:after]) < MAX_ENTRY:
            head = after  # a line at the top of a page, or a title in bold letters
        text = join_lines(lines[first:head], Counter(), "").text
        text = text[label.end() :] if number and (label := _LABEL.match(text)) else text
        if (same := _SAME.match(text)) and entries and (work := read_work(entries[-1].text)):
            text = work.authors + text[same.end() :]
        entries.append(Entry(number, text[:MAX_ENTRY].strip()))
        others += lines[head:after]
    return entries, others


def _is_entry(text: str, number: int = 0) -> bool:
    return bool((number or _ENTRY_START.match(text)) and _YEARS.search(text))


def _has_entries(lines: Sequence[Line]) -> bool:
    """True if the lines may be entries without numbers, judged by how many such entries begin there."""
    texts = (" ".join(line.text for line in lines[i : i + 4]) for i in range(len(lines)))
    return sum(map(_is_entry, texts)) * MAX_ENTRY > 2 * sum(len(line.text) for line in lines)


def _numbered(lines: Sequence[Line], begin: int = 1) -> list[tuple[int, int]]:
    """Return the numbers of entries and the lines that begin them: the longest run in one form.

    A number that is missing, since it was read as a page number, is given to the first line of a page.
    """
    matches = ((_LABEL.match(line.text), place) for place, line in enumerate(lines))
    labels = [(int(label[2]), place, label[1], label[3]) for label, place in matches if label]
    best: list[tuple[int, int]] = []
    for first, (own, at, *form) in enumerate(labels):
        if own != begin:
            continue
        run = [(begin, at)]
        for number, place, *_ in (label for label in labels[first + 1 :] if [*label[2:]] == form):
            last, before = run[-1]
            if number == last + 2:
                pages = (i for i in range(before + 1, place) if lines[i].page != lines[i - 1].page)
                run += [(last + 1, page) for page in islice(pages, 1)]
            if number == run[-1][0] + 1:
                run.append((number, place))
        if len(run) >= len(best):
            best = run
    return best


def _unnumbered(lines: Sequence[Line]) -> list[int]:
    """Return the lines that begin entries: those that stick out beside the next ones and, after the end of an
    entry with a year, those that look like names or have more space above them."""
    starts = [0] if lines else []
    steps = [(a.bottom - b.bottom) / max(b.height, 1) for a, b in pairwise(lines)]
    near = 1.2 * min(sorted(step for step in steps if step > 0.8)[len(lines) // 10 :], default=9)
    for place, (before, line) in enumerate(pairwise(lines), 1):
        others = (before, *lines[place + 1 : place + 2])
        indents = [(other.left - line.left) / max(line.height, 1) for other in others]
        out, inside = (any(0.5 < side * indent < INDENT for indent in indents) for side in (1, -1))
        is_new = _ENTRY_START.match(line.text) or near < steps[place - 1] < INDENT
        if is_new and not (out or inside) and _ENTRY_END.search(before.text):
            out = any(re.search(r"\d{4}|press|n\.\s?d\.", line.text) for line in lines[starts[-1] : place])
        if out:
            starts.append(place)
    return starts


# Marks.

_UP = "⁰¹²³⁴⁵⁶⁷⁸⁹"
_DIGITS = str.maketrans(_UP, "0123456789")
_DASH = "[-–—‐‑‒−]"  # noqa: RUF001
_MORE = rf"(?:\s*(?:[,;]|and|{_DASH})\s*"
_D = rf"[\d{_UP}]{{1,3}}"
_AT = rf"(?:,\s*(?:[^\W\d_]+\.?|§+)\s*[\d.]+(?:\s*{_DASH}\s*\d+)?(?=\s*[;\]]))?"
"""A place in a work: [5, pp. 12-14; 7]; what comes after a comma may be a work or a page."""
_FORMS = {
    "[": re.compile(rf"\[\s*{_D}{_AT}{_MORE}{_D}{_AT}|\s*\]\s*{_DASH}\s*\[\s*{_D})*\s*\]"),
    "^": re.compile(
        rf"(?<![\d{_UP}−-])[{_UP}]{{1,3}}(?:\s?(?:,|{_DASH})\s?[{_UP}]{{1,3}}|\s[{_UP}]{{1,3}})*"
        rf"(?![{_UP}\w]|\s?[+−=±⁺⁻])"
    ),
    "(": re.compile(rf"\(\s*\d{{1,3}}{_MORE}\d{{1,3}})*\s*\)"),
}
"""Forms of numbers, in the order in which they are preferred."""
_PART = re.compile(rf"({_D})(?:[\s\]]*{_DASH}[\s\[]*({_D}))?")
_UNIT = re.compile(r"(?:^|[\s/·(\d])(?:[µμnmckdM]?[mgsLlJKVWN]|[RrIXχΧηnx]|cm|ft|in|yr|h|Hz)$|\d$")  # noqa: RUF001
LEAST_CITED = 0.4
"""Share of the entries that the marks of a form must cite to be believed."""


def find_marks(texts: Sequence[str], entries: Sequence[Entry]) -> list[Mark]:
    """Find the marks in texts that cite entries, in order; none unless they cite LEAST_CITED of these."""
    best: list[Mark] = []
    most = 0
    for form in (*_FORMS, ""):
        marks = list(_numbers(form, texts, entries) if form else _names(texts, entries))
        cited = len({entry for mark in marks for entry in mark.entries})
        if cited > 1.2 * most:
            best, most = marks, cited
    return best if most >= max(LEAST_CITED * len(entries), 2) or most >= len(entries) > 0 else []


def _numbers(form: str, texts: Sequence[str], entries: Sequence[Entry]) -> Iterator[Mark]:
    """Yield the marks with numbers in a form."""
    times = Counter(entry.number for entry in entries)  # what may mean two entries means none
    rows = {number: row for row, (number, _) in enumerate(entries) if number and times[number] == 1}
    for number, text in enumerate(texts if rows else ()):
        for match in _FORMS[form].finditer(text):
            start, end = match.span()
            is_power = form == "^" and match[0] in "²³" and _UNIT.search(text[:start][-8:])
            if not is_power and (cited := _listed(match[0], rows)):
                yield Mark(number, start, end, cited)


def _listed(mark: str, rows: dict[int, int]) -> tuple[int, ...]:
    """Return the entries of a mark; none if one of its numbers has no entry."""
    cited: dict[int, None] = {}
    for first, last in _PART.findall(re.sub(_AT, "", mark).translate(_DIGITS)):
        numbers = range(int(first), int(last or first) + 1)
        if not numbers or not all(number in rows for number in numbers):
            return ()
        cited |= dict.fromkeys(rows[number] for number in numbers)
    return tuple(cited)


_AUTHOR = re.compile(rf"\W*(?:[A-Z](?:\.[\s-]*|\s))*({NAME}(?:[ -]{NAME})*)")
_PRINTED_YEAR = re.compile(r"[(\[]\s*((?:19|20)\d\d[a-z]?)\b")
_BARE_YEAR = re.compile(r"(?<![\d.–-])((?:19|20)\d\d[a-z]?)\b(?![–-])")
_YEARS = re.compile(YEAR)
_AND_YEAR = r"\s*(?:[,;&](?:\s*and\b)?|and\b)\s*"
_DATES = re.compile(
    rf"{YEAR}(?:{_AND_YEAR}(?:19|20)\d\d[a-z]?(?![\w%/])|(?<=[a-z]){_AND_YEAR}[b-z](?!\w|\.?\s*\d))*"
)
"""2001a, b, 2003 and 2004, but no page: 2001a, p. 5."""
_EACH = re.compile(r"\b(\d{4}|(?=[a-z]\b))([a-z]?)\b")


def _last(name: str) -> str:
    return surname_in(name).casefold()


def _names(texts: Sequence[str], entries: Sequence[Entry]) -> Iterator[Mark]:
    """Yield the marks with names and years, by the first author, and the year with or without its letter."""
    rows, people = dict[tuple[str, str], list[int]](), set[str]()
    for row, (_, entry) in enumerate(entries):
        author, dated = _AUTHOR.match(entry), _PRINTED_YEAR.search(entry) or _BARE_YEAR.search(entry)
        if author and dated:
            words = re.findall(NAME, author[1])  # both of García Márquez, the last of Ann Lee
            for key in product({_last(words[0]), _last(words[-1])}, {dated[1], dated[1][:4]}):
                rows.setdefault(key, []).append(row)
            people.update(surname(name) for name in re.findall(NAME, entry[:120]))
    surnames, authors = frozenset(people), {author for author, _ in rows}
    for number, text in enumerate(texts if rows else ()):
        end = 0
        for years in _DATES.finditer(text):
            if names := find_names_before(text, end, years.start(), surnames):
                start, end = names[0], years.end()
                before = map(_last, re.findall(NAME, text[start : years.start()]))
                name = next((name for name in before if name in authors), "")
                cited, year = list[int](), ""
                for digits, letter in _EACH.findall(years[0]):
                    year = digits or year
                    own = rows.get((name, year + letter), ())
                    cited += own if len(own) == 1 else ()  # not what may mean two
                if cited:
                    yield Mark(number, start, end, tuple(cited))


# What an entry says, as far as it can be recognised.

_STOP = r"(?:(?:(?<=[^\W\d_]{2})|(?<=[\d)\]”]))\.(?<!\bal\.)(?<!\bSt\.)\s+(?=[^a-z\s])|(?<=\bal\.)\s+)"
_TITLE = rf"(.*?)(?:{_STOP}|\Z)"
_YEARLY = r"(?:[\s,.]*[([]|\.,?\s+)(?:19|20)\d\d[a-z]?[)\]]?[.:,]?\s+(?=[A-Z“\"\d])"
_AND = r"(?:,\s*(?:and\s+)?|\s+and\s+|\s*&\s*)"
_PLAIN = rf"{NAME}\s+[{UPPER}]{{1,3}}"
_DOTTED = rf"{NAME},\s*(?:[{UPPER}]\.[\s-]*){{1,4}}"
_WORKS = tuple(
    re.compile(form, re.DOTALL)
    for form in (
        rf"((?:(?!{_STOP}).){{1,600}}?)(?:{_YEARLY}|[,.:;][^\w“\"]*)[“\"]((?:[^“”\"]|“[^“”]*”){{15,300}}?)"
        r"(?:[,.?!][”\"]|[”\"](?=\s*(?:[.,;:(\[]|\d|in\b|\Z)))",  # A. Lee, “Title,”
        rf"((?:(?!{_STOP}).){{3,600}}?){_YEARLY}{_TITLE}",  # Lee, A. (2001) Title.
        rf"((?:{_PLAIN}(?:\s+(?:Jr|Sr|[23][rn]d))?{_AND})*{_PLAIN}(?:,?\s*et\s+al)?)[.:]\s*{_TITLE}",
        rf"({_DOTTED}(?:\s*(?:[;,&]|and)+\s*{_DOTTED})*(?:[;,&]*\s*et al\.)?)\s*(?=[^\s,;&]){_TITLE}",
        rf"(.*?){_STOP}(.*?){_STOP}",  # anybody. Title. Journal
    )
)
"""Authors and title, as they are tried: Lee, “Title”; Lee, A. (2001). Title; Lee A, Kim B. Title;
Lee, A., Kim, B. Title; anybody. Title. Journal."""
_SHORT = re.compile(rf"\b[{UPPER}]\w{{0,3}}\. [{UPPER}]|^\W*{NAME}, [{UPPER}]\.")
"""Short words of names and journals, which no title has; a match is from an entry without a title."""
_WORDY = re.compile(r"[^\W\d_]{3,}")


class Work(NamedTuple):
    """What an entry says of a work: its authors as printed, its title, its year."""

    authors: str
    title: str
    year: int


def read_work(text: str) -> Work | None:
    """Return authors, title and year of an entry; None if they cannot be told apart.

    >>> read_work("Lee A, Kim B. Honey bees dance. J Bees. 2001;3:1-2.")
    Work(authors='Lee A, Kim B', title='Honey bees dance', year=2001)
    >>> read_work("Lee, A., & Kim, B. (2001). Honey bees dance. J. Bees, 3.")
    Work(authors='Lee, A., & Kim, B', title='Honey bees dance', year=2001)
    """
    fits = (match.groups() for form in _WORKS if (match := form.match(text)))
    authors, title = next(fits, ("", ""))
    authors, title = authors.strip(" ,;:("), title.strip(" .,;:")
    years = _PRINTED_YEAR.findall(text) or _BARE_YEAR.findall(text)
    is_title = len(_WORDY.findall(title)) > 1 and len(title) <= 300 and not _SHORT.search(title)
    if not (is_title and _AUTHOR.match(authors)):
        return None
    return Work(authors, title, int(years[0][:4]) if years else 0)
