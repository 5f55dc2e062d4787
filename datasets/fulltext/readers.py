"""Find the files of a collection by name, folder or pattern, and read them by format.

JSON lines have one of five layouts, told apart by the keys of each record (docs/guide/build.md):

- our own (`id`), in which everything but the id is optional:

      {"id": str, "title": str, "abstract": str, "year": int, "authors": [str], "field": str or [str],
       "identifiers": {"arxiv": str, "doi": str, ...},
       "body": [{"section": str, "text": str, "cites": [{"start": int, "end": int, "ref": str or null}]}],
       "bibliography": {ref: {"paper": id, "title": str, "authors": [str], "year": int, "text": as printed,
                              "identifiers": {"doi": str, ...}}}}

- S2ORC of the Semantic Scholar API (`corpusid`): a text with annotations, each a JSON string with a list of
  {"start", "end", "attributes"}. In `s2orc_v2`, body and bibliography are separate texts and annotation names
  have underscores (`bib_ref`).
- S2ORC of July 2020 (`paper_id`): the files `metadata` and `pdf_parses`
- unarXive (`paper_id` and `discipline`): arXiv's papers with placeholders for citations and formulas
- arXiv's metadata snapshot (`authors_parsed`)
"""

from __future__ import annotations

import glob
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple

import msgspec
import orjson

from citerec.base.archives import damage_reported, stream_files
from citerec.base.errors import InputError, UnusableFile
from citerec.base.files import open_bytes
from citerec.base.progress import OnBytes
from citerec.datasets.formats.json_lines import (
    CitedId,
    Object,
    Offset,
    OnBadRecord,
    PaperId,
    Year,
    read_objects,
    validate,
)
from citerec.datasets.formats.source_files import read_records
from citerec.datasets.fulltext.catalogue import arxiv_year, find_year, identifier
from citerec.datasets.fulltext.documents import (
    CitationSpan,
    Document,
    FullText,
    Metadata,
    Paragraph,
    Reference,
)
from citerec.datasets.fulltext.jats import read_jats
from citerec.datasets.fulltext.tei import read_tei
from citerec.datasets.fulltext.xml_documents import read_trees
from citerec.datasets.languages.entries import bib_entries
from citerec.datasets.languages.inputs import decode_text
from citerec.datasets.languages.known import LANGUAGES, language_of
from citerec.datasets.languages.latex import LATEX, is_archive, read_archive
from citerec.datasets.languages.latex_source import is_paper
from citerec.datasets.languages.latex_text import plain_text
from citerec.datasets.languages.markdown import MARKDOWN
from citerec.datasets.records import MAX_SHOWN, quoted, raise_bad

_WRITTEN = tuple(suffix for language in LANGUAGES for suffix in language.suffixes)
IN_FOLDERS = (".jsonl", ".jsonl.gz", ".xml", ".xml.gz", ".nxml", ".tar.gz", *_WRITTEN)
"""Suffixes read when `source` is a folder, in addition to .gz files of a LaTeX document."""
_XML = (".xml", ".nxml")
_BIBLATEX = ".run.xml"
"""Suffix of what BibLaTeX writes for other programs."""
_FIRST_FILES = 1000
"""Number of files of an archive whose names tell whether it has LaTeX or XML."""
_NOT_IN_AN_ID = (".gz", ".tgz", ".tar", ".zip", ".xml", ".nxml", ".tei", ".grobid")
_PANDOC = "convert it to Markdown (pandoc --to=markdown)"
_CONVERTED = {".pdf": "convert it to TEI with GROBID or use the LaTeX source"}
_CONVERTED |= dict.fromkeys((".docx", ".odt", ".rst", ".html", ".epub"), _PANDOC)
"""What to do with files that are not read."""
_PAPERS = ("papers.json", "papers.json.gz")
"""Files of a corpus in the source format (datasets/formats/source_files.py)."""


class SourceFile(NamedTuple):
    """A file, and the id of its paper for formats without ids (LaTeX, TEI)."""

    path: Path
    id: str


