"""The files of a collection, found by name, folder or pattern, and read by format.

JSON lines have one of four layouts, told apart by the keys of each record; docs/build.md describes them:

- our own (`id`), in which all but the id may be missing:

      {"id": str, "title": str, "abstract": str, "year": int, "authors": [str], "field": str or [str],
       "identifiers": {"arxiv": str, "doi": str, ...},
       "body": [{"section": str, "text": str, "cites": [{"start": int, "end": int, "ref": str or null}]}],
       "bibliography": {ref: {"paper": id, "title": str, "authors": [str], "year": int, "text": as printed}}}

- S2ORC of the Semantic Scholar API (`corpusid`): a text with annotations, JSON strings that each hold a list
  of {"start", "end", "attributes"}. In `s2orc_v2` body and bibliography are texts of their own, and the names
  of annotations have underscores (`bib_ref`).
- S2ORC of July 2020 (`paper_id`): the files `metadata` and `pdf_parses`
- arXiv's metadata snapshot (`authors_parsed`)
"""

from __future__ import annotations

import glob
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import orjson

from datasets.errors import InputError
from datasets.fulltext.catalogue import arxiv_year, year_in
from datasets.fulltext.documents import CitationSpan, Document, FullText, Metadata, Paragraph, Reference
from datasets.fulltext.latex import bib_entries, is_archive, read_archive, read_latex
from datasets.fulltext.latex_source import decode_latex, is_paper, plain_text
from datasets.fulltext.tei import read_tei
from datasets.json_lines import CitedId, Object, Offset, OnBadRecord, PaperId, Year, read_objects, validate
from datasets.progress import OnBytes
from datasets.records import SHOWN, quoted, raise_bad
from datasets.source_files import read_records

IN_FOLDERS = (".jsonl", ".jsonl.gz", ".xml", ".xml.gz", ".tex", ".tar.gz")
"""Suffixes of the files that are read when `source` is a folder, beside .gz files of a LaTeX document."""
_NOT_IN_AN_ID = (".gz", ".tgz", ".tar", ".xml", ".tei", ".grobid", ".tex")
_PAPERS = ("papers.json", "papers.json.gz")
"""Files of a corpus in the source format (datasets/source_files.py)."""


class SourceFile(NamedTuple):
    """A file, and the id of its paper for formats that do not contain one (LaTeX, TEI)."""

    path: Path
    id: str


def find_files(source: str | Sequence[str]) -> list[SourceFile]:
    """The files that `source` names, each once: files, folders and patterns in that order, each sorted.

    Folders are searched recursively for IN_FOLDERS; LaTeX files that are no documents are parts of others.
    Raises InputError for a name without files.
    """
    names = [source] if isinstance(source, str) else list(source)
    found: dict[Path, None] = {}
    for name in names:
        if not isinstance(name, str) or not name:
            raise InputError(f"source: {name!r} is not the name of a file or folder")
        path = Path(name).expanduser()
        if path.suffix.lower() == ".pdf":
            raise InputError(
                f"source: {name}: PDF is not read; convert it to TEI with GROBID, or name the LaTeX source"
            )
        if path.is_dir():
            files = [file for file in sorted(path.rglob("*")) if file.is_file()]
            files = [file for file in files if file.name.endswith(IN_FOLDERS) or is_archive(file)]
        elif path.exists():
            files = [path]
        else:
            files = sorted(Path(file) for file in glob.glob(str(path), recursive=True))
        files = [file for file in files if file.is_file() and (file.suffix != ".tex" or is_paper(file))]
        if not files:
            raise InputError(f"source: {name}: no such file, or a folder without {', '.join(IN_FOLDERS)}")
        found.update(dict.fromkeys(files))
    if all(file.suffix == ".bib" for file in found):
        raise InputError(f"source: {names[0]}: has no running text; name the .tex files that cite it as well")
    latex_papers = Counter(file.parent for file in found if file.suffix == ".tex")
    named = {Path(name).expanduser() for name in names}

    def paper_id(file: Path, folders: int) -> str:
        """The name without suffixes; that of the folder for a LaTeX paper alone in it, as on arXiv.

        folders: how many folders above are part of it.
        """
        alone = file.suffix == ".tex" and latex_papers[file.parent] == 1
        place = file.parent if alone and named.isdisjoint((file, file.parent)) else file
        name = place.name
        for suffix in _NOT_IN_AN_ID:
            name = name.removesuffix(suffix)
        above = place.parent.parts[-folders:] if folders else ()
        return "_".join(" ".join((*above, name)).split())

    ids = {file: paper_id(file, 0) for file in found}
    for folders in range(1, max(len(file.parts) for file in found)):
        # Files of one arXiv id are one paper; others of one name are different ones.
        again = {id for id, files in Counter(ids.values()).items() if files > 1 and not arxiv_year(id)}
        ids = {file: paper_id(file, folders) if id in again else id for file, id in ids.items()}
    return [SourceFile(file, id) for file, id in ids.items()]


