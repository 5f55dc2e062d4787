"""Recognises the format of a file of papers, by its name or its first bytes."""

from __future__ import annotations

import codecs
import re
from pathlib import Path

import msgspec

from citerec.base.errors import InputError
from citerec.base.files import BYTE_ORDER_MARK, open_bytes, strip_byte_order_mark

FORMATS = ".bib, .ris, .nbib, .enw, .ciw, .csv, EndNote's .xml, .json, .jsonl, .yaml, zotero.sqlite"
SNIFF_BYTES = 1 << 16
"""Number of bytes to recognise a format by."""
_BY_NAME_OR_START = (
    ("ris", (".ris",), rb"TY  ?-"),
    ("bibtex", (".bib", ".bibtex"), rb"@"),
    ("nbib", (".nbib",), rb"PMID *-|OWN *- *ERIC"),
    ("enw", (".enw",), rb"%(?:0 |[ATBJ] \S[^\n]*\n%[A-Z] )"),
    ("wos", (".ciw",), rb"(?:FN [^\n]*\s+(?:VR [^\n]*\s+)?)?PT(?: [A-Z]\s|\t[A-Z][A-Z0-9]\t)"),
)
_OBJECT_OF_OBJECTS = re.compile(rb'\s*\{\s*"(?:[^"\\]|\\.)*"\s*:\s*\{')
_LIST_INSIDE = re.compile(
    rb'[\xef\xbb\xbf\s]*\{\s*(?:"(?!(?:title|\w*id)")[^"\\]*+"\s*:\s*(?:"(?:[^"\\]|\\.)*+"|[\w.+-]++)\s*,\s*)*+'
    rb'"(?:items|references)"\s*:\s*\[',
    re.IGNORECASE,
)
"""An object that is no paper and has a list, also after texts and numbers."""
_BETTER_BIBTEX = re.compile(rb'[\xef\xbb\xbf\s]*\{\s*"config"\s*:\s*\{')
_NOT_READ = (
    (rb"<Pubmed\w*Article", "PubMed's XML", "the format PubMed (.nbib)"),
    (rb"(?m)^<\d+>\s*\n\s*(?:Unique Identifier|VN  - Ovid)", "an export of Ovid", "RIS"),
    (rb"(?m)^RT [A-Z][\w ]+\r?\n(?:SR|ID|A1|T1) ", "RefWorks' tagged format", "RIS"),
    (rb"(?m)^nep-[a-z]{3}\b|NEP: New Economics Papers", "a report of RePEc", "BibTeX or RIS from its pages"),
    (b"http://www.loc.gov/mods", "MODS", "RIS or BibTeX"),
    (b'xmlns:z="http://www.zotero.org/namespaces/export', "Zotero RDF", "BibTeX, CSL JSON or RIS"),
    (rb"loc\.gov/(?:MARC21|standards/marc)|info:lc/xmlns/marc|marcxml", "MARC", "RIS or BibTeX"),
    (rb"<rdf:RDF|<http://purl\.org/", "RDF", "BibTeX or RIS"),
)
"""What formats that people export have near their beginning, their names, and what to export instead."""


def recognise(path: str | Path) -> str:
    """Return the format of a file or URL: "bibtex", "ris", "nbib", "enw", "wos", "table", "endnote", "yaml",
    "better bibtex", "word" (its list of sources); of other JSON "list", "object", "document" or "lines".

    Raises InputError for an empty file or an unknown format.
    """
    with open_bytes(path) as (file, _):
        start = file.read(SNIFF_BYTES)
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        start = start[: len(start) // 2 * 2].decode("utf-16", "replace").encode(errors="replace")
    name = str(path).rpartition("/")[2].lower().removesuffix(".gz")
    text = start.removeprefix(BYTE_ORDER_MARK).lstrip()
    if not text:
        raise InputError(f"{path}: is empty; export it again")
    for format, suffixes, beginning in _BY_NAME_OR_START:
        if name.endswith(suffixes) or re.match(beginning, text):
            return format
    if name.endswith((".csv", ".tsv")):
        from citerec.formats.bibliography.reading.exports import is_table

        if is_table(text.decode(errors="replace")):
            return "table"
        raise InputError(f"{path}: its first line must name columns: title, and authors, year or doi")
    if text.startswith(b"<") and b"<records" in start:
        return "endnote"
    if name.endswith((".yaml", ".yml")):
        return "yaml"
    if text.startswith(b"["):
        strip_byte_order_mark(start, path)
        return "list"
    if _BETTER_BIBTEX.match(start):
        return "better bibtex"
    if text.startswith(b"{"):
        if not name.endswith((".jsonl", ".ndjson")) and _OBJECT_OF_OBJECTS.match(start):
            return "object"
        return "document" if _LIST_INSIDE.match(start) or _ends_later(text) else "lines"
    if b"officeDocument/2006/bibliography" in start:
        return "word"
    for mark, program, export in _NOT_READ:
        if re.search(mark, start):
            raise InputError(f"{path}: is {program}, which is not read; export {export}")
    raise InputError(f"{path}: has an unknown format; give {FORMATS}, also .gz")


def _ends_later(text: bytes) -> bool:
    """True if the first line of a text is no whole JSON value, so that it is not a file of lines."""
    line, newline, _ = text.partition(b"\n")
    try:
        msgspec.json.decode(line)
    except (ValueError, RecursionError):
        return bool(newline) and not line.rstrip().endswith(b"}")
    return False
