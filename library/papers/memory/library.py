"""A library in memory, for up to a million papers or so: files are mapped, the index is loaded whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import msgspec
import numpy as np

from citerec.base.errors import InputError
from citerec.base.files import expand_user
from citerec.formats.bibliography.paper import LibraryPaper
from citerec.library.ask.candidates import Candidates, Rows
from citerec.library.ask.question import Request
from citerec.library.evidence.index import check_texts
from citerec.library.evidence.refresh import FOLDER
from citerec.library.evidence.store import DATABASE
from citerec.library.evidence.vectors import ENCODED as OF_TEXTS
from citerec.library.papers.folder import (
    Manifest,
    ReadFile,
    damaged,
    generation_folder,
    lock_target,
    new_generation,
    now,
    write_manifest,
)
from citerec.library.papers.library import Added, Library
from citerec.library.papers.memory.contexts import describe_contexts
from citerec.library.papers.memory.generation import Generation, check_generation
from citerec.library.papers.memory.writer import GenerationWriter
from citerec.library.papers.merging import Deduplicator
from citerec.library.papers.models import MOST_ENCODED
from citerec.rerank.ranker.model import encoder_of
from citerec.retrieval.networks.encoder import NetworkRetriever

SHOWN = 10
"""Maximum number of collections to list."""


class MemoryLibrary(Generation, Library):
    """A library all of whose papers are candidates for each question."""

    encoded: ClassVar[tuple[str, ...]] = (*Library.encoded, f"{FOLDER}/{OF_TEXTS}")

    def __init__(self, path: Path, manifest: Manifest) -> None:
        folder = generation_folder(path, manifest)
        check_generation(folder)
        Library.__init__(self, path, manifest)
        Generation.__init__(self, path, folder)

    @classmethod
    def create(
        cls,
        path: str | Path,
        papers: Iterable[LibraryPaper],
        *,
        model: str = "",
        ranker: str = "",
        contexts: Sequence[Path] = (),
        overwrite: bool = False,
        wait: bool = True,
        **fields: Any,
    ) -> Self:
        """Create a library. Ids must be unique, and each paper needs a title or an abstract.

        model, ranker: as for `install_model`. contexts: of `context_files`. overwrite: replace an existing
        library. wait: for another process that changes it. fields: sources and names of the manifest.
        Raises InputError if the folder contains other files, or a library that must not be overwritten.
        """
        path = expand_user(path)
        with lock_target(path, overwrite, wait):
            about: dict[str, Any] = {"model": model, "ranker": ranker, "created": now(), "changed": now()}
            manifest = Manifest(**about, contexts=describe_contexts(contexts), **fields)
            kept = np.empty(0, np.int64)
            return cls._write(path, manifest, kept, papers, None, contexts or None)

    def write(
        self, kept: Rows, papers: Iterable[LibraryPaper], reread: Sequence[ReadFile] = (), **fields: Any
    ) -> Self:
        """Write the next generation: rows `kept`, ascending, then `papers`. Call it inside `edit`.

        reread: contexts to read again; without any, those of the kept papers are kept. fields: as for
        `update_manifest`.
        """
        manifest = msgspec.structs.replace(self.manifest, **fields)
        files = None
        if reread:
            manifest = msgspec.structs.replace(manifest, contexts=list(reread))
            files = [Path(file.path) for file in reread]
        return self._write(self.path, manifest, kept, papers, self, files)

    @classmethod
    def _write(
        cls,
        path: Path,
        manifest: Manifest,
        kept: Rows,
        papers: Iterable[LibraryPaper],
        old: Generation | None,
        contexts: Sequence[Path] | None,
    ) -> Self:
        """Write a new generation and make it the current one."""
        with new_generation(path) as (number, folder):
            writer = GenerationWriter(folder, old, manifest.model, manifest.ranker, contexts)
            counts = writer.write(kept, papers)
            new = msgspec.structs.replace(manifest, generation=number, changed=now(), counts=counts)
            write_manifest(path, new)
        return cls.open(path)

    def update_manifest(self, **fields: Any) -> None:
        """Change sources, contexts or removed in library.json. Call it inside `edit`."""
        write_manifest(self.path, msgspec.structs.replace(self.manifest, **fields))

    def load(self) -> None:
        _ = self.retriever

    @property
    def networks(self) -> NetworkRetriever | None:
        return encoder_of(self.retriever) if len(self) <= MOST_ENCODED else None

    def candidates(self, request: Request, depth: int) -> Candidates:
        return self

    def search_candidates(self, query: str) -> Candidates:
        return self

    def _reopened(self) -> Library:
        library = self.open(self.path)
        library.load()  # now, so that damage leaves this library open
        return library

    def add(
        self,
        records: Iterable[LibraryPaper],
        files: Sequence[str] = (),
        named: Sequence[str] = (),
        separate: Sequence[str] = (),
    ) -> Added:
        sources = {source.path: source for source in self.manifest.sources}
        apart = list(dict.fromkeys([*self.manifest.separate, *separate]))
        with Deduplicator(self.path, self, separate=apart) as merged:
            sources |= {file: ReadFile.of(file) for file in files}
            for paper in records:
                merged.add(paper)
            merged.finish()
            names = list(dict.fromkeys([*self.manifest.named, *named]))
            fields: dict[str, Any] = {"sources": list(sources.values()), "named": names, "separate": apart}
            if not merged.count:
                if files:
                    self.update_manifest(**fields)
                return Added(0, 0, len(self))
            kept = np.delete(np.arange(len(self)), merged.replaced)
            if self.manifest.removed:
                added = {paper.id for paper in merged.papers()}
                fields["removed"] = [id for id in self.manifest.removed if id not in added]
            # Without hashes, the next update reads the contexts again: they may cite the new papers.
            fields["contexts"] = [ReadFile(file.path, file.size, "") for file in self.manifest.contexts]
            new = self.write(kept, merged.papers_with_progress(), **fields)
            return Added(len(new) - len(self), len(merged.replaced), len(new))

    def remove(self, names: Iterable[str]) -> int:
        rows = self.rows(names)
        self.check_some_left(len(rows))
        ids = [self.corpus.paper_ids[row] for row in rows.tolist()]
        removed = list(dict.fromkeys([*self.manifest.removed, *ids]))
        self.write(np.delete(np.arange(len(self)), rows), (), removed=removed)
        return len(rows)

    def merged_papers(self) -> Iterator[LibraryPaper]:
        """Yield the papers that other records were merged into."""
        lengths = self.metadata["aliases"].combine_chunks().value_lengths().to_numpy()
        papers = map(self.paper, np.flatnonzero(lengths).tolist())
        return (paper for paper in papers if paper.merged_names)

    def verify(self) -> None:
        try:
            check_generation(self.folder, trust=False)
        except InputError as error:
            raise damaged(self.path, error) from None
        super().verify()
        if (texts := self.path / FOLDER / DATABASE).is_file():
            check_texts(texts.parent)

    def describe_texts(self) -> str:
        texts = self.full_texts
        if texts is None:
            return ""
        return f"{len(texts.index.papers):,} papers, {len(texts.index):,} passages"

    def describe(self) -> dict[str, str]:
        corpus, collections = self.corpus, self.collections
        years, contexts = corpus.years[corpus.years > 0], len(corpus.context_ids)
        lines = super().describe()
        abstracts = np.count_nonzero(corpus.abstract_tokens.lengths)
        return {
            "papers": f"{lines.pop('papers')}, {abstracts:,} with an abstract",
            "years": f"{years.min()} to {years.max()}" if len(years) else "unknown",
            "contexts": f"{contexts:,}" if contexts else "",
            "collections": ", ".join(collections[:SHOWN]) + (" ..." if len(collections) > SHOWN else ""),
            **lines,
        }


def in_memory(library: Library) -> MemoryLibrary:
    """Return a library by its class, the only one there is."""
    assert isinstance(library, MemoryLibrary)
    return library
