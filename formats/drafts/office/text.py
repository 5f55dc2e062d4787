"""The text of a word processor's document, with the places of its letters in the XML.

A document is a zip archive with parts in XML (ECMA-376, OASIS OpenDocument 1.3). Its text has a line for
each paragraph. New text is written into the XML at its place; all other bytes of the XML and all other parts
of the archive stay as they are. Document types and their entities are refused.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any, ClassVar, NamedTuple
from xml.parsers import expat
from xml.sax.saxutils import escape

from citerec.base.errors import InputError
from citerec.formats.drafts.markdown import MARKDOWN
from citerec.formats.drafts.office.fields import citation_items
from citerec.formats.drafts.office.package import Package

MAX_NESTED = 100
"""Maximum number of fields that are open at once."""
HEADING, TITLE, ABSTRACT = "\x01", "\x02", "\x03"
"""First signs of lines of headings (one per level), title and abstract; XML cannot contain them."""
CALL, NOTE = "\x04", "\x05"
"""Around the number of a note, where the text calls it and where its lines begin."""
NUMBERS = re.compile(f"[{CALL}{NOTE}]\\d+[{CALL}{NOTE}]")
SIGNS = f"{HEADING}{TITLE}{ABSTRACT}"
NAMED = {"Title": TITLE, "Abstract": ABSTRACT}
"""Names of styles, and what their paragraphs begin with."""
_NOT_IN_XML = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_BREAKS = str.maketrans("\n\r\t", "   ")
_TAG = re.compile(rb"<([^\s/>]+)(?:[^>\"']|\"[^\"]*\"|'[^']*')*>")
_PROPERTY = re.compile(r"(ZOTERO_BREF_\w+?)_(\d+)")


class Field(NamedTuple):
    """A field of Zotero: its code, and the text that it shows."""

    code: str
    shown: str


New = str | Field
Edit = tuple[int, int, Sequence[New]]
"""Start and end of a text, and what replaces it."""


class Place(NamedTuple):
    """Where text can be written: the tag of the element that has it, and the properties of its run."""

    tag: tuple[int, int]
    prefix: str
    run: bytes = b""


class Piece(NamedTuple):
    """A piece of the text and its bytes [start, end) in a part; without a place, it cannot be replaced. even:
    the bytes are its letters in UTF-8."""

    text: str
    part: str = ""
    start: int = 0
    end: int = 0
    even: bool = False
    place: Place | None = None


@dataclass
class _Opened:
    """A field that has begun. code: as far as it is known; read: it is complete. data: Word's, which EndNote
    uses. hides: what it shows is not text."""

    id: str
    code: str = ""
    data: str = ""
    read: bool = False
    hides: bool = False


class OfficeReader(ABC):
    """Reads the parts of a document one after the other.

    paragraphs: pieces of text, of each paragraph. items: cited items of Zotero by key.
    """

    spaces: ClassVar[tuple[str, ...]]
    """Beginnings of the namespaces that are read."""
    skipped: ClassVar[frozenset[str]] = frozenset()
    """Elements whose content is not text."""
    hidden: ClassVar[re.Pattern[str]] = re.compile(
        r"\s*(?:ADDIN\s+)?(?:(?:ZOTERO_|CSL_)?BIBL|(?i:mendeley[ _]bib)|EN\.REFLIST|JR_bib|TOC\b)"
    )
    """Codes of fields whose text is that of other parts of the document, or of its bibliography."""

    def __init__(self, package: Package) -> None:
        self.package = package
        self.paragraphs: list[list[Piece]] = []
        self.items: dict[str, dict[str, Any]] = {}
        self._by_address: dict[str, str] = {}
        """Keys of items by their addresses."""
        self.bookmarks: dict[str, str] = {}
        """Codes of fields by the names of their bookmarks."""
        self.sources: dict[str, dict[str, Any]] = {}
        """Sources of Word's own citations by tag."""
        self.damaged: list[str] = []
        """What stands before citations whose data are damaged, which are read as text."""
        self.part, self.content = "", b""
        self._called = 0
        """Notes so far."""
        self._open: list[list[Piece]] = []
        self._fields: list[_Opened] = []
        self._depth = self._skips = 0
        self._parser: Any = None

    @abstractmethod
    def begin(self, name: str, attributes: Mapping[str, str]) -> None:
        """Called at the start of an element that is not skipped; names have no namespaces."""

    def end(self, name: str) -> None:  # noqa: B027
        """Called at the end of such an element."""

    def text(self, text: str) -> None:  # noqa: B027
        """Called with text."""

    def read(self, part: str) -> None:
        """Read a part, if the document has it. Raises InputError if it is not well-formed XML in UTF-8."""
        self.part, self.content = part, self.package.part(part)
        where = f"{self.package.path}, {part}"

        def refuse(what: str, *_: object) -> None:
            raise InputError(f"{where}: has {what}, which is not read; save the document again")

        def declared(_: str, encoding: str | None, __: int) -> None:
            if (encoding or "utf-8").lower() not in ("utf-8", "us-ascii"):
                refuse(f"the encoding {encoding}")

        parser = self._parser = expat.ParserCreate(None, " ")
        parser.XmlDeclHandler = declared
        parser.StartDoctypeDeclHandler = partial(refuse, "a document type")
        parser.StartCdataSectionHandler = partial(refuse, "a CDATA section")
        parser.StartElementHandler, parser.EndElementHandler = self._start, self._end
        parser.CharacterDataHandler = self._text
        try:
            if self.content:
                parser.Parse(self.content, True)
        except (expat.ExpatError, ValueError) as error:
            raise InputError(f"{where}: is not well-formed XML ({error}); save the document again") from None
        finally:
            self._open.clear()
            self._fields.clear()
            self._depth = self._skips = 0

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        local = name.rpartition(" ")[2]
        if not self._skips and local in self.skipped:
            self._skips = self._depth
        if not self._skips:
            own = {key.rpartition(" ")[2]: value for key, value in attributes.items()}
            self.begin(self._local(name), own)

    def _end(self, name: str) -> None:
        if not self._skips:
            self.end(self._local(name))
        elif self._skips == self._depth:
            self._skips = 0
        self._depth -= 1

    def _text(self, text: str) -> None:
        if not self._skips:
            self.text(text)

    def _local(self, name: str) -> str:
        """Return the name of an element without its namespace; "" for one that is not read."""
        space, _, local = name.rpartition(" ")
        return local if space.startswith(self.spaces) else ""

    @property
    def at(self) -> int:
        """The byte at which the present element or text starts."""
        return int(self._parser.CurrentByteIndex)

    def tag(self) -> tuple[int, int, str]:
        """Return start, end and prefix of the present start tag."""
        match = _TAG.match(self.content, self.at)
        assert match is not None, self.at  # Expat has read it
        prefix, colon, _ = match[1].decode().rpartition(":")
        return *match.span(), prefix + colon

    def begin_paragraph(self, mark: str = "") -> None:
        """Begin a paragraph; one within another, as of a note, stands after it in the text."""
        self._open.append([Piece(mark)] if mark else [])
        self.paragraphs.append(self._open[-1])

    def mark_paragraph(self, mark: str) -> None:
        """Let the present paragraph be a heading or the title."""
        if self._open and mark and not any(piece.text.startswith((*SIGNS,)) for piece in self._open[-1]):
            self._open[-1].insert(0, Piece(mark))

    def call_note(self, paragraphs: Iterable[list[Piece]] = ()) -> str:
        """Call a note in the present paragraph, and put its paragraphs after that; returns their sign."""
        self._called += 1
        self.add(f"{CALL}{self._called}{CALL}")
        sign = f"{NOTE}{self._called}{NOTE}"
        for paragraph in paragraphs:
            if any(piece.text.strip() for piece in paragraph):
                self.paragraphs.append([Piece(sign), *paragraph])
        return sign

    def end_paragraph(self) -> None:
        self._open.pop()

    def add(self, text: str, place: Place | None = None) -> None:
        """Add text to the present paragraph, if no field hides it."""
        if not self._open or any(field.hides or not field.read for field in self._fields):
            return
        if place is None:
            self._open[-1].append(Piece(text.translate(_BREAKS)))
            return
        start, letters = self.at, text.encode()
        even = self.content.startswith(letters, start)
        end = start + len(letters)
        if not even:  # a reference such as &amp;, or the end of a line
            is_reference = self.content.startswith(b"&", start)
            end = self.content.index(b";", start) + 1 if is_reference else start + 2
        self._open[-1].append(Piece(text.translate(_BREAKS), self.part, start, end, even, place))

    def open_field(self, id: str = "", code: str | None = None) -> None:
        """Begin a field. code: None if it follows."""
        if len(self._fields) == MAX_NESTED:
            raise InputError(
                f"{self.package.path}, {self.part}: has more than {MAX_NESTED} fields in one another"
            )
        self._fields.append(_Opened(id, code or ""))
        if code is not None:
            self.show_field()

    def add_code(self, text: str) -> None:
        if self._fields and not self._fields[-1].read:
            self._fields[-1].code += text

    def add_data(self, text: str) -> None:
        if self._fields:
            self._fields[-1].data += text

    def show_field(self) -> None:
        """Begin the text of the last field, whose code is complete: a citation becomes its keys."""
        if not self._fields or self._fields[-1].read:
            return
        opened = self._fields[-1]
        opened.read = True
        items = citation_items(opened.code, opened.data, self.sources)
        if items is None:
            before = "".join(piece.text for piece in self._open[-1])[-40:].strip() if self._open else ""
            self.damaged.append(before)
        if keys := [key for item in items or () if (key := self._key_of(*item))]:
            self.add(f"[{'; '.join(MARKDOWN.cite(key)[1:-1] for key in keys)}]")
        opened.hides = bool(keys) or bool(self.hidden.match(opened.code))

    def _key_of(self, key: str, item: dict[str, Any]) -> str:
        """Return the key of a cited item in this document; "" for one without data.

        Items with an address in common are one, as for Zotero; only the first needs its data.
        """
        if same := next((self._by_address[uri] for uri in item["uris"] if uri in self._by_address), ""):
            key = same
        elif item["itemData"]:
            number, stem = 1, key
            while (item_before := self.items.get(key)) and item_before["itemData"] != item["itemData"]:
                number += 1
                key = f"{stem}-{number}"
            self.items[key] = item
        else:
            return ""
        self._by_address |= dict.fromkeys(item["uris"], key)
        return key

    def close_field(self, id: str = "") -> None:
        """End the last field with an id; one without a text shows its citation, too."""
        for place in reversed(range(len(self._fields))):
            if self._fields[place].id == id:
                if place == len(self._fields) - 1:
                    self.show_field()
                del self._fields[place]
                return

    def properties(self, part: str) -> dict[str, str]:
        """Return the codes of bookmarks by name, whose pieces are properties of the document in a part."""
        pieces: dict[str, dict[int, str]] = {}
        for element in self.package.elements(part):
            names = (value for key, value in element.items() if key.endswith("}name") or key == "name")
            if match := _PROPERTY.fullmatch(next(names, "")):
                pieces.setdefault(match[1], {})[int(match[2])] = "".join(element.itertext())
        return {name: "".join(text for _, text in sorted(own.items())) for name, own in pieces.items()}


