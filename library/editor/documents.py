"""A document in an editor: positions, the citation at a caret and the passage around it. Reads no files.

Positions are counted as the editor counts them (UTF-8, UTF-16 or UTF-32); lines end at LF, CR LF or CR.
A keystroke reads the text around the caret, and that before it once; `outline` reads the whole document.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import numpy as np
from lsprotocol import types
from numpy.typing import NDArray
from pygls.uris import to_fs_path

from citerec.datasets.records import TARGET_MARKER, WINDOW
from citerec.datasets.tokenize import sentence_starts
from citerec.formats.documents import Reference
from citerec.formats.drafts.inputs import clean_text
from citerec.formats.drafts.language import PLACEHOLDER, Key, Language, Open
from citerec.formats.drafts.languages import language_of
from citerec.library.drafts.reader import PlaceholderReader, find_contexts, find_passages, find_sentences

HEAD = 100_000
"""Characters at the beginning of a document that have its title and abstract."""
PASSAGE = 2_000
"""Characters of the source on each side of a caret that are read; before it, up to twice as many."""
LONGEST = 400_000
"""Most characters of a document whose passages are read, which takes longer than all else."""
LONGEST_LINE = 50_000
"""Characters of a line that are read."""
_LONG_LINE = re.compile(rf"[^\n]{{{LONGEST_LINE + 1},}}")
_PARAGRAPH_END = re.compile(r"\n[ \t\r]*(?=[\n\\#=*+-]|\Z)")
"""An empty line, or one that begins with markup."""
_FULL_STOP = re.compile(r"[.!?]+[\"'”’)\]}]*\Z")
_hidden = lru_cache(8)(lambda language, text: [*language.hidden(text)])
_CODECS = {"utf-8": ("utf-8", 1), "utf-16": ("utf-16-le", 2), "utf-32": ("utf-32-le", 4)}
"""Python's names of encodings, and the bytes of a unit."""


