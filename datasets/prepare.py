"""From source files to the prepared store, once for each content and settings.

The store's folder is named by a hash of the inputs' content and of the settings. It is written beside its
final place and renamed when whole; a lock keeps two processes from doing the same work. While preparing,
memory holds the ids of papers and contexts and the vocabulary, but neither texts nor tokens.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from datasets.bad_records import allowed_share, refuse_too_many, shown, summary, table
from datasets.errors import InputError
from datasets.fingerprint import content_hash, fingerprint, stamp_of
from datasets.progress import reading
from datasets.remote import is_url, local_file, local_folder
from datasets.schema import SPLITS
from datasets.shared_folders import clear_abandoned, one_at_a_time, one_line_disk_errors
from datasets.source import Source, source_file
from datasets.store import MANIFEST, STORE_VERSION, Corpus, read_manifest
from datasets.store_building import StoreBuilder
from datasets.tokenization import TOKENIZERS

log = logging.getLogger(__name__)

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
    backend: who prepares it: `local`, this process, or `ray`, tasks of Ray Data (docs/ray.md).
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
    from datasets import ray_cluster
    from datasets.ray_building import OneProcess, RayStoreBuilder

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
