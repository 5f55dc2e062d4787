"""Prepare the store of a corpus from its records, once per content and settings.

A store's folder is named by a hash of its content and settings. It is written next to its final location and
renamed when complete; a lock keeps two processes from doing the same work. During preparation, memory holds
the vocabulary and the ids of papers and contexts, but neither texts nor tokens.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import time
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from citerec.base.errors import InputError, quoted
from citerec.base.files import (
    cache_folder,
    content_hash,
    digest_json,
    disk_errors,
    existing_file,
    expand_user,
    file_lock,
    file_stamp,
    remove_abandoned,
)
from citerec.base.settings import Settings, setting
from citerec.datasets.columns import (
    ColumnWriter,
    NameWriter,
    Ragged,
    TokenWriter,
    offsets_of,
    save_arrays,
    save_ragged,
    write_words,
)
from citerec.datasets.corpus import MANIFEST, STORE_VERSION, Corpus, read_manifest
from citerec.datasets.files.source_files import file_source
from citerec.datasets.records import (
    SPLITS,
    TRAIN,
    BadRecord,
    ContextRecord,
    PaperRecord,
    QueryRecord,
    Source,
    check_context,
    check_paper,
    check_query,
    join_sources,
    split_group,
)
from citerec.datasets.tokenize import TOKENIZERS, WordTable

log = logging.getLogger(__name__)

UNFINISHED = ".part"


class StoreBuilder(AbstractContextManager["StoreBuilder"]):
    """Writes the files of a store to `folder`.

    Call add_papers, add_contexts, add_split for each split, finish.

    terms: those of the source (Source.terms). Raises InputError for the first bad record.
    """

    def __init__(self, folder: Path, tokenizer: str, terms: Mapping[str, str]) -> None:
        self._folder, self._terms = folder, terms
        self._words = WordTable(TOKENIZERS[tokenizer])
        self._fields = NameWriter(folder, "fields")
        names = ("paper_ids", "titles", "abstracts", "context_ids", "context_texts")
        self._columns = {name: ColumnWriter(folder, name) for name in names}
        self._titles = TokenWriter(folder, "title_tokens", self._words.ids)
        self._abstracts = TokenWriter(folder, "abstract_tokens", self._words.ids)
        self._context_tokens = TokenWriter(folder, "context_tokens", self._words.ids)
        tokens = (self._titles, self._abstracts, self._context_tokens)
        self._writers: tuple[ColumnWriter | TokenWriter, ...] = (*self._columns.values(), *tokens)
        self._paper_rows: dict[str, int] = {}
        self._context_rows: dict[str, int] = {}
        self._years, self._citing = array("i"), array("i")
        self._candidate = bytearray()  # 0: never, 1: only if all papers are candidates, 2: has an abstract
        # Per split, in insertion order: rows of contexts, rows of cited papers, number of cited papers.
        self._splits: dict[str, tuple[array[int], array[int], array[int]]] = {}
        self._split_of_context: list[str | None] = []
        self._split_of_paper: list[str | None] = []  # the first split in which it cites
        self._outside: dict[str, int] = {}

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        for writer in self._writers:
            with suppress(OSError) if error is not None else nullcontext():
                writer.close()

    def add_papers(self, records: Iterable[PaperRecord], origin: Path, field: str | None = None) -> None:
        """origin: for messages. field: the key of papers' fields; InputError if no paper has any."""
        rows, untitled = self._paper_rows, 0

        for paper in records:
            check_paper(paper, origin)
            if rows.setdefault(paper.id, row := len(rows)) != row:
                raise BadRecord(origin, paper.id, "a paper with this id already exists")
            self._columns["paper_ids"].append(paper.id)
            self._columns["titles"].append(paper.title)
            self._columns["abstracts"].append(paper.abstract)
            self._titles.append(paper.title)
            self._abstracts.append(paper.abstract)
            self._years.append(paper.year)
            self._fields.append(paper.fields)
            self._candidate.append(paper.candidate and 1 + bool(paper.abstract.strip()))
            untitled += paper.candidate and not paper.title.strip()
        self._split_of_paper = [None] * len(rows)
        if not rows:
            raise InputError(f"{origin}: no papers")
        if not any(self._candidate):
            raise BadRecord(origin, next(iter(rows)), "title and abstract are both empty, as of every paper")
        if field and not self._fields:
            raise InputError(f"{origin}: no paper has the field {field!r} set by data.field")
        if untitled:
            counts = f"{untitled:,} of {sum(map(bool, self._candidate)):,}"
            log.warning("%s: %s papers have no title; only their abstract is read, if any", origin, counts)

    def add_contexts(self, records: Iterable[ContextRecord], origin: Path) -> None:
        """Call after add_papers."""
        rows = self._context_rows
        for context in records:
            check_context(context, origin, self._terms.get("masked_text", "masked_text"))
            if context.id in rows:
                raise BadRecord(origin, context.id, "a context with this id already exists")
            if context.outside:
                citing = self._outside.setdefault(context.citing_id, -2 - len(self._outside))
            else:
                citing = self._paper_row(context.citing_id, origin, context.id, "citing_id")
            if context.cited_id is not None:
                self._paper_row(context.cited_id, origin, context.id, "refid")
            rows[context.id] = len(rows)
            self._columns["context_ids"].append(context.id)
            self._columns["context_texts"].append(context.text)
            self._context_tokens.append(context.text)
            self._citing.append(citing)
        self._split_of_context = [None] * len(rows)

    def add_split(self, name: str, records: Iterable[QueryRecord], origin: Path) -> None:
        """Call after add_papers and add_contexts."""
        contexts, positives, lengths = self._splits[name] = array("q"), array("i"), array("i")
        of_context, of_papers = (self._terms.get(field, field) for field in ("context_id", "positive_ids"))
        for number, query in enumerate(records):
            record = query.context_id if self._terms else number
            check_query(query, origin, record, of_papers)
            row = self._context_rows.get(query.context_id)
            if row is None:
                raise self._unknown("context", query.context_id, origin, record, of_context)
            papers = [self._paper_row(paper, origin, record, of_papers) for paper in query.positive_ids]
            if earlier := self._split_of_context[row]:
                which = "this split" if earlier == name else f"split {earlier!r}"
                reason = f"context {quoted(query.context_id)} is already in {which}"
                raise BadRecord(origin, record, reason, of_context)
            citing = self._citing[row]
            other = (self._split_of_paper[citing] if citing >= 0 else None) or name
            if split_group(other) != split_group(name):
                paper = list(self._paper_rows)[citing]
                reason = (
                    f"the citing paper {quoted(paper)} of context "
                    f"{quoted(query.context_id)} is in split {other!r} too; it may cite in one split only"
                )
                raise BadRecord(origin, record, reason, of_context)
            self._split_of_context[row] = name
            if citing >= 0:
                self._split_of_paper[citing] = other
            positives.extend(papers)
            contexts.append(row)
            lengths.append(len(papers))
        if not contexts:
            raise InputError(f"{origin}: no queries")

    def _paper_row(self, paper: str, origin: Path, record: str | int, field: str) -> int:
        row = self._paper_rows.get(paper)
        if row is None:
            raise self._unknown("paper", paper, origin, record, field)
        return row

    def _unknown(self, what: str, id: str, origin: Path, record: str | int, field: str) -> BadRecord:
        term, file = self._terms.get(what, what), self._terms.get(f"{what}s", f"the {what}s file")
        return BadRecord(origin, record, f"no {term} {quoted(id)} in {file}", self._terms.get(field, field))

    def finish(self, candidates: str) -> None:
        """Write final word ids, candidates and splits. Raises InputError if no paper is a candidate."""
        for writer in self._writers:
            writer.close()
        is_candidate = np.frombuffer(self._candidate, np.uint8) >= (1 if candidates == "all" else 2)
        if candidates != "all" and not is_candidate.any():
            raise InputError("no paper has an abstract, so none is a candidate; set data.candidates=all")
        citing = np.frombuffer(self._citing, np.int32)
        in_train = np.zeros(len(self._context_rows), np.bool_)
        unreachable = 0
        for name, (contexts, positives, lengths) in self._splits.items():
            rows, cited = np.frombuffer(contexts, np.int64), np.frombuffer(positives, np.int32)
            counts = np.frombuffer(lengths, np.int32)
            unreachable += int((~is_candidate[cited] | (cited == np.repeat(citing[rows], counts))).sum())
            if name == TRAIN:
                in_train[rows] = True
            save_arrays(self._folder, **{f"{name}.contexts": rows})
            save_ragged(self._folder, f"{name}.positives", Ragged(cited, offsets_of(counts)))
        if unreachable:
            log.warning(
                "%d citations of non-candidates, or of the citing paper itself, can never be retrieved",
                unreachable,
            )
        years = np.frombuffer(self._years, np.int32)
        save_arrays(self._folder, is_candidate=is_candidate, citing=citing, years=years)
        self._fields.finish()
        counted = [(self._titles, None), (self._abstracts, None), (self._context_tokens, in_train)]
        write_words(self._folder, self._words.words(), counted)


