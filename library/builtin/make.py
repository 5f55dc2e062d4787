"""Makes the ranker of the built-in model, over its static model and the networks in its folder, which
`citerec model networks` writes:

    python -m citerec.library.builtin.make static=... drafts=... 'data=[...]'

The ranker is fitted to the lists of queries that no part of it was trained on: citations of drafts of part
`fit` over their authors' bibliographies, and validation contexts of data sets over samples of their papers;
with texts=, also over papers that have full texts. Confidences are fitted to the drafts. Drafts of part
`check` show how well it ranks. With ablation=true, nothing is written: it prints what each feature brings.
`make builtin` trains all of it.
"""

from __future__ import annotations

import copy
import json
import logging
import random
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from citerec.base.arguments import command
from citerec.base.errors import InputError
from citerec.base.files import atomic_write
from citerec.base.progress import count_progress
from citerec.base.settings import Settings, cache_setting
from citerec.datasets.columns import Ragged
from citerec.datasets.corpus import Corpus, Split
from citerec.datasets.prepare import open_corpus, prepare_store
from citerec.datasets.published.drafts import LIST, read_list
from citerec.datasets.records import TRAIN, ContextRecord, PaperRecord, QueryRecord, Source
from citerec.formats.articles.pdf_layout import PdfParagraph
from citerec.formats.bibliography.paper import LibraryPaper
from citerec.hatten.static.model import StaticModel, StaticRetriever
from citerec.library.benchmark.collection import find_drafts, make_library, quiet, sample_queries
from citerec.library.evidence import FOLDER
from citerec.library.evidence.evidence import FullTexts
from citerec.library.evidence.index import update_index
from citerec.library.evidence.reading import ReadText
from citerec.library.evidence.store import TextStore
from citerec.library.papers.library import Library
from citerec.library.papers.models import BUILT_IN, NETWORKS
from citerec.rerank.ranker.linear import LinearModel, TrainingLists, fit_ranker
from citerec.rerank.ranker.model import Ranker, RankingModel
from citerec.rerank.ranker.networks import NetworkModel, Rescoring
from citerec.rerank.ranker.training import (
    CONTEXT,
    DEPTH,
    SENTENCE,
    WHOLE,
    WITH_TITLE,
    WRITTEN,
    Measures,
    fit_networks,
    measure_read,
    measure_ways,
    read_lists,
    training_split,
    without_abstracts,
)
from citerec.rerank.settings import RankerSettings
from citerec.retrieval.arrays import Mask, Rows
from citerec.retrieval.base import folder_bytes
from citerec.retrieval.networks.encoder import ENCODER, NetworkRetriever
from citerec.retrieval.networks.networks import Networks
from citerec.retrieval.networks.store import VectorStore
from citerec.retrieval.queries import Queries, Query

log = logging.getLogger(__name__)

SEED, FITTING = 0, RankerSettings(l2=1e-2)
LARGEST = 12_000_000
"""Maximum size of the model without its networks, in bytes."""
FIT, CHECK = "fit", "check"
"""Parts of the list of drafts."""
DRAFTS, TITLES = "drafts", "titles of drafts"
"""Sources of lists: a draft over its author's bibliography, and over the same without abstracts; the former
also as WRITTEN so far."""
ASKED_AS = (SENTENCE, CONTEXT, WITH_TITLE, WHOLE)
"""Kinds of queries, which take turns."""
DRAFT_QUERIES, DATA_QUERIES, TEXT_QUERIES = 20, 320, 320
"""Queries of each draft, of each split of a data set, and over papers with full texts."""
PAPERS, SHARE = 5000, 0.5
"""Number of papers of a data set that are searched; share of their abstracts, of the training contexts that
cite them, and of full texts that is kept, as libraries have only some of these."""
FIRST_DRAFT = 1 << 30
"""Stands for the first draft where lists have rows of citing papers."""
_LEFT_OUT = ("abstract", "references", "acknowledg", "bibliograph")
"""Beginnings of the titles of sections that are not read."""


