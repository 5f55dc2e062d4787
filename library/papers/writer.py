"""Writes a generation of a library: its papers, and where they are cited.

Every change writes all files anew, but for the model, from the papers that stay in the old generation and
from new records.

Contexts are those of a data set, or of the user's own drafts and earlier papers, in any format that `citerec
data build` reads. Papers are matched by identity, since ids in the files may differ. A citing paper that is
not in the library is marked as outside. Contexts of val and test are reserved for evaluation.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from citerec.base.checksums import write_checksums
from citerec.base.errors import InputError
from citerec.base.files import existing_file, expand_user, link_or_copy, real_path
from citerec.base.progress import spinner
from citerec.datasets.columns import (
    BATCH_ROWS,
    TableWriter,
    save_arrays,
    table_batches,
)
from citerec.datasets.corpus import Corpus
from citerec.datasets.files.source_files import find_files as find_data
from citerec.datasets.files.source_files import read_contexts, read_queries
from citerec.datasets.prepare import prepare_store
from citerec.datasets.records import IN_TEXTS, TRAIN, ContextRecord, PaperRecord, QueryRecord, Source
from citerec.datasets.tokenize import TOKENIZER
from citerec.formats.bibliography.paper import LibraryPaper
from citerec.formats.drafts.inputs import record_files
from citerec.formats.names import surname
from citerec.library.evidence.citations import text_contexts
from citerec.library.papers.folder import Manifest, ReadFile, outdated
from citerec.library.papers.merging import Identities
from citerec.library.papers.models import install_model, open_model
from citerec.library.papers.search import SearchIndex
from citerec.library.papers.storage import CORPUS, IDENTITIES, METADATA, MODEL, RANKING, SCHEMA, Storage
from citerec.library.sources.readers import read_source
from citerec.retrieval.arrays import Rows
from citerec.retrieval.base import OtherIndex

log = logging.getLogger(__name__)

MAX_AUTHORS = 10
"""Maximum authors of a paper whose surnames are in the corpus; contexts name at most the first three."""


def record_of(paper: LibraryPaper) -> PaperRecord:
    """Return a paper as a corpus reads it, with surnames as fields."""
    names = filter(None, map(surname, paper.authors[:MAX_AUTHORS]))
    return PaperRecord(paper.id, paper.title, paper.abstract, paper.year, tuple(names))


@dataclass(frozen=True)
class GenerationWriter:
    """Writes a generation to a new folder.

    old: the generation that it replaces, whose model it gets; None for a new library. model, ranker: of a new
    library (library.papers.models). contexts: files that contexts are read from, beside the full texts of
    the old generation's papers; None keeps those of these papers.
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
        staying = _kept_contexts(old.corpus, kept) if old and not files else ([], [])
        in_texts: tuple[list[ContextRecord], list[QueryRecord]] = [], []
        if old is not None and files is None:
            in_texts = _kept_contexts(old.corpus, kept, IN_TEXTS)
        elif old is not None:
            titles = {old.corpus.paper_ids[row]: old.corpus.titles[row] for row in kept.tolist()}
            in_texts = text_contexts(folder.parents[1], titles)
        queries: list[QueryRecord] = []
        digest, content = hashlib.blake2b(digest_size=16), dict[str, str]()

        def records() -> Iterator[PaperRecord]:
            if old:
                digest.update(old.corpus.fingerprint.encode() + kept.tobytes())
                for batch in old.metadata.take(pa.array(kept)).combine_chunks().to_batches(BATCH_ROWS):
                    table.extend(batch.columns)
                yield from _kept_papers(old.corpus, kept)
            for paper in papers:
                table.append(*(getattr(paper, name) for name in SCHEMA.names))
                identities.add(paper)
                record = record_of(paper)
                digest.update(repr(record).encode())
                if files:
                    ids.append(paper.id)
                yield record
            content["papers"] = digest.hexdigest()

        def contexts() -> Iterator[ContextRecord]:
            citing, cited = find_contexts(files, identities.numbers(), ids) if files else staying
            queries.extend(cited)
            for context in chain(citing, in_texts[0]):
                digest.update(repr(context).encode())
                yield context
            content["contexts"] = digest.hexdigest()

        source = Source(
            name=folder.parents[1].name,
            identity=content,
            papers=records,
            contexts=contexts,
            splits=({TRAIN: lambda: queries} if files or staying[1] else {})
            | ({IN_TEXTS: lambda: in_texts[1]} if in_texts[1] else {}),
        )
        settings = {"tokenizer": TOKENIZER, "candidates": "all", "field": "authors"}
        with closing(table):
            prepare_store(source, folder / CORPUS, settings)
        save_arrays(folder, **{IDENTITIES: identities.numbers()})

    def _write_index(self, corpus: Corpus) -> None:
        """Write the model and its index."""
        if self.old is None:
            install_model(self.model, self.ranker, self.folder / MODEL)
        else:
            link_or_copy(self.old.folder / MODEL, self.folder / MODEL)
        with spinner("indexing"):
            try:
                open_model(self.folder / MODEL).index(corpus).save(self.folder / RANKING)
            except OtherIndex:
                raise outdated(self.folder.parents[1]) from None


