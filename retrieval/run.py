"""Runs, the ranked papers of queries, in TREC's text format; `CachedRun` is a retriever that reads them.

Runs are the interface between retrieval, reranking and evaluation, here and in other tools. The format
separates fields by white space, so ids are escaped.
"""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from numpy.typing import NDArray

from citerec.base.errors import InputError, error_text
from citerec.base.files import atomic_write, digest_file
from citerec.datasets.corpus import Corpus
from citerec.retrieval.arrays import Mask, Rows
from citerec.retrieval.base import Ranking, Retriever, empty_rankings, top_k
from citerec.retrieval.queries import Queries

NAMES = pa.dictionary(pa.int32(), pa.string())
"""The type of id columns."""

LINES = 1 << 19
"""Lines written at a time."""

log = logging.getLogger(__name__)

_RESERVED, _ESCAPED = re.compile(r"[\s%]"), re.compile(r"(?:%[0-9A-F]{2})+")


def escape_ids(ids: Iterable[str]) -> list[str]:
    """Escape white space in ids for a TREC file."""
    return [_RESERVED.sub(lambda match: quote(match.group(), safe=""), text) for text in ids]


def unescape_id(text: str) -> str:
    """Reverse `escape_ids` for one id; what other tools write with %, such as %3C in a DOI, stays."""
    return _ESCAPED.sub(_unescape, text) if "%" in text else text


def _unescape(match: re.Match[str]) -> str:
    return whole if escape_ids([whole := unquote(match[0])]) == [match[0]] else match[0]


_ARROW = re.compile(r"In CSV column #(\d+): Row #(\d+): CSV conversion error to \w+: ")
"""How Arrow's messages name a place."""


def read_fields(path: str | Path, names: tuple[str, ...], wanted: dict[str, pa.DataType]) -> pa.Table:
    """Read the `wanted` columns of a file with fields `names`, separated by white space.

    Raises InputError naming file, row (without blank lines) and field.
    """
    path = Path(path)
    parsing = pyarrow.csv.ParseOptions(delimiter=" ", quote_char=False, ignore_empty_lines=True)
    convert = pyarrow.csv.ConvertOptions(
        include_columns=list(wanted), column_types=wanted, strings_can_be_null=False, null_values=[]
    )

    def read(source: Path | io.BytesIO, threads: bool) -> pa.Table:
        columns = pyarrow.csv.ReadOptions(column_names=list(names), use_threads=threads)
        return pyarrow.csv.read_csv(source, columns, parsing, convert)

    try:
        with suppress(OSError, pa.ArrowInvalid):  # nearly every tool writes single blanks
            if len(table := read(path, threads=True)):
                return table
        lines = [b" ".join(line.split()) for line in path.read_bytes().splitlines()]
        return read(io.BytesIO(b"\n".join(filter(None, lines))), threads=False)  # errors then name the row
    except (OSError, pa.ArrowInvalid) as error:
        text = getattr(error, "strerror", None) or error_text(error)
        said = _ARROW.sub(lambda place: f"row {place[2]}, field {names[int(place[1])]!r}: ", text)
        raise InputError(f"{path}: {said}") from None


