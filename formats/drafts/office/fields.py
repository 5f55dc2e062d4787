"""Citations of Zotero's add-ins: a field's code is a word, the citation in JSON, and in LibreOffice a name.

EndNote's have records in XML, in the code or, in base64, in the data of the field. Those of Mendeley Cite are
content controls with the citation in base64.

The form: github.com/zotero/zotero, chrome/content/zotero/xpcom/integration.js, and csl-citation.json of
github.com/citation-style-language/schema. Mendeley's are of the same form.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from types import MappingProxyType
from typing import Any, NamedTuple

from citerec.base.errors import InputError
from citerec.formats.articles.xml_documents import parse_xml
from citerec.formats.bibliography.csl import write_csl
from citerec.formats.bibliography.item import ROLES, Item
from citerec.formats.bibliography.reading.csl import csl_item
from citerec.formats.bibliography.reading.exports import read_endnote_xml
from citerec.formats.bibliography.reading.records import Fields
from citerec.formats.identifiers import date_year
from citerec.formats.names import OTHERS, Name

_CODE = re.compile(r"\s*(?:ADDIN\s+)?(?:ZOTERO_ITEM\s+)?CSL_CITATION\s*(?=\{)")
_MENDELEY = re.compile(r"MENDELEY_CITATION_v\d_")
_NOT_READ = re.compile(
    r"\s*(?:ADDIN\s+(?:CITAVI\.P|CitaviP|PAPERS2_C|paperpile_c|RW\.CITE|REFMGR\.CITE)|JABREF_|JR_cite)"
)
"""Citations of other programs."""
_ENDNOTE = re.compile(r"\s*ADDIN\s+EN\.CITE(?!\.)\s*")
_WORD = re.compile(r"\s*CITATION\s+(?:\"([^\"]+)\"|([^\s\\]+))")
_MORE_WORD = re.compile(r"\\m\s+([^\s\\]+)")
_NOT_IN_KEY = re.compile(r"[\s\[\]{}@;,\ue000-\uf8ff]+")
_SCHEMA = "https://github.com/citation-style-language/schema/raw/master/csl-citation.json"
_SPACES = re.compile("[\x00-\x20\ud800-\udfff\ufffe\uffff]+")
"""Spaces, and what XML cannot contain: LibreOffice shows one space for several."""
_PAGE = re.compile(r"pp?\.\s*(\w+(?:[–-]\w+)?)")
_DECODER = json.JSONDecoder()


class Cited(NamedTuple):
    """An item in a citation, with the text before and after it. item: with `uris` and `itemData`."""

    item: dict[str, Any]
    prefix: str = ""
    suffix: str = ""
    no_author: bool = False


def citation_items(
    code: str, stored: str = "", sources: Mapping[str, dict[str, Any]] = MappingProxyType({})
) -> list[tuple[str, dict[str, Any]]] | None:
    """Return the keys and items that a field cites; nothing for a field of another kind, None for a damaged
    one.

    stored: data of a field of Word; sources: those of Word's own citations, by tag. An item without data is
    one that an earlier field has.
    """
    items: list[tuple[str, dict[str, Any]]] = []
    if cited := _WORD.match(code):
        tags = [cited[1] or cited[2], *_MORE_WORD.findall(code, cited.end())]
        for tag in tags:
            key = _NOT_IN_KEY.sub("-", tag).strip("-") or "item"
            own = {"type": "document", **sources.get(tag, {}), "id": key}
            items.append((key, {"id": tag, "uris": [f"word:{tag}"], "itemData": own}))
        return items
    if match := _ENDNOTE.match(code):
        return _endnote_items(code[match.end() :], stored)
    try:
        if match := _MENDELEY.match(code):
            citation = json.loads(b64decode(code[match.end() :] + "=="))
        elif match := _CODE.match(code):
            citation, _ = _DECODER.raw_decode(code, match.end())
        else:
            return None if _NOT_READ.match(code) else []
        listed = citation.get("citationItems")
    except (ValueError, RecursionError, AttributeError):
        return None
    for item in listed if isinstance(listed, list) else ():
        data = item.get("itemData", {}) if isinstance(item, dict) else None
        if not isinstance(data, dict):
            continue
        uris = item.get("uris", item.get("uri"))
        uris = [uri for uri in (uris if isinstance(uris, list) else [uris]) if isinstance(uri, str)]
        ends = (uri.rpartition("/")[2] for uri in uris if "zotero.org/" in uri)
        people, title, year = _about(data)
        # For an item without a key: nobody knows those of Zotero's database.
        written = f"{people[0].short if people else ' '.join(title.split()[:3])} {year}"
        names = data.get("citation-key"), written, *ends, data.get("id"), item.get("id")
        key = next(filter(None, (_NOT_IN_KEY.sub("-", str(name or "")).strip("-") for name in names)), "item")
        data = data and {**data, "id": key}
        items.append((key, {"id": item.get("id", key), "uris": uris, "itemData": data}))
    return items


def _endnote_items(xml: str, data: str) -> list[tuple[str, dict[str, Any]]] | None:
    try:
        xml = xml if xml.startswith("<") else b64decode(data).decode("utf-8", "replace").rstrip("\0")
        root = parse_xml(xml, "")
    except (InputError, ValueError):
        return None
    items = []
    for cite in root.iter("Cite"):
        author, year, number = (cite.findtext(name, "").split() for name in ("Author", "Year", "RecNum"))
        record, written = cite.find("record"), "".join(author[:1] + year[:1]) or f"item{''.join(number)}"
        key = _NOT_IN_KEY.sub("-", written).strip("-") or "item"
        database = None if record is None else record.find("foreign-keys/key")
        uris = [] if database is None else [f"endnote:{database.get('db-id')}/{''.join(number)}"]
        own = {} if record is None else write_csl(read_endnote_xml(record).item, key)
        items.append((key, {"id": key, "uris": uris, "itemData": own if "title" in own else {}}))
    return items


def shown_text(cited: Sequence[Cited]) -> str:
    """Return a citation as text: authors and years, in parentheses.

    It has single spaces: if the document shows a different text from its field, Zotero asks which is right.
    """
    return _SPACES.sub(" ", f"({'; '.join(_shown(item) for item in cited)})")


def _about(data: Mapping[str, Any]) -> tuple[Sequence[Name], str, str]:
    """Return the people, title and year of an item, as far as it can be read."""
    work = Item.of("document", {}, {})
    with suppress(InputError):
        work = csl_item(Fields({**data}, ""))
    people = next(filter(None, map(work.names.get, ROLES)), ())
    return people, work.fields.get("title", ""), str(date_year(work.fields.get("issued", "")) or "")


def _shown(item: Cited) -> str:
    people, title, year = _about(item.item["itemData"])
    names = [name.short for name in people if name != OTHERS]
    several = names and (len(people) > 2 or OTHERS in people)
    who = f"{names[0]} et al." if several else " and ".join(names)
    text = year or "n.d."
    text = text if item.no_author else f"{who or title}, {text}"
    return f"{item.prefix} {text}".strip() + (f", {item.suffix}" if item.suffix else "")


def field_code(cited: Sequence[Cited], shown: str, number: int) -> str:
    """Return the JSON of a citation. shown: its text in the document, which Zotero compares. number: differs
    from those of the document's other citations."""
    items = []
    for item in cited:
        more: dict[str, Any] = {"suppress-author": True} if item.no_author else {}
        more |= {"prefix": f"{item.prefix} "} if item.prefix else {}
        if page := _PAGE.fullmatch(item.suffix):
            more |= {"locator": page[1], "label": "page"}
        elif item.suffix:
            more["suffix"] = f", {item.suffix}"
        items.append({**item.item, **more})
    properties = {"formattedCitation": shown, "plainCitation": shown, "noteIndex": 0}
    citation: Mapping[str, Any] = {"properties": properties, "citationItems": items, "schema": _SCHEMA}
    id = blake2b(f"{number} {json.dumps(citation)}".encode(), digest_size=4).hexdigest()
    return json.dumps({"citationID": id, **citation})
