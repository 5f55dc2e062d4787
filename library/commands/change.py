"""The commands that build, change and describe libraries."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from hashlib import blake2b
from itertools import compress
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from citerec.base.errors import InputError
from citerec.base.files import CHECKSUMS, digest_file, disk_errors, existing_file
from citerec.base.progress import count_progress
from citerec.datasets.formats.source_files import find_files, read_contexts, read_queries, reject_bad
from citerec.datasets.records import TRAIN, ContextRecord, QueryRecord
from citerec.library.drafts.contexts import draft_context_finder, draft_files, draft_parts
from citerec.library.duplicates import Deduplicator
from citerec.library.export.formats import count_noun
from citerec.library.identities import Identities
from citerec.library.library import (
    GENERATIONS,
    ContextFinder,
    Library,
    Manifest,
    ReadFile,
    check_target,
    read_manifest,
    rebuild_command,
)
from citerec.library.models import model_files
from citerec.library.papers import LibraryPaper
from citerec.library.recommender import add_papers, indexer, remove_papers
from citerec.library.settings import (
    AddSettings,
    BuildSettings,
    InfoSettings,
    RemoveSettings,
    VerifySettings,
)
from citerec.library.sources.readers import absolute_names, find_sources, read_source
from citerec.library.sources.zotero_places import is_zotero
from citerec.retrieval.base import folder_bytes

log = logging.getLogger(__name__)

LOSS = 0.2
"""Largest share of papers that a changed source may lose without `force`."""
DATA_SET = ("papers.json", "contexts.json", f"{TRAIN}.json")
SHOWN = 10
"""Maximum number of bad records per file, and of collections, to list."""


def build(settings: BuildSettings) -> Library:
    """Build a library."""
    started = time.perf_counter()
    library, duplicates = create(settings)
    path, duration = library.path, time.perf_counter() - started
    print(f"{path}: {count_noun(len(library))}, {duplicates:,} duplicates merged, in {duration:.1f} s")
    if lacking := int(np.count_nonzero(library.corpus.abstract_tokens.lengths == 0)):
        print(
            f"without an abstract, and so found less often: {lacking:,} of {count_noun(len(library))}; "
            f"citerec enrich library={path} looks them up"
        )
    return library


def create(settings: BuildSettings) -> tuple[Library, int]:
    """Build a library. Prints nothing. Returns it, and how many duplicates were merged."""
    path = Path(settings.library).expanduser()
    check_target(path, settings.overwrite)
    old, model, ranker = None, absolute(settings.model), absolute(settings.ranker)
    if settings.source:
        files, named = find_sources(settings.source), absolute_names(settings.source)
        cited = context_files(settings.contexts) if settings.contexts else []
    else:
        old = read_manifest(path)
        cited = [Path(file.path) for file in old.contexts]
        model, ranker = model or old.model, ranker or old.ranker
        if not old.named:
            raise InputError(f"{path}: was not built from files; give source=...")
        files, named = _find_again(old.named), old.named
        for file in cited:
            _describe_file(file)  # to report a missing one before the papers are read
    generations = path.resolve() / GENERATIONS
    if inside := [file for file in files if Path(file).is_relative_to(generations)]:
        raise InputError(f"source={inside[0]}: is a file of the library that it replaces; copy it elsewhere")
    model_files(model, ranker)  # to report errors before the papers are read
    with disk_errors(path, "the library", "library"), Deduplicator(path.absolute().parent) as records:
        sources = _read_sources(files, records)
        gone = 0 if old is None else _keep_papers_without_source(path, old, records)
        records.finish()
        if old is not None and not settings.force:
            _refuse_loss(path, old, old.counts.get("papers", 0) - gone - records.count, sources)
        library = Library.create(
            path,
            _with_progress(records),
            indexer=indexer(model, ranker),
            find_contexts=context_finder(cited) if cited else None,
            overwrite=settings.overwrite,
            wait=settings.wait,
            model=model,
            ranker=ranker,
            sources=sources,
            named=named,
            contexts=[_describe_contexts(file) for file in cited],
        )
    return library, records.duplicates


def absolute(model: str) -> str:
    """Return the absolute path of a model that is a path, so that it is found again from anywhere."""
    path = Path(model).expanduser()
    return str(path.resolve()) if model and path.exists() else model


def _keep_papers_without_source(path: Path, old: Manifest, records: Deduplicator) -> int:
    """Add the papers that came over HTTP or from Python. Return how many a damaged library has lost."""
    try:
        library = records.former = Library.open(path)
    except InputError:
        if lost := old.counts.get("without_source", 0):
            log.warning("%s: %s added without a file cannot be restored", path, count_noun(lost))
        return lost
    for row in np.flatnonzero(library.metadata["source"].to_numpy() < 0).tolist():
        records.add(library.paper(row))
    return 0


def _refuse_loss(path: Path, old: Manifest, removed: int, sources: Sequence[ReadFile]) -> None:
    """Raise InputError if files that have changed lose more than LOSS of the papers, as a half-written export
    does.
    """
    papers, changed = old.counts.get("papers", 0), [file.path for file in sources if file not in old.sources]
    if removed > LOSS * papers and changed:
        raise InputError(
            f"{path}: {removed:,} of {count_noun(papers)} would be removed, since {' and '.join(changed)} "
            "changed; check that it is complete, then confirm with force=true"
        )


def add(settings: AddSettings) -> Library:
    """Add the papers in files to a library."""
    files = find_sources(settings.source)
    with (
        Library.edit(settings.library, settings.wait) as library,
        Deduplicator(library.path, library) as records,
    ):
        sources = _read_sources(files, records, library.manifest.sources)
        named = list(dict.fromkeys([*library.manifest.named, *absolute_names(settings.source)]))
        records.finish()
        if not records.count:
            library.update_manifest(sources=sources, named=named)
            print(f"{library.path}: nothing new; {count_noun(len(library))}")
            return library
        # Without hashes, the next update reads the contexts again: they may cite the new papers.
        unread = [replace(file, hash="") for file in library.manifest.contexts]
        papers = _with_progress(records)
        changed = add_papers(library, records, papers, sources=sources, named=named, contexts=unread)
    completed = len(records.replaced)
    counts = f"{records.count - completed:,} added, {completed:,} completed"
    print(f"{library.path}: {counts}; {count_noun(len(changed))}")
    return changed


def remove(settings: RemoveSettings) -> Library:
    """Remove papers, or sources with their papers."""
    if bool(settings.id) == bool(settings.source):
        raise InputError("remove: give either id=[...] (papers) or source=[...] (files with their papers)")
    with Library.edit(settings.library, settings.wait) as library:
        if settings.source:
            return _reread(library, _remaining(library, settings.source), settings.force).tell()
        changed = remove_papers(library, settings.id)
    print(f"{library.path}: {len(library) - len(changed):,} removed; {count_noun(len(changed))}")
    return changed


class Change(NamedTuple):
    """The library after an update, and what it did; all zero if only contexts have changed, or nothing."""

    library: Library
    added: int = 0
    removed: int = 0
    replaced: int = 0
    written: bool = False
    """Whether there is a new generation."""

    def tell(self) -> Library:
        """Print it. Returns the library."""
        counts = f"{self.added:,} added, {self.removed:,} removed, {self.replaced:,} replaced"
        happened = counts if self.written else "nothing has changed"
        print(f"{self.library.path}: {happened}; {count_noun(len(self.library))}")
        return self.library


def refresh(path: str | Path, wait: bool = True, force: bool = False) -> Change:
    """Reread the sources of a library that have changed, and folders and patterns for new files.

    wait, force: as for the command `update`. Prints nothing. Raises InputError if it cannot.
    """
    with Library.edit(path, wait) as library:
        about = library.manifest
        if not about.named:
            raise InputError(f"{library.path}: has no source files; add some with citerec add")
        files = _find_again(about.named)
        read = [_describe_source(file) for file in files], describe_contexts(library)
        if read == (about.sources, about.contexts) and not any(map(is_zotero, files)):
            return Change(library)
        return _reread(library, about.named, force)


def _find_again(named: Sequence[str]) -> list[str]:
    """Return the files that a library's sources are now. Raises InputError for a source that is missing."""
    files: dict[str, None] = {}
    for name in named:
        try:
            files.update(dict.fromkeys(find_sources([name])))
        except InputError as error:
            raise InputError(
                f"{error}, but the library was built from it; restore it, or remove its papers with citerec "
                f"remove source={name}"
            ) from None
    return list(files)