def read_documents(
    file: SourceFile, on_bytes: OnBytes, on_bad: OnBadRecord = raise_bad
) -> Iterator[Document]:
    """The documents of a file, in order; `on_bad` gets the error of each that cannot be used."""
    path = file.path
    records: Iterable[tuple[Any, Any]] = [(path, file.id)]
    reader: Any
    if path.suffix == ".tex":
        reader = read_latex
    elif ".xml" in path.suffixes[-2:]:
        reader = read_tei
    elif is_archive(path):
        reader = read_archive
    elif path.suffix == ".bib":
        reader = read_bib
    elif path.name in _PAPERS:
        papers = read_records(path, frozenset(), dict, on_bytes, on_bad)
        records = (({**paper, "id": key}, f"{path}, paper {quoted(key)}") for key, paper in papers)
        reader = read_own
    else:
        records = ((record, where) for where, record in read_objects(path, on_bytes, on_bad))
        reader = _read_record
    for record in records:
        try:
            document = reader(*record)
        except InputError as error:
            on_bad(error)
        else:
            yield document


def read_bib(path: Path, id: str) -> Document:
    """The entries with title and abstract, which are papers."""
    entries = bib_entries(decode_latex(path)).values()
    described = [entry for entry in entries if entry.title and entry.abstract]
    return Document(Metadata(""), described=lambda: described)


def _read_record(record: Object, where: str) -> Document:
    if "authors_parsed" in record:
        return read_arxiv(record, where)
    if "corpusid" in record:
        return read_s2orc(record, where)
    if "paper_id" in record:
        return read_s2orc_2020(record, where)
    if "id" in record:
        return read_own(record, where)
    raise InputError(f"{where}: has neither 'id' (our layout, arXiv) nor 'corpusid' or 'paper_id' (S2ORC)")


def _kinds(identifiers: Mapping[str, Any] | None) -> frozenset[str]:
    return frozenset(kind.lower() for kind, value in (identifiers or {}).items() if value)


# Our own layout, and the body of S2ORC 2020, which has other names for the same.


class _Paper(msgspec.Struct):
    id: PaperId
    title: str | None = None
    abstract: str | None = None
    year: Year = Year(0)
    authors: list[str] | None = None
    field: list[str] | str | None = None
    identifiers: dict[str, Any] | None = None


def _body_layout(body: str, cites: str, ref: str) -> Any:
    """Paragraphs with citation spans; the arguments are the names of their fields."""
    offsets = [("start", Offset), ("end", Offset)]
    span = msgspec.defstruct("Span", [*offsets, ("ref", str | None, None)], rename={"ref": ref})
    texts = [("text", str | None, None), ("section", str | None, None)]
    cited = ("cites", list[span] | None, None)  # type: ignore[valid-type]
    paragraph = msgspec.defstruct("Paragraph", [*texts, cited], rename={"cites": cites})
    paragraphs = ("body", list[paragraph] | None, None)  # type: ignore[valid-type]
    return msgspec.defstruct("Body", [paragraphs], rename={"body": body})


_OWN_BODY = _body_layout("body", "cites", "ref")
_BODY_2020 = _body_layout("body_text", "cite_spans", "ref_id")


class _Entry(msgspec.Struct):
    paper: CitedId = CitedId()
    title: str | None = None
    authors: list[str] | None = None
    year: Year = Year(0)
    text: str | None = None


def read_own(record: Object, where: str) -> Document:
    """A record of our own layout. Raises InputError that names the field."""
    paper = validate(record, _Paper, where)
    metadata = Metadata(
        paper.id,
        paper.title or "",
        paper.abstract or "",
        paper.year,
        tuple(paper.authors or ()),
        tuple(paper.field) if isinstance(paper.field, list) else paper.field or "",
        _kinds(paper.identifiers),
    )
    text = None if record.get("body") is None else partial(_own_text, record, where)
    return Document(metadata, text)


