"""Readers for RIS, PubMed's NBIB, EndNote's tagged and XML files, Web of Science's files and tables (CSV).

A record is texts by tags, places or columns; types.csv and variables.csv have what these mean in CSL.
"""

from __future__ import annotations

import csv
import io
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from citerec.base.errors import InputError
from citerec.formats.articles.xml_documents import parse_xml
from citerec.formats.bibliography.attachments import SUFFIX, XML, file_folders, resolve_files
from citerec.formats.bibliography.bibtex import entry_paper
from citerec.formats.bibliography.csl import read_name
from citerec.formats.bibliography.item import Item, iso_date, number_variable
from citerec.formats.bibliography.paper import LibraryPaper, split_names, usable_paper
from citerec.formats.bibliography.ris import add_places, read_record
from citerec.formats.bibliography.tables import Names, Tags, first_text
from citerec.formats.drafts.inputs import MAX_FILE_BYTES, decode_text
from citerec.formats.identifiers import doi_in_note, find_year, noted
from citerec.formats.json_lines import OnBadRecord
from citerec.formats.names import Name, parse_all_inverted, parse_inverted

csv.field_size_limit(MAX_FILE_BYTES)  # lists of references


class _Read(NamedTuple):
    """What is read of a record. files: as it names them."""

    item: Item
    key: str = ""
    words: Iterable[str] | None = None
    files: Iterable[str] = ()


# NBIB and EndNote's tagged format have no parser that is kept up, and rispy loses repeated and unknown tags
# and what continues them: all three are lines of a tag and its value.
_RIS_START = re.compile(r"^[ \t]*TY( {0,2})-", re.MULTILINE | re.IGNORECASE)
_RIS_END = re.compile(r"^[ \t]*ER(?:  -.*|[ \t]{0,2}-[ \t]*$)\n?", re.MULTILINE | re.IGNORECASE)
"""The end of a record, not ER-20 in a list that continues over lines."""
_GLUED = re.compile(r"(?:(?<=[a-z\d)\]])|[ \t]+)([A-Z][A-Z0-9])  - ")
"""A tag without a line of its own: OP in Mendeley's files, AN and others in Web of Science's."""
_NONE = "NA"
"""What R writes for a value that is missing."""
_WHOLE = ("TI", "T1", "AB", "N2", "N1")
"""Tags of texts that may have anything in them."""
_RIS_TAGS = {
    "  ": r"[A-Za-z][A-Za-z0-9]  -",
    "": r"[A-Z][A-Z0-9] {0,2}-",  # with fewer spaces, words of a text could be tags
}
_RIS_FIELDS = {
    spaces: re.compile(rf"^[ \t]*(?=({tag}))\1(.*(?:\n(?![ \t]*{tag}).*)*)", re.MULTILINE)
    for spaces, tag in _RIS_TAGS.items()
}
_NBIB_START = re.compile(r"^PMID *-", re.MULTILINE)
_ERIC_START = re.compile(r"^OWN *- *ERIC", re.MULTILINE)
_NBIB_FIELD = re.compile(r"^([A-Z]{2,4} *-) (.*(?:\n {6}.*)*)", re.MULTILINE)
_ENW_START = re.compile(r"^%0 ", re.MULTILINE)
_REFER_START = re.compile(r"(?:\A\s*|(?<=\n\n))(?=%[A-Z] )")
"""A record of refer's files, which have no types, but empty lines between records."""
_ENW_FIELD = re.compile(r"^%(\S) (.*(?:\n(?!%\S ).*)*)", re.MULTILINE)
_WOS_START = re.compile(r"^PT (?=[A-Z][ \t]*$)", re.MULTILINE)
_WOS_TAGS = (
    "PT|AU|AF|BA|BF|CA|GP|BE|ED|TI|SO|SE|BS|LA|DT|CT|CY|CL|SP|HO|DE|ID|AB|C1|C3|RP|EM|RI|OI|FU|FP|FX|CR|NR|TC|Z9"
    "|U1|U2|PU|PI|PA|SN|EI|BN|J9|JI|PD|PY|VL|IS|PN|SU|SI|MA|BP|EP|AR|DI|D2|EA|PG|P2|WC|WE|SC|GA|PM|UT|OA|HC|HP|DA"
)
_WOS_FIELD = re.compile(
    rf"^({_WOS_TAGS}|[A-Z][A-Z0-9](?=[^\n]*(?:\n {{2}}|\n(?:{_WOS_TAGS}|ER)\b)))"
    rf" (.*(?:\n(?: {{2,}}|(?!(?:{_WOS_TAGS}) |E[RF][ \t]*$)(?=\S)).*)*)",
    re.MULTILINE,
)
"""Continuation lines may lack their indent."""


