"""From source files to the prepared store, once for each content and settings.

The store's folder is named by a hash of the inputs' content and of the settings. It is written beside its
final place and renamed when whole; a lock keeps two processes from doing the same work. While preparing,
memory holds the ids of papers and contexts and the vocabulary, but neither texts nor tokens.

Rows that lie in a SQLite file until all are read, those of one id joined.
What a process makes of some records of papers or contexts: columns, and their words as numbers.
The passes that turn source records into a store's files, and the checks between records.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import shutil
import sqlite3
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from datasets.bad_records import (
    BadRecord,
    Dropped,
    Kind,
    allowed_share,
    refuse_too_many,
    shown,
    summary,
    table,
)
from datasets.columns import CHUNK, NameWriter, TextWriter, TokenWriter, offsets_of, save_array, write_words
from datasets.corpus import MANIFEST, STORE_VERSION, Corpus, read_manifest
from datasets.errors import InputError
from datasets.files import (
    clear_abandoned,
    content_hash,
    fingerprint,
    is_url,
    local_file,
    local_folder,
    one_at_a_time,
    one_line_disk_errors,
    stamp_of,
)
from datasets.json_stream import OnBytes, Piece, as_file
from datasets.progress import reading
from datasets.records import (
    SPLITS,
    TRAIN,
    Context,
    Paper,
    Source,
    read_contexts,
    read_papers,
    read_split,
    source_file,
    split_group,
)
from datasets.tokenize import TOKENIZERS, WordTable

_BATCH = 10_000


class Spool:
    """One table, for the time of one process: nothing of it outlives an interrupt."""

    def __init__(self, path: Path, schema: str, insert: str) -> None:
        """schema: makes the table. insert: puts one row into it, or joins it with the row of its id."""
        self.path = path
        self._insert = insert
        self._batch: list[tuple[Any, ...]] = []
        self._database = sqlite3.connect(path, isolation_level=None)
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute("PRAGMA synchronous = OFF")
        self._database.execute("PRAGMA locking_mode = EXCLUSIVE")
        self._database.execute("PRAGMA cache_size = -65536")  # 64 MiB
        self._database.execute(schema)

    def add(self, row: tuple[Any, ...]) -> None:
        """Raises OSError where the disk is full."""
        self._batch.append(row)
        if len(self._batch) == _BATCH:
            self._write()

    def select(self, query: str) -> Iterator[tuple[Any, ...]]:
        """What a query gives, over all rows that were added."""
        if self._batch:
            self._write()
        return self._database.execute(query)

    def close(self) -> None:
        self._database.close()

    def _write(self) -> None:
        try:
            self._database.execute("BEGIN")
            self._database.executemany(self._insert, self._batch)
            self._database.execute("COMMIT")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_FULL:
                raise OSError(errno.ENOSPC, "No space left on device", str(self.path)) from None
            raise
        self._batch.clear()


STRINGS = pa.large_string()
TEXTS = {Paper: ("title", "abstract"), Context: ("text",)}
"""The columns that are cut into words."""


@dataclass(frozen=True)
class Work:
    """What is to be read: papers (with the key of their fields, if they have any) or contexts."""

    kind: type[Paper] | type[Context]
    tokenizer: str
    field: str | None = None

    def of(self, piece: Piece) -> pa.Table:
        """A piece's records as one row: a list for each column, and the reason if they cannot be used."""
        try:
            with as_file(piece) as path:
                reader = read_papers(path, None, self.field) if self.kind is Paper else read_contexts(path)
                records = list(reader)
            if not records and not (piece.start == 0 and piece.last):  # as between two commas
                raise InputError(f"{piece.path}: no record between bytes {piece.start} and {piece.stop}")
            columns = self._columns(records)
        except InputError as error:
            columns, reason = self._columns([]), str(error) or "unusable"
        else:
            reason = ""
        lists = {
            name: pa.LargeListArray.from_arrays([0, len(values)], values) for name, values in columns.items()
        }
        return pa.table(lists | {"stop": [piece.stop], "reason": [reason]})

    def _columns(self, records: list[Any]) -> dict[str, pa.Array]:
        types = {"year": pa.int32(), "fields": pa.list_(STRINGS)}
        columns = {
            name: pa.array((getattr(record, name) for record in records), types.get(name, STRINGS))
            for name in self.kind._fields
        }
        table = WordTable(TOKENIZERS[self.tokenizer])
        for name in TEXTS[self.kind]:
            found = [table.ids(texts) for texts in _some_at_a_time(getattr(r, name) for r in records)]
            for part in ("values", "lengths"):
                arrays = [getattr(words, part).astype(np.int32) for words in found]
                columns[f"{name} {part}"] = pa.array(np.concatenate([np.empty(0, np.int32), *arrays]))
        return columns | {"words": table.words()}


