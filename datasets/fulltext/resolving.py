"""Which paper of the collection a reference means.

A reference with a paper's id means that paper or none. Otherwise titles are compared by their letters and
digits: the reference's, or any run of up to six parts of the printed entry between punctuation. Of the papers
of that title those remain that

- share an author, where authors are known: one of the paper's first four is among the reference's, or stands
  in the printed entry
- are of the same year or one or two years apart, where both are known

If neither authors nor years could be compared, the title must have 20 letters. Of several papers the nearest
in year is taken; if that is not a single one, none is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from datasets.fulltext.catalogue import Catalogue
from datasets.fulltext.names import fold, letters_of, surname, title_key
from datasets.fulltext.schema import Reference

YEARS_APART = 2
LONG_TITLE = 20
SHORTEST_PART = 12
"""Letters that a part of a printed entry has at least to be taken for a title."""
_PARTS = 6
_PUNCTUATION = re.compile(r"[.?!,;:](?=\s|$)|[“”\"«»()\[\]]|``|''|\s[–—-]+\s|\n")
_YEAR = re.compile(r"(?<!\d)(?:19|20)\d\d(?!\d)")


def resolve(reference: Reference, catalogue: Catalogue) -> tuple[int | None, str]:
    """(row of the paper, how it was found), or (None, why not)."""
    if reference.paper:
        row = catalogue.rows.get(reference.paper)
        return row, "by id" if row is not None else "the cited paper is not in the collection"
    if not (reference.title or reference.text):
        return None, "the reference has neither id nor title"
    agreeing: dict[int, int] = {}
    for letters in _titles(reference):
        for row in catalogue.titled(title_key(letters)):
            apart = _agrees(reference, letters, row, catalogue)
            if apart is not None:
                agreeing[row] = apart
    if not agreeing:
        return None, "no paper has the title"
    least = min(agreeing.values())
    nearest = [row for row, apart in agreeing.items() if apart == least]
    return (nearest[0], "by title") if len(nearest) == 1 else (None, "several papers have the title")


def _titles(reference: Reference) -> Iterator[str]:
    """Letters of what may be the title."""
    if reference.title:
        yield letters_of(reference.title)
        return
    parts = [letters for part in _PUNCTUATION.split(reference.text) if (letters := letters_of(part))]
    for first in range(len(parts)):
        for last in range(first, min(first + _PARTS, len(parts))):
            letters = "".join(parts[first : last + 1])
            if len(letters) >= SHORTEST_PART:
                yield letters


def _agrees(reference: Reference, letters: str, row: int, catalogue: Catalogue) -> int | None:
    """Years between the two (0 if one is unknown), None if authors or years contradict."""
    authors, year = {name.casefold() for name in catalogue.surnames(row)}, catalogue.years[row]
    names = {surname(name).casefold() for name in reference.authors}
    if not names:
        names = set(re.findall(r"[\w-]+", fold(reference.text).casefold()))
    compared = bool(authors and names)
    if compared and authors.isdisjoint(names):
        return None
    years = [reference.year] if reference.year else [int(found) for found in _YEAR.findall(reference.text)]
    if years and year:
        compared = True
        apart = min(abs(year - other) for other in years)
        return apart if apart <= YEARS_APART else None
    return 0 if compared or len(letters) >= LONG_TITLE else None
