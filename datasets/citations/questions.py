"""Papers of a citation graph as a corpus whose queries are papers, so that any retriever can rank them.

A paper that asks is a context: its abstract stands there (its title where it has none), so that title and
context, or title and abstract, are the query. The papers that it cites are to be found.

Lists of the papers that ask: {"val": {field: [ids]}, "test": {field: [ids]}}, or ids without fields.
The oldest papers for training, the next for validation, the latest for test: shares of the papers by year.
Which papers of a citation graph ask in which split, and for what.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from datasets.bad_records import shown
from datasets.build import JsonFile
from datasets.citations.graph import CitationGraph, PaperLine, open_graph, read_paper_lines
from datasets.columns import Ragged, offsets_of
from datasets.corpus import Corpus
from datasets.errors import InputError
from datasets.files import whole_file, written_folder, written_whole
from datasets.fulltext.contexts import Splitting
from datasets.near_duplicates import TitleIndex, check_threshold
from datasets.prepare import check_split_names, open_corpus
from datasets.progress import reading
from datasets.records import SPLITS, TARGET_MARKER, TRAIN

if TYPE_CHECKING:
    from datasets.citations.graph import CitationGraph

LARGEST = 1 << 28
"""Bytes of a file at most."""


@dataclass(frozen=True)
class QueryLists:
    """A file's ids by split."""

    path: Path
    splits: dict[str, list[str]]

    def rows(self, split: str, graph: CitationGraph) -> list[int]:
        """Rows of a split's papers; InputError for a split that is not there, and ids that no paper has."""
        if split not in self.splits:
            raise InputError(f"{self.path}: no split {split!r}; there are: {', '.join(self.splits)}")
        return rows_of(self.splits[split], graph, f"{self.path}, {split!r}")


def rows_of(ids: Sequence[str], graph: CitationGraph, where: str) -> list[int]:
    """Rows of papers; InputError that says how many of the ids no paper has, and names the first."""
    missing = [paper for paper in ids if paper not in graph.rows]
    if missing:
        some = ", ".join(missing[:5])
        raise InputError(f"{where}: {len(missing):,} of {len(ids):,} ids are not in {graph.files[0]}: {some}")
    return [graph.rows[paper] for paper in ids]


def read_query_lists(path: str | Path) -> QueryLists:
    """Read a file; InputError that names the part which is not of this form, or an id of two splits."""
    path = Path(path).expanduser()
    try:
        found = orjson.loads(whole_file(path, LARGEST))
    except orjson.JSONDecodeError as error:
        raise InputError(f"{path}: malformed JSON: {error}") from None
    if not isinstance(found, dict) or not found:
        raise InputError(f"{path}: must be an object of splits, as val and test")
    try:
        check_split_names(list(found))
    except InputError as error:
        raise InputError(f"{path}: {str(error).removeprefix('data.splits: ')}") from None
    splits: dict[str, list[str]] = {}
    place: dict[str, str] = {}
    for split, value in found.items():
        lists = value.values() if isinstance(value, dict) else [value]
        ids: list[str] = []
        for part in lists:
            if not isinstance(part, list) or not all(isinstance(paper, str) for paper in part):
                raise InputError(
                    f"{path}, {split!r}: must be a list of ids, or an object of such lists by field"
                )
            ids += part
        splits[split] = list(dict.fromkeys(ids))
        for paper in splits[split]:
            if (other := place.setdefault(paper, split)) != split:
                raise InputError(
                    f"{path}: {shown(paper)} is in {other!r} and in {split!r}; a paper asks in one split"
                )
    return QueryLists(path, splits)


