"""Builds a library from its sources: at first, and again when these have changed. Prints nothing."""

from __future__ import annotations

import logging
import os
from collections.abc import Container, Iterator, Sequence
from contextlib import suppress
from hashlib import blake2b
from itertools import compress, islice
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from citerec.base.errors import InputError, count_noun
from citerec.base.files import disk_errors, expand_user
from citerec.formats.bibliography.paper import LibraryPaper, terminal_text
from citerec.library.papers.folder import GENERATIONS, Manifest, ReadFile, check_target, read_manifest
from citerec.library.papers.library import Library
from citerec.library.papers.models import OWN, model_files
from citerec.library.settings import BuildSettings
from citerec.library.sources.finding import absolute_names, find_sources, is_zotero

if TYPE_CHECKING:
    from citerec.library.papers.merging import Deduplicator

log = logging.getLogger(__name__)

SHOWN = 10
"""Maximum number of bad records per file, and of merged ones, to list."""
LOSS = 0.2
"""Largest share of papers that a changed source may lose without `force`."""


def _left_out(number: int) -> str:
    return f", {number:,} left out (removed by hand)" if number else ""


def short_name(paper: LibraryPaper) -> str:
    return (paper.key or paper.id) + (f" ({paper.year})" if paper.year else "")


def create(settings: BuildSettings) -> tuple[Library, str, list[str]]:
    """Build a library. Returns it, how many records were merged, and a line for each of the first of them."""
    from citerec.library.evidence.files import check_folders  # imported only to read sources, not to ask
    from citerec.library.papers.merging import Deduplicator

    path = expand_user(settings.library)
    check_target(path, settings.overwrite)
    old = None if settings.source else read_manifest(path)
    kept = old or Manifest(created="", changed="")
    model = settings.model or kept.model
    if model not in OWN and os.path.exists(folder := expand_user(model)):
        model = str(folder.resolve())  # so that it is found again from anywhere
    if old is None:
        files, named = find_sources(settings.source), absolute_names(settings.source)
    else:
        if not old.named:
            raise InputError(f"{path}: was not built from files; give source=...")
        files, named = _find_again(old.named), old.named
    lance = settings.storage == "lance" or kept.lance > 0
    if lance:
        from citerec.library.papers.lance import lancedb

        lancedb()  # to report that it is missing before the papers are read
    generations = path.resolve() / GENERATIONS
    if inside := [file for file in files if Path(file).is_relative_to(generations)]:
        raise InputError(f"source={inside[0]}: is a file of the library that it replaces; copy it elsewhere")
    model_files(model)  # to report errors before the papers are read
    check_folders(settings.pdfs)
    separate = [*settings.separate] or kept.separate
    with (
        disk_errors(path, "the library", "library"),
        Deduplicator(path.absolute().parent, separate=separate) as records,
    ):
        if old is not None:
            with suppress(InputError):  # it is damaged: what was filled in is lost
                records.former = Library.open(path).mapped
        sources = _read_sources(files, named, records, old)
        records.finish()
        away = records.removed_as(kept)
        if old is not None and not settings.force:
            _refuse_loss(path, old, old.counts.get("papers", 0) - records.count + len(away), sources)
        fulltext, pdfs = settings.fulltext, absolute_names(settings.pdfs)
        if fulltext is None:
            fulltext, pdfs = kept.fulltext, kept.pdfs
        library = Library.create(
            path,
            (paper for place, paper in enumerate(records.papers_with_progress()) if place not in away),
            model=model,
            lance=lance,
            overwrite=settings.overwrite,
            old=old,
            sources=sources,
            named=named,
            removed=kept.removed,
            removed_works=kept.removed_works,
            separate=separate,
            fulltext=fulltext,
            pdfs=pdfs,
        )
        pairs = ((*map(short_name, pair), pair[1].title) for pair in islice(records.merged(), SHOWN))
        merged = [f"{name} is {to if to != name else 'there already'}: {title}" for name, to, title in pairs]
        summary = f"{count_noun(records.duplicates, 'duplicate')} merged{_left_out(len(away))}"
        return library, summary, [*map(terminal_text, merged)]


def _refuse_loss(
    path: Path, old: Manifest, removed: int, sources: Sequence[ReadFile], dropped: Container[str] = ()
) -> None:
    """Raise InputError if sources that have changed lose more than LOSS of the papers, as a half-written
    export or a damaged database does. dropped: sources that the user removes.
    """
    papers, left = old.counts.get("papers", 0), {file.path for file in sources}
    changed = [file.path for file in sources if file not in old.sources]
    gone = [file.path for file in old.sources if file.path not in left and file.path not in dropped]
    if removed > LOSS * papers and (changed or gone):
        told = (changed, "changed"), (gone, "is gone")
        reasons = [f"{' and '.join(names)} {what}" for names, what in told if names]
        raise InputError(
            f"{path}: {removed:,} of {count_noun(papers)} would be removed, since {' and '.join(reasons)}; "
            "check that it is complete, then confirm with force=true"
        )


class Change(NamedTuple):
    """The library after an update, and what it did. left_out: papers that the user removed before."""

    library: Library
    added: int = 0
    removed: int = 0
    replaced: int = 0
    written: bool = False
    """Whether there is a new generation."""
    left_out: int = 0

    def __str__(self) -> str:
        """Describe it in one line, for people."""
        counts = f"{self.added:,} added, {self.removed:,} removed, {self.replaced:,} replaced"
        happened = counts if self.written else "nothing has changed"
        return f"{self.library.path}: {happened}{_left_out(self.left_out)}; {count_noun(len(self.library))}"