def _tagged(
    starts: Sequence[re.Pattern[str]], field: re.Pattern[str], example: str, path: Path, on_bad: OnBadRecord
) -> Iterator[tuple[str, Tags]]:
    """Yield where each record of a file stands, and its values by tag. starts: patterns of what begins a
    record; the first that the file has counts. field: a tag and its value, which may go on over lines."""
    text = decode_text(path)
    begins = next(filter(None, ([*start.finditer(text)] for start in starts)), None)
    if begins is None:
        raise InputError(f"{path}: has no records ({example})")
    is_ris = starts[0] is _RIS_START
    outside = [(0, begins[0].start())] if starts[0] is not _WOS_START else []  # who exported it
    for begin, following in pairwise([*begins, None]):
        assert begin
        end = following.start() if following else len(text)
        if is_ris:
            field = _RIS_FIELDS["  " if begin[1] == "  " else ""]
            if closed := _RIS_END.search(text, begin.end(), end):
                outside.append((closed.end(), end))
                end = closed.start()
        for first, last in outside:
            if stray := text[first:last].strip():
                line = text.count("\n", 0, text.index(stray, first)) + 1
                on_bad(InputError(f"{path}, line {line}: is outside of a record ({example})"))
        outside.clear()
        tags = dict[str, list[str]]()
        for tag, value in field.findall(text, begin.start(), end):
            tag = tag.rstrip("- ").upper() if len(tag) > 1 else tag
            glued = is_ris and "  - " in value and tag not in _WHOLE
            value, *more = _GLUED.split(value) if glued else [value]
            for name, part in [(tag, value), *zip(more[::2], more[1::2], strict=True)]:
                if (part := part.strip()) != _NONE:
                    tags.setdefault(name, []).append(part)
                    if is_ris and name == "A1":
                        tags.setdefault("AU", []).append(part)
        yield f"{path}, line {text.count(chr(10), 0, begin.start()) + 1}", tags


def _read_ris(tags: Tags) -> _Read:
    if "A1" in tags and tags["AU"] != tags["A1"]:  # perhaps the same people in both
        tags = {**tags, "AU": [*dict.fromkeys(tags["AU"])]}
    keywords = (item := read_record(tags)).fields.get("keyword", "")
    words = keywords.split(";") if keywords.count(",") == 1 else None  # such as "Neoplasms, Experimental"
    return _Read(item, first_text(tags, "LB", "ID"), words, tags.get("L1", ()))


_PUBMED_TYPES, _PUBMED = Names("types", "pubmed"), Names("variables", "pubmed")


def _read_nbib(tags: Tags) -> _Read:
    fields = _PUBMED.first(tags)
    fields["title"] = fields.get("title", "").removesuffix(".")
    if "BTI" in tags and "TI" in tags:
        fields["container-title"] = tags["BTI"][0]
    identifiers = [text for name in ("LID", "AID") for text in tags.get(name, ())]
    fields["DOI"] = next((text[:-5].strip() for text in identifiers if text.endswith("[doi]")), "")
    fields["ISSN"], fields["ISBN"] = (first_text(tags, name).partition(" ")[0] for name in ("IS", "ISBN"))
    fields["issued"] = iso_date(first_text(tags, "DP", "DEP"))
    if (pmid := fields.get("PMID", "")).isdecimal():
        fields["URL"] = f"https://pubmed.ncbi.nlm.nih.gov/{pmid}/"
    csl = next(filter(None, map(_PUBMED_TYPES.csl.get, tags.get("PT", ()))), "article-journal")
    if "BTI" in tags:
        csl = "chapter" if "TI" in tags else "book"
    teams = [Name(literal=text) for text in tags.get("CN", ()) if text]
    names = {
        "author": parse_all_inverted(tags.get("FAU", tags.get("AU", ()))) + teams,
        "editor": parse_all_inverted(tags.get("FED", tags.get("ED", ()))),
    }
    words = [term.replace("*", "") for name in ("OT", "MH") for term in tags.get(name, ())]
    return _Read(Item.of(csl, fields, names), words=words)


_ENDNOTE_TYPES, _ENDNOTE = Names("types", "endnote"), Names("variables", "endnote")
_REFER_TYPES = {"J": "article-journal", "B": "chapter", "R": "report"}
_ENDNOTE_ROLES = {"author": "A", "editor": "E", "translator": "H", "collection-editor": "Y"}
_EDITED_BOOK = {"author": "", "editor": "A", "collection-editor": "E"}


