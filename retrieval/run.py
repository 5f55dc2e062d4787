"""Runs, the ranked papers of queries, in TREC's text format; and `CachedRun`, a retriever that reads them.

Runs are what passes between retrieval, reranking and evaluation, here and in other tools. Fields of the
format are separated by white space, so ids are escaped.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from numpy.typing import NDArray

from datasets.corpus import Corpus
from datasets.errors import InputError
from datasets.files import atomic_write, digest_file
from datasets.records import quoted
from retrieval.arrays import Mask, Rows
from retrieval.base import Ranking, Retriever, empty_rankings, top_k
from retrieval.queries import Queries

NAMES = pa.dictionary(pa.int32(), pa.string())
"""The type of a column of ids."""

LONGEST = 1 << 20
"""Characters of a line at most."""
LINES = 1 << 19
"""Lines that are written at a time."""

log = logging.getLogger(__name__)

_UNFIT = re.compile(r"[\s%]")


def escape_ids(ids: Iterable[str]) -> list[str]:
    """The ids as they are written to a file; InputError for an empty one."""
    written = []
    for text in ids:
        if not text:
            raise InputError("an id is empty: TREC files need at least one character for each")
        written.append(_UNFIT.sub(lambda match: quote(match.group(), safe=""), text))
    return written


def unescape_id(text: str) -> str:
    """The id that was written as `text`."""
    return unquote(text) if "%" in text else text


def read_fields(path: str | Path, names: tuple[str, ...], wanted: dict[str, pa.DataType]) -> pa.Table:
    """The `wanted` columns of a file whose fields, separated by white space, are `names`.

    Raises InputError that names file, line and field.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            start = file.read(1 << 16)
        if not start.strip():
            raise InputError(f"{path}: the file is empty")
        # One blank between fields is what nearly every tool writes; that is read many times faster.
        if re.search(rb"[\t\r]|  | \n|^ |\n\n", start) is None:
            convert = pyarrow.csv.ConvertOptions(
                include_columns=list(wanted), column_types=wanted, strings_can_be_null=False, null_values=[]
            )
            return pyarrow.csv.read_csv(
                path,
                pyarrow.csv.ReadOptions(column_names=list(names)),
                pyarrow.csv.ParseOptions(delimiter=" ", quote_char=False, ignore_empty_lines=True),
                convert,
            )
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    except pa.ArrowInvalid:
        pass  # the slow way says in which line
    return _read_slowly(path, names, wanted)


def _read_slowly(path: Path, names: tuple[str, ...], wanted: dict[str, pa.DataType]) -> pa.Table:
    columns: dict[str, list[str | float]] = {name: [] for name in wanted}
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(iter(lambda: file.readline(LONGEST), ""), 1):
            if len(line) == LONGEST:
                raise InputError(f"{path}, line {number}: is longer than {LONGEST:,} characters")
            fields = line.split()
            if not fields:
                continue
            if len(fields) != len(names):
                raise InputError(
                    f"{path}, line {number}: {len(fields)} fields instead of {len(names)} ({' '.join(names)})"
                )
            for name, field in zip(names, fields, strict=True):
                if name in wanted:
                    where = f"{path}, line {number}, field {name!r}"
                    columns[name].append(_value(field, wanted[name], where))
    return pa.table({name: pa.array(column, wanted[name]) for name, column in columns.items()})


def _value(field: str, kind: pa.DataType, where: str) -> str | float:
    try:
        if pa.types.is_floating(kind):
            return float(field)
        if pa.types.is_integer(kind):
            return int(pa.scalar(int(field), kind).as_py())
        return field
    except (ValueError, OverflowError):
        raise InputError(f"{where}: {quoted(field)} is not a number, or one too large") from None


