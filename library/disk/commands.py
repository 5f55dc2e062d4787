"""The commands that build, change and describe libraries on disk (storage=disk)."""

from __future__ import annotations

import logging
import shutil
import time
from itertools import chain
from pathlib import Path

from citerec.base.errors import InputError
from citerec.base.files import disk_errors, full_disk_as_os_error
from citerec.library.commands.change import SHOWN, absolute, read_papers
from citerec.library.disk.build import SHARDS, build_generation
from citerec.library.disk.library import LargeLibrary, add_records
from citerec.library.disk.tasks import task_runner
from citerec.library.export.formats import count_noun
from citerec.library.library import (
    BUILDING,
    GENERATIONS,
    Manifest,
    check_target,
    lock_folder,
    now,
    remove_old_generations,
    write_manifest,
)
from citerec.library.models import PLAIN, model_files
from citerec.library.settings import AddSettings, BuildSettings, InfoSettings, RemoveSettings
from citerec.library.sources.readers import find_sources
from citerec.retrieval.base import folder_bytes

log = logging.getLogger(__name__)


def build(settings: BuildSettings) -> None:
    """Build a library on disk. A killed build goes on where it was."""
    started, path = time.perf_counter(), Path(settings.library).expanduser()
    model, ranker = absolute(settings.model), absolute(settings.ranker)
    if settings.contexts:
        raise InputError("contexts: a library on disk does not rank by contexts; leave them out")
    if model_files(model, ranker)[1] == PLAIN:  # also reports other errors before the papers are read
        raise InputError(f"model={model}: a library on disk needs one with vectors")
    check_target(path, settings.overwrite)
    bad: list[InputError] = []
    with (
        disk_errors(path, "the library", "library"),
        lock_folder(path, settings.wait),
        full_disk_as_os_error(path),
    ):
        check_target(path, settings.overwrite)
        with task_runner(settings.workers) as run:
            generation, parts = build_generation(
                settings.source,
                path / BUILDING,
                (model, ranker),
                settings.shards,
                run,
                bad_parts=settings.bad_parts,
                on_bad=bad.append,
            )
        for line in bad[:SHOWN]:
            log.warning("%s", line)
        for name, reason in parts.skipped.items():
            log.warning("%s: skipped: %s", name, reason)
        numbers = [int(one.name) for one in (path / GENERATIONS).iterdir() if one.name.isdecimal()]
        number = max(numbers, default=0) + 1
        shards = len(list((generation / SHARDS).iterdir()))
        generation.rename(path / GENERATIONS / str(number))
        manifest = Manifest(
            generation=number,
            model=model,
            ranker=ranker,
            named=list(settings.source),
            shards=shards,
            created=now(),
            changed=now(),
            counts={"papers": parts.papers, "contexts": 0},
        )
        write_manifest(path, manifest)
        remove_old_generations(path)
        shutil.rmtree(path / BUILDING)
    dropped = sum(parts.bad.values())
    print(
        f"{path}: {count_noun(parts.papers)} in {count_noun(shards, 'shard')}, "
        f"{count_noun(parts.duplicates, 'duplicate')} merged, {count_noun(dropped, 'record')} dropped, "
        f"{count_noun(len(parts.skipped), 'file')} skipped, "
        f"in {time.perf_counter() - started:.1f} s"
    )


def add(settings: AddSettings) -> None:
    """Add the papers in files to a library on disk."""
    with LargeLibrary.edit(settings.library, settings.wait) as library:
        files = find_sources(settings.source)
        records = chain.from_iterable(map(read_papers, files))
        named = list(dict.fromkeys([*library.manifest.named, *files]))
        added, completed, papers = add_records(library, records, named=named)
    print(f"{library.path}: {added:,} added, {completed:,} completed; {count_noun(papers)}")


def remove(settings: RemoveSettings) -> None:
    """Remove papers from a library on disk."""
    if settings.source or not settings.id:
        raise InputError(f"{settings.library}: is kept on disk; give id=[...], the papers to remove")
    with LargeLibrary.edit(settings.library, settings.wait) as library:
        rows = library.rows(settings.id)
        papers = library.change([], rows)
    print(f"{library.path}: {len(rows):,} removed; {count_noun(papers)}")


def info(settings: InfoSettings) -> None:
    """Show what a library on disk contains."""
    library = LargeLibrary.open(settings.library)
    about = library.manifest
    lines = {
        "papers": f"{len(library):,}",
        "shards": f"{about.shards}",
        "sources": ", ".join(about.named),
        "model": about.ranking_model,
        "size": f"{folder_bytes(library.folder) / 1e6:,.1f} MB",
        "created": about.created,
        "changed": about.changed,
    }
    print(library.path, *(f"  {name:12} {line}" for name, line in lines.items() if line), sep="\n")
