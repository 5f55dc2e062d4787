"""LibreOffice Writer (.odt): OASIS OpenDocument 1.3, part 3."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b

from citerec.formats.bibliography.bibtex import read_item
from citerec.formats.bibliography.csl import write_csl
from citerec.formats.bibliography.latex import escape_latex
from citerec.formats.drafts.office.language import Office
from citerec.formats.drafts.office.package import Package
from citerec.formats.drafts.office.text import HEADING, NAMED, Field, New, OfficeReader, Place, xml_text

_FIELDS = ("ZOTERO_", "CSL_", "ADDIN ", "JABREF_", "JR_")
_MOST_SPACES = 100


def _mark_code(attributes: Mapping[str, str]) -> str:
    """Return an entry of LibreOffice's own bibliography, in BibTeX's fields, as a field's code."""
    key, kind = attributes.get("identifier", ""), attributes.get("bibliography-type", "")
    fields = {name: escape_latex(text) for name, text in attributes.items()}
    fields["author"] = fields.get("author", "").replace(";", " and ")
    item = write_csl(read_item("article" if kind == "journal" else kind, fields), key)
    cited = {"id": key, "uris": [f"mark:{key}"], "itemData": item | {"citation-key": key}}
    return f"CSL_CITATION {json.dumps({'citationItems': [cited]})}"


class LibreOfficeReader(OfficeReader):
    """Reads the text of paragraphs; deleted text and comments are skipped."""

    spaces = (
        "urn:oasis:names:tc:opendocument:xmlns:",
        "urn:openoffice:names:experimental:ooo-ms-interop:xmlns:field:1.0",  # of fields that Word has written
    )
    skipped = frozenset(
        ("tracked-changes", "annotation", "note-citation", "table-of-content", "bibliography", "title",
         "desc", *(f"{name}-index" for name in ("alphabetical", "illustration", "object", "table", "user")))
    )  # fmt: skip

    def __init__(self, package: Package) -> None:
        super().__init__(package)
        self._parents: dict[str, str] = {}
        self._places: list[Place] = []
        self._notes: list[str] = []
        """Signs of the notes that are open."""

    def begin(self, name: str, attributes: Mapping[str, str]) -> None:
        reference = attributes.get("name", "")
        if name == "style":
            self._parents[reference] = attributes.get("parent-style-name", "")
        elif name in ("p", "h"):
            start, end, prefix = self.tag()
            level = attributes.get("outline-level", "1")
            style = attributes.get("style-name", "")
            named = NAMED.get(style) or NAMED.get(self._parents.get(style, ""), "")
            heading = HEADING * min(int(level), 10) if name == "h" and level.isdigit() else ""
            self.begin_paragraph(self._notes[-1] if self._notes else heading or named)
            self._places.append(Place((start, end), prefix))
        elif name == "note":
            self._notes.append(self.call_note())
        elif name == "s":
            count = attributes.get("c", "1")
            self.add(" " * (min(int(count), _MOST_SPACES) if count.isdigit() else 1))
        elif name in ("tab", "line-break"):
            self.add(" ")
        elif name == "reference-mark-start" and reference.lstrip().startswith(_FIELDS):
            self.open_field(f"mark {reference}", reference)
        elif name == "section":
            self.open_field(name, reference if reference.lstrip().startswith(_FIELDS) else "")
        elif name == "reference-mark-end":
            self.close_field(f"mark {reference}")
        elif name == "bookmark-start" and (code := self.bookmarks.get(reference)):
            self.open_field(f"bookmark {reference}", code)
        elif name == "bookmark-end":
            self.close_field(f"bookmark {reference}")
        elif name == "bibliography-mark":
            self.open_field(name, _mark_code(attributes))
        elif name == "fieldmark-start":
            self.open_field("fieldmark")
        elif name == "param" and reference.endswith(".code"):
            self.add_code(attributes.get("value", ""))
        elif name == "fieldmark-end":
            self.close_field("fieldmark")

    def text(self, text: str) -> None:
        if self._places:
            self.add(text, self._places[-1])

    def end(self, name: str) -> None:
        if name in ("p", "h"):
            self.end_paragraph()
            self._places.pop()
        elif name == "note" and self._notes:
            self._notes.pop()
        elif name in ("section", "bibliography-mark"):
            self.close_field(name)
        elif name == "fieldmark-start":
            self.show_field()


class LibreOffice(Office):
    """LibreOffice."""

    name = "LibreOffice"
    suffixes = (".odt",)
    reader = LibreOfficeReader

    def main_part(self, reader: OfficeReader) -> str:
        reader.bookmarks = reader.properties("meta.xml")
        return "content.xml"

    def insert(self, place: Place, new: Iterable[New]) -> tuple[bytes, Callable[[bytes], bytes] | None]:
        pieces = []
        for part in new:
            if isinstance(part, Field):
                mark = blake2b(part.code.encode(), digest_size=5).hexdigest()
                name = xml_text(f"ZOTERO_ITEM CSL_CITATION {part.code} RND{mark}", quoted=True)
                start, end = (
                    f'<{place.prefix}reference-mark-{side} {place.prefix}name="{name}"/>'
                    for side in ("start", "end")
                )
                pieces += [start, xml_text(part.shown), end]
            else:
                pieces.append(xml_text(part))
        return "".join(pieces).encode(), None


LIBREOFFICE = LibreOffice()
