"""Readers for sources of papers, one paper at a time: files, and Zotero (zotero).

    .bib                    BibTeX and BibLaTeX
    .ris, .nbib, .enw, .xml RIS, PubMed, EndNote
    .ciw, .txt              Web of Science, tagged or with tabs
    .csv                    tables of Zotero, Scopus, PubMed and others
    .json                   CSL JSON: a list, also in an object, or one item; Better BibTeX's JSON;
                            papers.json, an object of papers by id
    .yaml, .yml             CSL YAML and hayagriva's
    JSON lines              arXiv's metadata snapshot, OpenAlex works, Semantic Scholar's dumps and S2ORC's
                            metadata, and our own

All may be gzipped. Files with other names are recognised by their first bytes. Invalid records are reported
to `on_bad` with their position, and reading continues.

Papers keep their id from papers.json and our own lines. Others get arxiv:ID (arXiv's snapshot), s2:ID
(Semantic Scholar's files), or else the first available of doi:DOI, arxiv:ID, openalex:ID, key:KEY and
title:HASH.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from glob import glob
from pathlib import Path

from citerec.base.errors import InputError
from citerec.base.files import (
    BYTE_ORDER_MARK,
    expand_user,
    files_below,
    is_url,
    read_limited,
    real_path,
)
from citerec.base.progress import read_progress
from citerec.datasets.citations.graph import PaperLine, read_record
from citerec.datasets.files.source_files import stream_json
from citerec.formats.bibliography.paper import LibraryPaper, make_paper, usable_paper
from citerec.formats.bibliography.reading.bibtex import read_bibtex
from citerec.formats.bibliography.reading.csl import LISTS, is_csl, parse_csl, read_yaml
from citerec.formats.bibliography.reading.dumps import parse_arxiv, parse_openalex
from citerec.formats.bibliography.reading.exports import (
    read_endnote_xml,
    read_enw,
    read_nbib,
    read_ris,
    read_table,
    read_wos,
)
from citerec.formats.bibliography.reading.fields import Fields, parse_records
from citerec.formats.bibliography.reading.own import OwnRecord
from citerec.formats.bibliography.reading.recognise import FORMATS, recognise
from citerec.formats.bibliography.reading.zotero import read_better_bibtex
from citerec.formats.documents import Metadata
from citerec.formats.drafts.inputs import MAX_FILE_BYTES
from citerec.formats.json_lines import OnBadRecord, parse_object, read_objects
from citerec.library import MANIFEST
from citerec.library.sources.zotero import read_zotero
from citerec.library.sources.zotero_places import check_place, is_place, is_zotero

FOLDER_SUFFIXES = (".bib", ".ris", ".nbib", ".enw", ".ciw", ".json", ".jsonl", ".ndjson")
"""Suffixes of the files to read when a source is a folder, also with .gz."""

_GLOB = re.compile(r"[*?\[]")


def find_sources(names: Sequence[str], option: str = "source") -> list[str]:
    """Return the absolute paths of the named files, each once. A folder means its papers.json, or else all
    files of papers in it.

    Names may be patterns, such as *.bib, and places in Zotero, which stay as they are. option: which names
    them, for errors.
    Raises InputError for a name without files.
    """
    sources: dict[str, None] = {}
    for name in names:
        path, files = expand_user(name), list[Path]()
        if is_place(name):
            check_place(name)
            sources[name] = None
            continue
        if path.is_dir():
            own = [path / file for file in ("papers.json", "papers.json.gz") if (path / file).is_file()]
            inside = _outside_libraries(files_below(path))
            files = own[:1] or [file for file in inside if _is_file_of_papers(file.name)]
            if not files:
                raise InputError(f"{option}={name}: has no files of papers ({FORMATS}, also .gz)")
        elif path.is_file():
            files = [path]
        elif _GLOB.search(name):
            files = _outside_libraries([*map(Path, sorted(glob(str(path), recursive=True)))])
        if not files:
            raise InputError(f"{option}={name}: no such file")
        sources.update(dict.fromkeys(str(real_path(file)) for file in files))
    return list(sources)


def _is_file_of_papers(name: str) -> bool:
    """True if a file's name, also with .gz, has one of FOLDER_SUFFIXES."""
    return name.removesuffix(".gz").endswith(FOLDER_SUFFIXES)


