"""Items as RIS, and back (https://en.wikipedia.org/wiki/RIS_(file_format); tags as Zotero uses them)."""

from __future__ import annotations

import re

from citerec.formats.bibliography.item import Item, iso_date, number_variable, season
from citerec.formats.bibliography.paper import clean_text, split_names, terminal_text
from citerec.formats.bibliography.tables import Names, Tags, first_text
from citerec.formats.identifiers import arxiv_in_note, clean_doi, doi_in_note
from citerec.formats.names import Name, inverted, parse_all_inverted

_TYPES, _VARIABLES = Names("types", "ris"), Names("variables", "ris")
_TAGS = _VARIABLES.written | {"container-title": "T2"}
_SERIES = ("book", "report", "thesis", "software", "dataset")
"""Types whose T2 is a series."""
_NUMBERED = ("report", "patent", "standard")
"""Types whose SN is their own number, as in Zotero, unless it is an ISBN or ISSN."""
_ROLES = {"AU": "author", "ED": "editor", "A2": "editor", "A3": "collection-editor"}
_ROLES |= {"A4": "translator", "TA": "translator"}
_ROLES_WRITTEN = {"author": "AU", "editor": "A2", "container-author": "A2", "collection-editor": "A3"}
_ROLES_WRITTEN |= {"translator": "A4"}
_EDITORS = {"BOOK": "A3", "EDBOOK": "AU"}
"""Their tag, beside which A2 has those of the series; publishers without it have them in A2."""
_WHOLE = ("book", "thesis")
"""Types whose SP without EP is the number of pages."""
_ISSN = re.compile(r"\d{4}-?\d{3}[\dXx](?![\w-])")
_ISBN = re.compile(r"(?:97[89][- ]?)?(?:\d[- ]?){9}[\dXx]\b")


def read_record(tags: Tags) -> Item:
    """Return the item of a record. tags: values by tag; A1 and AU are one list, in AU."""
    kind = first_text(tags, "TY").upper()
    csl = _TYPES.csl.get(kind, "document")
    fields = _VARIABLES.first(tags)
    untitled = not {"title", "abstract", "volume", "issue"} & fields.keys() and "SP" not in tags
    if csl == "book" and "title" not in fields and tags.get("BT"):
        fields["title"] = fields.pop("container-title")
    elif untitled and tags.get("T2"):  # Scopus has the titles of works that it knows from references there
        fields["title"] = first_text(tags, "T2")
        if fields["container-title"] == fields["title"]:
            del fields["container-title"]
    elif csl in _SERIES and "container-title" in fields:
        fields.setdefault("collection-title", fields.pop("container-title"))
    if "issue" in fields:
        fields.setdefault(number_variable(csl), fields.pop("issue"))
    add_places(tags, fields, csl)
    if csl.startswith("article-") and (article := first_text(tags, "C7")):  # its number, no issue
        fields["page"] = fields["page"] or article
        if fields.get("number") == article:
            del fields["number"]
    year = first_text(tags, "PY", "Y1")[:4]
    texts = ((tag, text) for tag in ("PY", "DA", "Y1") for text in tags.get(tag, ()))
    dated = [(tag, iso_date(text if re.search(r"\d{4}", text) else f"{text} {year}")) for tag, text in texts]
    years = {date[:4] for tag, date in dated if date and tag != "Y1"}
    dates = [date for _, date in dated if date and (not years or date[:4] in years)]
    fields["issued"] = max(dates, key=lambda date: (date[:4].isdecimal(), date.count("-")), default="")
    if not re.search(r"\d{4}", fields["issued"]):  # Web of Science has the date of early access there
        early = (date for value in tags.get("C6", ()) if re.match(r"\d{4}-\d\d", date := iso_date(value)))
        fields["issued"] = next(early, fields["issued"])
    fields["accessed"] = iso_date(fields.get("accessed", ""))
    if (short := first_text(tags, "JO")) != fields.get("container-title"):
        fields.setdefault("container-title-short", short)
    if csl == "paper-conference":
        event, proceedings, place = (first_text(tags, tag) for tag in ("T2", "C3", "C1"))
        known = fields.get("container-title", "")
        if proceedings and "CP" not in tags:  # Web of Science, with affiliations in C3
            pair = (event, proceedings) if event or not known else (proceedings, known)
            fields["event-title"], fields["container-title"] = pair
        elif known == fields.get("event-title"):  # no proceedings
            fields.pop("container-title", "")
        if place:
            fields |= {"event-place": fields.get("publisher-place", ""), "publisher-place": place}
    fields["note"] = "; ".join(tags.get("N1", ()))
    fields["keyword"] = "; ".join(part for value in tags.get("KW", ()) for part in value.splitlines())
    names = dict[str, list[Name]]()
    editors = _EDITORS.get(kind, "")
    own_roles = {"A2": "collection-editor", editors: "editor"} if first_text(tags, editors) else {}
    for tag, role in (_ROLES | own_roles).items():
        if people := parse_all_inverted(tags.get(tag, ())):
            listed = names.setdefault(role, [])
            listed += [name for name in people if name not in listed]  # in two tags
    return Item.of(csl, fields, names)


