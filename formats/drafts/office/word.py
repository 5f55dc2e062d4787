"""Word (.docx): ECMA-376, part 1, WordprocessingML."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Mapping

from citerec.formats.bibliography.csl import write_csl
from citerec.formats.bibliography.reading.exports import word_sources
from citerec.formats.drafts.office.language import Office
from citerec.formats.drafts.office.package import Package
from citerec.formats.drafts.office.text import (
    HEADING,
    NAMED,
    Field,
    New,
    OfficeReader,
    Piece,
    Place,
    xml_text,
)

_HEADING = re.compile(r"heading ([1-9])", re.IGNORECASE)
_SIGNS = {"tab": " ", "br": " ", "cr": " ", "noBreakHyphen": "-"}


class WordReader(OfficeReader):
    """Reads the text of runs; deleted text is skipped, inserted text is not. Notes follow their paragraph."""

    spaces = (
        "http://schemas.openxmlformats.org/wordprocessingml/2006/main",
        "http://purl.oclc.org/ooxml/wordprocessingml/main",
        "http://schemas.openxmlformats.org/markup-compatibility/2006",
    )
    skipped = frozenset(("del", "moveFrom", "Fallback", "pPrChange"))

    def __init__(self, package: Package) -> None:
        super().__init__(package)
        self.styles: dict[str, list[str]] = {}
        """Of each style: its mark, and the style that it is based on."""
        self._style = ["", ""]
        self._notes: dict[str, list[list[Piece]]] = {}
        """Paragraphs of notes, which are read before the text, by kind and id."""
        self._note, self._note_starts = "", 0
        self._runs: list[bytes] = []
        """Properties of the runs that are open, in XML."""
        self._properties = (0, 0)
        self._text_place: Place | None = None
        self._inside = ""
        """Which part of a field the text is in."""

    def mark_of(self, style: str, depth: int = 0) -> str:
        mark, base = self.styles.get(style, ("", ""))
        return mark or (self.mark_of(base, depth + 1) if base and depth < 20 else "")

    def begin(self, name: str, attributes: Mapping[str, str]) -> None:
        value = attributes.get("val", "")
        if name == "p":
            self.begin_paragraph()
        elif name in ("footnote", "endnote"):
            self._note, self._note_starts = f"{name} {attributes.get('id')}", len(self.paragraphs)
        elif name in ("footnoteReference", "endnoteReference"):
            self.call_note(self._notes.pop(f"{name.removesuffix('Reference')} {attributes.get('id')}", ()))
        elif name == "style":
            self._style = self.styles[attributes.get("styleId", "")] = ["", ""]
        elif name == "name" and not self._open:
            match = _HEADING.fullmatch(value)
            self._style[0] = HEADING * int(match[1]) if match else NAMED.get(value, "")
        elif name == "basedOn":
            self._style[1] = value
        elif name == "pStyle":
            self.mark_paragraph(self.mark_of(value))
        elif name == "outlineLvl" and value.isdigit() and int(value) < 9:
            if self._open:
                self.mark_paragraph(HEADING * (int(value) + 1))
            else:
                self._style[0] = self._style[0] or HEADING * (int(value) + 1)
        elif name == "r":
            self._runs.append(b"")
        elif name == "rPr" and not self._properties[1] and self.content[self.tag()[1] - 2] != ord("/"):
            self._properties = self.at, self._depth
        elif name == "t" and self._runs:
            start, end, prefix = self.tag()
            self._text_place = Place((start, end), prefix, self._runs[-1])
        elif name in ("instrText", "fldData"):
            self._inside = name
        elif name in _SIGNS and self._runs:
            self.add(_SIGNS[name])
        elif name == "fldChar":
            kind = attributes.get("fldCharType")
            if kind == "begin":
                self.open_field()
            elif kind == "separate":
                self.show_field()
            else:
                self.close_field()
        elif name == "fldSimple":
            self.open_field(code=attributes.get("instr", ""))
        elif name == "tag" and value.startswith("MENDELEY_"):  # of a content control, in its properties
            self.open_field(f"control {self._depth - 2}", value)
        elif name == "bookmarkStart" and (code := self.bookmarks.get(attributes.get("name", ""))):
            self.open_field(f"bookmark {attributes.get('id')}", code)
        elif name == "bookmarkEnd":
            self.close_field(f"bookmark {attributes.get('id')}")

    def text(self, text: str) -> None:
        if self._inside == "instrText":
            self.add_code(text)
        elif self._inside:
            self.add_data(text)
        elif self._text_place is not None:
            self.add(text, self._text_place)

    def end(self, name: str) -> None:
        if name == "p" and self._open:
            self.end_paragraph()
        elif name in ("footnote", "endnote"):
            self._notes[self._note] = self.paragraphs[self._note_starts :]
            del self.paragraphs[self._note_starts :]
        elif name == "r":
            self._runs.pop()
        elif name == "rPr" and self._properties[1] == self._depth:
            if self._runs:
                end = self.content.index(b">", self.at) + 1
                self._runs[-1] = self.content[self._properties[0] : end]
            self._properties = (0, 0)
        elif name == "t":
            self._text_place = None
        elif name in ("instrText", "fldData"):
            self._inside = ""
        elif name in ("fldSimple", "sdt"):
            self.close_field("" if name == "fldSimple" else f"control {self._depth}")


class Word(Office):
    """Word."""

    name = "Word"
    suffixes = (".docx",)
    reader = WordReader

    def main_part(self, reader: OfficeReader) -> str:
        def related(folder: str, name: str, kind: str, usual: str) -> str:
            """Return the part that has a kind of relation to a part."""
            elements = reader.package.elements(posixpath.join(folder, f"_rels/{name}.rels"))
            targets = (e.get("Target", "") for e in elements if e.get("Type", "").endswith(f"/{kind}"))
            return posixpath.normpath(posixpath.join("/", folder, next(targets, usual))).lstrip("/")

        target = related("", "", "officeDocument", "word/document.xml")
        reader.bookmarks = reader.properties("docProps/custom.xml")
        for part in reader.package.names():
            if part.startswith("customXml/item") and part.endswith(".xml"):
                items = word_sources(reader.package.part(part))
                reader.sources |= {tag: write_csl(item, tag) for tag, item in items.items()}
        for part in ("styles", "footnotes", "endnotes"):
            reader.read(related(*posixpath.split(target), part, f"{part}.xml"))
        return target

    def insert(self, place: Place, new: Iterable[New]) -> tuple[bytes, Callable[[bytes], bytes] | None]:
        w, run = place.prefix, place.run.decode()

        def in_run(content: str) -> str:
            return f"<{w}r>{run}{content}</{w}r>"

        def text_run(text: str) -> str:
            return in_run(f'<{w}t xml:space="preserve">{xml_text(text)}</{w}t>')

        def sign(kind: str) -> str:
            return in_run(f'<{w}fldChar {w}fldCharType="{kind}"/>')

        runs = []
        for part in new:
            if isinstance(part, Field):
                code = xml_text(f" ADDIN ZOTERO_ITEM CSL_CITATION {part.code} ")
                code = in_run(f'<{w}instrText xml:space="preserve">{code}</{w}instrText>')
                runs += [sign("begin"), code, sign("separate"), text_run(part.shown), sign("end")]
            else:
                runs.append(text_run(part))
        opened = f'<{w}r>{run}<{w}t xml:space="preserve">'
        written = f"</{w}t></{w}r>{''.join(runs)}{opened}" if runs else ""
        kept = b' xml:space="preserve">'  # spaces at the ends of the text count
        return written.encode(), lambda tag: tag if b"xml:space" in tag else tag[:-1] + kept


WORD = Word()