def _remaining(library: Library, names: Sequence[str]) -> list[str]:
    """Return the sources without the named files and folders. Raises InputError for an unknown source.

    A folder or pattern of which some files remain is replaced by these.
    """
    left, known = library.manifest.named, [source.path for source in library.manifest.sources]
    for name in dict.fromkeys(names):
        [path] = absolute_names([name])
        gone = {other for other in (*left, *known) if other == path or Path(path) in Path(other).parents}
        if not gone:
            raise InputError(
                f"source={name}: is not a source of {library.path}; choose from {', '.join(left) or 'none'}"
            )
        parts: list[str] = []
        for other in left:
            files = [other] if other in known or other in gone else _find_again([other])
            parts += [other] if gone.isdisjoint(files) else [file for file in files if file not in gone]
        left = parts
    return left


def _reread(library: Library, named: list[str], force: bool) -> Change:
    """Write a generation with the current papers of these sources and those added without a source.

    force: without `_refuse_loss`.
    """
    with Deduplicator(library.path, former=library) as records:
        sources = _read_sources(_find_again(named), records)
        for row in np.flatnonzero(library.metadata["source"].to_numpy() < 0).tolist():
            records.add(library.paper(row))
        records.finish()
        kept, new, removed = _compare(library, records)
        if removed == len(library) and not new.any():
            raise InputError(f"{library.path}: no paper would be left; delete the folder instead")
        if not force:
            _refuse_loss(library.path, library.manifest, removed, sources)
        cited = describe_contexts(library)
        replaced = len(library) - len(kept) - removed
        if not (new.any() or removed or replaced) and cited == library.manifest.contexts:
            library.update_manifest(sources=sources, named=named)
            return Change(library)
        papers = compress(records.papers(), new)
        finder = context_finder([Path(source.path) for source in cited]) if cited else None
        fields = {"sources": sources, "named": named, "contexts": cited}
        changed = library.write_generation(kept, papers, indexer(), finder, **fields)
    return Change(changed, int(new.sum()) - replaced, removed, replaced, True)


