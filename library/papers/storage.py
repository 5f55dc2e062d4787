"""The papers of a library as its current generation keeps them: files that are mapped, and what ranks them.

checksums.json  of all files below; those of an index are in its own folder
corpus/         the prepared store of the papers (datasets.corpus), surnames as fields
records.*.npy   the other fields of each paper, in the order of the store, in MessagePack
identities.npy  hashed identifiers for deduplication (formats.same_work)
model/  index/  the ranking model and its index
search.sqlite   the index of library.papers.search

Every change writes all files anew, except the model, from the papers that stay of the old generation and from
new records. The contexts that cite papers are sentences of the library's full texts.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from citerec.base.checksums import CHECKSUMS, check_checksums, write_checksums
from citerec.base.errors import InputError, quoted
from citerec.base.files import link_or_copy, real_path
from citerec.base.progress import spinner
from citerec.datasets.columns import Column, ColumnWriter, load_array, save_arrays
from citerec.datasets.corpus import Corpus
from citerec.datasets.records import IN_TEXTS, ContextRecord, PaperRecord, QueryRecord, Source
from citerec.datasets.tokenize import TOKENIZER
from citerec.formats.bibliography.paper import LibraryPaper
from citerec.formats.letters import nfc, normalise_title, title_key
from citerec.library.evidence import DATABASE, FOLDER
from citerec.library.evidence.explanation import Explainer
from citerec.library.papers.folder import damaged, outdated
from citerec.library.papers.models import ENCODED, install_model, open_languages, open_model
from citerec.library.papers.search import SearchIndex
from citerec.rerank.ranker.model import Ranker
from citerec.retrieval.arrays import Rows
from citerec.retrieval.base import OtherIndex, Retriever
from citerec.retrieval.lexical.bm25 import BM25

if TYPE_CHECKING:
    from citerec.library.evidence.evidence import FullTexts
    from citerec.retrieval.queries import Query

CORPUS, RECORDS, IDENTITIES = "corpus", "records", "identities"
MODEL, RANKING = "model", "index/ranking"
_DECODER = msgspec.msgpack.Decoder(LibraryPaper)


def open_records(folder: Path) -> Column[LibraryPaper]:
    """Map the papers of a generation, without title and abstract. Raises OSError or ValueError for damage."""
    return Column(folder, RECORDS, _DECODER.decode)


def paper_at(row: int, records: Sequence[LibraryPaper], corpus: Corpus) -> LibraryPaper:
    """Return a paper with its title and abstract."""
    return records[row]._replace(title=corpus.titles[row], abstract=corpus.abstracts[row])


class UnknownPaper(InputError):
    """A paper that is asked for and not in the library."""


class Papers:
    """Papers of a library by row, id, citation key or alias, and those of them that a question may be about.

    Of a library in memory, these are all; of another, those returned are in memory, with rows of their own.
    """

    library: Path
    """Folder of the library, for messages."""

    def paper(self, row: int) -> LibraryPaper:
        """Return the paper of a row. Raises IndexError if the row does not exist."""
        raise NotImplementedError

    def row(self, name: str) -> int | None:
        """Return the row of the first paper with this id, citation key or alias; None if there is none."""
        return next(iter(self.rows_of(name)), None)

    def rows_of(self, name: str) -> list[int]:
        """Return the row of the paper with this id, or else those of all with this citation key or alias."""
        raise NotImplementedError

    def rows(self, names: Iterable[str], option: str = "id") -> Rows:
        """Return the rows of papers, ascending and unique; with the options id and key, one for each name.

        Raises InputError for an unknown paper, UnknownPaper for an unknown id or key.
        """
        found, is_one = list[int](), option in ("id", "key")
        for name in names:
            rows, where = self.rows_of(name), f"{option}={quoted(name)[1:-1]}"
            if not rows:
                kind = UnknownPaper if is_one else InputError
                raise kind(f"{where}: no paper of the library has this id or key")
            if is_one and len(rows) > 1:
                ids = ", ".join(self.paper(row).id for row in rows)
                raise InputError(f"{where}: several papers have this key; give one of their ids: {ids}")
            found += rows
        return np.unique(np.array(found, np.int64))

    def id_of(self, name: str) -> str | None:
        """Return the id of the paper with this id, citation key or alias; None if there is none."""
        return None if (row := self.row(name)) is None else self.paper(row).id


class Storage(Papers):
    """The papers [P] of a generation, one per row of `corpus`, and what ranks them.

    identities: formats.same_work.Identity of each paper [P, F]. records: the papers, maybe without title and
    abstract. lock: to be held while `retriever` or `text_search` searches, search_lock while `search_index`
    does.
    """

    def __init__(self, library: Path, folder: Path) -> None:
        """library, folder: of the library and of the generation. Raises InputError, OSError or ValueError for
        damage."""
        self.library, self.folder = library, folder
        self.check()
        self.records: Sequence[LibraryPaper] = open_records(folder)
        self.corpus = Corpus(folder / CORPUS, real_path(library).name)
        self.corpus.places = np.arange(len(self.corpus.paper_ids))  # rows in the library
        self.identities = load_array(folder, IDENTITIES)
        if len(self.records) != len(self.corpus.paper_ids):
            raise InputError("corpus and records differ in their number of papers")
        self.places = self.corpus.places
        self.lock, self.search_lock = threading.Lock(), threading.Lock()

    def check(self, trust: bool = True) -> None:
        """Raise InputError if a file differs from its checksum. trust: as for `check_checksums`."""
        if not (self.folder / CHECKSUMS).exists():
            raise InputError(f"{self.folder / CHECKSUMS}: missing")
        for sums in sorted(self.folder.rglob(CHECKSUMS)):
            check_checksums(sums.parent, trust=trust)

    # Papers.

    def __len__(self) -> int:
        return len(self.records)

    def paper(self, row: int) -> LibraryPaper:
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        return paper_at(row, self.records, self.corpus)

    def rows_of(self, name: str) -> list[int]:
        if self.corpus.has_paper(name):
            return [self.corpus.paper_row(name)]
        rows, shared = self.rows_by_name
        row = rows.get(name, rows.get(nfc(name)))
        return shared.get(name, [] if row is None else [row])

    def has_id(self, id: str) -> bool:
        """True if a paper of the whole library has this id."""
        return self.corpus.has_paper(id)

    def papers(self) -> Iterator[tuple[int, LibraryPaper]]:
        """Yield all rows and papers, in order."""
        return ((row, self.paper(row)) for row in range(len(self)))

    def named(self, names: Sequence[str]) -> Storage:
        """Return papers that include those of these ids, citation keys or aliases."""
        return self

    def related(self, records: Sequence[LibraryPaper]) -> Storage:
        """Return papers that include those that share an identifier or a key with any of the records."""
        return self

    def candidates(self, query: Query, depth: int, where: str = "", named: Sequence[str] = ()) -> Storage:
        """Return papers to rank for a query with a mark, including nearly all of the `depth` best.

        where: a condition on LanceDB's columns. named: ids and keys that are looked up, too.
        """
        return self

    def search_candidates(self, query: str) -> Storage:
        """Return papers to search for words of their title, authors, year, venue and key."""
        return self

    @cached_property
    def rows_by_name(self) -> tuple[dict[str, int], dict[str, list[int]]]:
        """Rows by key and alias, keys before aliases, earlier rows first; all rows of shared keys."""
        keys, aliases, shared = dict[str, int](), dict[str, int](), dict[str, list[int]]()
        for row, paper in enumerate(self.records):
            if paper.key and (first := keys.setdefault(paper.key, row)) != row:
                shared.setdefault(paper.key, [first]).append(row)
            for name in paper.aliases:
                aliases.setdefault(name, row)
        return aliases | keys, shared

    def titled(self, title: str) -> list[int]:
        """Return the rows of the papers with a title, letter by letter: a work, and versions of it."""
        letters = normalise_title(title)
        if not letters:
            return []
        from citerec.formats.same_work import Identity  # questions seldom have a title

        column = self.identities[:, Identity._fields.index("title")]
        rows = np.flatnonzero(column == np.uint64(title_key(letters))).tolist()
        return [row for row in rows if normalise_title(self.corpus.titles[row]) == letters]

    @cached_property
    def venues(self) -> list[str]:
        """The venue of each paper, case-folded."""
        return [paper.venue.casefold() for paper in self.records]

    @cached_property
    def members(self) -> dict[str, list[int]]:
        """The rows of the papers of each collection."""
        members: dict[str, list[int]] = {}
        for row, paper in enumerate(self.records):
            for name in paper.collections:
                members.setdefault(name, []).append(row)
        return members

    @property
    def collections(self) -> list[str]:
        """Names of all collections, sorted."""
        return sorted(self.members)

    @property
    def without_abstract(self) -> int:
        """Number of papers without an abstract."""
        return int(np.count_nonzero(self.corpus.abstract_tokens.lengths == 0))

    # What finds and explains them. Each raises InputError if its files are damaged or of another version.

    @cached_property
    def retriever(self) -> Retriever:
        """The ranking model, with its index of these papers."""
        try:
            retriever = open_model(self.folder / MODEL, self.library / ENCODED)
            retriever.load(self.folder / RANKING, self.corpus)
        except OtherIndex:
            raise outdated(self.library) from None
        except (InputError, OSError) as error:
            raise damaged(self.library, error, self.folder.name) from None
        texts = self.full_texts  # opened now, with any model
        if isinstance(retriever, Ranker):
            retriever.passages = texts
        return retriever

    @cached_property
    def languages(self) -> Ranker | None:
        """The ranker with the encoder of passages that are not in English; None unless both are there."""
        ranker = self.retriever
        if not isinstance(ranker, Ranker) or ranker.encoder is None:
            return None
        if (installed := open_languages(self.library)) is None:
            return None
        encoder, model = installed
        encoder.reads_all = ranker.encoder.reads_all
        return ranker.with_encoder(encoder.index(self.corpus), model)

    @cached_property
    def full_texts(self) -> FullTexts | None:
        """The full texts of the papers, if there are any."""
        if not (self.library / FOLDER / DATABASE).is_file():
            return None
        from citerec.library.evidence.evidence import FullTexts  # not needed by most libraries

        return FullTexts.open(self.library, self.corpus)

    @cached_property
    def explainer(self) -> Explainer:
        return self._explainer(self.retriever)

    @cached_property
    def languages_explainer(self) -> Explainer:
        """The explainer of what `languages` ranks."""
        return self._explainer(self.languages)

    def _explainer(self, retriever: Retriever | None) -> Explainer:
        if not isinstance(retriever, Ranker):
            return Explainer(self.corpus, full_texts=self.full_texts)
        return Explainer(self.corpus, retriever.statistics, self.full_texts, retriever.encoder)

    @cached_property
    def search_index(self) -> SearchIndex:
        try:
            return SearchIndex.open(self.folder)
        except (OSError, ValueError) as error:
            raise damaged(self.library, error, self.folder.name) from None

    @cached_property
    def text_search(self) -> BM25:
        """BM25 over titles and abstracts; shares the index of the retriever's BM25 if it has one."""
        parts = self.retriever.parts if isinstance(self.retriever, Ranker) else {"": self.retriever}
        for part in parts.values():
            if isinstance(part, BM25) and not part.reads_contexts:
                return part.with_query_fields(("context",))
        bm25 = BM25(query=("context",))
        bm25.index(self.corpus)
        return bm25