@dataclass(frozen=True, kw_only=True)
class BuiltInSettings(Settings):
    """Make the built-in model."""

    drafts: str
    """folder of drafts (citerec data drafts list=library/builtin/drafts-unseen.yaml)"""
    data: tuple[str, ...] = ()
    """folders as in data=custom; contexts that keep names are read from val_named, if present"""
    texts: str = ""
    """folder with full texts NAME.xml in ScisummNet's format, NAME a paper of the first data set"""
    static: str = ""
    """static model, written by hatten.static.compress (e.g. outputs/builtin/static); "": the one in output"""
    ablation: bool = False
    """only print what each feature brings"""
    lists: str = ""
    """folder that keeps the lists: those that are there are not read again; delete it when a model changes"""
    cache_dir: str = cache_setting()
    """cache for prepared data and for the encoder's vectors of papers"""
    output: str = str(BUILT_IN)
    """folder of the built-in model"""


def make(settings: BuiltInSettings) -> None:
    """Fit the ranker, and print how it ranks the drafts of both parts."""
    folder = Path(settings.output)
    if settings.static:
        static = StaticModel.open(settings.static)
        static.save(folder / static.folder)
    networks = Networks.open(folder / NETWORKS)
    store = VectorStore(Path(settings.cache_dir) / "encoded", networks.identity, networks.dim)
    reader = ListReader(settings, NetworkRetriever(networks, store))
    others = [reader.kept(Path(path).name, partial(reader.read_data, path)) for path in settings.data]
    if settings.texts:
        others.append(reader.kept(f"{Path(settings.data[0]).name} texts", reader.read_texts))
    if networks.scores_pairs:  # for the first papers of the ranking without them
        lists = TrainingLists.concat(reader.read_drafts(FIT, written=False) + others)
        read = NetworkModel(fit_ranker(FITTING, lists), Rescoring(DEPTH, 0.0))
        reader = replace(reader, model=RankingModel(LinearModel({}, {}), networks=read))
    lists = TrainingLists.concat(reader.read_drafts(FIT) + others)
    fitted = fit_networks(FITTING, lists, _of_drafts(lists), SEED)
    if settings.ablation:
        print_ablation(lists)
        return
    model = RankingModel(fitted.model, fitted.confidence, networks=fitted.networks)
    provenance = {
        "data": ", ".join(dict.fromkeys(lists.source.tolist())),
        "split": "val",
        "lists": dict(Counter(lists.source.tolist())),
        "settings": {"l2": FITTING.l2, "folds": FITTING.folds, "seed": SEED},
        "networks": dict(networks.hashes),
        "hash": model.parameters_hash,
    }
    replace(model, about=provenance).save(folder / RankingModel.folder)
    _print(fitted.measures, f"{FIT}, cross-fitted")
    if check := reader.read_drafts(CHECK):
        _print(measure_ways(fitted, TrainingLists.concat(check)), CHECK)
    size = folder_bytes(folder / StaticModel.folder) + folder_bytes(folder / RankingModel.folder)
    print(f"{folder}: {folder_bytes(folder) / 1e6:.1f} MB, {size / 1e6:.1f} MB without networks")
    if size > LARGEST:
        raise InputError(f"{folder}: more than {LARGEST / 1e6:.0f} MB; compress the model to fewer words")


def _of_drafts(lists: TrainingLists) -> Mask:
    """Which lists are of drafts, [Q]."""
    return np.isin(lists.source, (DRAFTS, TITLES, WRITTEN))


