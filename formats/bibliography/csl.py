"""Items as CSL JSON, and back (https://citeproc-js.readthedocs.io/en/latest/csl-json/markup.html)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from citerec.formats.bibliography.item import DATES, ROLES, Item, csl_date, read_csl_date
from citerec.formats.bibliography.paper import clean_text, terminal_text
from citerec.formats.bibliography.tables import VARIABLES
from citerec.formats.identifiers import arxiv_in_note, doi_in_note, noted
from citerec.formats.names import OTHERS, Name, parse_inverted, parse_name, parse_names, parse_people

_ALIASES = {"journalAbbreviation": "container-title-short", "shortTitle": "title-short"}
"""Names from the time before CSL 1.0.2."""
_PARTS = ("family", "given", "suffix", "literal", "name", "dropping-particle", "non-dropping-particle")
"""Parts of names; `name` is how Crossref writes `literal`."""
_INVERTED = re.compile(r"[A-ZÀ-Þ][\w'’-]+, [A-ZÀ-Þ][\w'’.-]*(?: [A-ZÀ-Þ][\w'’.-]*){0,2}")
_PUBLISHED = ("published", "published-print", "published-online")
"""Dates of Crossref, if it has no `issued`."""
_RANGE = re.compile(r"(?<=\w)\s*[–—]\s*(?=\w)|--+")


def read_csl(texts: Mapping[str, str], record: Mapping[str, Any]) -> Item:
    """Return the item of a record. texts: its texts by variable. record: has its names and dates."""
    fields = {name: text for name, text in texts.items() if name in VARIABLES and name not in DATES and text}
    fields = {name: texts[old] for old, name in _ALIASES.items() if old in texts} | fields
    fields |= {name: date for name in DATES if (date := read_csl_date(record.get(name)))}
    dates = (read_csl_date(record.get(name)) for name in _PUBLISHED)
    fields.setdefault("issued", next(filter(None, dates), ""))
    fields["page"] = _RANGE.sub("-", fields.get("page", ""))
    custom = record.get("custom")
    if isinstance(custom, dict) and isinstance(kind := custom.get("entrytype"), str):
        fields["entrytype"] = kind
    names = dict[str, Sequence[Name]]()
    for role in ROLES:
        listed = record.get(role)
        listed = listed if isinstance(listed, list) else [listed]
        if named := [name for value in listed for name in _read_names(value) if name.full]:
            names[role] = named
    kind = texts.get("type", "") or "document"
    if kind == "article" and "container-title" in fields:  # as before CSL had `article-journal`
        kind = "article-journal"
    note = fields.get("note", "")
    fields.setdefault("DOI", doi_in_note(note))
    for name, value in noted(note).items():
        if name in ("pmid", "pmcid"):
            fields.setdefault(name.upper(), value)
    return Item.of(kind, fields, names)


def _read_names(value: Any) -> list[Name]:
    """Return the name of an object, or those of a text, which may list several people."""
    if isinstance(value, str):
        return parse_names(clean_text(value))
    name = read_name(value) if isinstance(value, dict) else Name()
    return parse_people(name.literal, lambda text: [Name(literal=text)]) if name.literal else [name]


def read_name(name: Mapping[str, Any]) -> Name:
    """Return a name of CSL JSON; an empty one without texts."""
    parts = {part: clean_text(text) if isinstance(text := name.get(part), str) else "" for part in _PARTS}
    family, given, suffix, literal, whole, *particles = parts.values()
    particle, literal = " ".join(filter(None, particles)), literal or whole
    if not family and not literal:
        family, given = given, ""
    if not particle and given:
        words = family.split(" ")
        first = next((place for place, word in enumerate(words) if not word.islower()), 0)
        particle, family = " ".join(words[:first]), " ".join(words[first:])
    if not given and parse_name(literal or family) == OTHERS:
        return OTHERS
    if _INVERTED.fullmatch(literal) and (inverted := parse_inverted(literal)).given:
        return inverted  # a person in one field
    if literal or (" " in family and not given and not particle and not suffix):
        return Name(literal=literal or family)
    return Name(family, given, particle, suffix)


def write_csl(item: Item, key: str) -> dict[str, Any]:
    """Return the record of an item."""
    item_fields: dict[str, Any] = {"id": key, "type": item.type}
    for name, text in item.fields.items():
        if name in DATES:
            item_fields[name] = csl_date(text)
        elif name in VARIABLES and (text := terminal_text(text if name == "URL" else clean_text(text))):
            item_fields[name] = text
    arxiv, note = item.fields.get("arxiv", ""), item.fields.get("note", "")
    if arxiv and arxiv != arxiv_in_note(note):
        item_fields["note"] = "\n".join(filter(None, (item_fields.get("note", ""), f"arXiv:{arxiv}")))
    if kind := item.fields.get("entrytype"):
        item_fields["custom"] = {"entrytype": kind}
    for role, names in item.names.items():
        parts = ((name._asdict() | {"non-dropping-particle": name.particle}) for name in names)
        item_fields[role] = [
            {part: text for part, text in own.items() if text and part != "particle"} for own in parts
        ]
    return item_fields