class YearShares:
    """Chooses by the years of all papers; papers without a year are in no split.

    train, val, test: shares of the papers, 1 together. queries: at most so many are drawn of each split but
    that for training; None: all. seed: they are drawn by.
    """

    def __init__(self, train: float, val: float, test: float, queries: int | None, seed: int) -> None:
        shares = dict(zip(SPLITS, (train, val, test), strict=True))
        for name, share in shares.items():
            if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
                raise InputError(f"splitting.{name}: {share!r} is no share between 0 and 1")
        if abs(sum(shares.values()) - 1) > 1e-9:
            raise InputError(
                f"splitting: the shares train, val and test add up to {sum(shares.values()):g}, not 1"
            )
        if queries is not None and (type(queries) is not int or queries < 1):
            raise InputError(f"splitting.queries: {queries!r} is no number of queries; null for all")
        self._train, self._val_of_rest = train, val / (val + test) if val + test else 0.0
        self._queries, self._seed = queries, seed
        self.settings: dict[str, Any] = {**shares, "queries": queries, "seed": seed}

    def __call__(self, paper: str, year: int) -> str | None:
        """It takes all papers to place one, so that it is for collections of papers alone."""
        raise InputError("splitting=year_shares is for data=papers; here take splitting=year or random")

    def split(self, years: NDArray[np.int32], papers: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
        """Of each split the rows of its papers, ascending: some papers [P] among rows of these years [N]."""
        dated = papers[years[papers] != 0]
        order = dated[np.argsort(years[dated], kind="stable")]
        train = int(self._train * len(order))
        val = int((len(order) - train) * self._val_of_rest)
        parts = np.split(order, [train, train + val])
        return {split: np.sort(part) for split, part in zip(SPLITS, parts, strict=True)}

    def sampled(self, asking: Mapping[str, NDArray[np.int64]]) -> dict[str, NDArray[np.int64]]:
        """Of each split at most so many of the rows that may ask, ascending; for training all."""
        drawn = {}
        for number, (split, rows) in enumerate(asking.items()):
            if split != TRAIN and self._queries is not None and len(rows) > self._queries:
                rng = np.random.default_rng([self._seed, number])
                rows = np.sort(rng.choice(rows, self._queries, replace=False))
            drawn[split] = rows
        return drawn


log = logging.getLogger(__name__)

TITLES = 1 << 16
"""Titles that are compared together."""
VERSION = 1
"""Of what the cache keeps of near-duplicates."""

Files = str | Path | Sequence[str | Path]
Rows = NDArray[np.int64]


class Asked(NamedTuple):
    """Papers that ask, rows of the graph ascending [Q], and the rows of those they are to find [Q]."""

    papers: Rows
    relevant: Ragged


@dataclass(frozen=True)
class Questions:
    """A collection's papers [P], rows of the graph ascending, and of each split what is asked.

    may: all papers that may ask. asked: those that do, of other splits than train perhaps a sample. removed:
    rows of training papers that may and do not ask, as near-duplicates of held-out ones.
    """

    graph: CitationGraph
    papers: Rows
    may: dict[str, Asked]
    asked: dict[str, Asked]
    removed: Rows


@dataclass(frozen=True)
class Rules:
    """Who asks, and for what.

    min_cited: papers that a query is to find, at least. found: `all` papers, or those of `train` alone, as
    Citeomatic does with DBLP and PubMed. near_duplicates: a Jaccard index of the words of two titles, above
    which a training paper does not ask because of a paper that asks in another split, or one of `held_out`:
    files of papers of other collections. None: all ask.
    """

    min_cited: int = 1
    found: str = "all"
    near_duplicates: float | None = None
    held_out: Files | None = None

    def __post_init__(self) -> None:
        if type(self.min_cited) is not int or self.min_cited < 1:
            raise InputError(f"data.min_cited: {self.min_cited!r} is no number of papers from 1 on")
        if self.found not in ("all", TRAIN):
            raise InputError(f"data.found: {self.found!r} is neither all nor train")
        if self.near_duplicates is not None:
            check_threshold(self.near_duplicates, "data.near_duplicates")
        elif self.held_out:
            raise InputError("data.held_out: needs data.near_duplicates, as 0.7")


def find_questions(
    graph: CitationGraph,
    splitting: Splitting,
    queries: str | Path | None = None,
    rules: Rules = Rules(),
    cache_dir: str | Path = ".cache",
) -> Questions:
    """The questions of a graph (conf/data/papers.yaml).

    queries: a file of the ids of each split (datasets.citations.questions); None: `splitting` chooses.
    Raises InputError for lists that cannot be used, and where no paper cites another.
    """
    papers = graph.titled | (graph.abstract_lengths > 0)
    if isinstance(splitting, YearShares) and queries is None:
        papers &= graph.years > 0
    splits = _splits(graph, np.flatnonzero(papers), splitting, queries)
    relevant = earlier(graph, papers)
    if rules.found == TRAIN:
        of_training = np.zeros(len(graph), np.bool_)
        of_training[splits.get(TRAIN, [])] = True
        relevant = earlier(graph, papers & of_training)
    enough = relevant.lengths >= rules.min_cited
    if not enough[papers].any():
        least = f"{rules.min_cited} others that are" if rules.min_cited > 1 else "another that is"
        raise InputError(f"{graph.files[0]}: no paper cites {least} in it, with a text and not later")
    may = {split: rows[enough[rows]] for split, rows in splits.items()}
    asked = splitting.sampled(may) if isinstance(splitting, YearShares) and queries is None else dict(may)
    removed = np.empty(0, np.int64)
    if rules.near_duplicates is not None and TRAIN in may:
        held_out = np.sort(np.concatenate([removed, *(asked[split] for split in asked if split != TRAIN)]))
        removed = _near_duplicates(graph, may[TRAIN], held_out, rules, Path(cache_dir).expanduser())
        asked[TRAIN] = np.setdiff1d(may[TRAIN], removed)
        counted = f"{len(removed):,} of {len(may[TRAIN]):,}"
        log.info("%s training queries have nearly the title of a held-out paper and are left out", counted)
    return Questions(
        graph,
        np.flatnonzero(papers),
        {split: Asked(rows, relevant.take(rows)) for split, rows in may.items()},
        {split: Asked(rows, relevant.take(rows)) for split, rows in asked.items()},
        removed,
    )


def earlier(graph: CitationGraph, wanted: NDArray[np.bool_]) -> Ragged:
    """The wanted papers [P] that each paper cites and that are not later than itself; unknown years pass."""
    citing = np.repeat(np.arange(len(graph)), graph.cites.lengths)
    cited = graph.cites.values
    years = graph.years[citing]
    there = wanted[cited] & ((years == 0) | (graph.years[cited] <= years))
    counts = np.bincount(citing[there], minlength=len(graph))
    return Ragged(cited[there], offsets_of(counts))


def chosen_lines(graph: CitationGraph, rows: Rows) -> Iterator[tuple[int, PaperLine]]:
    """The papers in some rows of a graph, ascending, out of its files."""
    wanted = np.zeros(len(graph), np.bool_)
    wanted[rows] = True
    row = 0
    for path in graph.files:
        with reading(path, path.name) as on_bytes:
            for paper in read_paper_lines(path, on_bytes):
                if wanted[row]:
                    yield row, paper
                row += 1


def _splits(
    graph: CitationGraph, papers: Rows, splitting: Splitting | YearShares, queries: str | Path | None
) -> dict[str, Rows]:
    """Of each split the rows of its papers, whether they may ask or not."""
    if queries is None:
        if isinstance(splitting, YearShares):
            return splitting.split(graph.years, papers)
        names = np.array(
            [splitting(graph.ids[row], int(graph.years[row])) or "" for row in papers.tolist()], object
        )
        return {split: papers[names == split] for split in SPLITS}
    lists = read_query_lists(queries)
    rows = {split: np.array(sorted(lists.rows(split, graph)), np.int64) for split in lists.splits}
    listed = np.concatenate(list(rows.values()))
    if TRAIN not in rows:  # all others
        rows = {TRAIN: np.setdiff1d(papers, listed)} | rows
    named = [*(split for split in SPLITS if split in rows), *(split for split in rows if split not in SPLITS)]
    return {split: np.intersect1d(rows[split], papers) for split in named}


def _near_duplicates(
    graph: CitationGraph, train: Rows, held_out: Rows, rules: Rules, cache_dir: Path
) -> Rows:
    """The training papers whose titles are near a held-out one: looked for once, then kept in the cache."""
    assert rules.near_duplicates is not None
    others = open_graph(rules.held_out, cache_dir=cache_dir) if rules.held_out else None
    digest = hashlib.blake2b(
        f"{VERSION} {rules.near_duplicates} {graph.fingerprint} {others and others.fingerprint}".encode(),
        digest_size=8,
    )
    for rows in (train, held_out):
        digest.update(len(rows).to_bytes(8, "little"))
        digest.update(np.ascontiguousarray(rows, np.int64).data)
    path = cache_dir / "near_duplicates" / f"{digest.hexdigest()}.npy"
    if not path.is_file():
        titles = [paper.title for _, paper in chosen_lines(graph, held_out)]
        if others is not None:
            titles += [paper.title for _, paper in chosen_lines(others, np.arange(len(others)))]
        index = TitleIndex(titles, rules.near_duplicates)
        found = [part[index.near(some)] for part, some in _batches(graph, train)]
        with written_whole(path) as unfinished, unfinished.open("wb") as file:
            np.save(file, np.concatenate([np.empty(0, np.int64), *found]))
    return np.asarray(np.load(path, allow_pickle=False))


def _batches(graph: CitationGraph, rows: Rows) -> Iterator[tuple[Rows, list[str]]]:
    """Rows and their titles, many at a time."""
    titles: list[str] = []
    first = 0
    for _, paper in chosen_lines(graph, rows):
        titles.append(paper.title)
        if len(titles) == TITLES:
            yield rows[first : first + TITLES], titles
            first, titles = first + TITLES, []
    yield rows[first:], titles


FIELDS = "fields"


def open_papers(
    papers: Files,
    splitting: Splitting,
    queries: str | Path | None = None,
    citations: str | Path | None = None,
    tokenizer: str = "default",
    cache_dir: str | Path = ".cache",
    name: str | None = None,
    min_cited: int = 1,
    found: str = "all",
    near_duplicates: float | None = None,
    held_out: Files | None = None,
) -> Corpus:
    """A corpus of all papers with a text, in which those ask that cite others (conf/data/papers.yaml).

    papers, citations: as for open_graph. Cited papers of a later year than the query's are left out.
    queries: a file of the ids of each split (datasets.citations.questions); None: `splitting` chooses.
    min_cited and so on: datasets.citations.questions.Rules.
    Raises InputError for files that cannot be used, and where no paper cites another.
    """
    rules = Rules(min_cited, found, near_duplicates, held_out)
    graph = open_graph(papers, citations, cache_dir=cache_dir)
    questions = find_questions(graph, splitting, queries, rules, cache_dir)
    asked = {split: some for split, some in questions.asked.items() if len(some.papers)}
    title = name or Path(graph.files[0]).resolve().parent.name
    return corpus_of(graph, questions.papers, asked, title, cache_dir, tokenizer)


def open_questions(
    papers: Files,
    splitting: Splitting,
    queries: str | Path | None = None,
    citations: str | Path | None = None,
    tokenizer: str = "default",
    cache_dir: str | Path = ".cache",
    name: str | None = None,
    min_cited: int = 1,
    found: str = "all",
    near_duplicates: float | None = None,
    held_out: Files | None = None,
) -> Questions:
    """What the corpus of open_papers asks, without making it; of no use are its tokenizer and name."""
    rules = Rules(min_cited, found, near_duplicates, held_out)
    graph = open_graph(papers, citations, cache_dir=cache_dir)
    return find_questions(graph, splitting, queries, rules, cache_dir)


def corpus_of(
    graph: CitationGraph,
    papers: NDArray[np.int64],
    asked: Mapping[str, Asked],
    name: str,
    cache_dir: str | Path,
    tokenizer: str = "default",
) -> Corpus:
    """Some papers of a graph, all of them candidates, with splits of queries.

    papers: rows, ascending, each with a text; row i of the corpus is papers[i]. What asks and what is to be
    found is among them. A context has the id of its paper.
    """
    digest = hashlib.blake2b(f"{graph.fingerprint} {list(asked)}".encode(), digest_size=8)
    arrays = [papers, *(part for split in asked.values() for part in (split.papers, *_flat(split.relevant)))]
    for array in arrays:
        digest.update(len(array).to_bytes(8, "little"))
        digest.update(np.ascontiguousarray(array, np.int64).data)
    folder = Path(cache_dir).expanduser() / "questions" / digest.hexdigest()
    if not folder.is_dir():
        with written_folder(folder) as part:
            _write(part, graph, papers, asked)
    return open_corpus(
        folder,
        tokenizer=tokenizer,
        cache_dir=cache_dir,
        candidates="all",
        splits=list(asked),
        name=name,
        field=FIELDS if graph.fields.lengths[papers].any() else None,
    )


def _write(folder: Path, graph: CitationGraph, papers: NDArray[np.int64], asked: Mapping[str, Asked]) -> None:
    """The source files of the corpus (datasets.records)."""
    asking = np.concatenate([np.empty(0, np.int64), *(split.papers for split in asked.values())])
    asks = np.zeros(len(graph), np.bool_)
    asks[asking] = True
    with (
        JsonFile(folder / "papers.json", True) as texts,
        JsonFile(folder / "contexts.json", True) as contexts,
    ):
        for row, paper in chosen_lines(graph, papers):
            record = {"title": paper.title, "abstract": paper.abstract, "year": paper.year or None}
            texts.add(record | ({FIELDS: list(paper.fields)} if paper.fields else {}), paper.id)
            if asks[row]:
                body = f"{TARGET_MARKER} {paper.abstract or paper.title}"
                contexts.add({"masked_text": body, "citing_id": paper.id}, paper.id)
    for split, (rows, relevant) in asked.items():
        with JsonFile(folder / f"{split}.json", False) as queries:
            for row, found in zip(rows.tolist(), relevant, strict=True):
                cited = [graph.ids[one] for one in found.tolist()]
                queries.add({"context_id": graph.ids[row], "positive_ids": cited})


def _flat(ragged: Ragged) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    return ragged.values, ragged.offsets