@dataclass(frozen=True)
class ListReader:
    """Reads the lists of queries over libraries, with a static model and an encoder.

    encoder: of the networks. model: of the ranking whose first papers the cross-encoder reads; None: it reads
    none.
    """

    settings: BuiltInSettings
    encoder: NetworkRetriever
    model: RankingModel | None = None

    def _over(self, corpus: Corpus) -> Ranker:
        static = StaticRetriever(Path(self.settings.output) / StaticModel.folder)
        return copy.deepcopy(Ranker.over(static, self.model, {ENCODER: self.encoder})).index(corpus)

    def kept(self, name: str, read: Callable[[], TrainingLists]) -> TrainingLists:
        """Return the lists in a file of settings.lists, or else read them, and write the file."""
        pairs = ".pairs" if self.model is not None else ""
        file = Path(self.settings.lists) / f"{name}{pairs}.npz" if self.settings.lists else None
        if file is not None and file.is_file():
            return load_lists(file)
        lists = read()
        if file is not None:
            with atomic_write(file) as part, part.open("wb") as out:
                np.savez(out, **asdict(lists))
        return lists

    def read_drafts(self, part: str, written: bool = True) -> list[TrainingLists]:
        """Read the lists of at most DRAFT_QUERIES masked citations of each draft of a part of the list.

        They are asked over its author's bibliography, and over the same without abstracts, and as written so
        far.
        """
        listed = read_list(Path(self.settings.drafts) / LIST)
        names = [draft.name for draft in listed if draft.part == part]
        lists = []
        with count_progress("reading lists of drafts", len(names)) as advance:
            for number, name in enumerate(names):
                for is_written in (False, True)[: 1 + written]:
                    read = partial(self._read_draft, name, number, is_written)
                    lists.append(self.kept(f"{name} written" if is_written else name, read))
                advance(1)
        return lists

    def _read_draft(self, name: str, number: int, is_written: bool) -> TrainingLists:
        """Read the lists of a draft's citations, without papers that the same sentence cites, as in `citerec
        draft`. is_written: only what stands before the mark is known."""
        with TemporaryDirectory() as place, quiet(logging.ERROR):
            [draft], _ = find_drafts(Path(self.settings.drafts), names=[name])
            library = make_library(draft.bibs, Path(place) / "library")
            titled = library.mapped.titled(draft.draft.title)
            own = next((library.corpus.paper_ids[row] for row in titled), None)
            asked, positives, beside = sample_queries(draft, library, DRAFT_QUERIES, is_written)
            asked, parts = [replace(query, own=own) for query in asked], []
            over = {WRITTEN if is_written else DRAFTS: library.corpus}
            if not is_written:
                over[TITLES] = without_abstracts(library.corpus)
            for source, corpus in over.items():
                queries = Queries.from_list(corpus, asked)
                queries = replace(queries, positives=Ragged.from_rows(positives))
                lists = self._read(self._over(corpus), queries, source)
                rows = zip(lists.query.tolist(), lists.papers.tolist(), strict=True)
                offered = np.array([paper not in beside[query] for query, paper in rows], np.bool_)
                parts.append(lists.keep(offered | lists.cited))
        lists = TrainingLists.concat(parts)
        # Cross-fitting keeps the lists of a draft together.
        return replace(lists, citing=np.full(len(lists), FIRST_DRAFT + number, np.int32))

    def _read(self, ranker: Ranker, queries: Queries, source: str) -> TrainingLists:
        asked_as = (WHOLE,) if source == WRITTEN else ASKED_AS
        return read_lists(ranker, queries, source, asked_as, pairs=self.model is not None)

    def read_data(self, path: str) -> TrainingLists:
        """Read the lists of validation contexts of a data set over a sample of its papers.

        A SHARE of the abstracts and of the training contexts is left out at random, because libraries have
        some of these.
        """
        splits = [name for name in (TRAIN, "val", "val_named") if (Path(path) / f"{name}.json").is_file()]
        corpus, rng = self._open(path, splits), np.random.default_rng(SEED)
        asked = {name: training_split(corpus, name, DATA_QUERIES, SEED) for name in splits if name != TRAIN}
        cited = np.unique(np.concatenate([split.positives.values for split in asked.values()]))
        others = rng.permutation(np.setdiff1d(np.arange(len(corpus.paper_ids)), cited))
        papers = np.union1d(cited, others[: max(PAPERS - len(cited), 0)])
        train = corpus.split(TRAIN)
        inside = np.isin(train.positives.values, papers)
        chosen = np.logical_and.reduceat(inside, train.positives.offsets[:-1])
        chosen &= rng.random(len(train)) < SHARE
        titles_only = rng.random(len(corpus.paper_ids)) < SHARE
        with TemporaryDirectory() as place:
            part = copy_part(
                corpus,
                papers,
                titles_only,
                {**asked, TRAIN: train.take(np.flatnonzero(chosen))},
                Path(place) / "corpus",
            )
            ranker = self._over(part)
            parts = [
                self._read(ranker, Queries.from_contexts(part, part.split(name)), f"{corpus.name} {name}")
                for name in asked
            ]
        return TrainingLists.concat(parts)

    def _open(self, path: str, splits: list[str]) -> Corpus:
        cache = self.settings.cache_dir
        return open_corpus(dir=path, splits=splits, candidates="all", field="authors", cache_dir=cache)

    def read_texts(self) -> TrainingLists:
        """Read the lists of validation contexts of the first data set over its papers that have full texts.

        A SHARE of the texts and of the abstracts is left out at random.
        """
        corpus, draw = self._open(self.settings.data[0], ["val"]), random.Random(SEED)
        texts_read = read_texts(Path(self.settings.texts), corpus)
        papers = [
            LibraryPaper(
                name,
                title=corpus.titles[row],
                abstract=corpus.abstracts[row] if draw.random() < SHARE else "",
                year=int(corpus.years[row]),
            )
            for name in texts_read
            if corpus.titles[row := corpus.paper_row(name)]
        ]
        with TemporaryDirectory() as place:
            library = Library.create(Path(place) / "library", papers, model="bm25")
            ranker = self._over(library.corpus)
            store = TextStore(library.path / FOLDER, create=True)
            own = [paper.id for paper in papers if draw.random() < SHARE]
            store.put((name, 0, 0, texts_read[name]) for name in own)
            store.set_papers({name: name for name in own}, {})
            update_index(library.path / FOLDER, store)
            ranker.passages = FullTexts.open(library.path, library.corpus)
            lists = self._read(ranker, _queries(corpus, library.corpus), f"{corpus.name} texts")
            store.close()
        return lists