@dataclass(frozen=True)
class Document:
    """A version of a text. starts: offsets of its lines. encoding: of positions, utf-8, utf-16 or utf-32."""

    uri: str
    version: int
    text: str
    starts: NDArray[np.int64]
    language: Language | None
    encoding: str = "utf-16"

    @classmethod
    def open(
        cls, uri: str, text: str, version: int = 0, language_id: str = "", encoding: str = "utf-16"
    ) -> Document:
        suffix = Path(to_fs_path(uri) or uri).suffix
        return cls(uri, version, text, _line_starts(text), language_of(suffix, language_id), encoding)

    @property
    def path(self) -> Path | None:
        """The file; None for a new document."""
        path = to_fs_path(self.uri)
        return Path(path) if path and "\0" not in path else None

    def changed(self, version: int, changes: Iterable[types.TextDocumentContentChangeEvent]) -> Document:
        """Return the next version."""
        document = self
        for change in changes:
            text = change.text
            if isinstance(change, types.TextDocumentContentChangePartial):
                start, end = sorted(map(document.offset, (change.range.start, change.range.end)))
                text = f"{document.text[:start]}{text}{document.text[end:]}"
            document = replace(document, text=text, starts=_line_starts(text))
        return replace(document, version=version)

    def offset(self, position: types.Position) -> int:
        """Return the offset of a position; the end of its line or of the text if it is beyond."""
        if position.line >= len(self.starts):
            return len(self.text)
        start = int(self.starts[position.line])
        end = int(self.starts[position.line + 1]) if position.line + 1 < len(self.starts) else len(self.text)
        codec, size = _CODECS[self.encoding]
        units = self.text[start:end].rstrip("\r\n").encode(codec, "replace")
        return start + len(units[: position.character * size].decode(codec, "ignore"))

    def position(self, offset: int) -> types.Position:
        """Return the position of an offset."""
        line = int(np.searchsorted(self.starts, offset, side="right")) - 1
        codec, size = _CODECS[self.encoding]
        before = self.text[int(self.starts[line]) : offset].encode(codec, "replace")
        return types.Position(line, len(before) // size)

    def range(self, start: int, end: int) -> types.Range:
        return types.Range(self.position(start), self.position(end))


def _line_starts(text: str) -> NDArray[np.int64]:
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    ends = (codes == ord("\n")) | ((codes == ord("\r")) & (np.append(codes[1:], 0) != ord("\n")))
    return np.append(0, np.flatnonzero(ends) + 1)


@dataclass(frozen=True)
class Passage:
    """The text around a missing citation, with TARGETCIT, and the keys cited in its sentence."""

    context: str
    beside: tuple[str, ...]


@dataclass(frozen=True)
class Outline:
    """What a whole document says.

    missing: (start, end) of the missing citations. passages: the contexts of its citations, in order, and the
    keys that each cites, a placeholder for a missing one. rows: passages of missing citations, by start.
    bibs: names of its bibliographies. labels: of its parts.
    """

    title: str
    abstract: str
    year: int
    cited: tuple[Key, ...]
    missing: tuple[tuple[int, int], ...]
    passages: tuple[tuple[str, tuple[str, ...]], ...]
    rows: Mapping[int, int]
    bibs: tuple[Key, ...]
    labels: frozenset[str]

    def place(self, offset: int) -> int:
        """Return the row of the passage at an offset: how many come before it."""
        for start, end in self.missing:
            if start < offset <= end and start in self.rows:
                return self.rows[start]
        starts = *(key.start for key in self.cited), *(start for start, _ in self.missing)
        keys = sum(start < offset for start in starts)
        ends = np.cumsum([len(cited) for _, cited in self.passages])
        return int(np.searchsorted(ends, keys, side="right"))


def outline(language: Language, text: str) -> Outline:
    """Read a whole text, but only the beginning of very long lines: they hold data, such as pictures."""
    if len(text) > LONGEST_LINE:
        text = _LONG_LINE.sub(lambda line: line[0][:LONGEST_LINE] + " " * (len(line[0]) - LONGEST_LINE), text)
    visible = language.visible(text)
    metadata = language.metadata(clean_text(visible[:HEAD]))
    citations = [*language.citations(visible)]
    missing = tuple((citation.start, citation.end) for citation in citations if citation.missing)
    year = metadata.year or date.today().year
    cited = tuple(language.keys_of(citations))
    bibs = tuple(language.bibliographies(text, visible))
    labels = frozenset(language.labels(visible))
    reader = PlaceholderReader(language)
    read = reader.mark(Path(), text) if len(text) <= LONGEST else ""
    references = dict.fromkeys([*(key.key for key in cited), *reader.spans], Reference())
    paragraphs, _ = language.paragraphs(language.without_code(read))
    passages = tuple((context, tuple(keys)) for context, keys in find_passages(paragraphs, references))
    marked = ((key, row) for row, (_, keys) in enumerate(passages) for key in keys if key in reader.spans)
    rows = {reader.spans[key][1]: row for key, row in marked}
    return Outline(metadata.title, metadata.abstract, year, cited, missing, passages, rows, bibs, labels)


def _around(document: Document, language: Language, start: int, end: int) -> tuple[int, int]:
    """Return start and end of the text that is read around a place; it begins within no comment or code."""
    text, known = document.text.replace("\r\n", " \n"), start - start % PASSAGE
    if (first := max(0, known - PASSAGE)) > 0:
        first = text.find("\n", first, start) + 1 or first
    spans = ((opens, closes) for opens, closes in _hidden(language, text[:known]) if opens < first < closes)
    opens, closes = next(spans, (first, first))
    return (closes if closes < known else opens), end + PASSAGE  # one that is not closed yet may go on


def passage_at(document: Document, language: Language, start: int, end: int, mark: str) -> Passage:
    """Return the passage around a citation: text[start:end] is replaced by `mark`, which has PLACEHOLDER."""
    text = document.text
    first, last = _around(document, language, start, end)
    before, after = text[first:start], text[end:last]
    reader = PlaceholderReader(language)
    marked = f"{reader.mark(Path(), before)}{mark}{reader.mark(Path(), after)}"
    paragraphs, _ = language.paragraphs(language.without_code(marked))
    others = dict.fromkeys(reader.spans, Reference())
    context = find_contexts(paragraphs, others, {PLACEHOLDER: ()}).get(PLACEHOLDER)
    for paragraph in paragraphs if context else ():
        for key, (_, beside) in find_sentences(paragraph):
            if key == PLACEHOLDER:
                return Passage(context or "", tuple(key for key in beside if key not in reader.spans))
    before, after = clean_text(before), clean_text(after)
    plain = " ".join(before[-WINDOW:].split()), " ".join(after[:WINDOW].split())
    return Passage(f"{plain[0]} {TARGET_MARKER} {plain[1]}".strip(), ())


def citation_at(document: Document, caret: int) -> tuple[Open, Passage] | None:
    """Return the citation that the caret is in, and its passage; None in a comment or code."""
    language, text = document.language, document.text.replace("\r\n", " \n")
    if language is None or (place := language.open_at(text, caret)) is None:
        return None
    near, last = _around(document, language, place.start, place.rest)
    read = ((first, language.hidden(text[first:last])) for first in (near, 0))  # a part may lack its list
    if all(any(a < place.start - first <= b for a, b in spans) for first, spans in read):
        return None
    mark = PLACEHOLDER + place.closing
    return place, passage_at(document, language, place.start, place.rest, mark)


def _near(document: Document, caret: int) -> tuple[Language, int, str]:
    """Return the language, where the text near a caret begins, and this text as far as it is printed."""
    assert document.language is not None
    first, last = _around(document, document.language, caret, caret)
    return document.language, first, document.language.visible(document.text[first:last])


def key_at(document: Document, caret: int) -> Key | None:
    """Return the key that the caret touches."""
    language, first, text = _near(document, caret)
    for key, start, end in language.keys(text):
        if first + start <= caret <= first + end:
            return Key(key, first + start, first + end)
    return None


def missing_at(document: Document, caret: int) -> tuple[int, int] | None:
    """Return (start, end) of the missing citation that the caret touches."""
    language, first, text = _near(document, caret)
    for citation in language.citations(text):
        if citation.missing and citation.start <= caret - first <= citation.end:
            return first + citation.start, first + citation.end
    return None


def sentence_end_at(document: Document, caret: int) -> int | None:
    """Return where a citation goes if the caret is at the end of a sentence: before its full stop."""
    _, first, text = _near(document, caret)
    here = caret - first
    breaks = [(match.start(), match.end()) for match in _PARAGRAPH_END.finditer(text)]
    start = max((end for _, end in breaks if end <= here), default=0)
    stop = min((begin for begin, _ in breaks if begin >= here), default=len(text))
    bounds = [start, *(start + offset for offset in sentence_starts(text[start:stop])), stop]
    place = max(bisect_right(bounds, here - 1) - 1, 0)
    for a, b in pairwise(bounds[place : place + 2]):
        sentence = text[a:b].rstrip()
        ending = _FULL_STOP.search(sentence)
        if ending and a + ending.start() <= here <= b and len(sentence[: ending.start()].split()) > 2:
            return first + a + ending.start()
    return None
