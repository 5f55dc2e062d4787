"""The files of a collection: found by name, folder or pattern, and read by kind.

The project's own layout of full texts; schema.py describes it.
JSON lines, plain or gzipped, one record at a time; the layout is told from the record's keys.
"""

from __future__ import annotations

import glob
import io
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, cast

import orjson

from datasets.bad_records import refuse
from datasets.errors import InputError
from datasets.files import BYTE_ORDER_MARK, open_bytes
from datasets.fulltext.latex import read_latex
from datasets.fulltext.latex_source import is_paper
from datasets.fulltext.records import (
    Cite,
    FullText,
    Object,
    Paper,
    Paragraph,
    Record,
    Reference,
    identity,
    mapping,
    named,
    objects,
    optional_identity,
    refuse_of_values,
    string,
    strings,
    whole,
)
from datasets.fulltext.s2orc import read_s2orc, read_s2orc_2020
from datasets.fulltext.tei import read_tei
from datasets.json_stream import OnBytes, kind_of
from datasets.records import year_of


def read_own(record: Object, where: str) -> Record:
    """A record of our own layout. Raises InputError that names the field."""
    field = record.get("field")
    paper = Paper(
        id=identity(record, "id", where),
        title=string(record, "title", where),
        abstract=string(record, "abstract", where),
        year=year_of(record.get("year"), where),
        authors=strings(record, "authors", where),
        field=strings(record, "field", where) if isinstance(field, list) else string(record, "field", where),
        identifiers=frozenset(
            kind.lower() for kind, value in mapping(record, "identifiers", where).items() if value
        ),
    )
    return Record(where, paper, None if record.get("body") is None else partial(_full_text, record, where))


def _full_text(record: Object, where: str) -> FullText:
    paragraphs = []
    for paragraph, place in objects(record, "body", where):
        text = string(paragraph, "text", place)
        cites = [
            Cite(whole(cite, "start", at), whole(cite, "end", at), string(cite, "ref", at) or None)
            for cite, at in objects(paragraph, "cites", place)
        ]
        paragraphs.append(Paragraph(text, cites, string(paragraph, "section", place)))
    references = {}
    for ref, entry in mapping(record, "bibliography", where).items():
        if not isinstance(entry, dict):
            raise refuse_of_values(where, named("bibliography", ref), "an object", entry)
        place = f"{where}, {named('bibliography', ref)}"
        references[ref] = Reference(
            paper=optional_identity(entry, "paper", place),
            title=string(entry, "title", place),
            authors=strings(entry, "authors", place),
            year=year_of(entry.get("year"), place),
            text=string(entry, "text", place),
        )
    return FullText(paragraphs, references)


LONGEST = 1 << 25
"""Bytes of a line that are read at most."""


OnRefused = Callable[[InputError], None]
"""Is told of a record that cannot be used; when it returns, reading goes on with the next one."""


def read_json_lines(path: Path, on_bytes: OnBytes, on_bad: OnRefused = refuse) -> Iterator[Record]:
    """Records in the order of the file; empty lines are passed over.

    on_bad: is told, with file and line, of what is no JSON object of a known layout.
    """
    for where, found in read_objects(path, on_bytes, on_bad):
        try:
            record = _read(found, where)
        except InputError as error:
            on_bad(error)
        else:
            yield record


def read_objects(
    path: Path, on_bytes: OnBytes | None = None, on_bad: OnRefused = refuse
) -> Iterator[tuple[str, Object]]:
    """The objects of a file of JSON lines, plain or gzipped, each with its place; no empty lines.

    on_bad: is told, with file and line, of what is no JSON object. Raises InputError for a line without end.
    """
    with open_bytes(path) as (file, raw):
        lines = io.BufferedReader(cast(io.RawIOBase, file), 1 << 20)
        number = 0
        while line := lines.readline(LONGEST):
            number += 1
            where = f"{path}, line {number}"
            if len(line) == LONGEST:
                raise InputError(f"{where}: is longer than {LONGEST >> 20} MB; a record is one line")
            if number == 1:
                line = line.removeprefix(BYTE_ORDER_MARK)
            if line.strip():
                try:
                    found = _object(line, where)
                except InputError as error:
                    on_bad(error)
                else:
                    yield where, found
            if on_bytes is not None:
                on_bytes(raw.tell())