def find_files(source: str | Sequence[str]) -> list[SourceFile]:
    """Find the files that `source` names, without duplicates; each folder or pattern is sorted.

    Folders are searched recursively for IN_FOLDERS; LaTeX files that are not complete documents are skipped,
    and so are other texts without citations, chapters, files printed from Markdown, and those of BibLaTeX.
    Raises InputError for a name without files.
    """
    names = [source] if isinstance(source, str) else list(source)
    found: dict[Path, None] = {}
    for name in names:
        if not isinstance(name, str) or not name:
            raise InputError(f"source: {name!r} is not the name of a file or folder")
        path = Path(name).expanduser()
        if advice := _CONVERTED.get(path.suffix.lower()):
            raise InputError(f"source: {name}: {path.suffix.lower()} files are not read; {advice}")
        if path.is_dir():
            files = [file for file in sorted(path.rglob("*")) if file.is_file()]
            files = [file for file in files if file.name.lower().endswith(IN_FOLDERS) or is_archive(file)]
            files = [file for file in files if not file.name.endswith(_BIBLATEX)]
            for language in (language for language in LANGUAGES if language is not LATEX):
                written = [file for file in files if language_of(file.suffix) is language]
                documents = language.documents(written)
                left_out = {*written} - {*documents}
                if language is MARKDOWN:  # what Pandoc, knitr and Quarto print
                    left_out |= {file.with_suffix(".tex") for file in documents}
                    left_out |= {file.with_suffix(".md") for file in documents if file.suffix != ".md"}
                files = [file for file in files if file not in left_out]
        elif path.exists():
            files = [path]
        else:
            files = sorted(Path(file) for file in glob.glob(str(path), recursive=True))
        files = [file for file in files if file.is_file()]
        parts = [file for file in files if language_of(file.suffix) is LATEX and not is_paper(file)]
        files = [file for file in files if file not in parts]
        if not files:
            reason = f"no such file, or a folder without {', '.join(IN_FOLDERS)}"
            if parts:
                reason = f"no \\documentclass in {parts[0].name}, a chapter; give the main file or its folder"
            raise InputError(f"source: {name}: {reason}")
        found.update(dict.fromkeys(files))
    if all(file.suffix == ".bib" for file in found):
        raise InputError(f"source: {names[0]}: has no running text; add the files that cite it")
    latex_papers = Counter(file.parent for file in found if file.suffix == ".tex")
    named = {Path(name).expanduser() for name in names}

    def paper_id(file: Path, folders: int) -> str:
        """The file name without suffixes; the folder name for a book, or for one LaTeX paper, as on arXiv.

        folders: number of parent folders to include.
        """
        alone = latex_papers[file.parent] == 1 if file.suffix == ".tex" else file.stem == "index"
        place = file.parent if alone and named.isdisjoint((file, file.parent)) else file
        name = place.name
        if language_of(place.suffix):
            name = place.stem
        for suffix in _NOT_IN_AN_ID:
            name = name.removesuffix(suffix)
        above = place.parent.parts[-folders:] if folders else ()
        return "_".join(" ".join((*above, name)).split())

    ids = {file: paper_id(file, 0) for file in found}
    for folders in range(1, max(len(file.parts) for file in found)):
        # Files with the same arXiv id are one paper; other files with the same name are different papers.
        ambiguous = {id for id, files in Counter(ids.values()).items() if files > 1 and not arxiv_year(id)}
        ids = {file: paper_id(file, folders) if id in ambiguous else id for file, id in ids.items()}
    return [SourceFile(file, id) for file, id in ids.items()]


def read_documents(
    file: SourceFile, on_bytes: OnBytes, on_bad: OnBadRecord = raise_bad
) -> Iterator[Document]:
    """Yield the documents of a file in order. on_bad: called with the error of each invalid record."""
    path = file.path
    if not {*_XML}.isdisjoint(path.suffixes[-2:]):
        yield from _xml_documents(file, on_bytes, on_bad)
        return
    if path.suffix in (".zip", ".tar") or (path.name.endswith((".tar.gz", ".tgz")) and has_xml(path)):
        yield from _archived_documents(path, on_bad)
        return
    records: Iterable[tuple[Any, Any]] = [(path, file.id)]
    reader: Any
    if language := language_of(path.suffix):
        reader = language.document
    elif is_archive(path):
        reader = read_archive
    elif path.suffix == ".bib":
        reader = read_bib
    elif path.name in _PAPERS:
        papers = read_records(path, dict, on_bytes, on_bad)
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


def has_xml(archive: Path) -> bool:
    """True if a tar archive holds XML documents rather than the LaTeX of one."""
    try:
        names = [name for name, _ in islice(stream_files(archive), _FIRST_FILES)]
    except UnusableFile:
        return False  # reading it as LaTeX reports the damage
    return any(map(_is_xml, names)) and not any(name.endswith(".tex") for name in names)


def _is_xml(name: str) -> bool:
    return name.endswith(_XML) and not PurePosixPath(name).name.startswith(".")


