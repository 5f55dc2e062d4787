"""The commands that make, change, describe and ask libraries."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import compress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from datasets.errors import InputError
from datasets.files import digest_file
from datasets.progress import count_progress
from datasets.records import TRAIN, ContextRecord, QueryRecord
from datasets.source_files import find_files, read_contexts, read_queries, strict
from library.duplicates import Deduplicator, Identities
from library.formats import as_json, bibtex, citation, count_noun, table
from library.library import Contexts, Library, ReadFile, check_place
from library.models import model_files
from library.papers import LibraryPaper
from library.recommender import Recommender, add_papers, indexer, remove_papers
from library.settings import (
    AddSettings,
    AskSettings,
    BuildSettings,
    InfoSettings,
    RemoveSettings,
    UpdateSettings,
)
from library.sources import find_sources, read_source
from retrieval.base import folder_bytes

log = logging.getLogger(__name__)

SHOWN = 10
"""Broken records of a file, and collections, that are named."""
IN_THE_BOX = "the one in the box"


def build(settings: BuildSettings) -> Library:
    """Build a library."""
    path, started = Path(settings.library).expanduser(), time.perf_counter()
    check_place(path, settings.overwrite)
    files = find_sources(settings.source)
    cited = context_files(settings.contexts) if settings.contexts else []
    model_files(settings.model, settings.ranker)  # what is wrong is said before the papers are read
    ranked = f"{settings.model or IN_THE_BOX}, ranked by {settings.ranker}"
    path.absolute().parent.mkdir(parents=True, exist_ok=True)
    with Deduplicator(path.absolute().parent) as gathering:
        sources = _read(files, gathering)
        gathering.finish()
        library = Library.create(
            path,
            _counted(gathering),
            indexer=indexer(settings.model, settings.ranker),
            find=contexts_in(cited) if cited else None,
            overwrite=settings.overwrite,
            wait=settings.wait,
            model=ranked if settings.ranker else settings.model,
            sources=sources,
            contexts=[_hashed(file) for file in cited],
        )
    took = time.perf_counter() - started
    print(f"{path}: {count_noun(len(library))}, duplicates joined: {gathering.duplicates:,}, in {took:.1f} s")
    return library


def add(settings: AddSettings) -> Library:
    """Add the papers of files."""
    files = find_sources(settings.source)
    with (
        Library.changing(settings.library, settings.wait) as library,
        Deduplicator(library.path, library) as gathering,
    ):
        sources = _read(files, gathering, library.manifest.sources)
        gathering.finish()
        if not gathering.count:
            library.noted(sources=sources)
            print(f"{library.path}: nothing new; {count_noun(len(library))}")
            return library
        unread = [replace(file, hash="") for file in library.manifest.contexts]  # those of the new papers
        changed = add_papers(library, gathering, _counted(gathering), sources=sources, contexts=unread)
    fuller = len(gathering.replaced)
    print(
        f"{library.path}: {gathering.count - fuller:,} added, {fuller:,} fuller; {count_noun(len(changed))}"
    )
    return changed


def remove(settings: RemoveSettings) -> Library:
    """Remove papers, or sources."""
    if bool(settings.id) == bool(settings.source):
        raise InputError("remove: give id=[...], papers, or source=[...], files whose papers are to go")
    with Library.changing(settings.library, settings.wait) as library:
        if settings.source:
            return _read_again(library, _others(library, settings.source))
        changed = remove_papers(library, settings.id)
    print(f"{library.path}: {len(library) - len(changed):,} removed; {count_noun(len(changed))}")
    return changed


def update(settings: UpdateSettings) -> Library:
    """Read the sources again."""
    with Library.changing(settings.library, settings.wait) as library:
        sources = library.manifest.sources
        if not sources:
            raise InputError(f"{library.path}: was not built from files; recommend.py add adds some")
        known = [*sources, *library.manifest.contexts]
        if [_hashed(Path(source.path)) for source in known] == known:
            print(f"{library.path}: its files are unchanged; {count_noun(len(library))}")
            return library
        return _read_again(library, sources)


def _others(library: Library, names: Sequence[str]) -> list[ReadFile]:
    """The sources but those that are named, by file or folder; InputError for one that there is not."""
    left = library.manifest.sources
    for name in names:
        place = Path(name).expanduser().resolve()
        others = [source for source in left if place not in (Path(source.path), *Path(source.path).parents)]
        if len(others) == len(left):
            known = ", ".join(source.path for source in left) or "none"
            raise InputError(f"source={name}: is not a source of {library.path}; choose from {known}")
        left = others
    return left


def _read_again(library: Library, known: list[ReadFile]) -> Library:
    """The generation of what these sources hold now, and of papers that came without one."""
    with Deduplicator(library.path) as gathering:
        sources = _read([Path(source.path) for source in known], gathering)
        for row in np.flatnonzero(library.metadata["source"].to_numpy() < 0).tolist():
            gathering.add(library.paper(row))
        gathering.finish()
        kept, new, gone = _compared(library, gathering)
        if gone == len(library) and not new.any():
            raise InputError(f"{library.path}: no paper would be left; delete the folder instead")
        cited = [_hashed(Path(source.path)) for source in library.manifest.contexts]
        replaced = len(library) - len(kept) - gone
        if not (new.any() or gone or replaced) and cited == library.manifest.contexts:
            library.noted(sources=sources)
            print(f"{library.path}: no paper has changed; {count_noun(len(library))}")
            return library
        papers = compress(gathering.papers(), new)
        find = contexts_in([Path(source.path) for source in cited]) if cited else None
        changed = library.changed(kept, papers, indexer(), find, sources=sources, contexts=cited)
    counts = f"{new.sum() - replaced:,} added, {gone:,} removed, {replaced:,} replaced"
    print(f"{library.path}: {counts}; {count_noun(len(changed))}")
    return changed


def _compared(library: Library, gathering: Deduplicator) -> tuple[np.ndarray, np.ndarray, int]:
    """Rows whose papers are as they were; which of the gathered papers [N] are not; number of papers gone."""
    kept, new, seen = [], np.zeros(gathering.count, np.bool_), 0
    removed = set(library.manifest.removed)
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
    """Show what a library contains."""
    library = Library.open(settings.library)
    corpus, about, collections = library.corpus, library.manifest, library.collections
    years = corpus.years[corpus.years > 0]
    described = np.count_nonzero(corpus.abstract_tokens.lengths)
    lines = {
        "papers": f"{len(library):,}, {described:,} with an abstract",
        "years": f"{years.min()} to {years.max()}" if len(years) else "unknown",
        "contexts": f"{len(corpus.context_ids):,}" if len(corpus.context_ids) else "",
        "collections": ", ".join(collections[:SHOWN]) + (" ..." if len(collections) > SHOWN else ""),
        "sources": ", ".join(source.path for source in about.sources),
        "removed": f"{len(about.removed):,} by hand" if about.removed else "",
        "model": about.model or IN_THE_BOX,
        "size": f"{folder_bytes(library.folder) / 1e6:,.1f} MB",
        "generation": f"{about.generation}, of {about.changed}",
        "created": about.created,
    }
    print(library.path, *(f"  {name:12} {line}" for name, line in lines.items() if line), sep="\n")


def ask(settings: AskSettings) -> None:
    """Print the papers to cite; nothing else goes to stdout."""
    recommender = Recommender.open(settings.library, settings.reranker)
    options = ("title", "abstract", "k", "exclude", "only", "years", "collection", "venue", "explain")
    text = sys.stdin.read() if settings.text == "-" else settings.text
    found = recommender.recommend(text, **{name: getattr(settings, name) for name in options})
    if settings.format == "json":
        print(as_json(found))
    elif settings.format == "bibtex":
        library = recommender.library
        print(bibtex(library.paper(library.corpus.paper_row(paper.id)) for paper in found), end="")
    elif settings.format == "table":
        Console().print(table(found, settings.explain))
    else:
        print(citation([paper.key or paper.id for paper in found], settings.format))
    if not found:
        print(f"{settings.library}: no paper matches this passage", file=sys.stderr)


def _read(files: list[Path], gathering: Deduplicator, known: Iterable[ReadFile] = ()) -> list[ReadFile]:
    """Gather the papers of files; returns the known sources and those of the files, each once.

    Raises InputError for a file without a paper that can be used.
    """
    sources = {source.path: source for source in known}
    for file in files:
        bad: list[InputError] = []
        sources[str(file)], before = _hashed(file), len(gathering)
        for paper in read_source(file, bad.append):
            gathering.add(paper._replace(source=0))
        if len(gathering) == before:
            reason = f": {bad[0]}" if bad else ""
            raise InputError(f"{file}: has no usable paper{reason}")
        if bad:
            more = [f"... and {len(bad) - SHOWN:,} more"] if len(bad) > SHOWN else []
            lines = [*map(str, bad[:SHOWN]), *more]
            log.warning("%s: %d records were skipped\n  %s", file, len(bad), "\n  ".join(lines))
    return list(sources.values())


def _hashed(file: Path) -> ReadFile:
    if not file.exists():
        raise InputError(
            f"{file}: no such file, but the library was built from it; restore it, or remove its papers with "
            f"python recommend.py remove source={file}"
        )
    return ReadFile(str(file), file.stat().st_size, digest_file(file))


def _counted(gathering: Deduplicator) -> Iterator[LibraryPaper]:
    """The papers, with a bar on terminals."""
    with count_progress("papers", gathering.count) as advance:
        for paper in gathering.papers():
            yield paper
            advance(1)


def context_files(folder: str) -> list[Path]:
    """papers.json, contexts.json and train.json of a folder; InputError if one is missing."""
    path = Path(folder).expanduser()
    if not path.is_dir():
        raise InputError(
            f"contexts={folder}: no such folder; expected papers.json, contexts.json, train.json"
        )
    return [file.resolve() for file in find_files(path, None, [TRAIN]).values()]


def contexts_in(files: list[Path]) -> Contexts:
    """The training contexts that cite papers of a library, whichever ids the files have for these.

    Those of val and test are for evaluation. A citing paper that is not in the library is outside.
    """

    def find(
        identities: NDArray[np.uint64], ids: list[str]
    ) -> tuple[Iterator[ContextRecord], list[QueryRecord]]:
        papers, contexts, train = files
        known = {name: ids[row] for name, row in _rows(papers, identities).items()}
        cited = {
            query.context_id: dict.fromkeys(known[paper] for paper in query.positive_ids if paper in known)
            for query in strict(read_queries(train))
        }
        queries = [QueryRecord(context, list(papers)) for context, papers in cited.items() if papers]

        def found() -> Iterator[ContextRecord]:
            for context in strict(read_contexts(contexts)):
                if cited.get(context.id):
                    citing = known.get(context.citing_id, context.citing_id)
                    outside = context.citing_id not in known
                    yield context._replace(citing_id=citing, cited_id=None, outside=outside)

        return found(), queries

    return find


def _rows(papers: Path, identities: NDArray[np.uint64]) -> dict[str, int]:
    """Row in the library of each paper of a file that is there, by its id in the file."""
    both, named = Identities(identities), []
    for paper in read_source(papers, lambda _: None):
        both.add(paper)
        named.append(paper.id)
    leaders = both.leaders()[len(identities) :].tolist()
    return {name: row for name, row in zip(named, leaders, strict=True) if row < len(identities)}