# Writing.

MAX_AUTHORS = 10
"""Maximum authors of a paper whose surnames are in the corpus; contexts name at most the first three."""


def record_of(paper: LibraryPaper) -> PaperRecord:
    """Return a paper as a corpus reads it, with surnames as fields."""
    names = filter(None, map(paper.surname, range(MAX_AUTHORS)))
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
    from citerec.datasets.prepare import prepare_store  # imported only to write, not to ask
    from citerec.formats.same_work import Identity, identity
    from citerec.library.evidence.citations import text_contexts

    library, stored, numbers = folder.parents[1], ColumnWriter(folder, RECORDS), array("Q")
    contexts, queries = list[ContextRecord](), list[QueryRecord]()
    if old and (library / FOLDER / DATABASE).is_file():
        papers = list(papers)
        titles = {old.corpus.paper_ids[row]: old.corpus.titles[row] for row in kept.tolist()}
        contexts, queries = text_contexts(library, titles | {paper.id: paper.title for paper in papers})
    digest, content = blake2b(digest_size=16), dict[str, str]()

    def records() -> Iterator[PaperRecord]:
        if old:
            digest.update(old.corpus.fingerprint.encode() + kept.tobytes())
            before, corpus, names = open_records(old.folder), old.corpus, list(old.corpus.field_names)
            for row in kept.tolist():
                stored.append(before.encoded(row))
                texts = corpus.paper_ids[row], corpus.titles[row], corpus.abstracts[row]
                fields = tuple(names[code] for code in corpus.fields[row])
                yield PaperRecord(*texts, int(corpus.years[row]), fields)
        for paper in papers:
            stored.append(msgspec.msgpack.encode(paper._replace(title="", abstract="")))  # in the corpus
            numbers.extend(identity(paper))
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
    identities = np.frombuffer(numbers, np.uint64).reshape(-1, len(Identity._fields))
    kept_ones = [old.identities[kept]] if old else []
    save_arrays(folder, **{IDENTITIES: np.concatenate([*kept_ones, identities])})
