"""The services that are asked about papers: what is sent to each, and the shape of its answers.

All take up to BATCH identifiers in a request. Titles go to OpenAlex together, to Semantic Scholar and
Crossref one by one, and not to arXiv, whose papers the others have.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, ClassVar, NamedTuple

import msgspec

from citerec.base.errors import InputError
from citerec.formats.articles.xml_documents import parse_xml
from citerec.formats.bibliography.paper import RETRACTED, LibraryPaper, make_paper, retraction
from citerec.formats.bibliography.reading.records import Fields, parse_openalex
from citerec.formats.identifiers import clean_doi, find_year
from citerec.formats.letters import normalise_title

BATCH = 50
"""Maximum works in a request."""
LONGEST = 3_000
"""Maximum characters of all identifiers or titles in a URL, since some services limit it to 4 KB."""
RETRACTIONS = ("retraction", "removal", "withdrawal")
"""Types of Crossref's updates after which a work is no longer to be cited."""
ARXIV_DOI = "10.48550/arxiv."
TITLE = "title"
_BY_IDENTIFIER = re.compile(r"[,|\s]")
_BREAKS_SEARCH = re.compile(r'["|,\\]')
_ABSTRACT_HEADING = re.compile(r"<jats:title>\s*(?:abstract|summary)\s*</jats:title>", re.IGNORECASE)
_FORMULA = re.compile(
    r"<(?:mml:math|jats:tex-math|jats:inline-graphic)\b.*?(?:</(?:mml:math|jats:tex-math)>|/>)", re.DOTALL
)
_PMID = re.compile(r"(?:pubmed\.ncbi\.nlm\.nih\.gov/|ncbi\.nlm\.nih\.gov/pubmed/|^pmid:)(\d{1,9})")


class Lookup(NamedTuple):
    """What is asked about: an identifier (doi, arxiv, pmid), or a title with first surname and year."""

    kind: str
    value: str
    surname: str = ""
    year: int = 0


def work_of(paper: LibraryPaper) -> LibraryPaper:
    """Return what matters of a work: its id (pmid:ID or empty), identifiers, texts and retraction."""
    mark, pmid = paper.retraction_mark, find_pmid(paper)
    names = ("title", "abstract", "authors", "year", "venue", "doi", "arxiv")
    fields = {name: getattr(paper, name) for name in names}
    return LibraryPaper(f"pmid:{pmid}" if pmid else "", filled=(mark,) if mark else (), **fields)


def find_pmid(paper: LibraryPaper) -> str:
    """Return the PubMed id in a paper's address or id; "" if there is none."""
    match = _PMID.search(paper.url) or _PMID.search(paper.id)
    return match[1] if match else ""


def identifiers(paper: LibraryPaper) -> dict[str, str]:
    """Return the identifiers that services know, by kind; empty ones if unknown."""
    return {"doi": paper.doi, "arxiv": paper.arxiv, "pmid": find_pmid(paper)}


class Request(NamedTuple):
    """An HTTP request. path: below the service's address."""

    path: str
    parameters: dict[str, str]
    ids: list[str] | None = None
    """to post as JSON"""


Answers = dict[Lookup, list[LibraryPaper]]
"""Works (`work_of`) by lookup."""