def _outside_libraries(paths: Sequence[Path]) -> list[Path]:
    """Return the files that are not parts of a library, which may be in a folder of sources."""
    libraries = {path.parent for path in paths if path.name == MANIFEST}
    return [path for path in paths if path.is_file() and libraries.isdisjoint(path.parents)]


def absolute_names(names: Sequence[str]) -> list[str]:
    """Return names of sources as they can be found from any folder."""

    def absolute(name: str) -> str:
        path = expand_user(name)
        return (
            name
            if is_place(name) or is_url(name)
            else str(real_path(path) if path.exists() else Path.cwd() / path)
        )

    return list(dict.fromkeys(map(absolute, names)))


def read_source(source: str | Path, on_bad: OnBadRecord) -> Iterator[LibraryPaper]:
    """Yield the papers of a source, in order. Raises InputError for an empty file or an unknown format."""
    if is_zotero(str(source)):
        yield from read_zotero(str(source), on_bad)
        return
    path = Path(source)
    format = recognise(path)
    with read_progress(path, path.name) as on_bytes:
        if format in _EXPORTS:
            yield from _EXPORTS[format](path, on_bad)
        elif format == "list":
            yield from parse_records(path, stream_json(path, list, on_bytes), parse_csl, on_bad)
        elif format == "object":
            yield from parse_records(path, stream_json(path, dict, on_bytes), _parse_own, on_bad)
        elif format == "document":
            yield from _read_document(path, on_bad)
        else:
            for where, record in read_objects(path, on_bytes, on_bad):
                yield from usable_paper(partial(parse_line, Fields(record, where)), where, on_bad)


_EXPORTS = {
    "bibtex": read_bibtex,
    "ris": read_ris,
    "nbib": read_nbib,
    "enw": read_enw,
    "endnote": read_endnote_xml,
    "wos": read_wos,
    "table": read_table,
    "better bibtex": read_better_bibtex,
    "yaml": read_yaml,
}


def _read_document(path: Path, on_bad: OnBadRecord) -> Iterator[LibraryPaper]:
    """Yield the papers of an object that has a list of CSL items, or is one record."""
    content = parse_object(read_limited(path, MAX_FILE_BYTES).removeprefix(BYTE_ORDER_MARK), str(path))
    listed = next((content[name] for name in LISTS if isinstance(content.get(name), list)), None)
    if listed is None:
        fields = Fields(content, str(path))
        yield from usable_paper(partial(parse_line, fields), fields.where, on_bad)
    else:
        yield from parse_records(path, enumerate(listed), parse_csl, on_bad)


def _parse_own(fields: Fields, id: str) -> LibraryPaper:
    """Parse an entry of papers.json, or an item of CSL JSON by id."""
    if is_csl(fields.record):
        return parse_csl(Fields({"id": id} | fields.record, fields.where))
    return OwnRecord.read(fields.record, fields.where).paper(fields.where, id)


_ARXIV_FIELDS = {"authors_parsed", "submitter"}
_OPENALEX_FIELDS = {"abstract_inverted_index", "display_name"}
_S2_FIELDS = {
    *("corpusid", "citingcorpusid", "paperAbstract", "outCitations", "out_citations"),
    *("outbound_citations", "mag_field_of_study"),
}


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
    line = read_record(fields.record, fields.where)
    if not isinstance(line, PaperLine | Metadata):
        raise InputError(f"{fields.where}: is a citation, not a paper; give the files of papers")
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