# Where papers are cited.

DATA_SET = ("papers.json", "contexts.json", f"{TRAIN}.json")
MADE = ("papers.json.gz", "contexts.json.gz", "train.json")
"""Files of the data set that is made from drafts."""


def context_files(name: str) -> list[Path]:
    """Return papers.json, contexts.json and train.json of a folder, or the drafts of a file or folder.

    Raises InputError if there are none.
    """
    path = expand_user(name)
    if not os.path.exists(path):
        raise InputError(
            f"contexts={name}: no such file or folder; give a draft (.tex, .md), a folder of drafts, or a "
            "folder with papers.json, contexts.json and train.json"
        )
    if os.path.isfile(path) or not [*path.glob("papers.json*"), *path.glob("contexts.json*")]:
        from citerec.datasets.building.readers import find_files

        try:
            return [real_path(file.path) for file in find_files(name)]
        except InputError as error:
            raise InputError(str(error).replace("source: ", "contexts=", 1)) from None
    if lost := [file for file in DATA_SET if existing_file(path / file) is None]:
        raise InputError(
            f"contexts={name}: has no {' and no '.join(lost)}; a data set has {', '.join(DATA_SET)}"
        )
    return [real_path(file) for file in find_data(path, None, [TRAIN]).values()]


def describe_contexts(files: Iterable[Path]) -> list[ReadFile]:
    """Describe files of contexts, each together with the files that it includes."""
    described = []
    for file in files:
        parts = [ReadFile.of(part) for part in _draft_parts(file)]
        digest = blake2b("".join(part.hash for part in parts).encode(), digest_size=16).hexdigest()
        described.append(
            ReadFile(str(file), sum(part.size for part in parts), digest if parts[1:] else parts[0].hash)
        )
    return described


def current_contexts(manifest: Manifest) -> list[ReadFile]:
    """Describe a library's files of contexts as they are now."""
    return describe_contexts(Path(file.path) for file in manifest.contexts)


def _draft_parts(file: Path) -> list[Path]:
    """Return the files of a draft: itself, inputs or chapters, and bibliographies."""
    from citerec.datasets.building.readers import SourceFile, read_documents
    from citerec.formats.drafts.languages import language_of

    parts = [file]
    if language_of(file.suffix):
        with record_files() as read, suppress(InputError):  # building reports it
            for document in read_documents(SourceFile(file, ""), lambda _: None):
                document.entries()
        parts += [real_path(part) for part in read if real_path(part) != real_path(file)]
    return list(dict.fromkeys(parts))


def find_contexts(
    files: Sequence[Path], identities: NDArray[np.uint64], ids: Sequence[str]
) -> tuple[Iterable[ContextRecord], Iterable[QueryRecord]]:
    """Return the training contexts that cite a library's papers, and the cited papers per context.

    files: of `context_files`. identities [P, F], ids [P]: of the papers.
    """
    if files[0].name.startswith(DATA_SET[0]):
        return _find_in_data(files, identities, ids)
    with TemporaryDirectory() as place:
        _write_data(files, Path(place))
        made = [Path(place) / name for name in MADE]
        contexts, queries = _find_in_data(made, identities, ids)
        return list(contexts), queries  # the files are removed


