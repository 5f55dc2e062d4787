"""Writes a generation of a library in memory.

Every change writes all files anew, but for the model, from the papers that stay in the old generation and
from new records. Papers are cited by the sentences of the library's full texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from hashlib import blake2b
from pathlib import Path

import msgspec

from citerec.base.checksums import write_checksums
from citerec.base.files import link_or_copy
from citerec.base.progress import spinner
from citerec.datasets.columns import ColumnWriter, save_arrays
from citerec.datasets.corpus import Corpus
from citerec.datasets.prepare import prepare_store
from citerec.datasets.records import IN_TEXTS, ContextRecord, PaperRecord, QueryRecord, Source
from citerec.datasets.tokenize import TOKENIZER
from citerec.formats.bibliography.paper import LibraryPaper
from citerec.formats.names import surname
from citerec.library.evidence import DATABASE, FOLDER
from citerec.library.evidence.citations import text_contexts
from citerec.library.papers.folder import outdated
from citerec.library.papers.merging import Identities
from citerec.library.papers.models import install_model, open_model
from citerec.library.papers.search import SearchIndex
from citerec.library.papers.storage import (
    CORPUS,
    IDENTITIES,
    MODEL,
    RANKING,
    RECORDS,
    Storage,
    open_records,
    paper_at,
)
from citerec.retrieval.arrays import Rows
from citerec.retrieval.base import OtherIndex

MAX_AUTHORS = 10
"""Maximum authors of a paper whose surnames are in the corpus; contexts name at most the first three."""


def record_of(paper: LibraryPaper) -> PaperRecord:
    """Return a paper as a corpus reads it, with surnames as fields."""
    names = filter(None, map(surname, paper.authors[:MAX_AUTHORS]))
    return PaperRecord(paper.id, paper.title, paper.abstract, paper.year, tuple(names))


def write_generation(
    folder: Path,
    old: Storage | None,
    kept: Rows,
    papers: Iterable[LibraryPaper],
    model: str = "",
) -> dict[str, int]:
    """Write the old generation's rows `kept`, ascending, then papers, to a new folder. Returns counts for the
    manifest.

    old: the generation that it replaces, whose model it gets; None for a new library, of `model`
    (library.papers.models).
    """
    folder.mkdir()
    _write_papers(folder, old, kept, papers)
    corpus = Corpus(folder / CORPUS, folder.parents[1].resolve().name)
    if old is None:
        install_model(model, folder / MODEL)
    else:
        link_or_copy(old.folder / MODEL, folder / MODEL)
    with spinner("indexing"):
        try:
            open_model(folder / MODEL).index(corpus).save(folder / RANKING)
        except OtherIndex:
            raise outdated(folder.parents[1]) from None
    stored = open_records(folder)
    SearchIndex.write(folder, (paper_at(row, stored, corpus) for row in range(len(stored))))
    write_checksums(folder)
    return {"papers": len(corpus.paper_ids)}


def _write_papers(folder: Path, old: Storage | None, kept: Rows, papers: Iterable[LibraryPaper]) -> None:
    """Write the corpus, records and identities."""
    library, stored = folder.parents[1], ColumnWriter(folder, RECORDS)
    identities = Identities(old.identities[kept] if old else None)
    contexts, queries = list[ContextRecord](), list[QueryRecord]()
    if old and (library / FOLDER / DATABASE).is_file():
        papers = list(papers)
        titles = {old.corpus.paper_ids[row]: old.corpus.titles[row] for row in kept.tolist()}
        contexts, queries = text_contexts(library, titles | {paper.id: paper.title for paper in papers})
    digest, content = blake2b(digest_size=16), dict[str, str]()

    def records() -> Iterator[PaperRecord]:
        if old:
            digest.update(old.corpus.fingerprint.encode() + kept.tobytes())
            before = open_records(old.folder)
            for row in kept.tolist():
                stored.append(before.encoded(row))
            yield from _kept_papers(old.corpus, kept)
        for paper in papers:
            stored.append(msgspec.msgpack.encode(paper._replace(title="", abstract="")))  # in the corpus
            identities.add(paper)
            record = record_of(paper)
            digest.update(repr(record).encode())
            yield record
        digest.update(repr(contexts).encode())
        content["papers"] = digest.hexdigest()

    splits = {IN_TEXTS: lambda: queries} if queries else {}
    source = Source(library.name, content, records, lambda: contexts, splits)
    settings = {"tokenizer": TOKENIZER, "candidates": "all", "field": "authors"}
    with closing(stored):
        prepare_store(source, folder / CORPUS, settings)
    save_arrays(folder, **{IDENTITIES: identities.numbers()})


def _kept_papers(corpus: Corpus, papers: Rows) -> Iterator[PaperRecord]:
    """Yield the papers of a corpus that stay."""
    names = list(corpus.field_names)
    for row in papers.tolist():
        texts = corpus.paper_ids[row], corpus.titles[row], corpus.abstracts[row]
        yield PaperRecord(*texts, int(corpus.years[row]), tuple(names[code] for code in corpus.fields[row]))