@dataclass(frozen=True)
class Service:
    """A service. address: of its API. mailto: contact address for it. key: of its user, never shown."""

    name: ClassVar[str]
    label: ClassVar[str]
    kinds: ClassVar[tuple[str, ...]]
    """Identifiers that it knows works by, best first."""
    titles: ClassVar[int]
    """Titles in a request; 0: none."""
    sends: ClassVar[str] = "titles and years"
    """What is sent of a paper without an identifier."""
    interval: ClassVar[float]
    """Seconds between the starts of two requests."""
    tells_retractions: ClassVar[bool] = False
    lacks_by_404: ClassVar[bool] = False
    """Whether it answers 404 for a title that it does not know, rather than an empty list."""
    records: ClassVar[str] = ""
    """Where its answers have their records: names of nested objects, joined by dots."""
    places: ClassVar[dict[str, str]] = {}
    """Where its records have the fields of a paper, likewise."""
    address: str
    mailto: str = ""
    key: str = field(default="", repr=False)

    @property
    def headers(self) -> dict[str, str]:
        return {}

    def batch_size(self, kind: str) -> int:
        return self.titles if kind == TITLE else BATCH

    def works(self, records: Any) -> list[LibraryPaper]:
        """Return the works of a list of records, without those of another shape. Raises ValueError."""
        if not isinstance(records, list):
            raise ValueError("not a list")
        works = []
        for record in records:
            with suppress(InputError):
                fields = Fields(record if isinstance(record, dict) else {}, self.label)
                works.append(work_of(self.work(fields)))
        return works

    def work(self, fields: Fields) -> LibraryPaper:
        """Return the work of a record. Raises InputError for fields of another type."""
        others = {name: place for name, place in self.places.items() if name != "authors"}
        texts = {name: next(iter(_texts(fields, place)), "") for name, place in others.items()}
        *outer, last = self.places["authors"].split(".")
        names = [_name(author) for author in reduce(Fields.child, outer, fields).children(last)]
        pmid, year = texts.pop("pmid", ""), find_year(texts.pop("year"))
        return make_paper(f"pmid:{pmid}" if pmid else "", **(texts | {"authors": names, "year": year}))

    def accepts(self, lookup: Lookup) -> bool:
        """True if the service can be asked this."""
        if lookup.kind == TITLE:
            return self.titles > 0
        return lookup.kind in self.kinds and not _BY_IDENTIFIER.search(lookup.value)

    def request(self, lookups: Sequence[Lookup]) -> Request:
        """Return the request for lookups of one kind, at most `batch_size`."""
        raise NotImplementedError

    def read(self, lookups: Sequence[Lookup], content: str) -> Answers:
        """Return the works in an answer that fit each lookup. Raises an exception if it has another shape."""
        records = msgspec.json.decode(content)
        for name in self.records.split("."):
            records = records[name]
        return _assign(lookups, self.works(records))


def _texts(fields: Fields, place: str) -> list[str]:
    """Return the texts at a place of a record, including numbers as texts."""
    name, _, inner = place.partition(".")
    if inner and isinstance(fields.record.get(name), dict | list):
        return [
            text for part in fields.children(name) or [fields.child(name)] for text in _texts(part, inner)
        ]
    value = fields.record.get(name)
    if name == "date-parts":
        return [str(value or "")]
    return fields.texts(name) if isinstance(value, list) else [fields.text(name)]


def _name(author: Fields) -> str:
    names = author.text("given", "givenName"), author.text("family", "familyName")
    return " ".join(filter(None, names)) or author.text("name")


def _assign(lookups: Sequence[Lookup], works: Sequence[LibraryPaper]) -> Answers:
    """Give each lookup the works with its identifier or title."""
    answers: Answers = {lookup: [] for lookup in lookups}
    for lookup in lookups:
        if lookup.kind == TITLE:
            letters = normalise_title(lookup.value)
            answers[lookup] = [work for work in works if normalise_title(work.title) == letters]
        else:
            answers[lookup] = [work for work in works if identifiers(work)[lookup.kind] == lookup.value]
    return answers


class OpenAlex(Service):
    """https://developers.openalex.org: GET /works?filter=doi:A|B gives {"results": [work, ...]}."""

    name, label, kinds, titles, interval = "openalex", "OpenAlex", ("doi", "pmid", "arxiv"), 25, 0.2
    tells_retractions, records = True, "results"

    def request(self, lookups: Sequence[Lookup]) -> Request:
        kind = lookups[0].kind
        values = [lookup.value for lookup in lookups]
        more = ""
        if kind == TITLE:
            kind, values = "title.search", [f'"{_BREAKS_SEARCH.sub(" ", value)}"' for value in values]
            years = [lookup.year for lookup in lookups]
            more = f",publication_year:{min(years) - 1}-{max(years) + 1}"
        elif kind == "arxiv":
            kind, values = "doi", [ARXIV_DOI + value for value in values]
        select = "id,doi,ids,title,publication_year,authorships,primary_location,abstract_inverted_index"
        select += ",is_retracted"
        parameters = {"filter": f"{kind}:{'|'.join(values)}{more}", "per-page": "100", "select": select}
        return Request("/works", parameters | _given(mailto=self.mailto, api_key=self.key))

    def work(self, fields: Fields) -> LibraryPaper:
        pmid = fields.child("ids").text("pmid").rstrip("/").rpartition("/")[2]
        return parse_openalex(fields)._replace(id=f"pmid:{pmid}")