def _kept_papers(corpus: Corpus, papers: Rows) -> Iterator[PaperRecord]:
    """Yield the papers of a corpus that stay."""
    names = list(corpus.field_names)
    for row in papers.tolist():
        texts = corpus.paper_ids[row], corpus.titles[row], corpus.abstracts[row]
        yield PaperRecord(*texts, int(corpus.years[row]), tuple(names[code] for code in corpus.fields[row]))


def _kept_contexts(
    corpus: Corpus, papers: Rows, of_split: str = TRAIN
) -> tuple[list[ContextRecord], list[QueryRecord]]:
    """Return the contexts of a split of a corpus among the papers that stay, as `find_contexts` does."""
    stays = np.zeros(len(corpus.paper_ids), np.bool_)
    stays[papers] = True
    contexts: list[ContextRecord] = []
    queries: list[QueryRecord] = []
    if (split := corpus.splits.get(of_split)) is None:
        return contexts, queries
    for row, positives in zip(split.contexts.tolist(), split.positives, strict=True):
        citing = int(corpus.citing[row])
        cited = [corpus.paper_ids[paper] for paper in positives.tolist() if stays[paper]]
        if cited and (citing < 0 or stays[citing]):
            id, by = corpus.context_ids[row], str(citing) if citing < 0 else corpus.paper_ids[citing]
            contexts.append(ContextRecord(id, corpus.context_texts[row], by, outside=citing < 0))
            queries.append(QueryRecord(id, cited))
    return contexts, queries


def _find_in_data(
    files: Sequence[Path], identities: NDArray[np.uint64], ids: Sequence[str]
) -> tuple[Iterator[ContextRecord], list[QueryRecord]]:
    papers, contexts, train = files
    ids_here = {id: ids[row] for id, row in _library_rows(papers, identities).items()}
    cited = {
        query.context_id: dict.fromkeys(ids_here[paper] for paper in query.positive_ids if paper in ids_here)
        for query in read_queries(train)
    }
    queries = [QueryRecord(context, list(papers)) for context, papers in cited.items() if papers]

    def citing_contexts() -> Iterator[ContextRecord]:
        for context in read_contexts(contexts):
            if cited.get(context.id):
                citing = ids_here.get(context.citing_id, context.citing_id)
                outside = context.citing_id not in ids_here
                yield context._replace(citing_id=citing, cited_id=None, outside=outside)

    return citing_contexts(), queries


def _library_rows(papers: Path, identities: NDArray[np.uint64]) -> dict[str, int]:
    """Map ids in a file to library rows, for the papers that the library contains."""
    combined, ids = Identities(identities), []
    for paper in read_source(papers, lambda _: None):
        combined.add(paper)
        ids.append(paper.id)
    leaders = combined.leaders()[len(identities) :].tolist()
    return {id: row for id, row in zip(ids, leaders, strict=True) if row < len(identities)}


def _write_data(files: Sequence[Path], folder: Path) -> None:
    """Write the contexts of drafts, whose bibliographies need titles only.

    Unreadable drafts are logged; InputError if no context is left.
    """
    from citerec.datasets.building.collection import BuildReport, SkippedRecords, write_corpus
    from citerec.datasets.building.contexts import ContextRules
    from citerec.datasets.building.readers import SourceFile
    from citerec.datasets.splitting import RandomSplitting

    rules, skipped = ContextRules(candidates="title"), SkippedRecords(max_share=1)
    report = BuildReport(asdict(rules), skipped=skipped)
    drafts = [SourceFile(file, "_".join((str(n), *file.stem.split()))) for n, file in enumerate(files)]
    try:
        write_corpus(folder, drafts, RandomSplitting(1, 0, 0, seed=0), rules, report)
    except InputError as error:
        raise InputError(str(error).replace("source: ", f"contexts={files[0]}: ", 1)) from None
    for example in skipped.examples:
        log.warning("skipped %s", example)
