"""Runs: the ranked papers of queries, as they pass between retrieval, reranking and evaluation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from datasets.atomic import written_whole
from datasets.errors import InputError
from retrieval.ranking import Ranking, ordered
from retrieval.trec import NAMES, escaped, read_fields, unescaped

_LINES = 1 << 19


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
        """{query id: {paper id: score}} of `size` queries at a time, for tools that take dictionaries."""
        names = self._used_names(lambda ids: ids)
        for start in range(0, len(self), size):
            rows = zip(
                self.query_ids[start : start + size],
                self.ranking.papers[start : start + size],
                self.ranking.scores[start : start + size],
                strict=True,
            )
            yield {
                query: dict(
                    zip(names[papers[papers >= 0]].tolist(), scores[papers >= 0].tolist(), strict=True)
                )
                for query, papers, scores in rows
            }

    def _used_names(self, spelling: Any) -> npt.NDArray[np.object_]:
        """Ids by row, of those papers only that are in the run: few of a large pool are."""
        used = np.zeros(len(self.paper_ids) + 1, np.bool_)
        used[self.ranking.papers] = True  # -1 is the place added above
        rows = np.flatnonzero(used[:-1])
        names = np.full(len(self.paper_ids), None, object)
        names[rows] = spelling([self.paper_ids[row] for row in rows.tolist()])
        return names

    def write(self, path: str | Path) -> None:
        """Write lines `query Q0 paper rank score name`. Scores keep all digits of a float32."""
        names = pa.array(self._used_names(escaped), pa.string())
        queries = pa.array(escaped(self.query_ids), pa.string())
        ranks = pc.cast(pa.array(np.arange(1, self.ranking.k + 1)), pa.string())
        step = max(1, _LINES // max(self.ranking.k, 1))
        with written_whole(Path(path)) as part, part.open("wb") as file:
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
                    f"{escaped([self.name])[0]}\n",
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
        name = unescaped(table["name"][0].as_py())
        return cls(query_ids, paper_ids, ordered(grid, values, shape[1]), name)


def _codes(column: pa.ChunkedArray) -> tuple[npt.NDArray[np.int32], list[str]]:
    """Numbers [N] of a column of names, and the names."""
    array = column.unify_dictionaries().combine_chunks()
    return array.indices.to_numpy(), [unescaped(name) for name in array.dictionary.to_pylist()]


def _write_strings(strings: pa.StringArray, file: BinaryIO) -> None:
    """Write the characters of all strings, which lie one after the other in Arrow's buffer."""
    _, offsets, characters = strings.buffers()
    if characters is None:
        return
    bounds = np.frombuffer(offsets, np.int32)[strings.offset : strings.offset + len(strings) + 1]
    file.write(memoryview(characters)[bounds[0] : bounds[-1]])