def _read_endnote(fields: dict[str, str], tags: Tags) -> _Read:
    """Read a record of one of EndNote's formats. tags: those of the tagged format."""
    kind = first_text(tags, "0")
    csl = _ENDNOTE_TYPES.csl.get(kind, "document")
    if not kind:  # a record of refer, which names no type
        usual = "book" if fields.get("publisher") else csl
        csl = next((csl for tag, csl in _REFER_TYPES.items() if tag in tags), usual)
    dates = [iso_date(text) for tag in ("8", "D") for text in tags.get(tag, ())]
    fields["issued"] = max(dates, key=lambda date: (date[:4].isdecimal(), date.count("-")), default="")
    page = fields.pop("page", "")
    add_places({"SP": [page], "SN": tags.get("@", ()), "UR": tags.get("U", ())}, fields, csl)
    if "issue" in fields:
        fields[number_variable(csl)] = fields.pop("issue")
    if csl in ("book", "report") and "container-title" in fields:
        fields.setdefault("collection-title", fields.pop("container-title"))
    own = _EDITED_BOOK if kind == "Edited Book" and first_text(tags, "A") else {}
    names = {role: parse_all_inverted(tags.get(tag, ())) for role, tag in (_ENDNOTE_ROLES | own).items()}
    item = Item.of(csl, fields, names)
    words = [name for text in tags.get("K", ()) for line in text.splitlines() for name in split_names(line)]
    return _Read(item, first_text(tags, "F"), words, tags.get(">", ()))


_CONTROL = re.compile(r"[\x01-\x08\x0b\x0c\x0e-\x1f]")


def _xml_records(path: Path, _: OnBadRecord) -> Iterator[tuple[str, ET.Element]]:
    """Yield the records of EndNote's XML."""
    records = parse_xml(_CONTROL.sub(" ", decode_text(path)), str(path)).findall(".//record")
    if not records:
        raise InputError(f"{path}: has no records (<xml><records><record> ...), as EndNote exports them")
    yield from ((f"{path}, record {number}", record) for number, record in enumerate(records, start=1))


_XML = Names("variables", "endnote xml")
_PEOPLE = "contributors/{}/author"
_XML_TAGS = {
    "A": (_PEOPLE.format("authors"),),
    "E": (_PEOPLE.format("secondary-authors"),),
    "H": (_PEOPLE.format("translated-authors"),),
    "Y": (_PEOPLE.format("tertiary-authors"),),
    "D": ("dates/year", "dates/pub-dates/date"),
    "@": ("isbn",),
    "U": ("urls/related-urls/url", "urls/web-urls/url"),
    "K": ("keywords/keyword",),
    "F": ("label",),
    ">": ("urls/pdf-urls/url",),
}
"""Tags of EndNote's other format, and places in its XML; the first that has texts counts."""


def read_endnote_xml(record: ET.Element) -> _Read:
    """Read a record of EndNote's XML."""

    def texts(*places: str) -> list[str]:
        listed = (
            [*filter(None, ("".join(part.itertext()).strip() for part in record.findall(place)))]
            for place in places
        )
        return next(filter(None, listed), [])

    tags = {tag: texts(*places) for tag, places in _XML_TAGS.items()}
    tags["D"] = tags["D"][:1]
    kind = record.find("ref-type")
    tags["0"] = [] if kind is None else [kind.get("name", "")]
    return _read_endnote(_XML.first({place: texts(place) for place in _XML.csl}), tags)


_WORD_TYPES, _WORD = Names("types", "word"), Names("variables", "word")
_WORD_NAMES = "{http://schemas.openxmlformats.org/officeDocument/2006/bibliography}"


def _word_records(path: Path, _: OnBadRecord) -> Iterator[tuple[str, _Read]]:
    items = word_sources(decode_text(path).encode())
    if not items:
        raise InputError(f"{path}: has no sources (<b:Sources><b:Source> ...), as Word writes them")
    yield from ((f"{path}, source {tag}", _Read(item, tag)) for tag, item in items.items())