@dataclass(frozen=True)
class StoreSettings(Settings):
    """Options of preparing a store from records."""

    where: ClassVar[str] = "data"

    tokenizer: str = setting("default", choices=tuple(TOKENIZERS))
    candidates: str = setting("abstract", choices=("abstract", "all"))
    """papers with an abstract, or all"""

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> StoreSettings:
        """Return the settings for the given values; InputError for invalid ones."""
        from citerec.base.configuration import (
            read_settings,  # imports Hydra, which a library does without
        )

        return read_settings(cls, values)


def open_corpus(
    dir: str | Path,
    papers: str | Path | None = None,
    cache_dir: str | Path | None = None,
    splits: Sequence[str] = SPLITS,
    name: str | None = None,
    field: str | None = None,
    **settings: Any,
) -> Corpus:
    """Open a folder of source files (datasets.files.source_files); prepare its store on first use.

    dir: folder with papers.json (unless `papers` is a file elsewhere), contexts.json and splits, plain or
    .gz; or a folder in BEIR's layout (datasets.files.beir).
    splits: split files to read; all but one may be missing.
    name: name of the corpus in logs and tables, by default the folder's name.
    field: the key of papers.json that holds a paper's field or list of fields; None: papers have no fields.
    settings: StoreSettings. Raises InputError like open_records.
    """
    StoreSettings.read(settings)  # before files are read
    _check_field(field)
    if not dir:
        raise InputError("data.dir: set the folder with papers.json, contexts.json and the splits")
    cache = cache_folder(cache_dir)
    papers = expand_user(papers) if papers else None
    source = _folder_source(expand_user(dir), papers, splits, name, field, cache)
    return open_records(source, cache, **settings)


