"""Readers for RIS, PubMed's NBIB, EndNote's tagged and XML files, Web of Science's files and tables (CSV)."""

from __future__ import annotations

import csv
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from citerec.base.errors import InputError
from citerec.formats.bibliography.attachments import SUFFIX, file_folders, resolve_files
from citerec.formats.bibliography.bibtex import entry_paper
from citerec.formats.bibliography.csl import read_name
from citerec.formats.bibliography.item import Item, iso_date, number_variable
from citerec.formats.bibliography.paper import LibraryPaper, split_names, usable_paper
from citerec.formats.bibliography.ris import add_places, edited, read_record
from citerec.formats.bibliography.tables import Names
from citerec.formats.drafts.inputs import MAX_FILE_BYTES, decode_text
from citerec.formats.identifiers import doi_in_note, find_year
from citerec.formats.json_lines import OnBadRecord
from citerec.formats.names import Name, parse_all_inverted, parse_inverted

# NBIB and EndNote's tagged format have no parser that is kept up, and rispy loses repeated and unknown tags
# and what continues them: all three are lines of a tag and its value.
_RIS_START = re.compile(r"^[ \t]*TY( {0,2})-", re.MULTILINE | re.IGNORECASE)
_RIS_END = re.compile(r"^[ \t]*ER(?:  -.*|[ \t]{0,2}-[ \t]*$)\n?", re.MULTILINE | re.IGNORECASE)
"""Not ER-20, in a list that goes on over lines."""
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
"""Of refer's files, which have no types and empty lines between records."""
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
"""Lines that go on may be without their indent."""

_OTHER_STARTS = {_NBIB_START: _ERIC_START, _ENW_START: _REFER_START}
"""Of the records of files without the usual ones."""

_WEB = re.compile(r"https?:", re.IGNORECASE)

Tags = Mapping[str, Sequence[str]]


def _read_tagged(
    path: Path, start: re.Pattern[str], field: re.Pattern[str], parse: Callable[[Tags], LibraryPaper],
    example: str, on_bad: OnBadRecord,
) -> Iterator[LibraryPaper]:  # fmt: skip
    """Yield the papers of records that begin with `start`. field: a tag and its value, also over lines."""
    text = decode_text(path)
    starts = [*start.finditer(text)]
    if not starts and start in _OTHER_STARTS:
        starts = [*_OTHER_STARTS[start].finditer(text)]
    if not starts:
        raise InputError(f"{path}: has no records ({example})")
    outside = partial(_report_outside, path, text, example, on_bad)
    if start is not _WOS_START:  # who exported it
        outside(0, starts[0].start())
    for number, begin in enumerate(starts):
        end = starts[number + 1].start() if number + 1 < len(starts) else len(text)
        if start is _RIS_START:
            field = _RIS_FIELDS["  " if begin[1] == "  " else ""]
            if closed := _RIS_END.search(text, begin.end(), end):
                outside(closed.end(), end)
                end = closed.start()
        tags, both = dict[str, list[str]](), False
        for tag, value in field.findall(text, begin.start(), end):
            tag = tag.rstrip("- ").upper() if len(tag) > 1 else tag
            glued = start is _RIS_START and "  - " in value and tag not in _WHOLE
            value, *more = _GLUED.split(value) if glued else [value]
            for name, part in [(tag, value), *zip(more[::2], more[1::2], strict=True)]:
                if start is _RIS_START and name == "A1":
                    name, both = "AU", True
                if (part := part.strip()) != _NONE:
                    tags.setdefault(name, []).append(part)
        if both:  # the same people may be in A1 and AU
            tags["AU"] = [*dict.fromkeys(tags.get("AU", ()))]
        where = f"{path}, line {text.count(chr(10), 0, begin.start()) + 1}"
        yield from usable_paper(partial(parse, tags), where, on_bad)


def _report_outside(path: Path, text: str, example: str, on_bad: OnBadRecord, begin: int, end: int) -> None:
    if stray := text[begin:end].strip():
        line = text.count("\n", 0, text.index(stray, begin)) + 1
        on_bad(InputError(f"{path}, line {line}: is outside of a record ({example})"))


def read_ris(path: Path, on_bad: OnBadRecord) -> Iterator[LibraryPaper]:
    """Yield the papers of a RIS file, in order. Raises InputError for a file without records."""
    parse = partial(_parse_ris, file_folders(path))
    return _read_tagged(path, _RIS_START, _RIS_FIELDS["  "], parse, "TY  - JOUR ... ER  -", on_bad)