def _own_text(record: Object, where: str) -> FullText:
    references = {}
    for ref, entry in _entries(record, "bibliography", _Entry, where):
        authors = tuple(entry.authors or ())
        references[ref] = Reference(entry.paper, entry.title or "", authors, entry.year, entry.text or "")
    return FullText(_paragraphs(record, _OWN_BODY, where), references)


def _paragraphs(record: Object, layout: Any, where: str) -> list[Paragraph]:
    return [
        Paragraph(
            one.text or "",
            [CitationSpan(span.start, span.end, span.ref or None) for span in one.cites or ()],
            one.section or "",
        )
        for one in validate(record, layout, where).body or ()
    ]


def _entries(record: Object, field: str, layout: Any, where: str) -> Iterator[tuple[str, Any]]:
    entries = {} if record.get(field) is None else record[field]
    for ref, entry in validate(entries, dict[str, Any], where, field).items():
        key = ref if ref.isprintable() and len(ref) <= SHOWN else quoted(ref)
        yield ref, validate(entry, layout, where, f"{field}.{key}")


# arXiv's metadata snapshot (https://www.kaggle.com/datasets/Cornell-University/arxiv).


class _ArxivPaper(msgspec.Struct):
    id: PaperId
    title: str | None = None
    abstract: str | None = None
    authors_parsed: list[list[str]] | None = None
    categories: str | None = None


def read_arxiv(record: Object, where: str) -> Document:
    """A line of arXiv's snapshot. Raises InputError that names the field."""
    paper = validate(record, _ArxivPaper, where)
    authors = tuple(plain_text(", ".join(name[:2])) for name in paper.authors_parsed or () if name)
    fields = tuple((paper.categories or "").split())
    texts = plain_text(paper.title or ""), plain_text(paper.abstract or "")
    year = arxiv_year(paper.id)
    return Document(Metadata(paper.id, *texts, year, authors, fields, frozenset(("arxiv",))))


# S2ORC of July 2020: metadata and pdf_parses belong together by paper_id.


class _Name2020(msgspec.Struct):
    first: str | None = None
    last: str | None = None

    def __str__(self) -> str:
        """ "Last, First", so that it is clear which is which."""
        return f"{self.last or ''}, {self.first}" if self.first else self.last or ""


class _Paper2020(msgspec.Struct):
    paper_id: PaperId
    title: str | None = None
    abstract: str | None = None
    year: Year = Year(0)
    authors: list[_Name2020] | None = None
    mag_field_of_study: list[str] | None = None


class _Entry2020(msgspec.Struct):
    link: CitedId = CitedId()
    title: str | None = None
    authors: list[_Name2020] | None = None
    year: Any = None


_IDENTIFIERS_2020 = ("arxiv_id", "acl_id", "pmc_id", "pubmed_id", "mag_id", "doi")


def read_s2orc_2020(record: Object, where: str) -> Document:
    """A record of `metadata` or `pdf_parses`; the latter has no title and abstract of its own."""
    if "body_text" in record:
        paper_id = validate(record["paper_id"], PaperId, where, "paper_id")
        return Document(Metadata(paper_id), partial(_text_2020, record, where))
    paper = validate(record, _Paper2020, where)
    metadata = Metadata(
        paper.paper_id,
        paper.title or "",
        (paper.abstract or "").replace(":::", " "),
        paper.year,
        tuple(map(str, paper.authors or ())),
        tuple(paper.mag_field_of_study or ()),
        _kinds({kind.removesuffix("_id"): record.get(kind) for kind in _IDENTIFIERS_2020}),
    )
    return Document(metadata)


def _text_2020(record: Object, where: str) -> FullText:
    references = {}
    for ref, entry in _entries(record, "bib_entries", _Entry2020, where):
        authors = tuple(map(str, entry.authors or ()))
        references[ref] = Reference(entry.link, entry.title or "", authors, year_in(str(entry.year)))
    return FullText(_paragraphs(record, _BODY_2020, where), references)


# S2ORC of the Semantic Scholar API: the files papers, abstracts, s2orc and s2orc_v2.


class _ApiAuthor(msgspec.Struct):
    name: str | None = None


class _ApiField(msgspec.Struct):
    category: str | None = None


class _ApiPaper(msgspec.Struct):
    corpusid: PaperId
    title: str | None = None
    abstract: str | None = None
    year: Year = Year(0)
    authors: list[_ApiAuthor] | None = None
    s2fieldsofstudy: list[_ApiField] | None = None
    externalids: dict[str, Any] | None = None


class _Attributes(msgspec.Struct):
    id: str | None = None
    ref_id: str | None = None
    matched_paper_id: CitedId = CitedId()