def _compare(library: Library, records: Deduplicator) -> tuple[np.ndarray, np.ndarray, int]:
    """Return rows of unchanged papers, a mask of new or changed papers [N], and how many were removed."""
    kept, new, seen = [], np.zeros(records.count, np.bool_), 0
    removed = set(library.manifest.removed)
    for number, paper in enumerate(records.papers()):
        if paper.id in removed:
            continue
        row = library.corpus.paper_row(paper.id) if library.corpus.has_paper(paper.id) else None
        seen += row is not None
        if row is not None and library.paper(row) == paper:
            kept.append(row)
        else:
            new[number] = True
    return np.sort(np.array(kept, np.int64)), new, len(library) - seen


def verify(settings: VerifySettings) -> None:
    """Read every file of a library and compare it with its checksum."""
    library = Library.open(settings.library, trust=False)
    if not (library.folder / CHECKSUMS).exists():
        raise InputError(
            f"{library.path}: was built without checksums, so damage cannot be seen; build it again: "
            + rebuild_command(library.path)
        )
    size = folder_bytes(library.folder) / 1e6
    print(f"{library.path}: no damage; {count_noun(len(library))}, {size:,.1f} MB")


def info(settings: InfoSettings) -> None:
    """Show what a library contains."""
    library = Library.open(settings.library)
    corpus, about, collections = library.corpus, library.manifest, library.collections
    years = corpus.years[corpus.years > 0]
    abstracts = np.count_nonzero(corpus.abstract_tokens.lengths)
    lines = {
        "papers": f"{len(library):,}, {abstracts:,} with an abstract",
        "years": f"{years.min()} to {years.max()}" if len(years) else "unknown",
        "contexts": f"{len(corpus.context_ids):,}" if len(corpus.context_ids) else "",
        "collections": ", ".join(collections[:SHOWN]) + (" ..." if len(collections) > SHOWN else ""),
        "sources": ", ".join(about.named),
        "removed": f"{len(about.removed):,} manually" if about.removed else "",
        "model": about.ranking_model,
        "size": f"{folder_bytes(library.folder) / 1e6:,.1f} MB",
        "generation": f"{about.generation}, written {about.changed}",
        "created": about.created,
    }
    print(library.path, *(f"  {name:12} {line}" for name, line in lines.items() if line), sep="\n")


def _read_sources(files: list[str], records: Deduplicator, known: Iterable[ReadFile] = ()) -> list[ReadFile]:
    """Add the papers in files to `records`; return the known sources together with these files.

    Raises InputError for a file without a usable paper.
    """
    sources = {source.path: source for source in known}
    for file in files:
        sources[file] = _describe_source(file)
        for paper in read_papers(file):
            records.add(paper._replace(source=0))
    return list(sources.values())