def add_places(tags: Tags, fields: dict[str, str], csl: str) -> None:
    """Add pages, ISBN, ISSN or a report's number, DOI and URL, which several tags may have."""
    own_number = "number" if csl in _NUMBERED else ""
    first, last = first_text(tags, "SP"), first_text(tags, "EP")
    is_twice = last in (first, *re.split(r"\s*[-–—]+\s*", first))
    name = "number-of-pages" if csl in _WHOLE and not last and not re.search("[-–—]", first) else "page"
    fields[name] = first if is_twice else "-".join(filter(None, (first, last)))
    numbers = dict[str, list[str]]()
    for value in tags.get("SN", ()):
        is_known = "ISSN" if _ISSN.match(value) else "ISBN" if not own_number or _ISBN.search(value) else ""
        numbers.setdefault(is_known or own_number, []).append(value)
    for name, values in numbers.items():
        fields[name] = ", ".join(dict.fromkeys(filter(None, [fields.get(name, ""), *values])))
    urls = [url.strip() for value in tags.get("UR", ()) for url in re.split(r"[;\s]+(?=https?:)", value)]
    places = [fields.get("DOI", ""), fields.get("genre", ""), *(url for url in urls if "doi.org/" in url)]
    places += [*tags.get("L3", ()), *map(doi_in_note, tags.get("N1", ()))]
    fields["DOI"] = next(filter(None, map(clean_doi, places)), "")
    if clean_doi(fields.get("genre", "")):
        del fields["genre"]
    fields["URL"] = next(iter(urls), "")


def write_record(item: Item, key: str) -> str:
    """Return a record."""
    kind = _TYPES.written.get(item.type, "GEN")
    left, tags = dict(item.fields), dict(_TAGS)
    roles = {next(iter(item.names), ""): "AU"} | _ROLES_WRITTEN  # such as a director; others have no tags
    roles |= {"collection-editor": "A2", "editor": "A3"} if kind == "BOOK" else {}
    lines = [("TY", kind), ("ID", key)]
    people = ((roles[role], names) for role, names in item.names.items() if role in roles)
    lines += [(tag, inverted(name)) for tag, names in people for name in names]
    if item.type in _SERIES and "collection-title" in left:
        lines.append(("T2", left.pop("collection-title")))
    if item.type == "paper-conference":
        if "publisher-place" in left:
            tags |= {"publisher-place": "C1", "event-place": "CY"}
        if {"container-title", "event-title"} <= left.keys():
            tags |= {"container-title": "C3", "event-title": "T2"}
        left.setdefault("container-title", left.get("event-title", ""))
    if item.type in _NUMBERED and not {"ISBN", "ISSN"} & left.keys():
        left["ISBN"] = left.pop("number", "")  # SN
    left.setdefault("issue", left.pop(number_variable(item.type), ""))
    lines += _dates(left.pop("issued", ""))
    page = left.pop("page", "")
    pair = re.fullmatch(r"([^-,]+-[^-,]+)-([^-,]+-[^-,]+)", page)  # A-12-A-15
    first, last = pair.groups() if pair else page.partition("-")[::2]
    if item.type in _WHOLE:
        last, first = last or first, first or left.get("number-of-pages", "")
    lines += [("SP", first), ("EP", last)]
    lines += [("SN", left.pop(name, "")) for name in ("ISBN", "ISSN")]
    lines += [("KW", word) for word in split_names(left.pop("keyword", ""))]
    if (arxiv := left.pop("arxiv", "")) not in ("", arxiv_in_note(left.get("note", ""))):
        lines.append(("N1", f"arXiv:{arxiv}"))
    lines += [(tag, left[variable]) for variable, tag in tags.items() if left.get(variable)]
    cleaned = ((tag, text if tag in ("ID", "UR", "DO") else clean_text(text)) for tag, text in lines)
    written = [
        f"{tag}  - {text}" for tag, text in ((tag, terminal_text(text)) for tag, text in cleaned) if text
    ]
    return "\n".join([*written, "ER  - \n"])


def _dates(issued: str) -> list[tuple[str, str]]:
    """Return the year, and the date if more is known."""
    if named := season(issued):
        return [("PY", issued[:4]), ("DA", f"{issued[:4]}///{named}")]
    if not re.fullmatch(r"\d{4}(?:-\d\d){0,2}", issued):
        return [("PY", issued)]
    return [("PY", issued[:4]), ("DA", issued.replace("-", "/") if "-" in issued else "")]