class SemanticScholar(Service):
    """https://api.semanticscholar.org/api-docs/graph: POST /paper/batch {"ids": [...]} gives a list with null
    for what is unknown, GET /paper/search/match {"data": [the best match]} or 404."""

    name, label, kinds = "semanticscholar", "Semantic Scholar", ("doi", "arxiv", "pmid")
    titles, interval, lacks_by_404, records = 1, 1.1, True, "data"
    places: ClassVar[dict[str, str]] = {
        "title": "title", "abstract": "abstract", "authors": "authors", "year": "year", "venue": "venue",
        "doi": "externalIds.DOI", "arxiv": "externalIds.ArXiv", "pmid": "externalIds.PubMed",
    }  # fmt: skip
    _fields: ClassVar[str] = "title,abstract,year,venue,authors,externalIds"

    @property
    def headers(self) -> dict[str, str]:
        return _given(**{"x-api-key": self.key})

    def request(self, lookups: Sequence[Lookup]) -> Request:
        kind, value, _, year = lookups[0]
        if kind == TITLE:
            query = {"query": value, "year": f"{year - 1}-{year + 1}", "fields": self._fields}
            return Request("/paper/search/match", query)
        ids = [f"{kind.upper()}:{lookup.value}" for lookup in lookups]
        return Request("/paper/batch", {"fields": self._fields}, ids)

    def read(self, lookups: Sequence[Lookup], content: str) -> Answers:
        if lookups[0].kind == TITLE:
            return super().read(lookups, content)
        records = msgspec.json.decode(content)
        if not isinstance(records, list) or len(records) != len(lookups):
            raise ValueError("not a record or null for each id")
        return {
            lookup: self.works([record] if record else [])
            for lookup, record in zip(lookups, records, strict=True)
        }


class Crossref(Service):
    """https://api.crossref.org/swagger-ui: GET /works?filter=doi:A,doi:B gives {"message": {"items": []}}."""

    name, label, kinds, titles = "crossref", "Crossref", ("doi",), 1
    sends, interval, tells_retractions = "titles, first authors and years", 0.4, True
    records: ClassVar[str] = "message.items"
    places: ClassVar[dict[str, str]] = {
        "title": "title", "abstract": "abstract", "authors": "author", "year": "issued.date-parts",
        "venue": "container-title", "doi": "DOI",
    }  # fmt: skip

    def accepts(self, lookup: Lookup) -> bool:
        return super().accepts(lookup) and not lookup.value.startswith(ARXIV_DOI)  # of another agency

    def request(self, lookups: Sequence[Lookup]) -> Request:
        kind, value, surname, year = lookups[0]
        if kind == TITLE:
            between = f"from-pub-date:{year - 1},until-pub-date:{year + 1}"
            asked = {"query.bibliographic": value, "query.author": surname, "filter": between, "rows": "5"}
        else:
            asked = {"filter": ",".join(f"doi:{lookup.value}" for lookup in lookups), "rows": str(BATCH)}
        select = "DOI,title,subtitle,abstract,author,issued,container-title,updated-by,update-to"
        return Request("/works", asked | {"select": select} | _given(mailto=self.mailto))

    def work(self, fields: Fields) -> LibraryPaper:
        title, subtitle = (next(iter(fields.texts(name)), "") for name in ("title", "subtitle"))
        if subtitle and normalise_title(subtitle) not in normalise_title(title):
            title = f"{title}: {subtitle}"
        texts = {"title": title, "abstract": _ABSTRACT_HEADING.sub("", fields.text("abstract"))}
        plain = {name: _FORMULA.sub(" ", text) for name, text in texts.items()}
        told = _crossref_retraction(fields)
        work = super().work(Fields(fields.record | plain, fields.where))
        return work._replace(filled=(f"{RETRACTED}:{told}",) if told else ())