def _parse_ris(folders: Sequence[Path], tags: Tags) -> LibraryPaper:
    key = next((key for tag in ("LB", "ID") for key in tags.get(tag, ())), "")
    return _with_files(entry_paper(read_record(tags), key), tags.get("L1", ()), folders)


def _with_files(paper: LibraryPaper, names: Sequence[str], folders: Sequence[Path]) -> LibraryPaper:
    """Return a paper with its PDFs; addresses in the web are left out."""
    here = [name for name in names if name.lower().endswith(SUFFIX) and not _WEB.match(name)]
    return paper._replace(files=resolve_files(here, folders))


def read_nbib(path: Path, on_bad: OnBadRecord) -> Iterator[LibraryPaper]:
    """Yield the papers of a PubMed file, in order. Raises InputError for a file without records."""
    return _read_tagged(path, _NBIB_START, _NBIB_FIELD, _parse_nbib, "PMID- ...", on_bad)


_PUBMED_TYPES, _PUBMED = Names("types", "pubmed"), Names("variables", "pubmed")


def _parse_nbib(tags: Tags) -> LibraryPaper:
    fields = _PUBMED.first(tags)
    fields["title"] = fields.get("title", "").removesuffix(".")
    if "BTI" in tags and "TI" in tags:
        fields["container-title"] = tags["BTI"][0]
    identifiers = [text for name in ("LID", "AID") for text in tags.get(name, ())]
    fields["DOI"] = (
        next((text for text in identifiers if text.endswith("[doi]")), "").removesuffix("[doi]").strip()
    )
    fields["ISSN"] = next((number.partition(" ")[0] for number in tags.get("IS", ())), "")
    fields["ISBN"] = next((number.partition(" ")[0] for number in tags.get("ISBN", ())), "")
    fields["issued"] = iso_date(next((date for tag in ("DP", "DEP") for date in tags.get(tag, ())), ""))
    if (pmid := fields.get("PMID", "")).isdecimal():
        fields["URL"] = f"https://pubmed.ncbi.nlm.nih.gov/{pmid}/"
    kinds = tags.get("PT", ())
    csl = next(filter(None, map(_PUBMED_TYPES.csl.get, kinds)), "article-journal")
    if "BTI" in tags:
        csl = "chapter" if "TI" in tags else "book"
    names = {
        "author": parse_all_inverted(tags.get("FAU", tags.get("AU", ()))) + _literals(tags.get("CN", ())),
        "editor": parse_all_inverted(tags.get("FED", tags.get("ED", ()))),
    }
    words = [term.replace("*", "") for name in ("OT", "MH") for term in tags.get(name, ())]
    return entry_paper(Item.of(csl, fields, names), "", tags=words)


def read_enw(path: Path, on_bad: OnBadRecord) -> Iterator[LibraryPaper]:
    """Yield the papers of a file in EndNote's tagged format. Raises InputError for a file without records."""
    return _read_tagged(path, _ENW_START, _ENW_FIELD, _parse_enw, "%0 Journal Article ...", on_bad)


_ENDNOTE_TYPES, _ENDNOTE = Names("types", "endnote"), Names("variables", "endnote")


def _parse_enw(tags: Tags) -> LibraryPaper:
    kind = next(iter(tags.get("0", ())), "")
    fields = _ENDNOTE.first(tags)
    dates = [value for tag in ("8", "D") for value in tags.get(tag, ())]
    by_tag = {
        "SN": tags.get("@", ()),
        "UR": tags.get("U", ()),
        **{tag: tags[tag] for tag in "JBR" if tag in tags},
    }
    fields["issued"] = max(
        map(iso_date, dates), key=lambda date: (date[:4].isdecimal(), date.count("-")), default=""
    )
    words = [name for text in tags.get("K", ()) for line in text.splitlines() for name in split_names(line)]
    names = {
        "author": parse_all_inverted(tags.get("A", ())),
        "editor": parse_all_inverted(tags.get("E", ())),
        "translator": parse_all_inverted(tags.get("H", ())),
        "collection-editor": parse_all_inverted(tags.get("Y", ())),
    }
    key = next(iter(tags.get("F", ())), "")
    return entry_paper(_endnote_item(kind, fields, names, by_tag), key, tags=words)


