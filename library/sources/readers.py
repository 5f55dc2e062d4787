"""Readers for sources of papers, one paper at a time: files, and Zotero (zotero).

    .bib                    BibTeX and BibLaTeX
    .ris, .nbib, .enw, .xml RIS, PubMed, EndNote; Word's list of sources
    .ciw, .txt              Web of Science, tagged or with tabs
    .csv                    tables of Zotero, Scopus, PubMed and others
    .json                   CSL JSON: a list, also in an object, or one item; Better BibTeX's JSON;
                            papers.json, an object of papers by id
    .yaml, .yml             CSL YAML and hayagriva's
    JSON lines, lists       arXiv's metadata snapshot, OpenAlex works, Semantic Scholar's dumps and S2ORC's
                            metadata, and our own

All may be gzipped. Files with other names are recognised by their first bytes. Invalid records are reported
to `on_bad` with their position, and reading continues.

Papers keep their id from papers.json and our own lines. Others get arxiv:ID (arXiv's snapshot), s2:ID
(Semantic Scholar's files), or else the first available of doi:DOI, arxiv:ID, openalex:ID, key:KEY and
title:HASH.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pathlib import Path

from citerec.base.files import BYTE_ORDER_MARK, read_limited
from citerec.base.progress import read_progress
from citerec.datasets.files.source_files import stream_json
from citerec.formats.bibliography.paper import LibraryPaper, make_paper, usable_paper
from citerec.formats.bibliography.reading.csl import is_csl, listed, parse_csl
from citerec.formats.bibliography.reading.recognise import recognise
from citerec.formats.bibliography.reading.records import (
    Fields,
    parse_arxiv,
    parse_openalex,
    parse_own,
    parse_records,
)
from citerec.formats.drafts.inputs import MAX_FILE_BYTES
from citerec.formats.json_lines import OnBadRecord, parse_object, read_objects
from citerec.library.sources.finding import is_zotero


def read_source(source: str | Path, on_bad: OnBadRecord) -> Iterator[LibraryPaper]:
    """Yield the papers of a source, in order. Raises InputError for an empty file or an unknown format."""
    if is_zotero(str(source)):
        from citerec.library.sources.zotero_database import read_zotero

        yield from read_zotero(str(source), on_bad)
        return
    path = Path(source)
    format = recognise(path)
    with read_progress(path, path.name) as on_bytes:
        if format in _EXPORTS:
            module, _, name = _EXPORTS[format].partition(":")
            reader = import_module(f"citerec.formats.bibliography.reading.{module}")
            yield from getattr(reader, name)(path, on_bad)
        elif format in ("ris", "nbib", "enw", "endnote", "word", "wos", "table"):
            from citerec.formats.bibliography.reading.exports import read_export

            yield from read_export(format, path, on_bad)
        elif format == "list":
            yield from parse_records(path, stream_json(path, list, on_bytes), _parse_listed, on_bad)
        elif format == "object":
            yield from parse_records(path, stream_json(path, dict, on_bytes), _parse_own, on_bad)
        elif format == "document":
            yield from _read_document(path, on_bad)
        else:
            for where, record in read_objects(path, on_bytes, on_bad):
                yield from usable_paper(partial(parse_line, Fields(record, where)), where, on_bad)


_EXPORTS = {
    "bibtex": "bibtex:read_bibtex",
    "better bibtex": "zotero:read_better_bibtex",
    "yaml": "csl:read_yaml",
}
"""Module and function that reads a format: imported when a file has it."""


def _read_document(path: Path, on_bad: OnBadRecord) -> Iterator[LibraryPaper]:
    """Yield the papers of an object that has a list of records, or is one."""
    content = parse_object(read_limited(path, MAX_FILE_BYTES).removeprefix(BYTE_ORDER_MARK), str(path))
    if (items := listed(content)) is content:
        fields = Fields(content, str(path))
        yield from usable_paper(partial(parse_line, fields), fields.where, on_bad)
    else:
        yield from parse_records(path, enumerate(items), _parse_listed, on_bad)


def _parse_own(fields: Fields, id: str) -> LibraryPaper:
    """Parse an entry of papers.json, or an item of CSL JSON by id."""
    if is_csl(fields.record):
        return parse_csl(Fields({"id": id} | fields.record, fields.where))
    return parse_own(fields, id)


_ARXIV_FIELDS = {"authors_parsed", "submitter"}
_OPENALEX_FIELDS = {"abstract_inverted_index", "display_name"}
_S2_FIELDS = {
    *("corpusid", "citingcorpusid", "paperAbstract", "outCitations", "out_citations"),
    *("outbound_citations", "mag_field_of_study"),
}
_OWN_FIELDS = {"authors", "year", "venue", "doi", "paper_id"}
_NOT_CSL = _ARXIV_FIELDS | _OPENALEX_FIELDS | _S2_FIELDS | _OWN_FIELDS


def _parse_listed(fields: Fields, _: str) -> LibraryPaper | None:
    """Parse a record of a list, an item of CSL JSON unless it has fields of another format."""
    return parse_csl(fields) if _NOT_CSL.isdisjoint(fields.record) else parse_line(fields)


def parse_line(fields: Fields) -> LibraryPaper | None:
    """Parse a JSON line in the format that its keys indicate; None if it is not a paper."""
    keys = fields.record.keys()
    if not _ARXIV_FIELDS.isdisjoint(keys):
        return parse_arxiv(fields)
    if not _OPENALEX_FIELDS.isdisjoint(keys):
        return parse_openalex(fields)
    if not _S2_FIELDS.isdisjoint(keys):
        return _parse_s2(fields)
    if is_csl(fields.record):
        return parse_csl(fields)
    return _parse_own(fields, "")


def _parse_s2(fields: Fields) -> LibraryPaper | None:
    """Parse a line of Semantic Scholar, Citeomatic or S2ORC metadata (datasets.citations.graph)."""
    from citerec.datasets.citations.graph import PaperLine, read_record

    line = read_record(fields.record, fields.where)
    tags = line.fields if isinstance(line, PaperLine) else line.field
    external = (
        fields.child("externalids").record or fields.child("openaccessinfo").child("externalids").record
    )
    identifiers = {kind.lower(): value for kind, value in external.items() if isinstance(value, str)}
    return make_paper(
        f"s2:{line.id}",
        title=line.title,
        abstract=line.abstract,
        authors=[author.text("name") for author in fields.children("authors")],
        year=line.year,
        venue="" if fields.child("venue").record else fields.text("venue", "journalName"),
        doi=identifiers.get("doi", "") or fields.text("doi"),
        arxiv=identifiers.get("arxiv", "") or fields.text("arxiv_id"),
        url=fields.text("url", "s2Url"),
        tags=[tags] if isinstance(tags, str) else tags,
    )