def word_sources(xml: bytes) -> dict[str, Item]:
    """Return the items of Word's own list of sources by their tags; none of other or damaged XML."""
    items: dict[str, Item] = {}
    try:
        sources = [*parse_xml(xml, "").iter(f"{_WORD_NAMES}Source")]
    except InputError:
        return items
    for source in sources:
        texts = _word_texts(source)
        fields = _WORD.first({name: [text] for name, text in texts.items()})
        fields["issued"] = str(find_year(texts.get("Year", "")) or "")
        names = {}
        for role in ("Author", "Editor"):
            place = f"{_WORD_NAMES}Author/{_WORD_NAMES}{role}"
            people = map(_word_texts, source.iterfind(f"{place}//{_WORD_NAMES}Person"))
            named = [
                {"family": part.get("Last", ""), "given": f"{part.get('First', '')} {part.get('Middle', '')}"}
                for part in people
            ] or [{"literal": source.findtext(f"{place}/{_WORD_NAMES}Corporate", "")}]
            names[role.lower()] = [name for name in map(read_name, named) if name.full]
        kind = _WORD_TYPES.csl.get(texts.get("SourceType", ""), "document")
        items[texts.get("Tag") or f"source{len(items) + 1}"] = Item.of(kind, fields, names)
    return items


def _word_texts(element: ET.Element) -> dict[str, str]:
    return {part.tag.removeprefix(_WORD_NAMES): (part.text or "").strip() for part in element}


_WOS_TYPES, _WOS = Names("types", "wos"), Names("variables", "wos")
_WOS_KINDS = {"J": "article-journal", "C": "paper-conference", "B": "book", "S": "chapter", "P": "patent"}


def _wos_records(path: Path, on_bad: OnBadRecord) -> Iterator[tuple[str, Tags]]:
    """Yield the records of Web of Science's files, tagged or with tabs."""
    head, *rows = decode_text(path).split("\n")
    if head.startswith("PT\t"):
        cells = (zip(head.split("\t"), row.split("\t"), strict=False) for row in rows)
        tagged = ({tag: [text] for tag, text in row if text.strip()} for row in cells)
        yield from ((f"{path}, line {number}", tags) for number, tags in enumerate(tagged, start=2) if tags)
    else:
        yield from _tagged((_WOS_START,), _WOS_FIELD, "PT J ... ER", path, on_bad)


_EMAIL = re.compile(r"\s*\([^()\s]*@[^()\s]*\)")


def _read_wos(tags: Tags) -> _Read:
    lines = {tag: [" ".join(text.split()) for text in texts] for tag, texts in tags.items()}
    first, fields = partial(first_text, lines), _WOS.first(lines)

    def names(*keys: str) -> list[Name]:
        listed = next((tags[tag] for tag in keys if tag in tags), ())
        people = (name for text in listed for name in re.split(r"[;\n]", text))
        parsed = (parse_inverted(_EMAIL.sub("", name).strip()) for name in people)
        return [name for name in parsed if name.full]

    kinds = map(str.strip, first("DT").split(";"))
    listed = [_WOS_TYPES.csl[kind] for kind in kinds if kind in _WOS_TYPES.csl]
    kind = _WOS_KINDS.get(first("PT"), "article-journal")
    if kind in ("book", "chapter"):
        kind = next((type for type in listed if type in ("chapter", "paper-conference")), kind)
    elif kind == "article-journal":
        kind = next(iter(listed), kind)
    if kind == "book":
        fields.setdefault("collection-title", fields.pop("container-title", ""))
        fields["title"] = fields.get("title") or fields.pop("collection-title")
    pages = first("BP"), first("EP")
    fields["page"] = "-".join(dict.fromkeys(filter(None, pages))) or fields.get("page", "")
    fields["ISSN"] = ", ".join(filter(None, (first("SN"), first("EI"))))
    fields["ISBN"] = first("BN").partition(";")[0]
    dates = [iso_date(text) for text in (f"{first('PD')} {first('PY')}", first("PY"), first("EA"))]
    fields["issued"] = next((date for date in dates if re.match(r"\d{4}", date)), "")
    authors = names("AF", "AU", "BF", "BA") + [Name(literal=text) for text in (first("CA"),) if text]
    roles = {"author": authors, "editor": names("BE", "ED")}
    words = [word for text in lines.get("DE", ()) for word in text.split(";")]
    return _Read(Item.of(kind, fields, roles), words=words)


_TABLE_TYPES, _TABLE = Names("types", "table"), Names("variables", "table")
_ZOTERO_TYPES = Names("types", "zotero")
_SCOPUS_ID = re.compile(r"\s*\(\d{6,}\)")


def is_table(start: str) -> bool:
    """True if the first line of a text names the columns of papers: a title, and authors, year or DOI."""
    named = set(_columns(start)[0])
    is_dated = not named.isdisjoint(("authors", "author", "year", "publication year", "doi"))
    return is_dated and any(name in named for name in _TABLE.read["title"])


def _columns(text: str) -> tuple[list[str], str]:
    """Return the names in the first line of a table, in lower case, and what is between them."""
    head = text.partition("\n")[0].strip()
    between = max(",;\t", key=head.count)
    return [name.strip().lower() for name in next(csv.reader([head], delimiter=between), ())], between


