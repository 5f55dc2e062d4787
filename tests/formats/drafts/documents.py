"""Documents of Word and LibreOffice made for tests, as their programs write them."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

ITEM = {
    "id": 7,
    "type": "book",
    "title": "Trees",
    "author": [{"family": "Lee"}],
    "issued": {"date-parts": [[2020]]},
}
URI = "http://zotero.org/users/1/items/ABCD2345"
_FORMATS = "application/vnd.openxmlformats-"
PICTURE = bytes(range(256)) * 40
_W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
_ODF = "urn:oasis:names:tc:opendocument:xmlns:"
_TEXT = f'xmlns:office="{_ODF}office:1.0" xmlns:text="{_ODF}text:1.0" xmlns:style="{_ODF}style:1.0"'


def zotero_code(item: Mapping[str, Any] = ITEM, uri: str = URI) -> str:
    """Return the code of a field of Zotero."""
    citation = {"citationID": "a", "citationItems": [{"id": 7, "uris": [uri], "itemData": item}]}
    return f"ZOTERO_ITEM CSL_CITATION {json.dumps(citation)}"


def write(path: Path, document: str, more: Mapping[str, bytes] | None = None) -> Path:
    """Write a document of these paragraphs in XML, for Word or LibreOffice by its suffix, with a picture.

    more: other parts, or the same with other content.
    """
    if path.suffix == ".docx":
        kinds = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
        relation = f'<Relationship Id="r1" Type="{kinds}/%s" Target="%s"/>'
        styles = ("Title", "heading 1", "heading 2")
        names = "".join(
            f'<w:style w:type="paragraph" w:styleId="s{number}"><w:name w:val="{name}"/></w:style>'
            for number, name in enumerate(styles)
        )
        types = f'<Default Extension="rels" ContentType="{_FORMATS}package.relationships+xml"/>'
        for part, name in (("document", "document.main"), ("styles", "styles"), ("footnotes", "footnotes")):
            content = f"{_FORMATS}officedocument.wordprocessingml.{name}+xml"
            types += f'<Override PartName="/word/{part}.xml" ContentType="{content}"/>'
        space = "http://schemas.openxmlformats.org/package/2006"
        relations = f'<Relationships xmlns="{space}/relationships">%s</Relationships>'
        parts = {
            "[Content_Types].xml": f'<Types xmlns="{space}/content-types">{types}</Types>',
            "_rels/.rels": relations % relation % ("officeDocument", "word/document.xml"),
            "word/_rels/document.xml.rels": relations % relation % ("styles", "styles.xml"),
            "word/document.xml": f"<w:document {_W}><w:body>{document}</w:body></w:document>",
            "word/styles.xml": f"<w:styles {_W}>{names}</w:styles>",
        }
    else:
        parts = {
            "mimetype": "application/vnd.oasis.opendocument.text",
            "content.xml": f'<office:document-content {_TEXT} office:version="1.3"><office:body><office:text>'
            f"{document}</office:text></office:body></office:document-content>",
            "META-INF/manifest.xml": f'<m:manifest xmlns:m="{_ODF}manifest:1.0" m:version="1.3">'
            '<m:file-entry m:full-path="/" m:media-type="application/vnd.oasis.opendocument.text"/>'
            '<m:file-entry m:full-path="content.xml" m:media-type="text/xml"/>'
            '<m:file-entry m:full-path="media/picture.png" m:media-type="image/png"/></m:manifest>',
        }
    declaration = '<?xml version="1.0" encoding="UTF-8"?>\n'
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, text in ((name, text) for name, text in parts.items() if name not in (more or {})):
            stored = zipfile.ZIP_STORED if name == "mimetype" else zipfile.ZIP_DEFLATED
            file.writestr(name, text if stored == zipfile.ZIP_STORED else declaration + text, stored)
        for name, other in {"media/picture.png": PICTURE, **(more or {})}.items():
            file.writestr(name, other)
    return path


def paragraph(suffix: str, *runs: str, level: int = -1) -> str:
    """Return a paragraph; runs that begin with a tag are XML. level: 0 for the title, then of a heading."""
    if suffix == ".docx":
        style = f'<w:pPr><w:pStyle w:val="s{level}"/></w:pPr>' if level >= 0 else ""
        return f"<w:p>{style}{''.join(run if run.startswith('<w:') else word_run(run) for run in runs)}</w:p>"
    tag = (
        f'h text:outline-level="{level}"' if level > 0 else 'p text:style-name="Title"' if level == 0 else "p"
    )
    made = (run if run.startswith("<text:") else f"<text:span>{escape(run)}</text:span>" for run in runs)
    return f"<text:{tag}>{''.join(made)}</text:{tag[0]}>"


def word_run(text: str, tag: str = "t") -> str:
    return f"<w:r><w:rPr><w:b/></w:rPr><w:{tag}>{escape(text)}</w:{tag}></w:r>"


def field(suffix: str, code: str, shown: str, pieces: int = 2) -> str:
    """Return a field. pieces: of its code, in Word."""
    if suffix == ".docx":
        sign = '<w:r><w:fldChar w:fldCharType="%s"/></w:r>'
        size = len(code) // pieces + 1
        codes = "".join(word_run(code[at : at + size], "instrText") for at in range(0, len(code), size))
        return f"{sign % 'begin'}{codes}{sign % 'separate'}{word_run(shown)}{sign % 'end'}"
    name = quoteattr(f"{code.strip()} RND0123456789")
    return f"<text:reference-mark-start text:name={name}/>{shown}<text:reference-mark-end text:name={name}/>"


def members(path: Path, without: Iterable[str] = ()) -> dict[str, tuple[bytes, bytes]]:
    """Return of each part its bytes in the archive, and its content."""
    raw, result = path.read_bytes(), {}
    with zipfile.ZipFile(path) as file:
        for info in file.infolist():
            if info.filename not in without:
                packed = raw[info.header_offset :][: 30 + len(info.filename) + info.compress_size]
                result[info.filename] = packed, file.read(info)
    return result
