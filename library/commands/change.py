"""The commands that build, change and describe libraries."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from itertools import chain
from pathlib import Path
from shlex import quote
from threading import Event

from citerec.base.errors import InputError, count_noun
from citerec.base.files import expand_user
from citerec.formats.bibliography.paper import terminal_text
from citerec.library.evidence.files import check_folders
from citerec.library.papers.building import create, read_papers, refresh, remove_sources, short_name
from citerec.library.papers.encoding import encode_and_tell, in_words, state
from citerec.library.papers.folder import read_manifest
from citerec.library.papers.library import SHOWN, Library
from citerec.library.papers.storage import Storage
from citerec.library.papers.watch import watch_sources
from citerec.library.settings import (
    NO_SOURCE,
    AddSettings,
    BuildSettings,
    InfoSettings,
    RemoveSettings,
    UpdateSettings,
    VerifySettings,
)
from citerec.library.sources.finding import absolute_names, find_sources, left_out


def build(settings: BuildSettings) -> None:
    """Build a library."""
    started, path = time.perf_counter(), expand_user(settings.library)
    library, summary, merged = create(settings)
    print(f"{path}: {count_noun(len(library))}, {summary}, in {time.perf_counter() - started:.1f} s")
    for line in (*left_out(settings.source), *shared_keys(library)):
        print(line)
    named = quote(str(path))
    for line in merged:
        print(f"  {line}")
    if merged:
        print(f"  citerec info library={named} merged=true lists all; separate=KEY keeps a record apart")
    if tell_texts(path):
        library = Library.open(path)
    lacking = library.storage.without_abstract if isinstance(library.storage, Storage) else 0
    if lacking:
        print(
            f"without an abstract, and so found less often: {lacking:,} of {count_noun(len(library))}; "
            f"citerec enrich library={named} looks them up"
        )
    if settings.encode:
        encode_and_tell(library)


def shared_keys(library: Library) -> list[str]:
    """Return a line about the citation keys that several papers have, if there are any."""
    keys = [*library.storage.rows_by_name[1]][:SHOWN] if isinstance(library.storage, Storage) else []
    return [terminal_text(f"keys of several papers, numbered in exports: {', '.join(keys)}")] if keys else []


def tell_texts(path: str | Path) -> bool:
    """Bring the full texts of a library up to date and print what was done; False if it has none."""
    path = expand_user(path)
    from citerec.library.papers.fulltexts import update_full_texts

    if report := update_full_texts(path):
        print(report)
    return report is not None


def add(settings: AddSettings) -> None:
    """Add the papers in files to a library."""
    if not settings.source and settings.fulltext is None:
        raise InputError(f"{NO_SOURCE}; or fulltext=true, to read the PDFs of the papers that are there")
    check_folders(settings.pdfs)
    path = expand_user(settings.library)
    if settings.source:
        files, named = find_sources(settings.source), absolute_names(settings.source)
        with Library.edit(path) as library:
            own = {*named, *map(os.path.realpath, named)}
            papers = (read_papers(file, file in own or len(files) == 1) for file in files)
            done = library.add(chain.from_iterable(papers), files, named, settings.separate)
        happened = f"{done.added:,} added, {done.completed:,} completed" if any(done[:2]) else "nothing new"
        print(f"{path}: {happened}; {count_noun(done.papers)}")
        for line in (*left_out(settings.source), *shared_keys(Library.open(path))):
            print(line)
        for file in done.changed:
            print(f"{file}: was a source already; citerec update applies its other changes", file=sys.stderr)
    if settings.fulltext is not None:
        from citerec.library.papers.fulltexts import set_full_texts

        set_full_texts(path, settings.fulltext, settings.pdfs)
    tell_texts(path)
    if settings.encode:
        encode_and_tell(Library.open(path))


def remove(settings: RemoveSettings) -> None:
    """Remove papers, or sources with their papers."""
    if bool(settings.id) == bool(settings.source):
        raise InputError("remove: give either id=[...] (papers) or source=[...] (files with their papers)")
    if settings.source:
        change = remove_sources(settings.library, settings.source, settings.force)
        print(change)
        tell_texts(change.library.path)
        return
    with Library.edit(settings.library) as library:
        before = len(library)
        removed = library.remove(settings.id)
    print(f"{library.path}: {removed:,} removed; {count_noun(before - removed)}")
    tell_texts(library.path)


def verify(settings: VerifySettings) -> None:
    """Read every file of a library and compare it with its checksum."""
    library = Library.open(settings.library)
    library.verify()
    readings = state(library)
    print(f"{library.path}: no damage; {count_noun(len(library))}, {library.describe()['size']}")
    if not all(reading.complete for reading in readings):
        print(f"  {in_words(readings)}; {library.encodes} goes on")


def info(settings: InfoSettings) -> None:
    """Show what a library contains."""
    library = Library.open(settings.library)
    if settings.merged:
        merged = [paper for paper in library.papers() if paper.merged_names]
        for paper in merged:
            others = ", ".join(paper.merged_names)
            print(terminal_text(f"{short_name(paper)}: {paper.title}: also {others}"))
        if not merged:
            print(f"{library.path}: no record had another key or id", file=sys.stderr)
        return
    lines = library.describe()
    lines["encoder"] = in_words(state(library))
    print(library.path, *(f"  {name:12} {line}" for name, line in lines.items() if line), sep="\n")


def update(settings: UpdateSettings) -> None:
    """Reread the sources of a library, with `watch` whenever they change."""
    if not settings.watch:
        change = refresh(settings.library, settings.force)
        print(change)
        tell_texts(settings.library)
        encode_and_tell(Library.open(settings.library))  # reopened, with its new full texts
        return
    named = read_manifest(expand_user(settings.library)).named
    print(f"watching {', '.join(named)}; Ctrl-C ends", flush=True)
    with suppress(KeyboardInterrupt):
        watch_sources(settings.library, Event())