def read_papers(file: str) -> Iterator[LibraryPaper]:
    """Yield the papers of a file and log its bad records. Raises InputError if no paper is usable."""
    bad: list[InputError] = []
    is_empty = True
    for paper in read_source(file, bad.append):
        is_empty = False
        yield paper
    if is_empty:
        reason = f": {bad[0]}" if bad else ""
        raise InputError(f"{file}: has no usable paper{reason}")
    if bad:
        more = [f"... and {len(bad) - SHOWN:,} more"] if len(bad) > SHOWN else []
        lines = [*map(str, bad[:SHOWN]), *more]
        count = count_noun(len(bad), "record")
        log.warning("%s: %s skipped or read only in part\n  %s", file, count, "\n  ".join(lines))


def _describe_source(source: str) -> ReadFile:
    """Describe a source. Zotero's have no hash: it would take as long as to read the papers."""
    return ReadFile(source, 0, "") if is_zotero(source) else _describe_file(Path(source))


def _describe_file(file: Path) -> ReadFile:
    if not file.exists():
        raise InputError(f"{file}: no such file, but the library was built from it; restore it")
    return ReadFile(str(file), file.stat().st_size, digest_file(file))


def _describe_contexts(file: Path) -> ReadFile:
    """Describe a file of contexts together with the files that it includes."""
    parts = [_describe_file(part) for part in draft_parts(file)]
    digest = blake2b("".join(part.hash for part in parts).encode(), digest_size=16).hexdigest()
    return ReadFile(str(file), sum(part.size for part in parts), digest if parts[1:] else parts[0].hash)


def describe_contexts(library: Library) -> list[ReadFile]:
    return [_describe_contexts(Path(file.path)) for file in library.manifest.contexts]


def _with_progress(records: Deduplicator) -> Iterator[LibraryPaper]:
    """Yield the papers, with a progress bar on terminals."""
    with count_progress("papers", records.count) as advance:
        for paper in records.papers():
            yield paper
            advance(1)


def context_files(name: str) -> list[Path]:
    """Return papers.json, contexts.json and train.json of a folder, or the drafts of a file or folder."""
    path = Path(name).expanduser()
    if not path.exists():
        raise InputError(
            f"contexts={name}: no such file or folder; give a draft (.tex, .md), a folder of drafts, or a "
            "folder with papers.json, contexts.json and train.json"
        )
    if path.is_file() or not [*path.glob("papers.json*"), *path.glob("contexts.json*")]:
        return draft_files(name)
    if lost := [file for file in DATA_SET if existing_file(path / file) is None]:
        raise InputError(
            f"contexts={name}: has no {' and no '.join(lost)}; a data set has {', '.join(DATA_SET)}"
        )
    return [file.resolve() for file in find_files(path, None, [TRAIN]).values()]


def context_finder(files: list[Path]) -> ContextFinder:
    """Return a function that finds the training contexts that cite a library's papers.

    Papers are matched by identity, since ids in the files may differ. A citing paper that is not in the
    library is marked as outside. Contexts of val and test are reserved for evaluation.
    """
    if not files[0].name.startswith("papers.json"):
        return draft_context_finder(files, context_finder)

    def find(
        identities: NDArray[np.uint64], ids: list[str]
    ) -> tuple[Iterator[ContextRecord], list[QueryRecord]]:
        papers, contexts, train = files
        known = {id: ids[row] for id, row in _library_rows(papers, identities).items()}
        cited = {
            query.context_id: dict.fromkeys(known[paper] for paper in query.positive_ids if paper in known)
            for query in reject_bad(read_queries(train))
        }
        queries = [QueryRecord(context, list(papers)) for context, papers in cited.items() if papers]

        def citing_contexts() -> Iterator[ContextRecord]:
            for context in reject_bad(read_contexts(contexts)):
                if cited.get(context.id):
                    citing = known.get(context.citing_id, context.citing_id)
                    outside = context.citing_id not in known
                    yield context._replace(citing_id=citing, cited_id=None, outside=outside)

        return citing_contexts(), queries

    return find


def _library_rows(papers: Path, identities: NDArray[np.uint64]) -> dict[str, int]:
    """Map ids in a file to library rows, for the papers that the library contains."""
    combined, ids = Identities(identities), []
    for paper in read_source(papers, lambda _: None):
        combined.add(paper)
        ids.append(paper.id)
    leaders = combined.leaders()[len(identities) :].tolist()
    return {id: row for id, row in zip(ids, leaders, strict=True) if row < len(identities)}
