"""The passes that turn source records into a store's files, and the checks between records."""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from datasets.errors import InputError
from datasets.ragged import offsets_of
from datasets.schema import TRAIN, split_group
from datasets.source import read_contexts, read_papers, read_split
from datasets.tokenization import Tokenizer
from datasets.writing import BATCH_ROWS, NameWriter, TextWriter, TokenWriter, save_array

log = logging.getLogger(__name__)

LONG_TEXT = 50_000
"""Characters of a title and abstract from which a paper is reported as unusual."""

Reading = AbstractContextManager[Callable[[int], None]]


class StoreBuilder:
    """Call add_papers, add_contexts, add_split for each split, then finish; leaves the files in `folder`.

    field: the key of papers that holds their fields; None: they have none.
    """

    def __init__(self, folder: Path, tokenizer: Tokenizer, field: str | None = None) -> None:
        from datasets.word_table import WordTable  # a heavy import: a store that is there does without it

        self._folder, self._field = folder, field
        self._fields = NameWriter(folder, "fields")
        self._words = WordTable(tokenizer)
        self._papers = TextWriter(folder / "papers.arrow", ("id", "title", "abstract"))
        self._contexts = TextWriter(folder / "contexts.arrow", ("id", "text"))
        self._titles = TokenWriter(folder, "title_tokens", self._words)
        self._abstracts = TokenWriter(folder, "abstract_tokens", self._words)
        self._context_tokens = TokenWriter(folder, "context_tokens", self._words)
        self._writers = (self._papers, self._contexts, self._titles, self._abstracts, self._context_tokens)
        self._paper_rows: dict[str, int] = {}
        self._context_rows: dict[str, int] = {}
        self._years = array("i")
        self._has_abstract = bytearray()
        self._citing = array("i")
        # Per split (in the order of adding): rows of contexts, rows of cited papers, number of cited papers.
        self._splits: dict[str, tuple[array[int], array[int], array[int]]] = {}
        self._split_of_context = array("h")  # 1 + number of the split, 0 for none
        self._split_of_paper = array("h")  # the same for the first split that a paper cites in

    def __enter__(self) -> StoreBuilder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for writer in self._writers:
            with suppress(OSError) if error is not None else nullcontext():
                writer.close()

    def add_papers(self, path: Path, reading: Reading) -> None:
        rows = self._paper_rows
        long = 0
        with reading as on_bytes:
            for paper in read_papers(path, on_bytes, self._field):
                row = len(rows)
                if rows.setdefault(paper.id, row) != row:
                    raise InputError(f"{path}, record {paper.id!r}: a paper of this id is there already")
                self._papers.append(paper.id, paper.title, paper.abstract)
                self._titles.append(paper.title)
                self._abstracts.append(paper.abstract)
                self._years.append(paper.year)
                self._fields.append(paper.fields)
                self._has_abstract.append(bool(paper.abstract.strip()))
                long += len(paper.title) + len(paper.abstract) >= LONG_TEXT
        if not rows:
            raise InputError(f"{path}: no papers")
        if self._field and not self._fields:
            raise InputError(f"{path}: no paper has the field {self._field!r} that data.field names")
        if long:
            log.warning("%s: %d papers of %d characters or more are cut by the models", path, long, LONG_TEXT)

    def add_contexts(self, path: Path, reading: Reading) -> None:
        rows, papers = self._context_rows, self._paper_rows
        with reading as on_bytes:
            for context in read_contexts(path, on_bytes):
                row = len(rows)
                if rows.setdefault(context.id, row) != row:
                    raise InputError(f"{path}, record {context.id!r}: a context of this id is there already")
                citing = papers.get(context.citing_id)
                if citing is None:
                    raise InputError(_unknown_paper(path, context.id, "citing_id", context.citing_id))
                if context.cited_id is not None and context.cited_id not in papers:
                    raise InputError(_unknown_paper(path, context.id, "refid", context.cited_id))
                self._contexts.append(context.id, context.text)
                self._context_tokens.append(context.text)
                self._citing.append(citing)

    def add_split(self, name: str, path: Path) -> None:
        """Call after add_papers and add_contexts."""
        contexts, positives, lengths = array("q"), array("i"), array("i")
        self._splits[name] = contexts, positives, lengths
        names, number = list(self._splits), len(self._splits)
        of_context = self._grow(self._split_of_context, len(self._context_rows))
        of_paper = self._grow(self._split_of_paper, len(self._paper_rows))
        for query in read_split(path):
            where = f"{path}, record {query.record}, field"
            row = self._context_rows.get(query.context_id)
            if row is None:
                raise InputError(
                    f"{where} 'context_id': no context {query.context_id!r} in the contexts file"
                )
            if earlier := of_context[row]:
                which = "this split" if earlier == number else f"split {names[earlier - 1]!r}"
                raise InputError(f"{where} 'context_id': context {query.context_id!r} is in {which} already")
            of_context[row] = number
            citing = self._citing[row]
            other = names[(of_paper[citing] or number) - 1]
            if split_group(other) != split_group(name):
                raise InputError(
                    f"{where} 'context_id': the citing paper {self._paper_id(citing)!r} of context "
                    f"{query.context_id!r} is in split {other!r} too; it may cite in one split only"
                )
            of_paper[citing] = of_paper[citing] or number
            for positive in query.positive_ids:
                paper = self._paper_rows.get(positive)
                if paper is None:
                    raise InputError(f"{where} 'positive_ids': no paper {positive!r} in the papers file")
                positives.append(paper)
            contexts.append(row)
            lengths.append(len(query.positive_ids))
        if not contexts:
            raise InputError(f"{path}: no queries")

    def finish(self, candidates: str) -> None:
        """Write what remains: final word ids, candidates, splits. InputError if no candidate is left."""
        self.close()
        is_candidate = np.frombuffer(self._has_abstract, np.bool_)
        if candidates == "all":
            is_candidate = np.ones(len(self._paper_rows), np.bool_)
        elif not is_candidate.any():
            raise InputError("no paper has an abstract, so none is a candidate; set data.candidates=all")
        seen = np.zeros(len(self._paper_rows), np.bool_)
        in_train = np.zeros(len(self._context_rows), np.bool_)
        unreachable = 0
        for name, (contexts, positives, lengths) in self._splits.items():
            cited = np.frombuffer(positives, np.int32)
            citing = np.repeat(
                self._citing_rows()[np.frombuffer(contexts, np.int64)], np.frombuffer(lengths, np.int32)
            )
            unreachable += int((~is_candidate[cited] | (cited == citing)).sum())
            if name == TRAIN:
                seen[cited] = True
                in_train[np.frombuffer(contexts, np.int64)] = True
            save_array(self._folder, f"{name}.contexts", np.frombuffer(contexts, np.int64))
            save_array(self._folder, f"{name}.positives.values", cited)
            save_array(
                self._folder, f"{name}.positives.offsets", offsets_of(np.frombuffer(lengths, np.int32))
            )
        if unreachable:
            log.warning(
                "%d citations of a paper that is no candidate, or of the citing paper itself: never found",
                unreachable,
            )
        columns: dict[str, NDArray[Any]] = {"is_candidate": is_candidate, "seen": seen}
        columns |= {
            "years": np.frombuffer(self._years, np.int32),
            "citing": self._citing_rows(),
        }
        for stem, values in columns.items():
            save_array(self._folder, stem, values)
        self._fields.finish()
        self._finish_words(in_train)

    def _finish_words(self, in_train: NDArray[np.bool_]) -> None:
        """Count, sort the vocabulary, and write all tokens again with ids of that order."""
        words = self._words.words()
        counts = np.zeros(len(words), np.int64)
        for writer, counted in (
            (self._titles, None),
            (self._abstracts, None),
            (self._context_tokens, in_train),
        ):
            for ids in writer.chunks(counted):
                counts += np.bincount(ids, minlength=len(words))
        keys = [("count", "descending"), ("word", "ascending")]
        order = pc.sort_indices(pa.table({"count": counts, "word": words}), keys).to_numpy()
        final = np.empty(len(words), np.int32)
        final[order] = np.arange(len(words), dtype=np.int32)
        for writer in (self._titles, self._abstracts, self._context_tokens):
            writer.finish(final)
        column = TextWriter(self._folder / "words.arrow", ("word",))
        try:
            for first in range(0, len(order), BATCH_ROWS):
                for word in words.take(pa.array(order[first : first + BATCH_ROWS])).to_pylist():
                    column.append(word)
        finally:
            column.close()
        save_array(self._folder, "word_counts", counts[order])

    def close(self) -> None:
        """Write out what is buffered; again does nothing."""
        for writer in self._writers:
            writer.close()

    def _citing_rows(self) -> NDArray[np.int32]:
        return np.frombuffer(self._citing, np.int32)

    def _paper_id(self, row: int) -> str:
        return next(paper for paper, other in self._paper_rows.items() if other == row)

    @staticmethod
    def _grow(values: array[int], length: int) -> array[int]:
        values.extend([0] * (length - len(values)))
        return values


def _unknown_paper(path: Path, record: str, field: str, paper: str) -> str:
    return f"{path}, record {record!r}, field {field!r}: no paper {paper!r} in the papers file"