def _archived_documents(archive: Path, on_bad: OnBadRecord) -> Iterator[Document]:
    found = False
    try:
        with damage_reported():
            for name, content in stream_files(archive):
                if _is_xml(name):
                    found = True
                    where = f"{archive}, file {quoted(name)}"
                    yield from _read_trees(content, PurePosixPath(name).stem, where, on_bad)
    except UnusableFile as error:
        on_bad(InputError(f"{archive}: {error}"))
    else:
        if not found:
            on_bad(InputError(f"{archive}: the archive has no .xml or .nxml file"))


def _xml_documents(file: SourceFile, on_bytes: OnBytes, on_bad: OnBadRecord) -> Iterator[Document]:
    try:
        with open_bytes(file.path) as (content, raw):
            for document in _read_trees(content, file.id, str(file.path), on_bad):
                yield document
                on_bytes(raw.tell())
    except InputError as error:
        on_bad(error)


def _read_trees(content: IO[bytes], paper: str, where: str, on_bad: OnBadRecord) -> Iterator[Document]:
    """Yield the documents of an XML file; the second without an own id is `paper`-2."""
    try:
        for number, root in enumerate(read_trees(content, where), 1):
            id = paper if number == 1 else f"{paper}-{number}"
            try:
                document = (read_tei if root.tag == "TEI" else read_jats)(root, id, where)
            except InputError as error:
                on_bad(error)
            else:
                yield document
    except InputError as error:
        on_bad(error)


def read_bib(path: Path, id: str) -> Document:
    """Read the entries of a .bib file; these are papers."""
    entries = list(bib_entries(decode_text(path)).values())
    return Document(Metadata(""), entries=lambda: entries)


def _read_record(record: Object, where: str) -> Document:
    if "authors_parsed" in record:
        return read_arxiv(record, where)
    if "corpusid" in record:
        return read_s2orc(record, where)
    if "paper_id" in record:
        return (read_unarxive if "discipline" in record else read_s2orc_2020)(record, where)
    if "id" in record:
        return read_own(record, where)
    raise InputError(f"{where}: has neither 'id' (our layout, arXiv) nor 'corpusid' or 'paper_id' (S2ORC)")


def _identifiers(identifiers: Mapping[str, Any] | None) -> tuple[str, ...]:
    """All identifiers of a record, which may be lists, numbers or strings."""
    named = ((kind, value) for kind, values in (identifiers or {}).items() for value in _listed(values))
    return tuple(
        dict.fromkeys(filter(None, (identifier(kind, str(value)) for kind, value in named if value)))
    )


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


# Our own layout, and the body of S2ORC 2020, which differs only in field names.


class _Paper(msgspec.Struct):
    id: PaperId
    title: str | None = None
    abstract: str | None = None
    year: Year = Year(0)
    authors: list[str] | None = None
    field: list[str] | str | None = None
    identifiers: dict[str, Any] | None = None


def _body_layout(body: str, cites: str, ref: str) -> Any:
    """Define a layout of paragraphs with citation spans, given the names of its fields."""
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
    identifiers: dict[str, Any] | None = None


def read_own(record: Object, where: str) -> Document:
    """Read a record in our own layout. Raises InputError with the field."""
    paper = validate(record, _Paper, where)
    metadata = Metadata(
        paper.id,
        paper.title or "",
        paper.abstract or "",
        paper.year,
        tuple(paper.authors or ()),
        tuple(paper.field) if isinstance(paper.field, list) else paper.field or "",
        _identifiers(paper.identifiers),
    )
    text = None if record.get("body") is None else partial(_read_own_text, record, where)
    return Document(metadata, text)


def _read_own_text(record: Object, where: str) -> FullText:
    references = {}
    for ref, entry in _read_entries(record, "bibliography", _Entry, where):
        authors = tuple(entry.authors or ())
        references[ref] = Reference(
            entry.paper,
            entry.title or "",
            authors,
            entry.year,
            entry.text or "",
            identifiers=_identifiers(entry.identifiers),
        )
    return FullText(_read_paragraphs(record, _OWN_BODY, where), references)


def _read_paragraphs(record: Object, layout: Any, where: str) -> list[Paragraph]:
    return [
        Paragraph(
            one.text or "",
            [CitationSpan(span.start, span.end, span.ref or None) for span in one.cites or ()],
            one.section or "",
        )
        for one in validate(record, layout, where).body or ()
    ]


def _read_entries(record: Object, field: str, layout: Any, where: str) -> Iterator[tuple[str, Any]]:
    entries = {} if record.get(field) is None else record[field]
    for ref, entry in validate(entries, dict[str, Any], where, field).items():
        key = ref if ref.isprintable() and len(ref) <= MAX_SHOWN else quoted(ref)
        yield ref, validate(entry, layout, where, f"{field}.{key}")