@dataclass(frozen=True)
class Run:
    """Ranked papers of queries: row q of `ranking` belongs to `query_ids[q]`, paper p has `paper_ids[p]`."""

    query_ids: Sequence[str]
    paper_ids: Sequence[str]
    ranking: Ranking
    name: str = "run"

    def __len__(self) -> int:
        return len(self.query_ids)

    def batches(self, size: int) -> Iterator[dict[str, dict[str, float]]]:
        """Yield {query id: {paper id: score}}, `size` queries at a time, for tools that need dictionaries."""
        names = self._names_by_row()
        for start in range(0, len(self), size):
            batch: dict[str, dict[str, float]] = {}
            for row in range(start, min(start + size, len(self))):
                papers, scores = self.ranking.papers[row], self.ranking.scores[row]
                valid = papers >= 0
                pairs = zip(names[papers[valid]].tolist(), scores[valid].tolist(), strict=True)
                batch[self.query_ids[row]] = dict(pairs)
            yield batch

    def _names_by_row(self, convert: Callable[[list[str]], list[str]] = list) -> NDArray[np.object_]:
        """Ids by row, only of papers in the run, which are few of a large pool."""
        used = np.zeros(len(self.paper_ids) + 1, np.bool_)
        used[self.ranking.papers] = True  # the additional entry is for -1
        rows = np.flatnonzero(used[:-1])
        names = np.full(len(self.paper_ids), None, object)
        names[rows] = convert([self.paper_ids[row] for row in rows.tolist()])
        return names

    def write(self, path: str | Path) -> None:
        """Write lines `query Q0 paper rank score name`. Scores keep all digits of a float32."""
        names = pa.array(self._names_by_row(escape_ids), pa.string())
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
                    # Arrow prints the shortest representation that round-trips, with at most 9 digits.
                    pc.cast(pa.array(self.ranking.scores[start : start + step][row, rank]), pa.string()),
                    f"{escape_ids([self.name])[0]}\n",
                    " ",
                )
                file.write("".join(lines.to_pylist()).encode())

    @classmethod
    def read(cls, path: str | Path) -> Run:
        """Read a run of this or any other tool; InputError naming file, line and field.

        `paper_ids` are in order of appearance; the papers of a query are sorted by score.
        """
        columns = ("query", "Q0", "paper", "rank", "score", "name")
        table = read_fields(
            path, columns, {"query": NAMES, "paper": NAMES, "score": pa.float32(), "name": NAMES}
        )
        queries, query_ids = _codes(table["query"])
        papers, paper_ids = _codes(table["paper"])
        scores = table["score"].to_numpy()
        if not np.isfinite(scores).all():
            line = int(np.argmin(np.isfinite(scores))) + 1
            raise InputError(f"{path}, line {line}, field 'score': is not a finite number")
        pairs = np.sort(queries.astype(np.int64) * len(paper_ids) + papers)
        duplicates = pairs[1:][pairs[1:] == pairs[:-1]]
        if len(duplicates):
            query, paper = divmod(int(duplicates[0]), len(paper_ids))
            raise InputError(f"{path}: query {query_ids[query]!r} has the paper {paper_ids[paper]!r} twice")
        # Arrange the lines as [Q, k]: column = number of the line within its query.
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
    """Encode a column of names: numbers [N], and the names."""
    array = column.unify_dictionaries().combine_chunks()
    return array.indices.to_numpy(), [unescape_id(name) for name in array.dictionary.to_pylist()]


