"""Writes a generation of a library: every change writes all files anew, but for the model.

What the old generation knows of papers that stay, such as their tokens, is copied; they are not read again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from citerec.base.checksums import write_checksums
from citerec.base.files import link_or_copy
from citerec.base.progress import spinner
from citerec.datasets.columns import (
    TableWriter,
    save_arrays,
    table_batches,
)
from citerec.datasets.corpus import Corpus
from citerec.datasets.prepare import StoreBuilder, prepare_store
from citerec.datasets.records import ContextRecord, PaperRecord, QueryRecord, Source
from citerec.datasets.tokenize import TOKENIZER
from citerec.formats.bibliography.paper import LibraryPaper
from citerec.formats.names import surname
from citerec.library.papers.contexts import find_contexts
from citerec.library.papers.folder import outdated
from citerec.library.papers.merging import Identities
from citerec.library.papers.models import install_model, open_model
from citerec.library.papers.search import SearchIndex
from citerec.library.papers.storage import CORPUS, IDENTITIES, METADATA, MODEL, RANKING, SCHEMA, Storage
from citerec.retrieval.arrays import Rows
from citerec.retrieval.base import OtherIndex

MAX_AUTHORS = 10
"""Maximum authors of a paper whose surnames are in the corpus; contexts name at most the first three."""


@dataclass(frozen=True)
class GenerationWriter:
    """Writes a generation to a new folder.

    old: the generation that it replaces, whose model it gets; None for a new library. model, ranker: of a new
    library (library.papers.models). contexts: files that contexts are read from; None keeps those of the old
    generation's papers.
    """

    folder: Path
    old: Storage | None = None
    model: str = ""
    ranker: str = ""
    contexts: Sequence[Path] | None = None

    def write(self, kept: Rows, papers: Iterable[LibraryPaper]) -> dict[str, int]:
        """Write the old generation's rows `kept`, ascending, then papers. Returns counts for the manifest."""
        self.folder.mkdir()
        self._write_papers(kept, papers)
        corpus = Corpus(self.folder / CORPUS, self.folder.parents[1].resolve().name)
        self._write_index(corpus)
        _, batches = table_batches(self.folder / METADATA)
        SearchIndex.write(self.folder, corpus, batches)
        write_checksums(self.folder)
        source = pa.Table.from_batches(batches, SCHEMA)["source"]
        return {
            "papers": len(corpus.paper_ids),
            "contexts": len(corpus.context_ids),
            "without_source": int(np.count_nonzero(source.to_numpy() < 0)),
        }

    def _write_papers(self, kept: Rows, papers: Iterable[LibraryPaper]) -> None:
        """Write the corpus, metadata and identities."""
        old, folder, files = self.old, self.folder, self.contexts
        table = TableWriter(folder / METADATA, SCHEMA)
        identities = Identities(old.identities[kept] if old else None)
        ids = [old.corpus.paper_ids[row] for row in kept.tolist()] if old and files else []
        queries: list[Iterable[QueryRecord]] = []
        digest, content = hashlib.blake2b(digest_size=16), dict[str, str]()

        def records() -> Iterator[PaperRecord]:
            for paper in papers:
                table.append(*(getattr(paper, name) for name in SCHEMA.names))
                identities.add(paper)
                names = filter(None, map(surname, paper.authors[:MAX_AUTHORS]))
                record = PaperRecord(paper.id, paper.title, paper.abstract, paper.year, tuple(names))
                digest.update(repr(record).encode())
                if files:
                    ids.append(paper.id)
                yield record
            content["papers"] = digest.hexdigest()

        def contexts() -> Iterator[ContextRecord]:
            if files:
                citing, of_train = find_contexts(files, identities.numbers(), ids)
                queries.append(of_train)
                for context in citing:
                    digest.update(repr(context).encode())
                    yield context
            content["contexts"] = digest.hexdigest()

        def keep(builder: StoreBuilder) -> None:
            if old is not None:
                digest.update(old.corpus.fingerprint.encode() + kept.tobytes())
                table.append_rows(old.folder / METADATA, kept)
                builder.copy_from(old.corpus, kept, contexts=files is None)

        source = Source(
            name=folder.parents[1].name,
            identity=content,
            papers=records,
            contexts=contexts,
            splits={"train": queries.pop} if files else {},
        )
        settings = {"tokenizer": TOKENIZER, "candidates": "all", "field": "authors"}
        with closing(table):
            prepare_store(source, folder / CORPUS, settings, initialise=keep)
        save_arrays(folder, **{IDENTITIES: identities.numbers()})

    def _write_index(self, corpus: Corpus) -> None:
        """Write the model and its index."""
        if self.old is None:
            install_model(self.model, self.ranker, self.folder / MODEL)
        else:
            link_or_copy(self.old.folder / MODEL, self.folder / MODEL)
        with spinner("indexing (the first time may take a minute)"):
            try:
                open_model(self.folder / MODEL).index(corpus).save(self.folder / RANKING)
            except OtherIndex:
                raise outdated(self.folder.parents[1]) from None