def open_corpora(
    dirs: Sequence[str | Path],
    cache_dir: str | Path | None = None,
    splits: Sequence[str] = SPLITS,
    name: str | None = None,
    field: str | None = None,
    **settings: Any,
) -> Corpus:
    """Open several folders of source files as one corpus, to train a model on all of them.

    dirs: folders as for open_corpus. Ids become FOLDER/ID, and each split joins the folders' splits of that
    name. Otherwise like open_corpus.
    """
    StoreSettings.read(settings)
    _check_field(field)
    if isinstance(dirs, str) or len(dirs) < 2:
        raise InputError(f"data.dirs: must be a list of two or more folders, e.g. [one,other], not {dirs!r}")
    folders = {(folder := expand_user(dir).resolve()).name: folder for dir in dirs}
    if len(folders) < len(dirs):
        raise InputError("data.dirs: two folders have the same name, which is the prefix of their ids")
    cache = cache_folder(cache_dir)
    parts = {
        part: _folder_source(folder, None, splits, part, field, cache) for part, folder in folders.items()
    }
    return open_records(join_sources(parts, name or "+".join(folders)), cache, **settings)


def _check_field(field: str | None) -> None:
    if field is not None and (not isinstance(field, str) or not field):
        raise InputError(f"data.field: {field!r} is not a key of the papers file; set one, such as venue")


