"""Readers for CSL JSON and YAML, and for hayagriva's YAML (Typst)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from citerec.base.errors import InputError
from citerec.formats.bibliography.bibtex import entry_paper
from citerec.formats.bibliography.csl import read_csl, read_name
from citerec.formats.bibliography.item import CONTAINED, Item, iso_date
from citerec.formats.bibliography.paper import LibraryPaper
from citerec.formats.bibliography.reading.records import Fields, parse_records
from citerec.formats.bibliography.tables import Names
from citerec.formats.drafts.inputs import decode_text
from citerec.formats.identifiers import noted
from citerec.formats.json_lines import OnBadRecord
from citerec.formats.names import Name, parse_all_inverted

LISTS = ("items", "references")
"""Keys of an object that has a list of items."""
_ITEM_FIELDS = ("title", "author", "issued", "container-title", "DOI", "type")
_CSL_ONLY = frozenset(("issued", "container-title", "publisher-place", "title-short", "author", "editor"))
_CSL_FIRST = frozenset(("type", "author", "editor"))
_NOT_TEXTS = ("id", "custom", "categories", "collections")


def is_csl(record: Mapping[str, Any]) -> bool:
    """True if a record is an item of CSL JSON rather than one of our own lines."""
    if _CSL_FIRST.isdisjoint(record):
        return False
    listed = [names for role in ("author", "editor") if isinstance(names := record.get(role), list)]
    names = (name for names in listed for name in names if isinstance(name, dict))
    is_item = "type" in record and not _CSL_ONLY.isdisjoint(record)
    return is_item or any(not {"family", "literal"}.isdisjoint(name) for name in names)


def listed(content: Any) -> Any:
    """Return the list of items of an object that has one, else the content itself."""
    lists = (content.get(name) for name in LISTS) if isinstance(content, dict) else ()
    return next((items for items in lists if isinstance(items, list)), content)


def parse_csl(fields: Fields, _: str = "") -> LibraryPaper:
    """Parse an item of CSL JSON."""
    item = csl_item(fields)
    noted_key = noted(item.fields.get("note", "")).get("citation key")
    key = fields.text("citation-key", "citekey") or noted_key or fields.text("id")
    return entry_paper(item, key, fields.texts("collections", "categories"))


def csl_item(fields: Fields) -> Item:
    """Return an item of CSL JSON. Raises InputError for anything else."""
    record = fields.record
    if not any(name in record for name in _ITEM_FIELDS):
        raise InputError(f"{fields.where}: is not a CSL JSON item (no title, author or type)")
    texts = {}
    for name, value in record.items():
        if isinstance(value, list) and value and isinstance(value[0], str) and name not in _NOT_TEXTS:
            texts[name] = value[0]  # as Crossref has titles
        elif not isinstance(value, list | dict | float | None):
            texts[name] = fields.text(name)
    return read_csl(texts, record)


def parse_yaml(text: str, name: str, loader: Any = None) -> Any:
    """Return the first document of a YAML text that is not empty. loader: of PyYAML; None for one that reads
    all values as texts. Raises InputError for another text, also for aliases that stand for themselves or for
    many times as much as was written."""
    try:
        reader = (loader or _Loader)(text)
        while reader.check_node():
            node, sizes = reader.get_node(), dict[yaml.Node, int]()
            if _expanded(node, sizes) > LEAST_EXPANDED + MOST_EXPANDED * len(sizes):
                raise yaml.YAMLError("its aliases stand for too much")
            if (document := reader.construct_document(node)) not in (None, ""):
                return document
        return None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        reason = " ".join(str(getattr(error, "problem", None) or error).split())
        mark = getattr(error, "problem_mark", None)
        line = f" (line {mark.line + 1})" if mark else ""
        raise InputError(f"{name} is not YAML: {reason}{line}") from None


def _expanded(node: yaml.Node, sizes: dict[yaml.Node, int]) -> int:
    """Return the nodes that a node has when its aliases are written out. sizes: of nodes; 0 for open ones."""
    if node in sizes:
        if not sizes[node]:
            raise yaml.YAMLError("an alias stands for itself")
        return sizes[node]
    sizes[node] = 0
    values = [] if isinstance(node, yaml.ScalarNode) else node.value
    inner = (part for value in values for part in (value if isinstance(value, tuple) else (value,)))
    sizes[node] = 1 + sum(_expanded(part, sizes) for part in inner)
    return sizes[node]


def read_yaml(path: Path, on_bad: OnBadRecord) -> Iterator[LibraryPaper]:
    """Yield the papers of CSL YAML (a list, or one in `references`) or of hayagriva's YAML (entries by key).

    Raises InputError for a file without records, or one that is no YAML.
    """
    content = listed(parse_yaml(decode_text(path), str(path)))
    is_hayagriva = isinstance(content, dict)
    records: list[tuple[Any, Any]] = [*(content.items() if is_hayagriva else enumerate(content or ()))]
    if not records:
        raise InputError(f"{path}: has no records (a list in `references`, or hayagriva's entries by key)")
    yield from parse_records(path, records, _parse_hayagriva if is_hayagriva else parse_csl, on_bad)


LEAST_EXPANDED, MOST_EXPANDED = 10_000, 10
"""Maximum nodes of a YAML text with aliases written out: the first, plus the second times those written."""
_Loader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
"""Every value is a text: years are no numbers, "no" is no boolean, and dates stay as they are."""
_HAYAGRIVA_TYPES, _HAYAGRIVA = Names("types", "hayagriva"), Names("variables", "hayagriva")
"""Types that differ from CSL's, and variables (https://github.com/typst/hayagriva)."""
_IN_PARENT = {
    "article": {"proceedings": "paper-conference", "conference": "paper-conference", "blog": "post-weblog",
                "newspaper": "article-newspaper"},
}  # fmt: skip
_INHERITED = {"volume", "issue", "edition", "issued", "publisher", "publisher-place", "event-place", "ISBN",
              "ISSN", "number-of-volumes", "language"}  # fmt: skip