def _endnote_item(kind: str, fields: dict[str, str], names: Mapping[str, Sequence[Name]], tags: Tags) -> Item:
    """Return an item of one of EndNote's formats. tags: pages, numbers and addresses, by RIS's tags."""
    csl = _ENDNOTE_TYPES.csl.get(kind) or ("document" if kind else _refer_type(fields, tags))
    page = fields.get("page", "")
    add_places(tags, fields, csl)
    fields["page"] = page or fields["page"]
    if "issue" in fields:
        fields[number_variable(csl)] = fields.pop("issue")
    if csl in ("book", "report") and "container-title" in fields:
        fields.setdefault("collection-title", fields.pop("container-title"))
    if kind == "Edited Book":
        names = edited(names)
    return Item.of(csl, fields, names)


def _refer_type(fields: Mapping[str, str], tags: Tags) -> str:
    """Return the type of a record of refer, which names none."""
    if "J" in tags:
        return "article-journal"
    if "B" in tags:
        return "chapter"
    return "report" if "R" in tags else "book" if fields.get("publisher") else "document"


def _literals(texts: Sequence[str]) -> list[Name]:
    return [Name(literal=text) for text in texts]


_CONTROL = re.compile(r"[\x01-\x08\x0b\x0c\x0e-\x1f]")


def read_endnote_xml(path: Path, on_bad: OnBadRecord) -> Iterator[LibraryPaper]:
    """Yield the papers of EndNote's XML. Raises InputError for malformed XML or a file without records.

    Declarations of a document type are refused, so no entity is ever defined, and no other file is read.
    """
    text = _CONTROL.sub(" ", decode_text(path))
    if "<!DOCTYPE" in text:
        raise InputError(f"{path}: declares a document type (<!DOCTYPE), which EndNote does not; remove it")
    try:
        records = ET.fromstring(text).findall(".//record")
    except ET.ParseError as error:
        raise InputError(f"{path}: malformed XML: {error}") from None
    if not records:
        raise InputError(f"{path}: has no records (<xml><records><record> ...), as EndNote exports them")
    for number, record in enumerate(records, start=1):
        where = f"{path}, record {number}"
        yield from usable_paper(partial(_parse_endnote, file_folders(path), record), where, on_bad)


_XML = Names("variables", "endnote xml")


def _texts(record: ET.Element, *places: str) -> list[str]:
    """Return the texts at the first of these places that has any."""
    for place in places:
        if listed := [text for part in record.findall(place) if (text := "".join(part.itertext()).strip())]:
            return listed
    return []


def endnote_item(record: ET.Element) -> Item:
    """Return the item of a record of EndNote's XML."""
    texts = partial(_texts, record)
    kind = record.find("ref-type")
    fields = _XML.first({place: texts(place) for place in _XML.csl})
    dates = texts("dates/year") or texts("dates/pub-dates/date")
    fields["issued"] = iso_date(next(iter(dates), ""))
    urls = texts("urls/related-urls/url", "urls/web-urls/url")
    tags = {"SN": texts("isbn"), "UR": urls}
    people = "contributors/{}/author"
    names = {
        "author": parse_all_inverted(texts(people.format("authors"))),
        "editor": parse_all_inverted(texts(people.format("secondary-authors"))),
        "collection-editor": parse_all_inverted(texts(people.format("tertiary-authors"))),
        "translator": parse_all_inverted(texts(people.format("translated-authors"))),
    }
    return _endnote_item("" if kind is None else kind.get("name", ""), fields, names, tags)


def _parse_endnote(folders: Sequence[Path], record: ET.Element) -> LibraryPaper:
    words = [name for text in _texts(record, "keywords/keyword") for name in split_names(text)]
    paper = entry_paper(endnote_item(record), next(iter(_texts(record, "label")), ""), tags=words)
    return _with_files(paper, _texts(record, "urls/pdf-urls/url"), folders)


_WORD_TYPES, _WORD = Names("types", "word"), Names("variables", "word")
_WORD_NAMES = "{http://schemas.openxmlformats.org/officeDocument/2006/bibliography}"


def read_word_sources(path: Path, on_bad: OnBadRecord) -> Iterator[LibraryPaper]:
    """Yield the papers of Word's list of sources. Raises InputError for a file without any."""
    items = word_sources(decode_text(path).encode())
    if not items:
        raise InputError(f"{path}: has no sources (<b:Sources><b:Source> ...), as Word writes them")
    for tag, item in items.items():
        yield from usable_paper(partial(entry_paper, item, tag), f"{path}, source {tag}", on_bad)


def word_sources(xml: bytes) -> dict[str, Item]:
    """Return the items of Word's own list of sources by their tags; none of other or damaged XML."""
    try:
        root = None if b"<!DOCTYPE" in xml else ET.fromstring(xml)
    except (ET.ParseError, ValueError):
        root = None
    items: dict[str, Item] = {}
    for source in () if root is None else root.iter(f"{_WORD_NAMES}Source"):
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