def _folder_source(
    folder: Path, papers: Path | None, splits: Sequence[str], name: str | None, field: str | None, cache: Path
) -> Source:
    from citerec.datasets.files.beir import PAPERS, beir_source

    name = name or folder.resolve().name
    if papers is None and (in_beir := existing_file(folder / PAPERS)):
        source = beir_source(name, in_beir, splits, field)
    else:
        source = file_source(name, folder, papers, splits, field)
    with store_folder(cache) as stores:
        hashes = {part: content_hash(path, stores) for part, path in source.files.items()}
    return replace(source, identity={**source.identity, **hashes})


def open_records(source: Source, cache_dir: str | Path | None = None, **settings: Any) -> Corpus:
    """Open the corpus of a source; prepare its store if none exists for its identity and these settings.

    settings: StoreSettings. Raises InputError for records that cannot be used and for a full disk.
    """
    options = StoreSettings.read(settings)
    store_settings: dict[str, Any] = {
        "tokenizer": options.tokenizer,
        "candidates": options.candidates,
        "splits": list(source.splits),
        "field": source.field,
    }
    key = fingerprint(source.identity, store_settings)
    with store_folder(cache_folder(cache_dir)) as stores:
        folder = stores / key
        if read_manifest(folder) is None:
            with file_lock(stores / f"{key}.lock", "prepares the same corpus"):
                if read_manifest(folder) is None:  # another process may have prepared it meanwhile
                    remove_abandoned(stores, UNFINISHED)
                    prepare_store(source, folder, store_settings)
    corpus = Corpus(folder, source.name)
    sizes = ", ".join(f"{name} {len(split):,}" for name, split in corpus.splits.items())
    log.info(
        f"corpus {corpus.name}: {len(corpus.paper_ids):,} papers ({corpus.is_candidate.sum():,} candidates), "
        f"{len(corpus.context_ids):,} contexts ({sizes}), {len(corpus.word_counts):,} words; "
        f"store {corpus.path}"
    )
    return corpus


def fingerprint(identity: Mapping[str, str], settings: Mapping[str, Any]) -> str:
    """Return the name of the store for this content and these settings."""
    return digest_json({"version": STORE_VERSION, "inputs": dict(identity), "settings": dict(settings)})


@contextmanager
def store_folder(cache: Path) -> Iterator[Path]:
    """Yield the folder of all stores; disk errors inside become an InputError."""
    with disk_errors(stores := cache / "corpora", "the prepared corpus", "data.cache_dir"):
        stores.mkdir(parents=True, exist_ok=True)
        yield stores


def prepare_store(source: Source, folder: Path, settings: dict[str, Any]) -> None:
    """Prepare the store of a source at `folder`; only one process at a time may do so.

    settings: tokenizer and candidates; others as for open_records.
    """
    started = time.perf_counter()
    # Only one process at a time gets here, so existing folders are remains of a dead one.
    building = folder.with_name(f"{folder.name}{UNFINISHED}")
    for remains in (building, folder):
        if remains.exists():
            shutil.rmtree(remains)
    building.mkdir(parents=True)
    try:
        stamps = [file_stamp(path) for path in source.files.values()]
        with StoreBuilder(building, settings["tokenizer"], source.terms) as builder:
            builder.add_papers(source.papers(), source.origin("papers"), source.field)
            builder.add_contexts(source.contexts(), source.origin("contexts"))
            for split, queries in source.splits.items():
                builder.add_split(split, queries(), source.origin(f"split {split}"))
            builder.finish(settings["candidates"])
        if [file_stamp(path) for path in source.files.values()] != stamps:
            source_folder = next(iter(source.files.values())).parent
            raise InputError(f"{source_folder}: its files changed while they were read; run again")
        manifest = {
            "version": STORE_VERSION,
            "name": source.name,
            "settings": settings,
            # A source may complete its identity only while it is read.
            "fingerprint": fingerprint(source.identity, settings),
            "splits": list(source.splits),
            "files": {path.name: path.stat().st_size for path in sorted(building.iterdir())},
        }
        (building / MANIFEST).write_text(json.dumps(manifest, indent=1), "utf-8")
        for path in building.iterdir():
            with path.open("r+b") as file:  # Windows writes out no file that is only read
                os.fsync(file.fileno())
        building.rename(folder)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise
    log.info("corpus %s: prepared in %.1f s", source.name, time.perf_counter() - started)
