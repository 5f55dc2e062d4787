"""Documents of word processors as a language: their text has Pandoc's citations in brackets and [CITE]."""

from __future__ import annotations

import os
import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from citerec.base.errors import InputError
from citerec.base.files import file_stamp, real_path
from citerec.formats.documents import Metadata
from citerec.formats.drafts.bibliographies import References, csl_entries
from citerec.formats.drafts.inputs import Inputs
from citerec.formats.drafts.language import Citation, Key, Language, Note, Source, number_keys
from citerec.formats.drafts.markdown import MARKDOWN, find_citations
from citerec.formats.drafts.office.fields import Cited, field_code, shown_text
from citerec.formats.drafts.office.package import Package
from citerec.formats.drafts.office.text import (
    ABSTRACT,
    CALL,
    HEADING,
    NOTE,
    NUMBERS,
    SIGNS,
    TITLE,
    Edit,
    Field,
    New,
    OfficeReader,
    OfficeText,
    Place,
)

_ABSTRACT = re.compile(
    r"^[^\w\n]*(?:abstract|summary)(?:\s*[.:—–-]+|[ \t]*\n)\s*([^\n\x01-\x03]+)", re.M | re.I
)
_PART = re.compile(
    r"(?:\A\[|;)(?P<prefix>[^@;]*?)(?P<minus>-?)@(?:\{[^{}\n]*\}|[^\s,;\]]+)(?P<suffix>[^;]*?)(?=;|\]\Z)"
)
_CALLED = re.compile(f"{CALL}(\\d+){CALL}|^{NOTE}(\\d+){NOTE}([^\n]*)\n?", re.MULTILINE)
LONGEST_TITLE = 300


class Office(Language):
    """Documents of a word processor."""

    marks = "[CITE] or [@?]"
    comment = " [{}]"
    holds_items = True
    before = re.compile(r"(?!)")
    after = re.compile("")
    _hidden = re.compile(r"(?!)")
    _heading = re.compile(rf"^({HEADING}+)([^\n]*)$", re.MULTILINE)
    _include = re.compile(r"(?!)")
    _paragraph_end = re.compile(r"\n")
    reader: ClassVar[type[OfficeReader]]

    @abstractmethod
    def main_part(self, reader: OfficeReader) -> str:
        """Prepare a reader, and return the part that has the text."""

    @abstractmethod
    def insert(self, place: Place, new: Iterable[New]) -> tuple[bytes, Callable[[bytes], bytes] | None]:
        """Return what is written at a place in a text, and what is to be done to the tag of its element."""

    def open(self, path: Path) -> OfficeText:
        """Read a document. Raises InputError if it cannot be read."""
        return _open(self, path, tuple(file_stamp(path)) if os.path.isfile(path) else ())

    def text(self, path: Path) -> str:
        return self.open(path).text

    exact_text = text
    cite, insertion = MARKDOWN.cite, MARKDOWN.insertion

    def can_replace(self, path: Path, start: int, end: int) -> bool:
        return self.open(path).can_replace(start, end)

    def documents(self, files: Iterable[Path]) -> list[Path]:
        """Leave out the files by which Word locks a document."""
        return super().documents(path for path in files if not path.name.startswith("~$"))

    def citations(self, text: str) -> Iterator[Citation]:
        """Yield the citations in brackets: other words with @ are addresses here."""
        found = find_citations(text, 0, len(text), links=False)
        return (citation for citation in found if text[citation.start] == "[")

    def read(self, path: Path, inputs: Inputs) -> Source:
        text, document = self.old_comment.sub("", inputs.open(path, ())), self.open(path)
        _, cites = self.sections(self.body(text))
        entries = csl_entries({**item["itemData"], "id": key} for key, item in document.items.items())
        references = References(real_path(path), own=entries)
        metadata = self.metadata(text)
        return Source(text, metadata, [*number_keys(cites)], references, skipped=document.notes)

    def metadata(self, head: str) -> Metadata:
        """Return what has the styles of title and abstract; or the first paragraph, unless it cites, and what
        follows the word "abstract"."""
        lines = [line for line in head.split("\n") if line]
        title = next((line for line in lines if line.startswith(TITLE)), "")
        first = lines[0] if lines else SIGNS
        if not title and len(first) <= LONGEST_TITLE and first[0] not in SIGNS and "[@" not in first:
            title = first
        abstract = self.without_citations("\n".join(line for line in lines if line.startswith(ABSTRACT)))
        abstract = abstract or self.named_section(self.sections(head)[0], "abstract")
        if not abstract and (match := _ABSTRACT.search(head)):
            abstract = self.without_citations(match[1])
        return Metadata("", self.plain(self.without_citations(title)), self.plain(abstract))

    def _bibliographies(self, visible: str) -> list[Key]:
        return []

    def plain(self, text: str) -> str:
        """Join paragraphs, without the signs of headings."""
        return " ".join(re.sub(f"[{SIGNS}]", "", NUMBERS.sub("", text)).split())

    def notes(self, text: str) -> Iterator[Note]:
        matches, lines = [*_CALLED.finditer(text)], dict[str, list[re.Match[str]]]()
        for match in matches:
            if match[2]:
                lines.setdefault(match[2], []).append(match)
        for match in matches:
            if match[1] in lines:
                note = lines[match[1]]
                yield Note(*match.span(), " ".join(line[3] for line in note), [line.span() for line in note])

    def body(self, text: str, running: bool = False) -> str:
        return re.sub(rf"^{TITLE}[^\n]*$", "", text, flags=re.MULTILINE)

    def written(
        self,
        path: Path,
        edits: Iterable[tuple[int, int, str]],
        items: Mapping[str, dict[str, Any]],
        plain: bool,
    ) -> bytes:
        """Return a document with other text.

        items: cited ones by key, besides those of the document; citations of others remain text. plain: all
        citations are text, with authors and years, instead of fields of Zotero.
        """
        document = self.open(path)
        all_items = {**items, **document.items}
        made: list[Edit] = []
        for start, end, text in edits:
            new, done = list[New](), 0
            for number, citation in enumerate(self.citations(text)):
                if citation.keys and all(key.key in all_items for key in citation.keys):
                    cited = cited_items(text[citation.start : citation.end], citation, all_items)
                    shown = shown_text(cited)
                    code = field_code(cited, shown, start + number)
                    new += [text[done : citation.start], shown if plain else Field(code, shown)]
                    done = citation.end
            made.append((start, end, [part for part in (*new, text[done:]) if part]))
        return document.written(made, self.insert)


def cited_items(text: str, citation: Citation, items: Mapping[str, dict[str, Any]]) -> list[Cited]:
    """Return the items of a citation in Pandoc's form with the words around their keys."""
    parts = [*_PART.finditer(text)]
    if len(parts) != len(citation.keys):
        return [Cited(items[key.key]) for key in citation.keys]
    return [
        Cited(items[key.key], part["prefix"].strip(), part["suffix"].strip(" ,"), bool(part["minus"]))
        for key, part in zip(citation.keys, parts, strict=True)
    ]


@lru_cache(maxsize=2)
def _open(language: Office, path: Path, stamp: tuple[int, ...]) -> OfficeText:
    """stamp: of the file, which is read again after a change."""
    reader = language.reader(Package.read(path, language.name))
    part = language.main_part(reader)
    reader.read(part)
    if not reader.content:
        raise InputError(f"{path}: has no {part}; save it again as a {language.name} document")
    return OfficeText.of(reader)