def read_wos(path: Path, on_bad: OnBadRecord) -> Iterator[LibraryPaper]:
    """Yield the papers of Web of Science's files, tagged or with tabs. Raises InputError without records."""
    lines = decode_text(path).splitlines()
    if lines and lines[0].startswith("PT\t"):
        for number, row in enumerate(csv.reader(lines[1:], delimiter="\t", quoting=csv.QUOTE_NONE), start=2):
            tags = {tag: [text] for tag, text in zip(lines[0].split("\t"), row, strict=False) if text.strip()}
            if tags:
                where = f"{path}, line {number}"
                yield from usable_paper(partial(_parse_wos, tags), where, on_bad)
    else:
        yield from _read_tagged(path, _WOS_START, _WOS_FIELD, _parse_wos, "PT J ... ER", on_bad)


_EMAIL = re.compile(r"\s*\([^()\s]*@[^()\s]*\)")


def _parse_wos(tags: Tags) -> LibraryPaper:
    fields = _WOS.first({tag: [" ".join(text.split()) for text in texts] for tag, texts in tags.items()})

    def first(tag: str) -> str:
        return next(iter(tags.get(tag, ())), "").strip()

    def names(*keys: str) -> list[Name]:
        listed = next((tags[tag] for tag in keys if tag in tags), ())
        people = (name for text in listed for name in re.split(r"[;\n]", text))
        return [parse_inverted(_EMAIL.sub("", name).strip()) for name in people]

    listed = [
        _WOS_TYPES.csl[kind] for text in first("DT").split(";") if (kind := text.strip()) in _WOS_TYPES.csl
    ]
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
    roles = {
        "author": names("AF", "AU", "BF", "BA") + _literals([" ".join(first("CA").split())]),
        "editor": names("BE", "ED"),
    }
    words = [word for text in tags.get("DE", ()) for word in " ".join(text.split()).split(";")]
    return entry_paper(
        Item.of(kind, fields, {role: [n for n in people if n.full] for role, people in roles.items()}),
        "",
        tags=words,
    )


_TABLE_TYPES, _TABLE, _ZOTERO_TYPES = (
    Names("types", "table"),
    Names("variables", "table"),
    Names("types", "zotero"),
)
_SCOPUS_ID = re.compile(r"\s*\(\d{6,}\)")
_KEY = re.compile(r"^\s*citation key\s*:\s*(\S+)", re.IGNORECASE | re.MULTILINE)


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


def read_table(path: Path, on_bad: OnBadRecord) -> Iterator[LibraryPaper]:
    """Yield the papers of a table (CSV) of Zotero, Scopus, PubMed, IEEE Xplore, or one with such columns."""
    text = decode_text(path).lstrip()
    columns, between = _columns(text)
    csv.field_size_limit(MAX_FILE_BYTES)  # lists of references
    rows = csv.reader(text.splitlines(keepends=True), delimiter=between)
    next(rows)
    begin = rows.line_num + 1
    for row in rows:
        stripped = zip(columns, map(str.strip, row), strict=False)
        cells = {name: cell for name, cell in stripped if cell not in ("", _NONE)}
        where = f"{path}, line {begin}"
        begin = rows.line_num + 1
        if cells:
            yield from usable_paper(partial(_parse_row, file_folders(path), cells), where, on_bad)


def _parse_row(folders: Sequence[Path], cells: Mapping[str, str]) -> LibraryPaper:
    fields = _TABLE.first({name: [cell] for name, cell in cells.items()})
    kind = next((cells[name] for name in ("item type", "document type", "type") if name in cells), "")
    csl = _ZOTERO_TYPES.csl.get(kind) or _TABLE_TYPES.csl.get(kind.lower())
    csl = csl or ("article-journal" if "container-title" in fields else "document")
    if "PMID" in fields:
        fields["title"] = fields.get("title", "").removesuffix(".")
    pages = [cells.get(name, "") for name in ("page start", "page end")]
    pages = pages if pages[0] else [cells.get(name, "") for name in ("start page", "end page")]
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
    match = _KEY.search(extra)
    fields.setdefault("DOI", doi_in_note(extra))
    words = [
        cells.get(name, "")
        for name in ("manual tags", "automatic tags", "author keywords", "keywords", "tags")
    ]
    paper = entry_paper(
        Item.of(csl, fields, people),
        match[1] if match else "",
        tags=[word for text in words for word in text.split(";")],
    )
    return _with_files(paper, cells.get("file attachments", "").split("; "), folders)