def refresh(path: str | Path, force: bool = False) -> Change:
    """Reread the sources of a library that have changed, and folders and patterns for new files.

    force: as for the command `update`. Raises InputError if it cannot.
    """
    with Library.edit(path) as library:
        manifest, _ = library.manifest, library.mapped
        if not manifest.named:
            raise InputError(f"{library.path}: has no source files; add some with citerec add")
        files = _find_again(manifest.named)
        if [*map(ReadFile.of, files)] == manifest.sources and not any(map(is_zotero, files)):
            return Change(library)
        return _reread(library, manifest.named, force)


def remove_sources(path: str | Path, names: Sequence[str], force: bool = False) -> Change:
    """Remove source files and folders with their papers; papers that other sources also contain stay.

    force: as for the command `remove`. Raises InputError for an unknown source.
    """
    with Library.edit(path) as library:
        _, left = library.mapped, library.manifest.named
        for name in dict.fromkeys(names):
            [source] = absolute_names([name])
            if source not in left:
                known = ", ".join(left) or "none"
                raise InputError(f"source={name}: is not a source of {library.path}; choose from {known}")
            left = [other for other in left if other != source]
        kept = _find_again(left)
        dropped = [file.path for file in library.manifest.sources if file.path not in kept]
        return _reread(library, left, force, dropped)


def _find_again(named: Sequence[str]) -> list[str]:
    """Return the files that a library's sources are now. Raises InputError for a source that is missing."""
    files: dict[str, None] = {}
    for name in named:
        try:
            files.update(dict.fromkeys(find_sources([name])))
        except InputError as error:
            raise InputError(
                f"{error}, but the library was built from it; restore it, or remove its papers with citerec "
                f"remove source={quote(name)}"
            ) from None
    return list(files)


def _reread(library: Library, named: list[str], force: bool, dropped: Container[str] = ()) -> Change:
    """Write a generation with the current papers of these sources. force: skip `_refuse_loss`, which is given
    `dropped`."""
    from citerec.library.papers.merging import Deduplicator

    with Deduplicator(library.path, former=library.mapped, separate=library.manifest.separate) as records:
        sources = _read_sources(_find_again(named), named, records, library.manifest)
        records.finish()
        gone, new, removed = _compare(library, records)
        if not new.any():
            library.check_some_left(removed)
        if not force:
            _refuse_loss(library.path, library.manifest, removed, sources, dropped)
        replaced = len(gone) - removed
        if not (new.any() or len(gone)):
            library.update_manifest(sources=sources, named=named)
            return Change(library, left_out=records.count - len(library))
        changed = library.change(gone, compress(records.papers(), new), sources=sources, named=named)
    left_out = records.count - len(changed)
    return Change(changed, int(new.sum()) - replaced, removed, replaced, True, left_out)


def _compare(library: Library, records: Deduplicator) -> tuple[np.ndarray, np.ndarray, int]:
    """Return rows of removed and changed papers, a mask of new and changed ones [N], and how many were
    removed."""
    gone, new, seen = np.ones(len(library), np.bool_), np.zeros(records.count, np.bool_), set[int | None]()
    away = records.removed_as(library.manifest)
    for number, paper in enumerate(records.papers()):
        if number in away:
            continue
        has_id = library.corpus.has_paper(paper.id)
        row = library.corpus.paper_row(paper.id) if has_id else records.former_row(paper)
        seen.add(row)
        if row is not None and library.paper(row) == paper:
            gone[row] = False
        else:
            new[number] = True
    return np.flatnonzero(gone), new, len(library) - len(seen - {None})


def _read_sources(
    files: Sequence[str], named: Sequence[str], records: Deduplicator, old: Manifest | None
) -> list[ReadFile]:
    """Add the papers in files to `records`; return what these files are. See `read_papers`; a file that is
    empty now and was not in `old` is needed, as its export may have just begun."""
    sources, own = [], {*named, *map(os.path.realpath, named)}
    for file in files:
        source, digest, number = ReadFile.of(file), blake2b(digest_size=16), len(records)
        emptied = old is not None and not source.size and source not in old.sources
        for paper in read_papers(file, file in own or emptied or (file == files[-1] and not len(records))):
            records.add(paper)
            digest.update(repr(paper).encode())
        if is_zotero(file):  # which has no file that tells whether its papers have changed
            source = ReadFile(file, len(records) - number, digest.hexdigest())
        sources.append(source)
    return sources


def read_papers(file: str, needed: bool) -> Iterator[LibraryPaper]:
    """Yield the papers of a file and log its bad records. Raises InputError if no paper is usable; one that
    is not needed, such as an editor's settings in a folder of papers, is left out with a line."""
    from citerec.library.sources.readers import read_source

    bad: list[InputError] = []
    is_empty = True
    try:
        for paper in read_source(file, bad.append):
            is_empty = False
            yield paper
        if is_empty:
            raise InputError(f"{file}: has no usable paper" + (f": {bad[0]}" if bad else ""))
    except InputError as error:
        if needed or not is_empty:
            raise
        log.warning("%s; the file is left out", error)
        return
    if bad:
        more = [f"... and {len(bad) - SHOWN:,} more"] if len(bad) > SHOWN else []
        lines = [*map(str, bad[:SHOWN]), *more]
        count = count_noun(len(bad), "record")
        log.warning("%s: %s skipped or read only in part\n  %s", file, count, "\n  ".join(lines))