def _object(line: bytes, where: str) -> Object:
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise InputError(f"{where}: malformed JSON: {error}") from None
    if not isinstance(record, dict):
        raise InputError(f"{where}: must be an object, not {kind_of(record)}; a record is one line")
    return record


def _read(record: Object, where: str) -> Record:
    if "corpusid" in record:
        return read_s2orc(record, where)
    if "paper_id" in record:
        return read_s2orc_2020(record, where)
    if "id" in record:
        return read_own(record, where)
    raise InputError(f"{where}: has neither 'id' (our layout) nor 'corpusid' or 'paper_id' (S2ORC)")


IN_FOLDERS = (".jsonl", ".jsonl.gz", ".xml", ".xml.gz", ".tex")
"""How the names of files end that are read of a folder."""


class SourceFile(NamedTuple):
    """A file, and the id of the paper in it where the file does not tell (LaTeX, TEI)."""

    path: Path
    id: str


def find_files(source: str | Sequence[str]) -> list[SourceFile]:
    """The files that `source` names, each once: files, folders and patterns in that order, each sorted.

    Of a folder, and the folders in it, files are taken by their suffix (IN_FOLDERS); LaTeX files that are no
    documents are parts of others. Raises InputError for names without files.
    """
    names = [source] if isinstance(source, str) else list(source)
    found: dict[Path, None] = {}
    for name in names:
        if not isinstance(name, str) or not name:
            raise InputError(f"source: {name!r} is no name of a file or folder")
        path = Path(name).expanduser()
        if path.is_dir():
            files = [file for file in sorted(path.rglob("*")) if file.name.endswith(IN_FOLDERS)]
        elif path.exists():
            files = [path]
        else:
            files = sorted(Path(file) for file in glob.glob(str(path), recursive=True))
        files = [file for file in files if file.is_file() and (file.suffix != ".tex" or is_paper(file))]
        if not files:
            raise InputError(f"source: {name}: no such file, or a folder without {', '.join(IN_FOLDERS)}")
        found.update(dict.fromkeys(files))
    papers_in: dict[Path, int] = {}
    for file in found:
        papers_in[file.parent] = papers_in.get(file.parent, 0) + (file.suffix == ".tex")
    tops = {Path(name).expanduser() for name in names}
    alone = {file for file in found if papers_in[file.parent] == 1 and tops.isdisjoint((file, file.parent))}
    return [SourceFile(file, _id(file, file in alone)) for file in found]


def read(file: SourceFile, on_bytes: OnBytes, on_bad: OnRefused = refuse) -> Iterator[Record]:
    """The records of a file in its order. on_bad: is told of those that cannot be used, file and place."""
    document = read_latex if file.path.suffix == ".tex" else read_tei if _is_xml(file.path) else None
    if document is None:
        yield from read_json_lines(file.path, on_bytes, on_bad)
        return
    try:
        record = document(file.path, file.id)
    except InputError as error:
        on_bad(error)
    else:
        yield record


def _is_xml(path: Path) -> bool:
    return ".xml" in path.suffixes[-2:]


def _id(file: Path, alone: bool) -> str:
    """The file's name up to the suffix; the folder's where a LaTeX paper is alone in it, as on arXiv."""
    name = file.parent.name if file.suffix == ".tex" and alone else file.name
    for suffix in (".gz", ".xml", ".tei", ".grobid", ".tex"):
        name = name.removesuffix(suffix)
    return "_".join(name.split())