def _queries(corpus: Corpus, library: Corpus) -> Queries:
    """Return the validation contexts of a data set that cite papers of a library."""
    split, asked, positives = training_split(corpus, "val", None, SEED), list[Query](), list[list[int]]()
    for context, cited in zip(split.contexts.tolist(), split.positives, strict=True):
        ids = [corpus.paper_ids[row] for row in cited.tolist()]
        rows = [library.paper_row(paper) for paper in ids if library.has_paper(paper)]
        if rows and len(asked) < TEXT_QUERIES:
            row, text = int(corpus.citing[context]), corpus.context_texts[context]
            title, abstract, year = corpus.titles[row], corpus.abstracts[row], int(corpus.years[row])
            own = corpus.paper_ids[row] if library.has_paper(corpus.paper_ids[row]) else None
            asked.append(Query(text, title, abstract, year, own=own))
            positives.append(rows)
    return replace(Queries.from_list(library, asked), positives=Ragged.from_rows(positives))


def read_texts(folder: Path, corpus: Corpus) -> dict[str, ReadText]:
    """Return the full texts of papers of a corpus, by id."""
    texts: dict[str, ReadText] = {}
    for path in sorted(folder.rglob("*.xml")):
        if not corpus.has_paper(path.stem) or path.stem in texts:
            continue
        try:
            sections = ET.parse(path).iter("SECTION")
        except ET.ParseError:
            continue
        parts = [
            PdfParagraph(text, ((0, 1),), title)
            for section in sections
            if not (title := section.get("title", "")).strip().lower().startswith(_LEFT_OUT)
            and (text := " ".join(" ".join(part.text or "" for part in section.findall("S")).split()))
        ]
        if parts:
            texts[path.stem] = ReadText(parts=parts, pages=1)
    if not texts:
        raise InputError(f"texts={folder}: has no NAME.xml of a paper of {corpus.name}")
    return texts


