"""The BEIR layout, a common format of test collections (Thakur et al. 2021).

corpus.jsonl      {"_id": paper_id, "title": str, "text": abstract, "metadata": {"year": int, FIELD: [str]}}
queries.jsonl     {"_id": context_id, "text": context, "metadata": {"citing_id": paper_id}}
qrels/SPLIT.tsv   query-id, corpus-id and score, with a header; the split val is called dev

`data=custom data.dir=BEIR_DIR` reads any folder in this layout, plain or gzipped. A query without a citing
paper gets an implicit one, which is not a candidate and has the title, abstract and year of the query's
metadata, if any. TARGETCIT is prepended to texts that lack it. A document with the query's id is left out of
its ranking, as BEIR does. A document without words is no candidate. Qrels may lack the header.
"""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec

from citerec.base.errors import InputError
from citerec.base.files import existing_file, open_bytes
from citerec.base.progress import read_progress
from citerec.datasets.files.source_files import Fields, Record, parse_names
from citerec.datasets.records import (
    TARGET_MARKER,
    ContextRecord,
    PaperRecord,
    QueryRecord,
    Source,
    check_split_names,
    default_citing_id,
    record_name,
)
from citerec.formats.json_lines import CitedId, PaperId, Year, read_objects, validate

log = logging.getLogger(__name__)

PAPERS, QUERIES, QRELS = "corpus.jsonl", "queries.jsonl", "qrels"
HEADER = ("query-id", "corpus-id", "score")
_SCORE = re.compile(r"\s*-?\d{1,18}\s*")
"""Scores of more digits are mistakes, and Python refuses to read very long ones."""
_TERMS = {
    **{"paper": "document", "papers": PAPERS, "context": "query", "contexts": QUERIES},
    **{"positive_ids": HEADER[1], "context_id": HEADER[0], "masked_text": "text"},
}


def beir_split(split: str) -> str:
    """The name of a split in BEIR."""
    return "dev" if split == "val" else split


def beir_source(name: str, papers: Path, splits: object, field: str | None) -> Source:
    """Open the folder of a papers file, PAPERS or PAPERS.gz, as a source.

    Its identity lacks the hashes of its files. Raises InputError if there are no queries or none of the
    splits.
    """
    check_split_names(splits)
    folder, names = papers.parent, list(dict.fromkeys(cast(list[str], splits)))
    queries, qrels = existing_file(folder / QUERIES), dict[str, Path]()
    for split in names:
        paths = (existing_file(folder / QRELS / f"{name}.tsv") for name in (beir_split(split), split))
        if path := next(filter(None, paths), None):
            qrels[split] = path
    if queries is None:
        raise InputError(f"{folder}: no {QUERIES} or {QUERIES}.gz next to {PAPERS}")
    if not qrels:
        wanted = ", ".join(f"{beir_split(split)}.tsv" for split in names)
        raise InputError(f"{folder / QRELS}: none of {wanted} (or .gz); set data.splits=[NAME,...]")
    return Source(
        name,
        {"layout": "beir"},
        papers=partial(_read_papers, papers, queries, field),
        contexts=partial(_read_lines, queries, "queries", partial(_parse_context, queries)),
        splits={split: partial(_read_qrels, path) for split, path in qrels.items()},
        files={"papers": papers, "contexts": queries}
        | {f"split {split}": path for split, path in qrels.items()},
        field=field,
        terms=_TERMS,
    )


def _read_papers(path: Path, queries: Path, field: str | None) -> Iterator[PaperRecord]:
    yield from _read_lines(path, "papers", partial(_parse_paper, path, field))
    yield from _read_lines(queries, "citing papers", partial(_parse_citing_paper, queries))


def _read_lines(path: Path, what: str, parse: Callable[[str, Fields], Record | None]) -> Iterator[Record]:
    with read_progress(path, what) as on_bytes:
        for number, (_, record) in enumerate(read_objects(path, on_bytes)):
            key = validate(record, _Identified, record_name(path, number)).id
            if (parsed := parse(key, record)) is not None:
                yield parsed


class _Identified(msgspec.Struct, rename={"id": "_id"}):
    id: PaperId


class _PaperMetadata(msgspec.Struct):
    year: Year = Year(0)


class _Document(msgspec.Struct):
    title: str | None = None
    text: str | None = None
    metadata: _PaperMetadata | None = None


class _QueryMetadata(_PaperMetadata):
    citing_id: CitedId = CitedId()
    title: str | None = None
    abstract: str | None = None


class _Query(msgspec.Struct):
    text: str
    metadata: _QueryMetadata | None = None


def _parse_paper(path: Path, field: str | None, key: str, record: Fields) -> PaperRecord:
    paper = validate(record, _Document, record_name(path, key))
    fields = parse_names(path, key, record.get("metadata") or {}, field) if field else ()
    year = paper.metadata.year if paper.metadata else 0
    texts = paper.title or "", paper.text or ""
    return PaperRecord(key, *texts, year, fields, candidate=any(map(str.strip, texts)))


def _parse_citing_paper(path: Path, key: str, record: Fields) -> PaperRecord | None:
    """The implicit citing paper of a query; None if the query names a paper of the corpus."""
    metadata = validate(record, _Query, record_name(path, key)).metadata or _QueryMetadata()
    if metadata.citing_id:
        return None
    id = default_citing_id(key)
    return PaperRecord(id, metadata.title or "", metadata.abstract or "", metadata.year, candidate=False)


def _parse_context(path: Path, key: str, record: Fields) -> ContextRecord:
    query = validate(record, _Query, record_name(path, key))
    citing = query.metadata.citing_id if query.metadata else ""
    text = query.text if TARGET_MARKER in query.text else f"{TARGET_MARKER} {query.text}"
    return ContextRecord(key, text, citing or default_citing_id(key))


def _read_qrels(path: Path) -> Iterator[QueryRecord]:
    """Yield the queries of a split in order of first occurrence, with the papers scored above 0."""
    qrels: dict[str, list[str]] = {}
    judged, has_grades = set[str](), False
    with open_bytes(path) as (file, _):
        try:
            for number, line in enumerate(io.TextIOWrapper(cast(Any, file), "utf-8-sig"), start=1):
                cells = line.rstrip("\r\n").split("\t")
                if (number == 1 and tuple(cells) == HEADER) or cells == [""]:
                    continue
                if len(cells) != len(HEADER) or not _SCORE.fullmatch(cells[2]):
                    raise InputError(
                        f"{path}, line {number}: must be query-id, corpus-id and a whole number as score, "
                        "separated by tabs"
                    )
                judged.add(cells[0])
                has_grades |= int(cells[2]) > 1
                if int(cells[2]) > 0:
                    qrels.setdefault(cells[0], []).append(cells[1])
        except UnicodeDecodeError:
            raise InputError(f"{path}: is not UTF-8") from None
    if without := len(judged) - len(qrels):
        log.warning(f"{path}: {without:,} of {len(judged):,} queries have no relevant paper and are left out")
    if has_grades:
        log.warning(f"{path}: has grades; papers scored above 0 are all equally relevant here")
    for query, papers in qrels.items():
        yield QueryRecord(query, papers)
