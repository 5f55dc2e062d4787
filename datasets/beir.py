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

from datasets.errors import InputError
from datasets.files import open_bytes
from datasets.json_lines import read_objects
from datasets.progress import reading
from datasets.records import (
    TARGET_MARKER,
    BadRecord,
    ContextRecord,
    PaperRecord,
    QueryRecord,
    Source,
    check_split_names,
    kind_of,
)
from datasets.source_files import Fields, OnBytes, Record, names_of, string_of, text_of, year_of

PAPERS, QUERIES, QRELS = "corpus.jsonl", "queries.jsonl", "qrels"
HEAD = ("query-id", "corpus-id", "score")
NAMES = {"val": "dev"}
"""Splits that BEIR calls otherwise."""


def writing_id(query: str) -> str:
    """The id of the paper that cites in a query, where the query names none."""
    return f"query/{query}"


def is_beir(folder: Path) -> bool:
    """Whether the folder has a corpus in BEIR's layout."""
    return _find(folder, PAPERS) is not None


def find_files(folder: Path, splits: object) -> dict[str, Path]:
    """The files by part: `papers`, `contexts`, and `split NAME` of those splits that are there.

    InputError if there are no queries, or none of the splits.
    """
    check_split_names(splits)
    names = list(dict.fromkeys(cast(list[str], splits)))
    found = {"papers": _find(folder, PAPERS), "contexts": _find(folder, QUERIES)}
    for split in names:
        either = (_find(folder / QRELS, f"{name}.tsv") for name in (NAMES.get(split, split), split))
        found[f"split {split}"] = next(filter(None, either), None)
    files = {part: path for part, path in found.items() if path}
    if "contexts" not in files:
        raise InputError(f"{folder}: no {QUERIES} or {QUERIES}.gz beside {PAPERS}")
    if len(files) == 2:
        wanted = ", ".join(f"{NAMES.get(split, split)}.tsv" for split in names)
        raise InputError(f"{folder / QRELS}: none of {wanted} (or .gz); data.splits=[NAME,...] names others")
    return files


def _find(folder: Path, name: str) -> Path | None:
    return next((path for end in ("", ".gz") if (path := folder / f"{name}{end}").is_file()), None)


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
    with reading(path, what) as on_bytes:
        for number, (_, record) in enumerate(read_objects(path, on_bytes)):
            try:
                found = parse(_id(path, number, record), record)
            except BadRecord as bad:
                yield bad
            else:
                if found is not None:
                    yield found


def _id(path: Path, number: int, record: Fields) -> str:
    found = record.get("_id")
    if isinstance(found, int) and not isinstance(found, bool):
        return str(found)
    return string_of(path, number, record, "_id")


def _metadata(path: Path, key: str, record: Fields) -> Fields:
    found = record.get("metadata")
    if found is not None and not isinstance(found, dict):
        raise BadRecord("wrong type", path, key, f"must be an object, not {kind_of(found)}", "metadata")
    return found or {}


def _paper(path: Path, field: str | None, key: str, record: Fields) -> PaperRecord:
    more = _metadata(path, key, record)
    fields = names_of(path, key, more, field) if field else ()
    title, text = (text_of(path, key, record, name) for name in ("title", "text"))
    return PaperRecord(key, title, text, year_of(path, key, more), fields)


def _writing(path: Path, key: str, record: Fields) -> PaperRecord | None:
    """The paper that a query is cited from; None where it is one of the corpus."""
    more = _metadata(path, key, record)
    if more.get("citing_id") is not None:
        return None
    title, abstract = (text_of(path, key, more, name) for name in ("title", "abstract"))
    return PaperRecord(writing_id(key), title, abstract, year_of(path, key, more), candidate=False)


def _context(path: Path, key: str, record: Fields) -> ContextRecord:
    text, more = string_of(path, key, record, "text"), _metadata(path, key, record)
    given = more.get("citing_id") is not None
    citing = string_of(path, key, more, "citing_id") if given else writing_id(key)
    return ContextRecord(key, text if TARGET_MARKER in text else f"{TARGET_MARKER} {text}", citing)


def _judgements(path: Path) -> Iterator[QueryRecord]:
    """The queries of a split in the order in which they first occur, with the papers judged above 0."""
    found: dict[str, list[str]] = {}
    with open_bytes(path) as (file, _):
        try:
            for number, line in enumerate(io.TextIOWrapper(cast(Any, file), "utf-8-sig"), start=1):
                cells = line.rstrip("\r\n").split("\t")
                if number == 1 and tuple(cells) != HEAD:
                    raise InputError(f"{path}, line 1: must be the head {' '.join(HEAD)}, between tabs")
                if number == 1 or cells == [""]:
                    continue
                if len(cells) != len(HEAD) or not cells[2].strip().removeprefix("-").isdecimal():
                    raise InputError(
                        f"{path}, line {number}: must be a query, a paper and a whole number, between tabs"
                    )
                if int(cells[2]) > 0:
                    found.setdefault(cells[0], []).append(cells[1])
        except UnicodeDecodeError:
            raise InputError(f"{path}: is not in UTF-8") from None
    for query, papers in found.items():
        yield QueryRecord(query, papers)
