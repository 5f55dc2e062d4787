"""Read JATS XML: PubMed Central, PLOS, eLife, SciELO.

Running text is that of the paragraphs of the body without figures, tables, formulas and notes; each `sec` is
a section. A citation is an `xref` of type bibr, whose `rid` names entries of the reference lists. A range
("3-7") cites all entries in between, also where only its ends are marked. Of the abstracts, the plain one
counts; the parts of a structured one begin with their titles ("Methods: ...").
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import NamedTuple

from citerec.base.errors import InputError
from citerec.formats.articles.xml_documents import flat_text, read_paragraph
from citerec.formats.documents import CitationSpan, Document, FullText, Metadata, Paragraph, Reference
from citerec.formats.identifiers import find_arxiv_id, find_year, identifier

_FORMULAS = ("inline-formula", "disp-formula", "disp-formula-group", "tex-math", "math", "chem-struct-wrap")
_FLOATS = ("fig", "fig-group", "table-wrap", "table-wrap-group", "table", "supplementary-material", "media")
_SKIPPED = frozenset((*_FORMULAS, *_FLOATS, "fn", "fn-group", "code", "ref-list", "object-id"))
_SKIPPED_IN_TITLES = frozenset(("xref", "fn", "tex-math"))
_CITATIONS = ("element-citation", "nlm-citation", "mixed-citation", "citation")
"""The first kind that an entry has is read."""
_HREF = "{http://www.w3.org/1999/xlink}href"
_DOI = re.compile(r"(?<![\w./])10\.\d{4,9}/[^\s\"<>]+")
_TITLES = ("article-title", "chapter-title", "data-title")
_NO_SOURCE = ("journal", "other", "")
"""Types of publication whose `source` is not the title of the cited work."""
_OTHER_ABSTRACTS = re.compile(
    "graph|teaser|toc|edit|video|highlight|key|plain|summary|web|precis|short|patient", re.IGNORECASE
)
_DASH = "[-–—‐‑‒−]"  # noqa: RUF001
_RANGE = re.compile(rf"(?<!\d)(\d{{1,4}})[\])\s]*{_DASH}[\[(\s]*(\d{{1,4}})(?!\d)")
_BETWEEN_ENDS = re.compile(rf"[\])\s]*{_DASH}[\[(\s]*")
_NUMBER = re.compile(r"\d+")
MAX_RANGE = 100
"""Maximum number of entries that a range cites."""


def read_jats(root: ET.Element, paper: str, where: str) -> Document:
    """Read an article. paper: its id if it has neither PMC id nor DOI. Raises InputError without metadata."""
    if (meta := root.find("front/article-meta")) is None:
        raise InputError(f"{where}: <article> is not JATS: it has no <front> with <article-meta>")
    identifiers = _identifiers(meta.findall("article-id"))
    groups = meta.findall("contrib-group/contrib")
    authors = [group for group in groups if group.get("contrib-type", "author") == "author"]
    subjects = meta.findall("article-categories/subj-group")
    fields = (
        flat_text(group.find("subject"))
        for group in subjects
        if group.get("subj-group-type", "").lower().startswith("discipline")
    )
    metadata = Metadata(
        id=identifiers.get("pmc", "").replace("pmc:", "PMC")
        or identifiers.get("doi", "").removeprefix("doi:")
        or paper,
        title=flat_text(meta.find("title-group/article-title"), _SKIPPED_IN_TITLES),
        abstract=_abstract(meta.findall("abstract")),
        year=min(filter(None, (find_year(_spaced(date)) for date in meta.findall("pub-date"))), default=0),
        authors=tuple(name for group in authors for name in _names(group)),
        field=tuple(dict.fromkeys(filter(None, fields))),
        identifiers=tuple(identifiers.values()),
    )
    bibliography = partial(_read_bibliography, root)
    if (body := root.find("body")) is None:
        return Document(metadata)
    return Document(
        metadata, lambda: _full_text(body, bibliography()), lambda: tuple(bibliography().references.values())
    )


def _abstract(abstracts: Sequence[ET.Element]) -> str:
    """Return the text of the abstract without a type, else of one whose type is not that of a summary."""
    plain = [abstract for abstract in abstracts if not abstract.get("abstract-type")]
    plain += [
        abstract for abstract in abstracts if not _OTHER_ABSTRACTS.search(abstract.get("abstract-type", ""))
    ]
    if not plain:
        return ""
    parts = []
    for part in plain[0]:
        title = part.find("title") if part.tag == "sec" else None
        if title is not None:
            rest = " ".join(flat_text(element, _SKIPPED) for element in part if element is not title)
            parts.append(f"{flat_text(title).rstrip(' :.')}: {rest}")
        elif part.tag != "title":
            parts.append(flat_text(part, _SKIPPED))
    return " ".join(" ".join(parts).split())


def _names(parent: ET.Element) -> Iterator[str]:
    """Yield the names in an element as "Surname, Given names", in order, also those of collaborations."""
    for node in parent:
        if node.tag in ("name", "string-name"):
            last, first = (flat_text(node.find(part)) for part in ("surname", "given-names"))
            if name := (f"{last}, {first}" if last and first else last or flat_text(node)):
                yield name
        elif node.tag == "collab" and (name := flat_text(node, ("contrib-group",))):
            yield name
        elif node.tag == "name-alternatives":
            yield from list(_names(node))[:1]


def _identifiers(elements: Sequence[ET.Element]) -> dict[str, str]:
    """Normalised identifiers by kind, the first of each, from `article-id` or `pub-id` elements."""
    identifiers: dict[str, str] = {}
    for element in elements:
        if named := identifier(element.get("pub-id-type", ""), flat_text(element)):
            identifiers.setdefault(named.partition(":")[0], named)
    return identifiers


# The bibliography.


class _Bibliography(NamedTuple):
    """Entries by key; the keys of each `rid`, several for "1. (a) ...; (b) ..."; the rids in list order."""

    references: dict[str, Reference]
    keys: dict[str, list[str]]
    order: list[str]


def _read_bibliography(root: ET.Element) -> _Bibliography:
    references: dict[str, Reference] = {}
    keys: dict[str, list[str]] = {}
    order: list[str] = []
    entries = (
        entry for part in ("body", "back") for section in root.findall(part) for entry in section.iter("ref")
    )
    for number, entry in enumerate(entries, 1):
        rid = entry.get("id") or f"#{number}"
        # SciELO gives each work twice, with and without markup.
        kinds = ([*entry.findall(kind), *entry.findall(f"*/{kind}")] for kind in _CITATIONS)
        cited = next(filter(None, kinds), [])
        order.append(rid)
        for part, citation in enumerate(cited):
            key = rid if part == 0 else f"{rid}.{part + 1}"
            references[key] = _reference(citation)
            keys.setdefault(rid, []).append(key)
            if own := citation.get("id"):
                keys.setdefault(own, [key])
    return _Bibliography(references, keys, order)


def _spaced(element: ET.Element) -> str:
    """Return the text of an element with spaces between its parts, which often have none."""
    return " ".join(element.itertext())


def _reference(citation: ET.Element) -> Reference:
    kind = (citation.get("publication-type") or citation.get("citation-type") or "").lower()
    titles = [flat_text(citation.find(name), _SKIPPED_IN_TITLES) for name in _TITLES]
    if not any(titles) and kind not in _NO_SOURCE:
        titles.append(flat_text(citation.find("source"), _SKIPPED_IN_TITLES))
    groups = citation.findall("person-group")
    authors = [group for group in groups if group.get("person-group-type", "author") == "author"]
    text, spaced = flat_text(citation), _spaced(citation)
    identifiers = _identifiers(citation.findall("pub-id"))
    if "doi" not in identifiers:
        links = " ".join(link.get(_HREF, "") for link in citation.iter("ext-link"))
        if match := _DOI.search(f"{links} {spaced}"):
            identifiers["doi"] = identifier("doi", match[0])
    title = next(filter(None, titles), "")
    return Reference(
        title=title.removesuffix("."),
        authors=tuple(name for group in authors or groups or [citation] for name in _names(group)),
        year=find_year(flat_text(citation.find("year"))) or find_year("" if title else spaced),
        text="" if title else text,
        arxiv=find_arxiv_id(spaced) if "arxiv" in text.lower() else "",
        identifiers=tuple(identifiers.values()),
    )


# The body.


def _full_text(body: ET.Element, bibliography: _Bibliography) -> FullText:
    order = {rid: place for place, rid in enumerate(bibliography.order)}
    paragraphs = []
    sections = 0

    def cited(node: ET.Element) -> list[str]:
        if node.tag != "xref" or node.get("ref-type") != "bibr":
            return []
        return node.get("rid", "").split() or [""]

    def walk(parent: ET.Element, section: str) -> None:
        nonlocal sections
        for node in parent:
            if node.tag == "sec":
                sections += 1
                walk(node, f"{sections} {flat_text(node.find('title'), _SKIPPED_IN_TITLES)}")
            elif node.tag == "p":
                text, spans, *_ = read_paragraph(node, section, _SKIPPED, cited)
                spans = [
                    CitationSpan(start, end, key)
                    for start, end, rid in expand_ranges(text, spans, order)
                    for key in (bibliography.keys.get(rid, [rid]) if rid else [None])
                ]
                paragraphs.append(Paragraph(text, spans, section))
            elif node.tag not in _SKIPPED:
                walk(node, section)

    walk(body, "0 ")
    return FullText(paragraphs, bibliography.references)


def expand_ranges(
    text: str, spans: Sequence[CitationSpan], order: Mapping[str, int]
) -> Iterator[CitationSpan]:
    """Add the entries that a range cites between its ends; yields one span of the whole range per entry.

    A range is a number, a dash and a number in one span, or a dash between two spans that are numbers.
    order: places of the entries in the reference list; the range is left as it is unless its ends are as far
    apart there.

    >>> order = {"a": 0, "b": 1, "c": 2}
    >>> ends = [CitationSpan(1, 2, "a"), CitationSpan(5, 6, "c")]
    >>> [tuple(span) for span in expand_ranges("[1]-[3]", ends, order)]
    [(1, 6, 'a'), (1, 6, 'b'), (1, 6, 'c')]
    """
    listed = sorted(order, key=order.__getitem__)

    def between(first: str | None, last: str | None, length: int) -> list[str | None]:
        start = order.get(first or "", -1)
        if start < 0 or not 0 < length < MAX_RANGE:
            return []
        return [*listed[start : start + length + 1]] if order.get(last or "") == start + length else []

    done: list[tuple[int, int, list[str | None]]] = []
    for (start, end), group in groupby(spans, key=lambda span: span[:2]):
        refs = [span.ref for span in group]
        inside = text[start:end]
        for match in _RANGE.finditer(inside):
            first, last = int(match[1]), int(match[2])
            only_start = len(refs) == 1 and order.get(refs[0] or "", -1) + 1 == first and last <= len(listed)
            end_ref = listed[last - 1] if only_start else refs[1] if len(refs) == 2 else None
            refs = between(refs[0], end_ref, last - first) or refs
        if done and _BETWEEN_ENDS.fullmatch(text, done[-1][1], start):
            before, others = done[-1], _NUMBER.findall(text[done[-1][0] : done[-1][1]])
            if others and (own := _NUMBER.match(inside.lstrip("[( "))):
                filled = between(before[2][-1], refs[0], int(own[0]) - int(others[-1]))
                if filled:
                    start, refs = before[0], [*before[2][:-1], *filled, *refs[1:]]
                    done.pop()
        done.append((start, end, refs))
    for start, end, refs in done:
        yield from (CitationSpan(start, end, ref) for ref in dict.fromkeys(refs))