def _crossref_retraction(fields: Fields) -> str:
    """Return when and by what notice a work was retracted; publishers also retract it under its own DOI."""
    own = clean_doi(fields.text("DOI"))
    updates = fields.children("updated-by")
    updates += [update for update in fields.children("update-to") if clean_doi(update.text("DOI")) == own]
    for update in updates:
        if update.text("type").lower() in RETRACTIONS:
            date = re.findall(r"\d+", str(update.child("updated").record.get("date-parts")))
            notice = "" if clean_doi(update.text("DOI")) == own else update.text("DOI")
            return retraction("Crossref", "-".join(number.zfill(2) for number in date[:3]), notice)
    return ""


class Arxiv(Service):
    """https://info.arxiv.org/help/api/user-manual.html: GET /query?id_list=A,B gives an Atom feed."""

    name, label, kinds, titles, interval = "arxiv", "arXiv", ("arxiv",), 0, 3.1

    def request(self, lookups: Sequence[Lookup]) -> Request:
        ids = ",".join(lookup.value for lookup in lookups)
        return Request("/query", {"id_list": ids, "max_results": str(BATCH)})

    def read(self, lookups: Sequence[Lookup], content: str) -> Answers:
        feed = parse_xml(content, self.label)
        atom, own = "{http://www.w3.org/2005/Atom}", "{http://arxiv.org/schemas/atom}"
        if feed.tag != f"{atom}feed":
            raise ValueError("not a feed")
        works = []
        for entry in feed.iter(f"{atom}entry"):
            paper = make_paper(
                title=entry.findtext(f"{atom}title", ""),
                abstract=entry.findtext(f"{atom}summary", ""),
                authors=[author.findtext(f"{atom}name", "") for author in entry.iter(f"{atom}author")],
                year=find_year(entry.findtext(f"{atom}published", "")),
                doi=entry.findtext(f"{own}doi", ""),
                arxiv=entry.findtext(f"{atom}id", ""),
            )
            works.append(work_of(paper))
        return _assign(lookups, works)


class DataCite(Service):
    """https://support.datacite.org/reference: GET /dois?query=doi:("A" OR "B") gives {"data": [work]}."""

    name, label, kinds, titles, interval = "datacite", "DataCite", ("doi", "arxiv"), 0, 0.2
    records: ClassVar[str] = "data"
    places: ClassVar[dict[str, str]] = {
        "title": "attributes.titles.title", "authors": "attributes.creators", "doi": "attributes.doi",
        "year": "attributes.publicationYear", "venue": "attributes.container.title",
    }  # fmt: skip

    def request(self, lookups: Sequence[Lookup]) -> Request:
        start = ARXIV_DOI if lookups[0].kind == "arxiv" else ""
        asked = " OR ".join(f'"{start}{lookup.value}"' for lookup in lookups)
        return Request("/dois", {"query": f"doi:({asked})", "page[size]": str(BATCH)})


def _given(**parameters: str) -> dict[str, str]:
    return {name: value for name, value in parameters.items() if value}


SERVICES: dict[str, tuple[type[Service], str]] = {
    "openalex": (OpenAlex, "https://api.openalex.org"),
    "semanticscholar": (SemanticScholar, "https://api.semanticscholar.org/graph/v1"),
    "crossref": (Crossref, "https://api.crossref.org"),
    "arxiv": (Arxiv, "https://export.arxiv.org/api"),
    "datacite": (DataCite, "https://api.datacite.org"),
}
"""Class and address of each service, in the order in which they are asked."""