# arXiv's metadata snapshot (https://www.kaggle.com/datasets/Cornell-University/arxiv).


class _ArxivPaper(msgspec.Struct):
    id: PaperId
    title: str | None = None
    abstract: str | None = None
    authors_parsed: list[list[str]] | None = None
    categories: str | None = None


def read_arxiv(record: Object, where: str) -> Document:
    """Read a line of arXiv's snapshot. Raises InputError with the field."""
    paper = validate(record, _ArxivPaper, where)
    authors = tuple(plain_text(", ".join(name[:2])) for name in paper.authors_parsed or () if name)
    fields = tuple((paper.categories or "").split())
    texts = plain_text(paper.title or ""), plain_text(paper.abstract or "")
    year = arxiv_year(paper.id)
    return Document(Metadata(paper.id, *texts, year, authors, fields, (identifier("arxiv", paper.id),)))


# S2ORC of July 2020: metadata and pdf_parses are joined by paper_id.


class _Name2020(msgspec.Struct):
    first: str | None = None
    last: str | None = None

    def __str__(self) -> str:
        """ "Last, First", which is unambiguous."""
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
    """Read a record of `metadata` or `pdf_parses`; the latter has no title and no abstract."""
    if "body_text" in record:
        paper_id = validate(record["paper_id"], PaperId, where, "paper_id")
        return Document(Metadata(paper_id), partial(_read_text_2020, record, where))
    paper = validate(record, _Paper2020, where)
    metadata = Metadata(
        paper.paper_id,
        paper.title or "",
        (paper.abstract or "").replace(":::", " "),
        paper.year,
        tuple(map(str, paper.authors or ())),
        tuple(paper.mag_field_of_study or ()),
        _identifiers({kind.removesuffix("_id"): record.get(kind) for kind in _IDENTIFIERS_2020}),
    )
    return Document(metadata)


def _read_text_2020(record: Object, where: str) -> FullText:
    references = {}
    for ref, entry in _read_entries(record, "bib_entries", _Entry2020, where):
        authors = tuple(map(str, entry.authors or ()))
        references[ref] = Reference(entry.link, entry.title or "", authors, find_year(str(entry.year)))
    return FullText(_read_paragraphs(record, _BODY_2020, where), references)


# unarXive (https://github.com/IllDepence/unarXive).


class _UnarxiveMetadata(msgspec.Struct):
    title: str | None = None
    authors_parsed: list[list[str]] | None = None


class _UnarxiveText(msgspec.Struct):
    text: str | None = None
    section: str | None = None
    sec_number: str | None = None
    content_type: str | None = None


class _UnarxiveEntry(msgspec.Struct):
    bib_entry_raw: str | None = None
    ids: dict[str, Any] | None = None


class _UnarxivePaper(msgspec.Struct):
    paper_id: PaperId
    discipline: str | None = None
    metadata: _UnarxiveMetadata | None = None
    abstract: _UnarxiveText | None = None
    body_text: list[_UnarxiveText] | None = None


_PLACEHOLDER = re.compile(r"\{\{(\w+):([^{}]*)\}\}")


def read_unarxive(record: Object, where: str) -> Document:
    """Read a paper of unarXive. Raises InputError with the field."""
    paper = validate(record, _UnarxivePaper, where)
    front = paper.metadata or _UnarxiveMetadata()
    metadata = Metadata(
        paper.paper_id,
        plain_text(front.title or ""),
        plain_text((paper.abstract and paper.abstract.text) or ""),
        arxiv_year(paper.paper_id),
        tuple(plain_text(", ".join(name[:2])) for name in front.authors_parsed or () if name),
        paper.discipline or "",
        (identifier("arxiv", paper.paper_id),),
    )
    return Document(metadata, partial(_read_unarxive_text, paper, record, where))