class CachedRun(Retriever):
    """Returns the rankings of TREC files for the queries of a corpus.

    files: runs of different queries, such as one of the validation split and one of the test split. Searches
    return only papers in these files; queries that are in no file get no papers.
    """

    name = "run"
    arrays = ("place", "papers", "scores")
    partial = True

    def __init__(self, files: str | Path | Sequence[str | Path]) -> None:
        """Raises InputError if no file is named."""
        super().__init__()
        self.files = [Path(file) for file in ([files] if isinstance(files, str | Path) else files)]
        if not self.files:
            raise InputError("retriever=run needs retriever.files=[RUN,...], files in TREC's format")

    def settings(self) -> dict[str, Any]:
        return {"files": [digest_file(file) for file in self.files]}

    def covers(self, contexts: Rows) -> Mask:
        return self._place[contexts] >= 0

    def max_results(self, contexts: Rows) -> int | None:
        listed = self._papers[self._place[contexts][self.covers(contexts)]] >= 0
        most = int(listed.sum(axis=1).max(initial=0))
        return most if most < np.count_nonzero(self.corpus.is_candidate) - 1 else None

    def _index(self, corpus: Corpus) -> None:
        self._place = np.full(len(corpus.context_ids), -1, np.int32)
        rankings: list[Ranking] = []
        for file in self.files:
            run = Run.read(file)
            contexts, run_rows = _match_contexts(run, file, corpus)
            if (self._place[contexts] >= 0).any():
                duplicate = corpus.context_ids[int(contexts[np.argmax(self._place[contexts] >= 0)])]
                raise InputError(f"{file}: query {duplicate!r} is also in an earlier file of retriever.files")
            self._place[contexts] = np.arange(len(contexts)) + sum(map(len, rankings))
            rankings.append(_to_corpus_rows(run, run_rows, file, corpus))
        self._papers, self._scores = empty_rankings(
            sum(map(len, rankings)), max(ranking.k for ranking in rankings)
        )
        start = 0
        for ranking in rankings:
            rows = slice(start, start := start + len(ranking))
            self._papers[rows, : ranking.k], self._scores[rows, : ranking.k] = ranking.papers, ranking.scores
        for split in corpus.splits.values():
            covered = int(np.count_nonzero(self.covers(split.contexts)))
            if 0 < covered < len(split):
                log.warning(
                    f"{self._file_names()}: {len(split) - covered:,} of the {len(split):,} queries of split "
                    f"{split.name} are missing and get no papers"
                )

    def _search(self, queries: Queries, k: int, allowed: Mask | None) -> Ranking:
        """Raises InputError for new queries, and for contexts of a split that no file covers."""
        contexts = queries.contexts
        if (contexts < 0).any():
            raise InputError(f"{self._file_names()}: cannot answer new queries; choose another retriever")
        place = self._place[contexts]
        for split in self.corpus.splits.values() if (place < 0).any() else ():
            if np.isin(contexts[place < 0], split.contexts).any() and not self.covers(split.contexts).any():
                raise InputError(
                    f"{self._file_names()}: no query of split {split.name!r} of {self.corpus.name}; "
                    "add a run of that split to retriever.files"
                )
        # Papers that are not allowed are dropped afterwards, so filters need the whole run.
        depth = self._papers.shape[1] if allowed is not None else k
        papers, scores = self._papers[place, :depth], self._scores[place, :depth]
        papers[place < 0], scores[place < 0] = -1, -np.inf
        return Ranking(papers, scores)

    def _file_names(self) -> str:
        return ", ".join(map(str, self.files))


def _match_contexts(run: Run, file: Path, corpus: Corpus) -> tuple[Rows, Rows]:
    """Contexts of the corpus that are in a run, and their rows in the run; InputError if there are none."""
    run_rows = {query: row for row, query in enumerate(run.query_ids)}
    pairs = [(row, run_rows[name]) for row, name in enumerate(corpus.context_ids) if name in run_rows]
    if not pairs:
        raise InputError(
            f"{file}: corpus {corpus.name} has none of the run's {len(run):,} queries (the first is "
            f"{run.query_ids[0]!r}); name a run of this data set"
        )
    if len(pairs) < len(run):
        log.warning(f"{file}: {len(run) - len(pairs):,} of {len(run):,} queries are not in {corpus.name}")
    contexts, rows = np.array(pairs, np.int64).T
    return contexts, rows


def _to_corpus_rows(run: Run, rows: Rows, file: Path, corpus: Corpus) -> Ranking:
    """Some rows of a run, with candidates as rows of the corpus."""
    paper_rows = [corpus.paper_row(paper) if corpus.has_paper(paper) else -1 for paper in run.paper_ids]
    papers = run.ranking.papers[rows]
    corpus_rows = np.where(papers >= 0, np.array(paper_rows, np.int32)[papers], -1)
    missing = (corpus_rows < 0) & (papers >= 0)
    if missing.any():
        query, rank = np.argwhere(missing)[0]
        raise InputError(
            f"{file}: query {run.query_ids[rows[query]]!r} has the paper "
            f"{run.paper_ids[papers[query, rank]]!r}, which corpus {corpus.name} lacks; "
            "name a run of this data set"
        )
    drop = ~corpus.is_candidate[corpus_rows]
    return top_k(corpus_rows, run.ranking.scores[rows], run.ranking.k, drop)
