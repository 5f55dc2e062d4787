"""BEIR's layout, in which other tools read and publish test collections (Thakur et al. 2021).

    python -m datasets.export data=custom data.dir=DIR output=BEIR_DIR

corpus.jsonl      {"_id": paper_id, "title": str, "text": abstract, "metadata": {"year": int, FIELD: [str]}}
queries.jsonl     {"_id": context_id, "text": context, "metadata": {"citing_id": paper_id}}
qrels/SPLIT.tsv   query-id, corpus-id and score, under a head of these names; the split val is called dev

`data=custom data.dir=BEIR_DIR` reads such a folder, of ours or of others, plain or gzipped. What we have
written comes back as it was. A query that names no citing paper gets one of its own, no candidate, with the
title, abstract and year of the query's metadata, if any. A text without TARGETCIT starts with it.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec

from datasets.errors import InputError
from datasets.files import open_bytes, plain_or_gzipped
from datasets.json_lines import Year, read_objects
from datasets.progress import OnBytes, read_progress
from datasets.records import (
    TARGET_MARKER,
    BadRecord,
    ContextRecord,
    PaperRecord,
    QueryRecord,
    Source,
    check_split_names,
)
from datasets.source_files import Fields, Record, names_of, record_as

PAPERS, QUERIES, QRELS = "corpus.jsonl", "queries.jsonl", "qrels"
HEAD = ("query-id", "corpus-id", "score")
NAMES = {"val": "dev"}
"""Splits that BEIR calls otherwise."""


def writing_id(query: str) -> str:
    """The id of the paper that cites in a query, where the query names none."""
    return f"query/{query}"


def is_beir(folder: Path) -> bool:
    """Whether the folder has a corpus in BEIR's layout."""
    return plain_or_gzipped(folder / PAPERS) is not None


def find_files(folder: Path, splits: object) -> dict[str, Path]:
    """The files by part: `papers`, `contexts`, and `split NAME` of those splits that are there.

    InputError if there are no queries, or none of the splits.
    """
    check_split_names(splits)
    names = list(dict.fromkeys(cast(list[str], splits)))
    found = {"papers": plain_or_gzipped(folder / PAPERS), "contexts": plain_or_gzipped(folder / QUERIES)}
    for split in names:
        either = (
            plain_or_gzipped(folder / QRELS / f"{name}.tsv") for name in (NAMES.get(split, split), split)
        )
        found[f"split {split}"] = next(filter(None, either), None)
    files = {part: path for part, path in found.items() if path}
    if "contexts" not in files:
        raise InputError(f"{folder}: no {QUERIES} or {QUERIES}.gz beside {PAPERS}")
    if len(files) == 2:
        wanted = ", ".join(f"{NAMES.get(split, split)}.tsv" for split in names)
        raise InputError(f"{folder / QRELS}: none of {wanted} (or .gz); data.splits=[NAME,...] names others")
    return files


def beir_source(name: str, files: dict[str, Path], field: str | None, identity: dict[str, str]) -> Source:
    """The files of `find_files` as a source; identity: the content hash of each part."""
    splits = {part.removeprefix("split "): path for part, path in files.items() if part.startswith("split ")}
    return Source(
        name,
        {"layout": "beir", **identity},
        papers=partial(_papers, files["papers"], files["contexts"], field),
        contexts=partial(_read, files["contexts"], "queries", partial(_context, files["contexts"])),
        splits={split: partial(_judgements, path) for split, path in splits.items()},
        files=files,
        field=field,
    )


def metadata_of(path: Path, on_bytes: OnBytes | None = None) -> Iterator[tuple[str, Fields]]:
    """Id and metadata of the papers of a corpus.jsonl."""
    for _, record in read_objects(path, on_bytes):
        if isinstance(found := record.get("metadata"), dict):
            yield str(record.get("_id")), found


def _papers(path: Path, queries: Path, field: str | None) -> Iterator[PaperRecord | BadRecord]:
    yield from _read(path, "papers", partial(_paper, path, field))
    for paper in _read(queries, "citing papers", partial(_writing, queries)):
        if isinstance(paper, PaperRecord):  # a bad query is reported when it is read as such
            yield paper


def _read(
    path: Path, what: str, parse: Callable[[str, Fields], Record | None]
) -> Iterator[Record | BadRecord]:
    with read_progress(path, what) as on_bytes:
        for number, (_, record) in enumerate(read_objects(path, on_bytes)):
            try:
                found = parse(_id(path, number, record), record)
            except BadRecord as bad:
                yield bad
            else:
                if found is not None:
                    yield found


class _Named(msgspec.Struct, rename={"id": "_id"}):
    id: str


class _Dated(msgspec.Struct):
    year: Year = Year(0)


class _Document(msgspec.Struct):
    title: str | None = None
    text: str | None = None
    metadata: _Dated | None = None


class _Writing(_Dated):
    citing_id: str | None = None
    title: str | None = None
    abstract: str | None = None


class _Query(msgspec.Struct):
    text: str
    metadata: _Writing | None = None


def _id(path: Path, number: int, record: Fields) -> str:
    found = record.get("_id")
    whole = isinstance(found, int) and not isinstance(found, bool)
    return str(found) if whole else record_as(_Named, record, path, number).id


def _paper(path: Path, field: str | None, key: str, record: Fields) -> PaperRecord:
    paper = record_as(_Document, record, path, key)
    fields = names_of(path, key, record.get("metadata") or {}, field) if field else ()
    year = paper.metadata.year if paper.metadata else 0
    return PaperRecord(key, paper.title or "", paper.text or "", year, fields)


def _writing(path: Path, key: str, record: Fields) -> PaperRecord | None:
    """The paper that a query is cited from; None where it is one of the corpus."""
    more = record_as(_Query, record, path, key).metadata or _Writing()
    if more.citing_id is not None:
        return None
    return PaperRecord(writing_id(key), more.title or "", more.abstract or "", more.year, candidate=False)


def _context(path: Path, key: str, record: Fields) -> ContextRecord:
    query = record_as(_Query, record, path, key)
    citing = query.metadata.citing_id if query.metadata else None
    text = query.text if TARGET_MARKER in query.text else f"{TARGET_MARKER} {query.text}"
    return ContextRecord(key, text, writing_id(key) if citing is None else citing)


def _judgements(path: Path) -> Iterator[QueryRecord]:
    """The queries of a split in the order in which they first occur, with the papers judged above 0."""
    found: dict[str, list[str]] = {}
    with open_bytes(path) as (file, _):
        try:
            for number, line in enumerate(io.TextIOWrapper(cast(Any, file), "utf-8-sig"), start=1):
                cells = line.rstrip("\r\n").split("\t")
                if number == 1 and tuple(cells) != HEAD:
                    raise InputError(f"{path}, line 1: must be the header {' '.join(HEAD)}, with tabs")
                if number == 1 or cells == [""]:
                    continue
                if len(cells) != len(HEAD) or not cells[2].strip().removeprefix("-").isdecimal():
                    raise InputError(
                        f"{path}, line {number}: must be a query, a paper and a whole number, with tabs"
                    )
                if int(cells[2]) > 0:
                    found.setdefault(cells[0], []).append(cells[1])
        except UnicodeDecodeError:
            raise InputError(f"{path}: is not in UTF-8") from None
    for query, papers in found.items():
        yield QueryRecord(query, papers)