def _read_unarxive_text(paper: _UnarxivePaper, record: Object, where: str) -> FullText:
    references = {}
    for ref, entry in _read_entries(record, "bib_entries", _UnarxiveEntry, where):
        known = _identifiers({kind.removesuffix("_id"): value for kind, value in (entry.ids or {}).items()})
        references[ref] = Reference(text=entry.bib_entry_raw or "", identifiers=known)
    numbers = {ref: number for number, ref in enumerate(references, 1)}
    paragraphs = []
    for part in paper.body_text or ():
        pieces: list[str] = []
        spans: list[CitationSpan] = []
        length = done = 0
        text = part.text or ""
        for found in _PLACEHOLDER.finditer(text):
            mark = f"[{numbers.get(found[2], 0)}]" if found[1] == "cite" else ""  # formulas are left out
            pieces += text[done : found.start()], mark
            length += found.start() - done + len(mark)
            done = found.end()
            if mark:
                spans.append(CitationSpan(length - len(mark) + 1, length - 1, found[2]))
        paragraphs.append(
            Paragraph("".join([*pieces, text[done:]]), spans, f"{part.sec_number} {part.section}")
        )
    return FullText(paragraphs, references)


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
    """Read a record of papers, abstracts, s2orc or s2orc_v2. Raises InputError with the field."""
    paper = validate(record, _ApiPaper, where)
    metadata = Metadata(
        paper.corpusid,
        paper.title or "",
        paper.abstract or "",
        paper.year,
        tuple(author.name or "" for author in paper.authors or ()),
        tuple(dict.fromkeys(field.category or "" for field in paper.s2fieldsofstudy or ())),
        _identifiers(paper.externalids),
    )
    part = "body" if "body" in record else "content"
    if record.get(part) is None:
        return Document(metadata)
    front = _AnnotatedSpans(record, part, where)
    metadata = metadata._replace(
        title=metadata.title or " ".join(front.texts("title")[:1]),
        abstract=metadata.abstract or "\n".join(front.texts("abstract")),
        authors=metadata.authors or tuple(front.texts("author")),
    )
    return Document(metadata, partial(_read_annotated_text, record, where))


class _AnnotatedSpans:
    """A text with its annotations.

    Except for citations, spans outside the text are dropped, and so are spans that start within another of
    the same kind, since thousands of them would copy the text as many times.
    """

    def __init__(self, record: Object, field: str, where: str) -> None:
        part = validate(record.get(field) or {}, _AnnotatedText, where, field)
        self.text = part.text or ""
        self._lists = {kind.replace("_", ""): value for kind, value in (part.annotations or {}).items()}
        self._where, self._field = where, f"{field}.annotations"

    def spans(self, kind: str) -> list[_Annotation]:
        """The annotations of a kind, in text order."""
        value, at = self._lists.get(kind), f"{self._field}.{kind}"
        if isinstance(value, str):
            try:
                value = orjson.loads(value)
            except orjson.JSONDecodeError as error:
                raise InputError(f"{self._where}, field {at!r}: malformed JSON: {error}") from None
        spans = validate(value or [], list[_Annotation], self._where, at)
        spans.sort(key=lambda span: (span.start, span.end))
        if kind == "bibref":
            return spans
        disjoint: list[_Annotation] = []
        for span in spans:
            if 0 <= span.start < span.end <= len(self.text) and (
                not disjoint or span.start >= disjoint[-1].end
            ):
                disjoint.append(span)
        return disjoint

    def texts(self, kind: str) -> list[str]:
        """The texts that the annotations of a kind cover."""
        return [self.text[span.start : span.end].strip() for span in self.spans(kind)]


def _read_annotated_text(record: Object, where: str) -> FullText:
    if "body" in record:
        body, back = _AnnotatedSpans(record, "body", where), _AnnotatedSpans(record, "bibliography", where)
    else:
        body = back = _AnnotatedSpans(record, "content", where)
    citations = body.spans("bibref")
    headers, paragraphs = body.spans("sectionheader"), []
    for paragraph in body.spans("paragraph"):
        before = bisect_right(headers, paragraph.start, key=lambda header: header.start)
        # The number distinguishes sections of the same name.
        title = body.text[headers[before - 1].start : headers[before - 1].end] if before else ""
        inside = [
            CitationSpan(
                span.start - paragraph.start,
                span.end - paragraph.start,
                (span.attributes and span.attributes.ref_id) or None,
            )
            for span in _spans_within(citations, paragraph)
        ]
        paragraphs.append(Paragraph(body.text[paragraph.start : paragraph.end], inside, f"{before} {title}"))
    titles, authors = back.spans("bibtitle"), back.spans("bibauthorlastname") or back.spans("bibauthor")
    references = {}
    for entry in back.spans("bibentry"):
        attributes = entry.attributes or _Attributes()
        printed, names = (
            [back.text[span.start : span.end] for span in _spans_within(spans, entry)]
            for spans in (titles, authors)
        )
        references[attributes.id or ""] = Reference(
            paper=attributes.matched_paper_id,
            title=printed[0] if printed else "",
            authors=tuple(names),
            text=back.text[entry.start : entry.end],  # with the year
        )
    return FullText(paragraphs, references)


def _spans_within(spans: list[_Annotation], outer: _Annotation) -> list[_Annotation]:
    first = bisect_left(spans, outer.start, key=lambda span: span.start)
    return spans[first : bisect_left(spans, outer.end, key=lambda span: span.start)]