"""Variables of parents that are also those of their parts."""
_NAME_PARTS = {"family": "name", "given": "given-name", "non-dropping-particle": "prefix", "suffix": "suffix"}
_SERIAL = {"doi": "DOI", "isbn": "ISBN", "issn": "ISSN", "pmid": "PMID", "pmcid": "PMCID", "arxiv": "arxiv",
           "serial": "number"}  # fmt: skip


def _parse_hayagriva(fields: Fields, key: str) -> LibraryPaper:
    return entry_paper(hayagriva_item(fields.record), key)


def hayagriva_item(record: Mapping[str, Any]) -> Item:
    """Return the item of an entry of Typst's YAML (https://github.com/typst/hayagriva)."""
    given = record.get("parent")
    parents = [part for part in (given if isinstance(given, list) else [given]) if isinstance(part, dict)]
    parents += [further for parent in parents if isinstance(further := parent.get("parent"), dict)]
    kind, above = (str(entry.get("type", "")).lower() for entry in (record, parents[0] if parents else {}))
    csl = _IN_PARENT.get(kind, {}).get(above) or _HAYAGRIVA_TYPES.csl.get(kind, kind or "document")
    texts = _hayagriva_texts(record)
    for parent in parents:
        above_it = _hayagriva_texts(parent)
        texts |= {name: above_it[name] for name in (_INHERITED & above_it.keys()) - texts.keys()}
    texts["title"] = _title(record)
    texts["container-title"] = _title(parents[0]) if parents else ""
    if not texts["title"] and csl in CONTAINED:  # a chapter that is named by its pages
        texts["title"] = texts["container-title"]
    if len(parents) > 1:
        is_event = str(parents[1].get("type", "")).lower() == "conference"
        texts["event-title" if is_event else "collection-title"] = _title(parents[1])
    if isinstance(url := record.get("url"), dict):
        texts["accessed"] = iso_date(_value(url.get("date")))
    names = {"author": _names(record.get("author")), "editor": _names(record.get("editor"))}
    if parents and not names["editor"]:
        names["editor"] = _names(parents[0].get("editor"))
    return Item.of(csl, texts, names)


def _title(record: Mapping[str, Any]) -> str:
    """Return the title of an entry or a parent, without the braces that keep its capitals."""
    return _value(record.get("title")).replace("{", "").replace("}", "")


def _hayagriva_texts(record: Mapping[str, Any]) -> dict[str, str]:
    """Return the texts of an entry or a parent that are not empty."""
    texts = {variable: _value(record.get(name)) for name, variable in _HAYAGRIVA.csl.items()}
    publisher, serial = record.get("publisher"), record.get("serial-number")
    texts["publisher"] = _value(publisher) or texts["publisher"]
    if isinstance(publisher, dict):
        texts["publisher-place"] = _value(publisher.get("location"))
    texts |= {"issued": iso_date(_value(record.get("date"))), "URL": _value(record.get("url"))}
    for name, value in (serial if isinstance(serial, dict) else {"serial": serial}).items():
        texts[_SERIAL.get(str(name).lower(), str(name))] = _value(value)
    return {name: text for name, text in texts.items() if text}


def _value(value: Any) -> str:
    """Return a text, or the `value` or `name` of an object with more about it."""
    if isinstance(value, dict):
        value = value.get("value", value.get("name"))
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""


def _names(value: Any) -> list[Name]:
    names = []
    for person in value if isinstance(value, list) else [value]:
        if isinstance(person, dict):
            names.append(read_name({part: _value(person.get(name)) for part, name in _NAME_PARTS.items()}))
        elif isinstance(person, str):
            whole = person.startswith("{") and person.endswith("}")
            names += [Name(literal=person.strip("{}"))] if whole else parse_all_inverted([person])
    return [name for name in names if name.full]