def copy_part(
    corpus: Corpus, papers: Rows, titles_only: Mask, splits: Mapping[str, Split], folder: Path
) -> Corpus:
    """Write a corpus of some papers of another one to a folder, with contexts that cite these.

    papers: rows. titles_only: those that lose their abstract [P]. Citing papers of the contexts are in it,
    too, but are no candidates.
    """
    kept = set(papers.tolist())
    citing = {row for split in splits.values() for row in corpus.citing[split.contexts].tolist() if row >= 0}

    def paper_records() -> Iterator[PaperRecord]:
        for row in sorted(kept | citing):
            title = corpus.titles[row]
            abstract = "" if titles_only[row] and title else corpus.abstracts[row]
            authors = tuple(corpus.field_names[code] for code in corpus.fields[row].tolist())
            year = int(corpus.years[row])
            yield PaperRecord(corpus.paper_ids[row], title, abstract, year, authors, row in kept)

    def context_records() -> Iterator[ContextRecord]:
        for context in (row for split in splits.values() for row in split.contexts.tolist()):
            row, text = int(corpus.citing[context]), corpus.context_texts[context]
            own = corpus.paper_ids[row] if row >= 0 else f"outside{row}"
            yield ContextRecord(corpus.context_ids[context], text, own, outside=row < 0)

    def query_records(split: Split) -> list[QueryRecord]:
        asked = zip(split.contexts.tolist(), split.positives, strict=True)
        return [
            QueryRecord(corpus.context_ids[context], [corpus.paper_ids[row] for row in cited.tolist()])
            for context, cited in asked
        ]

    queries = {name: partial(query_records, split) for name, split in splits.items()}
    source = Source(corpus.name, {}, paper_records, context_records, queries)
    prepare_store(source, folder, {"tokenizer": "default", "candidates": "all", "field": "authors"})
    return Corpus(folder, corpus.name)


def load_lists(file: Path) -> TrainingLists:
    """Read lists that `ListReader.kept` wrote."""
    with np.load(file) as saved:
        return TrainingLists(**{**saved, "columns": saved["columns"].tolist()})


def print_ablation(lists: TrainingLists) -> None:
    """Print R@10 and MRR of drafts with all features, and how they change without each, cross-fitted."""
    before = _row(lists)
    print("| feature left out |", " | ".join(before), "|")
    print("| none |", " | ".join(f"{recall:.3f} / {mrr:.3f}" for recall, mrr in before.values()), "|")
    for name in lists.columns:
        after = _row(lists.without(name))
        changes = (np.subtract(after[key], before[key]).tolist() for key in before)
        print(f"| {name} |", " | ".join(f"{recall:+.3f} / {mrr:+.3f}" for recall, mrr in changes), "|")


def _row(lists: TrainingLists) -> dict[str, tuple[float, float]]:
    """Return R@10 and MRR of drafts, asked as questions and as drafts, where all papers have been read."""
    measures = measure_read(FITTING, lists, _of_drafts(lists), SEED)
    return {
        f"{name}, {source}": (by_source[source]["recall@10"], by_source[source]["mrr"])
        for name, by_source in zip(("ask", "draft"), measures, strict=True)
        for source in (DRAFTS, TITLES)
    }


def _print(measures: Mapping[str, Measures], part: str) -> None:
    for way, by_source in measures.items():
        for source, values in by_source.items():
            print(f"{part}, {source}, {way}: {json.dumps(values)}")


main = command("library.builtin.make", BuiltInSettings, make)

if __name__ == "__main__":
    main()