class _Annotation(msgspec.Struct):
    start: Offset
    end: Offset
    attributes: _Attributes | None = None


class _AnnotatedText(msgspec.Struct):
    text: str | None = None
    annotations: dict[str, Any] | None = None


def read_s2orc(record: Object, where: str) -> Document:
    """A record of papers, abstracts, s2orc or s2orc_v2. Raises InputError that names the field."""
    paper = validate(record, _ApiPaper, where)
    metadata = Metadata(
        paper.corpusid,
        paper.title or "",
        paper.abstract or "",
        paper.year,
        tuple(author.name or "" for author in paper.authors or ()),
        tuple(dict.fromkeys(field.category or "" for field in paper.s2fieldsofstudy or ())),
        _kinds(paper.externalids),
    )
    part = "body" if "body" in record else "content"
    if record.get(part) is None:
        return Document(metadata)
    front = _Annotated(record, part, where)
    metadata = metadata._replace(
        title=metadata.title or " ".join(front.texts("title")[:1]),
        abstract=metadata.abstract or "\n".join(front.texts("abstract")),
        authors=metadata.authors or tuple(front.texts("author")),
    )
    return Document(metadata, partial(_annotated_text, record, where))


class _Annotated:
    """A text with its annotations. Spans that lie outside of it are left out, except citations, and so are
    spans that begin within another of their kind: thousands of them would be as many copies of the text."""

    def __init__(self, record: Object, field: str, where: str) -> None:
        part = validate(record.get(field) or {}, _AnnotatedText, where, field)
        self.text = part.text or ""
        self._lists = {kind.replace("_", ""): value for kind, value in (part.annotations or {}).items()}
        self._where, self._at = where, f"{field}.annotations"

    def spans(self, kind: str) -> list[_Annotation]:
        """The annotations of a kind, in the order of the text."""
        value, at = self._lists.get(kind), f"{self._at}.{kind}"
        if isinstance(value, str):
            try:
                value = orjson.loads(value)
            except orjson.JSONDecodeError as error:
                raise InputError(f"{self._where}, field {at!r}: malformed JSON: {error}") from None
        spans = validate(value or [], list[_Annotation], self._where, at)
        spans.sort(key=lambda span: (span.start, span.end))
        if kind == "bibref":
            return spans
        apart: list[_Annotation] = []
        for span in spans:
            if 0 <= span.start < span.end <= len(self.text) and (not apart or span.start >= apart[-1].end):
                apart.append(span)
        return apart

    def texts(self, kind: str) -> list[str]:
        """What the annotations of a kind cover."""
        return [self.text[span.start : span.end].strip() for span in self.spans(kind)]


def _annotated_text(record: Object, where: str) -> FullText:
    if "body" in record:
        body, back = _Annotated(record, "body", where), _Annotated(record, "bibliography", where)
    else:
        body = back = _Annotated(record, "content", where)
    citations = body.spans("bibref")
    headers, paragraphs = body.spans("sectionheader"), []
    for paragraph in body.spans("paragraph"):
        before = bisect_right(headers, paragraph.start, key=lambda header: header.start)
        # Its number makes a section of its own of two that have the same name.
        title = body.text[headers[before - 1].start : headers[before - 1].end] if before else ""
        inside = [
            CitationSpan(
                span.start - paragraph.start,
                span.end - paragraph.start,
                (span.attributes and span.attributes.ref_id) or None,
            )
            for span in _starting_in(citations, paragraph)
        ]
        paragraphs.append(Paragraph(body.text[paragraph.start : paragraph.end], inside, f"{before} {title}"))
    titles, authors = back.spans("bibtitle"), back.spans("bibauthorlastname") or back.spans("bibauthor")
    references = {}
    for entry in back.spans("bibentry"):
        attributes = entry.attributes or _Attributes()
        printed, names = (
            [back.text[span.start : span.end] for span in _starting_in(spans, entry)]
            for spans in (titles, authors)
        )
        references[attributes.id or ""] = Reference(
            paper=attributes.matched_paper_id,
            title=printed[0] if printed else "",
            authors=tuple(names),
            text=back.text[entry.start : entry.end],  # with the year
        )
    return FullText(paragraphs, references)


def _starting_in(spans: list[_Annotation], outer: _Annotation) -> list[_Annotation]:
    first = bisect_left(spans, outer.start, key=lambda span: span.start)
    return spans[first : bisect_left(spans, outer.end, key=lambda span: span.start)]