class Read:
    """The columns of a piece again. Raises InputError with the reason if it cannot be used."""

    def __init__(self, kind: type[Paper] | type[Context], row: dict[str, Any]) -> None:
        """row: the scalars of a row that `Work.of` gave."""
        self._kind, self._row = kind, row
        self.stop: int = row["stop"].as_py()
        if reason := row["reason"].as_py():
            raise InputError(reason)
        self.words: pa.LargeStringArray = row["words"].values

    def records(self) -> Iterator[Any]:
        """Papers or contexts."""
        columns = [self._row[name].values.to_pylist() for name in self._kind._fields]
        if self._kind is Paper:
            columns[-1] = map(tuple, columns[-1])
        return map(self._kind._make, zip(*columns, strict=True))

    def tokens(self, column: str) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Rows of `words` of all texts of a column, one text behind the other, and how many each has."""
        values, lengths = (self._row[f"{column} {part}"].values.to_numpy() for part in ("values", "lengths"))
        return values, lengths


def _some_at_a_time(texts: Iterable[str]) -> Iterator[list[str]]:
    some: list[str] = []
    characters = 0
    for text in texts:
        some.append(text)
        characters += len(text)
        if characters >= CHUNK:
            yield some
            some, characters = [], 0
    yield some


log = logging.getLogger(__name__)

LONG_TEXT = 50_000
"""Characters of a title and abstract from which a paper is reported as unusual."""

Reading = AbstractContextManager[OnBytes]


class StoreBuilder:
    """Call add_papers, add_contexts, add_split for each split, then finish; leaves the files in `folder`.

    tokenizer: its name. field: the key of papers that holds their fields; None: they have none.
    max_bad_share: the share of a file's records that may be bad, which are then left out; None: the first one
    is an error.
    `dropped` tells of the bad records by part of the source, as `papers` or `split train`.
    """

    def __init__(
        self,
        folder: Path,
        tokenizer: str,
        field: str | None = None,
        max_bad_share: float | None = None,
    ) -> None:
        from datasets.tokenize import WordTable

        self._folder, self._field, self._max_bad_share = folder, field, max_bad_share
        self._tokenizer = tokenizer
        self.dropped: dict[str, Dropped] = {}
        self._fields = NameWriter(folder, "fields")
        self._words = WordTable(TOKENIZERS[tokenizer])
        self._papers = TextWriter(folder / "papers.arrow", ("id", "title", "abstract"))
        self._contexts = TextWriter(folder / "contexts.arrow", ("id", "text"))
        self._titles = TokenWriter(folder, "title_tokens", self._words)
        self._abstracts = TokenWriter(folder, "abstract_tokens", self._words)
        self._context_tokens = TokenWriter(folder, "context_tokens", self._words)
        self._writers = (self._papers, self._contexts, self._titles, self._abstracts, self._context_tokens)
        self._paper_rows: dict[str, int] = {}
        self._context_rows: dict[str, int] = {}
        self._years = array("i")
        self._has_abstract = bytearray()
        self._long = 0
        self._citing = array("i")
        # Per split (in the order of adding): rows of contexts, rows of cited papers, number of cited papers.
        self._splits: dict[str, tuple[array[int], array[int], array[int]]] = {}
        self._split_of_context = array("h")  # 1 + number of the split, 0 for none
        self._split_of_paper = array("h")  # the same for the first split that a paper cites in

    def __enter__(self) -> StoreBuilder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for writer in self._writers:
            with suppress(OSError) if error is not None else nullcontext():
                writer.close()

    def add_papers(self, path: Path, reading: Reading) -> None:
        bad = self._bad("papers", path)
        with reading as on_bytes:
            self._take_papers(path, on_bytes, bad)
        bad.finish(len(self._paper_rows))
        if not self._paper_rows:
            raise InputError(f"{path}: no papers")
        if self._field and not self._fields:
            raise InputError(f"{path}: no paper has the field {self._field!r} that data.field names")
        if self._long:
            log.warning(
                "%s: %d papers of %d characters or more are cut by the models", path, self._long, LONG_TEXT
            )

    def _take_papers(self, path: Path, on_bytes: OnBytes, bad: Dropped) -> None:
        for paper in read_papers(path, on_bytes, self._field, bad):
            if self._take_paper(path, paper, bad):
                self._titles.append(paper.title)
                self._abstracts.append(paper.abstract)

    def _take_paper(self, path: Path, paper: Paper, bad: Dropped) -> bool:
        """All but its words; whether it is taken."""
        row = len(self._paper_rows)
        if self._paper_rows.setdefault(paper.id, row) != row:
            bad(BadRecord("duplicate id", path, paper.id, "a paper of this id is there already"))
            return False
        self._papers.append(paper.id, paper.title, paper.abstract)
        self._years.append(paper.year)
        self._fields.append(paper.fields)
        self._has_abstract.append(bool(paper.abstract.strip()))
        self._long += len(paper.title) + len(paper.abstract) >= LONG_TEXT
        return True

    def add_contexts(self, path: Path, reading: Reading) -> None:
        """Call after add_papers."""
        bad = self._bad("contexts", path)
        with reading as on_bytes:
            self._take_contexts(path, on_bytes, bad)
        bad.finish(len(self._context_rows))

    def _take_contexts(self, path: Path, on_bytes: OnBytes, bad: Dropped) -> None:
        for context in read_contexts(path, on_bytes, bad):
            if self._take_context(path, context, bad):
                self._context_tokens.append(context.text)

    def _take_context(self, path: Path, context: Context, bad: Dropped) -> bool:
        """All but its words; whether it is taken."""
        rows, papers = self._context_rows, self._paper_rows
        citing = papers.get(context.citing_id)
        if context.id in rows:
            bad(BadRecord("duplicate id", path, context.id, "a context of this id is there already"))
        elif citing is None:
            bad(self._no_paper(path, context.id, "citing_id", context.citing_id))
        elif context.cited_id is not None and context.cited_id not in papers:
            bad(self._no_paper(path, context.id, "refid", context.cited_id))
        else:
            rows[context.id] = len(rows)
            self._contexts.append(context.id, context.text)
            self._citing.append(citing)
            return True
        return False

    def add_split(self, name: str, path: Path) -> None:
        """Call after add_papers and add_contexts."""
        contexts, positives, lengths = array("q"), array("i"), array("i")
        self._splits[name] = contexts, positives, lengths
        names, number = list(self._splits), len(self._splits)
        of_context = self._grow(self._split_of_context, len(self._context_rows))
        of_paper = self._grow(self._split_of_paper, len(self._paper_rows))
        bad = self._bad(f"split {name}", path)
        for query in read_split(path, on_bad=bad):
            row = self._context_rows.get(query.context_id)
            unknown = next((paper for paper in query.positive_ids if paper not in self._paper_rows), None)
            if row is None:
                bad(self._no_context(path, query.record, query.context_id))
            elif unknown is not None:
                bad(self._no_paper(path, query.record, "positive_ids", unknown))
            elif earlier := of_context[row]:
                which = "this split" if earlier == number else f"split {names[earlier - 1]!r}"
                reason = f"context {shown(query.context_id)} is in {which} already"
                bad(BadRecord("in two splits", path, query.record, reason, "context_id"))
            elif split_group(other := names[(of_paper[self._citing[row]] or number) - 1]) != split_group(
                name
            ):
                reason = (
                    f"the citing paper {shown(self._ids_of_papers[self._citing[row]])} of context "
                    f"{shown(query.context_id)} is in split {other!r} too; it may cite in one split only"
                )
                bad(BadRecord("in two splits", path, query.record, reason, "context_id"))
            else:
                of_context[row] = number
                of_paper[self._citing[row]] = of_paper[self._citing[row]] or number
                positives.extend(self._paper_rows[paper] for paper in query.positive_ids)
                contexts.append(row)
                lengths.append(len(query.positive_ids))
        bad.finish(len(contexts))
        if not contexts:
            raise InputError(f"{path}: no queries")

    def finish(self, candidates: str) -> None:
        """Write what remains: final word ids, candidates, splits. InputError if no candidate is left."""
        self.close()
        is_candidate = np.frombuffer(self._has_abstract, np.bool_)
        if candidates == "all":
            is_candidate = np.ones(len(self._paper_rows), np.bool_)
        elif not is_candidate.any():
            raise InputError("no paper has an abstract, so none is a candidate; set data.candidates=all")
        seen = np.zeros(len(self._paper_rows), np.bool_)
        in_train = np.zeros(len(self._context_rows), np.bool_)
        unreachable = 0
        for name, (contexts, positives, lengths) in self._splits.items():
            cited = np.frombuffer(positives, np.int32)
            citing = np.repeat(
                self._citing_rows()[np.frombuffer(contexts, np.int64)], np.frombuffer(lengths, np.int32)
            )
            unreachable += int((~is_candidate[cited] | (cited == citing)).sum())
            if name == TRAIN:
                seen[cited] = True
                in_train[np.frombuffer(contexts, np.int64)] = True
            save_array(self._folder, f"{name}.contexts", np.frombuffer(contexts, np.int64))
            save_array(self._folder, f"{name}.positives.values", cited)
            save_array(
                self._folder, f"{name}.positives.offsets", offsets_of(np.frombuffer(lengths, np.int32))
            )
        if unreachable:
            log.warning(
                "%d citations of a paper that is no candidate, or of the citing paper itself: never found",
                unreachable,
            )
        columns: dict[str, NDArray[Any]] = {"is_candidate": is_candidate, "seen": seen}
        columns |= {
            "years": np.frombuffer(self._years, np.int32),
            "citing": self._citing_rows(),
        }
        for stem, values in columns.items():
            save_array(self._folder, stem, values)
        self._fields.finish()
        counted = [(self._titles, None), (self._abstracts, None), (self._context_tokens, in_train)]
        write_words(self._folder, self._words, counted)

    def close(self) -> None:
        """Write out what is buffered; again does nothing."""
        for writer in self._writers:
            writer.close()

    def _citing_rows(self) -> NDArray[np.int32]:
        return np.frombuffer(self._citing, np.int32)

    @cached_property
    def _ids_of_papers(self) -> list[str]:
        return list(self._paper_rows)

    def _bad(self, part: str, path: Path) -> Dropped:
        self.dropped[part] = Dropped(path, self._max_bad_share)
        return self.dropped[part]

    def _no_paper(self, path: Path, record: str | int, field: str, paper: str) -> BadRecord:
        kind: Kind = "names a dropped record" if paper in self.dropped["papers"].ids else "unknown paper"
        return BadRecord(kind, path, record, f"no paper {shown(paper)} in the papers file", field)

    def _no_context(self, path: Path, record: int, context: str) -> BadRecord:
        kind: Kind = (
            "names a dropped record" if context in self.dropped["contexts"].ids else "unknown context"
        )
        return BadRecord(
            kind, path, record, f"no context {shown(context)} in the contexts file", "context_id"
        )

    @staticmethod
    def _grow(values: array[int], length: int) -> array[int]:
        values.extend([0] * (length - len(values)))
        return values


CANDIDATES = ("abstract", "all")
BACKENDS = ("local", "ray")
UNFINISHED = ".part"
DROPPED = "dropped.jsonl"
"""In the store: examples of the records that were dropped."""


def open_corpus(
    dir: str | Path,
    papers: str | Path | None = None,
    tokenizer: str = "default",
    cache_dir: str | Path = ".cache",
    candidates: str = "abstract",
    splits: Sequence[str] = SPLITS,
    name: str | None = None,
    field: str | None = None,
    on_error: str = "raise",
    max_bad_share: float = 0.01,
    backend: str = "local",
) -> Corpus:
    """Open a folder of source files; prepare its store if there is none for this content and settings.

    dir: folder with papers.json (unless `papers` is a file elsewhere), contexts.json and splits, .gz or not;
    both may be URLs of fsspec, as s3://BUCKET/FOLDER: what is there is copied to cache_dir.
    tokenizer: `default` or `reference`. candidates: `abstract` (papers that have one) or `all`.
    splits: split files to read; those that are missing are left out as long as one is there.
    name: what to call the corpus in logs and tables; the folder's name if None.
    field: the key of papers.json that holds a paper's field, or a list of them; None: papers have none.
    on_error: `raise` an InputError for the first record that cannot be used, or `skip`: drop and count them,
    up to `max_bad_share` of a file's records.
    backend: who prepares it: `local`, this process, or `ray`, tasks of Ray Data (docs/scale.md).
    Raises InputError for anything else in the files that cannot be used, and for a full disk.
    """
    if not isinstance(tokenizer, str) or tokenizer not in TOKENIZERS:
        raise InputError(f"data.tokenizer: no tokeniser {tokenizer!r}; choose from {', '.join(TOKENIZERS)}")
    if candidates not in CANDIDATES:
        raise InputError(f"data.candidates: {candidates!r} is not one of {', '.join(CANDIDATES)}")
    if field is not None and (not isinstance(field, str) or not field):
        raise InputError(f"data.field: {field!r} is no key of the papers file; name one, as venue")
    allowed_share(on_error, max_bad_share, "data.")
    if backend not in BACKENDS:
        raise InputError(f"data.backend: {backend!r} is not one of {', '.join(BACKENDS)}")
    if not dir:
        raise InputError("data.dir: name the folder with papers.json, contexts.json and the splits")
    cache = Path(cache_dir).expanduser()
    if is_url(dir):
        check_split_names(splits)
        name = name or PurePosixPath(dir).name
        dir = local_folder(str(dir), [*([] if papers else ["papers"]), "contexts", *splits], cache)
    if is_url(papers):
        papers = local_file(str(papers), cache)
    source = find_source(Path(dir).expanduser(), Path(papers).expanduser() if papers else None, splits)
    stores = cache / "corpora"
    title = name or source.folder.resolve().name
    with one_line_disk_errors(stores, "the prepared corpus", "data.cache_dir"):
        stores.mkdir(parents=True, exist_ok=True)
        settings: dict[str, Any] = {
            "tokenizer": tokenizer,
            "candidates": candidates,
            "splits": list(source.splits),
            "field": field,
        }
        if on_error == "skip":
            settings["on_error"] = "skip"
        hashes = {role: content_hash(path, stores) for role, path in source.files().items()}
        key = fingerprint(hashes, settings)
        folder = stores / key
        if read_manifest(folder) is None:
            with one_at_a_time(stores / f"{key}.lock", "prepares the same corpus"):
                if read_manifest(folder) is None:  # another process may have made it while we waited
                    clear_abandoned(stores, UNFINISHED)
                    prepare = partial(_prepare, source, folder, key, title, settings, max_bad_share)
                    if backend == "local" or not _over_ray(prepare, source.folder):
                        prepare(StoreBuilder)
    corpus = Corpus(folder, title, source.papers)
    log.info("%s", describe(corpus))
    if any(counts["kinds"] for counts in corpus.dropped.values()):
        for part, counts in corpus.dropped.items():  # the store may have been made when more was allowed
            refuse_too_many(str(source.files()[part]), counts["records"], counts["kinds"], max_bad_share)
        log.warning("corpus %s: bad records were left out: %s", title, summary(corpus.dropped))
    return corpus


def check_split_names(splits: Sequence[str]) -> None:
    """InputError unless it is a list of names that splits may have."""
    if isinstance(splits, str) or not splits:
        raise InputError(f"data.splits: must be a list of names, as [train,val,test], not {splits!r}")
    for split in splits:
        if (
            not isinstance(split, str)
            or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", split)
            or split in ("papers", "contexts")
        ):
            raise InputError(
                f"data.splits: {shown(split)} is no name of a split (letters, digits, '_' and '-')"
            )


def find_source(folder: Path, papers: Path | None, splits: Sequence[str]) -> Source:
    """Find the files; InputError if one that is needed is missing."""
    if not folder.is_dir():
        raise InputError(
            f"{folder}: no such folder; data.dir must be a folder with papers.json and contexts.json"
        )
    check_split_names(splits)
    found = {split: path for split in dict.fromkeys(splits) if (path := source_file(folder, split))}
    contexts = source_file(folder, "contexts")
    papers = papers or source_file(folder, "papers")
    if papers is None:
        raise InputError(
            f"{folder}: no papers.json or papers.json.gz; put it there or name it with data.papers=FILE"
        )
    if contexts is None:
        raise InputError(f"{folder}: no contexts.json or contexts.json.gz")
    if not found:
        raise InputError(
            f"{folder}: none of the split files {', '.join(f'{split}.json' for split in splits)} (or .gz)"
        )
    for path in (papers, contexts, *found.values()):
        if not path.is_file():
            raise InputError(f"{path}: no such file")
    return Source(folder, papers, contexts, found)


def describe(corpus: Corpus) -> str:
    """One line: name and counts."""
    splits = ", ".join(f"{name} {len(split):,}" for name, split in corpus.splits.items())
    papers = f"{len(corpus.paper_ids):,} papers ({int(corpus.is_candidate.sum()):,} candidates)"
    contexts = f"{len(corpus.context_ids):,} contexts ({splits})"
    return (
        f"corpus {corpus.name}: {papers}, {contexts}, {len(corpus.word_counts):,} words; store {corpus.path}"
    )


def _over_ray(prepare: Callable[[type[StoreBuilder]], None], folder: Path) -> bool:
    """Prepare over Ray; False if it has to be done by one process."""
    from datasets import ray_prepare as ray_cluster
    from datasets.ray_prepare import OneProcess, RayStoreBuilder

    try:
        with ray_cluster.connected():
            prepare(RayStoreBuilder)
    except OneProcess as reason:
        log.warning("%s: not over Ray but by one process, because of: %s", folder, reason)
        return False
    return True


def _prepare(
    source: Source,
    folder: Path,
    key: str,
    name: str,
    settings: dict[str, Any],
    max_bad_share: float,
    builders: type[StoreBuilder],
) -> None:
    started = time.perf_counter()
    # We hold the lock: whatever lies in either place was left by a process that died.
    building = folder.with_name(f"{key}{UNFINISHED}")
    for left in (building, folder):
        if left.exists():
            shutil.rmtree(left)
    building.mkdir()
    try:
        stamps = [stamp_of(path) for path in source.files().values()]
        skip = settings.get("on_error") == "skip"
        tokenizer, field = settings["tokenizer"], settings["field"]
        with builders(building, tokenizer, field, max_bad_share if skip else None) as builder:
            builder.add_papers(source.papers, reading(source.papers, "papers"))
            builder.add_contexts(source.contexts, reading(source.contexts, "contexts"))
            for split, path in source.splits.items():
                builder.add_split(split, path)
            builder.finish(settings["candidates"])
        if [stamp_of(path) for path in source.files().values()] != stamps:
            raise InputError(f"{source.folder}: its files changed while they were read; run again")
        dropped = {part: bad.counts() for part, bad in builder.dropped.items()}
        examples = [json.dumps(example) for bad in builder.dropped.values() for example in bad.examples]
        if skip:
            (building / DROPPED).write_text("".join(f"{line}\n" for line in examples), "utf-8")
        files = {path.name: path.stat().st_size for path in sorted(building.iterdir())}
        manifest = {"version": STORE_VERSION, "fingerprint": key, "name": name, "settings": settings}
        manifest |= {"splits": list(source.splits), "files": files} | ({"dropped": dropped} if skip else {})
        (building / MANIFEST).write_text(json.dumps(manifest, indent=1), "utf-8")
        for path in building.iterdir():
            _sync(path)
        building.rename(folder)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise
    log.info("corpus %s: prepared in %.1f s", name, time.perf_counter() - started)
    if examples:
        where = folder / DROPPED
        log.warning("corpus %s: dropped records, with examples in %s\n%s", name, where, table(dropped))


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