@dataclass
class OfficeText:
    """The text of a document. items: cited items of Zotero by key. notes: what was not read."""

    package: Package
    text: str
    pieces: Sequence[Piece]
    items: dict[str, dict[str, Any]]
    notes: Sequence[str]
    _starts: Sequence[int]

    @classmethod
    def of(cls, reader: OfficeReader) -> OfficeText:
        paragraphs = (
            paragraph
            for paragraph in reader.paragraphs
            if any(piece.text.strip(f" {SIGNS}") and not NUMBERS.fullmatch(piece.text) for piece in paragraph)
        )
        pieces = [piece for paragraph in paragraphs for piece in (*paragraph, Piece("\n"))]
        notes = [
            f"the citation after “{text}” has damaged or unknown data and is read as text"
            for text in reader.damaged
        ]
        starts = [*accumulate((len(piece.text) for piece in pieces), initial=0)]
        text = "".join(piece.text for piece in pieces)
        return cls(reader.package, text, pieces, reader.items, notes, starts)

    def can_replace(self, start: int, end: int) -> bool:
        """True if text[start:end] is the author's own, not that of a field."""
        return all(piece.place for piece, _, _ in self._pieces(start, end))

    def _pieces(self, start: int, end: int) -> Iterable[tuple[Piece, int, int]]:
        """Yield the pieces of text[start:end], and which of their letters it has."""
        place = bisect_right(self._starts, start) - 1
        while place < len(self.pieces) and (first := self._starts[place]) < end:
            piece = self.pieces[place]
            yield piece, max(0, start - first), min(len(piece.text), end - first)
            place += 1

    def written(self, edits: Iterable[Edit], insert: Any) -> bytes:
        """Return the document with other text.

        edits: of text that can be replaced, without overlaps. insert: returns what is written at a place, and
        what its tag becomes (Office.insert).
        """
        changes: dict[str, dict[tuple[int, int], bytes]] = {}
        for start, end, new in edits:
            written = False
            for piece, first, last in self._pieces(start, end):
                assert piece.place is not None, (start, end)
                at, to = piece.start, piece.end
                if piece.even:
                    at = piece.start + len(piece.text[:first].encode())
                    to = piece.start + len(piece.text[:last].encode())
                own = changes.setdefault(piece.part, {})
                new_bytes, tag = insert(piece.place, () if written else new)
                own[at, to] = new_bytes
                if tag:
                    own[piece.place.tag] = tag(self.package.part(piece.part)[slice(*piece.place.tag)])
                written = True
        parts = {}
        for part, own in changes.items():
            content, pieces, done = self.package.part(part), [], 0
            for (at, to), new_bytes in sorted(own.items()):
                pieces += [content[done:at], new_bytes]
                done = to
            parts[part] = b"".join([*pieces, content[done:]])
            expat.ParserCreate().Parse(parts[part], True)  # no copy that cannot be opened
        return self.package.with_parts(parts)


def xml_text(text: str, quoted: bool = False) -> str:
    """Return a text for XML, without characters that it cannot have."""
    return escape(_NOT_IN_XML.sub(" ", text), {'"': "&quot;"} if quoted else {})
