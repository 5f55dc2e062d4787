"""The commands that make, change, describe and ask libraries."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.console import Console

from datasets.errors import InputError
from datasets.files import digest_of
from datasets.progress import counting
from library.contexts import context_files, contexts_in
from library.duplicates import Gathering
from library.formats import FORMATS, as_json, bibtex, citation, table
from library.library import Library, SourceFile, check_place
from library.models import model_files
from library.papers import LibraryPaper
from library.recommender import Recommender, added, indexer, without
from library.settings import (
    AddSettings,
    AskSettings,
    BuildSettings,
    InfoSettings,
    RemoveSettings,
    UpdateSettings,
)
from library.sources import find_sources, read_source

log = logging.getLogger(__name__)

SHOWN = 10
"""Broken records of a file that are named."""


def build(settings: BuildSettings) -> Library:
    """Make a library."""
    path, started = Path(settings.library).expanduser(), time.perf_counter()
    check_place(path, settings.overwrite)
    files = find_sources(settings.source)
    cited = context_files(settings.contexts) if settings.contexts else []
    model_files(settings.model, settings.ranker)  # what is wrong is said before the papers are read
    path.absolute().parent.mkdir(parents=True, exist_ok=True)
    with Gathering(path.absolute().parent) as gathering:
        sources = _read(files, gathering)
        gathering.finish()
        library = Library.create(
            path,
            _counted(gathering),
            model=f"{settings.model or 'the one in the box'}, ranked by {settings.ranker}"
            if settings.ranker
            else settings.model,
            sources=sources,
            contexts=contexts_in(cited) if cited else None,
            contexts_from=[_source_file(file) for file in cited],
            indexer=indexer(settings.model, settings.ranker),
            overwrite=settings.overwrite,
            wait=settings.wait,
        )
    took = time.perf_counter() - started
    print(f"{path}: {_papers(len(library))}, duplicates joined: {gathering.duplicates:,}, in {took:.1f} s")
    return library


def add(settings: AddSettings) -> Library:
    """Add the papers of files."""
    files = find_sources(settings.source)
    with (
        Library.changing(settings.library, settings.wait) as library,
        Gathering(library.path, library) as gathering,
    ):
        sources = _read(files, gathering, library.sources)
        gathering.finish()
        if not gathering.count:
            library.noted(sources=sources)
            print(f"{library.path}: nothing is new; {_papers(len(library))}")
            return library
        unread = [replace(file, hash="") for file in library.contexts]  # those of the new papers
        changed = added(library, gathering, _counted(gathering), sources=sources, contexts=unread)
    fuller = len(gathering.replaced)
    print(f"{library.path}: {gathering.count - fuller:,} added, {fuller:,} fuller; {_papers(len(changed))}")
    return changed


def remove(settings: RemoveSettings) -> Library:
    """Remove papers, or sources."""
    if bool(settings.id) == bool(settings.source):
        raise InputError("remove: give id=[...], papers, or source=[...], files whose papers are to go")
    with Library.changing(settings.library, settings.wait) as library:
        if settings.source:
            return _read_again(library, _others(library, settings.source))
        changed = without(library, settings.id)
    print(f"{library.path}: {len(library) - len(changed):,} removed; {_papers(len(changed))}")
    return changed


def update(settings: UpdateSettings) -> Library:
    """Read the sources again."""
    with Library.changing(settings.library, settings.wait) as library:
        if not library.sources:
            raise InputError(f"{library.path}: was not made of files; add gives it some")
        known = [*library.sources, *library.contexts]
        if [_source_file(Path(source.path)) for source in known] == known:
            print(f"{library.path}: its files are unchanged; {_papers(len(library))}")
            return library
        return _read_again(library, library.sources)


def _others(library: Library, names: Sequence[str]) -> list[SourceFile]:
    """The sources but those that are named, by file or folder; InputError for one that there is not."""
    left = library.sources
    for name in names:
        place = Path(name).expanduser().resolve()
        others = [source for source in left if place not in (Path(source.path), *Path(source.path).parents)]
        if len(others) == len(left):
            known = ", ".join(source.path for source in left) or "none"
            raise InputError(f"source={name}: is no source of {library.path}; there are: {known}")
        left = others
    return left


def _read_again(library: Library, known: list[SourceFile]) -> Library:
    """The generation of what these sources hold now, and of papers that came without one."""
    with Gathering(library.path) as gathering:
        sources = _read([Path(source.path) for source in known], gathering)
        for row in np.flatnonzero(library.metadata["source"].to_numpy() < 0).tolist():
            gathering.add(library.paper(row))
        gathering.finish()
        kept, new, gone = _compared(library, gathering)
        if gone == len(library) and not new.any():
            raise InputError(f"{library.path}: no paper would be left; delete the folder instead")
        cited = [_source_file(Path(source.path)) for source in library.contexts]
        counts = [int(new.sum()), gone, len(library) - len(kept) - gone]
        if not any(counts) and cited == library.contexts:
            library.noted(sources=sources)
            print(f"{library.path}: no paper has changed; {_papers(len(library))}")
            return library
        papers = (paper for paper, is_new in zip(gathering.papers(), new, strict=True) if is_new)
        find = contexts_in([Path(source.path) for source in cited]) if cited else None
        changed = library.changed(kept, papers, indexer(), find, sources=sources, contexts=cited)
    added, gone, replaced = counts[0] - counts[2], counts[1], counts[2]
    print(
        f"{library.path}: {added:,} added, {gone:,} removed, {replaced:,} replaced; {_papers(len(changed))}"
    )
    return changed


def _compared(library: Library, gathering: Gathering) -> tuple[np.ndarray, np.ndarray, int]:
    """Rows whose papers are as they were; which of the gathered papers [N] are not; number of papers gone."""
    kept, new, seen = [], np.zeros(gathering.count, np.bool_), 0
    removed = set(library.removed)
    for number, paper in enumerate(gathering.papers()):
        if paper.id in removed:
            continue
        row = library.corpus.paper_row(paper.id) if library.corpus.has_paper(paper.id) else None
        seen += row is not None
        if row is not None and library.paper(row) == paper:
            kept.append(row)
        else:
            new[number] = True
    return np.sort(np.array(kept, np.int64)), new, len(library) - seen


def info(settings: InfoSettings) -> None:
    """Tell what a library holds."""
    library = Library.open(settings.library)
    corpus = library.corpus
    years = corpus.years[corpus.years > 0]
    described, collections = np.count_nonzero(corpus.abstract_tokens.lengths), library.collections
    size = sum(file.stat().st_size for file in library.folder.rglob("*") if file.is_file())
    lines = {
        "papers": f"{len(library):,}, {described:,} with an abstract",
        "years": f"{years.min()} to {years.max()}" if len(years) else "unknown",
        "contexts": f"{len(corpus.context_ids):,}" if len(corpus.context_ids) else "",
        "collections": ", ".join(collections[:SHOWN]) + (" ..." if len(collections) > SHOWN else ""),
        "sources": ", ".join(source.path for source in library.sources),
        "removed": f"{len(library.removed):,} by hand" if library.removed else "",
        "model": library.model or "the one in the box",
        "size": f"{size / 1e6:,.1f} MB",
        "generation": f"{library.generation}, of {library.manifest['changed']}",
        "created": library.manifest["created"],
    }
    print(f"{library.path}")
    for name, line in lines.items():
        if line:
            print(f"  {name:12} {line}")


def ask(settings: AskSettings) -> None:
    """Print the papers to cite; nothing else goes to stdout."""
    if settings.format not in FORMATS:
        raise InputError(f"format={settings.format}: choose one of {', '.join(FORMATS)}")
    if settings.k < 1:
        raise InputError(f"k={settings.k}: give a number from 1 on")
    recommender = Recommender.open(settings.library, settings.reranker)
    found = recommender.recommend(
        sys.stdin.read() if settings.text == "-" else settings.text,
        settings.title,
        settings.abstract,
        settings.k,
        exclude=settings.exclude,
        only=settings.only,
        years=settings.years,
        collection=settings.collection,
        venue=settings.venue,
        explain=settings.explain,
    )
    keys = [paper.key or paper.id for paper in found]
    if settings.format == "json":
        print(as_json(found))
    elif settings.format == "bibtex":
        library = recommender.library
        print(bibtex(library.paper(library.corpus.paper_row(paper.id)) for paper in found), end="")
    elif settings.format in ("cite", "markdown"):
        print(citation(keys, settings.format))
    else:
        Console().print(table(found, settings.explain))
    if not found:
        print(f"{settings.library}: no paper answers to this passage", file=sys.stderr)


def _papers(count: int) -> str:
    return f"{count:,} paper{'s' if count != 1 else ''}"


def _read(files: list[Path], gathering: Gathering, known: Iterable[SourceFile] = ()) -> list[SourceFile]:
    """Gather the papers of files; returns the known sources and those of the files, each once.

    Raises InputError for a file without a paper that can be used.
    """
    sources = {source.path: source for source in known}
    for file in files:
        bad: list[InputError] = []
        sources[str(file)], before = _source_file(file), len(gathering)
        for paper in read_source(file, bad.append):
            gathering.add(paper._replace(source=0))
        if len(gathering) == before:
            reason = f": {bad[0]}" if bad else ""
            raise InputError(f"{file}: has no paper that can be used{reason}")
        if bad:
            more = [f"... and {len(bad) - SHOWN:,} more"] if len(bad) > SHOWN else []
            lines = [*map(str, bad[:SHOWN]), *more]
            log.warning("%s: %d records were skipped\n  %s", file, len(bad), "\n  ".join(lines))
    return list(sources.values())


def _source_file(file: Path) -> SourceFile:
    if not file.exists():
        raise InputError(
            f"{file}: no such file, and the library was made of it; put it back, or take its papers out with "
            f"python recommend.py remove source={file}"
        )
    return SourceFile(str(file), file.stat().st_size, digest_of(file))


def _counted(gathering: Gathering) -> Iterator[LibraryPaper]:
    """The papers, with a bar on terminals."""
    with counting("papers", gathering.count) as advance:
        for paper in gathering.papers():
            yield paper
            advance(1)