@dataclass(frozen=True)
class Run:
    """Ranked papers of queries: row q of `ranking` belongs to `query_ids[q]`, paper p has `paper_ids[p]`."""

    query_ids: Sequence[str]
    paper_ids: Sequence[str]
    ranking: Ranking
    name: str = "run"

    def __post_init__(self) -> None:
        if len(self.query_ids) != len(self.ranking):
            raise ValueError(f"{len(self.query_ids)} query ids for {len(self.ranking)} rows")

    def __len__(self) -> int:
        return len(self.query_ids)

    def batches(self, size: int) -> Iterator[dict[str, dict[str, float]]]:
        """{query id: {paper id: score}}, `size` queries at a time, for tools that take dictionaries."""
        names = self._used_names(lambda ids: ids)
        for start in range(0, len(self), size):
            found: dict[str, dict[str, float]] = {}
            for row in range(start, min(start + size, len(self))):
                papers, scores = self.ranking.papers[row], self.ranking.scores[row]
                there = papers >= 0
                pairs = zip(names[papers[there]].tolist(), scores[there].tolist(), strict=True)
                found[self.query_ids[row]] = dict(pairs)
            yield found

    def _used_names(self, spelling: Any) -> NDArray[np.object_]:
        """Ids by row, only of papers in the run: few of a large pool are."""
        used = np.zeros(len(self.paper_ids) + 1, np.bool_)
        used[self.ranking.papers] = True  # -1 is the place added above
        rows = np.flatnonzero(used[:-1])
        names = np.full(len(self.paper_ids), None, object)
        names[rows] = spelling([self.paper_ids[row] for row in rows.tolist()])
        return names

    def write(self, path: str | Path) -> None:
        """Write lines `query Q0 paper rank score name`. Scores keep all digits of a float32."""
        names = pa.array(self._used_names(escape_ids), pa.string())
        queries = pa.array(escape_ids(self.query_ids), pa.string())
        ranks = pc.cast(pa.array(np.arange(1, self.ranking.k + 1)), pa.string())
        step = max(1, LINES // max(self.ranking.k, 1))
        with atomic_write(Path(path)) as part, part.open("wb") as file:
            for start in range(0, len(self), step):
                papers = self.ranking.papers[start : start + step]
                row, rank = np.nonzero(papers >= 0)
                lines = pc.binary_join_element_wise(
                    queries.take(pa.array(row + start)),
                    "Q0",
                    names.take(pa.array(papers[row, rank])),
                    ranks.take(pa.array(rank)),
                    # Arrow prints the shortest text that gives the same float32, of at most 9 digits.
                    pc.cast(pa.array(self.ranking.scores[start : start + step][row, rank]), pa.string()),
                    f"{escape_ids([self.name])[0]}\n",
                    " ",
                )
                _write_strings(lines, file)

    @classmethod
    def read(cls, path: str | Path) -> Run:
        """Read a run of this or any other tool; InputError that names file, line and field.

        Rows of `paper_ids` are numbered as they come; the order of a query's papers is that of the scores.
        """
        columns = ("query", "Q0", "paper", "rank", "score", "name")
        table = read_fields(
            path, columns, {"query": NAMES, "paper": NAMES, "score": pa.float32(), "name": NAMES}
        )
        queries, query_ids = _codes(table["query"])
        papers, paper_ids = _codes(table["paper"])
        scores = table["score"].to_numpy()
        if np.isnan(scores).any():
            raise InputError(
                f"{path}, line {int(np.argmax(np.isnan(scores))) + 1}, field 'score': not a number"
            )
        pairs = np.sort(queries.astype(np.int64) * len(paper_ids) + papers)
        twice = pairs[1:][pairs[1:] == pairs[:-1]]
        if len(twice):
            query, paper = divmod(int(twice[0]), len(paper_ids))
            raise InputError(f"{path}: query {query_ids[query]!r} has the paper {paper_ids[paper]!r} twice")
        # Lay the lines out as [Q, k]: column = number of the line among those of its query.
        lengths = np.bincount(queries, minlength=len(query_ids))
        order = np.argsort(queries, kind="stable")
        row = queries[order]
        column = np.arange(len(row)) - (np.cumsum(lengths) - lengths)[row]
        shape = (len(query_ids), int(lengths.max()))
        grid, values = np.full(shape, -1, np.int32), np.full(shape, -np.inf, np.float32)
        grid[row, column], values[row, column] = papers[order], scores[order]
        name = unescape_id(table["name"][0].as_py())
        return cls(query_ids, paper_ids, top_k(grid, values, shape[1]), name)


def _codes(column: pa.ChunkedArray) -> tuple[NDArray[np.int32], list[str]]:
    """Numbers [N] of a column of names, and the names."""
    array = column.unify_dictionaries().combine_chunks()
    return array.indices.to_numpy(), [unescape_id(name) for name in array.dictionary.to_pylist()]


def _write_strings(strings: pa.StringArray, file: BinaryIO) -> None:
    """Write all strings, which lie one after the other in Arrow's buffer."""
    _, offsets, characters = strings.buffers()
    if characters is None:
        return
    bounds = np.frombuffer(offsets, np.int32)[strings.offset : strings.offset + len(strings) + 1]
    file.write(memoryview(characters)[bounds[0] : bounds[-1]])


class CachedRun(Retriever):
    """Gives what TREC files hold for the queries of a corpus.

    files: runs of different queries, such as one of the validation split and one of the test split. A search
    finds no more than they hold; a query that none of them has gets no papers.
    """

    name = "run"
    arrays = ("place", "papers", "scores")
    partial = True

    def __init__(self, files: str | Path | Sequence[str | Path]) -> None:
        """Raises InputError if no file is named, or one is not there."""
        super().__init__()
        self.files = [Path(file) for file in ([files] if isinstance(files, str | Path) else files)]
        if not self.files:
            raise InputError("retriever=run needs retriever.files=[RUN,...], files in TREC's format")
        for file in self.files:
            if not file.is_file():
                raise InputError(f"retriever.files: there is no file {file}")

    def settings(self) -> dict[str, Any]:
        return {"files": [digest_file(file) for file in self.files]}

    @property
    def index_bytes(self) -> int:
        return self._papers.nbytes + self._scores.nbytes + self._place.nbytes

    def knows(self, contexts: Rows) -> Mask:
        return self._place[contexts] >= 0

    def limit(self, contexts: Rows) -> int | None:
        found = self._papers[self._place[contexts][self.knows(contexts)]] >= 0
        most = int(found.sum(axis=1).max(initial=0))
        return most if most < np.count_nonzero(self.corpus.is_candidate) - 1 else None

    def _index(self, corpus: Corpus) -> None:
        self._place = np.full(len(corpus.context_ids), -1, np.int32)
        rankings: list[Ranking] = []
        for file in self.files:
            run = Run.read(file)
            contexts, there = _context_rows(run, file, corpus)
            if (self._place[contexts] >= 0).any():
                twice = corpus.context_ids[int(contexts[np.argmax(self._place[contexts] >= 0)])]
                raise InputError(f"{file}: query {twice!r} is in an earlier file of retriever.files too")
            self._place[contexts] = np.arange(len(contexts)) + sum(map(len, rankings))
            rankings.append(_in_corpus(run, there, file, corpus))
        self._papers, self._scores = empty_rankings(
            sum(map(len, rankings)), max(ranking.k for ranking in rankings)
        )
        start = 0
        for ranking in rankings:
            rows = slice(start, start := start + len(ranking))
            self._papers[rows, : ranking.k], self._scores[rows, : ranking.k] = ranking.papers, ranking.scores
        for split in corpus.splits.values():
            found = int(np.count_nonzero(self.knows(split.contexts)))
            if 0 < found < len(split):
                log.warning(
                    f"{self._named()}: {len(split) - found:,} of the {len(split):,} queries of split "
                    f"{split.name} are missing and get no papers"
                )

    def _search(self, queries: Queries, k: int, allowed: Mask | None) -> Ranking:
        """Raises InputError for a context of a split that the files lack altogether, and for a question."""
        contexts = queries.contexts
        if (contexts < 0).any():
            raise InputError(f"{self._named()}: cannot answer new queries; choose another retriever")
        place = self._place[contexts]
        for split in self.corpus.splits.values() if (place < 0).any() else ():
            if np.isin(contexts[place < 0], split.contexts).any() and not self.knows(split.contexts).any():
                raise InputError(
                    f"{self._named()}: has no query of split {split.name!r} of {self.corpus.name}; "
                    "add a run of that split to retriever.files"
                )
        # What is not allowed is dropped afterwards, so all of the run is needed then.
        depth = self._papers.shape[1] if allowed is not None else k
        papers, scores = self._papers[place, :depth], self._scores[place, :depth]
        papers[place < 0], scores[place < 0] = -1, -np.inf
        return Ranking(papers, scores)

    def _named(self) -> str:
        return ", ".join(map(str, self.files))


def _context_rows(run: Run, file: Path, corpus: Corpus) -> tuple[Rows, Rows]:
    """Contexts of the corpus that are in a run, and their places in it; InputError if there is none."""
    places = {query: place for place, query in enumerate(run.query_ids)}
    pairs = [(row, places[context]) for row, context in enumerate(corpus.context_ids) if context in places]
    if not pairs:
        raise InputError(
            f"{file}: corpus {corpus.name} has none of the run's {len(run):,} queries (the first is "
            f"{run.query_ids[0]!r}); name a run of this data set"
        )
    if len(pairs) < len(run):
        log.warning(f"{file}: {len(run) - len(pairs):,} of {len(run):,} queries are not in {corpus.name}")
    rows, there = np.array(pairs, np.int64).T
    return rows, there


def _in_corpus(run: Run, there: Rows, file: Path, corpus: Corpus) -> Ranking:
    """The rankings at some places of a run, with the corpus's rows of papers."""
    rows = np.array([corpus.paper_row(p) if corpus.has_paper(p) else -1 for p in run.paper_ids], np.int32)
    papers = run.ranking.papers[there]
    found = np.where(papers >= 0, rows[papers], -1)
    lost = (found < 0) & (papers >= 0)
    if lost.any():
        query, rank = np.argwhere(lost)[0]
        raise InputError(
            f"{file}: query {run.query_ids[there[query]]!r} has the paper "
            f"{run.paper_ids[papers[query, rank]]!r}, which corpus {corpus.name} lacks; "
            "name a run of this data set"
        )
    scores = run.ranking.scores[there]
    endless = np.isinf(scores) & (papers >= 0)
    if endless.any():
        query = run.query_ids[there[np.argmax(endless.any(axis=1))]]
        raise InputError(f"{file}: query {query!r} has an infinite score; write finite ones")
    return Ranking(found, scores)