def _rows(path: Path, _: OnBadRecord) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield where each row of a table (CSV) stands, and its cells by column."""
    text = decode_text(path).lstrip()
    columns, between = _columns(text)
    rows = csv.reader(io.StringIO(text), delimiter=between)
    next(rows)
    begin = rows.line_num + 1
    for row in rows:
        stripped = zip(columns, map(str.strip, row), strict=False)
        if cells := {name: cell for name, cell in stripped if cell not in ("", _NONE)}:
            yield f"{path}, line {begin}", cells
        begin = rows.line_num + 1


def _read_row(cells: Mapping[str, str]) -> _Read:
    fields = _TABLE.first({name: [cell] for name, cell in cells.items()})
    kind = next((cells[name] for name in ("item type", "document type", "type") if name in cells), "")
    csl = _ZOTERO_TYPES.csl.get(kind) or _TABLE_TYPES.csl.get(kind.lower())
    csl = csl or ("article-journal" if "container-title" in fields else "document")
    if "item type" in cells and "type" in cells:  # Zotero's
        fields["genre"] = cells["type"]
    if "PMID" in fields:
        fields["title"] = fields.get("title", "").removesuffix(".")
    pages = [cells.get(f"page {end}") or cells.get(f"{end} page") for end in ("start", "end")]
    fields["page"] = "-".join(dict.fromkeys(filter(None, pages))) or fields.get("page", "")
    if "issue" in fields:
        fields[number_variable(csl)] = fields.pop("issue")
    years = ("date", "publication date", "publication year", "year", "pubyear", "publication_year")
    dates = [iso_date(cells[name]) for name in years if name in cells]
    fields["issued"] = next((date for date in dates if re.match(r"\d{4}", date)), next(iter(dates), ""))

    def names(*columns: str) -> list[Name]:
        text = next((cells[name] for name in columns if name in cells), "")
        text = text[:-1] if text.find(".") == len(text) - 1 else text  # PubMed's has one at the end
        return parse_all_inverted([_SCOPUS_ID.sub("", text)])

    people = {
        "author": names("author full names", "author", "authors", "author(s)"),
        "editor": names("editor", "editors"),
        "translator": names("translator"),
    }
    extra = cells.get("extra", "")
    fields.setdefault("DOI", doi_in_note(extra))
    named = ("manual tags", "automatic tags", "author keywords", "keywords", "tags")
    words = [word for name in named for word in cells.get(name, "").split(";")]
    files = cells.get("file attachments", "").split("; ")
    return _Read(Item.of(csl, fields, people), noted(extra).get("citation key", ""), words, files)


_FORMATS: dict[
    str, tuple[Callable[[Path, OnBadRecord], Iterator[tuple[str, Any]]], Callable[[Any], _Read]]
] = {
    "ris": (partial(_tagged, (_RIS_START,), _RIS_FIELDS["  "], "TY  - JOUR ... ER  -"), _read_ris),
    "nbib": (partial(_tagged, (_NBIB_START, _ERIC_START), _NBIB_FIELD, "PMID- ..."), _read_nbib),
    "enw": (
        partial(_tagged, (_ENW_START, _REFER_START), _ENW_FIELD, "%0 Journal Article ..."),
        lambda tags: _read_endnote(_ENDNOTE.first(tags), tags),
    ),
    "endnote": (_xml_records, read_endnote_xml),
    "word": (_word_records, lambda source: source),
    "wos": (_wos_records, _read_wos),
    "table": (_rows, _read_row),
}
"""What finds the records of a file, with where they stand, and what reads one."""
_WEB = re.compile(r"https?:", re.IGNORECASE)


def read_export(format: str, path: Path, on_bad: OnBadRecord) -> Iterator[LibraryPaper]:
    """Yield the papers of a file, in order: of RIS, PubMed (nbib), EndNote (enw, endnote), Word's list of
    sources, Web of Science (wos), or a table of Zotero, Scopus, PubMed, IEEE Xplore or with such columns.

    Raises InputError for a file without records.
    """
    records, read = _FORMATS[format]
    folders = file_folders(path)

    def parse(record: Any) -> LibraryPaper:
        item, key, words, files = read(record)
        here = [name for name in files if name.lower().endswith((SUFFIX, XML)) and not _WEB.match(name)]
        return entry_paper(item, key, tags=words)._replace(files=resolve_files(here, folders))

    for where, record in records(path, on_bad):
        yield from usable_paper(partial(parse, record), where, on_bad)
